//! Gathering what all processes of a job recorded, up a tree of messages.

use commtrace_report::gather::RunSummary;
use std::time::{Duration, Instant};

/// Why a message could not be exchanged.
pub type ExchangeError = Box<dyn std::error::Error + Send + Sync>;

/// How the processes of a job reach each other at the end of a run, for
/// [`Guard::finish_over`](crate::Guard::finish_over).
///
/// The communicators of `commtrace-collectives` are used by themselves (`guard.finish(&comm)`); implement
/// this for a transport of your own. Processes are numbered from 0; each has one recorder.
pub trait Exchange {
    /// This process's number.
    fn rank(&self) -> usize;

    /// Number of processes.
    fn size(&self) -> usize;

    /// Sends `message` to process `to`.
    ///
    /// # Errors
    ///
    /// It could not be sent, or not before `deadline`.
    fn send(&self, to: usize, message: &[u8], deadline: Instant) -> Result<(), ExchangeError>;

    /// Receives the message of process `from`.
    ///
    /// # Errors
    ///
    /// It could not be received, or not before `deadline`.
    fn receive(&self, from: usize, deadline: Instant) -> Result<Vec<u8>, ExchangeError>;
}

/// What a level of the tree may take beyond the one below it, for merging and sending.
const GRACE: Duration = Duration::from_secs(1);

/// Merges the summaries of all processes up a binomial tree, in ⌈log₂ size⌉ rounds; process 0 gets the result.
///
/// A process waits for those below it for `patience` (and a second more per level, since they wait for
/// those below them). Of those that do not come in time the numbers are noted, and the rest goes on.
pub(crate) fn reduce(
    exchange: &(impl Exchange + ?Sized),
    mut summary: RunSummary,
    patience: Duration,
) -> Option<RunSummary> {
    let (rank, size) = (exchange.rank(), exchange.size());
    let mut deadline = Instant::now() + patience;
    let mut distance = 1;
    while distance < size {
        if rank & distance != 0 {
            // Whether the message arrived is seen, and said, where it is missing.
            if let Ok(message) = summary.to_bytes() {
                let _ = exchange.send(rank - distance, &message, deadline + GRACE);
            }
            return None;
        }
        let child = rank + distance;
        if child < size {
            let received = exchange
                .receive(child, deadline)
                .and_then(|message| RunSummary::from_bytes(&message).map_err(ExchangeError::from));
            match received {
                Ok(theirs) => summary = summary.merge(theirs),
                Err(_) => {
                    let below = child..size.min(child + distance);
                    summary.missing.extend(below.filter_map(|rank| u32::try_from(rank).ok()));
                }
            }
        }
        distance *= 2;
        deadline += GRACE;
    }
    Some(summary)
}

#[cfg(test)]
mod tests {
    use super::*;
    use commtrace_report::gather::{ProcessId, ProcessSummary};
    use std::collections::BTreeMap;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Arc, Mutex};

    /// A channel for every pair.
    #[derive(Clone)]
    struct Channels {
        rank: usize,
        size: usize,
        pairs: Arc<BTreeMap<(usize, usize), Pair>>,
    }

    type Pair = (Sender<Vec<u8>>, Mutex<Receiver<Vec<u8>>>);

    impl Channels {
        fn all(size: usize) -> Vec<Self> {
            let pair = || {
                let (send, receive) = channel();
                (send, Mutex::new(receive))
            };
            let pairs = (0..size).flat_map(|from| (0..size).map(move |to| (from, to)));
            let pairs = Arc::new(pairs.map(|key| (key, pair())).collect());
            (0..size).map(|rank| Self { rank, size, pairs: Arc::clone(&pairs) }).collect()
        }
    }

    impl Exchange for Channels {
        fn rank(&self) -> usize {
            self.rank
        }

        fn size(&self) -> usize {
            self.size
        }

        fn send(&self, to: usize, message: &[u8], _: Instant) -> Result<(), ExchangeError> {
            self.pairs[&(self.rank, to)].0.send(message.to_vec())?;
            Ok(())
        }

        fn receive(&self, from: usize, deadline: Instant) -> Result<Vec<u8>, ExchangeError> {
            let left = deadline.saturating_duration_since(Instant::now());
            Ok(self.pairs[&(from, self.rank)].1.lock().unwrap().recv_timeout(left)?)
        }
    }

    fn summary(rank: usize) -> RunSummary {
        let id = ProcessId {
            rank: u32::try_from(rank).ok(),
            host: "node".to_owned(),
            boot_id: "boot".to_owned(),
            pid: 1,
            start_unix_ns: 0,
        };
        let process = ProcessSummary { events: rank as u64, ..ProcessSummary::default() };
        RunSummary { processes: BTreeMap::from([(id, process)]), ..RunSummary::default() }
    }

    /// The result of every process; those in `absent` never come.
    fn run(size: usize, absent: &[usize], patience: Duration) -> Vec<Option<RunSummary>> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = Channels::all(size)
                .into_iter()
                .filter(|exchange| !absent.contains(&exchange.rank))
                .map(|exchange| scope.spawn(move || reduce(&exchange, summary(exchange.rank), patience)))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn every_number_of_processes_reduces_to_the_first() {
        for size in 1..=17 {
            let results = run(size, &[], Duration::from_secs(60));
            let expected = (0..size).map(summary).reduce(RunSummary::merge);
            assert_eq!(results[0], expected, "{size}");
            assert!(results[1..].iter().all(Option::is_none));
        }
    }

    #[test]
    fn those_below_a_process_that_does_not_come_are_named() {
        // 6 would bring 7 to 4, and 4 those to 0.
        let results = run(8, &[6], Duration::from_millis(200));
        let root = results[0].as_ref().unwrap();
        assert_eq!(root.missing.iter().copied().collect::<Vec<_>>(), [6, 7]);
        let ranks: Vec<_> = root.processes.keys().filter_map(|id| id.rank).collect();
        assert_eq!(ranks, [0, 1, 2, 3, 4, 5]);
    }
}
