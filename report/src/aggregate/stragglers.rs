//! Who makes others wait, from collectives and spans as they come.

use super::collectives::Part;
use super::queue::Interval;
use super::track::TrackState;
use crate::analyze::{Ledger, RankWaits, SpanTimes, Straggler, block_of_time};
use crate::timeline::{Names, Sym};

/// What [`analyze`](crate::analyze::analyze) reads off the whole record, kept up to date.
#[derive(Debug, Default)]
pub(super) struct Stragglers {
    ledger: Ledger,
    /// Spans in steps, and those that belong to none.
    in_steps: SpanTimes,
    in_time: SpanTimes,
}

impl Stragglers {
    /// The last member of a collective has come; `parts` are all, by ascending track.
    pub fn observe(&mut self, comm: Sym, step: Option<i64>, parts: &[Part]) {
        let Some(last_ns) = parts.iter().map(|part| part.start_ns).max() else { return };
        let end_ns = parts.iter().map(|part| part.end_ns).max().unwrap_or(last_ns);
        let arrivals: Vec<_> = parts.iter().map(|part| part.arrival(last_ns)).collect();
        let rank = |track| parts.iter().find(|part| part.track() == track).map_or(0, |part| part.rank);
        self.ledger.observe((comm.index() as u32, 0), step, &arrivals, end_ns, rank);
    }

    /// All members have left it.
    pub fn close(&mut self, comm: Sym, parts: &[Part]) {
        self.ledger.close((comm.index() as u32, 0), parts.iter().map(Part::end).collect());
    }

    /// An interval ends; `track`, which it is of, has been moved on to that instant.
    pub fn add_span(&mut self, interval: &Interval, track: &TrackState) {
        let Some(span) = &interval.span else { return };
        let ns = track.span_ns(interval, span);
        match interval.step {
            Some(step) => self.in_steps.add(track.rank, span.name, span.label, step, ns),
            None => {
                let number = block_of_time(interval.start_ns);
                self.in_time.add(track.rank, span.name, span.label, number, ns);
            }
        }
    }

    /// The stragglers, worst first, and the sums of every rank.
    pub fn finish(self, names: &Names) -> (Vec<Straggler>, Vec<RankWaits>) {
        let spans = if self.ledger.knows_steps() { self.in_steps } else { self.in_time };
        self.ledger.judge().explain(spans, names)
    }
}
