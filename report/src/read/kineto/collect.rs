//! Takes from the events what a timeline is made of, and drops the rest at once.

use super::call::{Call, CallArgs, Groups, HostEvent, numbers};
use super::category::{Category, Mark};
use super::document::Sink;
use super::event::{Args, Event};
use super::json::{Value, elements};
use super::marked::Marked;
use super::open::{Begun, Open, row};
use super::time::nanoseconds;
use crate::classify::{Class, Classifier, CommKernel, HostCall, NamePattern, Op, PatternError, RuleTally};
use crate::read::ReadOptions;
use crate::read::decimal::DecimalError;
use crate::timeline::{MatchKind, Names, Step, Sym};
use indexmap::IndexMap;
use std::collections::HashMap;

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
    pub names: Names,
    classes: HashMap<Sym, Class>,
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
struct Interval<'a> {
    category: Category,
    name: Value<'a>,
    times: Times,
    args: [Args<'a>; 2],
    process: Option<Value<'a>>,
    thread: Option<Value<'a>>,
}

impl Collector {
    pub fn new(options: &ReadOptions) -> Result<Self, PatternError> {
        Ok(Self {
            classifier: Classifier::new(options)?,
            compute_pattern: options.compute_pattern.as_deref().map(NamePattern::compute).transpose()?,
            copies_as_compute: options.copies_as_compute,
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

    fn complete(&mut self, event: &Event<'_>, category: Category) {
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

    fn begin(&mut self, event: &Event<'_>, category: Category) {
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

    fn end(&mut self, event: &Event<'_>) {
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
    fn thread(&mut self, process: Option<Value<'_>>, thread: Option<Value<'_>>) -> Sym {
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
            Category::DeviceAnnotation | Category::Profiler => {}
        }
    }

    fn neither(&mut self, what: &'static str, times: Times) {
        self.profiler = true;
        self.skip(what);
        self.rules.add(what, MatchKind::Neither, None, times.length_ns());
    }

    fn kernel(&mut self, interval: &Interval<'_>) {
        self.profiler = true;
        // With kernels, the host's operators only launch the work.
        if let Some(ops) = self.host_ops.take() {
            self.skip_all("host_call", ops.len() as u64);
        }
        let name = self.names.intern(&interval.name.text());
        let class = match (self.classes.get(&name), interval.category) {
            (Some(&class), _) => class,
            (None, Category::Kernel) => {
                let class = self.classifier.kernel(self.names.get(name));
                self.classes.insert(name, class);
                class
            }
            (None, _) => Class::Compute { hint: false },
        };
        let mut args = CallArgs::default();
        let (mut device, mut stream, mut correlation, mut external_id) = (None, None, None, None);
        for (key, value) in interval.args.iter().cloned().flatten() {
            match key {
                b"device" | b"Device" => device = value.integer(),
                b"stream" | b"Stream" => stream = Some(value),
                b"correlation" | b"Correlation" => correlation = value.integer(),
                b"External id" | b"external id" => external_id = value.integer(),
                _ => args.add(key, value),
            }
        }
        // Device processes are numbered as the devices are.
        let device = device.or_else(|| interval.process?.integer());
        let device = device.and_then(|device| u32::try_from(device).ok());
        let stream = stream.or(interval.thread).map(|stream| self.names.intern(&stream.text()));
        let correlation = correlation.unwrap_or(0);
        let on_device = self.devices.entry(device).or_default();
        match class {
            Class::Compute { .. } => {
                on_device.compute.push(Kernel { name, times: interval.times, stream, correlation });
            }
            Class::Comm(kernel) => {
                let call = args.finish(&mut self.names, &mut self.groups);
                // Without PyTorch's number, profilers repeat the correlation.
                let external_id = external_id.filter(|&id| id != correlation);
                on_device.comm.push(CommEvent {
                    kernel,
                    times: interval.times,
                    stream,
                    correlation,
                    external_id,
                    call,
                });
            }
        }
    }

    /// What a kernel's name was found to be.
    pub fn class(&self, name: Sym) -> Option<Class> {
        self.classes.get(&name).copied()
    }

    fn launch(&mut self, interval: &Interval<'_>) {
        self.profiler = true;
        let thread = self.thread(interval.process, interval.thread);
        let correlation = interval
            .args
            .iter()
            .cloned()
            .flatten()
            .find(|(key, _)| matches!(*key, b"correlation" | b"Correlation"))
            .and_then(|(_, value)| value.integer());
        self.skip("host_call");
        if let Some(correlation) = correlation {
            self.launches.push(Launch { correlation, start_ns: interval.times.start_ns, thread });
        }
    }

    fn host_event(&mut self, interval: &Interval<'_>) {
        self.profiler = true;
        let text = interval.name.text();
        if let Some(number) = text.strip_prefix("ProfilerStep#") {
            match number.trim().parse() {
                Ok(step) => {
                    let Times { start_ns, end_ns } = interval.times;
                    self.steps.push(Step { step, start_ns, end_ns });
                }
                Err(_) => self.skip("step_without_number"),
            }
            return;
        }
        let found = HostCall::named(&text);
        if found.is_none() && self.host_ops.is_none() {
            return self.skip("host_call");
        }
        let name = self.names.intern(&text);
        let thread = self.thread(interval.process, interval.thread);
        let times = interval.times;
        let mut number = None;
        if let Some(found) = found {
            let mut args = CallArgs::default();
            let mut external_id = None;
            for (key, value) in interval.args.iter().cloned().flatten() {
                match key {
                    b"External id" | b"external id" => external_id = value.integer(),
                    _ => args.add(key, value),
                }
            }
            let mut call = args.finish(&mut self.names, &mut self.groups);
            call.op = call.op.or(Some(found.op).filter(|&op| op != Op::Unknown));
            number = u32::try_from(self.calls.len()).ok();
            self.calls.push(HostEvent { thread, times, external_id, layer: found.layer, name, call });
        }
        match &mut self.host_ops {
            Some(ops) => ops.push(HostOp { thread, name, times, call: number }),
            None => self.skip("host_call"),
        }
    }

    /// An interval of ours. `mark` is what its category says; without one, its arguments do.
    fn marked(&mut self, interval: &Interval<'_>, mark: Option<Mark>) {
        let process = self.thread(interval.process, None);
        let thread = self.thread(interval.process, interval.thread);
        let args = interval.args.iter().cloned().flatten();
        match Marked::new(mark, &interval.name.text(), interval.times, args, &mut self.names) {
            Some(found) => self.marked.push(Marked { process, thread, ..found }),
            None => self.skip("unmatched"),
        }
    }

    /// An interval of another program, whose name a pattern matches.
    fn matched(&mut self, interval: &Interval<'_>) {
        let name = interval.name.text();
        let (mark, shown) = match self.classifier.pattern(&name) {
            Some(kernel) => {
                let op = self.classifier.op_name(kernel.op).to_owned();
                let rule = self.classifier.rule(kernel);
                self.rules.add(rule, MatchKind::Comm, Some(&op), interval.times.length_ns());
                (Mark::Comm, op)
            }
            None => {
                let rule = self.compute_pattern.as_ref().map_or("", NamePattern::rule);
                self.rules.add(rule, MatchKind::Compute, None, interval.times.length_ns());
                (Mark::Compute, name.into_owned())
            }
        };
        let process = self.thread(interval.process, None);
        let thread = self.thread(interval.process, interval.thread);
        let args = interval.args.iter().cloned().flatten();
        if let Some(found) = Marked::new(Some(mark), &shown, interval.times, args, &mut self.names) {
            self.marked.push(Marked { process, thread, ..found });
        }
    }

    /// Names of processes and threads.
    fn label(&mut self, event: &Event<'_>) {
        let of_thread = match event.name.map(Value::raw) {
            Some(b"process_name") => false,
            Some(b"thread_name") => true,
            _ => return,
        };
        let key = self.thread(event.process, event.thread.filter(|_| of_thread));
        if let Some((_, name)) = event.args().find(|(key, _)| *key == b"name") {
            self.labels.insert(key, name.text().into_owned());
        }
    }
}

/// The prefix of PyTorch's steps.
const STEP: &[u8] = b"ProfilerStep#";

/// The collective that a call of the host is.
fn host_call(raw: &[u8]) -> Option<HostCall> {
    HostCall::named(std::str::from_utf8(raw).ok()?)
}

impl Sink for Collector {
    fn event(&mut self, event: &Event<'_>) {
        match event.phase {
            b'X' => self.complete(event, Category::of(event.category)),
            b'B' | b'b' => self.begin(event, Category::of(event.category)),
            b'E' | b'e' => self.end(event),
            b'M' => self.label(event),
            0 if event.duration.is_some() => self.complete(event, Category::of(event.category)),
            _ => self.skip("not_an_interval"),
        }
    }

    fn wants(&self, key: &[u8]) -> bool {
        matches!(key, b"distributedInfo" | b"baseTimeNanoseconds" | b"schemaVersion" | b"deviceProperties")
    }

    fn member(&mut self, key: &[u8], value: Value<'_>) {
        match key {
            // Whole nanoseconds since the epoch, to which all times of the file are relative.
            b"baseTimeNanoseconds" => {
                self.base_ns = value.integer().and_then(|ns| i64::try_from(ns).ok());
            }
            b"distributedInfo" => {
                self.profiler = true;
                self.distributed_info(value);
            }
            _ => self.profiler = true,
        }
    }
}

impl Collector {
    fn distributed_info(&mut self, value: Value<'_>) {
        let Value::Nested(object) = value else { return };
        let small = |value: Value<'_>| value.integer().and_then(|number| u32::try_from(number).ok());
        for (key, value) in Args::new(object) {
            match key {
                b"rank" => self.distributed.rank = small(value),
                b"world_size" => self.distributed.world_size = small(value).filter(|&size| size > 0),
                b"pg_config" => {
                    if let Value::Nested(array) = value {
                        elements(array).for_each(|group| self.group(group));
                    }
                }
                _ => {}
            }
        }
    }

    /// A process group of `pg_config`.
    fn group(&mut self, value: Value<'_>) {
        let Value::Nested(object) = value else { return };
        let (mut name, mut ranks) = (None, (Vec::new(), false));
        for (key, value) in Args::new(object) {
            match key {
                b"pg_name" => name = Some(self.names.intern(&value.text())),
                b"ranks" => ranks = numbers(value),
                _ => {}
            }
        }
        let Some(name) = name else { return };
        self.distributed.groups.push(name);
        if let (ranks, true) = ranks
            && !ranks.is_empty()
        {
            self.groups.insert(name, ranks);
        }
    }
}
