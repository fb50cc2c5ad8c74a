//! What of a timeline a format has no place for.

use crate::timeline::{Comm, Timeline, Track};
use std::collections::BTreeMap;

/// A format that a timeline can be written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// Record files.
    Records,
    /// Timeline JSON.
    TimelineJson,
    /// Chrome trace format.
    Chrome,
}

/// What is not in `timeline` written as `target`, each a whole sentence; empty if everything is.
pub fn left_out(timeline: &Timeline, target: Target) -> Vec<String> {
    let mut said = Vec::new();
    let mut say = |count: u64, one: &str, many: &str, what: &str| {
        if count > 0 {
            said.push(format!("{count} {} left out: {what}.", if count == 1 { one } else { many }));
        }
    };
    let sum = |count: fn(&Track) -> usize| timeline.tracks.iter().map(count).sum::<usize>() as u64;
    let calls = timeline.tracks.iter().flat_map(|track| track.comm.iter());
    let chosen =
        calls.filter(|comm: &Comm| comm.algorithm.is_some() || comm.protocol.is_some()).count() as u64;
    match target {
        Target::Records => {
            say(
                chosen,
                "call has its algorithm",
                "calls have their algorithm",
                "records have no column for it",
            );
            said.extend(merged(timeline));
        }
        Target::TimelineJson | Target::Chrome => {
            let format = if target == Target::Chrome { "a Chrome trace" } else { "timeline JSON" };
            let needs = format!("{format} needs a start and an end");
            say(
                sum(|track| track.unplaced.len()),
                "call without a place in time is",
                "calls without a place in time are",
                &needs,
            );
            say(
                sum(|track| track.open.len()),
                "call that never ended is",
                "calls that never ended are",
                &needs,
            );
            let untimed = timeline.tracks.iter().map(|track| track.untimed.count).sum();
            say(untimed, "record without a time is", "records without a time are", &needs);
            if target == Target::TimelineJson {
                say(
                    chosen,
                    "call has its algorithm",
                    "calls have their algorithm",
                    "timeline JSON has no key for it",
                );
            }
        }
    }
    said
}

/// What tracks of one rank have in common in a record file and not in the timeline.
fn merged(timeline: &Timeline) -> Vec<String> {
    let mut ranks: BTreeMap<u32, Vec<&Track>> = BTreeMap::new();
    for track in &timeline.tracks {
        ranks.entry(track.rank).or_default().push(track);
    }
    let mut said = Vec::new();
    for (rank, tracks) in ranks {
        let devices = tracks.iter().filter(|track| track.device.is_some()).count();
        if devices == 1 && tracks.len() > 1 {
            said.push(format!(
                "Rank {rank} has intervals of its host beside those of its only device; record files join them."
            ));
        }
        let differ = |differ: fn(&Track, &Track) -> bool| tracks.windows(2).any(|two| differ(two[0], two[1]));
        if differ(|a, b| a.clock != b.clock) {
            said.push(format!("Rank {rank} was timed by several clocks; its record file has one."));
        }
        if differ(|a, b| !a.steps.is_empty() && !b.steps.is_empty() && a.steps != b.steps) {
            said.push(format!(
                "Rank {rank} has other steps on each device; in its record file they are the rank's."
            ));
        }
    }
    said
}
