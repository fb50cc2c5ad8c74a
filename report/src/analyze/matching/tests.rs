//! Grouping, beyond what the figures across ranks show.

use super::*;
use crate::analyze::AnalyzeOptions;
use crate::analyze::filter::select;
use crate::timeline::Track;

struct Job {
    timeline: Timeline,
}

impl Job {
    fn ranks(count: u32) -> Self {
        let tracks = (0..count).map(|rank| Track::new(rank, None)).collect();
        Self { timeline: Timeline { tracks, ..Timeline::default() } }
    }

    fn call(&mut self, rank: usize, op: &str, comm: &str, seq: u64) {
        let names = &mut self.timeline.names;
        let start_ns = self.timeline.tracks[rank].comm.len() as i64;
        let mut event = Comm::new(names.intern(op), start_ns, start_ns + 1);
        (event.comm, event.seq) = (Some(names.intern(comm)), Some(seq));
        self.timeline.tracks[rank].comm.push(event);
    }

    /// Per group: communicator, number, state and ranks.
    fn groups(&self) -> Vec<(String, u64, State, Vec<u32>)> {
        let selected = select(&self.timeline, &AnalyzeOptions::default());
        let matching = Matching::new(&self.timeline, &selected);
        let text = |sym| self.timeline.names.get(sym).to_owned();
        matching
            .groups()
            .map(|group| {
                let ranks = group.parts.iter().map(|part| matching.rank(part.track)).collect();
                (text(group.channel.comm), group.number, group.state, ranks)
            })
            .collect()
    }
}

#[test]
fn groups_come_by_channel_and_number_whatever_the_order_of_records() {
    let mut job = Job::ranks(2);
    for (rank, seqs) in [(0, [1, 0, u64::MAX - 1]), (1, [u64::MAX - 1, 0, 1])] {
        for seq in seqs {
            job.call(rank, "all_reduce", "dp", seq);
        }
    }
    job.call(0, "broadcast", "tp", 7);
    let both = vec![0, 1];
    assert_eq!(
        job.groups(),
        [
            ("dp".to_owned(), 0, State::Complete, both.clone()),
            ("dp".to_owned(), 1, State::Complete, both.clone()),
            ("dp".to_owned(), u64::MAX - 1, State::Complete, both),
            ("tp".to_owned(), 7, State::Alone, vec![0]),
        ]
    );
}

#[test]
fn a_rooted_op_under_a_synchronizing_ones_number_is_a_disagreement() {
    let mut job = Job::ranks(2);
    job.call(0, "all_reduce", "world", 0);
    job.call(1, "broadcast", "world", 0);
    assert_eq!(job.groups(), [("world".to_owned(), 0, State::Disagreement, vec![0, 1])]);
}

#[test]
fn nothing_gives_no_group() {
    assert!(Job::ranks(2).groups().is_empty());
}

/// A call with what matching looks at beside the times.
struct Loose {
    op: &'static str,
    bytes: u64,
    step: Option<i64>,
    peer: Option<u32>,
}

fn loose(op: &'static str, bytes: u64, step: Option<i64>) -> Loose {
    Loose { op, bytes, step, peer: None }
}

fn message(op: &'static str, peer: u32, bytes: u64, step: Option<i64>) -> Loose {
    Loose { op, bytes, step, peer: Some(peer) }
}

impl Job {
    /// A call without a number, after those before it.
    fn loose(&mut self, rank: usize, call: &Loose) {
        let names = &mut self.timeline.names;
        let start_ns = self.timeline.tracks[rank].comm.len() as i64;
        let mut event = Comm::new(names.intern(call.op), start_ns, start_ns + 1);
        event.comm = Some(names.intern("pg"));
        event.bytes = Some(call.bytes);
        (event.step, event.peer, event.comm_rank) = (call.step, call.peer, u32::try_from(rank).ok());
        self.timeline.tracks[rank].comm.push(event);
    }

    /// Matched groups as the rows of their parts, and the number of events that nothing numbers.
    fn matched(&self) -> (Vec<Vec<u32>>, u64) {
        let selected = select(&self.timeline, &AnalyzeOptions::default());
        let matching = Matching::new(&self.timeline, &selected);
        let rows = |group: Group<'_>| group.parts.iter().map(|part| part.row).collect();
        let matched = matching.groups().filter(|group| group.state.is_matched()).map(rows).collect();
        (matched, matching.not_numbered().values().map(|left| left.events).sum())
    }

    /// Makes all tracks those of traces, which may begin anywhere.
    fn traces(&mut self) {
        let input = crate::timeline::Input { format: "kineto".to_owned(), ..Default::default() };
        self.timeline.inputs.push(input);
    }
}

#[test]
fn calls_without_a_number_are_counted_where_all_ranks_have_the_same() {
    let mut job = Job::ranks(2);
    for rank in 0..2 {
        for bytes in [8, 16] {
            job.loose(rank, &loose("all_reduce", bytes, None));
        }
    }
    assert_eq!(job.matched(), (vec![vec![0, 0], vec![1, 1]], 0));
}

/// The n-th calls of traces that begin at different calls are different collectives, also if they look
/// alike here and there.
#[test]
fn calls_of_traces_that_begin_elsewhere_are_not_matched() {
    let mut job = Job::ranks(2);
    for bytes in [8, 16, 8, 32] {
        job.loose(0, &loose("all_reduce", bytes, None));
    }
    for bytes in [16, 8, 32, 8] {
        job.loose(1, &loose("all_reduce", bytes, None));
    }
    assert_eq!(job.matched(), (vec![], 8));
}

/// Steps tell which calls correspond although one trace begins a step earlier and lost a call.
#[test]
fn steps_that_agree_are_matched_and_those_that_do_not_are_left() {
    let mut job = Job::ranks(2);
    for (rank, steps) in [(0, 3..6), (1, 4..7)] {
        for step in steps {
            for bytes in [8, 8, 16] {
                if (rank, step, bytes) != (1, 5, 16) {
                    job.loose(rank, &loose("all_gather", bytes, Some(step)));
                }
            }
        }
    }
    // Step 4: the second of rank 0, the first of rank 1. Steps 3 and 6 have one rank, step 5 differs.
    assert_eq!(job.matched(), (vec![vec![3, 0], vec![4, 1], vec![5, 2]], 3 + 5 + 3));
}

#[test]
fn the_nth_send_meets_the_nth_receive_of_the_same_two_ranks() {
    let mut job = Job::ranks(3);
    job.loose(0, &message("send", 1, 8, None));
    job.loose(0, &message("send", 2, 16, None));
    job.loose(0, &message("send", 1, 24, None));
    job.loose(1, &message("recv", 0, 8, None));
    job.loose(1, &message("send", 0, 8, None));
    job.loose(1, &message("recv", 0, 24, None));
    job.loose(2, &message("recv", 0, 16, None));
    job.loose(2, &message("recv", 1, 16, None));
    // From 0 to 1 twice, and from 0 to 2; what 1 sent to 0 and 2 expects of 1 has one side.
    assert_eq!(job.matched(), (vec![vec![0, 0], vec![2, 2], vec![1, 0]], 0));
}

#[test]
fn a_peer_is_a_rank_of_the_communicator() {
    let mut job = Job::ranks(4);
    for (rank, own, call) in [(2, 0, message("send", 1, 8, None)), (3, 1, message("recv", 0, 8, None))] {
        job.loose(rank, &call);
        let mut event = job.timeline.tracks[rank].comm.get(0).unwrap();
        event.comm_rank = Some(own);
        job.timeline.tracks[rank].comm = Default::default();
        job.timeline.tracks[rank].comm.push(event);
    }
    assert_eq!(job.matched(), (vec![vec![0, 0]], 0));
    let selected = select(&job.timeline, &AnalyzeOptions::default());
    let matching = Matching::new(&job.timeline, &selected);
    let kinds: Vec<ChannelKind> = matching.channels().iter().map(|channel| channel.kind).collect();
    assert_eq!(kinds, [ChannelKind::Messages { source: 2, destination: 3 }]);
}

/// A record holds all calls from the first on, so an excess is at its end; a trace may lack the first.
#[test]
fn counts_that_differ_are_relied_upon_in_records_only() {
    let mut job = Job::ranks(2);
    for step in 0..3 {
        job.loose(0, &message("send", 1, 8, Some(step)));
        if step != 1 {
            job.loose(1, &message("recv", 0, 8, Some(step)));
        }
    }
    assert_eq!(job.matched(), (vec![vec![0, 0], vec![1, 1]], 0));
    job.traces();
    assert_eq!(job.matched(), (vec![vec![0, 0], vec![2, 1]], 1));
}

#[test]
fn messages_that_disagree_are_not_matched() {
    let mut job = Job::ranks(2);
    job.loose(0, &message("send", 1, 8, None));
    job.loose(1, &message("recv", 0, 9, None));
    assert_eq!(job.matched(), (vec![], 0));
}

#[test]
fn a_restarted_job_counts_anew_and_is_not_matched_across_its_starts() {
    use crate::timeline::ProcessRows;
    let mut job = Job::ranks(2);
    // Rank 0 lost the end of its first process, rank 1 the whole of it.
    for seq in [0, 1, 0, 1, 2] {
        job.call(0, "all_reduce", "world", seq);
    }
    for seq in 0..3 {
        job.call(1, "all_reduce", "world", seq);
    }
    let begin = |first, generation| ProcessRows { first, generation };
    job.timeline.tracks[0].processes = vec![begin(0, 0), begin(2, 1)];
    job.timeline.tracks[1].processes = vec![begin(0, 1)];
    assert_eq!(job.matched(), (vec![vec![2, 0], vec![3, 1], vec![4, 2]], 0));
}
