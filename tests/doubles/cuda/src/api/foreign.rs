//! The door for libraries that stand on the stand-in, as NCCL's does.

use crate::abi::Text;
use crate::error::Error;
use crate::stream;
use crate::work::{Foreign, Work};
use double_common::handles::Handle;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

driver! {
    /// Enqueues a piece of work that the log calls `kind` and `name`. `run` may run any number of times
    /// (a graph replays it); `release` runs once, after the last, also if this call fails.
    fn double_cuda_enqueue(
        stream: Handle,
        kind: Text,
        name: Text,
        run: Option<extern "C" fn(*mut c_void) -> c_int>,
        release: Option<extern "C" fn(*mut c_void)>,
        data: *mut c_void,
    ) {
        let (Some(run), Some(release)) = (run, release) else { return Err(Error::INVALID_VALUE) };
        let plain = |text: &Text| -> crate::error::Result<String> {
            let text = text.read()?.to_string_lossy();
            Ok(text.chars().filter(|c| c.is_ascii_alphanumeric() || "_-. ".contains(*c)).collect())
        };
        let (kind, name) = (plain(&kind)?, plain(&name)?);
        let foreign = Arc::new(Foreign { kind, name, run, release, data: data as usize });
        stream::find(stream)?.submit(Work::Foreign(foreign))
    }
}
