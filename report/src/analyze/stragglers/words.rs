//! A straggler in a sentence.

use super::{Pattern, Straggler};
use crate::units;

/// Steps that a sentence lists.
const LISTED: usize = 6;

impl Straggler {
    /// Which rank, with what, how much and when, for example "Rank 2 spends 30.0 ms longer in `forward` than the
    /// other ranks in 98 of 100 steps."
    pub fn in_words(&self) -> String {
        let how_often = self.how_often();
        let drift =
            if self.pattern == Pattern::Drifting { ", by an amount that drifts over the run" } else { "" };
        match (&self.span, self.span_excess_ms) {
            (Some(_), Some(excess_ms)) => format!(
                "Rank {} spends {} longer in {} than the other ranks in {how_often}{drift}.",
                self.rank,
                units::ms(excess_ms),
                self.span_in_words(),
            ),
            _ => format!(
                "Rank {} comes {} later than the other ranks in {how_often}{drift}; the time is {}.",
                self.rank,
                units::ms(self.late_ms),
                self.span_in_words(),
            ),
        }
    }

    /// The span and its label, or that there is none.
    pub fn span_in_words(&self) -> String {
        match (&self.span, &self.span_label) {
            (Some(span), Some(label)) => format!("`{span}` ({label})"),
            (Some(span), None) => format!("`{span}`"),
            (None, _) => "outside recorded spans, or spread over several".to_owned(),
        }
    }

    /// In how many steps, and in which.
    fn how_often(&self) -> String {
        let steps = if self.by_step { "steps" } else { "stretches of the run" };
        let mut text = format!("{} of {} {steps}", self.late_steps, self.steps);
        if !self.late_step_numbers.is_empty() {
            let listed: Vec<String> =
                self.late_step_numbers.iter().take(LISTED).map(ToString::to_string).collect();
            let more = if self.late_steps > listed.len() as u64 { ", ..." } else { "" };
            text += &format!(" ({}{more})", listed.join(", "));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn straggler() -> Straggler {
        Straggler {
            rank: 2,
            arrived_last: 98,
            collectives: 100,
            caused_wait_ms: 9000.0,
            suffered_wait_ms: 1.0,
            span: Some("forward".into()),
            span_label: None,
            span_excess_ms: Some(30.0),
            late_ms: 31.0,
            outside_span_ms: 1.0,
            lost_share: 0.6,
            pattern: Pattern::Throughout,
            by_step: true,
            steps: 100,
            late_steps: 98,
            late_step_numbers: Vec::new(),
            excess_to_noise: Some(40.0),
            relative_score: Some(0.5),
            individual_score: Some(1.0),
        }
    }

    #[test]
    fn rank_span_and_steps_are_told() {
        assert_eq!(
            straggler().in_words(),
            "Rank 2 spends 30.0 ms longer in `forward` than the other ranks in 98 of 100 steps."
        );
        let labelled = Straggler { span_label: Some("layer 3".into()), ..straggler() };
        assert!(labelled.in_words().contains("in `forward` (layer 3) than"), "{}", labelled.in_words());
        let outside =
            Straggler { span: None, span_excess_ms: None, pattern: Pattern::Drifting, ..straggler() };
        assert_eq!(
            outside.in_words(),
            "Rank 2 comes 31.0 ms later than the other ranks in 98 of 100 steps, by an amount that drifts over \
             the run; the time is outside recorded spans, or spread over several."
        );
        let sometimes = Straggler {
            pattern: Pattern::SomeSteps,
            late_steps: 9,
            late_step_numbers: (0..9).map(|step| step * 10).collect(),
            ..straggler()
        };
        assert!(
            sometimes.in_words().ends_with("in 9 of 100 steps (0, 10, 20, 30, 40, 50, ...)."),
            "{}",
            sometimes.in_words()
        );
        let stretches = Straggler { by_step: false, ..straggler() };
        assert!(
            stretches.in_words().ends_with("98 of 100 stretches of the run."),
            "{}",
            stretches.in_words()
        );
    }
}
