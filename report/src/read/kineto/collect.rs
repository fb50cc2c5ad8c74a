//! Takes from the events what a timeline is made of, and drops the rest at once.

use super::call::{Call, Groups, HostEvent};
use super::category::Category;
use super::event::{Args, Event};
use super::json::Value;
use super::marked::Marked;
use super::open::{Begun, Open, row};
use super::time::nanoseconds;
use crate::classify::{Class, Classifier, CommKernel, HostCall, NamePattern, PatternError, RuleTally};
use crate::read::ReadOptions;
use crate::read::decimal::DecimalError;
use crate::timeline::{Names, Step, Sym};
use indexmap::IndexMap;
use std::collections::{BTreeSet, HashMap};

/// Names of events that nothing classifies, counted at most.
const UNMATCHED_NAMES: usize = 512;

/// An instant and the one it ends at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::read) struct Times {
    pub start_ns: i64,
    pub end_ns: i64,
}

impl Times {
    pub fn length_ns(self) -> u64 {
        u64::try_from(i128::from(self.end_ns) - i128::from(self.start_ns)).unwrap_or(0)
    }
}

/// A kernel, or a copy that counts as one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernel {
    pub name: Sym,
    pub times: Times,
    pub stream: Option<Sym>,
    /// Which call launched it; 0 if unknown.
    pub correlation: u64,
}

/// A communication kernel.
#[derive(Debug, Clone, Copy)]
pub(super) struct CommEvent {
    pub kernel: CommKernel,
    pub times: Times,
    pub stream: Option<Sym>,
    pub correlation: u64,
    pub external_id: Option<u64>,
    pub call: Call,
}

/// What ran on one device.
#[derive(Debug, Default)]
pub(super) struct Device {
    pub compute: Vec<Kernel>,
    pub comm: Vec<CommEvent>,
}

/// A call that launches kernels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Launch {
    pub correlation: u64,
    pub start_ns: i64,
    pub thread: Sym,
}

/// An operator or a collective of the host, in a trace without kernels.
#[derive(Debug, Clone, Copy)]
pub(super) struct HostOp {
    pub thread: Sym,
    pub name: Sym,
    pub times: Times,
    /// Its number among the calls, if it is a collective.
    pub call: Option<u32>,
}

/// What `distributedInfo` says.
#[derive(Debug, Default)]
pub(super) struct Distributed {
    pub rank: Option<u32>,
    pub world_size: Option<u32>,
    /// Names of the process groups.
    pub groups: Vec<Sym>,
}

/// Everything that was kept of a file.
pub(super) struct Collector {
    pub classifier: Classifier,
    pub compute_pattern: Option<NamePattern>,
    copies_as_compute: bool,
    /// The ranks that are wanted, where the file itself says its rank.
    pub only_ranks: Option<BTreeSet<u32>>,
    pub names: Names,
    pub classes: HashMap<Sym, Class>,
    /// Threads, processes and streams, numbered.
    pub keys: Names,
    pub devices: IndexMap<Option<u32>, Device>,
    pub launches: Vec<Launch>,
    pub calls: Vec<HostEvent>,
    /// Dropped at the first kernel: then the host's operators are not compute.
    pub host_ops: Option<Vec<HostOp>>,
    pub marked: Vec<Marked>,
    /// Names of processes, and of threads of processes.
    pub labels: HashMap<Sym, String>,
    pub steps: Vec<Step>,
    /// Steps as they were projected onto devices, stream by stream.
    pub device_steps: Vec<Step>,
    pub groups: Groups,
    pub distributed: Distributed,
    pub base_ns: Option<i64>,
    /// Something was seen that only PyTorch's profiler writes.
    pub profiler: bool,
    pub skipped: IndexMap<&'static str, u64>,
    pub anomalies: IndexMap<&'static str, u64>,
    /// The first event that was left out for its time, and why.
    pub bad_time: Option<String>,
    pub rules: RuleTally,
    pub unmatched: IndexMap<String, u64>,
    open: Open,
    scratch: Vec<u8>,
}

/// An interval, from whichever events it was written as.
pub(super) struct Interval<'a> {
    pub category: Category,
    pub name: Value<'a>,
    pub times: Times,
    /// Of its beginning and of its end.
    pub args: [Args<'a>; 2],
    pub process: Option<Value<'a>>,
    pub thread: Option<Value<'a>>,
}

impl Collector {
    pub fn new(options: &ReadOptions) -> Result<Self, PatternError> {
        Ok(Self {
            classifier: Classifier::new(options)?,
            compute_pattern: options.compute_pattern.as_deref().map(NamePattern::compute).transpose()?,
            copies_as_compute: options.copies_as_compute,
            only_ranks: options.ranks.clone().filter(|_| options.rank_regex.is_none()),
            names: Names::default(),
            classes: HashMap::new(),
            keys: Names::default(),
            devices: IndexMap::new(),
            launches: Vec::new(),
            calls: Vec::new(),
            host_ops: Some(Vec::new()),
            marked: Vec::new(),
            labels: HashMap::new(),
            steps: Vec::new(),
            device_steps: Vec::new(),
            groups: Groups::default(),
            distributed: Distributed::default(),
            base_ns: None,
            profiler: false,
            skipped: IndexMap::new(),
            anomalies: IndexMap::new(),
            bad_time: None,
            rules: RuleTally::default(),
            unmatched: IndexMap::new(),
            open: Open::default(),
            scratch: Vec::new(),
        })
    }

    pub fn skip(&mut self, reason: &'static str) {
        self.skip_all(reason, 1);
    }

    pub fn skip_all(&mut self, reason: &'static str, count: u64) {
        if count > 0 {
            *self.skipped.entry(reason).or_default() += count;
        }
    }

    pub fn anomaly(&mut self, kind: &'static str, count: u64) {
        if count > 0 {
            *self.anomalies.entry(kind).or_default() += count;
        }
    }

    /// Notes beginnings without an end, once there is nothing more to come.
    pub fn close(&mut self) {
        let left = self.open.left();
        self.skip_all("begin_without_end", left);
    }

    /// Whether an interval of this category and name is of interest; counted if it is not.
    fn wanted(&mut self, category: Category, name: Option<Value<'_>>) -> bool {
        let raw = name.map_or(&b""[..], Value::raw);
        let reason = match category {
            Category::Kernel | Category::Copy | Category::Memset | Category::Sync => return true,
            Category::Marked(_) | Category::Span => return true,
            Category::Runtime => {
                // `cudaLaunchKernelExC`, `cuLaunchKernelEx`, `hipExtModuleLaunchKernel`, `cudaGraphLaunch`.
                if memchr::memmem::find(raw, b"aunch").is_some() {
                    return true;
                }
                "host_call"
            }
            Category::Operator if self.host_ops.is_some() => return true,
            Category::Operator => {
                if host_call(raw).is_some() || raw.starts_with(STEP) {
                    return true;
                }
                "host_call"
            }
            Category::Annotation => {
                if host_call(raw).is_some() || raw.starts_with(STEP) {
                    return true;
                }
                "annotation"
            }
            Category::DeviceAnnotation if raw.starts_with(STEP) => return true,
            Category::DeviceAnnotation => "annotation",
            Category::Profiler => "profiler",
            Category::Other => {
                if let Some(name) = name {
                    let name = name.text();
                    let matches = self.classifier.pattern(&name).is_some()
                        || self.compute_pattern.as_ref().is_some_and(|pattern| pattern.matches(&name));
                    if matches {
                        return true;
                    }
                    self.note_unmatched(&name);
                }
                "unmatched"
            }
        };
        self.skip(reason);
        false
    }

    fn note_unmatched(&mut self, name: &str) {
        if let Some(count) = self.unmatched.get_mut(name) {
            *count += 1;
        } else if self.unmatched.len() < UNMATCHED_NAMES {
            self.unmatched.insert(name.to_owned(), 1);
        }
    }

    pub(super) fn complete(&mut self, event: &Event<'_>, category: Category) {
        if !self.wanted(category, event.name) {
            return;
        }
        let Some(start_ns) = self.instant(event) else { return };
        let length = match event.duration {
            None => {
                self.anomaly("without_duration", 1);
                Ok(0)
            }
            Some(value) => nanoseconds(value),
        };
        let end = length.and_then(|length| start_ns.checked_add(length).ok_or(DecimalError::OutOfRange));
        let end_ns = match end {
            Ok(end_ns) => end_ns,
            Err(error) => return self.bad_time("dur", event.duration, event.name, error),
        };
        self.interval(&Interval {
            category,
            name: event.name.unwrap_or(Value::Text(b"")),
            times: Times { start_ns, end_ns },
            args: [event.args(), Args::new(b"{}")],
            process: event.process,
            thread: event.thread,
        });
    }

    /// The instant of an event; counted if it has none.
    fn instant(&mut self, event: &Event<'_>) -> Option<i64> {
        let Some(value) = event.start else {
            self.skip("without_time");
            return None;
        };
        match nanoseconds(value) {
            Ok(ns) => Some(ns),
            Err(error) => {
                self.bad_time("ts", Some(value), event.name, error);
                None
            }
        }
    }

    fn bad_time(
        &mut self,
        key: &str,
        value: Option<Value<'_>>,
        name: Option<Value<'_>>,
        error: DecimalError,
    ) {
        self.skip("bad_time");
        if self.bad_time.is_none() {
            let short = |value: Option<Value<'_>>| -> String {
                value.map_or_else(String::new, |value| value.text().chars().take(60).collect())
            };
            self.bad_time =
                Some(format!("`{key}` of {:?} is {:?}, which {error}", short(name), short(value)));
        }
    }

    pub(super) fn begin(&mut self, event: &Event<'_>, category: Category) {
        let wanted = self.wanted(category, event.name);
        let start_ns = if wanted { self.instant(event) } else { Some(0) };
        let args = match event.args {
            Some(Value::Nested(object)) => object.to_vec(),
            _ => b"{}".to_vec(),
        };
        let begun = Begun {
            name: event.name.map_or_else(Vec::new, |name| name.raw().to_vec()),
            start_ns: start_ns.unwrap_or(0),
            kept: (wanted && start_ns.is_some()).then_some((category, args)),
        };
        if !self.open.begin(row(event), begun) {
            self.skip("too_many_open");
        }
    }

    pub(super) fn end(&mut self, event: &Event<'_>) {
        let Some(begun) = self.open.end(&row(event), event.name.map(Value::raw)) else {
            self.skip("end_without_begin");
            return;
        };
        let Some((category, args)) = begun.kept else { return };
        let Some(end_ns) = self.instant(event) else { return };
        self.interval(&Interval {
            category,
            name: Value::Text(&begun.name),
            times: Times { start_ns: begun.start_ns, end_ns },
            args: [Args::new(&args), event.args()],
            process: event.process,
            thread: event.thread,
        });
    }

    /// The number of a thread of a process.
    pub(super) fn thread(&mut self, process: Option<Value<'_>>, thread: Option<Value<'_>>) -> Sym {
        self.scratch.clear();
        self.scratch.extend_from_slice(process.map_or(b"", Value::raw));
        self.scratch.push(0);
        self.scratch.extend_from_slice(thread.map_or(b"", Value::raw));
        self.keys.intern(&String::from_utf8_lossy(&self.scratch))
    }

    fn interval(&mut self, interval: &Interval<'_>) {
        if interval.times.end_ns < interval.times.start_ns && interval.category != Category::Runtime {
            self.anomaly("end_before_start", 1);
        }
        match interval.category {
            Category::Kernel => self.kernel(interval),
            Category::Copy | Category::Memset if self.copies_as_compute => self.kernel(interval),
            Category::Copy => self.neither("memcpy", interval.times),
            Category::Memset => self.neither("memset", interval.times),
            Category::Sync => self.neither("sync", interval.times),
            Category::Runtime => self.launch(interval),
            Category::Operator | Category::Annotation => self.host_event(interval),
            Category::Marked(mark) => self.marked(interval, Some(mark)),
            Category::Span => self.marked(interval, None),
            Category::Other => self.matched(interval),
            Category::DeviceAnnotation => self.device_step(interval),
            Category::Profiler => {}
        }
    }
}

/// The prefix of PyTorch's steps.
const STEP: &[u8] = b"ProfilerStep#";

/// The collective that a call of the host is.
fn host_call(raw: &[u8]) -> Option<HostCall> {
    HostCall::named(std::str::from_utf8(raw).ok()?)
}
