//! Whether the ranks' calls are right in themselves and fit each other.

use super::call::RawCall;
use super::key::{Key, Members};
use crate::{DType, Error, Op, ReduceOp};

/// What is wrong with a call. Ranks are slots: positions in the list of calls.
#[derive(Debug, PartialEq)]
pub(crate) enum Fault {
    Mismatch { what: &'static str, values: Vec<(String, Vec<usize>)> },
    Invalid(Vec<(usize, String)>),
}

impl Fault {
    /// The error that the ranks of the call `key`, an `op`, get.
    pub(crate) fn into_error(self, members: &Members, key: Key, op: Op) -> Error {
        let call = members.call_id(key, op);
        let rank_of = |slot: usize| members.global(key.rank_of(slot));
        match self {
            Self::Mismatch { what, values } => {
                let values = values
                    .into_iter()
                    .map(|(value, slots)| (value, slots.into_iter().map(rank_of).collect()))
                    .collect();
                Error::Mismatch { call, what, values }
            }
            Self::Invalid(problems) => {
                let problems = problems.into_iter().map(|(slot, problem)| (rank_of(slot), problem)).collect();
                Error::InvalidArgument { call, problems }
            }
        }
    }
}

/// Compares `calls`, in rank order (or sender and receiver). After `Ok`, every element that the call is
/// about is within its buffer.
pub(crate) fn check(calls: &[RawCall]) -> Result<(), Fault> {
    check_with(calls, |rank, call| own_problem(call, rank, calls.len()))
}

/// As [`check`], with what is wrong with the arguments of each rank told by `own_problem`.
pub(crate) fn check_with(
    calls: &[RawCall],
    own_problem: impl Fn(usize, &RawCall) -> Option<String>,
) -> Result<(), Fault> {
    if let [RawCall { op: Op::Send, .. }, RawCall { op: Op::Recv, .. }] = calls {
        agree(calls, "dtype", |call| call.dtype, show_dtype)?;
        return agree(
            calls,
            "length",
            |call| if call.op == Op::Send { call.send.len } else { call.recv.len },
            elements,
        );
    }
    agree(calls, "operation", |call| call.op, |op| op.to_string())?;
    let problems: Vec<_> =
        calls.iter().enumerate().filter_map(|(rank, call)| Some((rank, own_problem(rank, call)?))).collect();
    if !problems.is_empty() {
        return Err(Fault::Invalid(problems));
    }
    agree(calls, "dtype", |call| call.dtype, show_dtype)?;
    agree(calls, "reduction", |call| call.reduce, |op| op.map_or("none", ReduceOp::as_str).to_owned())?;
    agree(calls, "root", |call| call.root, |root| root.map_or_else(|| "none".to_owned(), |r| r.to_string()))?;
    match calls.first().map(|call| call.op) {
        Some(Op::AllToAllV) => counts_fit(calls),
        Some(Op::Broadcast | Op::ReduceScatter) => agree(calls, "length", |call| call.recv.len, elements),
        _ => agree(calls, "length", |call| call.send.len, elements),
    }
}

/// What is wrong with the arguments of the rank itself.
pub(crate) fn own_problem(call: &RawCall, rank: usize, ranks: usize) -> Option<String> {
    if let Some(root) = call.root.filter(|&root| root >= ranks) {
        return Some(format!("root {root} is not a rank of a communicator of {ranks}"));
    }
    let (send, recv) = (call.send.len, call.recv.len);
    let is_root = call.root == Some(rank);
    match call.op {
        Op::AllReduce if send != recv => Some(format!("send has {send} elements, recv {recv}")),
        Op::Reduce if is_root && !call.recv.present => Some("the root gave no recv buffer".to_owned()),
        Op::Reduce if is_root && send != recv => Some(format!("send has {send} elements, recv {recv}")),
        Op::Broadcast if is_root && !call.send.present => Some("the root gave no send buffer".to_owned()),
        Op::Broadcast if is_root && send != recv => Some(format!("send has {send} elements, recv {recv}")),
        Op::AllGather if send.checked_mul(ranks) != Some(recv) => {
            Some(format!("recv has {recv} elements, not {ranks} times the {send} of send"))
        }
        Op::ReduceScatter if recv.checked_mul(ranks) != Some(send) => {
            Some(format!("send has {send} elements, not {ranks} times the {recv} of recv"))
        }
        Op::AllToAll if send != recv => Some(format!("send has {send} elements, recv {recv}")),
        Op::AllToAll if send % ranks != 0 => {
            Some(format!("{send} elements cannot be cut into {ranks} equal parts"))
        }
        Op::AllToAllV => own_counts("send", &call.send_counts, send, ranks)
            .or_else(|| own_counts("recv", &call.recv_counts, recv, ranks)),
        _ => None,
    }
}

fn own_counts(name: &str, counts: &[usize], len: usize, ranks: usize) -> Option<String> {
    if counts.len() != ranks {
        return Some(format!("{name}_counts has {} entries for {ranks} ranks", counts.len()));
    }
    let sum = counts.iter().try_fold(0_usize, |sum, &count| sum.checked_add(count));
    match sum {
        Some(sum) if sum <= len => None,
        Some(sum) => Some(format!("{name}_counts add up to {sum}, {name} has {len} elements")),
        None => Some(format!("{name}_counts add up to more than can be addressed")),
    }
}

fn counts_fit(calls: &[RawCall]) -> Result<(), Fault> {
    for (source, sender) in calls.iter().enumerate() {
        for (target, (&sent, receiver)) in sender.send_counts.iter().zip(calls).enumerate() {
            let expected = receiver.recv_counts.get(source).copied().unwrap_or(0);
            if sent != expected {
                let values = vec![
                    (format!("{sent} elements for the other"), vec![source]),
                    (format!("{expected} expected"), vec![target]),
                ];
                return Err(Fault::Mismatch { what: "count", values });
            }
        }
    }
    Ok(())
}

fn elements(len: &usize) -> String {
    format!("{len} elements")
}

fn show_dtype(dtype: &Option<DType>) -> String {
    dtype.map_or("none", DType::as_str).to_owned()
}

fn agree<V: PartialEq>(
    calls: &[RawCall],
    what: &'static str,
    value: impl Fn(&RawCall) -> V,
    show: impl Fn(&V) -> String,
) -> Result<(), Fault> {
    let mut rest = calls.iter().map(&value);
    let Some(first) = rest.next() else { return Ok(()) };
    if rest.all(|other| other == first) {
        return Ok(());
    }
    let mut values: Vec<(V, Vec<usize>)> = Vec::new();
    for (rank, call) in calls.iter().enumerate() {
        let value = value(call);
        match values.iter_mut().find(|(known, _)| *known == value) {
            Some((_, ranks)) => ranks.push(rank),
            None => values.push((value, vec![rank])),
        }
    }
    let values = values.into_iter().map(|(value, ranks)| (show(&value), ranks)).collect();
    Err(Fault::Mismatch { what, values })
}
