//! The ranks: what a candidate's processes do.

mod local;
#[cfg(feature = "mpi")]
mod mpi;

use crate::element::{ForNumber, Number, for_dtype};
use crate::event::{EventFolder, GaveUp, RankEvent};
use crate::measure::measure;
#[cfg(not(all(feature = "mpi", feature = "nccl")))]
use crate::missing::in_this_build;
use crate::overlap::{self, Site};
use crate::plan::{Backend, Fault, Plan};
use crate::product::{ForReal, Real, for_real};
use crate::record::{Experiment, FailureKind, Host};
use commtrace_collectives::{Communicator, Error, Result};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

/// Longest that rank 0 waits for what a rank of another host has to say.
const GATHER: Duration = Duration::from_secs(30);

/// What a process that is one or all of the ranks is told.
#[derive(Debug)]
pub struct Orders {
    /// What to run.
    pub plan: Plan,
    /// Where to leave what it has to say.
    pub events: EventFolder,
    /// The number of the only rank in this process; `None` if all are in it.
    pub rank: Option<u32>,
    /// What is to go wrong.
    pub fault: Option<Fault>,
}

/// What a rank says of itself when it starts.
#[derive(Debug, Clone, Default)]
pub(crate) struct About {
    pub host: Host,
    pub library: Option<String>,
    pub cuda_driver: Option<String>,
}

impl Orders {
    /// Runs the ranks of this process. Spans are recorded if the environment asks (`COMMTRACE_DIR`). Returns whether
    /// all of them ran everything; what kept them from it is among their events.
    ///
    /// # Errors
    ///
    /// The events cannot be written.
    pub fn run(&self) -> io::Result<bool> {
        let _trace = commtrace_instrument::init()
            .inspect_err(|error| eprintln!("commtrace: spans are not recorded: {error}"))
            .ok();
        match self.plan.backend {
            Backend::Local => local::run(self),
            #[cfg(feature = "mpi")]
            Backend::Mpi => mpi::run(self),
            #[cfg(feature = "nccl")]
            Backend::Nccl => crate::nccl::run(self),
            #[cfg(not(all(feature = "mpi", feature = "nccl")))]
            backend => {
                let message =
                    in_this_build(backend).unwrap_or_else(|| format!("backend {backend} cannot be run"));
                self.give_up(self.rank.unwrap_or(0), FailureKind::Missing, message).map(|()| false)
            }
        }
    }

    /// A rank that has not even started.
    #[cfg(not(all(feature = "mpi", feature = "nccl")))]
    fn give_up(&self, rank: u32, kind: FailureKind, message: String) -> io::Result<()> {
        let gave_up = GaveUp { kind, message, because_of: None };
        self.events.append(rank)?.say(&RankEvent::GaveUp(gave_up))
    }

    /// Runs one rank: everything of the plan, with its events; whether it could.
    pub(crate) fn rank<C: Communicator, S: Site<C>>(
        &self,
        comm: &C,
        site: &mut S,
        about: About,
    ) -> io::Result<bool> {
        let rank = u32::try_from(comm.rank()).unwrap_or(u32::MAX);
        let mut file = self.events.append(rank)?;
        let mut unsaid = None;
        let mut say = |event: RankEvent| {
            if let Err(error) = file.say(&event) {
                unsaid.get_or_insert(error);
            }
        };
        let About { host, library, cuda_driver } = about;
        say(RankEvent::Started { host, library, cuda_driver });
        let work = Work { orders: self, comm, site, say: &mut say };
        let outcome = catch_unwind(AssertUnwindSafe(|| match self.plan.experiment {
            Experiment::Collectives => for_dtype(self.plan.dtype, work),
            Experiment::Overlap => for_real(self.plan.dtype, work),
        }));
        let done = match outcome {
            Ok(Some(Ok(()))) => {
                say(RankEvent::Done);
                true
            }
            Ok(Some(Err(error))) => {
                say(RankEvent::GaveUp(gave_up(&error)));
                false
            }
            Ok(None) => {
                let message = format!("element type {} cannot be measured", self.plan.dtype);
                say(RankEvent::GaveUp(GaveUp { kind: FailureKind::Missing, message, because_of: None }));
                false
            }
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
                let message = format!("it panicked: {text}");
                say(RankEvent::GaveUp(GaveUp { kind: FailureKind::RankFailed, message, because_of: None }));
                resume_unwind(panic);
            }
        };
        unsaid.map_or(Ok(()), Err)?;
        if done && !comm.is_one_process() {
            self.gather(comm)?;
        }
        Ok(done)
    }

    /// Rank 0 stores what ranks have said whose files are on another host.
    fn gather<C: Communicator>(&self, comm: &C) -> io::Result<()> {
        let deadline = Instant::now() + GATHER;
        let rank = u32::try_from(comm.rank()).unwrap_or(u32::MAX);
        if rank > 0 {
            return comm.send_bytes(&self.events.raw(rank), 0, deadline).map_err(io::Error::other);
        }
        for peer in 1..comm.size() {
            let said = comm.receive_bytes(peer, deadline).map_err(io::Error::other)?;
            self.events.store_missing(u32::try_from(peer).unwrap_or(u32::MAX), &said)?;
        }
        Ok(())
    }
}

/// One rank's work, once its element type is known.
struct Work<'a, C, S> {
    orders: &'a Orders,
    comm: &'a C,
    site: &'a mut S,
    say: &'a mut dyn FnMut(RankEvent),
}

impl<C: Communicator, S: Site<C>> ForNumber for Work<'_, C, S> {
    type Output = Result<()>;

    fn call<T: Number>(self) -> Result<()> {
        let Self { orders: Orders { plan, fault, .. }, comm, site, say } = self;
        measure::<C, T>(comm, site.timer(), plan, *fault, say)
    }
}

impl<C: Communicator, S: Site<C>> ForReal for Work<'_, C, S> {
    type Output = Result<()>;

    fn call<T: Real>(self) -> Result<()> {
        let Self { orders: Orders { plan, fault, .. }, comm, site, say } = self;
        overlap::measure::<C, T, S>(comm, site, plan, *fault, say)
    }
}

/// Of what kind an error is, and whose fault.
pub(crate) fn gave_up(error: &Error) -> GaveUp {
    let (kind, because_of) = blame(error);
    GaveUp { kind, message: error.to_string(), because_of }
}

fn blame(error: &Error) -> (FailureKind, Option<u32>) {
    match error {
        Error::Timeout { missing, .. } => (FailureKind::TimedOut, missing.first().copied()),
        Error::RankLost { rank, .. } => (FailureKind::RankFailed, Some(*rank)),
        Error::Broken { cause, .. } => blame(cause),
        Error::Setup { .. } => (FailureKind::Missing, None),
        _ => (FailureKind::RankFailed, None),
    }
}
