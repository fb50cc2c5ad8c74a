//! The messages of NCCL in a line of a log.
//!
//! A message is `HOST:PID:TID [DEVICE] NCCL INFO TEXT`, or with a place in the source before
//! `NCCL WARN`. Launchers put a prefix of their own before it, NCCL a time where it is asked to, and
//! processes that write into one file now and then break into each other's lines.

/// How a message is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Info,
    Warn,
    /// `TRACE`, `CALL` and the like.
    Other,
}

/// Who wrote a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process<'a> {
    pub host: &'a str,
    pub pid: u32,
    /// The rank by the launcher's prefix.
    pub launcher_rank: Option<u32>,
}

/// One message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Message<'a> {
    pub process: Option<Process<'a>>,
    pub level: Level,
    /// Place in the source.
    pub source: Option<&'a str>,
    pub text: &'a str,
}

/// The messages of `line`; none if it is not NCCL's.
pub(super) fn messages(line: &str) -> Vec<Message<'_>> {
    let mut found: Vec<Message<'_>> = Vec::new();
    let mut begin = 0;
    for (at, marker) in line.match_indices("NCCL ") {
        let rest = line.get(at + marker.len()..).unwrap_or("");
        let word = rest.split([' ', '\t']).next().unwrap_or("");
        let level = match word {
            "INFO" => Level::Info,
            "WARN" => Level::Warn,
            "TRACE" | "CALL" | "ABORT" => Level::Other,
            _ => continue,
        };
        let before = line.get(begin..at).unwrap_or("");
        let prefix = prefix(before);
        // A second message in one line ends the first, where its own prefix tells.
        if let Some(previous) = found.last_mut() {
            let Some(prefix) = &prefix else { continue };
            previous.text = before.get(..prefix.begin).unwrap_or(before).trim();
        }
        begin = at + marker.len() + word.len();
        let text = line.get(begin..).unwrap_or("").trim();
        let process = prefix.as_ref().map(|prefix| Process {
            host: prefix.host,
            pid: prefix.pid,
            launcher_rank: launcher_rank(before.get(..prefix.begin).unwrap_or("")),
        });
        found.push(Message { process, level, source: prefix.and_then(|prefix| prefix.source), text });
    }
    found
}

struct Prefix<'a> {
    /// Where the host's name begins.
    begin: usize,
    host: &'a str,
    pid: u32,
    source: Option<&'a str>,
}

/// The last `HOST:PID:TID` of `text`, and what follows it.
fn prefix(text: &str) -> Option<Prefix<'_>> {
    let mut end = text.trim_end().len();
    // A place in the source and a device stand between it and the message: a few words.
    for _ in 0..8 {
        let head = text.get(..end)?;
        let begin = head.rfind([' ', '\t']).map_or(0, |at| at + 1);
        let word = head.get(begin..)?;
        if let Some((host_begin, host, pid)) = host_pid(word) {
            let after = text.get(end..)?.trim();
            let source = match after.strip_prefix('[') {
                Some(device) => device.split_once(']').map_or("", |(_, source)| source.trim()),
                None => after,
            };
            let source = Some(source).filter(|source| !source.is_empty());
            return Some(Prefix { begin: begin + host_begin, host, pid, source });
        }
        end = head.get(..begin)?.trim_end().len();
        if end == 0 {
            return None;
        }
    }
    None
}

/// Host and process of `…HOST:PID:TID`, and where the host's name begins.
fn host_pid(word: &str) -> Option<(usize, &str, u32)> {
    let (rest, tid) = word.rsplit_once(':')?;
    let (rest, pid) = rest.rsplit_once(':')?;
    tid.parse::<u32>().ok()?;
    let pid = pid.parse().ok()?;
    let of_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let begin = rest
        .rfind(|c| !of_host(c))
        .map_or(0, |at| at + rest.get(at..).and_then(|tail| tail.chars().next()).map_or(1, char::len_utf8));
    let host = rest.get(begin..)?;
    (!host.is_empty()).then_some((begin, host, pid))
}

/// The rank in what a launcher puts before a line: `[1,3]<stdout>:` (Open MPI), `[3] ` (MPICH),
/// `[rank3]:` (PyTorch), `3: ` (srun -l). `[default3]:` of torchrun is a rank of its host only and does not count.
pub(in crate::read) fn launcher_rank(prefix: &str) -> Option<u32> {
    let prefix = prefix.trim_start();
    if let Some(bracket) = prefix.strip_prefix('[') {
        let inner = bracket.split_once(']')?.0;
        if let Some(rank) = inner.strip_prefix("rank") {
            return rank.trim().parse().ok();
        }
        let Some((job, rank)) = inner.rsplit_once(',') else { return inner.parse().ok() };
        let job = job.rsplit('@').next().unwrap_or(job);
        return job.parse::<u32>().ok().and(rank.parse().ok());
    }
    prefix.split_once(':')?.0.trim().parse().ok()
}

/// What stands in a line behind a launcher's prefix.
pub(in crate::read) fn without_launcher(line: &str) -> &str {
    let trimmed = line.trim_start();
    let rest = match trimmed.strip_prefix('[') {
        Some(bracket) => match bracket.split_once(']') {
            Some((inner, rest)) if inner.starts_with("rank") || inner.starts_with("default") => rest,
            Some((inner, rest)) if inner.parse::<u32>().is_ok() => rest.trim_start(),
            Some((inner, rest)) if inner.contains(',') => {
                let rest = rest.strip_prefix("<stdout>").or_else(|| rest.strip_prefix("<stderr>"));
                rest.unwrap_or(line)
            }
            _ => return line,
        },
        None => match trimmed.split_once(':') {
            Some((rank, rest)) if rank.len() < 8 && rank.parse::<u32>().is_ok() => {
                return rest.strip_prefix(' ').unwrap_or(rest);
            }
            _ => return line,
        },
    };
    rest.strip_prefix(':').unwrap_or(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Message<'_> {
        let found = messages(line);
        assert_eq!(found.len(), 1, "{line}");
        found[0]
    }

    #[test]
    fn prefixes_of_launchers() {
        for (line, rank) in [
            ("node-1.x:12:34 [0] NCCL INFO Using network IB", None),
            ("[1,7]<stdout>:node-1.x:12:34 [0] NCCL INFO Using network IB", Some(7)),
            ("[prterun-h-5@1,7]<stderr>: node-1.x:12:34 [0] NCCL INFO Using network IB", Some(7)),
            ("[rank7]:node-1.x:12:34 [0] NCCL INFO Using network IB", Some(7)),
            ("[default7]:node-1.x:12:34 [0] NCCL INFO Using network IB", None),
            ("[7] node-1.x:12:34 [0] NCCL INFO Using network IB", Some(7)),
            (" 7: node-1.x:12:34 [0] NCCL INFO Using network IB", Some(7)),
            ("[2025-06-01 12:00:01] node-1.x:12:34 [0] NCCL INFO Using network IB", None),
        ] {
            let message = one(line);
            let process = message.process.unwrap();
            assert_eq!((process.host, process.pid, process.launcher_rank), ("node-1.x", 12, rank), "{line}");
            assert_eq!((message.level, message.text), (Level::Info, "Using network IB"));
        }
    }

    #[test]
    fn warnings_say_where() {
        let message = one("h:1:2 [3] transport/net_ib.cc:94 (poll) NCCL WARN NET/IB : got error 5");
        assert_eq!(message.level, Level::Warn);
        assert_eq!(message.source, Some("transport/net_ib.cc:94 (poll)"));
        assert_eq!(message.text, "NET/IB : got error 5");
    }

    #[test]
    fn lines_that_run_into_each_other() {
        let found =
            messages("h:1:2 [0] NCCL INFO Connected all ringsh2:3:4 [1] NCCL INFO Connected all trees");
        let texts: Vec<&str> = found.iter().map(|message| message.text).collect();
        assert_eq!(texts[1], "Connected all trees");
        assert_eq!(found[1].process.map(|process| process.pid), Some(3));
        assert!(texts[0].starts_with("Connected all"), "{texts:?}");
    }

    #[test]
    fn what_is_not_a_message() {
        for line in ["", "NCCL", "NCCL version 2.21.5+cuda12.4", "the NCCL backend is used", "x NCCL INFORMS"]
        {
            assert_eq!(messages(line), [], "{line}");
        }
        assert_eq!(one("NCCL INFO bare").process, None);
    }

    #[test]
    fn launchers_are_stripped() {
        for line in ["# a", "[1,0]<stdout>:# a", "[0] # a", "[default0]:# a", "[rank0]:# a", "0: # a"] {
            assert_eq!(without_launcher(line), "# a", "{line}");
        }
        assert_eq!(without_launcher("[x] # a"), "[x] # a");
    }
}
