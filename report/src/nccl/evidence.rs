//! Which algorithm ran: a log's evidence beside collectives.

use super::{AlgorithmChoice, NcclLog};
use crate::timeline::{Comm, CommColumns, Sym, Timeline};
use std::collections::HashMap;

/// What logs say of one collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence<'a> {
    /// The algorithm and protocol that every line about this operation and size names.
    Observed(Selection<'a>),
    /// No line is about it, or they differ: requested or likely is not observed.
    Unconfirmed,
}

/// Algorithm and protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selection<'a> {
    /// For example `ring`.
    pub algorithm: &'a str,
    /// For example `ll128`; `None` where there is none to choose.
    pub protocol: Option<&'a str>,
}

impl NcclLog {
    /// What ran for `op` (by the vocabulary, for example `all_reduce`) with a payload of `bytes` as
    /// nccl-tests counts it, on a communicator of `nranks` ranks if that is known.
    ///
    /// ```
    /// use commtrace_report::nccl::{AlgorithmChoice, Evidence, NcclLog};
    /// let ring = AlgorithmChoice {
    ///     op: Some("all_reduce".into()),
    ///     bytes: Some(1024),
    ///     algorithm: "ring".into(),
    ///     ..AlgorithmChoice::default()
    /// };
    /// let log = NcclLog { algorithms: vec![ring], ..NcclLog::default() };
    /// assert!(matches!(log.algorithm_observed("all_reduce", 1024, None), Evidence::Observed(_)));
    /// assert_eq!(log.algorithm_observed("all_reduce", 2048, None), Evidence::Unconfirmed);
    /// ```
    pub fn algorithm_observed(&self, op: &str, bytes: u64, nranks: Option<u32>) -> Evidence<'_> {
        select(self.algorithms.iter(), op, bytes, nranks)
    }
}

/// What all choices that are about this operation and size agree on.
fn select<'a>(
    choices: impl Iterator<Item = &'a AlgorithmChoice>,
    op: &str,
    bytes: u64,
    nranks: Option<u32>,
) -> Evidence<'a> {
    let mut found: Option<Selection<'_>> = None;
    for choice in choices {
        let same_size = nranks.is_none() || choice.nranks.is_none() || nranks == choice.nranks;
        if choice.op.as_deref() != Some(op) || choice.bytes != Some(bytes) || !same_size {
            continue;
        }
        let selection = Selection { algorithm: &choice.algorithm, protocol: choice.protocol.as_deref() };
        if found.is_some_and(|found| found != selection) {
            return Evidence::Unconfirmed;
        }
        found = Some(selection);
    }
    found.map_or(Evidence::Unconfirmed, Evidence::Observed)
}

/// What came of joining logs to collectives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attached {
    /// Collectives whose algorithm was known from the trace itself.
    pub known: u64,
    /// Collectives that took their algorithm from a log.
    pub observed: u64,
    /// Collectives without evidence.
    pub unconfirmed: u64,
}

/// Algorithm and protocol.
type Chosen = (Sym, Option<Sym>);

/// Gives the collectives of `timeline` the algorithm and protocol that `logs` show for their operation
/// and payload. Those that know theirs (from a kernel's name) keep it; those without evidence stay
/// without.
pub fn attach_algorithms(timeline: &mut Timeline, logs: &[NcclLog]) -> Attached {
    let mut attached = Attached::default();
    let mut cache: HashMap<(Sym, u64, Option<u32>), Option<Chosen>> = HashMap::new();
    let Timeline { names, tracks, .. } = timeline;
    for columns in tracks.iter_mut().flat_map(|track| [&mut track.comm, &mut track.unplaced]) {
        if columns.is_empty() {
            continue;
        }
        let mut joined = CommColumns::default();
        for comm in columns.iter() {
            let selection = match (comm.algorithm, comm.bytes) {
                (Some(_), _) => {
                    attached.known += 1;
                    joined.push(comm);
                    continue;
                }
                (None, Some(bytes)) => {
                    let key = (comm.op, bytes, comm.comm_size);
                    *cache.entry(key).or_insert_with(|| {
                        let choices = logs.iter().flat_map(|log| &log.algorithms);
                        let evidence = select(choices, names.get(comm.op), bytes, comm.comm_size);
                        let Evidence::Observed(selection) = evidence else { return None };
                        let algorithm = names.intern(selection.algorithm);
                        Some((algorithm, selection.protocol.map(|protocol| names.intern(protocol))))
                    })
                }
                (None, None) => None,
            };
            match selection {
                Some((algorithm, protocol)) => {
                    attached.observed += 1;
                    joined.push(Comm { algorithm: Some(algorithm), protocol, ..comm });
                }
                None => {
                    attached.unconfirmed += 1;
                    joined.push(comm);
                }
            }
        }
        *columns = joined;
    }
    attached
}
