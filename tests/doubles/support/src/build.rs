//! Building the stand-ins, and the private folder from which they are loaded.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Why the stand-ins are not there.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The test does not lie where cargo puts tests, so the target folder is not known.
    #[error("{0} does not lie in a profile's folder of a cargo target folder; run it through cargo")]
    NotInTargetFolder(PathBuf),
    /// Cargo could not build them.
    #[error("building the stand-ins failed; `{command}` said:\n{output}")]
    Build {
        /// The command.
        command: String,
        /// What it printed.
        output: String,
    },
    /// A file could not be made or read.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// The stand-ins in a folder of their own, which is removed when this is dropped.
#[derive(Debug)]
pub struct Doubles {
    folder: tempfile::TempDir,
}

/// Built file, and the names under which it is looked for; all but the first are links to it, so that
/// the library is loaded once whichever name is asked for.
const LIBRARIES: [(&str, &str, [&str; 2]); 3] = [
    ("double_cuda", "libdouble_cuda.so", ["libcuda.so.1", "libcuda.so"]),
    ("double_nccl", "libdouble_nccl.so", ["libnccl.so.2", "libnccl.so"]),
    ("double_cublas", "libdouble_cublas.so", ["libcublas.so.12", "libcublas.so"]),
];

impl Doubles {
    /// Builds driver and NCCL, if they are not up to date, and sets them up.
    ///
    /// # Errors
    ///
    /// If cargo fails or the folder cannot be made.
    pub fn new() -> Result<Doubles, Error> {
        Doubles::with(&LIBRARIES[..2])
    }

    /// As [`new`](Doubles::new), with cuBLAS too.
    ///
    /// # Errors
    ///
    /// As for `new`.
    pub fn with_cublas() -> Result<Doubles, Error> {
        Doubles::with(&LIBRARIES)
    }

    /// As [`new`](Doubles::new), with the driver alone: a machine without NCCL.
    ///
    /// # Errors
    ///
    /// As for `new`.
    pub fn without_nccl() -> Result<Doubles, Error> {
        Doubles::with(&LIBRARIES[..1])
    }

    fn with(libraries: &[(&str, &str, [&str; 2])]) -> Result<Doubles, Error> {
        static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
        // One cargo a process; others wait for cargo's own lock.
        let profile = profile_folder()?;
        let built =
            BUILT.get_or_init(|| build(&profile).map(|()| profile).map_err(|error| error.to_string()));
        let built = built.as_ref().map_err(|output| Error::Build {
            command: "cargo build -p double_cuda -p double_nccl -p double_cublas".into(),
            output: output.clone(),
        })?;
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::File { path, source }
        };
        let folder = tempfile::Builder::new().prefix("cuda-stand-in-").tempdir();
        let folder = folder.map_err(at(&std::env::temp_dir()))?;
        for (_, file, [name, link]) in libraries {
            let (from, to) = (built.join(file), folder.path().join(name));
            std::fs::copy(&from, &to).map_err(at(&from))?;
            std::os::unix::fs::symlink(name, folder.path().join(link)).map_err(at(&to))?;
        }
        Ok(Doubles { folder })
    }

    /// The folder, for a library path.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A command that finds the stand-ins before any other library of their names.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        let mut paths = vec![self.folder().to_owned()];
        if let Some(inherited) = std::env::var_os("LD_LIBRARY_PATH") {
            paths.extend(std::env::split_paths(&inherited));
        }
        // A temporary folder's path holds no separator.
        if let Ok(paths) = std::env::join_paths(paths) {
            command.env("LD_LIBRARY_PATH", paths);
        }
        command
    }
}

/// The folder of the profile that this test was built with, such as `target/debug`.
fn profile_folder() -> Result<PathBuf, Error> {
    let test = std::env::current_exe()
        .map_err(|source| Error::File { path: "the running program".into(), source })?;
    let parent = test.parent().map(Path::to_owned);
    let profile = match parent {
        Some(folder) if folder.ends_with("deps") || folder.ends_with("examples") => {
            folder.parent().map(Path::to_owned)
        }
        other => other,
    };
    profile.filter(|folder| folder.parent().is_some()).ok_or(Error::NotInTargetFolder(test))
}

fn build(profile: &Path) -> Result<(), Error> {
    let name = profile.file_name().and_then(OsStr::to_str).unwrap_or("debug");
    let name = if name == "debug" { "dev" } else { name };
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        // The stand-ins are for this machine, whatever the tests were built as.
        .env_remove("CARGO_BUILD_TARGET")
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."))
        .args(["build", "--quiet", "--locked", "--profile", name, "--target-dir"])
        .arg(profile.parent().unwrap_or(profile));
    for (package, _, _) in LIBRARIES {
        command.args(["-p", package]);
    }
    let shown = format!("{command:?}");
    let output =
        command.output().map_err(|source| Error::File { path: command.get_program().into(), source })?;
    if output.status.success() {
        return Ok(());
    }
    let output = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(Error::Build { command: shown, output })
}
