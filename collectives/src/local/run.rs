//! Making the communicators of a world, and threads for its ranks.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use commtrace_instrument::rank_scope;

use super::LocalComm;
use super::round::Core;

/// Name of the first communicator of a process that is given none.
pub(super) const WORLD: &str = "world";

static UNNAMED_WORLDS: AtomicUsize = AtomicUsize::new(0);

/// Settings of a [`LocalComm`] world.
///
/// ```
/// use std::time::Duration;
/// use commtrace_collectives::{Communicator, LocalComm};
///
/// let names = LocalComm::builder(2)
///     .name("dp")
///     .timeout(Duration::from_secs(5))
///     .run(|comm| comm.name().to_owned());
/// assert_eq!(names, ["dp", "dp"]);
/// ```
#[derive(Debug, Clone)]
pub struct LocalBuilder {
    ranks: usize,
    name: Option<String>,
    timeout: Duration,
}

impl LocalComm {
    /// The communicators of `ranks` ranks, in rank order, with the defaults of [`LocalBuilder`].
    pub fn world(ranks: usize) -> Vec<Self> {
        Self::builder(ranks).build()
    }

    /// Runs `rank` once for each of `ranks` ranks, each on a thread of its own, and returns the
    /// results in rank order. See [`LocalBuilder::run`].
    pub fn run<R: Send>(ranks: usize, rank: impl Fn(LocalComm) -> R + Sync) -> Vec<R> {
        Self::builder(ranks).run(rank)
    }

    /// Settings for a world of `ranks` ranks.
    pub fn builder(ranks: usize) -> LocalBuilder {
        LocalBuilder { ranks, name: None, timeout: Duration::from_secs(60) }
    }
}

impl LocalBuilder {
    /// The communicator's name in spans and errors.
    ///
    /// Collectives of different ranks are matched by this name, so two communicators of one run should
    /// not share one. The default is `world` for the first world of the process, then `world#1`, and so on.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// How long a call waits for the other ranks before it gives up and breaks the communicator.
    /// The default is 60 s. Sub-communicators inherit it.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The communicators in rank order, to be moved to the ranks' threads. There, hold a
    /// [`rank_scope`] so that other spans than the communicator's own belong to the rank as well.
    pub fn build(self) -> Vec<LocalComm> {
        let name = self.name.unwrap_or_else(|| match UNNAMED_WORLDS.fetch_add(1, Ordering::Relaxed) {
            0 => WORLD.to_owned(),
            number => format!("{WORLD}#{number}"),
        });
        let ranks: Box<[u32]> = (0..u32::try_from(self.ranks).unwrap_or(u32::MAX)).collect();
        if ranks.is_empty() {
            return Vec::new();
        }
        let core = Arc::new(Core::new(name.into(), ranks, self.timeout));
        (0..core.size()).map(|rank| LocalComm::new(Arc::clone(&core), rank)).collect()
    }

    /// Runs `rank` once for each rank, each on a thread of its own that holds the rank's [`rank_scope`],
    /// and returns the results in rank order. Returns when all threads, and all non-blocking calls of
    /// communicators that were dropped, have ended.
    ///
    /// # Panics
    ///
    /// If a rank panics, with its panic; if several do, with that of the first one in time, since the
    /// others usually follow from it. Also if the system refuses a thread, as [`std::thread::spawn`].
    pub fn run<R: Send>(self, rank: impl Fn(LocalComm) -> R + Sync) -> Vec<R> {
        let comms = self.build();
        let streams: Vec<_> = comms.iter().map(|comm| Arc::clone(comm.host.stream())).collect();
        let core = comms.first().map(|comm| Arc::clone(&comm.host.backend));
        let outcomes: Vec<thread::Result<R>> = thread::scope(|scope| {
            let rank = &rank;
            let threads: Vec<_> = comms
                .into_iter()
                .map(|comm| {
                    scope.spawn(move || {
                        let _scope = rank_scope(comm.global_rank());
                        rank(comm)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join()).collect()
        });
        streams.iter().for_each(|stream| stream.drain());
        let first = core.and_then(|core| core.first_panicked());
        let (mut results, mut panics) = (Vec::with_capacity(outcomes.len()), Vec::new());
        for (rank, outcome) in outcomes.into_iter().enumerate() {
            match outcome {
                Ok(result) => results.push(result),
                Err(panic) => panics.push((first != Some(rank), panic)),
            }
        }
        match panics.into_iter().min_by_key(|(later, _)| *later) {
            Some((_, panic)) => resume_unwind(panic),
            None => results,
        }
    }
}
