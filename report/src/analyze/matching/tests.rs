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
        let mut timeline = Timeline::default();
        timeline.tracks = (0..count).map(|rank| Track::new(rank, None)).collect();
        Self { timeline }
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
