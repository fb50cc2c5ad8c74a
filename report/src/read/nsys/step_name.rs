//! Which NVTX ranges are training steps.

use crate::classify::{PatternError, compile};
use regex_lite::Regex;

/// What the name of a step's range tells of its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepNumber {
    Is(i64),
    /// The name holds none: steps are counted, from 0.
    Counted,
}

/// Tells the names of steps from those of other ranges.
#[derive(Debug)]
pub(super) struct StepName {
    given: Option<Regex>,
}

impl StepName {
    /// By `pattern`, else by [what is usual](usual).
    pub fn new(pattern: Option<&str>) -> Result<Self, PatternError> {
        Ok(Self { given: pattern.map(compile).transpose()? })
    }

    /// The step that a range called `name` is; `None` if it is none.
    ///
    /// Of a given pattern, the first group, else all of the match, holds the number.
    pub fn step(&self, name: &str) -> Option<StepNumber> {
        let Some(regex) = &self.given else { return usual(name).map(StepNumber::Is) };
        let found = regex.captures(name)?;
        let part = found.get(1).or_else(|| found.get(0))?.as_str();
        Some(first_number(part).map_or(StepNumber::Counted, StepNumber::Is))
    }
}

/// The first run of digits.
fn first_number(text: &str) -> Option<i64> {
    let digits = text.trim_start_matches(|c: char| !c.is_ascii_digit());
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits.get(..end)?.parse().ok()
}

/// The number of a step that is called as usual: `step`, `iteration`, `iter` or `ProfilerStep` in any case,
/// alone or after one other word, then the number: `step 12`, `train_step=12`, `Iteration: 12/100`,
/// `iter12`, `ProfilerStep#12`.
///
/// Written out because every name of a trace comes by here, millions of them.
fn usual(name: &str) -> Option<i64> {
    let name = name.trim();
    let at = name.find(|c: char| c.is_ascii_digit())?;
    let (words, rest) = name.split_at_checked(at)?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (digits, after) = rest.split_at_checked(digits)?;
    // `step 1.5`, `step 2_backward` and `step 3rd` are other things.
    if after.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '.')) {
        return None;
    }
    let is_separator = |c: char| matches!(c, ' ' | '_' | '-' | '#' | ':' | '=' | '.' | '/' | '(' | '[');
    let mut words = words.split(is_separator).filter(|word| !word.is_empty());
    let (last, before) = (words.next_back()?, words.next_back());
    let is_step =
        ["step", "iteration", "iter", "profilerstep"].iter().any(|word| last.eq_ignore_ascii_case(word));
    let one_word =
        words.next().is_none() && before.is_none_or(|word| word.chars().all(|c| c.is_ascii_alphabetic()));
    (is_step && one_word).then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_names() {
        for (name, expected) in [
            ("step 12", Some(12)),
            ("Step_12", Some(12)),
            ("step12", Some(12)),
            ("STEP: 12", Some(12)),
            ("step=12, loss=0.5", Some(12)),
            ("train_step 12", Some(12)),
            ("training step #12", Some(12)),
            ("global-step[12]", Some(12)),
            ("Iteration 12/100", Some(12)),
            ("iteration12", Some(12)),
            ("iter_0", Some(0)),
            ("ProfilerStep#12", Some(12)),
            ("step 99999999999999999999", None),
            ("step", None),
            ("step 1.5", None),
            ("step 2_backward", None),
            ("steps 12", None),
            ("Optimizer.step#Adam.step", None),
            ("first and second step 3", None),
            ("layer4 step 3", None),
            ("aten::add, op_id = 12", None),
            ("epoch 3", None),
            ("12", None),
            ("", None),
        ] {
            assert_eq!(usual(name), expected, "{name}");
        }
    }

    #[test]
    fn a_given_pattern() {
        let step = |pattern: &str, name: &str| StepName::new(Some(pattern)).unwrap().step(name);
        assert_eq!(step(r"^batch (\d+)$", "batch 7"), Some(StepNumber::Is(7)));
        assert_eq!(step(r"^batch \d+ of", "batch 7 of 9"), Some(StepNumber::Is(7)));
        assert_eq!(step("^train$", "train"), Some(StepNumber::Counted));
        assert_eq!(step("^batch", "step 7"), None);
        assert!(StepName::new(Some("(")).is_err());
    }
}
