//! Contexts, and which of them is current on a thread.

use crate::error::{Error, Result};
use crate::settings;
use crate::stream::{self, Stream};
use double_common::handles::{Handle, Table};
use double_common::lock;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// A context: one device, its streams, and the error that broke it, if any.
pub struct Context {
    pub handle: Handle,
    pub id: u64,
    pub device: i32,
    pub flags: AtomicU32,
    error: AtomicI32,
    destroyed: AtomicBool,
    legacy: Mutex<Option<Arc<Stream>>>,
    streams: Mutex<Vec<Weak<Stream>>>,
}

struct Primary {
    context: Option<Arc<Context>>,
    retained: u32,
    flags: u32,
}

static CONTEXTS: Table<Context> = Table::new(0x11);
static PRIMARIES: Mutex<Vec<Primary>> = Mutex::new(Vec::new());
static INITIALIZED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static CURRENT: RefCell<Vec<Handle>> = const { RefCell::new(Vec::new()) };
}

impl Context {
    fn create(device: i32, flags: u32) -> Result<Arc<Context>> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let make = |handle| {
            Arc::new(Context {
                handle,
                id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
                device,
                flags: AtomicU32::new(flags),
                error: AtomicI32::new(0),
                destroyed: AtomicBool::new(false),
                legacy: Mutex::new(None),
                streams: Mutex::new(Vec::new()),
            })
        };
        let (_, context) = CONTEXTS.insert_with(make).ok_or(Error::OUT_OF_MEMORY)?;
        *lock(&context.legacy) = Some(Stream::special(&context, stream::LEGACY)?);
        Ok(context)
    }

    /// The error that every call into this context gets, if there is one.
    pub fn check(&self) -> Result {
        if self.destroyed.load(Ordering::Acquire) {
            return Err(Error::CONTEXT_IS_DESTROYED);
        }
        match self.error.load(Ordering::Acquire) {
            0 => Ok(()),
            code => Err(Error(code)),
        }
    }

    /// Breaks the context for good; the first error stays.
    pub fn fail(&self, error: Error) {
        let _ = self.error.compare_exchange(0, error.0, Ordering::AcqRel, Ordering::Acquire);
    }

    pub fn legacy_stream(&self) -> Result<Arc<Stream>> {
        lock(&self.legacy).clone().ok_or(Error::CONTEXT_IS_DESTROYED)
    }

    pub fn add_stream(&self, stream: &Arc<Stream>) {
        let mut streams = lock(&self.streams);
        streams.retain(|stream| stream.strong_count() > 0);
        streams.push(Arc::downgrade(stream));
    }

    /// The streams that live.
    pub fn streams(&self) -> Vec<Arc<Stream>> {
        lock(&self.streams).iter().filter_map(Weak::upgrade).collect()
    }

    /// Waits for all work of all streams.
    pub fn synchronize(&self) -> Result {
        for stream in self.streams() {
            stream.synchronize()?;
        }
        self.check()
    }

    /// Ends the context: work that was submitted still runs unless an error broke it.
    fn destroy(&self) {
        if self.check().is_ok() {
            let _ = self.synchronize();
        }
        self.destroyed.store(true, Ordering::Release);
        CONTEXTS.remove(self.handle);
        for stream in self.streams() {
            stream.close();
        }
        *lock(&self.legacy) = None;
        crate::memory::free_all(self.id);
    }
}

/// Makes the driver usable, as `cuInit`.
pub fn initialize() -> Result {
    if let Some(problem) = &settings::get().problem {
        eprintln!("stand-in CUDA driver: {problem}");
        return Err(Error::INVALID_VALUE);
    }
    if settings::get().devices <= 0 {
        return Err(Error::NO_DEVICE);
    }
    INITIALIZED.store(true, Ordering::Release);
    Ok(())
}

/// Checks that the driver was initialized.
pub fn initialized() -> Result {
    if INITIALIZED.load(Ordering::Acquire) { Ok(()) } else { Err(Error::NOT_INITIALIZED) }
}

/// Checks a device's number.
pub fn check_device(device: i32) -> Result {
    initialized()?;
    if (0..settings::get().devices).contains(&device) { Ok(()) } else { Err(Error::INVALID_DEVICE) }
}

/// The context that is current on this thread, if it lives, broken or not.
pub fn current_or_none() -> Option<Arc<Context>> {
    CURRENT.with_borrow(|stack| stack.last().copied()).and_then(|handle| CONTEXTS.get(handle))
}

/// The handle of the context that is current on this thread, 0 for none.
pub fn current_handle() -> Handle {
    CURRENT.with_borrow(|stack| stack.last().copied().unwrap_or(0))
}

/// The context that is current on this thread and works.
pub fn current() -> Result<Arc<Context>> {
    initialized()?;
    match current_handle() {
        0 => Err(Error::INVALID_CONTEXT),
        handle => find_live(handle),
    }
}

/// The context behind a handle, broken or not.
pub fn find(handle: Handle) -> Result<Arc<Context>> {
    initialized()?;
    CONTEXTS.get(handle).ok_or(Error::INVALID_CONTEXT)
}

fn find_live(handle: Handle) -> Result<Arc<Context>> {
    let context = CONTEXTS.get(handle).ok_or(Error::CONTEXT_IS_DESTROYED)?;
    context.check()?;
    Ok(context)
}

/// Replaces the thread's current context; 0 for none.
pub fn set_current(handle: Handle) -> Result {
    if handle != 0 {
        find(handle)?;
    }
    CURRENT.with_borrow_mut(|stack| {
        stack.pop();
        if handle != 0 {
            stack.push(handle);
        }
    });
    Ok(())
}

pub fn push(handle: Handle) -> Result {
    find(handle)?;
    CURRENT.with_borrow_mut(|stack| stack.push(handle));
    Ok(())
}

pub fn pop() -> Result<Handle> {
    initialized()?;
    CURRENT.with_borrow_mut(Vec::pop).ok_or(Error::INVALID_CONTEXT)
}

/// Creates a context of one's own and makes it current.
pub fn create(device: i32, flags: u32) -> Result<Handle> {
    check_device(device)?;
    let context = Context::create(device, flags)?;
    push(context.handle)?;
    Ok(context.handle)
}

/// Destroys a context of one's own; a primary one is the device's to keep.
pub fn destroy(handle: Handle) -> Result {
    let context = find(handle)?;
    let primary = |primary: &Primary| primary.context.as_ref().is_some_and(|it| it.handle == handle);
    if lock(&PRIMARIES).iter().any(primary) {
        return Err(Error::INVALID_CONTEXT);
    }
    context.destroy();
    CURRENT.with_borrow_mut(|stack| {
        if stack.last() == Some(&handle) {
            stack.pop();
        }
    });
    Ok(())
}

fn with_primary<R>(device: i32, act: impl FnOnce(&mut Primary) -> Result<R>) -> Result<R> {
    check_device(device)?;
    let mut primaries = lock(&PRIMARIES);
    let count = settings::get().devices.max(0) as usize;
    if primaries.len() < count {
        primaries.resize_with(count, || Primary { context: None, retained: 0, flags: 0 });
    }
    act(primaries.get_mut(device as usize).ok_or(Error::INVALID_DEVICE)?)
}

/// Retains the device's primary context, creating it at first.
pub fn retain_primary(device: i32) -> Result<Handle> {
    with_primary(device, |primary| {
        let context = match &primary.context {
            Some(context) => context.clone(),
            None => primary.context.insert(Context::create(device, primary.flags)?).clone(),
        };
        primary.retained += 1;
        Ok(context.handle)
    })
}

/// Releases the device's primary context; the last release destroys it.
pub fn release_primary(device: i32) -> Result {
    let last = with_primary(device, |primary| {
        primary.retained = primary.retained.checked_sub(1).ok_or(Error::INVALID_CONTEXT)?;
        Ok(if primary.retained == 0 { primary.context.take() } else { None })
    })?;
    if let Some(context) = last {
        context.destroy();
    }
    Ok(())
}

/// Destroys the device's primary context, whoever retains it.
pub fn reset_primary(device: i32) -> Result {
    let context = with_primary(device, |primary| {
        primary.retained = 0;
        Ok(primary.context.take())
    })?;
    if let Some(context) = context {
        context.destroy();
    }
    Ok(())
}

/// Flags of the device's primary context, and whether it exists.
pub fn primary_state(device: i32) -> Result<(u32, bool)> {
    with_primary(device, |primary| {
        let flags = primary.context.as_ref().map(|context| context.flags.load(Ordering::Relaxed));
        Ok((flags.unwrap_or(primary.flags), primary.context.is_some()))
    })
}

pub fn set_primary_flags(device: i32, flags: u32) -> Result {
    with_primary(device, |primary| {
        primary.flags = flags;
        if let Some(context) = &primary.context {
            context.flags.store(flags, Ordering::Relaxed);
        }
        Ok(())
    })
}
