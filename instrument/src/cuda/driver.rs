//! The functions of the CUDA driver that timing needs.
//!
//! They are the symbols behind `cudarc::driver::sys`, found in the library that cudarc has loaded or
//! linked, but each is looked up here: cudarc panics where a library or a symbol is missing, and which
//! functions it declares depends on the CUDA version that the application chose. Its safe wrappers are
//! not used for another reason: they hand out and store the errors that belong to the application.

use libloading::Library;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::OnceLock;

/// What a driver function returned, a `CUresult`. Not cudarc's enum: a newer driver may return codes
/// that it does not have.
pub(crate) type Code = u32;

/// A driver's handle. As a number, because it crosses threads and is only ever given back to the driver.
pub(crate) type Handle = usize;

pub(crate) const SUCCESS: Code = 0;
pub(crate) const NOT_READY: Code = 600;
const CAPTURE_IMPLICIT: Code = 906;

/// `CU_STREAM_LEGACY`, which is also meant by 0.
pub(crate) const LEGACY_STREAM: Handle = 1;
/// `CU_STREAM_PER_THREAD`: for each host thread another stream.
pub(crate) const PER_THREAD_STREAM: Handle = 2;

const EVENT_DEFAULT: c_uint = 0;
const STREAM_NON_BLOCKING: c_uint = 1;
const CAPTURE_STATUS_NONE: c_int = 0;
const CAPTURE_MODE_RELAXED: c_int = 2;

type Pointer = *mut c_void;

/// The driver's functions.
#[derive(Debug)]
pub(crate) struct Driver {
    ctx_get_current: unsafe extern "C" fn(*mut Pointer) -> Code,
    ctx_push_current: unsafe extern "C" fn(Pointer) -> Code,
    ctx_pop_current: unsafe extern "C" fn(*mut Pointer) -> Code,
    ctx_get_device: unsafe extern "C" fn(*mut c_int) -> Code,
    stream_create: unsafe extern "C" fn(*mut Pointer, c_uint) -> Code,
    stream_destroy: unsafe extern "C" fn(Pointer) -> Code,
    event_create: unsafe extern "C" fn(*mut Pointer, c_uint) -> Code,
    event_destroy: unsafe extern "C" fn(Pointer) -> Code,
    event_record: unsafe extern "C" fn(Pointer, Pointer) -> Code,
    event_query: unsafe extern "C" fn(Pointer) -> Code,
    event_elapsed: unsafe extern "C" fn(*mut f32, Pointer, Pointer) -> Code,
    /// Since CUDA 10.0, as is capture itself.
    stream_is_capturing: Option<unsafe extern "C" fn(Pointer, *mut c_int) -> Code>,
    /// Since CUDA 10.1.
    exchange_capture_mode: Option<unsafe extern "C" fn(*mut c_int) -> Code>,
}

/// The driver, loaded at the first call; why there is none otherwise.
pub(crate) fn driver() -> Result<&'static Driver, &'static str> {
    static DRIVER: OnceLock<Result<Driver, String>> = OnceLock::new();
    DRIVER.get_or_init(Driver::load).as_ref().map_err(String::as_str)
}

impl Driver {
    fn load() -> Result<Self, String> {
        let library = open_library()?;
        macro_rules! function {
            ($($name:literal),+) => {
                // SAFETY: the types are those of the CUDA driver API for these names.
                [$($name),+].into_iter().find_map(|name: &str| unsafe { library.get(name).ok().map(|f| *f) })
            };
        }
        let missing =
            |name: &str| format!("the CUDA driver has no `{name}`: install a driver of CUDA 11.4 or later");
        let driver = Self {
            ctx_get_current: function!("cuCtxGetCurrent").ok_or_else(|| missing("cuCtxGetCurrent"))?,
            ctx_push_current: function!("cuCtxPushCurrent_v2")
                .ok_or_else(|| missing("cuCtxPushCurrent_v2"))?,
            ctx_pop_current: function!("cuCtxPopCurrent_v2").ok_or_else(|| missing("cuCtxPopCurrent_v2"))?,
            ctx_get_device: function!("cuCtxGetDevice").ok_or_else(|| missing("cuCtxGetDevice"))?,
            stream_create: function!("cuStreamCreate").ok_or_else(|| missing("cuStreamCreate"))?,
            stream_destroy: function!("cuStreamDestroy_v2").ok_or_else(|| missing("cuStreamDestroy_v2"))?,
            event_create: function!("cuEventCreate").ok_or_else(|| missing("cuEventCreate"))?,
            event_destroy: function!("cuEventDestroy_v2").ok_or_else(|| missing("cuEventDestroy_v2"))?,
            event_record: function!("cuEventRecord").ok_or_else(|| missing("cuEventRecord"))?,
            event_query: function!("cuEventQuery").ok_or_else(|| missing("cuEventQuery"))?,
            event_elapsed: function!("cuEventElapsedTime_v2", "cuEventElapsedTime")
                .ok_or_else(|| missing("cuEventElapsedTime"))?,
            stream_is_capturing: function!("cuStreamIsCapturing"),
            exchange_capture_mode: function!("cuThreadExchangeStreamCaptureMode"),
        };
        // The functions are used until the process ends.
        std::mem::forget(library);
        Ok(driver)
    }

    /// Runs `action` with `context` current. The thread's own current context is as before afterwards.
    ///
    /// # Errors
    ///
    /// The driver's code if the context cannot be made current; `action` was not run.
    pub fn with_context<R>(&self, context: Handle, action: impl FnOnce() -> R) -> Result<R, Code> {
        if self.current_context() == Ok(context) {
            return Ok(action());
        }
        // SAFETY: the driver checks the handle, which whoever made the stream known vouched for.
        match unsafe { (self.ctx_push_current)(context as Pointer) } {
            SUCCESS => {}
            code => return Err(code),
        }
        let result = action();
        let mut current = ptr::null_mut();
        // SAFETY: takes off what was pushed above.
        unsafe { (self.ctx_pop_current)(&mut current) };
        Ok(result)
    }

    /// The context that is current on the calling thread, 0 if there is none.
    pub fn current_context(&self) -> Result<Handle, Code> {
        let mut current = ptr::null_mut();
        // SAFETY: writes one handle.
        check(unsafe { (self.ctx_get_current)(&mut current) })?;
        Ok(current as Handle)
    }

    /// Ordinal of the current context's device.
    pub fn current_device(&self) -> Result<u32, Code> {
        let mut device = 0;
        // SAFETY: writes one number.
        check(unsafe { (self.ctx_get_device)(&mut device) })?;
        Ok(u32::try_from(device).unwrap_or(0))
    }

    /// A stream of the current context that takes no part in the legacy stream's synchronization.
    pub fn create_stream(&self) -> Result<Handle, Code> {
        let mut stream = ptr::null_mut();
        // SAFETY: writes one handle.
        check(unsafe { (self.stream_create)(&mut stream, STREAM_NON_BLOCKING) })?;
        Ok(stream as Handle)
    }

    /// Destroys a stream of [`create_stream`](Self::create_stream). Does not wait.
    pub fn destroy_stream(&self, stream: Handle) -> Code {
        // SAFETY: the caller made it and uses it no more.
        unsafe { (self.stream_destroy)(stream as Pointer) }
    }

    /// An event of the current context, with timing.
    pub fn create_event(&self) -> Result<Handle, Code> {
        let mut event = ptr::null_mut();
        // SAFETY: writes one handle.
        check(unsafe { (self.event_create)(&mut event, EVENT_DEFAULT) })?;
        Ok(event as Handle)
    }

    /// Destroys an event. Does not wait.
    pub fn destroy_event(&self, event: Handle) -> Code {
        // SAFETY: the caller made it and uses it no more.
        unsafe { (self.event_destroy)(event as Pointer) }
    }

    /// Records `event` on `stream`; both belong to the current context.
    pub fn record(&self, event: Handle, stream: Handle) -> Code {
        // SAFETY: the event is one of ours; that the stream is alive is ensured by who holds it.
        unsafe { (self.event_record)(event as Pointer, stream as Pointer) }
    }

    /// `SUCCESS` once `event` has happened, `NOT_READY` before.
    pub fn query(&self, event: Handle) -> Code {
        // SAFETY: the event is one of ours.
        unsafe { (self.event_query)(event as Pointer) }
    }

    /// Milliseconds from `start` to `end`, both of which have happened. Does not wait.
    pub fn elapsed_ms(&self, start: Handle, end: Handle) -> Result<f32, Code> {
        let mut milliseconds = 0.0;
        // SAFETY: writes one number; the events are ours.
        check(unsafe { (self.event_elapsed)(&mut milliseconds, start as Pointer, end as Pointer) })?;
        Ok(milliseconds)
    }

    /// Whether what is enqueued on `stream` now goes into a graph instead of being run.
    ///
    /// Legal in every state: on the legacy stream while another stream of the context is being captured
    /// the driver answers with an error that leaves that capture intact, and recording there would
    /// break it, so that counts as captured too.
    pub fn is_capturing(&self, stream: Handle) -> Result<bool, Code> {
        let Some(is_capturing) = self.stream_is_capturing else { return Ok(false) };
        let mut status = CAPTURE_STATUS_NONE;
        // SAFETY: writes one number.
        match unsafe { is_capturing(stream as Pointer, &mut status) } {
            SUCCESS => Ok(status != CAPTURE_STATUS_NONE),
            CAPTURE_IMPLICIT => Ok(true),
            code => Err(code),
        }
    }

    /// Lets the calling thread's queries pass while another thread captures a graph in global mode;
    /// otherwise each of them would invalidate that capture.
    pub fn relax_capture_mode(&self) {
        if let Some(exchange) = self.exchange_capture_mode {
            let mut mode = CAPTURE_MODE_RELAXED;
            // SAFETY: reads and writes one number.
            unsafe { exchange(&mut mode) };
        }
    }
}

fn check(code: Code) -> Result<(), Code> {
    if code == SUCCESS { Ok(()) } else { Err(code) }
}

/// The driver's library: the one that is loaded already, else the first of cudarc's names.
fn open_library() -> Result<Library, String> {
    #[cfg(unix)]
    let names = ["libcuda.so", "libcuda.so.1"];
    #[cfg(not(unix))]
    let names = ["nvcuda.dll"];
    #[cfg(unix)]
    for name in names {
        use libloading::os::unix;
        // SAFETY: nothing is loaded, so no code of the library runs.
        if let Ok(library) = unsafe { unix::Library::open(Some(name), libc::RTLD_NOLOAD | libc::RTLD_LAZY) } {
            return Ok(library.into());
        }
    }
    let mut reason = String::new();
    for name in names {
        // SAFETY: the CUDA driver's initializers have no conditions; cudarc loads the same library.
        match unsafe { Library::new(name) } {
            Ok(library) => return Ok(library),
            Err(error) => reason = error.to_string(),
        }
    }
    Err(format!("the CUDA driver library cannot be loaded ({reason})"))
}
