//! What to do next about a run that is out of step: short, concrete, most useful first.

use super::finding::{Desync, DesyncKind};
use super::say;
use super::{RankDiagnosis, RankRuns, RunVerdict};

/// Processes that a sentence names, at most.
const NAMED: usize = 4;

/// What to do next.
pub(super) fn next(verdict: RunVerdict, desync: &[Desync], ranks: &[RankDiagnosis]) -> Vec<String> {
    let mut next = Vec::new();
    if !verdict.is_failure() && desync.is_empty() {
        return next;
    }
    let causes: Vec<&Desync> = desync.iter().filter(|one| one.blocked_by.is_none() || one.in_cycle).collect();
    let any = |kinds: &[DesyncKind]| causes.iter().find(|one| kinds.contains(&one.kind));
    if causes.iter().any(|one| one.in_cycle) {
        next.push(
            "Call communicators in the same order on all ranks: on a cycle, each of these ranks waits for the \
             next."
                .to_owned(),
        );
    }
    use DesyncKind::{Bytes, Dtype, Extra, Missing, NoRecord, Op, RecvWithoutSend, SendWithoutRecv};
    if let Some(one) = any(&[Missing, Extra, RecvWithoutSend, SendWithoutRecv]) {
        let absent = if one.missing.is_empty() { &one.ranks } else { &one.missing };
        next.extend(stacks(absent, ranks));
        next.push(format!(
            "Look for what lets {} take another path: a branch on the rank, a batch that is empty or short, an \
             error that was caught, a loop of different length.",
            say::ranks(&one.ranks)
        ));
    }
    if let Some(one) = any(&[Op, Bytes, Dtype]) {
        next.push(format!(
            "Compare the calls of {} with those of the others up to this number: the first one that is made \
             more or less often shifts all that follow.",
            say::ranks(&one.ranks)
        ));
    }
    if let Some(one) = any(&[DesyncKind::Stalled]) {
        let inside = if one.ranks.is_empty() { &one.waiting } else { &one.ranks };
        next.push(
            "All ranks that were read are in the call, so look below the application: `dmesg | grep -i xid`, \
             `nvidia-smi`, link counters of the network."
                .to_owned(),
        );
        next.extend(stacks(inside, ranks));
    }
    if causes.iter().any(|one| !one.waiting.is_empty()) {
        next.push(
            "Run again with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL NCCL_DEBUG_FILE=nccl.%h.%p.log: \
             `commtrace report` reads these logs. A PyTorch job's flight recorder (TORCH_NCCL_TRACE_BUFFER_SIZE=2000 \
             TORCH_NCCL_DUMP_ON_TIMEOUT=1) adds the stack of every call."
                .to_owned(),
        );
    }
    if let Some(one) = any(&[DesyncKind::Stopped]) {
        next.push(format!(
            "Read the end of what {} wrote, and on {} `dmesg` for the out-of-memory killer and Xid errors.",
            say::ranks(&one.ranks),
            hosts(&one.ranks, ranks)
        ));
    }
    if let Some(one) = any(&[NoRecord]) {
        next.push(format!(
            "See whether {} had the same COMMTRACE_DIR, on a file system that all hosts share.",
            say::ranks(&one.ranks)
        ));
    }
    next
}

/// How to see where processes are.
fn stacks(wanted: &[u32], ranks: &[RankDiagnosis]) -> Option<String> {
    let running = ranks.iter().filter(|rank| {
        wanted.contains(&rank.rank) && !matches!(rank.state, RankRuns::Ended | RankRuns::Stopped)
    });
    let places: Vec<String> = running
        .filter_map(|rank| Some((rank.rank, rank.pid?, rank.host.as_ref()?)))
        .take(NAMED)
        .map(|(rank, pid, host)| {
            format!("`gdb -p {pid} -batch -ex 'thread apply all bt'` on {host} (rank {rank})")
        })
        .collect();
    (!places.is_empty()).then(|| {
        format!(
            "See where they are instead: {}; for a Python process `py-spy dump --native --pid` does the same.",
            places.join(", ")
        )
    })
}

fn hosts(wanted: &[u32], ranks: &[RankDiagnosis]) -> String {
    let mut hosts: Vec<&str> = ranks
        .iter()
        .filter(|rank| wanted.contains(&rank.rank))
        .filter_map(|rank| rank.host.as_deref())
        .collect();
    hosts.sort_unstable();
    hosts.dedup();
    match hosts.len() {
        0 => "its host".to_owned(),
        1..=NAMED => hosts.join(", "),
        _ => format!(
            "{} and {} more",
            hosts.iter().take(NAMED).copied().collect::<Vec<_>>().join(", "),
            hosts.len() - NAMED
        ),
    }
}
