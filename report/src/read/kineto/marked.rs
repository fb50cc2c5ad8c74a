//! Intervals that say themselves what they are, or that a user's pattern does.

use super::category::Mark;
use super::collect::Times;
use super::json::Value;
use crate::timeline::{Comm, Names, Sym};
use std::borrow::Cow;

/// An interval of a trace that is not of PyTorch's profiler.
#[derive(Debug, Clone, Copy)]
pub(super) struct Marked {
    /// The process that it stands under; set by the collector.
    pub process: Sym,
    /// The row within it; set by the collector.
    pub thread: Sym,
    pub mark: Mark,
    /// For compute and steps, only name, times and step are of use.
    pub comm: Comm,
}

impl Marked {
    /// The interval called `name` with these arguments; `None` if it is neither compute nor
    /// communication nor a step.
    pub fn new<'a>(
        mark: Option<Mark>,
        name: &str,
        times: Times,
        args: impl Iterator<Item = (&'a [u8], Value<'a>)>,
        names: &mut Names,
    ) -> Option<Self> {
        let mut mark = mark;
        let by_args = mark.is_none();
        let mut comm = Comm::new(names.intern(name), times.start_ns, times.end_ns);
        for (key, value) in args {
            let small = || word(value).parse::<u32>().ok();
            let count = || word(value).parse::<u64>().ok();
            match key {
                b"commtrace.kind" if by_args => mark = Mark::named(word(value).as_bytes()),
                b"op" | b"label" if by_args => comm.op = names.intern(&word(value)),
                b"bytes" => comm.bytes = count(),
                b"comm" => comm.comm = Some(names.intern(&word(value))),
                b"seq" => comm.seq = count(),
                b"comm_size" => comm.comm_size = small(),
                b"comm_rank" => comm.comm_rank = small(),
                b"dtype" => comm.dtype = Some(names.intern(&word(value))),
                b"peer" => comm.peer = small(),
                b"step" => comm.step = word(value).parse().ok(),
                _ => {}
            }
        }
        let mark = mark?;
        if mark == Mark::Step {
            comm.step?;
        }
        Some(Self { process: comm.op, thread: comm.op, mark, comm })
    }
}

/// The text of an argument. Recorders that know no types write `"\"ring\""` and `"12"`.
fn word(value: Value<'_>) -> Cow<'_, str> {
    let text = value.text();
    match text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        Some(inner) => Cow::Owned(inner.to_owned()),
        None => text,
    }
}

/// The rank and device in the name of a process of our own traces: `rank 3 device 1`.
pub(super) fn place(label: &str) -> Option<(u32, Option<u32>)> {
    let rest = label.strip_prefix("rank ")?;
    match rest.split_once(" device ") {
        Some((rank, device)) => Some((rank.parse().ok()?, Some(device.parse().ok()?))),
        None => Some((rest.parse().ok()?, None)),
    }
}
