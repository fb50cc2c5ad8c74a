//! Which calls of NCCL, and which of PyTorch's collectives, launched a kernel.

use super::launch::Site;
use super::payload::Payload;
use super::range::{HostRange, NcclName, NcclRange};
use super::thread::{Process, Thread};
use crate::classify::Op;
use std::collections::HashMap;
use std::ops::Range;

/// Ranges nest a few deep; what began longer ago has ended.
const NESTED: usize = 16;

/// A call of a collective or of a point-to-point operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Call {
    pub op: Op,
    pub payload: Payload,
    /// Its number among the collectives of its communicator, if all since the communicator was made are there.
    pub seq: Option<u64>,
}

/// What launches: a call by itself, or the end of a group with the group's calls.
#[derive(Debug)]
struct Window {
    thread: Thread,
    start_ns: i64,
    end_ns: i64,
    calls: Range<usize>,
}

/// All calls of NCCL.
#[derive(Debug, Default)]
pub(super) struct Calls {
    calls: Vec<Call>,
    /// By thread and start.
    windows: Vec<Window>,
    members: Members,
    /// Per window, where in it kernels were launched from, in order.
    launches: Vec<(usize, Site)>,
}

/// What a process is in a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Member {
    pub process: Process,
    pub comm: u64,
    pub ranks: u32,
    pub rank: Option<u32>,
    pub device: Option<u32>,
    /// The communicator was made while the trace was taken.
    pub made: bool,
}

/// The communicators that ranges tell of.
#[derive(Debug, Default)]
pub(super) struct Members {
    all: Vec<Member>,
    by_comm: HashMap<(Process, u64), Vec<usize>>,
}

impl Members {
    fn of(ranges: &[NcclRange]) -> Self {
        let mut members = Self::default();
        for range in ranges {
            let (NcclName::CommMade | NcclName::Comm) = range.name else { continue };
            let Payload { comm: Some(comm), ranks: Some(ranks), rank, device, .. } = range.payload else {
                continue;
            };
            let process = range.thread.process();
            let made = range.name == NcclName::CommMade;
            let known = members.by_comm.entry((process, comm)).or_default();
            let same =
                known.iter().find(|&&index| members.all.get(index).is_some_and(|one| one.rank == rank));
            match same.and_then(|&index| members.all.get_mut(index)) {
                Some(member) => member.made |= made,
                None => {
                    known.push(members.all.len());
                    members.all.push(Member { process, comm, ranks, rank, device, made });
                }
            }
        }
        members
    }

    pub fn iter(&self) -> impl Iterator<Item = &Member> {
        self.all.iter()
    }

    /// Ranks of a communicator.
    pub fn size(&self, process: Process, comm: u64) -> Option<u32> {
        let first = self.by_comm.get(&(process, comm))?.first()?;
        self.all.get(*first).map(|member| member.ranks)
    }

    /// What a process is in a communicator, if it is only one rank of it.
    pub fn only(&self, process: Process, comm: u64) -> Option<&Member> {
        match self.by_comm.get(&(process, comm)).map(Vec::as_slice) {
            Some(&[index]) => self.all.get(index),
            _ => None,
        }
    }
}

impl Calls {
    /// From the ranges of NCCL's interface, in any order.
    pub fn new(mut ranges: Vec<NcclRange>) -> Self {
        ranges.sort_by_key(|range| (range.thread, range.start_ns, std::cmp::Reverse(range.end_ns)));
        let mut calls = Self { members: Members::of(&ranges), ..Self::default() };
        for thread in ranges.chunk_by(|a, b| a.thread == b.thread) {
            calls.add_thread(thread);
        }
        calls.number(&ranges);
        calls.windows.sort_by_key(|window| (window.thread, window.start_ns));
        calls
    }

    fn add_thread(&mut self, ranges: &[NcclRange]) {
        let mut depth = 0_u32;
        let mut group = self.calls.len();
        for range in ranges {
            let first = self.calls.len();
            match range.name {
                NcclName::Does(op) => {
                    self.calls.push(Call { op, payload: range.payload, seq: None });
                    if depth == 0 {
                        self.add_window(range, first);
                    }
                }
                NcclName::GroupStart => {
                    if depth == 0 {
                        group = first;
                    }
                    depth += 1;
                }
                NcclName::GroupEnd => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        self.add_window(range, group);
                        // A second end without a start has no calls.
                        group = self.calls.len();
                    }
                }
                NcclName::CommMade | NcclName::Comm => {}
            }
        }
    }

    fn add_window(&mut self, range: &NcclRange, first: usize) {
        let calls = first..self.calls.len();
        if !calls.is_empty() {
            let &NcclRange { thread, start_ns, end_ns, .. } = range;
            self.windows.push(Window { thread, start_ns, end_ns, calls });
        }
    }

    /// Numbers the collectives of each communicator whose beginning was traced, in the order of time.
    fn number(&mut self, ranges: &[NcclRange]) {
        let does = ranges.iter().filter(|range| matches!(range.name, NcclName::Does(_)));
        // Calls stand in the order of `ranges`.
        let mut order: Vec<(i64, usize, Process)> =
            does.enumerate().map(|(index, range)| (range.start_ns, index, range.thread.process())).collect();
        order.sort_unstable();
        let mut next: HashMap<(Process, u64), u64> = HashMap::new();
        for (_, index, process) in order {
            let Some(call) = self.calls.get_mut(index) else { continue };
            let Some(comm) = call.payload.comm else { continue };
            let counts = !matches!(call.op, Op::Send | Op::Recv | Op::SendRecv);
            if counts && self.members.only(process, comm).is_some_and(|member| member.made) {
                let seq = next.entry((process, comm)).or_default();
                call.seq = Some(*seq);
                *seq += 1;
            }
        }
    }

    pub fn members(&self) -> &Members {
        &self.members
    }

    /// Notes from where kernels were launched, so that the calls of a group can be told apart.
    pub fn note_launches(&mut self, sites: impl Iterator<Item = Site>) {
        let mut launches: Vec<(usize, Site)> =
            sites.filter_map(|site| Some((self.window(site)?, site))).collect();
        launches.sort_unstable();
        launches.dedup();
        self.launches = launches;
    }

    fn window(&self, site: Site) -> Option<usize> {
        let begun =
            self.windows.partition_point(|one| (one.thread, one.start_ns) <= (site.thread, site.at_ns));
        let first = begun.saturating_sub(NESTED);
        (first..begun).rev().find(|&index| {
            self.windows
                .get(index)
                .is_some_and(|window| window.thread == site.thread && site.at_ns < window.end_ns)
        })
    }

    /// The calls that the kernel launched from `site` carries out, and whether these are exactly known.
    pub fn at(&self, site: Site) -> Option<(&[Call], bool)> {
        let index = self.window(site)?;
        let calls = self.calls.get(self.windows.get(index)?.calls.clone())?;
        let first = self.launches.partition_point(|&launch| launch < (index, Site::MIN));
        let launches = self.launches.get(first..)?.iter().take_while(|&&(window, _)| window == index);
        let launches: Vec<Site> = launches.map(|&(_, site)| site).collect();
        if launches.len() <= 1 {
            return Some((calls, true));
        }
        if launches.len() == calls.len() {
            let position = launches.binary_search(&site).ok()?;
            return Some((calls.get(position..=position)?, true));
        }
        Some((calls, false))
    }
}

/// The collectives of PyTorch, to tell what sends and receives are part of.
#[derive(Debug, Default)]
pub(super) struct HostCalls {
    /// By thread and start.
    sorted: Vec<HostRange>,
}

impl HostCalls {
    pub fn new(mut ranges: Vec<HostRange>) -> Self {
        ranges.retain(|range| range.op != Op::Unknown);
        ranges.sort_by_key(|range| (range.thread, range.start_ns, std::cmp::Reverse(range.end_ns)));
        Self { sorted: ranges }
    }

    /// The innermost collective around `site`.
    pub fn at(&self, site: Site) -> Option<Op> {
        let begun =
            self.sorted.partition_point(|range| (range.thread, range.start_ns) <= (site.thread, site.at_ns));
        let before = self.sorted.get(..begun)?.iter().rev().take(NESTED);
        before
            .take_while(|range| range.thread == site.thread)
            .find(|range| site.at_ns < range.end_ns)
            .map(|range| range.op)
    }
}
