//! Tracks of devices: kernels, with what is known of the collectives among them.

use super::call::{Call, HostEvent};
use super::collect::{Collector, CommEvent, Device, Kernel, Launch, Times};
use super::plausible::Plausible;
use crate::classify::{Class, HostLayer, Op, OpName, payload_bytes};
use crate::timeline::{Comm, Compute, MatchKind, Names, Step, Sym, Track};
use indexmap::IndexMap;
use std::collections::HashMap;

/// The rule under which kernels are compute.
pub(in crate::read) const OTHER_KERNELS: &str = "other kernels";

/// Kernels that are compute although their names suggest communication, listed at most.
const HINTS: usize = 5;

/// The tracks of a trace with kernels, in order of device. `rank` is the file's, if it says.
pub(super) fn tracks(collector: &mut Collector, rank: Option<u32>, warnings: &mut Vec<String>) -> Vec<Track> {
    let mut devices = std::mem::take(&mut collector.devices);
    devices.sort_unstable_keys();
    let starts = devices.values().flat_map(|device| {
        let compute = device.compute.iter().map(|kernel| kernel.times.start_ns);
        compute.chain(device.comm.iter().map(|kernel| kernel.times.start_ns))
    });
    let plausible = Plausible::around(starts.collect());
    let mut dropped = 0;
    for device in devices.values_mut() {
        let before = device.compute.len() + device.comm.len();
        device.compute.retain(|kernel| plausible.contains(kernel.times));
        device.comm.retain(|kernel| plausible.contains(kernel.times));
        dropped += before - device.compute.len() - device.comm.len();
    }
    collector.skip_all("implausible_time", dropped as u64);
    let mut steps = std::mem::take(&mut collector.steps);
    if steps.is_empty() {
        steps = projected(std::mem::take(&mut collector.device_steps));
    }
    let before = steps.len();
    steps.retain(|step| plausible.contains(Times { start_ns: step.start_ns, end_ns: step.end_ns }));
    collector.skip_all("implausible_time", (before - steps.len()) as u64);
    steps.sort_by_key(|step| (step.start_ns, step.end_ns));

    let same_time = devices.values().map(same_time).sum();
    collector.anomaly("same_time_on_stream", same_time);

    let launches = Launches::new(std::mem::take(&mut collector.launches), &steps);
    let calls = Calls::new(std::mem::take(&mut collector.calls));
    let mut hints: HashMap<Sym, (u64, u64)> = HashMap::new();
    let mut tracks = Vec::new();
    for (number, device) in devices {
        let mut track = Track::new(0, number);
        let Device { compute, comm } = device;
        for kernel in compute {
            let length = kernel.times.length_ns();
            collector.rules.add(OTHER_KERNELS, MatchKind::Compute, None, length);
            if let Some(Class::Compute { hint: true }) = collector.class(kernel.name) {
                let (events, time) = hints.entry(kernel.name).or_default();
                *events += 1;
                *time += length;
            }
            let Kernel { name, times, correlation, .. } = kernel;
            let step = launches.step(correlation);
            track.compute.push(Compute { name, start_ns: times.start_ns, end_ns: times.end_ns, step });
        }
        for event in comm {
            let comm = resolve(collector, &event, &calls, &launches, rank);
            track.comm.push(comm);
        }
        track.steps.clone_from(&steps);
        tracks.push(track);
    }
    warn_of_hints(hints, &collector.names, warnings);
    tracks
}

/// Steps by their projections onto streams: from the first start to the last end of each.
fn projected(projections: Vec<Step>) -> Vec<Step> {
    let mut steps: IndexMap<i64, Step> = IndexMap::new();
    for projection in projections {
        let step = steps.entry(projection.step).or_insert(projection);
        step.start_ns = step.start_ns.min(projection.start_ns);
        step.end_ns = step.end_ns.max(projection.end_ns);
    }
    steps.into_values().collect()
}

/// Events of one stream that claim to start at the same time, beyond the first.
fn same_time(device: &Device) -> u64 {
    let compute = device.compute.iter().map(|kernel| (kernel.stream, kernel.times.start_ns));
    let comm = device.comm.iter().map(|kernel| (kernel.stream, kernel.times.start_ns));
    let mut starts: Vec<(Option<Sym>, i64)> = compute.chain(comm).collect();
    starts.sort_unstable();
    starts.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64
}

/// Names kernels that count as compute although their names suggest communication: per name their number and
/// time in nanoseconds.
pub(in crate::read) fn warn_of_hints(
    hints: HashMap<Sym, (u64, u64)>,
    names: &Names,
    warnings: &mut Vec<String>,
) {
    let mut hints: Vec<(Sym, (u64, u64))> = hints.into_iter().collect();
    hints.sort_by_key(|&(name, (_, time))| (std::cmp::Reverse(time), name));
    if hints.is_empty() {
        return;
    }
    let listed: Vec<String> = hints
        .iter()
        .take(HINTS)
        .map(|&(name, (events, time))| {
            let short: String = names.get(name).chars().take(80).collect();
            format!("{short} ({events} events, {} ms)", time as f64 / 1e6)
        })
        .collect();
    let more = hints.len().saturating_sub(HINTS);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    warnings.push(format!(
        "Counted as compute although their names suggest communication: {}{more}. If they are, name them \
         with --comm-pattern.",
        listed.join(", ")
    ));
}

/// A communication kernel with all that its arguments, its name and its launch tell, in this order.
fn resolve(
    collector: &mut Collector,
    event: &CommEvent,
    calls: &Calls,
    launches: &Launches<'_>,
    rank: Option<u32>,
) -> Comm {
    let mut call = event.call;
    let by_name = match event.kernel.op {
        OpName::Known(op) => Some(op).filter(|&op| op != Op::Unknown),
        OpName::Pattern(_) => None,
    };
    let mut host_op = None;
    if !call.has_details() || (call.op.is_none() && by_name.is_none()) {
        let found = calls.of(event, launches.find(event.correlation));
        if let Some(found) = found.filter(|found| agree(call.op.or(by_name), found.op)) {
            host_op = found.op;
            call = Call { op: call.op, ..found };
        }
    }
    let op = match event.kernel.op {
        // What a user calls a kernel stands above what anyone else calls it.
        OpName::Pattern(_) => None,
        OpName::Known(_) => Some(call.op.or(by_name).or(host_op).unwrap_or(Op::Unknown)),
    };
    let name = match op {
        Some(op) => op.as_str(),
        None => collector.classifier.op_name(event.kernel.op),
    };
    let name = name.to_owned();
    let rule = collector.classifier.rule(event.kernel);
    collector.rules.add(rule, MatchKind::Comm, Some(&name), event.times.length_ns());

    let ranks = call.group.and_then(|group| collector.groups.get(&group));
    let members = ranks.and_then(|ranks| u32::try_from(ranks.len()).ok());
    let position = |rank| ranks?.iter().position(|&member| member == rank);
    let comm_rank = rank.and_then(position).and_then(|position| u32::try_from(position).ok());
    let size = call.size.or(members);
    // Bytes follow from what was called: a send/receive kernel may be an all-to-all.
    let called = call.op.or(host_op).or(op).unwrap_or(Op::Unknown);
    let dtype = call.dtype.or(event.kernel.nccl.and_then(|nccl| nccl.dtype));
    let bytes =
        call.dtype.and_then(|dtype| payload_bytes(called, call.sent, call.received, dtype.size, size));
    let peer = match op {
        Some(Op::Send) => call.destination,
        Some(Op::Recv) => call.source,
        _ => None,
    };
    let nccl = event.kernel.nccl;
    let names = &mut collector.names;
    Comm {
        bytes,
        comm: call.group,
        seq: call.seq,
        comm_size: size,
        comm_rank,
        stream: event.stream,
        dtype: dtype.map(|dtype| names.intern(dtype.name)),
        peer,
        algorithm: nccl.and_then(|nccl| nccl.algorithm).map(|algorithm| names.intern(algorithm)),
        protocol: nccl.and_then(|nccl| nccl.protocol).map(|protocol| names.intern(protocol)),
        step: launches.step(event.correlation),
        ..Comm::new(names.intern(&name), event.times.start_ns, event.times.end_ns)
    }
}

/// Whether a kernel that does `kernel` can have been launched by a call of `host`.
pub(in crate::read) fn agree(kernel: Option<Op>, host: Option<Op>) -> bool {
    match (kernel, host) {
        (None, _) | (_, None) => true,
        (Some(Op::SendRecv), Some(host)) => {
            matches!(host, Op::SendRecv | Op::Send | Op::Recv | Op::AllToAll | Op::AllToAllV)
        }
        // A barrier is an all-reduce of one element.
        (Some(Op::AllReduce), Some(host)) => matches!(host, Op::AllReduce | Op::Barrier),
        (Some(kernel), Some(host)) => kernel == host,
    }
}

/// The calls that launched kernels, by correlation.
struct Launches<'a> {
    sorted: Vec<Launch>,
    steps: &'a [Step],
}

impl<'a> Launches<'a> {
    fn new(mut launches: Vec<Launch>, steps: &'a [Step]) -> Self {
        launches.sort_by_key(|launch| launch.correlation);
        Self { sorted: launches, steps }
    }

    fn find(&self, correlation: u64) -> Option<&Launch> {
        if correlation == 0 {
            return None;
        }
        let at = self.sorted.partition_point(|launch| launch.correlation < correlation);
        self.sorted.get(at).filter(|launch| launch.correlation == correlation)
    }

    /// The step in which a kernel was launched.
    fn step(&self, correlation: u64) -> Option<i64> {
        if self.steps.is_empty() {
            return None;
        }
        let at = self.find(correlation)?.start_ns;
        let begun = self.steps.partition_point(|step| step.start_ns <= at);
        let last = self.steps.get(begun.checked_sub(1)?)?;
        (at < last.end_ns).then_some(last.step)
    }
}

/// The host's calls of collectives.
struct Calls {
    /// By thread and start.
    sorted: Vec<HostEvent>,
    by_id: HashMap<u64, usize>,
}

impl Calls {
    fn new(mut calls: Vec<HostEvent>) -> Self {
        // What names something else, such as `wait`, launches nothing.
        calls.retain(|call| !call.call.other);
        calls.sort_by_key(|call| (call.thread, call.times.start_ns, std::cmp::Reverse(call.times.end_ns)));
        let by_id =
            calls.iter().enumerate().filter_map(|(index, call)| Some((call.external_id?, index))).collect();
        Self { sorted: calls, by_id }
    }

    /// The call that a kernel comes from: by PyTorch's number, else by the launch within it.
    fn of(&self, event: &CommEvent, launch: Option<&Launch>) -> Option<Call> {
        let numbered = event.external_id.and_then(|id| self.sorted.get(*self.by_id.get(&id)?));
        let (thread, at) = match (numbered, launch) {
            (Some(call), _) => (call.thread, call.times.start_ns),
            (None, Some(launch)) => (launch.thread, launch.start_ns),
            (None, None) => return None,
        };
        self.around(thread, at)
    }

    /// What the calls of `thread` around `at` say together, the innermost first: one of them has the
    /// arguments, another one the name.
    fn around(&self, thread: Sym, at: i64) -> Option<Call> {
        // Calls nest a few deep; what began longer ago has ended.
        const NESTED: usize = 8;
        let begun = self.sorted.partition_point(|call| (call.thread, call.times.start_ns) <= (thread, at));
        let mut found: Option<Call> = None;
        let before = self.sorted.get(..begun)?.iter().rev().take(NESTED);
        for outer in before.filter(|call| call.thread == thread && at < call.times.end_ns) {
            let call = outer.call;
            found = Some(match found {
                None => call,
                Some(inner) if !inner.has_details() && call.has_details() => {
                    Call { op: inner.op.or(call.op), ..call }
                }
                Some(inner) => {
                    let better =
                        outer.layer == HostLayer::Record && call.group.is_some() && inner.group.is_none();
                    let details = if better { call } else { inner };
                    Call { op: inner.op.or(call.op), ..details }
                }
            });
        }
        found
    }
}
