//! Debug logs of NCCL: `NCCL_DEBUG=INFO`, subsystems INIT, COLL and TUNING.
//!
//! Format: what NCCL's `debug.cc`, `init.cc`, `enqueue.cc` and transports write in versions 2.4 to 2.30.
//! A line holds messages ([`line`]); what a message says is told by its words ([`text`]); facts of all
//! processes are added up here, each in bounded memory, and communicators put together ([`group`]).

mod group;
pub(super) mod line;
mod text;

use crate::classify::Op;
use crate::nccl::{AlgorithmChoice, Calls, LastCall, LogWarning, NcclLog, Transport};
use group::{Identity, Ranks};
use indexmap::IndexMap;
use line::{Level, Message, Process, messages};
use std::collections::{HashMap, HashSet, VecDeque};

/// Distinct facts of a kind that are kept; a log has few, a file that merely looks like one may have
/// any number.
const MOST: usize = 1 << 16;
/// Pairs of ranks that are told apart.
const MOST_PAIRS: usize = 1 << 20;
/// Distinct warnings that are kept, and characters of each.
const MOST_WARNINGS: usize = 64;
const LONGEST_WARNING: usize = 400;
/// Variables that are kept.
const MOST_VARIABLES: usize = 128;
/// Calls of a process that may still be told which algorithm they ran.
const PENDING: usize = 256;

/// Reads a log line by line.
#[derive(Debug, Default)]
pub(super) struct LogReader {
    log: NcclLog,
    processes: IndexMap<(String, u32), Activity>,
    ranks: Ranks,
    calls: IndexMap<CallKey, u64>,
    choices: IndexMap<ChoiceKey, u64>,
    transports: IndexMap<String, (u64, HashSet<(u32, u32)>)>,
    pairs: usize,
    warnings: HashMap<String, usize>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct CallKey {
    op: Op,
    bytes: Option<u64>,
    dtype: Option<&'static str>,
    nranks: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ChoiceKey {
    op: Option<Op>,
    bytes: Option<u64>,
    logged: u64,
    nranks: Option<u32>,
    algorithm: String,
    protocol: Option<String>,
    channels: Option<u32>,
}

/// What a process did last.
#[derive(Debug, Default)]
struct Activity {
    pending: VecDeque<Pending>,
}

/// A call whose algorithm was not said yet.
#[derive(Debug, Clone, Copy)]
struct Pending {
    op: Op,
    share: Option<u64>,
    payload: Option<u64>,
    nranks: Option<u32>,
    /// Rank 0 of a communicator says which algorithm runs; the others do not.
    by_rank_0: Option<bool>,
}

impl LogReader {
    /// Takes what `line` tells; false if it is not NCCL's.
    pub fn line(&mut self, line: &str) -> bool {
        if !line.contains("CCL ") {
            return false;
        }
        let messages = messages(line);
        if messages.is_empty() {
            let version = text::version(line);
            let found = version.is_some();
            version.into_iter().for_each(|version| self.version(version));
            return found;
        }
        messages.into_iter().for_each(|message| self.message(message));
        true
    }

    /// Messages so far.
    pub fn messages(&self) -> u64 {
        self.log.messages
    }

    /// What the log tells.
    pub fn finish(mut self) -> NcclLog {
        self.log.processes = self.processes.len() as u64;
        self.log.transports = self
            .transports
            .into_iter()
            .map(|(via, (connections, pairs))| Transport { via, connections, pairs: pairs.len() as u64 })
            .collect();
        self.log.calls = self
            .calls
            .into_iter()
            .map(|(key, calls)| Calls {
                op: key.op.as_str().to_owned(),
                bytes: key.bytes,
                dtype: key.dtype.map(str::to_owned),
                nranks: key.nranks,
                calls,
            })
            .collect();
        self.log.communicators = self.ranks.communicators();
        // Where all communicators are of one size, a share tells the whole.
        let sizes: HashSet<u32> =
            self.log.communicators.iter().map(|communicator| communicator.nranks).collect();
        let only_size = sizes.iter().next().copied().filter(|_| sizes.len() == 1);
        self.log.algorithms =
            self.choices.into_iter().map(|(key, lines)| finished(key, lines, only_size)).collect();
        self.log
    }

    fn version(&mut self, version: String) {
        if self.log.versions.len() < 16 && !self.log.versions.contains(&version) {
            self.log.versions.push(version);
        }
    }

    fn left_out(&mut self, what: &str) {
        *self.log.left_out.entry(what.to_owned()).or_default() += 1;
    }

    fn message(&mut self, message: Message<'_>) {
        self.log.messages += 1;
        let process = message.process.unwrap_or(Process { host: "", pid: 0, launcher_rank: None });
        let key = (process.host.to_owned(), process.pid);
        if message.process.is_some() && !self.processes.contains_key(&key) {
            if self.processes.len() < MOST {
                self.processes.insert(key.clone(), Activity::default());
            } else {
                self.left_out("processes");
            }
        }
        let text = message.text;
        if message.level == Level::Warn {
            self.warning(&message, process.host);
        } else if let Some(call) = text::call(text) {
            self.call(&key, &call);
        } else if let Some(choice) = text::choice(text) {
            self.choice(&key, choice, message.level);
        } else if let Some(connection) = text::connection(text) {
            self.connection(connection);
        } else if let Some(version) = text::version(text) {
            self.version(version);
        } else if let Some(network) = text.strip_prefix("Using network ") {
            let network: String = network.trim().chars().take(64).collect();
            if self.log.networks.len() < 16 && !self.log.networks.contains(&network) {
                self.log.networks.push(network);
            }
        } else if let Some((name, value)) = text::variable(text) {
            if self.log.environment.contains_key(name) || self.log.environment.len() < MOST_VARIABLES {
                let value = value.chars().take(256).collect();
                self.log.environment.insert(name.chars().take(128).collect(), value);
            }
        } else if let Some(identity) = Identity::of(text)
            && !self.ranks.add(&key, process.launcher_rank, &identity)
        {
            self.left_out("ranks_of_communicators");
        }
    }

    fn warning(&mut self, message: &Message<'_>, host: &str) {
        self.log.warning_count += 1;
        let text: String = message.text.chars().take(LONGEST_WARNING).collect();
        if let Some(warning) = self.warnings.get(&text).and_then(|&at| self.log.warnings.get_mut(at)) {
            warning.count += 1;
        } else if self.log.warnings.len() < MOST_WARNINGS {
            self.warnings.insert(text.clone(), self.log.warnings.len());
            let source = message.source.map(|source| source.chars().take(128).collect());
            self.log.warnings.push(LogWarning { message: text, source, host: host.to_owned(), count: 1 });
        }
    }

    fn call(&mut self, process: &(String, u32), call: &text::Call<'_>) {
        let last = LastCall { op: call.op.as_str().to_owned(), op_count: call.op_count };
        let rank = self.ranks.called(process, call.address, last);
        let dtype = call.dtype.map(|dtype| dtype.name);
        let key = CallKey { op: call.op, bytes: call.payload, dtype, nranks: call.nranks };
        let room = self.calls.len() < MOST;
        match self.calls.get_mut(&key) {
            Some(calls) => *calls += 1,
            None if room => drop(self.calls.insert(key, 1)),
            None => self.left_out("calls"),
        }
        if let Some(activity) = self.processes.get_mut(process) {
            if activity.pending.len() == PENDING {
                activity.pending.pop_front();
            }
            activity.pending.push_back(Pending {
                op: call.op,
                share: call.share,
                payload: call.payload,
                nranks: call.nranks,
                by_rank_0: rank.map(|rank| rank == 0),
            });
        }
    }

    fn choice(&mut self, process: &(String, u32), choice: text::Choice, level: Level) {
        let activity = self.processes.get_mut(process);
        let pending = activity.and_then(|activity| take_pending(&mut activity.pending, &choice, level));
        let op = choice.op.or(pending.map(|pending| pending.op));
        let nranks = pending.and_then(|pending| pending.nranks);
        let share = choice.may_be_share && op.is_some_and(text::is_share);
        let bytes = match (share, nranks) {
            (false, _) => Some(choice.bytes),
            (true, Some(nranks)) => choice.bytes.checked_mul(nranks.into()),
            (true, None) => None,
        };
        let key = ChoiceKey {
            op,
            bytes,
            logged: choice.bytes,
            nranks,
            algorithm: choice.algorithm,
            protocol: choice.protocol,
            channels: choice.channels,
        };
        let room = self.choices.len() < MOST;
        match self.choices.get_mut(&key) {
            Some(lines) => *lines += 1,
            None if room => drop(self.choices.insert(key, 1)),
            None => self.left_out("algorithms"),
        }
    }

    fn connection(&mut self, connection: text::Connection) {
        if self.transports.len() >= 64 && !self.transports.contains_key(&connection.via) {
            return self.left_out("transports");
        }
        let (connections, pairs) = self.transports.entry(connection.via).or_default();
        *connections += 1;
        if let Some(pair) = connection.pair
            && self.pairs < MOST_PAIRS
            && pairs.insert(pair)
        {
            self.pairs += 1;
        }
    }
}

/// The call that `choice` is about: the earliest that fits and was not told yet.
fn take_pending(pending: &mut VecDeque<Pending>, choice: &text::Choice, level: Level) -> Option<Pending> {
    let at = pending.iter().position(|call| {
        let bytes = if choice.may_be_share && text::is_share(call.op) { call.share } else { call.payload };
        let same_op = choice.op.is_none_or(|op| op == call.op);
        // Where calls are traced, every rank says what it runs.
        let may_say = level != Level::Info || call.by_rank_0 != Some(false);
        same_op && bytes == Some(choice.bytes) && may_say
    })?;
    pending.remove(at)
}

fn finished(key: ChoiceKey, lines: u64, only_size: Option<u32>) -> AlgorithmChoice {
    let nranks = key.nranks.or(only_size);
    let whole = || key.logged.checked_mul(nranks?.into());
    AlgorithmChoice {
        op: key.op.map(|op| op.as_str().to_owned()),
        bytes: key.bytes.or_else(whole),
        logged_bytes: key.logged,
        nranks,
        algorithm: key.algorithm,
        protocol: key.protocol,
        channels: key.channels,
        lines,
    }
}
