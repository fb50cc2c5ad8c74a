//! What is kept of an interval that is of interest.

use super::call::{CallArgs, HostEvent};
use super::category::{Category, Mark};
use super::collect::{Collector, CommEvent, HostOp, Interval, Kernel, Launch, Times};
use super::event::Event;
use super::json::Value;
use super::marked::Marked;
use crate::classify::{Class, HostCall, NamePattern, Op};
use crate::timeline::{MatchKind, Step, Sym};

impl Collector {
    pub(super) fn neither(&mut self, what: &'static str, times: Times) {
        self.profiler = true;
        self.skip(what);
        self.rules.add(what, MatchKind::Neither, None, times.length_ns());
    }

    pub(super) fn kernel(&mut self, interval: &Interval<'_>) {
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

    pub(super) fn launch(&mut self, interval: &Interval<'_>) {
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

    pub(super) fn host_event(&mut self, interval: &Interval<'_>) {
        self.profiler = true;
        let text = interval.name.text();
        if text.starts_with("ProfilerStep#") {
            match step(&text, interval.times) {
                Some(step) => self.steps.push(step),
                None => self.skip("step_without_number"),
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

    pub(super) fn device_step(&mut self, interval: &Interval<'_>) {
        self.profiler = true;
        self.skip("annotation");
        self.device_steps.extend(step(&interval.name.text(), interval.times));
    }

    /// An interval of ours. `mark` is what its category says; without one, its arguments do.
    pub(super) fn marked(&mut self, interval: &Interval<'_>, mark: Option<Mark>) {
        let process = self.thread(interval.process, None);
        let thread = self.thread(interval.process, interval.thread);
        let args = interval.args.iter().cloned().flatten();
        match Marked::new(mark, &interval.name.text(), interval.times, args, &mut self.names) {
            Some(found) => self.marked.push(Marked { process, thread, ..found }),
            None => self.skip("unmatched"),
        }
    }

    /// An interval of another program, whose name a pattern matches.
    pub(super) fn matched(&mut self, interval: &Interval<'_>) {
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
    pub(super) fn label(&mut self, event: &Event<'_>) {
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

/// The step called `ProfilerStep#N`.
fn step(name: &str, times: Times) -> Option<Step> {
    let step = name.strip_prefix("ProfilerStep#")?.trim().parse().ok()?;
    Some(Step { step, start_ns: times.start_ns, end_ns: times.end_ns })
}
