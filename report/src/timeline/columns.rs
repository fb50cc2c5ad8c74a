//! Column storage of a track: one column per field.

use super::Sym;
use super::exchange::{Exchange, Exchanges};
use super::narrow::Narrow;

/// One compute interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compute {
    /// Name of the span or kernel.
    pub name: Sym,
    /// First instant.
    pub start_ns: i64,
    /// End (exclusive). May precede `start_ns` in a broken input; the length is 0 then.
    pub end_ns: i64,
    /// The step that was current when the work was submitted.
    pub step: Option<i64>,
}

/// Compute intervals in record order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ComputeColumns {
    name: Narrow<Sym>,
    label: Narrow<Sym>,
    start_ns: Vec<i64>,
    end_ns: Vec<i64>,
    step: Narrow<i64>,
}

impl ComputeColumns {
    /// Appends an interval.
    pub fn push(&mut self, interval: Compute) {
        let row = self.len();
        self.name.push(row, Some(interval.name));
        self.start_ns.push(interval.start_ns);
        self.end_ns.push(interval.end_ns);
        self.step.push(row, interval.step);
    }

    /// Appends an interval whose name has a label: a name made at run time, such as a layer's number.
    pub fn push_labelled(&mut self, interval: Compute, label: Option<Sym>) {
        self.label.push(self.len(), label);
        self.push(interval);
    }

    /// The label of the interval at `index`, if it has one.
    pub fn label(&self, index: usize) -> Option<Sym> {
        self.label.get(index)
    }

    /// Number of intervals.
    pub fn len(&self) -> usize {
        self.start_ns.len()
    }

    /// Whether there is no interval.
    pub fn is_empty(&self) -> bool {
        self.start_ns.is_empty()
    }

    /// The interval at `index`, `None` past the end.
    pub fn get(&self, index: usize) -> Option<Compute> {
        Some(Compute {
            name: self.name.get(index)?,
            start_ns: *self.start_ns.get(index)?,
            end_ns: *self.end_ns.get(index)?,
            step: self.step.get(index),
        })
    }

    /// All intervals, in record order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Compute> + '_ {
        self.start_ns.iter().zip(&self.end_ns).enumerate().map(|(index, (&start_ns, &end_ns))| Compute {
            name: self.name.get(index).unwrap_or(Sym::FIRST),
            start_ns,
            end_ns,
            step: self.step.get(index),
        })
    }

    /// All intervals with their labels, in record order.
    pub fn iter_labelled(&self) -> impl ExactSizeIterator<Item = (Compute, Option<Sym>)> + '_ {
        self.iter().enumerate().map(|(index, interval)| (interval, self.label(index)))
    }

    /// Starts, in record order.
    pub fn starts_ns(&self) -> &[i64] {
        &self.start_ns
    }

    /// Ends, in record order.
    pub fn ends_ns(&self) -> &[i64] {
        &self.end_ns
    }

    /// Moves all instants by `by_ns`, saturating.
    #[cfg(feature = "import")]
    pub(crate) fn shift(&mut self, by_ns: i64) {
        shift(&mut self.start_ns, by_ns);
        shift(&mut self.end_ns, by_ns);
    }

    /// Gives back memory that was set aside for more intervals.
    pub(crate) fn shrink(&mut self) {
        [&mut self.name, &mut self.label].into_iter().for_each(Narrow::shrink);
        [&mut self.start_ns, &mut self.end_ns].into_iter().for_each(Vec::shrink_to_fit);
        self.step.shrink();
    }

    /// Replaces the symbols by those of another table.
    pub(crate) fn rename(&mut self, name: impl Fn(Sym) -> Sym) {
        [&mut self.name, &mut self.label].into_iter().for_each(|column| column.replace(&name));
    }
}

/// One communication interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comm {
    /// The collective or point-to-point operation, for example `all_reduce`.
    pub op: Sym,
    /// First instant.
    pub start_ns: i64,
    /// End (exclusive). May precede `start_ns` in a broken input; the duration is 0 then.
    pub end_ns: i64,
    /// Payload in bytes as nccl-tests counts it; `None` if the input does not say.
    pub bytes: Option<u64>,
    /// Communicator (process group).
    pub comm: Option<Sym>,
    /// Number of the collective within its communicator.
    pub seq: Option<u64>,
    /// Number of ranks in the communicator.
    pub comm_size: Option<u32>,
    /// The rank's number inside the communicator.
    pub comm_rank: Option<u32>,
    /// Stream that it ran on.
    pub stream: Option<Sym>,
    /// Element type.
    pub dtype: Option<Sym>,
    /// The other side of a point-to-point call, or the root of a rooted collective.
    pub peer: Option<u32>,
    /// The algorithm that ran, for example `ring`, if the input tells.
    pub algorithm: Option<Sym>,
    /// The protocol that it ran with, for example `ll128`, if the input tells.
    pub protocol: Option<Sym>,
    /// The step that was current when the call was made.
    pub step: Option<i64>,
}

impl Comm {
    /// An interval of `op` with nothing else known.
    pub fn new(op: Sym, start_ns: i64, end_ns: i64) -> Self {
        Self {
            op,
            start_ns,
            end_ns,
            bytes: None,
            comm: None,
            seq: None,
            comm_size: None,
            comm_rank: None,
            stream: None,
            dtype: None,
            peer: None,
            algorithm: None,
            protocol: None,
            step: None,
        }
    }
}

/// Communication intervals in record order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommColumns {
    op: Narrow<Sym>,
    start_ns: Vec<i64>,
    end_ns: Vec<i64>,
    bytes: Narrow<u64>,
    comm: Narrow<Sym>,
    seq: Narrow<u64>,
    comm_size: Narrow<u32>,
    comm_rank: Narrow<u32>,
    stream: Narrow<Sym>,
    dtype: Narrow<Sym>,
    peer: Narrow<u32>,
    algorithm: Narrow<Sym>,
    protocol: Narrow<Sym>,
    step: Narrow<i64>,
    exchanges: Exchanges,
}

impl CommColumns {
    /// Appends an interval of which may be known how it spreads over the ranks of its communicator.
    pub fn push_exchange(&mut self, interval: Comm, exchange: Option<Exchange<'_>>) {
        if let Some(exchange) = exchange {
            self.exchanges.push(self.len(), exchange);
        }
        self.push(interval);
    }

    /// How the interval at `index` spreads over the ranks of its communicator, if that is known.
    pub fn exchange(&self, index: usize) -> Option<Exchange<'_>> {
        self.exchanges.get(index)
    }

    /// Whether that is known of any interval.
    pub fn has_exchanges(&self) -> bool {
        !self.exchanges.is_empty()
    }

    /// All intervals with how they spread over ranks, in record order.
    pub fn iter_exchanges(&self) -> impl ExactSizeIterator<Item = (Comm, Option<Exchange<'_>>)> + '_ {
        self.iter().enumerate().map(|(index, interval)| (interval, self.exchange(index)))
    }

    /// Appends an interval.
    pub fn push(&mut self, interval: Comm) {
        let row = self.len();
        self.op.push(row, Some(interval.op));
        self.start_ns.push(interval.start_ns);
        self.end_ns.push(interval.end_ns);
        self.bytes.push(row, interval.bytes);
        self.comm.push(row, interval.comm);
        self.seq.push(row, interval.seq);
        self.comm_size.push(row, interval.comm_size);
        self.comm_rank.push(row, interval.comm_rank);
        self.stream.push(row, interval.stream);
        self.dtype.push(row, interval.dtype);
        self.peer.push(row, interval.peer);
        self.algorithm.push(row, interval.algorithm);
        self.protocol.push(row, interval.protocol);
        self.step.push(row, interval.step);
    }

    /// Number of intervals.
    pub fn len(&self) -> usize {
        self.start_ns.len()
    }

    /// Whether there is no interval.
    pub fn is_empty(&self) -> bool {
        self.start_ns.is_empty()
    }

    /// The interval at `index`, `None` past the end.
    #[inline(always)]
    pub fn get(&self, index: usize) -> Option<Comm> {
        (index < self.len()).then(|| self.at(index))
    }

    /// All intervals, in record order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Comm> + '_ {
        (0..self.len()).map(|index| self.at(index))
    }

    /// Starts, in record order.
    pub fn starts_ns(&self) -> &[i64] {
        &self.start_ns
    }

    /// Ends, in record order.
    pub fn ends_ns(&self) -> &[i64] {
        &self.end_ns
    }

    /// Moves all instants by `by_ns`, saturating.
    #[cfg(feature = "import")]
    pub(crate) fn shift(&mut self, by_ns: i64) {
        shift(&mut self.start_ns, by_ns);
        shift(&mut self.end_ns, by_ns);
    }

    /// Gives back memory that was set aside for more intervals.
    pub(crate) fn shrink(&mut self) {
        [&mut self.start_ns, &mut self.end_ns].into_iter().for_each(Vec::shrink_to_fit);
        let syms = [&mut self.op, &mut self.comm, &mut self.stream, &mut self.dtype];
        syms.into_iter().chain([&mut self.algorithm, &mut self.protocol]).for_each(Narrow::shrink);
        [&mut self.comm_size, &mut self.comm_rank, &mut self.peer].into_iter().for_each(Narrow::shrink);
        [&mut self.bytes, &mut self.seq].into_iter().for_each(Narrow::shrink);
        self.step.shrink();
        self.exchanges.shrink();
    }

    /// Replaces the symbols by those of another table, those of communicators by `communicator`.
    pub(crate) fn rename(&mut self, name: impl Fn(Sym) -> Sym, communicator: impl Fn(Sym) -> Sym) {
        let syms = [&mut self.op, &mut self.stream, &mut self.dtype, &mut self.algorithm, &mut self.protocol];
        syms.into_iter().for_each(|column| column.replace(&name));
        self.comm.replace(communicator);
    }

    // Inlined, so that columns that the caller has no use for are not read.
    #[inline(always)]
    fn at(&self, index: usize) -> Comm {
        Comm {
            op: self.op.get(index).unwrap_or(Sym::FIRST),
            start_ns: self.start_ns[index],
            end_ns: self.end_ns[index],
            bytes: self.bytes.get(index),
            comm: self.comm.get(index),
            seq: self.seq.get(index),
            comm_size: self.comm_size.get(index),
            comm_rank: self.comm_rank.get(index),
            stream: self.stream.get(index),
            dtype: self.dtype.get(index),
            peer: self.peer.get(index),
            algorithm: self.algorithm.get(index),
            protocol: self.protocol.get(index),
            step: self.step.get(index),
        }
    }
}

#[cfg(feature = "import")]
fn shift(instants: &mut [i64], by_ns: i64) {
    instants.iter_mut().for_each(|instant| *instant = instant.saturating_add(by_ns));
}
