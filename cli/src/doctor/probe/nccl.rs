//! NCCL and its version.

use super::library;
use serde::{Deserialize, Serialize};
use std::ffi::{c_int, c_uint};

/// What was found of NCCL.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nccl {
    /// The library; `None` if it could not be loaded.
    pub path: Option<String>,
    /// What the loader says, if it could not, and it is not just missing.
    pub load_error: Option<String>,
    /// Its version, for example `2.21.5`.
    pub version: Option<String>,
    /// Why there is no version.
    pub error: Option<String>,
}

pub fn probe() -> Nccl {
    let loaded = match library::load(&["libnccl.so.2", "libnccl.so"]) {
        Ok(loaded) => loaded,
        Err(errors) => {
            let load_error = (!library::not_there(&errors)).then(|| errors.join("; "));
            return Nccl { load_error, ..Nccl::default() };
        }
    };
    let mut found = Nccl { path: Some(loaded.path.clone()), ..Nccl::default() };
    // SAFETY: the type is that of `nccl.h`.
    match unsafe { loaded.library.get::<unsafe extern "C" fn(*mut c_int) -> c_uint>(b"ncclGetVersion") } {
        Ok(get) => {
            let mut code = 0;
            // SAFETY: `code` is a place for the result; the call needs no initialization.
            match unsafe { get(&mut code) } {
                0 => found.version = Some(version(code)),
                error => found.error = Some(format!("ncclGetVersion failed with error {error}")),
            }
        }
        Err(_) => found.error = Some("it has no ncclGetVersion".to_owned()),
    }
    std::mem::forget(loaded);
    found
}

/// The version in NCCL's number: 1000 major + 100 minor + patch up to 2.8, since then 10000 major.
fn version(code: c_int) -> String {
    let (major, rest) =
        if code < 10_000 { (code / 1000, code % 1000) } else { (code / 10_000, code % 10_000) };
    format!("{major}.{}.{}", rest / 100, rest % 100)
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn both_ways_of_numbering_versions() {
        assert_eq!(version(2_708), "2.7.8");
        assert_eq!(version(20_906), "2.9.6");
        assert_eq!(version(22_105), "2.21.5");
        assert_eq!(version(22_809), "2.28.9");
    }
}
