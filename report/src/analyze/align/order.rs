//! Messages as a check of the fit.

use super::Alignment;
use std::collections::BTreeMap;

/// Pairs of clocks that are told apart, at most.
const MAX_PAIRS: usize = 1 << 16;

/// From this share of wrong messages between two clocks on, it is the clocks and not the messages.
const DOUBTFUL: f64 = 0.05;

/// Checks that no message arrives before it was sent.
#[derive(Debug, Clone, Default)]
pub struct OrderCheck {
    pairs: BTreeMap<(u32, u32), Pair>,
    report: OrderReport,
}

#[derive(Debug, Clone, Copy, Default)]
struct Pair {
    checked: u64,
    wrong: u64,
    /// Sum of what is missing.
    early_ns: f64,
}

/// What the messages say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OrderReport {
    /// Messages between clocks that are tied together.
    pub checked: u64,
    /// Of these, those that end before they were sent by more than the clocks are uncertain.
    pub wrong: u64,
    /// By how much the worst of them does.
    pub worst_ns: u64,
    /// Pairs of clocks, in order, whose uncertainty was widened for it.
    pub widened: u64,
}

impl OrderCheck {
    /// Adds a message: the clock and local start of the send, the clock and local end of its receive.
    pub fn add(&mut self, alignment: &Alignment, send: (u32, i64), receive: (u32, i64)) {
        let Some(uncertainty) = alignment.between_ns(send.0, receive.0) else { return };
        if send.0 == receive.0 {
            return;
        }
        let sent = alignment.to_common_ns(send.0, send.1);
        let received = alignment.to_common_ns(receive.0, receive.1);
        let early = if received < sent { sent.abs_diff(received) } else { 0 };
        let wrong = early > uncertainty;
        self.report.checked += 1;
        let key = (send.0.min(receive.0), send.0.max(receive.0));
        if self.pairs.len() < MAX_PAIRS || self.pairs.contains_key(&key) {
            let pair = self.pairs.entry(key).or_default();
            pair.checked += 1;
            pair.wrong += u64::from(wrong);
            pair.early_ns += if wrong { early as f64 } else { 0.0 };
        }
        if wrong {
            self.report.wrong += 1;
            self.report.worst_ns = self.report.worst_ns.max(early);
        }
    }

    /// Widens the uncertainty of clocks between which more than one message in twenty is wrong, to what
    /// these are wrong by on average. Fewer are taken for messages that were matched wrongly, and only
    /// reported.
    pub fn finish(self, alignment: &mut Alignment) -> OrderReport {
        let mut report = self.report;
        for ((one, other), pair) in self.pairs {
            if (pair.wrong as f64) <= DOUBTFUL * pair.checked as f64 {
                continue;
            }
            report.widened += 1;
            alignment.widen(one, other, pair.early_ns / pair.wrong as f64);
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Aligner, ClockedPart};
    use super::*;

    /// Two clocks that agree by their collectives to within a nanosecond or so.
    fn agreed() -> Alignment {
        let mut aligner = Aligner::new(vec![1, 1]);
        for at in 0..20 {
            let part = |clock| ClockedPart { clock, start_ns: at * 1000, end_ns: at * 1000 + 500 };
            aligner.add(0, &[part(0), part(1)]);
        }
        aligner.finish()
    }

    #[test]
    fn messages_that_arrive_too_early_widen_the_uncertainty() {
        let mut alignment = agreed();
        let mut check = OrderCheck::default();
        for at in 0..10 {
            check.add(&alignment, (0, at * 1000), (1, at * 1000 - 70));
            check.add(&alignment, (1, at * 1000), (0, at * 1000 + 300));
        }
        let report = check.finish(&mut alignment);
        assert_eq!(report, OrderReport { checked: 20, wrong: 10, worst_ns: 70, widened: 1 });
        assert_eq!(alignment.between_ns(0, 1), Some(70));
        // The time scale's clock stays the measure.
        assert_eq!(alignment.uncertainty_ns(0), 0);
    }

    #[test]
    fn a_single_odd_message_is_only_counted() {
        let mut alignment = agreed();
        let before = alignment.clone();
        let mut check = OrderCheck::default();
        (0..30).for_each(|at| check.add(&alignment, (0, at), (1, at + 5)));
        check.add(&alignment, (0, 1_000_000), (1, 0));
        let report = check.finish(&mut alignment);
        assert_eq!((report.wrong, report.worst_ns, report.widened), (1, 1_000_000, 0));
        assert_eq!(alignment, before);
    }

    #[test]
    fn messages_on_one_clock_or_between_strangers_tell_nothing() {
        let mut check = OrderCheck::default();
        check.add(&agreed(), (0, 10), (0, 5));
        check.add(&Alignment::apart(2), (0, 10), (1, 5));
        assert_eq!(check.finish(&mut agreed()), OrderReport::default());
    }
}
