//! Messages between two ranks: which side waited for the other.

use super::arrivals::{Arrivals, Timed};
use super::interval::duration_ns;
use super::matching::{ChannelKind, Matching, is_point_to_point};
use super::{PeerWaits, PointToPoint};
use crate::timeline::Sym;

/// Pairs of ranks that are listed.
const LISTED: usize = 20;

/// Messages from one rank to another.
#[derive(Debug, Clone, Copy)]
struct Sums {
    comm: Sym,
    source: u32,
    destination: u32,
    matched: u64,
    bytes: Option<u64>,
    late_sender_ns: u128,
    late_receiver_ns: u128,
    /// Whether the clocks of both are tied together.
    comparable: bool,
}

impl Sums {
    fn of(comm: Sym, source: u32, destination: u32) -> Self {
        Self {
            comm,
            source,
            destination,
            matched: 0,
            bytes: Some(0),
            late_sender_ns: 0,
            late_receiver_ns: 0,
            comparable: true,
        }
    }

    fn add(&mut self, other: &Self) {
        self.matched += other.matched;
        self.bytes = self.bytes.zip(other.bytes).map(|(sum, bytes)| sum.saturating_add(bytes));
        self.late_sender_ns += other.late_sender_ns;
        self.late_receiver_ns += other.late_receiver_ns;
        self.comparable &= other.comparable;
    }

    fn lost_ns(&self) -> u128 {
        self.late_sender_ns + self.late_receiver_ns
    }
}

/// The messages of `matching`; `None` if there is no point-to-point call. Times are given only where the two
/// ranks' clocks are tied together, and only of what these can tell.
///
/// Late sender and late receiver are the patterns of Scalasca (M. Geimer and others, A scalable tool
/// architecture for diagnosing wait states in massively parallel applications, Parallel Computing 35,
/// 2009).
pub(super) fn point_to_point(matching: &Matching<'_>) -> Option<PointToPoint> {
    let names = matching.names();
    let mut unmatched_events: u64 = matching
        .not_numbered()
        .iter()
        .filter(|(op, _)| is_point_to_point(names.get(**op)))
        .map(|(_, left)| left.events)
        .sum();
    let mut pairs: Vec<Sums> = Vec::new();
    let mut times = Arrivals::default();
    for group in matching.groups() {
        let ChannelKind::Messages { source, destination } = group.channel.kind else { continue };
        let Some(parts) = matching.message(&group) else {
            unmatched_events += group.parts.len() as u64;
            continue;
        };
        matching.arrivals_ns(&[parts.0, parts.1], &mut times);
        let &[send, receive] = &times.known[..] else { continue };
        let clocks = matching.clocks();
        let (sender, receiver) = (clocks.of(parts.0.track), clocks.of(parts.1.track));
        let bytes = [parts.0, parts.1].into_iter().find_map(|part| matching.event(part)?.bytes);
        let waited =
            |own: Timed, other: Timed| duration_ns(own.start_ns, own.end_ns.min(other.start_ns)).into();
        let one = Sums {
            matched: 1,
            bytes,
            late_sender_ns: waited(receive, send),
            late_receiver_ns: waited(send, receive),
            comparable: clocks.alignment().between_ns(sender, receiver).is_some(),
            ..Sums::of(group.channel.comm, source, destination)
        };
        // Groups come channel by channel.
        match pairs.last_mut() {
            Some(last) if (last.comm, last.source, last.destination) == (one.comm, source, destination) => {
                last.add(&one);
            }
            _ => pairs.push(one),
        }
    }
    if pairs.is_empty() && unmatched_events == 0 {
        return None;
    }
    let Some(first) = pairs.first() else {
        return Some(PointToPoint { unmatched_events, ..PointToPoint::default() });
    };
    let mut total = Sums::of(first.comm, 0, 0);
    pairs.iter().for_each(|pair| total.add(pair));
    let ms = |sums: &Sums, ns: u128| sums.comparable.then(|| super::ms_from_ns(ns));
    pairs.sort_by_key(|pair| (std::cmp::Reverse(pair.lost_ns()), pair.source, pair.destination));
    let worst = pairs
        .iter()
        .take(LISTED)
        .map(|pair| PeerWaits {
            comm: names.get(pair.comm).to_owned(),
            source: pair.source,
            destination: pair.destination,
            matched: pair.matched,
            bytes: pair.bytes,
            late_sender_ms: ms(pair, pair.late_sender_ns),
            late_receiver_ms: ms(pair, pair.late_receiver_ns),
        })
        .collect();
    Some(PointToPoint {
        matched: total.matched,
        unmatched_events,
        bytes: total.bytes,
        late_sender_ms: ms(&total, total.late_sender_ns),
        late_receiver_ms: ms(&total, total.late_receiver_ns),
        worst,
    })
}
