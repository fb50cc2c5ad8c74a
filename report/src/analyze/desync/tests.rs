//! Small jobs with a planted fault, each worked out by hand. Times are seconds of one clock.

use super::{Desync, DesyncKind, DesyncOptions, RunVerdict, Surroundings, desynchronizations, diagnose};
use crate::timeline::{Comm, Input, Open, Process, Seen, Sym, Timeline, Track};

const SECOND: i64 = 1_000_000_000;
/// The clock began to count this long before the run.
const BOOT: i64 = 1_000 * SECOND;
const UNIX: i64 = 1_750_000_000 * SECOND;

/// A job whose ranks record on one host.
struct Job {
    timeline: Timeline,
}

impl Job {
    /// `size` ranks that are known to have run until second `seen`, without an end.
    fn hung(size: u32, seen: i64) -> Self {
        let mut timeline = Timeline { world_size: Some(size), ..Timeline::default() };
        let clock = timeline.names.intern("boot");
        let world = timeline.names.intern("world");
        timeline.communicators.insert(world, (0..size).collect());
        for rank in 0..size {
            timeline.tracks.push(Track { clock: Some(clock), ..Track::new(rank, None) });
            timeline.inputs.push(Input {
                format: "commtrace-record".to_owned(),
                rank: Some(rank),
                ended: Some(false),
                seen: Some(Seen { at_ns: BOOT + seen * SECOND, open_after_ns: SECOND }),
                process: Some(Process {
                    host: "node0".to_owned(),
                    boot_id: "boot".to_owned(),
                    pid: 100 + rank,
                    start_unix_ns: UNIX,
                    start_ns: BOOT,
                }),
                ..Input::default()
            });
        }
        Self { timeline }
    }

    /// `size` ranks that ended regularly at second `end`.
    fn ended(size: u32, end: i64) -> Self {
        let mut job = Self::hung(size, end);
        for rank in 0..size {
            job.ends(rank, end);
        }
        job
    }

    fn ends(&mut self, rank: u32, end: i64) {
        let input = &mut self.timeline.inputs[rank as usize];
        input.ended = Some(true);
        input.seen = Some(Seen { at_ns: BOOT + end * SECOND, open_after_ns: 0 });
    }

    fn seen(&mut self, rank: u32, seen: i64) {
        self.timeline.inputs[rank as usize].seen =
            Some(Seen { at_ns: BOOT + seen * SECOND, open_after_ns: SECOND });
    }

    fn group(&mut self, name: &str, ranks: &[u32]) -> Sym {
        let name = self.timeline.names.intern(name);
        self.timeline.communicators.insert(name, ranks.to_vec());
        name
    }

    fn event(&mut self, rank: u32, comm: &str, op: &str, seq: Option<u64>) -> Comm {
        let name = self.timeline.names.intern(comm);
        let members = &self.timeline.communicators[&name];
        let comm_size = u32::try_from(members.len()).ok();
        let comm_rank = members.iter().position(|&member| member == rank).map(|at| at as u32);
        Comm {
            comm: Some(name),
            seq,
            bytes: Some(4096),
            comm_size,
            comm_rank,
            ..Comm::new(self.timeline.names.intern(op), 0, 0)
        }
    }

    /// A call from second `start` to `end`.
    fn call(&mut self, rank: u32, comm: &str, seq: u64, start: i64, end: i64) {
        self.call_as(rank, comm, "all_reduce", seq, start, end);
    }

    fn call_as(&mut self, rank: u32, comm: &str, op: &str, seq: u64, start: i64, end: i64) {
        let event = self.event(rank, comm, op, Some(seq));
        let (start_ns, end_ns) = (BOOT + start * SECOND, BOOT + end * SECOND);
        self.timeline.tracks[rank as usize].comm.push(Comm { start_ns, end_ns, ..event });
    }

    /// A call from second `start` on.
    fn hangs(&mut self, rank: u32, comm: &str, seq: u64, start: i64) {
        self.hangs_as(rank, comm, "all_reduce", seq, start);
    }

    fn hangs_as(&mut self, rank: u32, comm: &str, op: &str, seq: u64, start: i64) {
        let event = self.event(rank, comm, op, Some(seq));
        self.open(rank, &event, start);
    }

    fn open(&mut self, rank: u32, event: &Comm, start: i64) {
        self.timeline.tracks[rank as usize].open.push(Open {
            name: event.op,
            start_ns: Some(BOOT + start * SECOND),
            bytes: event.bytes,
            comm: event.comm,
            seq: event.seq,
            comm_size: event.comm_size,
            comm_rank: event.comm_rank,
            peer: event.peer,
            dtype: event.dtype,
            step: None,
        });
    }

    fn found(&self) -> Vec<Desync> {
        desynchronizations(&self.timeline, &DesyncOptions::default())
    }
}

type Told<'a> = (DesyncKind, Option<&'a str>, Option<u64>, &'a [u32]);

fn told(found: &[Desync]) -> Vec<Told<'_>> {
    found.iter().map(|one| (one.kind, one.comm.as_deref(), one.seq, one.ranks.as_slice())).collect()
}

#[test]
fn the_rank_that_did_not_enter_is_named_with_what_and_since_when() {
    let mut job = Job::hung(4, 60);
    for rank in 0..4 {
        job.call(rank, "world", 0, 1, 2);
    }
    for rank in [0, 1, 3] {
        job.hangs(rank, "world", 1, 20 + i64::from(rank));
    }
    let found = job.found();
    assert_eq!(told(&found), [(DesyncKind::Missing, Some("world"), Some(1), &[2][..])]);
    let one = &found[0];
    assert_eq!((one.op.as_deref(), one.bytes, one.comm_size), (Some("all_reduce"), Some(4096), Some(4)));
    assert_eq!(one.comm_ranks, [Some(2)]);
    // The first instant of the run is second 1, and rank 0 entered at second 20.
    assert_eq!((one.since_ms, one.waited_ms), (Some(19_000.0), Some(40_000.0)));
    assert_eq!(one.since_unix_ms, Some((UNIX / SECOND + 20) as f64 * 1e3));
    assert_eq!((one.entered.as_slice(), one.waiting.as_slice()), (&[0, 1, 3][..], &[0, 1, 3][..]));
    assert_eq!(one.missing, [2]);
    assert!(one.weakened.is_empty(), "{:?}", one.weakened);
}

#[test]
fn a_job_in_full_run_is_not_out_of_step() {
    let mut job = Job::hung(4, 20);
    for seq in 0..5 {
        for rank in 0..4 {
            job.call(rank, "world", seq, 3 * seq as i64, 3 * seq as i64 + 2);
        }
    }
    // Two have entered the next, for two seconds so far, as long as every call takes.
    job.hangs(0, "world", 5, 18);
    job.hangs(1, "world", 5, 18);
    assert_eq!(told(&job.found()), []);
    // The same is a hang once it takes longer than calls do.
    (0..4).for_each(|rank| job.seen(rank, 30));
    assert_eq!(told(&job.found()), [(DesyncKind::Missing, Some("world"), Some(5), &[2, 3][..])]);
}

#[test]
fn calls_that_take_long_are_given_three_times_as_long() {
    for (seen, hangs) in [(100 + 59, false), (100 + 61, true)] {
        let mut job = Job::hung(2, seen);
        (0..2).for_each(|rank| job.call(rank, "world", 0, 0, 20));
        job.hangs(0, "world", 1, 100);
        assert_eq!(!job.found().is_empty(), hangs, "{seen}");
    }
}

#[test]
fn one_rank_that_calls_what_no_other_does_is_the_few() {
    let mut job = Job::hung(4, 60);
    (0..4).for_each(|rank| job.call(rank, "world", 0, 1, 2));
    job.hangs(1, "world", 1, 20);
    let found = job.found();
    assert_eq!(told(&found), [(DesyncKind::Extra, Some("world"), Some(1), &[1][..])]);
    assert_eq!(found[0].missing, [0, 2, 3]);
}

#[test]
fn who_left_for_good_is_missing_however_short_the_others_wait() {
    let mut job = Job::hung(3, 11);
    (0..3).for_each(|rank| job.call(rank, "world", 0, 1, 2));
    job.hangs(0, "world", 1, 10);
    job.hangs(2, "world", 1, 10);
    job.ends(1, 5);
    let found = job.found();
    assert_eq!(found[0].kind, DesyncKind::Missing);
    assert_eq!((found[0].ranks.as_slice(), found[0].weakened.len()), (&[1][..], 0));
}

#[test]
fn after_a_regular_end_different_numbers_of_calls_are_told() {
    let mut job = Job::ended(3, 60);
    for rank in 0..3 {
        for seq in 0..=u64::from(rank != 1) {
            job.call_as(rank, "world", "broadcast", seq, 1, 2);
        }
    }
    assert_eq!(told(&job.found()), [(DesyncKind::Missing, Some("world"), Some(1), &[1][..])]);
}

/// What completed was entered by all: a record that stops a batch earlier is no desynchronization.
#[test]
fn records_that_were_cut_at_different_batches_are_in_step() {
    let mut job = Job::hung(4, 20);
    for rank in 0..4 {
        job.seen(rank, 10 + i64::from(rank));
        for seq in 0..10 + u64::from(rank) {
            job.call(rank, "world", seq, seq as i64, seq as i64 + 1);
        }
    }
    assert_eq!(told(&job.found()), []);
}

#[test]
fn a_rank_that_was_killed_is_named_beside_those_that_wait_for_it() {
    let mut job = Job::hung(4, 100);
    for rank in 0..4 {
        job.call(rank, "world", 0, 1, 2);
        if rank != 2 {
            job.hangs(rank, "world", 1, 4);
        }
    }
    // Its last batch is older than the entry of the others.
    job.seen(2, 3);
    let found = job.found();
    assert_eq!(
        told(&found),
        [
            (DesyncKind::Missing, Some("world"), Some(1), &[2][..]),
            (DesyncKind::Stopped, None, None, &[2][..])
        ]
    );
    assert!(found[0].weakened[0].contains("breaks off"), "{:?}", found[0].weakened);
    assert!(found[1].weakened.is_empty(), "silent for more than a minute: {:?}", found[1].weakened);
    assert_eq!(found[1].since_ms, Some(2_000.0));
}

#[test]
fn without_any_call_a_rank_that_was_killed_is_named_too() {
    let mut job = Job::ended(3, 60);
    job.timeline.inputs[1].ended = Some(false);
    job.seen(1, 50);
    let found = job.found();
    assert_eq!(told(&found), [(DesyncKind::Stopped, None, None, &[1][..])]);
    assert!(found[0].weakened[0].contains("may still be running"));
}

/// What is known of processes decides where the records leave open whether one still runs.
#[test]
fn processes_that_run_or_are_gone_are_taken_at_their_word() {
    let mut job = Job::ended(3, 60);
    job.timeline.inputs[1].ended = Some(false);
    job.seen(1, 59);
    let diagnosis = |now: i64, runs: Option<bool>| {
        let runs = move |process: &Process| runs.filter(|_| process.pid == 101);
        let now_unix_ns = Some(UNIX + now * SECOND);
        diagnose(&job.timeline, &DesyncOptions::default(), &Surroundings { now_unix_ns, runs: Some(&runs) })
    };
    let running = diagnosis(61, Some(true));
    assert_eq!((running.verdict, told(&running.desync).len()), (RunVerdict::Running, 0));
    for (now, runs, weakened) in [(61, Some(false), 0), (61, None, 1), (600, None, 0)] {
        let stopped = diagnosis(now, runs);
        assert_eq!(stopped.verdict, RunVerdict::Stopped);
        assert_eq!(told(&stopped.desync), [(DesyncKind::Stopped, None, None, &[1][..])]);
        assert_eq!(stopped.desync[0].weakened.len(), weakened, "{now} {runs:?}");
        assert!(stopped.next[0].contains("node0"), "{:?}", stopped.next);
    }
    assert_eq!(diagnosis(70, None).ranks[1].silent_ms, Some(11_000.0));
}

#[test]
fn absence_is_weakened_by_what_the_record_lost() {
    let planted = |change: &dyn Fn(&mut Input)| {
        let mut job = Job::hung(3, 60);
        (0..3).for_each(|rank| job.call(rank, "world", 0, 1, 2));
        (0..2).for_each(|rank| job.hangs(rank, "world", 1, 20));
        change(&mut job.timeline.inputs[2]);
        let found = job.found();
        assert_eq!((found[0].kind, found[0].ranks.as_slice()), (DesyncKind::Missing, &[2][..]));
        found[0].weakened.join(" ")
    };
    assert_eq!(planted(&|_| ()), "");
    let drops = planted(&|input| input.dropped = 7);
    assert_eq!(drops, "Rank 2: 7 records were lost while recording.");
    let torn = planted(&|input| input.anomalies.extend([("torn_tail".to_owned(), 1)]));
    assert!(torn.contains("ends within a batch"), "{torn}");
    let steps = planted(&|input| input.selection.push("steps 10..20".to_owned()));
    assert!(steps.contains("only steps 10..20 were to be recorded"), "{steps}");
    let capped = planted(&|input| input.capped = Some(Default::default()));
    assert!(capped.contains("size limit"), "{capped}");
    let old = planted(&|input| input.seen = Some(Seen { at_ns: BOOT + 15 * SECOND, open_after_ns: SECOND }));
    assert!(old.contains("stops before the call, 46.0 s before"), "{old}");
}

#[test]
fn the_cause_comes_before_the_ranks_that_hang_behind_it() {
    // Two tensor groups of two, two data groups of two. Rank 3 does not enter its tensor group's call;
    // rank 2 waits there, and rank 0 waits for rank 2 in the data group.
    let mut job = Job::hung(4, 60);
    for (name, ranks) in [("dp0", [0, 2]), ("dp1", [1, 3]), ("tp0", [0, 1]), ("tp1", [2, 3])] {
        job.group(name, &ranks);
        ranks.into_iter().for_each(|rank| job.call(rank, name, 0, 1, 2));
    }
    job.hangs(0, "dp0", 1, 10);
    job.hangs(1, "dp1", 1, 11);
    job.hangs(2, "tp1", 1, 12);
    let found = job.found();
    assert_eq!(found[0].comm.as_deref(), Some("tp1"));
    assert_eq!((found[0].ranks.as_slice(), found[0].comm_ranks.as_slice()), (&[3][..], &[Some(1)][..]));
    let held = found.iter().find(|one| one.comm.as_deref() == Some("dp0")).unwrap();
    let by = held.blocked_by.as_ref().unwrap();
    assert_eq!((by.comm.as_deref(), by.seq, by.ranks.as_slice()), (Some("tp1"), Some(1), &[2][..]));
    assert!(found.iter().all(|one| !one.in_cycle));
    assert_eq!(found.len(), 3, "rank 3 is missing in dp1, too, and nothing holds it up: {found:?}");
}

#[test]
fn communicators_called_in_different_orders_are_a_cycle() {
    let mut job = Job::hung(2, 60);
    for name in ["a", "b"] {
        job.group(name, &[0, 1]);
        (0..2).for_each(|rank| job.call(rank, name, 0, 1, 2));
    }
    job.hangs(0, "a", 1, 10);
    job.hangs(1, "b", 1, 10);
    let found = job.found();
    assert_eq!(told(&found).len(), 2);
    assert!(found.iter().all(|one| one.in_cycle), "{found:?}");
}

#[test]
fn a_call_that_all_entered_and_that_does_not_end_is_stalled() {
    let mut job = Job::hung(3, 60);
    (0..3).for_each(|rank| job.hangs(rank, "world", 0, 10));
    let found = job.found();
    assert_eq!(told(&found), [(DesyncKind::Stalled, Some("world"), Some(0), &[][..])]);
    assert_eq!(found[0].entered, [0, 1, 2]);
    // If others have left it, those still in it are the few.
    let mut job = Job::hung(3, 60);
    (0..2).for_each(|rank| job.call(rank, "world", 0, 10, 11));
    job.hangs(2, "world", 0, 10);
    assert_eq!(told(&job.found()), [(DesyncKind::Stalled, Some("world"), Some(0), &[2][..])]);
}

#[test]
fn a_rank_held_in_an_older_call_is_why_it_misses_the_next() {
    let mut job = Job::hung(3, 60);
    (0..2).for_each(|rank| job.call(rank, "world", 0, 10, 11));
    (0..2).for_each(|rank| job.hangs(rank, "world", 1, 12));
    job.hangs(2, "world", 0, 10);
    let found = job.found();
    assert_eq!(
        told(&found),
        [
            (DesyncKind::Stalled, Some("world"), Some(0), &[2][..]),
            (DesyncKind::Missing, Some("world"), Some(1), &[2][..])
        ]
    );
    assert_eq!(found[1].blocked_by.as_ref().and_then(|by| by.seq), Some(0));
}

#[test]
fn ranks_that_hang_because_they_disagree_are_told_by_side() {
    let mut job = Job::hung(4, 60);
    for rank in 0..4 {
        job.hangs_as(rank, "world", if rank == 1 { "broadcast" } else { "all_reduce" }, 0, 10);
    }
    let found = job.found();
    assert_eq!(told(&found), [(DesyncKind::Op, Some("world"), Some(0), &[1][..])]);
    assert_eq!((found[0].op.as_deref(), found[0].waited_ms), (Some("all_reduce"), Some(50_000.0)));
    let sides: Vec<_> = found[0].sides.iter().map(|side| (side.op.as_str(), side.ranks.as_slice())).collect();
    assert_eq!(sides, [("all_reduce", &[0, 2, 3][..]), ("broadcast", &[1][..])]);

    for kind in [DesyncKind::Bytes, DesyncKind::Dtype] {
        let mut job = Job::hung(2, 60);
        for rank in 0..2 {
            let mut event = job.event(rank, "world", "all_reduce", Some(0));
            if kind == DesyncKind::Bytes {
                event.bytes = Some(100 + u64::from(rank));
            } else {
                event.dtype = Some(job.timeline.names.intern(["float32", "bfloat16"][rank as usize]));
            }
            job.open(rank, &event, 10);
        }
        let found = job.found();
        assert_eq!(told(&found), [(kind, Some("world"), Some(0), &[1][..])]);
        assert!(found[0].weakened[0].contains("No side is the larger"));
    }
}

/// Ranks of an all_to_all_v may move different amounts, and what is not recorded contradicts nothing.
#[test]
fn what_may_differ_is_no_disagreement() {
    let mut job = Job::hung(2, 60);
    for rank in 0..2 {
        let mut event = job.event(rank, "world", "all_to_all_v", Some(0));
        event.bytes = Some(100 + u64::from(rank));
        event.dtype = (rank == 0).then_some(event.op);
        job.open(rank, &event, 10);
    }
    assert_eq!(told(&job.found()), [(DesyncKind::Stalled, Some("world"), Some(0), &[][..])]);
}

#[test]
fn a_rank_without_a_record_is_missing_and_one_that_was_not_asked_for_is_not() {
    let job = |size: u32| {
        let mut job = Job::hung(size, 60);
        job.timeline.tracks.pop();
        job.timeline.inputs.pop();
        (0..size - 1).for_each(|rank| job.hangs(rank, "world", 0, 10));
        job
    };
    let found = job(3).found();
    assert_eq!(
        told(&found),
        [
            (DesyncKind::Missing, Some("world"), Some(0), &[2][..]),
            (DesyncKind::NoRecord, None, None, &[2][..])
        ]
    );
    assert!(found[0].weakened[0].contains("no record"), "{:?}", found[0].weakened);
    assert_eq!(found[0].comm_ranks, [Some(2)]);

    let job = job(3);
    let options = DesyncOptions { ranks: Some([0, 1].into()), ..DesyncOptions::default() };
    let found = desynchronizations(&job.timeline, &options);
    assert_eq!(told(&found), [(DesyncKind::Stalled, Some("world"), Some(0), &[][..])]);
    assert_eq!(found[0].not_read, [2]);
    assert!(found[0].weakened[0].contains("not read"));

    let mut job = job;
    job.timeline.inputs[0].selection.push("ranks 0,1".to_owned());
    assert!(job.found().iter().all(|one| one.kind == DesyncKind::Stalled));
}

#[test]
fn a_receive_without_a_send_names_who_should_have_sent() {
    let mut job = Job::hung(3, 60);
    let call = |job: &mut Job, rank: u32, op: &str, peer: u32, open: bool| {
        let event = Comm { peer: Some(peer), ..job.event(rank, "world", op, None) };
        if open {
            job.open(rank, &event, 10);
        } else {
            let (start_ns, end_ns) = (BOOT + SECOND, BOOT + 2 * SECOND);
            job.timeline.tracks[rank as usize].comm.push(Comm { start_ns, end_ns, ..event });
        }
    };
    call(&mut job, 0, "send", 1, false);
    call(&mut job, 1, "recv", 0, false);
    call(&mut job, 1, "recv", 0, true);
    let found = job.found();
    assert_eq!(told(&found), [(DesyncKind::RecvWithoutSend, Some("world"), None, &[0][..])]);
    assert_eq!((found[0].op.as_deref(), found[0].waiting.as_slice()), (Some("recv"), &[1][..]));
    // Once it is sent, the message is what does not arrive.
    call(&mut job, 0, "send", 1, true);
    assert_eq!(told(&job.found()), [(DesyncKind::Stalled, Some("world"), None, &[][..])]);
    // A send that returned is only missed at the regular end.
    let mut job = Job::ended(2, 60);
    call(&mut job, 0, "send", 1, false);
    assert_eq!(told(&job.found()), [(DesyncKind::SendWithoutRecv, Some("world"), None, &[1][..])]);
}

#[test]
fn a_profilers_window_says_nothing_about_who_is_missing() {
    let mut job = Job::hung(2, 60);
    for (rank, input) in job.timeline.inputs.iter_mut().enumerate() {
        *input = Input { format: "kineto".to_owned(), rank: Some(rank as u32), ..Input::default() };
    }
    job.call(0, "world", 7, 1, 2);
    job.call(1, "world", 8, 3, 4);
    assert_eq!(told(&job.found()), []);
}

/// Where the input says nothing about its end, a missing call is told, and weakened.
#[test]
fn a_timeline_of_unknown_end_is_judged_with_care() {
    let mut job = Job::hung(3, 60);
    job.timeline.inputs = vec![Input { format: "timeline-json".to_owned(), ..Input::default() }];
    (0..3).for_each(|rank| job.call(rank, "world", 0, 1, 2));
    (0..2).for_each(|rank| job.call(rank, "world", 1, 3, 4));
    let found = job.found();
    assert_eq!(told(&found), [(DesyncKind::Missing, Some("world"), Some(1), &[2][..])]);
    assert!(found[0].weakened[0].contains("does not say"), "{:?}", found[0].weakened);
}

/// Clocks of hosts that are only tied to the time of day, and such that are not tied at all.
#[test]
fn without_a_common_clock_absence_is_not_proven() {
    let mut job = Job::hung(2, 60);
    let other = job.timeline.names.intern("other");
    job.timeline.tracks[1].clock = Some(other);
    job.timeline.inputs[1].process = None;
    (0..2).for_each(|rank| job.call(rank, "world", 0, 1, 2));
    job.hangs(0, "world", 1, 20);
    let found = job.found();
    assert_eq!(told(&found), [(DesyncKind::Missing, Some("world"), Some(1), &[1][..])]);
    assert!(found[0].weakened[0].contains("clock"), "{:?}", found[0].weakened);
    assert_eq!(found[0].since_unix_ms, None);
}
