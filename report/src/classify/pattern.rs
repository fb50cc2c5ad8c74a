//! Patterns over names that a user gives.

use super::Op;
use regex_lite::Regex;
use std::str::FromStr;

/// A pattern that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// No name before the expression.
    #[error(
        "`{0}` is not NAME=REGEX: write the operation's name, `=` and a regular expression, for example all_reduce=^fused_ar_"
    )]
    NoName(String),
    /// Not a regular expression.
    #[error("`{pattern}` is not a regular expression: {reason}")]
    Regex {
        /// The expression.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// Names of events that are communication: `NAME=REGEX`.
///
/// NAME is what the operation is called in reports; one of the vocabulary ([`Op`]) in any spelling
/// becomes that. REGEX is looked for anywhere in a name.
///
/// ```
/// use commtrace_report::classify::CommPattern;
/// let pattern: CommPattern = "all_reduce=^fused_ar_".parse()?;
/// assert_eq!((pattern.name(), pattern.regex()), ("all_reduce", "^fused_ar_"));
/// assert!("^fused_ar_".parse::<CommPattern>().is_err());
/// assert!("all_reduce=(".parse::<CommPattern>().is_err());
/// # Ok::<(), commtrace_report::classify::PatternError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommPattern {
    name: String,
    regex: String,
}

impl CommPattern {
    /// The operation's name as it was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The expression.
    pub fn regex(&self) -> &str {
        &self.regex
    }
}

impl FromStr for CommPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, regex) = text.split_once('=').ok_or_else(|| PatternError::NoName(text.to_owned()))?;
        let name = name.trim();
        if name.is_empty() || regex.is_empty() {
            return Err(PatternError::NoName(text.to_owned()));
        }
        compile(regex)?;
        Ok(Self { name: name.to_owned(), regex: regex.to_owned() })
    }
}

/// A compiled pattern.
#[derive(Debug, Clone)]
pub struct NamePattern {
    pub(super) name: String,
    pub(super) op: Option<Op>,
    pub(super) rule: String,
    regex: Regex,
}

impl NamePattern {
    /// A pattern of communication.
    ///
    /// # Errors
    ///
    /// Not a regular expression.
    pub fn comm(pattern: &CommPattern) -> Result<Self, PatternError> {
        let letters = |text: &str| -> String {
            text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
        };
        // Only a name that is the operation's is taken for it: `my_allreduce` stays what it is.
        let op = Op::in_name(&pattern.name).filter(|op| letters(op.as_str()) == letters(&pattern.name));
        Ok(Self {
            name: pattern.name.clone(),
            op,
            rule: format!("--comm-pattern {}={}", pattern.name, pattern.regex),
            regex: compile(&pattern.regex)?,
        })
    }

    /// A pattern of compute.
    ///
    /// # Errors
    ///
    /// Not a regular expression.
    pub fn compute(regex: &str) -> Result<Self, PatternError> {
        let rule = format!("--compute-pattern {regex}");
        Ok(Self { name: String::new(), op: None, rule, regex: compile(regex)? })
    }

    /// Whether the expression occurs in `name`.
    pub fn matches(&self, name: &str) -> bool {
        self.regex.is_match(name)
    }

    /// The pattern in words, as a user would write it.
    pub fn rule(&self) -> &str {
        &self.rule
    }
}

/// `regex` compiled, or what is wrong with it.
pub(crate) fn compile(regex: &str) -> Result<Regex, PatternError> {
    Regex::new(regex)
        .map_err(|error| PatternError::Regex { pattern: regex.to_owned(), reason: error.to_string() })
}
