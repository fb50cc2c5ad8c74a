//! The thread that waits for the events, so that the application does not.
//!
//! It polls the first event of each stream in batches, converts device time to host time, gives the
//! events back to their pool and hands the finished intervals to the writer. It begins by exchanging
//! its stream capture mode to relaxed: a query from a thread in the default mode invalidates any graph
//! capture that another thread makes in global mode.

use super::context::GpuContext;
use super::device_clock::DeviceClock;
use super::driver::Driver;
use super::output::{Output, poll_lane};
use super::pending::{Lane, Waiting, Work};
use super::reason::Reason;
use super::shared::{GpuAnchor, GpuRecord, TracedStream};
use crate::intern::Sym;
use crate::message::say;
use crate::queue::{RawRecord, Ring, Sender};
use crate::recorder::{Recorder, lock};
use crate::spans::Kind;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::thread::Thread;
use std::time::{Duration, Instant};

/// How often events are looked at while some are outstanding.
const POLL: Duration = Duration::from_millis(2);

/// How often the thread wakes without any.
const IDLE: Duration = Duration::from_millis(100);

/// How often it says how far it has come while spans are outstanding.
const PUBLISH: Duration = Duration::from_millis(20);

/// How often it looks for what is overdue, and for streams and contexts that are gone.
const TIDY: Duration = Duration::from_secs(1);

/// Communication that is outstanding for this long is announced.
const OVERDUE: Duration = Duration::from_secs(1);

/// Overdue calls announced per stream and round.
const MAX_OVERDUE: usize = 64;

/// How long the end of recording waits for outstanding work of the GPU.
const DRAIN: Duration = Duration::from_secs(5);

/// Starts the thread.
pub(super) fn spawn(recorder: Arc<Recorder>, driver: &'static Driver) -> io::Result<Thread> {
    let shared = Arc::clone(&recorder);
    let thread = std::thread::Builder::new().name("commtrace-gpu".to_owned()).spawn(move || {
        // A fault of ours must not take the application down.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            Resolver::new(recorder, driver).run();
        }));
        if outcome.is_err() {
            say(format_args!(
                "the thread that resolves GPU events failed; spans on GPU streams are lost from here on. \
                 This is a bug of commtrace."
            ));
        }
        shared.gpu.resolved_all();
        shared.gpu.control.all_done();
    })?;
    Ok(thread.thread().clone())
}

/// A context with its clock.
struct Timed {
    context: Arc<GpuContext>,
    clock: DeviceClock,
    /// Why it cannot be tied, if that failed.
    failed: Option<Reason>,
    /// The rank whose file its anchors go to.
    rank: Option<u32>,
}

struct Resolver {
    recorder: Arc<Recorder>,
    driver: &'static Driver,
    /// To the writer.
    sender: Sender<RawRecord>,
    rings: Vec<Ring<GpuRecord>>,
    lanes: HashMap<u32, Lane>,
    contexts: Vec<Timed>,
    grouped: Sym,
    published: Instant,
    tidied: Instant,
}

impl Resolver {
    fn new(recorder: Arc<Recorder>, driver: &'static Driver) -> Self {
        Self {
            sender: recorder.queue.sender(),
            grouped: recorder.interner.intern("grouped").0,
            recorder,
            driver,
            rings: Vec::new(),
            lanes: HashMap::new(),
            contexts: Vec::new(),
            published: Instant::now(),
            tidied: Instant::now(),
        }
    }

    fn run(mut self) {
        self.driver.relax_capture_mode();
        let mut deadline = None;
        loop {
            let (finish, rounds) = self.recorder.gpu.control.orders();
            self.round(finish || rounds > 0);
            if self.can_convert() {
                self.recorder.gpu.control.rounds_done(rounds);
            }
            let outstanding = self.lanes.values().any(|lane| !lane.is_empty());
            if finish {
                let deadline = *deadline.get_or_insert_with(|| Instant::now() + DRAIN);
                if !outstanding || Instant::now() >= deadline {
                    self.finish();
                    return;
                }
            }
            let waiting = outstanding || self.contexts.iter().any(|timed| timed.clock.is_waiting());
            std::thread::park_timeout(if waiting { POLL } else { IDLE });
        }
    }

    /// Whether a finished span could be converted in every context: a clock is tied after a round or two.
    fn can_convert(&self) -> bool {
        self.contexts
            .iter()
            .all(|timed| timed.clock.is_tied() || timed.failed.is_some() || timed.context.failed().is_some())
    }

    fn round(&mut self, publish: bool) {
        let now = Instant::now();
        // Before the rings are looked at: what is pushed later was entered after this.
        let entered_until = self.recorder.entered_until();
        self.collect(now);
        self.renew_clocks();
        self.poll(now);
        let idle = self.lanes.values().all(Lane::is_empty);
        if (publish || idle || now.duration_since(self.published) >= PUBLISH)
            && let Some(ticks) = entered_until
        {
            self.published = now;
            let oldest = self.lanes.values().flat_map(Lane::all).map(|waiting| waiting.entered).min();
            self.recorder.gpu.resolved_until(oldest.map_or(ticks, |oldest| oldest.min(ticks)));
        }
        if now.duration_since(self.tidied) >= TIDY {
            self.tidied = now;
            self.announce_overdue(now);
            self.tidy(now);
        }
    }

    /// Takes what the application's threads have sent.
    fn collect(&mut self, now: Instant) {
        self.rings.extend(self.recorder.gpu.queue.take_new_rings());
        let mut rings = std::mem::take(&mut self.rings);
        for ring in &mut rings {
            let ready = ring.records.slots();
            let Ok(chunk) = ring.records.read_chunk(ready) else { continue };
            for record in chunk {
                let waiting = Waiting {
                    work: Work::Span(record.words),
                    pair: record.pair,
                    entered: record.entered,
                    thread: record.thread,
                    since: now,
                    overdue: false,
                };
                self.add(record.stream, waiting);
            }
        }
        self.recorder.gpu.queue.retire(&mut rings);
        self.rings = rings;
        let groups = std::mem::take(&mut *lock(&self.recorder.gpu.groups.ended));
        for group in groups {
            let waiting = Waiting {
                work: Work::Group(group.calls),
                pair: group.pair,
                entered: group.entered,
                thread: group.thread,
                since: now,
                overdue: false,
            };
            self.add(group.stream, waiting);
        }
    }

    fn add(&mut self, stream: Arc<TracedStream>, waiting: Waiting) {
        let rank = waiting.work.spans().first().map(|words| words.rank());
        match self.contexts.iter_mut().find(|timed| Arc::ptr_eq(&timed.context, &stream.context)) {
            Some(timed) => timed.rank = timed.rank.or(rank),
            None => self.contexts.push(Timed {
                context: Arc::clone(&stream.context),
                clock: DeviceClock::new(),
                failed: None,
                rank,
            }),
        }
        let lane = self.lanes.entry(stream.known.id).or_insert_with(|| Lane::new(Arc::clone(&stream)));
        if !Arc::ptr_eq(&lane.stream.context, &stream.context) && lane.is_empty() {
            *lane = Lane::new(stream);
        }
        lane.push(waiting);
    }

    /// Ties the clocks of all contexts that spans were timed in, also before the first has finished.
    fn renew_clocks(&mut self) {
        for context in self.recorder.gpu.contexts() {
            if !self.contexts.iter().any(|timed| Arc::ptr_eq(&timed.context, &context)) {
                self.contexts.push(Timed { context, clock: DeviceClock::new(), failed: None, rank: None });
            }
        }
        for timed in &mut self.contexts {
            if timed.failed.is_some() || timed.context.failed().is_some() || timed.context.is_closed() {
                continue;
            }
            let driver = self.driver;
            let renewed = driver
                .with_context(timed.context.handle, || timed.clock.renew(driver))
                .and_then(|renewed| renewed);
            match renewed {
                Ok(Some(base)) => self.recorder.gpu.add_anchor(GpuAnchor {
                    rank: timed.rank,
                    device: timed.context.device,
                    host_ns: base.host_ns,
                    width_ns: base.width_ns,
                    residual_ns: base.residual_ns,
                }),
                Ok(None) => {}
                Err(code) => {
                    let reason = Reason::of_code(code);
                    timed.context.note(reason);
                    // The bases that are there go on serving.
                    if !timed.clock.is_tied() {
                        timed.failed = Some(reason);
                    }
                }
            }
        }
    }

    fn poll(&mut self, now: Instant) {
        let Self { recorder, driver, sender, lanes, contexts, grouped, .. } = self;
        for timed in contexts {
            let mut out = Output { recorder, sender, grouped: *grouped };
            let context = Arc::clone(&timed.context);
            let of_context = |lane: &&mut Lane| Arc::ptr_eq(&lane.stream.context, &context);
            if let Some(reason) = context.failed().or(timed.failed) {
                for lane in lanes.values_mut().filter(of_context) {
                    for waiting in lane.take_all() {
                        out.untimed(&lane.stream, waiting, reason);
                    }
                }
                continue;
            }
            if !timed.clock.is_tied() || lanes.values_mut().filter(of_context).all(|lane| lane.is_empty()) {
                continue;
            }
            let polled = driver.with_context(context.handle, || {
                for lane in lanes.values_mut().filter(of_context) {
                    poll_lane(driver, &timed.clock, lane, now, &mut out);
                }
            });
            if let Err(code) = polled {
                context.note(Reason::of_code(code));
            }
        }
    }

    /// Announces communication that is outstanding for long: if the process is killed, this is how the
    /// report knows what it hung in.
    fn announce_overdue(&mut self, now: Instant) {
        let mut overdue = lock(&self.recorder.gpu.overdue);
        for lane in self.lanes.values_mut() {
            let late = |waiting: &&mut Waiting| now.duration_since(waiting.since) >= OVERDUE;
            for waiting in lane.all_mut().filter(late).take(MAX_OVERDUE) {
                if std::mem::replace(&mut waiting.overdue, true) {
                    continue;
                }
                for words in waiting.work.spans().iter().filter(|words| words.kind() == Kind::GpuComm) {
                    overdue.insert(words.span(), (waiting.entered, *words));
                }
            }
        }
    }

    /// Gives up what nothing of the application uses any more.
    fn tidy(&mut self, now: Instant) {
        let is_used = |lanes: &HashMap<u32, Lane>, context: &Arc<GpuContext>| {
            lanes.values().any(|lane| !lane.is_empty() && Arc::ptr_eq(&lane.stream.context, context))
        };
        let mut gave_up = false;
        for timed in &self.contexts {
            gave_up |= !is_used(&self.lanes, &timed.context) && timed.context.give_up_if_abandoned();
        }
        if gave_up {
            // The last spans of a context may have come since the rings were looked at.
            self.collect(now);
        }
        self.lanes.retain(|_, lane| !lane.is_empty());
        let lanes = &self.lanes;
        self.recorder.gpu.forget_streams(|id| lanes.contains_key(&id));
        let driver = self.driver;
        self.contexts.retain_mut(|timed| {
            let context = &timed.context;
            if !context.is_closed() {
                context.release_spare();
            } else if is_used(lanes, context) {
                context.take_up();
            } else {
                close(driver, timed);
                return false;
            }
            true
        });
    }

    fn finish(mut self) {
        let mut left: HashMap<String, u64> = HashMap::new();
        let mut out = Output { recorder: &self.recorder, sender: &mut self.sender, grouped: self.grouped };
        for lane in self.lanes.values_mut() {
            for waiting in lane.take_all() {
                let tied = self
                    .contexts
                    .iter()
                    .any(|timed| Arc::ptr_eq(&timed.context, &lane.stream.context) && timed.clock.is_tied());
                *left.entry(lane.stream.known.label.to_string()).or_default() +=
                    waiting.work.spans().len() as u64;
                out.untimed(&lane.stream, waiting, if tied { Reason::NotFinished } else { Reason::NoClock });
            }
        }
        if !left.is_empty() {
            let mut left: Vec<_> = left.into_iter().collect();
            left.sort();
            let left: Vec<String> =
                left.iter().map(|(stream, count)| format!("{count} on {stream}")).collect();
            say(format_args!(
                "the GPU had not finished {} s after the end of recording: spans without a time: {}",
                DRAIN.as_secs(),
                left.join(", ")
            ));
        }
        for timed in &mut self.contexts {
            close(self.driver, timed);
        }
    }
}

fn close(driver: &Driver, timed: &mut Timed) {
    if timed.context.failed().is_none() {
        let clock = &mut timed.clock;
        let _ = driver.with_context(timed.context.handle, || clock.close(driver));
    }
    timed.context.close(driver);
}
