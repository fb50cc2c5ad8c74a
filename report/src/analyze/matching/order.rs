//! Collectives without a number: counted in the order of each rank, where that can be relied upon.
//!
//! All ranks of a communicator call its collectives in the same order. But a trace may begin and end
//! anywhere, on each rank elsewhere, and may have lost events in between; then the n-th call of two ranks
//! are different ones. So the order counts only where all ranks tell the same story: within a step,
//! or over the whole trace where no steps are known, all ranks must have the same calls, equal in number,
//! ops, types and sizes. What differs stays without a number.

use super::{Part, Place, bytes_may_differ};
use crate::analyze::filter::Selected;
use crate::timeline::{Names, Sym};

/// A call, as far as all ranks of a collective must agree on it.
#[derive(Debug, Clone, Copy)]
struct Call {
    step: Option<i64>,
    start_ns: i64,
    place: Place,
    op: Sym,
    bytes: Option<u64>,
    dtype: Option<Sym>,
}

impl Call {
    /// What one rank does not say does not contradict the other.
    fn agrees(&self, other: &Self) -> bool {
        let same = |a: Option<u64>, b: Option<u64>| a.zip(b).is_none_or(|(a, b)| a == b);
        let same_dtype = self.dtype.zip(other.dtype).is_none_or(|(a, b)| a == b);
        self.op == other.op && same(self.bytes, other.bytes) && same_dtype
    }
}

/// Numbers the calls of one communicator; the second list holds those that cannot be numbered.
pub(super) fn number(
    places: Vec<Place>,
    selected: &[Selected<'_>],
    names: &Names,
) -> (Vec<Part>, Vec<Place>) {
    let mut calls: Vec<Call> = places.iter().filter_map(|&place| call(place, selected, names)).collect();
    if calls.iter().any(|call| call.step.is_none()) {
        calls.iter_mut().for_each(|call| call.step = None);
    }
    calls.sort_by_key(|call| (call.step, call.place.track, call.start_ns, call.place.row));
    let (mut parts, mut left) = (Vec::new(), Vec::new());
    let mut next = 0;
    for step in calls.chunk_by(|a, b| a.step == b.step) {
        let ranks: Vec<&[Call]> = step.chunk_by(|a, b| a.place.track == b.place.track).collect();
        let rank = |calls: &[Call]| Some(selected.get(calls.first()?.place.track as usize)?.track.rank);
        let several = ranks.windows(2).any(|pair| rank(pair[0]) != rank(pair[1]));
        let alike = ranks.windows(2).all(|pair| {
            pair[0].len() == pair[1].len() && pair[0].iter().zip(pair[1]).all(|(a, b)| a.agrees(b))
        });
        if !(several && alike) {
            left.extend(step.iter().map(|call| call.place));
            continue;
        }
        for calls in &ranks {
            let numbered = (next..).zip(*calls);
            parts.extend(numbered.map(|(number, call)| call.place.part(number)));
        }
        next += ranks.first().map_or(0, |calls| calls.len() as u64);
    }
    (parts, left)
}

fn call(place: Place, selected: &[Selected<'_>], names: &Names) -> Option<Call> {
    let one = selected.get(place.track as usize)?;
    let event = one.track.comm.get(place.row as usize)?;
    let bytes = event.bytes.filter(|_| !bytes_may_differ(names.get(event.op)));
    Some(Call {
        step: one.index.assign(event.step, event.start_ns),
        start_ns: event.start_ns,
        place,
        op: event.op,
        bytes,
        dtype: event.dtype,
    })
}
