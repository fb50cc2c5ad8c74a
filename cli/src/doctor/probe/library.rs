//! Finding a shared library by its usual names.

use libloading::Library;
use std::fs;

/// A library that could be loaded.
pub struct Loaded {
    pub library: Library,
    /// Where it is, as far as the system tells; else the name that it was found by.
    pub path: String,
}

/// The first of `names` that can be loaded, or what the loader says of each.
pub fn load(names: &[&str]) -> Result<Loaded, Vec<String>> {
    let mut errors = Vec::new();
    for &name in names {
        // SAFETY: this runs the library's initializers, which can do anything; that is why it is done in
        // a process that has no other purpose.
        match unsafe { Library::new(name) } {
            Ok(library) => {
                return Ok(Loaded { library, path: path(name).unwrap_or_else(|| name.to_owned()) });
            }
            // What the loader says is the error's source.
            Err(error) => {
                errors.push(
                    std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string),
                );
            }
        }
    }
    Err(errors)
}

/// Whether the loader's messages say no more than that there is no such file.
pub fn not_there(errors: &[String]) -> bool {
    errors.iter().all(|error| error.contains("cannot open shared object file: No such file or directory"))
}

/// Where the library called `name` was mapped from.
fn path(name: &str) -> Option<String> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let stem = name.split(".so").next()?;
    maps.lines()
        .filter_map(|line| line.find('/').map(|at| &line[at..]))
        .find(|path| path.rsplit('/').next().is_some_and(|file| file.starts_with(&format!("{stem}.so"))))
        .map(str::to_owned)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_told_from_what_cannot_be_loaded() {
        let errors = load(&["libno-such-library.so.1", "libno-such-library.so"]).err().unwrap();
        assert_eq!(errors.len(), 2);
        assert!(not_there(&errors), "{errors:?}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("library.so");
        fs::write(&path, "no library").unwrap();
        let errors = load(&["libno-such-library.so", path.to_str().unwrap()]).err().unwrap();
        assert!(!not_there(&errors) && errors[1].contains("library.so"), "{errors:?}");
    }

    #[test]
    fn a_library_is_found_by_name_with_its_path() {
        let loaded = load(&["libno-such-library.so", "libc.so.6"]).ok().unwrap();
        assert!(loaded.path.starts_with('/') && loaded.path.contains("libc"), "{}", loaded.path);
    }
}
