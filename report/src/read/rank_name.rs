//! The rank that a file's name says.

use super::ReadOptions;
use crate::classify::{PatternError, compile};
use regex_lite::Regex;
use std::path::Path;

/// Finds ranks in the names of files.
#[derive(Debug)]
pub(super) struct RankName {
    given: Option<Regex>,
    usual: Vec<Regex>,
}

impl RankName {
    /// By the pattern of `options`, else by what is usual.
    pub fn new(options: &ReadOptions) -> Result<Self, PatternError> {
        let usual = [
            // rank0, rank-0, rank_0
            r"(?i)(?:^|[^a-z])rank[-_. =]?(\d{1,7})(?:[^0-9]|$)",
            // r1t03_trace.json
            r"(?i)(?:^|[^a-z0-9])r(\d{1,7})(?:t\d+)?(?:[^a-z0-9]|$)",
            // trace_0.json, trace_0.pt.trace.json.gz
            r"[-_.](\d{1,5})(?:\.pt)?(?:\.trace)?\.json(?:\.gz|\.zst)?$",
            // worker0, gpu-3
            r"(?i)(?:^|[^a-z])(?:worker|gpu)[-_. ]?(\d{1,7})(?:[^0-9]|$)",
        ];
        let given = options.rank_regex.as_deref().map(compile).transpose()?;
        let usual = if given.is_some() {
            Vec::new()
        } else {
            usual.into_iter().map(compile).collect::<Result<_, _>>()?
        };
        Ok(Self { given, usual })
    }

    /// Whether the user gave a pattern: then it stands above what a file says of itself.
    pub fn is_given(&self) -> bool {
        self.given.is_some()
    }

    /// The rank in `path`: in the file's name, else in the name of its folder. A given pattern is looked
    /// for in the whole path; its first group, or all of it, is the number.
    pub fn rank(&self, path: &Path) -> Option<u32> {
        if let Some(regex) = &self.given {
            let text = path.to_string_lossy();
            let found = regex.captures(&text)?;
            let digits = found.get(1).or_else(|| found.get(0))?.as_str();
            return digits.trim_matches(|c: char| !c.is_ascii_digit()).parse().ok();
        }
        let names = [path.file_name(), path.parent().and_then(Path::file_name)];
        names.into_iter().flatten().find_map(|name| {
            let name = name.to_string_lossy();
            self.usual.iter().find_map(|regex| regex.captures(&name)?.get(1)?.as_str().parse().ok())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(regex: Option<&str>, path: &str) -> Option<u32> {
        let options = ReadOptions { rank_regex: regex.map(str::to_owned), ..ReadOptions::default() };
        RankName::new(&options).unwrap().rank(Path::new(path))
    }

    #[test]
    fn usual_names() {
        for (path, expected) in [
            ("trace_rank0.json.gz", Some(0)),
            ("out/rank-12.json", Some(12)),
            ("p2p_128ranks_rank1.json.gz", Some(1)),
            ("Rank_007.pt.trace.json", Some(7)),
            ("r1t03_step5.json", Some(1)),
            ("trace_3.json", Some(3)),
            ("trace_3.pt.trace.json.gz", Some(3)),
            ("worker2.json", Some(2)),
            ("rank5/trace.json", Some(5)),
            ("host_12345.1690000000000.pt.trace.json", None),
            ("trace_20240501.json", None),
            ("frank3.json", None),
            ("trace.json", None),
        ] {
            assert_eq!(rank(None, path), expected, "{path}");
        }
    }

    #[test]
    fn a_given_pattern() {
        assert_eq!(rank(Some(r"node\d+_p(\d+)"), "x/node3_p17_rank0.json"), Some(17));
        assert_eq!(rank(Some(r"p\d+"), "node3_p17_rank0.json"), Some(17));
        assert_eq!(rank(Some(r"dev(\d+)/"), "dev4/trace.json"), Some(4));
        assert_eq!(rank(Some(r"q(\d+)"), "rank0.json"), None);
        let options = ReadOptions { rank_regex: Some("(".into()), ..ReadOptions::default() };
        assert!(RankName::new(&options).is_err());
    }
}
