//! What a communication kernel does and how much it moves, by all that tells.

use super::call::{Call, Calls, HostCalls};
use super::launch::Site;
use super::work::Kernel;
use crate::classify::{Classifier, CommKernel, Op, OpName, RuleTally};
use crate::read::kineto::{OTHER_KERNELS, Times, agree};
use crate::timeline::{Comm, MatchKind, Names, Sym};
use std::collections::HashMap;

/// Turns kernels into intervals.
pub(super) struct Resolver<'a> {
    pub classifier: &'a Classifier,
    pub names: &'a mut Names,
    pub rules: RuleTally,
    /// Compute whose name suggests communication: number and time in nanoseconds.
    pub hints: HashMap<Sym, (u64, u64)>,
    pub calls: &'a Calls,
    pub host: &'a HostCalls,
}

impl Resolver<'_> {
    /// Notes a compute kernel.
    pub fn compute(&mut self, name: Sym, times: Times, hint: bool) {
        let length = times.length_ns();
        self.rules.add(OTHER_KERNELS, MatchKind::Compute, None, length);
        if hint {
            let (events, time) = self.hints.entry(name).or_default();
            *events += 1;
            *time = time.saturating_add(length);
        }
    }

    /// A communication kernel with all that its name and its launch tell.
    pub fn comm(&mut self, kernel: &Kernel, comm: CommKernel, site: Option<Site>) -> Comm {
        let by_name = match comm.op {
            OpName::Known(op) => Some(op).filter(|&op| op != Op::Unknown),
            OpName::Pattern(_) => None,
        };
        let launched = site.and_then(|site| self.calls.at(site));
        let (calls, exact) = launched.unwrap_or((&[], false));
        let size =
            calls.first().and_then(|call| self.calls.members().size(kernel.process, call.payload.comm?));
        let called = Called::of(calls, exact, size).filter(|called| agree(by_name, called.op));
        let host = site.and_then(|site| self.host.at(site)).filter(|&host| agree(by_name, Some(host)));
        let op = match comm.op {
            // What a user calls a kernel stands above what anyone else calls it.
            OpName::Pattern(_) => None,
            OpName::Known(_) => Some(op(by_name, called, host)),
        };
        let name = match op {
            Some(op) => op.as_str(),
            None => self.classifier.op_name(comm.op),
        };
        let rule = self.classifier.rule(comm);
        self.rules.add(rule, MatchKind::Comm, Some(name), kernel.times.length_ns());
        let op = self.names.intern(name);
        let called = called.unwrap_or_default();
        let member = called.comm.and_then(|comm| self.calls.members().only(kernel.process, comm));
        let nccl = comm.nccl;
        let mut intern = |text: &'static str| self.names.intern(text);
        Comm {
            bytes: called.bytes,
            dtype: nccl.and_then(|nccl| nccl.dtype).map(|dtype| intern(dtype.name)),
            algorithm: nccl.and_then(|nccl| nccl.algorithm).map(&mut intern),
            protocol: nccl.and_then(|nccl| nccl.protocol).map(&mut intern),
            comm: called.comm.map(|comm| self.names.intern(&format!("{comm:#x}"))),
            // A graph is run any number of times after one call.
            seq: called.seq.filter(|_| kernel.graph_node == 0),
            comm_size: size,
            comm_rank: member.and_then(|member| member.rank),
            stream: kernel.stream.map(|stream| self.names.intern(&stream.to_string())),
            peer: called.peer,
            ..Comm::new(op, kernel.times.start_ns, kernel.times.end_ns)
        }
    }
}

/// What a kernel does, by its name, by NCCL's calls and by PyTorch's.
fn op(by_name: Option<Op>, called: Option<Called>, host: Option<Op>) -> Op {
    let op = called.and_then(|called| called.op).or(by_name);
    match (op, host) {
        // NCCL before 2.28 has no all-to-all: it is made of sends and receives.
        (Some(Op::SendRecv | Op::Send | Op::Recv) | None, Some(Op::AllToAll))
            if called.is_some_and(|called| called.uneven) =>
        {
            Op::AllToAllV
        }
        (Some(Op::SendRecv | Op::Send | Op::Recv) | None, Some(host)) => host,
        (Some(op), _) => op,
        (None, None) => Op::Unknown,
    }
}

/// The calls of a kernel taken together.
#[derive(Debug, Clone, Copy, Default)]
struct Called {
    op: Option<Op>,
    bytes: Option<u64>,
    comm: Option<u64>,
    seq: Option<u64>,
    peer: Option<u32>,
    /// Sends differ in size.
    uneven: bool,
}

impl Called {
    /// `exact`: the kernel does all of `calls`; otherwise only some of them, and not known which. `size` is
    /// that of the communicator.
    fn of(calls: &[Call], exact: bool, size: Option<u32>) -> Option<Self> {
        let first = calls.first()?;
        let is_p2p = |call: &Call| matches!(call.op, Op::Send | Op::Recv);
        let same = |of: fn(&Call) -> Option<u64>| {
            of(first).filter(|value| calls.iter().all(|call| of(call) == Some(*value)))
        };
        let mut called = Self { comm: same(|call| call.payload.comm), ..Self::default() };
        if calls.iter().all(is_p2p) {
            let any = |op| calls.iter().any(|call| call.op == op);
            let (sends, receives) = (any(Op::Send), any(Op::Recv));
            called.op = Some(match (sends, receives) {
                (true, false) => Op::Send,
                (false, true) => Op::Recv,
                _ => Op::SendRecv,
            });
            let counted = if sends { Op::Send } else { Op::Recv };
            let sizes = calls.iter().filter(|call| call.op == counted).map(|call| call.payload.bytes);
            let sizes: Option<Vec<u64>> = sizes.collect();
            called.uneven =
                sizes.as_ref().is_some_and(|sizes| sizes.windows(2).any(|pair| pair[0] != pair[1]));
            if exact {
                called.bytes = sizes.and_then(total);
                called.peer =
                    same(|call| call.payload.peer.map(u64::from)).and_then(|peer| peer.try_into().ok());
            }
        } else if calls.iter().all(|call| call.op == first.op) {
            called.op = Some(first.op);
            if exact {
                let sizes: Option<Vec<u64>> = calls.iter().map(|call| whole(call, size)).collect();
                called.bytes = sizes.and_then(total);
                called.seq = first.seq;
                called.peer = first.payload.root.filter(|_| calls.len() == 1);
            }
        }
        Some(called)
    }
}

fn total(sizes: Vec<u64>) -> Option<u64> {
    sizes.into_iter().try_fold(0, u64::checked_add)
}

/// The payload of a call as nccl-tests counts it. NCCL records what the call's `count` says, which of gathers,
/// scatters and all-to-alls is one rank's share.
fn whole(call: &Call, size: Option<u32>) -> Option<u64> {
    let message = call.payload.bytes?;
    match call.op {
        Op::AllGather | Op::ReduceScatter | Op::AllToAll => message.checked_mul(size?.into()),
        _ => Some(message),
    }
}
