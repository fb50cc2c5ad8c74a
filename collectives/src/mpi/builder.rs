//! Making communicators.

use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mpi::ffi;
use mpi::traits::Communicator;

use super::MpiComm;
use super::core::{Core, Settings};
use super::runtime::Runtime;
use crate::{Error, Result};

/// Name of a process's first world communicator that is given none.
pub(super) const WORLD: &str = "world";

static UNNAMED_WORLDS: AtomicUsize = AtomicUsize::new(0);

/// Settings of an [`MpiComm`], equal on all ranks. Sub-communicators inherit them.
///
/// ```no_run
/// use std::time::Duration;
/// use commtrace_collectives::MpiComm;
///
/// let comm = MpiComm::builder().timeout(Duration::from_secs(60)).name("dp").world()?;
/// # Ok::<_, commtrace_collectives::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct MpiBuilder {
    name: Option<String>,
    settings: Settings,
}

impl Default for MpiBuilder {
    fn default() -> Self {
        Self {
            name: None,
            settings: Settings {
                timeout: Duration::from_secs(600),
                checks: true,
                max_count: c_int::MAX as usize,
            },
        }
    }
}

impl MpiBuilder {
    /// The communicator's name in spans and errors; that of the first rank counts.
    ///
    /// Collectives of different ranks are matched by this name, so two communicators of one run should
    /// not share one. The default is `world` for the first world of the process, then `world#1`, and so on.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// How long a call waits for the other ranks to make it before it gives up and breaks the communicator.
    /// The default is 10 minutes, that of PyTorch's NCCL process groups.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// Whether the ranks compare their calls before they carry them out (default: yes). It costs ⌈log₂ n⌉ rounds
    /// of messages of 40 bytes per collective, and an exchange of 224 bytes per message. Without it, ranks that
    /// disagree get what MPI makes of it, which may be a crash or wrong data, and no call has a timeout. Ranks then
    /// also have to make a collective alike: all as a blocking call, or all as a non-blocking or grouped one.
    pub fn checks(mut self, checks: bool) -> Self {
        self.settings.checks = checks;
        self
    }

    /// Most elements that are given to one call of MPI, whose counts are `int`s; longer buffers are moved in
    /// pieces. The default, and the most, is 2³¹ − 1.
    pub fn max_count(mut self, elements: usize) -> Self {
        self.settings.max_count = elements.clamp(1, c_int::MAX as usize);
        self
    }

    /// The communicator of all ranks of the job. Waits for all of them; starts MPI if need be.
    ///
    /// # Errors
    ///
    /// [`Error::Setup`]: MPI has ended, or cannot be called on this thread.
    pub fn world(self) -> Result<MpiComm> {
        let runtime = Runtime::get()?;
        let name = self.name.unwrap_or_else(|| match UNNAMED_WORLDS.fetch_add(1, Ordering::Relaxed) {
            0 => WORLD.to_owned(),
            number => format!("{WORLD}#{number}"),
        });
        // SAFETY: MPI is running.
        let core = unsafe { Core::of(runtime, ffi::RSMPI_COMM_WORLD, &name, self.settings) }?;
        let size = u32::try_from(core.members.size()).unwrap_or(u32::MAX);
        commtrace_instrument::set_world(core.members.global(core.rank), size);
        Ok(MpiComm::new(core))
    }

    /// A communicator with the ranks of one of the crate `mpi`, which stays usable beside it. Waits for all of
    /// them. Without a [name](Self::name) it is called `mpi`.
    ///
    /// # Errors
    ///
    /// [`Error::Setup`]: it is an inter-communicator, MPI has ended, or cannot be called on this thread.
    pub fn from_communicator(self, comm: &impl Communicator) -> Result<MpiComm> {
        let runtime = Runtime::get()?;
        let raw = comm.as_raw();
        let mut inter: c_int = 0;
        // SAFETY: whoever has the communicator keeps it alive; the flag outlives the call.
        unsafe { ffi::MPI_Comm_test_inter(raw, &mut inter) };
        if inter != 0 {
            let problem = "an inter-communicator has no collectives among its own ranks".to_owned();
            return Err(Error::Setup { library: "MPI", problem });
        }
        let name = self.name.as_deref().unwrap_or("mpi");
        // SAFETY: an intra-communicator that exists.
        unsafe { Core::of(runtime, raw, name, self.settings) }.map(MpiComm::new)
    }
}
