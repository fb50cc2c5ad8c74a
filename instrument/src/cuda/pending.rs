//! The spans of one stream that wait for their events.
//!
//! Events of a stream happen in the order in which they were recorded, which is nearly the order in
//! which the spans arrive here, so it suffices to look at the first. Should an event never happen
//! although later ones have, it is set aside, so that it does not hold up the others.

use super::context::Pair;
use super::driver::{Code, NOT_READY, SUCCESS};
use super::shared::TracedStream;
use crate::spans::SpanWords;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the events time.
#[derive(Debug)]
pub(super) enum Work {
    Span(SpanWords),
    Group(Vec<SpanWords>),
}

impl Work {
    /// The spans, one or those of a group.
    pub fn spans(&self) -> &[SpanWords] {
        match self {
            Self::Span(words) => std::slice::from_ref(words),
            Self::Group(calls) => calls,
        }
    }
}

/// A span, or a group of calls, that waits for its events.
#[derive(Debug)]
pub(super) struct Waiting {
    pub work: Work,
    pub pair: Pair,
    /// Ticks when it was entered.
    pub entered: u64,
    pub thread: u32,
    /// When it arrived here.
    pub since: Instant,
    /// It was announced as being overdue.
    pub overdue: bool,
}

/// The spans of one stream that wait for their events.
#[derive(Debug)]
pub(super) struct Lane {
    pub stream: Arc<TracedStream>,
    waiting: VecDeque<Waiting>,
    /// Overtaken by later events of the stream.
    aside: Vec<Waiting>,
    aside_checked: Instant,
    probe: usize,
}

/// The first span may be this old before later ones are looked at.
const PATIENCE: Duration = Duration::from_millis(20);

/// How often those that were set aside are looked at.
const ASIDE_INTERVAL: Duration = Duration::from_millis(50);

impl Lane {
    pub fn new(stream: Arc<TracedStream>) -> Self {
        Self { stream, waiting: VecDeque::new(), aside: Vec::new(), aside_checked: Instant::now(), probe: 0 }
    }

    pub fn push(&mut self, waiting: Waiting) {
        self.waiting.push_back(waiting);
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.aside.is_empty()
    }

    /// All that waits.
    pub fn all(&self) -> impl Iterator<Item = &Waiting> {
        self.waiting.iter().chain(&self.aside)
    }

    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Waiting> {
        self.waiting.iter_mut().chain(&mut self.aside)
    }

    /// Takes out all that waits.
    pub fn take_all(&mut self) -> Vec<Waiting> {
        self.waiting.drain(..).chain(self.aside.drain(..)).collect()
    }

    /// Takes out what is done, where `query` says what became of an end event, and hands it to `done`
    /// with the driver's code if that was an error.
    pub fn poll(
        &mut self,
        now: Instant,
        mut query: impl FnMut(&Waiting) -> Code,
        mut done: impl FnMut(Waiting, Option<Code>),
    ) {
        self.poll_in_order(&mut query, &mut done);
        if self.waiting.front().is_some_and(|first| now.duration_since(first.since) > PATIENCE) {
            self.set_aside_if_overtaken(&mut query);
            self.poll_in_order(&mut query, &mut done);
        }
        if !self.aside.is_empty() && now.duration_since(self.aside_checked) >= ASIDE_INTERVAL {
            self.aside_checked = now;
            for waiting in std::mem::take(&mut self.aside) {
                match query(&waiting) {
                    NOT_READY => self.aside.push(waiting),
                    code => done(waiting, error(code)),
                }
            }
        }
    }

    fn poll_in_order(
        &mut self,
        query: &mut impl FnMut(&Waiting) -> Code,
        done: &mut impl FnMut(Waiting, Option<Code>),
    ) {
        while let Some(first) = self.waiting.front() {
            let code = query(first);
            if code == NOT_READY {
                return;
            }
            if let Some(first) = self.waiting.pop_front() {
                done(first, error(code));
            }
        }
    }

    /// Looks at one later event, another one each time. If it has happened, those before it that have
    /// not are set aside.
    fn set_aside_if_overtaken(&mut self, query: &mut impl FnMut(&Waiting) -> Code) {
        let later = self.waiting.len().saturating_sub(1);
        if later == 0 {
            return;
        }
        // The second, the last, and one in the middle, in turn.
        self.probe = (self.probe + 1) % 3;
        let probed = [1, later, later.div_ceil(2)][self.probe];
        if self.waiting.get(probed).is_none_or(|waiting| query(waiting) == NOT_READY) {
            return;
        }
        let rest = self.waiting.split_off(probed);
        for waiting in std::mem::replace(&mut self.waiting, rest).into_iter().rev() {
            if query(&waiting) == NOT_READY {
                self.aside.push(waiting);
            } else {
                self.waiting.push_front(waiting);
            }
        }
    }

    /// Sets one aside whose end event has happened and whose start event has not.
    pub fn set_aside(&mut self, waiting: Waiting) {
        self.aside.push(waiting);
    }
}

fn error(code: Code) -> Option<Code> {
    (code != SUCCESS).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::super::context::GpuContext;
    use super::super::registry::{KnownStream, Owner};
    use super::*;
    use crate::spans::SpanFields;
    use std::collections::HashSet;

    fn lane(count: u32, since: Instant) -> Lane {
        let known = KnownStream {
            id: 0,
            handle: 0,
            context: 0,
            device: 0,
            owner: Owner::Caller,
            label: "default".into(),
            is_of_thread: false,
        };
        let context = Arc::new(GpuContext::new(0, 0, 0));
        let mut lane = Lane::new(Arc::new(TracedStream { known: Arc::new(known), context, label: 0 }));
        for end in 0..count {
            lane.push(Waiting {
                work: Work::Span(SpanWords::pack(&SpanFields::new(0))),
                pair: Pair { start: end, end },
                entered: 0,
                thread: 0,
                since,
                overdue: false,
            });
        }
        lane
    }

    fn poll(lane: &mut Lane, now: Instant, ready: &HashSet<u32>) -> Vec<u32> {
        let mut seen = Vec::new();
        lane.poll(
            now,
            |waiting| if ready.contains(&waiting.pair.end) { SUCCESS } else { NOT_READY },
            |waiting, _| seen.push(waiting.pair.end),
        );
        seen
    }

    #[test]
    fn spans_come_out_in_the_order_of_their_stream() {
        let now = Instant::now();
        let mut lane = lane(5, now);
        assert_eq!(poll(&mut lane, now, &HashSet::from([0, 1])), [0, 1]);
        assert!(poll(&mut lane, now, &HashSet::from([3])).is_empty());
        assert_eq!(poll(&mut lane, now, &HashSet::from([2, 3, 4])), [2, 3, 4]);
        assert!(lane.is_empty());
    }

    #[test]
    fn an_event_that_never_happens_does_not_hold_up_those_behind_it() {
        let start = Instant::now();
        let mut lane = lane(200, start);
        let ready: HashSet<u32> = (0..200).filter(|end| ![0, 50, 51, 52].contains(end)).collect();
        let mut seen = Vec::new();
        for round in 1..200 {
            seen.extend(poll(&mut lane, start + Duration::from_millis(30 * round), &ready));
        }
        seen.sort_unstable();
        assert_eq!(seen.len(), ready.len());
        let left: HashSet<u32> = lane.all().map(|waiting| waiting.pair.end).collect();
        assert_eq!(left, HashSet::from([0, 50, 51, 52]));
        // It happens after all.
        let late = poll(&mut lane, start + Duration::from_secs(60), &HashSet::from([50]));
        assert_eq!(late, [50]);
    }

    #[test]
    fn an_error_is_handed_on() {
        let now = Instant::now();
        let mut lane = lane(2, now);
        let mut seen = Vec::new();
        lane.poll(now, |_| 700, |waiting, code| seen.push((waiting.pair.end, code)));
        assert_eq!(seen, [(0, Some(700)), (1, Some(700))]);
    }
}
