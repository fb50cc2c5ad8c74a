//! Whether the events under one number belong together.

use super::{Channel, ChannelKind, Matching, Part, State, bytes_may_differ};
use crate::timeline::Sym;

/// The op of the first part, and whether all parts are one collective or message.
pub(super) fn examine(
    matching: &Matching<'_>,
    channel: &Channel<'_>,
    parts: &[Part],
) -> Option<(Sym, State)> {
    let first = matching.event(*parts.first()?)?;
    let state = match channel.kind {
        ChannelKind::Collectives => collective(matching, channel, parts),
        ChannelKind::Messages { .. } => message(matching, parts),
    };
    Some((first.op, state))
}

fn collective(matching: &Matching<'_>, channel: &Channel<'_>, parts: &[Part]) -> State {
    let same_track = parts.windows(2).any(|pair| pair[0].track == pair[1].track);
    if same_track || parts.len() > channel.size {
        return State::Ambiguous;
    }
    let rank = parts.first().map(|part| matching.rank(part.track));
    if parts.iter().all(|part| Some(matching.rank(part.track)) == rank) {
        return State::Alone;
    }
    let mut events = parts.iter().filter_map(|&part| matching.event(part));
    let Some(first) = events.next() else { return State::Ambiguous };
    let bytes_may_differ = bytes_may_differ(matching.names().get(first.op));
    let (mut bytes, mut dtype) = (first.bytes, first.dtype);
    let mut reversed = first.end_ns < first.start_ns;
    for event in events {
        let same_bytes = bytes_may_differ || agree(&mut bytes, event.bytes);
        if event.op != first.op || !same_bytes || !agree(&mut dtype, event.dtype) {
            return State::Disagreement;
        }
        reversed |= event.end_ns < event.start_ns;
    }
    match reversed {
        true => State::EndBeforeStart,
        false if parts.len() == channel.size => State::Complete,
        false => State::Partial,
    }
}

fn message(matching: &Matching<'_>, parts: &[Part]) -> State {
    let &[one, other] = parts else {
        return if parts.len() == 1 { State::Alone } else { State::Ambiguous };
    };
    let (Some(one), Some(other)) = (matching.event(one), matching.event(other)) else {
        return State::Ambiguous;
    };
    let (mut bytes, mut dtype) = (one.bytes, one.dtype);
    if one.op == other.op {
        State::Ambiguous
    } else if !agree(&mut bytes, other.bytes) || !agree(&mut dtype, other.dtype) {
        State::Disagreement
    } else if one.end_ns < one.start_ns || other.end_ns < other.start_ns {
        State::EndBeforeStart
    } else {
        State::Complete
    }
}

/// Whether `value` contradicts nothing that is `known`; what was not known is from then on. What one rank
/// does not say does not contradict the others.
fn agree<T: PartialEq>(known: &mut Option<T>, value: Option<T>) -> bool {
    match (&known, value) {
        (_, None) => true,
        (None, value) => {
            *known = value;
            true
        }
        (Some(known), Some(value)) => *known == value,
    }
}
