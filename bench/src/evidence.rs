//! Which algorithms ran, by the log of NCCL: only what it says it chose, never what it was asked for.

use crate::collective::Collective;
use crate::record::{AlgorithmObserved, Record};
use commtrace_report::nccl::{AlgorithmChoice, NcclLog};
use commtrace_report::read::{ReadOptions, read};
use std::collections::BTreeSet;
use std::path::Path;

/// What NCCL's log of a candidate tells.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    logs: Vec<NcclLog>,
}

impl Evidence {
    /// Of a log; nothing of a file that is none.
    pub fn of_file(path: &Path) -> Self {
        let read = read(&[path.to_owned()], &ReadOptions::default());
        let logs = read.map(|timeline| timeline.inputs).unwrap_or_default();
        Self { logs: logs.into_iter().filter_map(|input| input.nccl_log).map(|log| *log).collect() }
    }

    /// Puts it beside the rows that it is about, and all of it beside the workload.
    pub fn attach(&self, record: &mut Record) {
        let ranks = record.workload.world_size;
        let mut all = BTreeSet::new();
        for row in &mut record.metrics.rows {
            let Ok(collective) = row.collective.parse() else { continue };
            let algorithms = self.of(collective, row.size_bytes, ranks);
            all.extend(algorithms.iter().cloned());
            row.algorithm_observed = observed(algorithms);
        }
        record.workload.algorithm_observed = observed(all);
    }

    /// The algorithms of a collective; none if there is no evidence.
    fn of(&self, collective: Collective, size_bytes: u64, ranks: u32) -> BTreeSet<String> {
        let of = |op: &str| {
            let choices = self.logs.iter().flat_map(|log| &log.algorithms);
            choices
                .filter(|choice| is_about(choice, op, size_bytes, ranks))
                .map(name)
                .collect::<BTreeSet<_>>()
        };
        match collective {
            // Evidence of one part says nothing of the other.
            Collective::ReduceScatterAllGather => {
                let (scatter, gather) = (of("reduce_scatter"), of("all_gather"));
                if scatter.is_empty() || gather.is_empty() { BTreeSet::new() } else { &scatter | &gather }
            }
            _ => of(collective.as_str()),
        }
    }

    /// NCCL's own words on an algorithm that it does not know.
    pub fn refuses_algorithm(&self) -> bool {
        let mut warnings = self.logs.iter().flat_map(|log| &log.warnings);
        warnings.any(|warning| says_unknown_algorithm(&warning.message))
    }
}

/// Whether NCCL says that it does not know a name in `NCCL_ALGO`.
pub(crate) fn says_unknown_algorithm(text: &str) -> bool {
    text.contains("Unrecognized element token")
}

fn observed(algorithms: BTreeSet<String>) -> AlgorithmObserved {
    if algorithms.is_empty() {
        AlgorithmObserved::default()
    } else {
        AlgorithmObserved::Observed(algorithms.into_iter().collect())
    }
}

fn is_about(choice: &AlgorithmChoice, op: &str, bytes: u64, ranks: u32) -> bool {
    choice.op.as_deref() == Some(op)
        && choice.bytes == Some(bytes)
        && choice.nranks.is_none_or(|nranks| nranks == ranks)
}

/// As NCCL's documentation writes it.
fn name(choice: &AlgorithmChoice) -> String {
    let known = match &*choice.algorithm {
        "ring" => "Ring",
        "tree" => "Tree",
        "collnet_direct" => "CollnetDirect",
        "collnet_chain" => "CollnetChain",
        "nvls" => "NVLS",
        "nvls_tree" => "NVLSTree",
        "pat" => "PAT",
        "symmetric" => "Symmetric",
        other => other,
    };
    known.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Metrics, Row, Unconfirmed, Workload};

    const PREFIX: &str = "host:7:7 [0] NCCL INFO";
    const REQUEST: &str = "host:7:7 [0] NCCL INFO NCCL_ALGO set by environment to Ring.";

    /// The observed algorithms of a workload that asked for Ring, and of its rows, by a log of these lines.
    fn attached(lines: &[&str]) -> (AlgorithmObserved, Vec<AlgorithmObserved>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nccl.log");
        let init =
            format!("{PREFIX} ncclCommInitRank comm 0xa rank 0 nranks 2 cudaDev 0 busId 1 - Init COMPLETE");
        let version = format!("{PREFIX} NCCL version 2.28.3+cuda13.0");
        let text = [&[version.as_str(), REQUEST, init.as_str()], lines].concat().join("\n");
        std::fs::write(&path, text).unwrap();
        let row = |collective: &str, size_bytes| Row {
            collective: collective.to_owned(),
            size_bytes,
            ..Row::default()
        };
        let mut record = crate::assemble::unfinished(&crate::plan::example(), "");
        record.workload =
            Workload { world_size: 2, algorithm_requested: "Ring".to_owned(), ..Workload::default() };
        record.metrics = Metrics {
            rows: vec![
                row("all_reduce", 1024),
                row("reduce_scatter_all_gather", 1024),
                row("all_gather", 2048),
            ],
            comparison: None,
        };
        Evidence::of_file(&path).attach(&mut record);
        let rows = record.metrics.rows.into_iter().map(|row| row.algorithm_observed).collect();
        (record.workload.algorithm_observed, rows)
    }

    fn is(names: &[&str]) -> AlgorithmObserved {
        AlgorithmObserved::Observed(names.iter().map(|&name| name.to_owned()).collect())
    }

    const UNCONFIRMED: AlgorithmObserved = AlgorithmObserved::Unconfirmed(Unconfirmed::Unconfirmed);

    #[test]
    fn what_was_asked_for_is_no_evidence() {
        let (workload, rows) = attached(&[]);
        assert_eq!((workload, rows), (UNCONFIRMED, vec![UNCONFIRMED; 3]));
    }

    #[test]
    fn ring_was_asked_for_and_tree_ran() {
        let line = format!("{PREFIX} AllReduce: 1024 Bytes -> Algo TREE proto LL channel{{Lo..Hi}}={{0..1}}");
        let (workload, rows) = attached(&[&line]);
        assert_eq!(workload, is(&["Tree"]));
        assert_eq!(rows, [is(&["Tree"]), UNCONFIRMED, UNCONFIRMED]);
    }

    #[test]
    fn lines_of_other_sizes_and_of_one_part_are_no_evidence() {
        let lines = [
            format!("{PREFIX} AllReduce: 4096 Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..1}}"),
            format!("{PREFIX} ReduceScatter: 512 Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..1}}"),
        ];
        let (_, rows) = attached(&[&lines[0], &lines[1]]);
        assert_eq!(rows, vec![UNCONFIRMED; 3]);
    }

    /// Sizes of the newer lines are of one rank's share.
    #[test]
    fn both_parts_and_several_algorithms() {
        let line = |call: &str| format!("{PREFIX} {call} proto LL channel{{Lo..Hi}}={{0..1}}");
        let lines = [
            line("ReduceScatter: 512 Bytes -> Algo RING"),
            line("AllGather: 512 Bytes -> Algo PAT"),
            line("AllReduce: 1024 Bytes -> Algo RING"),
            line("AllReduce: 1024 Bytes -> Algo TREE"),
        ];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let (workload, rows) = attached(&lines);
        assert_eq!(rows, [is(&["Ring", "Tree"]), is(&["PAT", "Ring"]), UNCONFIRMED]);
        assert_eq!(workload, is(&["PAT", "Ring", "Tree"]));
    }
}
