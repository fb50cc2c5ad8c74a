//! How often each function of the driver was called.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Functions that wait for the device: a stream, an event, a context, or a copy without a stream.
/// (Copies of pageable memory to the host wait too; they are the application's own.)
pub const SYNCHRONIZING: [&str; 11] = [
    "cuCtxSynchronize",
    "cuCtxSynchronize_v2",
    "cuEventSynchronize",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemcpyDtoD_v2",
    "cuMemcpyDtoH_v2",
    "cuMemcpyHtoD_v2",
    "cuMemsetD32_v2",
    "cuMemsetD8_v2",
    "cuStreamSynchronize",
];

/// Calls by the function's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    calls: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct Line {
    calls: BTreeMap<String, u64>,
}

impl Counts {
    /// The counts so far of the stand-in driver that this process has loaded; `None` if it has none.
    pub fn now() -> Option<Counts> {
        type CountsJson = unsafe extern "C" fn(*mut std::ffi::c_char, usize) -> usize;
        // SAFETY: a library of this name is the stand-in or a driver, both made to be opened at any time.
        let driver = unsafe { libloading::Library::new("libcuda.so.1") }.ok()?;
        // SAFETY: only the stand-in has this symbol, with this type.
        let json = unsafe { driver.get::<CountsJson>("double_cuda_counts") }.ok()?;
        let mut text = vec![0_u8; 1 << 16];
        // SAFETY: the buffer has the length that is given.
        let length = unsafe { json(text.as_mut_ptr().cast(), text.len()) };
        Counts::parse(std::str::from_utf8(text.get(..length)?).ok()?).ok()
    }

    /// The sum over the processes that wrote into a file of `DOUBLE_CUDA_COUNTS`; nothing if there is none.
    ///
    /// # Errors
    ///
    /// If it cannot be read or is not such a file.
    pub fn read(path: &Path) -> std::io::Result<Counts> {
        let mut sum = Counts::default();
        for line in crate::log::lines(path)? {
            for (name, calls) in Counts::parse(&line)?.calls {
                *sum.calls.entry(name).or_default() += calls;
            }
        }
        Ok(sum)
    }

    fn parse(line: &str) -> serde_json::Result<Counts> {
        serde_json::from_str(line).map(|Line { calls }| Counts { calls })
    }

    /// Calls of one function.
    pub fn of(&self, name: &str) -> u64 {
        self.calls.get(name).copied().unwrap_or(0)
    }

    /// Calls of the functions in [`SYNCHRONIZING`], those that were called.
    pub fn synchronizing(&self) -> BTreeMap<&str, u64> {
        let called = |name: &&str| self.of(name) > 0;
        SYNCHRONIZING.into_iter().filter(called).map(|name| (name, self.of(name))).collect()
    }

    /// The calls since `earlier`.
    pub fn since(&self, earlier: &Counts) -> Counts {
        let later = |(name, calls): (&String, &u64)| (name.clone(), calls.saturating_sub(earlier.of(name)));
        Counts { calls: self.calls.iter().map(later).filter(|(_, calls)| *calls > 0).collect() }
    }
}
