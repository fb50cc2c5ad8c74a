//! What all calls of one communicator share.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mpi::ffi;

use super::request::{Control, Failure, Pace, drive, succeeded};
use super::roll_call;
use super::runtime::{Runtime, lock};
use crate::host::key::{Key, Members};
use crate::{CallId, Error, Op, Result};

/// Tags on the control communicator: what sender and receiver of a message tell each other, and
/// [`super::roll_call`].
pub(super) const TAG_TO_RECEIVER: c_int = 1;
pub(super) const TAG_TO_SENDER: c_int = 2;
pub(super) const TAG_ASK: c_int = 3;
pub(super) const TAG_HERE: c_int = 4;
/// Messages of [`super::bytes`].
pub(super) const TAG_LENGTH: c_int = 5;
pub(super) const TAG_BYTES: c_int = 6;
pub(super) const TAG_MAXIMUM: c_int = 7;

/// What a communicator is used with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    pub(super) timeout: Duration,
    pub(super) checks: bool,
    /// Elements per call of MPI.
    pub(super) max_count: usize,
}

/// One rank's end of a communicator.
///
/// It has two communicators of MPI. On each, operations start in the order of the sequence numbers; on a
/// common one they would not, as a rank that groups its calls starts the agreements of all before
/// the data of the first.
pub(super) struct Core {
    pub(super) runtime: Arc<Runtime>,
    pub(super) members: Members,
    pub(super) rank: usize,
    /// Agreements and what ranks tell each other.
    pub(super) control: Handle,
    /// The callers' data.
    pub(super) data: Handle,
    pub(super) settings: Settings,
    pub(super) timeout: Duration,
    /// The collective that this rank waits in.
    pub(super) here: AtomicU64,
    /// Ranks that asked about a collective in which this rank waits.
    pub(super) asked: Mutex<Vec<(usize, u64)>>,
    broken: Mutex<Option<Arc<Error>>>,
}

/// A communicator of MPI that is ours.
pub(super) struct Handle {
    raw: ffi::MPI_Comm,
    runtime: Arc<Runtime>,
}

// SAFETY: a handle of MPI, which any thread may use where threads may call MPI at all; `Runtime` sees to
// the rest.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    /// Takes over what `make` writes. Errors of the communicator are returned instead of ending the job.
    ///
    /// # Safety
    ///
    /// `make` writes a new communicator, or returns an error code.
    unsafe fn make(
        runtime: &Arc<Runtime>,
        function: &'static str,
        make: impl FnOnce(*mut ffi::MPI_Comm) -> c_int,
    ) -> Result<Self, Failure> {
        let mut raw = MaybeUninit::uninit();
        succeeded(function, make(raw.as_mut_ptr()))?;
        // SAFETY: the caller's promise.
        let handle = Self { raw: unsafe { raw.assume_init() }, runtime: Arc::clone(runtime) };
        // SAFETY: a communicator of ours.
        let code = unsafe { ffi::MPI_Comm_set_errhandler(handle.raw, ffi::RSMPI_ERRORS_RETURN) };
        succeeded("MPI_Comm_set_errhandler", code).map(|()| handle)
    }

    /// A communicator with the same ranks. Waits for all of them.
    ///
    /// # Safety
    ///
    /// `raw` is an intra-communicator that exists.
    unsafe fn duplicate(runtime: &Arc<Runtime>, raw: ffi::MPI_Comm) -> Result<Self, Failure> {
        // SAFETY: the caller's promise.
        unsafe { Self::make(runtime, "MPI_Comm_dup", |new| ffi::MPI_Comm_dup(raw, new)) }
    }

    pub(super) fn raw(&self) -> ffi::MPI_Comm {
        self.raw
    }

    fn number(&self, function: &'static str, ask: AskNumber) -> Result<usize, Failure> {
        let mut number: c_int = 0;
        // SAFETY: a communicator of ours; the number outlives the call.
        succeeded(function, unsafe { ask(self.raw, &mut number) })?;
        Ok(usize::try_from(number).unwrap_or(0))
    }
}

type AskNumber = unsafe extern "C" fn(ffi::MPI_Comm, *mut c_int) -> c_int;

impl Drop for Handle {
    fn drop(&mut self) {
        // With operations given up, freeing could wait for them.
        if !self.runtime.is_damaged() && !mpi::is_finalized() {
            let _serial = self.runtime.enter();
            // SAFETY: a communicator of ours, freed once.
            unsafe { ffi::MPI_Comm_free(&mut self.raw) };
        }
    }
}

impl Core {
    /// A communicator with the ranks of `raw`, whose name is that of its first rank. Waits for all of them,
    /// without a timeout.
    ///
    /// # Safety
    ///
    /// `raw` is an intra-communicator that exists.
    pub(super) unsafe fn of(
        runtime: Arc<Runtime>,
        raw: ffi::MPI_Comm,
        name: &str,
        settings: Settings,
    ) -> Result<Self> {
        runtime.check().map_err(|problem| Error::Setup { library: "MPI", problem })?;
        let setup = |failure: Failure| Error::Setup { library: "MPI", problem: failure.to_string() };
        // SAFETY: the caller's promise.
        let (control, data) = unsafe { (Handle::duplicate(&runtime, raw), Handle::duplicate(&runtime, raw)) };
        let (control, data) = (control.map_err(setup)?, data.map_err(setup)?);
        let core =
            Self::new(runtime, Members { name: name.into(), ranks: Box::default() }, control, data, settings)
                .map_err(setup)?;
        core.named().map_err(setup)
    }

    fn new(
        runtime: Arc<Runtime>,
        members: Members,
        control: Handle,
        data: Handle,
        settings: Settings,
    ) -> Result<Self, Failure> {
        let rank = data.number("MPI_Comm_rank", ffi::MPI_Comm_rank)?;
        Ok(Self {
            runtime,
            members,
            rank,
            control,
            data,
            timeout: settings.timeout,
            settings,
            here: AtomicU64::new(roll_call::NOWHERE),
            asked: Mutex::default(),
            broken: Mutex::new(None),
        })
    }

    /// Agrees with the other ranks on the name, the first rank's, and on the global ranks.
    fn named(mut self) -> Result<Self, Failure> {
        const NAME: usize = 256;
        let size = self.data.number("MPI_Comm_size", ffi::MPI_Comm_size)?;
        self.members.ranks = (0..u32::try_from(size).unwrap_or(u32::MAX)).collect();
        let mut mine = commtrace_instrument::current_rank().to_le_bytes().to_vec();
        let mut end = self.members.name.len().min(NAME);
        while !self.members.name.is_char_boundary(end) {
            end -= 1;
        }
        mine.extend_from_slice(&self.members.name.as_bytes()[..end]);
        mine.resize(4 + NAME, 0);
        let all = self.run(&Pace::default(), self.exchange(mine))?;
        let said: Vec<u32> = all
            .chunks(4 + NAME)
            .filter_map(|chunk| Some(u32::from_le_bytes(chunk.first_chunk().copied()?)))
            .collect();
        // Without a launcher's variables all say 0, and a stale variable may say anything.
        let distinct: std::collections::BTreeSet<u32> = said.iter().copied().collect();
        if distinct.len() == size {
            self.members.ranks = said.into();
        }
        let name = all.get(4..4 + NAME).unwrap_or_default();
        self.members.name = String::from_utf8_lossy(name).trim_end_matches('\0').into();
        Ok(self)
    }

    /// The new communicator of the ranks that give the same color, in the order of the keys.
    pub(super) fn split(&self, count: u64, color: u32, key: u32) -> Result<Self> {
        let call = Key::Split { count };
        let id = || self.members.call_id(call, Op::Barrier);
        self.usable(id)?;
        let mine = [color.to_le_bytes(), key.to_le_bytes()].concat();
        self.waits_in(call);
        let wishes = self
            .run(&Pace::default(), self.exchange(mine))
            .map_err(|failure| self.fail(self.error(id(), failure)))?;
        self.leaves();
        let number = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let mut ranks: Vec<(u32, usize)> = wishes
            .chunks(8)
            .enumerate()
            .filter(|(_, wish)| number(wish) == color)
            .map(|(rank, wish)| (number(wish.get(4..).unwrap_or_default()), rank))
            .collect();
        ranks.sort_unstable();
        let place = ranks.iter().position(|&(_, rank)| rank == self.rank).unwrap_or(0);
        let first = ranks.first().map_or(0, |&(_, rank)| rank);
        let members = Members {
            name: self.members.part_name(color, count),
            ranks: ranks.iter().map(|&(_, rank)| self.members.global(rank)).collect(),
        };
        // MPI's colors are non-negative `int`s: the parent's number of the first member is one.
        let (color, key) = (c_int::try_from(first).unwrap_or(0), c_int::try_from(place).unwrap_or(0));
        let made = || {
            // SAFETY: communicators of ours. All ranks are here, so nobody is waited for long.
            let data = unsafe {
                Handle::make(&self.runtime, "MPI_Comm_split", |new| {
                    ffi::MPI_Comm_split(self.data.raw, color, key, new)
                })
            }?;
            // SAFETY: as above.
            let control = unsafe { Handle::duplicate(&self.runtime, data.raw) }?;
            Self::new(Arc::clone(&self.runtime), members, control, data, self.settings)
        };
        made().map_err(|failure| self.fail(self.error(id(), failure)))
    }

    /// Drives `future` to its end on this thread.
    pub(super) fn run<T>(&self, pace: &Pace, future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        let mut output = None;
        loop {
            drive(
                pace,
                |context| match future.as_mut().poll(context) {
                    std::task::Poll::Ready(value) => {
                        output = Some(value);
                        true
                    }
                    std::task::Poll::Pending => false,
                },
                || self.answer(),
            );
            if let Some(output) = output.take() {
                return output;
            }
        }
    }

    /// When a wait that begins now is given up.
    pub(super) fn deadline(&self) -> Option<Instant> {
        Instant::now().checked_add(self.timeout)
    }

    /// Whether calls can be made.
    pub(super) fn usable(&self, id: impl FnOnce() -> CallId) -> Result<()> {
        if let Some(cause) = &*lock(&self.broken) {
            return Err(Error::Broken { comm: Arc::clone(&self.members.name), cause: Arc::clone(cause) });
        }
        self.runtime.check().map_err(|message| self.library(id(), "no function", message))
    }

    /// The error for `failure` in the call `id`.
    pub(super) fn error(&self, id: CallId, failure: Failure) -> Error {
        match failure {
            Failure::Late => {
                let missing = self.roll_call(self.here.load(Ordering::Relaxed));
                Error::Timeout { call: id, waited: self.timeout, missing }
            }
            Failure::Library { function, message } => self.library(id, function, message),
        }
    }

    pub(super) fn library(&self, call: CallId, function: &'static str, message: String) -> Error {
        let rank = self.members.global(self.rank);
        Error::Library { call, rank, library: "MPI", function, message }
    }

    /// Notes that `error` ended a call; one after which the ranks no longer agree breaks the communicator.
    pub(super) fn fail(&self, error: Error) -> Error {
        if matches!(error, Error::Timeout { .. } | Error::Library { .. } | Error::RankLost { .. }) {
            self.runtime.set_damaged();
            lock(&self.broken).get_or_insert_with(|| Arc::new(error.clone()));
        }
        error
    }

    /// Tells `peer` what this rank's call is and learns its.
    pub(super) async fn handshake(
        &self,
        call: &crate::host::call::RawCall,
        peer: usize,
    ) -> Result<Vec<u8>, Failure> {
        let (tag_out, tag_in) = match call.op {
            Op::Send => (TAG_TO_RECEIVER, TAG_TO_SENDER),
            _ => (TAG_TO_SENDER, TAG_TO_RECEIVER),
        };
        let other = c_int::try_from(peer).unwrap_or(c_int::MAX);
        let mine = super::agree::describe(call, None);
        let (length, deadline, comm) = (mine.len(), self.deadline(), self.control.raw());
        // SAFETY: the vectors are in the boxes and keep their lengths.
        let (sending, receiving) = unsafe {
            (
                Control::start(&self.runtime, "MPI_Isend", deadline, mine, |bytes, request| {
                    let (data, count) = (bytes.as_ptr().cast(), length as c_int);
                    ffi::MPI_Isend(data, count, ffi::RSMPI_UINT8_T, other, tag_out, comm, request)
                })?,
                Control::start(
                    &self.runtime,
                    "MPI_Irecv",
                    deadline,
                    vec![0_u8; length],
                    |bytes, request| {
                        let (data, count) = (bytes.as_mut_ptr().cast(), length as c_int);
                        ffi::MPI_Irecv(data, count, ffi::RSMPI_UINT8_T, other, tag_in, comm, request)
                    },
                )?,
            )
        };
        let theirs = receiving.await?;
        sending.await?;
        Ok(theirs)
    }

    /// This rank waits for the others in the call `key`.
    pub(super) fn waits_in(&self, key: Key) {
        self.here.store(roll_call::number(key), Ordering::Relaxed);
    }

    /// It no longer does.
    pub(super) fn leaves(&self) {
        self.here.store(roll_call::NOWHERE, Ordering::Relaxed);
    }
}
