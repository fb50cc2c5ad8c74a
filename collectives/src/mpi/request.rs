//! Operations of MPI under way, as futures, and the loop that drives them.
//!
//! A wait for other ranks is a non-blocking call of MPI that is tested until it is complete: so it has a
//! deadline, several calls go on side by side on one thread, and no thread keeps another out of a library
//! that serves one at a time.

use std::cell::Cell;
use std::ffi::c_int;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use mpi::ffi;

use super::runtime::{Runtime, message};

/// Why an operation did not end well.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    /// The deadline passed.
    #[error("the other ranks did not come in time")]
    Late,
    /// MPI returned an error.
    #[error("{function}: {message}")]
    Library { function: &'static str, message: String },
}

/// An operation that reads or writes memory until it is complete.
///
/// Dropped before that (only while unwinding, since calls run to their end), it waits.
pub(super) struct Request<'r> {
    runtime: &'r Runtime,
    raw: ffi::MPI_Request,
    function: &'static str,
    done: bool,
}

impl<'r> Request<'r> {
    /// Starts `function` by `start`, which gets the place of the request and returns MPI's error code.
    ///
    /// # Safety
    ///
    /// The memory that the operation accesses stays valid, and untouched where MPI asks for that, until
    /// the request is complete or dropped.
    pub(super) unsafe fn start(
        runtime: &'r Runtime,
        function: &'static str,
        start: impl FnOnce(*mut ffi::MPI_Request) -> c_int,
    ) -> Result<Self, Failure> {
        let mut raw = MaybeUninit::uninit();
        let code = {
            let _serial = runtime.enter();
            start(raw.as_mut_ptr())
        };
        succeeded(function, code)?;
        // SAFETY: MPI writes the request when it returns success.
        Ok(Self { runtime, raw: unsafe { raw.assume_init() }, function, done: false })
    }

    /// Whether the operation is complete.
    fn test(&mut self) -> Result<bool, Failure> {
        if self.done {
            return Ok(true);
        }
        let mut complete: c_int = 0;
        let code = {
            let _serial = self.runtime.enter();
            // SAFETY: a request that MPI gave us and that is not complete yet; the status is not wanted.
            unsafe { ffi::MPI_Test(&mut self.raw, &mut complete, ffi::RSMPI_STATUS_IGNORE) }
        };
        // After an error there is nothing left to wait for.
        self.done = code != 0 || complete != 0;
        succeeded(self.function, code).map(|()| self.done)
    }
}

impl Future for Request<'_> {
    type Output = Result<(), Failure>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        match self.test() {
            Ok(false) => Poll::Pending,
            Ok(true) => Poll::Ready(Ok(())),
            Err(failure) => Poll::Ready(Err(failure)),
        }
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        while self.test() == Ok(false) {
            std::thread::sleep(NAP);
        }
    }
}

/// An operation on memory of its own, so that it can be given up: memory and request are leaked then.
pub(super) struct Control<'r, B> {
    request: ManuallyDrop<Request<'r>>,
    buffers: ManuallyDrop<Box<B>>,
    deadline: Option<Instant>,
}

impl<'r, B> Control<'r, B> {
    /// As [`Request::start`], with the buffers. It fails with [`Failure::Late`] after `deadline`.
    ///
    /// # Safety
    ///
    /// The operation accesses nothing but what the box (or a vector in it, of unchanged length) holds.
    pub(super) unsafe fn start(
        runtime: &'r Runtime,
        function: &'static str,
        deadline: Option<Instant>,
        buffers: B,
        start: impl FnOnce(&mut B, *mut ffi::MPI_Request) -> c_int,
    ) -> Result<Self, Failure> {
        let mut buffers = Box::new(buffers);
        // SAFETY: the box is freed in `poll` alone, once the request is complete.
        let request = unsafe { Request::start(runtime, function, |request| start(&mut *buffers, request)) }?;
        Ok(Self { request: ManuallyDrop::new(request), buffers: ManuallyDrop::new(buffers), deadline })
    }
}

impl<B> Future for Control<'_, B> {
    type Output = Result<B, Failure>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        if self.request.test()? {
            // SAFETY: complete, so MPI no longer accesses the buffers; a future is not polled again
            // after it was ready, so they are taken once.
            return Poll::Ready(Ok(*unsafe { ManuallyDrop::take(&mut self.buffers) }));
        }
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Poll::Ready(Err(Failure::Late));
        }
        Poll::Pending
    }
}

// The box is not moved by polling, and nothing else of the future is pinned.
impl<B> Unpin for Control<'_, B> {}

pub(super) fn succeeded(function: &'static str, code: c_int) -> Result<(), Failure> {
    if code == 0 { Ok(()) } else { Err(Failure::Library { function, message: message(code) }) }
}

/// Between two looks at an operation that has been waited for long.
const NAP: Duration = Duration::from_micros(50);

/// How eagerly a call is driven.
#[derive(Default)]
pub(super) struct Pace {
    /// All ranks are in the call: bytes move as fast as they are asked for.
    moving: Cell<bool>,
}

impl Pace {
    pub(super) fn moving(&self) {
        self.moving.set(true);
    }

    pub(super) fn is_moving(&self) -> bool {
        self.moving.get()
    }
}

/// Polls until `done`, calling `idle` between polls of a wait that has become long.
///
/// First it spins, as MPI's own waits do; then it lets other threads run, as ranks may outnumber
/// cores; and while it waits for a rank that has not come, it sleeps, because compute needs the core.
pub(super) fn drive(pace: &Pace, mut poll: impl FnMut(&mut Context<'_>) -> bool, mut idle: impl FnMut()) {
    const SPINS: u32 = 32;
    const YIELDS: u32 = 1000;
    let mut context = Context::from_waker(Waker::noop());
    let mut polls = 0_u32;
    while !poll(&mut context) {
        polls = polls.saturating_add(1);
        if polls < SPINS {
            std::hint::spin_loop();
        } else if polls < SPINS + YIELDS || pace.is_moving() {
            std::thread::yield_now();
        } else {
            idle();
            std::thread::sleep(NAP);
        }
    }
}
