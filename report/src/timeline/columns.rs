//! Column storage of a track: one vector per field, "none" stored as a value that cannot occur.

use super::Sym;
use super::exchange::{Exchange, Exchanges};
use super::sparse::Sparse;

const NO_SYM: u32 = super::sparse::NONE;
const NO_STEP: i64 = i64::MIN;
const NO_U64: u64 = u64::MAX;
const NO_U32: u32 = super::sparse::NONE;

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
    name: Vec<Sym>,
    label: Sparse,
    start_ns: Vec<i64>,
    end_ns: Vec<i64>,
    step: Vec<i64>,
}

impl ComputeColumns {
    /// Appends an interval.
    pub fn push(&mut self, interval: Compute) {
        self.name.push(interval.name);
        self.start_ns.push(interval.start_ns);
        self.end_ns.push(interval.end_ns);
        self.step.push(interval.step.unwrap_or(NO_STEP));
    }

    /// Appends an interval whose name has a label: a name made at run time, such as a layer's number.
    pub fn push_labelled(&mut self, interval: Compute, label: Option<Sym>) {
        self.label.push(self.len(), label.map_or(NO_SYM, Sym::raw));
        self.push(interval);
    }

    /// The label of the interval at `index`, if it has one.
    pub fn label(&self, index: usize) -> Option<Sym> {
        Sym::from_raw(self.label.get(index))
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
            name: *self.name.get(index)?,
            start_ns: self.start_ns[index],
            end_ns: self.end_ns[index],
            step: some_unless(self.step[index], NO_STEP),
        })
    }

    /// All intervals, in record order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Compute> + '_ {
        (0..self.len()).map(|index| Compute {
            name: self.name[index],
            start_ns: self.start_ns[index],
            end_ns: self.end_ns[index],
            step: some_unless(self.step[index], NO_STEP),
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
        self.name.shrink_to_fit();
        self.label.shrink();
        self.start_ns.shrink_to_fit();
        self.end_ns.shrink_to_fit();
        self.step.shrink_to_fit();
    }

    /// Replaces the symbols by those of another table.
    pub(crate) fn rename(&mut self, name: impl Fn(Sym) -> Sym) {
        self.name.iter_mut().for_each(|sym| *sym = name(*sym));
        for raw in self.label.values_mut() {
            *raw = Sym::from_raw(*raw).map_or(NO_SYM, |sym| name(sym).raw());
        }
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
    op: Vec<Sym>,
    start_ns: Vec<i64>,
    end_ns: Vec<i64>,
    bytes: Vec<u64>,
    comm: Vec<u32>,
    seq: Vec<u64>,
    comm_size: Vec<u32>,
    comm_rank: Vec<u32>,
    stream: Vec<u32>,
    dtype: Sparse,
    peer: Sparse,
    algorithm: Sparse,
    protocol: Sparse,
    step: Vec<i64>,
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
        self.op.push(interval.op);
        self.start_ns.push(interval.start_ns);
        self.end_ns.push(interval.end_ns);
        self.bytes.push(interval.bytes.unwrap_or(NO_U64));
        self.comm.push(interval.comm.map_or(NO_SYM, Sym::raw));
        self.seq.push(interval.seq.unwrap_or(NO_U64));
        self.comm_size.push(interval.comm_size.unwrap_or(NO_U32));
        self.comm_rank.push(interval.comm_rank.unwrap_or(NO_U32));
        self.stream.push(interval.stream.map_or(NO_SYM, Sym::raw));
        self.dtype.push(row, interval.dtype.map_or(NO_SYM, Sym::raw));
        self.peer.push(row, interval.peer.unwrap_or(NO_U32));
        self.algorithm.push(row, interval.algorithm.map_or(NO_SYM, Sym::raw));
        self.protocol.push(row, interval.protocol.map_or(NO_SYM, Sym::raw));
        self.step.push(interval.step.unwrap_or(NO_STEP));
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
    #[inline]
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
        self.op.shrink_to_fit();
        let times = [&mut self.start_ns, &mut self.end_ns, &mut self.step];
        times.into_iter().for_each(Vec::shrink_to_fit);
        [&mut self.bytes, &mut self.seq].into_iter().for_each(Vec::shrink_to_fit);
        let small = [&mut self.comm, &mut self.comm_size, &mut self.comm_rank, &mut self.stream];
        small.into_iter().for_each(Vec::shrink_to_fit);
        let sparse = [&mut self.dtype, &mut self.peer, &mut self.algorithm, &mut self.protocol];
        sparse.into_iter().for_each(Sparse::shrink);
        self.exchanges.shrink();
    }

    /// Replaces the symbols by those of another table, those of communicators by `communicator`.
    pub(crate) fn rename(&mut self, name: impl Fn(Sym) -> Sym, communicator: impl Fn(Sym) -> Sym) {
        self.op.iter_mut().for_each(|sym| *sym = name(*sym));
        let sparse = [&mut self.dtype, &mut self.algorithm, &mut self.protocol];
        for raw in self.stream.iter_mut().chain(sparse.into_iter().flat_map(Sparse::values_mut)) {
            *raw = Sym::from_raw(*raw).map_or(NO_SYM, |sym| name(sym).raw());
        }
        for raw in &mut self.comm {
            *raw = Sym::from_raw(*raw).map_or(NO_SYM, |sym| communicator(sym).raw());
        }
    }

    // Inlined, so that columns that the caller has no use for are not read.
    #[inline(always)]
    fn at(&self, index: usize) -> Comm {
        Comm {
            op: self.op[index],
            start_ns: self.start_ns[index],
            end_ns: self.end_ns[index],
            bytes: some_unless(self.bytes[index], NO_U64),
            comm: Sym::from_raw(self.comm[index]),
            seq: some_unless(self.seq[index], NO_U64),
            comm_size: some_unless(self.comm_size[index], NO_U32),
            comm_rank: some_unless(self.comm_rank[index], NO_U32),
            stream: Sym::from_raw(self.stream[index]),
            dtype: Sym::from_raw(self.dtype.get(index)),
            peer: some_unless(self.peer.get(index), NO_U32),
            algorithm: Sym::from_raw(self.algorithm.get(index)),
            protocol: Sym::from_raw(self.protocol.get(index)),
            step: some_unless(self.step[index], NO_STEP),
        }
    }
}

#[cfg(feature = "import")]
fn shift(instants: &mut [i64], by_ns: i64) {
    instants.iter_mut().for_each(|instant| *instant = instant.saturating_add(by_ns));
}

fn some_unless<T: PartialEq>(value: T, none: T) -> Option<T> {
    (value != none).then_some(value)
}
