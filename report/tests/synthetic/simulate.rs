//! Plays a job: every rank runs until it has to wait, and the last one to arrive completes a call.

use super::clocks::{Clock, RUN_START_NS, clocks};
use super::layout::{Group, Layout};
use super::program::{Item, step, transfer_ns};
use super::random::Random;
use super::sink::{Call, Sink};
use super::truth::Truth;
use super::{Fault, JobSpec};
use std::collections::{HashMap, VecDeque};

/// A rank's calls run on two lanes, each one after the other: what it waits for, and what runs beside.
const BLOCKING: usize = 0;
const BESIDE: usize = 1;

/// Who meets in a call: a collective by its number, a point-to-point call by source, destination and count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Meeting {
    Collective { comm: usize, seq: u64 },
    PointToPoint { comm: usize, from: u32, to: u32, count: u64 },
}

#[derive(Debug, Clone, Copy)]
struct Pending {
    meeting: Meeting,
    /// How many ranks have to come.
    size: usize,
    call: Call,
    issued_ns: i64,
    step: i64,
    hangs: bool,
}

#[derive(Debug, Clone, Copy)]
struct Arrival {
    rank: u32,
    lane: usize,
    start_ns: i64,
    hangs: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Waiting { lane: usize },
    Ended { regularly: bool },
}

struct Rank {
    state: State,
    now_ns: i64,
    step: i64,
    step_start_ns: i64,
    /// Position in the program.
    at: usize,
    lanes: [VecDeque<Pending>; 2],
    free_ns: [i64; 2],
    /// Collectives so far per group.
    seqs: [u64; 4],
    /// Point-to-point calls so far per source and destination.
    calls: HashMap<(u32, u32), u64>,
    /// Which of the job's faults have made it skip a collective.
    skipped: Vec<usize>,
    compute: Random,
    ends: Random,
}

struct Simulation<'a, S> {
    spec: &'a JobSpec,
    layout: Layout,
    programs: Vec<Vec<Item>>,
    clocks: Vec<Clock>,
    ranks: Vec<Rank>,
    meetings: HashMap<Meeting, Vec<Arrival>>,
    complete: Vec<Meeting>,
    runnable: VecDeque<u32>,
    truth: Truth,
    sink: &'a mut S,
}

pub fn simulate<S: Sink>(spec: &JobSpec, sink: &mut S) -> Truth {
    let layout = Layout::new(spec);
    let clocks = clocks(spec);
    let world = 0..spec.world_size();
    sink.begin(spec, &layout, &clocks);
    let mut simulation = Simulation {
        programs: world.clone().map(|rank| step(spec, &layout, rank)).collect(),
        ranks: world.clone().map(|rank| Rank::new(spec, rank)).collect(),
        truth: Truth::new(spec, &clocks),
        meetings: HashMap::new(),
        complete: Vec::new(),
        runnable: world.collect(),
        layout,
        clocks,
        spec,
        sink,
    };
    while let Some(rank) = simulation.runnable.pop_front() {
        simulation.run(rank);
        while let Some(meeting) = simulation.complete.pop() {
            simulation.finish(meeting);
        }
    }
    simulation.end()
}

impl Rank {
    fn new(spec: &JobSpec, rank: u32) -> Self {
        Self {
            state: State::Running,
            now_ns: RUN_START_NS,
            step: 0,
            step_start_ns: RUN_START_NS,
            at: 0,
            lanes: [VecDeque::new(), VecDeque::new()],
            free_ns: [RUN_START_NS; 2],
            seqs: [0; 4],
            calls: HashMap::new(),
            skipped: Vec::new(),
            compute: Random::new(spec.seed, 2 << 32 | u64::from(rank)),
            ends: Random::new(spec.seed, 3 << 32 | u64::from(rank)),
        }
    }
}

impl<S: Sink> Simulation<'_, S> {
    /// Runs a rank until it waits or ends.
    fn run(&mut self, number: u32) {
        let index = number as usize;
        while self.ranks[index].state == State::Running {
            let at = self.ranks[index].at;
            let Some(&item) = self.programs[index].get(at) else {
                self.next_step(number);
                continue;
            };
            if at == self.programs[index].len() / 2 && self.is_killed(number) {
                self.kill(number);
                return;
            }
            self.ranks[index].at += 1;
            match item {
                Item::Compute { span, ns, once } => self.compute(number, span, ns, once),
                Item::Collective { group, op, bytes, beside } => {
                    self.collective(number, group, op, bytes, beside);
                }
                Item::PointToPoint { op, peer, bytes } => self.point_to_point(number, op, peer, bytes),
                Item::Join => self.wait(number, BESIDE),
            }
        }
    }

    fn is_killed(&self, number: u32) -> bool {
        let here = (number, self.ranks[number as usize].step);
        let hits = |fault: &Fault| matches!(*fault, Fault::Killed { rank, step } if (rank, step) == here);
        self.spec.faults.iter().any(hits)
    }

    fn kill(&mut self, number: u32) {
        let rank = &mut self.ranks[number as usize];
        rank.state = State::Ended { regularly: false };
        // What it had begun never completes.
        for pending in rank.lanes.iter().filter_map(VecDeque::front) {
            let arrivals = self.meetings.get_mut(&pending.meeting).into_iter().flatten();
            arrivals.for_each(|arrival| arrival.hangs = true);
        }
    }

    fn next_step(&mut self, number: u32) {
        let local = self.local(number);
        let rank = &mut self.ranks[number as usize];
        let (start, end) = (local.local_ns(rank.step_start_ns), local.local_ns(rank.now_ns));
        self.sink.step(number, rank.step, start, end);
        rank.step += 1;
        rank.step_start_ns = rank.now_ns;
        rank.at = 0;
        if rank.step >= self.spec.steps {
            rank.state = State::Ended { regularly: true };
        }
    }

    fn compute(&mut self, number: u32, span: &'static str, ns: i64, once: bool) {
        let clock = self.local(number);
        let rank = &mut self.ranks[number as usize];
        let factor = (1.0 + self.spec.compute_jitter * rank.compute.normal()).max(0.1);
        let mut took_ns = (ns as f64 * self.spec.compute_scale * factor) as i64;
        if once {
            let stragglers = self.spec.stragglers.iter();
            took_ns += stragglers.map(|one| one.extra_ns(number, span, rank.step)).sum::<i64>();
        }
        let start_ns = rank.now_ns;
        rank.now_ns += took_ns;
        let (start, end) = (clock.local_ns(start_ns), clock.local_ns(rank.now_ns));
        self.sink.compute(number, span, start, end, rank.step);
        self.truth.events += 1;
    }

    fn collective(&mut self, number: u32, group: Group, op: &'static str, bytes: u64, beside: bool) {
        let Some((comm, comm_rank)) = self.layout.of(number, group) else { return };
        let rank = &mut self.ranks[number as usize];
        let seq = rank.seqs[group as usize];
        let (mut op, mut bytes, mut hangs) = (op, bytes, false);
        let here = (number, group, seq);
        for (index, fault) in self.spec.faults.iter().enumerate() {
            match *fault {
                // Once: the next collective carries the number that this one would have had.
                Fault::Skips { rank: who, group, seq }
                    if (who, group, seq) == here && !rank.skipped.contains(&index) =>
                {
                    rank.skipped.push(index);
                    return;
                }
                Fault::Leaves { rank: who, group, seq } if (who, group, seq) == here => {
                    rank.state = State::Ended { regularly: true };
                    return;
                }
                Fault::Disagrees { rank: who, group, seq, op: other, bytes: others, hangs: stuck }
                    if (who, group, seq) == here =>
                {
                    op = other.unwrap_or(op);
                    bytes = others.unwrap_or(bytes);
                    hangs = stuck;
                }
                _ => {}
            }
        }
        rank.seqs[group as usize] += 1;
        let size = self.layout.communicators[comm].members.len();
        let call = Call {
            op,
            comm,
            comm_size: size as u32,
            comm_rank,
            seq: Some(seq),
            peer: None,
            bytes,
            stream: if beside { "beside" } else { "main" },
        };
        let lane = if beside { BESIDE } else { BLOCKING };
        self.enter(number, lane, Meeting::Collective { comm, seq }, size, call, hangs);
    }

    fn point_to_point(&mut self, number: u32, op: &'static str, peer: u32, bytes: u64) {
        let Some((comm, comm_rank)) = self.layout.of(number, Group::Pipeline) else { return };
        let (from, to) = if op == "send" { (comm_rank, peer) } else { (peer, comm_rank) };
        let next = self.ranks[number as usize].calls.entry((from, to)).or_default();
        let count = *next;
        *next += 1;
        let call = Call {
            op,
            comm,
            comm_size: self.layout.communicators[comm].members.len() as u32,
            comm_rank,
            seq: None,
            peer: Some(peer),
            bytes,
            stream: "main",
        };
        self.enter(number, BLOCKING, Meeting::PointToPoint { comm, from, to, count }, 2, call, false);
    }

    fn enter(&mut self, number: u32, lane: usize, meeting: Meeting, size: usize, call: Call, hangs: bool) {
        let rank = &mut self.ranks[number as usize];
        let pending = Pending { meeting, size, call, issued_ns: rank.now_ns, step: rank.step, hangs };
        rank.lanes[lane].push_back(pending);
        if rank.lanes[lane].len() == 1 {
            self.arrive(number, lane);
        }
        if lane == BLOCKING {
            self.wait(number, lane);
        }
    }

    /// The first call of a lane begins.
    fn arrive(&mut self, number: u32, lane: usize) {
        let rank = &self.ranks[number as usize];
        let Some(first) = rank.lanes[lane].front() else { return };
        let start_ns = first.issued_ns.max(rank.free_ns[lane]);
        let arrivals = self.meetings.entry(first.meeting).or_default();
        arrivals.push(Arrival { rank: number, lane, start_ns, hangs: first.hangs });
        if arrivals.len() == first.size && !arrivals.iter().any(|arrival| arrival.hangs) {
            self.complete.push(first.meeting);
        }
    }

    fn wait(&mut self, number: u32, lane: usize) {
        let rank = &mut self.ranks[number as usize];
        if rank.lanes[lane].is_empty() {
            rank.now_ns = rank.now_ns.max(rank.free_ns[lane]);
        } else {
            rank.state = State::Waiting { lane };
        }
    }

    /// All have come: the call ends everywhere.
    fn finish(&mut self, meeting: Meeting) {
        let Some(arrivals) = self.meetings.remove(&meeting) else { return };
        let Some(last_ns) = arrivals.iter().map(|arrival| arrival.start_ns).max() else { return };
        let mut members = Vec::with_capacity(arrivals.len());
        let mut op = "";
        for &Arrival { rank: number, lane, start_ns, .. } in &arrivals {
            let clock = self.local(number);
            let rank = &mut self.ranks[number as usize];
            let Some(done) = rank.lanes[lane].pop_front() else { continue };
            let mut late_ns = self.spec.end_noise_ns * rank.ends.normal().abs();
            if rank.ends.unit() < self.spec.outlier_share {
                late_ns += self.spec.outlier_ns * rank.ends.exponential();
            }
            let end_ns = last_ns + transfer_ns(done.call.bytes) + late_ns as i64;
            rank.free_ns[lane] = end_ns;
            let (start, end) = (clock.local_ns(start_ns), clock.local_ns(end_ns));
            self.sink.comm(number, &done.call, start, end, done.step);
            self.truth.events += 1;
            members.push((number, start_ns, end_ns));
            op = done.call.op;
            if rank.lanes[lane].is_empty() && rank.state == (State::Waiting { lane }) {
                rank.now_ns = rank.now_ns.max(end_ns);
                rank.state = State::Running;
                self.runnable.push_back(number);
            }
            self.arrive(number, lane);
        }
        if matches!(meeting, Meeting::Collective { .. }) {
            self.truth.add(op, &members);
        }
    }

    /// Writes what is open, and the ends of those that ended regularly.
    fn end(mut self) -> Truth {
        for number in 0..self.spec.world_size() {
            let clock = self.local(number);
            let rank = &self.ranks[number as usize];
            for (lane, free_ns) in rank.lanes.iter().zip(rank.free_ns) {
                for (position, pending) in lane.iter().enumerate() {
                    // Only the first has begun; the others were issued.
                    let start_ns =
                        if position == 0 { pending.issued_ns.max(free_ns) } else { pending.issued_ns };
                    self.sink.open(number, &pending.call, clock.local_ns(start_ns), pending.step);
                }
            }
            let regularly = rank.state == (State::Ended { regularly: true });
            if matches!(rank.state, State::Waiting { .. }) {
                self.truth.hanging.push(number);
            }
            self.sink.end(number, regularly);
        }
        self.truth
    }

    fn local(&self, rank: u32) -> Clock {
        self.clocks[self.spec.host(rank) as usize]
    }
}
