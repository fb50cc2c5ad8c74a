//! Whether the ranks mean the same call, found out before any of the callers' memory is touched.
//!
//! A collective begins with the [maximum](super::maximum) over ranks of what each calls with and of
//! its complement: where the two are complements again, all ranks called alike. Only if they are not,
//! or a rank's own arguments are wrong, the ranks tell each other the details. It is also where a rank waits for
//! late ones: until it is over nothing of the caller's is in MPI's hands, and the call can be given up.

use std::ffi::c_int;

use mpi::ffi;

use super::core::Core;
use super::maximum::Maximum;
use super::request::{Control, Failure};
use super::style::Style;
use crate::host::call::RawCall;
use crate::host::check::{Fault, check, check_with};
use crate::host::key::Key;
use crate::{DType, Error, Op, ReduceOp, Result};

/// What a rank's last word says; the largest over ranks counts.
const NON_BLOCKING: u64 = 1;
const WRONG: u64 = 2;

/// Bytes of a rank's problem that the others get to read.
const TEXT: usize = 192;

const OPS: [Op; 10] = [
    Op::AllReduce,
    Op::AllGather,
    Op::ReduceScatter,
    Op::Broadcast,
    Op::Reduce,
    Op::AllToAll,
    Op::AllToAllV,
    Op::Send,
    Op::Recv,
    Op::Barrier,
];

const DTYPES: [DType; 7] = [
    DType::Float32,
    DType::Float64,
    DType::Float16,
    DType::BFloat16,
    DType::Int32,
    DType::Int64,
    DType::UInt8,
];

const REDUCTIONS: [ReduceOp; 5] =
    [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min, ReduceOp::Avg];

/// Position in `all` plus one; 0 stands for none.
fn number<T: PartialEq>(all: &[T], value: Option<T>) -> u64 {
    value.and_then(|value| all.iter().position(|other| *other == value)).map_or(0, |at| at as u64 + 1)
}

fn numbered<T: Copy>(all: &[T], number: u64) -> Option<T> {
    all.get(usize::try_from(number.checked_sub(1)?).ok()?).copied()
}

/// Op, type, reduction and root in one word.
fn signature(call: &RawCall) -> u64 {
    let root = call.root.map_or(0, |root| u32::try_from(root).unwrap_or(u32::MAX - 1).saturating_add(1));
    number(&OPS, Some(call.op))
        | number(&DTYPES, call.dtype) << 8
        | number(&REDUCTIONS, call.reduce) << 16
        | u64::from(root) << 32
}

/// The length that must be the same on all ranks.
fn common_length(call: &RawCall) -> u64 {
    match call.op {
        Op::AllToAllV => 0,
        Op::Broadcast | Op::ReduceScatter => call.recv.len as u64,
        _ => call.send.len as u64,
    }
}

/// A rank's call as the others need it for an error: signature, lengths with presence, problem.
pub(super) fn describe(call: &RawCall, problem: Option<&str>) -> Vec<u8> {
    let length = |present: bool, len: usize| if present { len as u64 } else { u64::MAX };
    let mut bytes = Vec::with_capacity(DETAILS);
    for word in [
        signature(call),
        length(call.send.present, call.send.len),
        length(call.recv.present, call.recv.len),
        u64::from(problem.is_some()),
    ] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    let text = problem.unwrap_or_default();
    let mut end = text.len().min(TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    bytes.extend_from_slice(&text.as_bytes()[..end]);
    bytes.resize(DETAILS, 0);
    bytes
}

const DETAILS: usize = 4 * 8 + TEXT;

/// The inverse of [`describe`]; the call has lengths and no memory.
fn described(bytes: &[u8]) -> (RawCall, Option<String>) {
    let word = |index: usize| {
        let bytes = bytes.get(index * 8..index * 8 + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_le_bytes)
    };
    let length = |word: u64| (word != u64::MAX).then(|| usize::try_from(word).unwrap_or(usize::MAX));
    let signature = word(0);
    let mut call = RawCall::without_memory(
        numbered(&OPS, signature & 0xff).unwrap_or(Op::Barrier),
        numbered(&DTYPES, signature >> 8 & 0xff),
        length(word(1)),
        length(word(2)),
    );
    call.reduce = numbered(&REDUCTIONS, signature >> 16 & 0xff);
    call.root = (signature >> 32).checked_sub(1).and_then(|root| usize::try_from(root).ok());
    let problem = (word(3) != 0).then(|| {
        let text = bytes.get(4 * 8..).unwrap_or_default();
        String::from_utf8_lossy(text).trim_end_matches('\0').to_owned()
    });
    (call, problem)
}

impl Core {
    /// Says what this rank calls, and how; the answer is for [`settle`](Self::settle).
    pub(super) fn propose(&self, call: &RawCall, wrong: bool, style: Style) -> Result<Maximum<'_>, Failure> {
        let (signature, length) = (signature(call), common_length(call));
        let style = if style == Style::NonBlocking { NON_BLOCKING } else { 0 };
        let last = if wrong { WRONG } else { style };
        self.maximum([signature, !signature, length, !length, last])
    }

    /// Waits for the other ranks' calls. After `Ok` all of them carry out the same call in the same style, which
    /// is non-blocking if one of them needs that.
    pub(super) async fn settle(
        &self,
        key: Key,
        call: &RawCall,
        problem: Option<&str>,
        agreement: Maximum<'_>,
    ) -> Result<Style> {
        let id = || self.members.call_id(key, call.op);
        let [signature, not_signature, length, not_length, last] =
            agreement.over_ranks().await.map_err(|failure| self.error(id(), failure))?;
        if signature == !not_signature && length == !not_length && last < WRONG {
            return Ok(if last == NON_BLOCKING { Style::NonBlocking } else { Style::Blocking });
        }
        let details = self.exchange(describe(call, problem)).await;
        let details = details.map_err(|failure| self.error(id(), failure))?;
        let (calls, problems): (Vec<_>, Vec<_>) = details.chunks(DETAILS).map(described).unzip();
        let fault = check_with(&calls, |rank, _| problems.get(rank).cloned().flatten());
        // Roots too large for their place in the signature are an argument's problem of their own.
        let fault = fault.err().unwrap_or_else(|| Fault::Invalid(Vec::new()));
        let op = calls.first().map_or(call.op, |call| call.op);
        Err(fault.into_error(&self.members, key, op))
    }

    /// Every rank's `mine`, in rank order. All have the same length.
    pub(super) async fn exchange(&self, mine: Vec<u8>) -> Result<Vec<u8>, Failure> {
        let len = mine.len();
        let all = vec![0_u8; len * self.members.size()];
        // SAFETY: the vectors are in the box and keep their lengths.
        let gathering = unsafe {
            Control::start(
                &self.runtime,
                "MPI_Iallgather",
                self.deadline(),
                (mine, all),
                |buffers, request| {
                    let (mine, all) = buffers;
                    let count = len as c_int;
                    let (send, recv) = (mine.as_ptr().cast(), all.as_mut_ptr().cast());
                    let bytes = ffi::RSMPI_UINT8_T;
                    ffi::MPI_Iallgather(send, count, bytes, recv, count, bytes, self.data.raw(), request)
                },
            )
        }?;
        Ok(gathering.await?.1)
    }

    /// Compares how many elements each rank sends to each with how many that one expects.
    pub(super) async fn settle_counts(&self, key: Key, call: &RawCall) -> Result<()> {
        let id = || self.members.call_id(key, call.op);
        let ranks = self.members.size();
        let coming = self.deal(&call.send_counts).await.map_err(|failure| self.error(id(), failure))?;
        let expected = |source: usize| call.recv_counts.get(source).map_or(0, |&count| count as u64);
        let first = coming.iter().enumerate().find(|&(source, &count)| count != expected(source));
        let mine = first.map_or([u64::MAX, 0, 0], |(source, &count)| {
            [(source * ranks + self.rank) as u64, count, expected(source)]
        });
        let all = self.exchange(mine.iter().flat_map(|word| word.to_le_bytes()).collect()).await;
        let all = all.map_err(|failure| self.error(id(), failure))?;
        let word = |bytes: &[u8], index: usize| {
            bytes
                .get(index * 8..)
                .and_then(|bytes| bytes.first_chunk())
                .map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        let worst = all.chunks(24).map(|bytes| [0, 1, 2].map(|index| word(bytes, index))).min();
        let Some([place, sent, expected]) = worst.filter(|[place, ..]| *place != u64::MAX) else {
            return Ok(());
        };
        let place = usize::try_from(place).unwrap_or(0);
        let values = vec![
            (format!("{sent} elements for the other"), vec![place / ranks]),
            (format!("{expected} expected"), vec![place % ranks]),
        ];
        Err(Fault::Mismatch { what: "count", values }.into_error(&self.members, key, call.op))
    }

    /// What every rank's `counts` have for this rank, in rank order.
    async fn deal(&self, counts: &[usize]) -> Result<Vec<u64>, Failure> {
        let mine: Vec<u64> = counts.iter().map(|&count| count as u64).collect();
        let theirs = vec![0_u64; self.members.size()];
        // SAFETY: the vectors are in the box and keep their lengths, one number for each rank.
        let dealing = unsafe {
            Control::start(
                &self.runtime,
                "MPI_Ialltoall",
                self.deadline(),
                (mine, theirs),
                |buffers, request| {
                    let (mine, theirs) = buffers;
                    let (send, recv, word) =
                        (mine.as_ptr().cast(), theirs.as_mut_ptr().cast(), ffi::RSMPI_UINT64_T);
                    ffi::MPI_Ialltoall(send, 1, word, recv, 1, word, self.data.raw(), request)
                },
            )
        }?;
        Ok(dealing.await?.1)
    }

    /// Compares what sender and receiver of a message call with.
    pub(super) async fn settle_message(&self, key: Key, call: &RawCall, peer: usize) -> Result<()> {
        let id = || self.members.call_id(key, call.op);
        let theirs = self.handshake(call, peer).await.map_err(|failure| match failure {
            Failure::Late => {
                Error::Timeout { call: id(), waited: self.timeout, missing: vec![self.members.global(peer)] }
            }
            failure => self.error(id(), failure),
        })?;
        let (mine, (theirs, _)) = (described(&describe(call, None)).0, described(&theirs));
        let calls = if call.op == Op::Send { [mine, theirs] } else { [theirs, mine] };
        check(&calls).map_err(|fault| fault.into_error(&self.members, key, call.op))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_read_as_it_was_described() {
        let mut call = RawCall::without_memory(Op::Reduce, Some(DType::BFloat16), Some(7), None);
        call.reduce = Some(ReduceOp::Avg);
        call.root = Some(3);
        let long = "ä".repeat(TEXT);
        for problem in [None, Some("root 9 is not a rank of a communicator of 4"), Some(long.as_str())] {
            let (read, text) = described(&describe(&call, problem));
            assert_eq!(
                (read.op, read.dtype, read.reduce, read.root),
                (Op::Reduce, call.dtype, call.reduce, call.root)
            );
            assert_eq!((read.send.len, read.send.present, read.recv.present), (7, true, false));
            assert_eq!(text.is_some(), problem.is_some());
            assert!(problem.unwrap_or_default().starts_with(&text.unwrap_or_default()));
        }
    }

    #[test]
    fn calls_that_differ_have_different_signatures() {
        let mut seen = std::collections::HashSet::new();
        for op in OPS {
            for dtype in DTYPES {
                for reduce in REDUCTIONS.map(Some).into_iter().chain([None]) {
                    for root in [None, Some(0), Some(1), Some(usize::MAX)] {
                        let mut call = RawCall::without_memory(op, Some(dtype), Some(1), Some(1));
                        (call.reduce, call.root) = (reduce, root);
                        assert!(seen.insert(signature(&call)), "{op} {dtype} {reduce:?} {root:?}");
                    }
                }
            }
        }
    }
}
