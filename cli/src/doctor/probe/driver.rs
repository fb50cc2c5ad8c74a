//! NVIDIA's driver through its own interface.

use super::library::{self, Loaded};
use libloading::Symbol;
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, c_char, c_int, c_uint};
use std::ptr;

/// What was found of the driver.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Driver {
    /// The library; `None` if it could not be loaded.
    pub path: Option<String>,
    /// What the loader says, if it could not, and it is not just missing.
    pub load_error: Option<String>,
    /// The newest CUDA version that it supports: 1000 major + 10 minor.
    pub version: Option<i32>,
    /// The error of the first call that failed.
    pub error: Option<String>,
    /// The devices, by ordinal.
    pub devices: Vec<Device>,
    /// Functions that it does not have.
    pub missing: Vec<String>,
}

/// A device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its name.
    pub name: Option<String>,
    /// Its memory.
    pub bytes: Option<u64>,
}

/// More devices than a process can have.
const MOST_DEVICES: c_int = 1024;

type Result<T> = std::result::Result<T, String>;

pub fn probe() -> Driver {
    let loaded = match library::load(&["libcuda.so.1", "libcuda.so"]) {
        Ok(loaded) => loaded,
        Err(errors) => {
            let load_error = (!library::not_there(&errors)).then(|| errors.join("; "));
            return Driver { load_error, ..Driver::default() };
        }
    };
    let mut found = Driver { path: Some(loaded.path.clone()), ..Driver::default() };
    if let Err(error) = query(&loaded, &mut found) {
        found.error = Some(error);
    }
    // Unloading a driver is asking for trouble; the process ends anyway.
    std::mem::forget(loaded);
    found
}

fn query(loaded: &Loaded, found: &mut Driver) -> Result<()> {
    let api = Api { loaded };
    let mut version = 0;
    // SAFETY: the type is that of `cuda.h`.
    if let Some(get) =
        unsafe { api.function::<unsafe extern "C" fn(*mut c_int) -> c_uint>("cuDriverGetVersion", found) }
    {
        // SAFETY: `version` is a place for the result. This may be called before `cuInit`.
        api.check("cuDriverGetVersion", unsafe { get(&mut version) })?;
        found.version = Some(version);
    }
    // SAFETY: as above.
    if let Some(init) = unsafe { api.function::<unsafe extern "C" fn(c_uint) -> c_uint>("cuInit", found) } {
        // SAFETY: the flags must be 0.
        api.check("cuInit", unsafe { init(0) })?;
    }
    let mut count = 0;
    // SAFETY: as above.
    if let Some(get) =
        unsafe { api.function::<unsafe extern "C" fn(*mut c_int) -> c_uint>("cuDeviceGetCount", found) }
    {
        // SAFETY: `count` is a place for the result.
        api.check("cuDeviceGetCount", unsafe { get(&mut count) })?;
    }
    for ordinal in 0..count.clamp(0, MOST_DEVICES) {
        let device = device(&api, ordinal, found)?;
        found.devices.push(device);
    }
    Ok(())
}

fn device(api: &Api<'_>, ordinal: c_int, found: &mut Driver) -> Result<Device> {
    let mut device = Device::default();
    let mut handle = 0;
    // SAFETY: the type is that of `cuda.h`, here and below.
    let get =
        unsafe { api.function::<unsafe extern "C" fn(*mut c_int, c_int) -> c_uint>("cuDeviceGet", found) };
    let Some(get) = get else { return Ok(device) };
    // SAFETY: `handle` is a place for the result.
    api.check("cuDeviceGet", unsafe { get(&mut handle, ordinal) })?;
    let name = unsafe {
        api.function::<unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_uint>("cuDeviceGetName", found)
    };
    if let Some(name) = name {
        let mut text = [0 as c_char; 256];
        // SAFETY: at most as many bytes as there are, but for the last, are written.
        api.check("cuDeviceGetName", unsafe { name(text.as_mut_ptr(), 255, handle) })?;
        // SAFETY: the last byte is 0 still.
        device.name = Some(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned());
    }
    let memory = unsafe {
        api.function::<unsafe extern "C" fn(*mut usize, c_int) -> c_uint>("cuDeviceTotalMem_v2", found)
    };
    if let Some(memory) = memory {
        let mut bytes = 0;
        // SAFETY: `bytes` is a place for the result.
        api.check("cuDeviceTotalMem", unsafe { memory(&mut bytes, handle) })?;
        device.bytes = u64::try_from(bytes).ok();
    }
    Ok(device)
}

struct Api<'a> {
    loaded: &'a Loaded,
}

impl Api<'_> {
    /// A function of the library; one that it does not have is noted.
    ///
    /// # Safety
    ///
    /// `T` has to be the function's type.
    unsafe fn function<T>(&self, name: &str, found: &mut Driver) -> Option<Symbol<'_, T>> {
        // SAFETY: as required of the caller.
        let symbol = unsafe { self.loaded.library.get::<T>(name.as_bytes()) }.ok();
        if symbol.is_none() && !found.missing.iter().any(|missing| missing == name) {
            found.missing.push(name.to_owned());
        }
        symbol
    }

    fn check(&self, call: &str, code: c_uint) -> Result<()> {
        if code == 0 { Ok(()) } else { Err(format!("{call} failed: {}", self.error_name(code))) }
    }

    fn error_name(&self, code: c_uint) -> String {
        type GetErrorName = unsafe extern "C" fn(c_uint, *mut *const c_char) -> c_uint;
        // SAFETY: the type is that of `cuda.h`.
        let get = unsafe { self.loaded.library.get::<GetErrorName>(b"cuGetErrorName") };
        let mut name: *const c_char = ptr::null();
        if let Ok(get) = get
            // SAFETY: `name` is a place for the result.
            && unsafe { get(code, &mut name) } == 0
            && !name.is_null()
        {
            // SAFETY: the driver gives a static text that ends with a zero byte.
            return format!("{} ({code})", unsafe { CStr::from_ptr(name) }.to_string_lossy());
        }
        format!("error {code}")
    }
}
