//! The clock of a context's device, tied to the host's by events on a stream of our own.

use super::driver::{Code, Driver, Handle, NOT_READY, SUCCESS};
use super::ties::{Seen, Ties, to_ns};
use crate::clock::monotonic_ns;

/// Time until the next base, for the first ones: the clocks' rate is unknown until there are two. The
/// last goes on for the rest of the run.
const RENEW_NS: [i64; 4] = [200_000_000, 500_000_000, 1_000_000_000, 2_000_000_000];

/// A base seen to within this is not tried again.
const GOOD_NS: i64 = 20_000;

/// Events tried for one base.
const TRIES: u32 = 5;

/// How long one event is watched without pause. The stream is idle, so the device gets to it at once
/// unless the streams share a hardware queue; then it is looked at again later.
const WATCH_NS: i64 = 500_000;

/// An event that has not happened for this long is left alone and another one tried.
const GIVE_UP_NS: i64 = 300_000_000;

/// Events given up before that is the end of it: the device hangs.
const MAX_LOST: usize = 64;

/// An event that has not been seen to happen.
#[derive(Debug, Clone, Copy)]
struct Pending {
    event: Handle,
    recorded_ns: i64,
    /// It had not happened then.
    after_ns: i64,
}

/// What is known of a base that may still get better.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    event: Handle,
    seen: Seen,
}

/// A new base.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewBase {
    pub host_ns: i64,
    pub width_ns: i64,
    pub residual_ns: Option<i64>,
}

/// The clock of a context's device. Its context is current in every call.
#[derive(Debug)]
pub(super) struct DeviceClock {
    stream: Option<Handle>,
    ties: Ties<Handle>,
    pending: Option<Pending>,
    best: Option<Candidate>,
    tries: u32,
    spare: Vec<Handle>,
    /// Events that never happened.
    lost: Vec<Handle>,
    renewals: usize,
    due_ns: i64,
}

impl DeviceClock {
    pub fn new() -> Self {
        Self {
            stream: None,
            ties: Ties::new(),
            pending: None,
            best: None,
            tries: 0,
            spare: Vec::new(),
            lost: Vec::new(),
            renewals: 0,
            due_ns: i64::MIN,
        }
    }

    /// Whether times can be converted.
    pub fn is_tied(&self) -> bool {
        !self.ties.is_empty()
    }

    /// Whether an event of its own is on its way.
    pub fn is_waiting(&self) -> bool {
        self.pending.is_some()
    }

    /// Renews the base if it is time to.
    ///
    /// # Errors
    ///
    /// What the driver said.
    pub fn renew(&mut self, driver: &Driver) -> Result<Option<NewBase>, Code> {
        self.give_up();
        while self.pending.is_some() || (monotonic_ns() >= self.due_ns && self.lost.len() < MAX_LOST) {
            let Some(candidate) = self.watch(driver)? else { return Ok(None) };
            self.tries += 1;
            let worse = match &self.best {
                Some(best) if best.seen.width_ns() <= candidate.seen.width_ns() => Some(candidate.event),
                _ => self.best.replace(candidate).map(|before| before.event),
            };
            self.spare.extend(worse);
            let Some(best) = self.best else { return Ok(None) };
            if best.seen.width_ns() <= GOOD_NS || self.tries >= TRIES {
                return self.accept(driver, best).map(Some);
            }
        }
        Ok(None)
    }

    fn give_up(&mut self) {
        let is_late = |pending: &mut Pending| monotonic_ns() - pending.recorded_ns > GIVE_UP_NS;
        if let Some(pending) = self.pending.take_if(is_late) {
            self.lost.push(pending.event);
        }
    }

    /// Watches an event until it happens or time is up.
    fn watch(&mut self, driver: &Driver) -> Result<Option<Candidate>, Code> {
        let mut pending = match self.pending.take() {
            Some(pending) => pending,
            None => self.record(driver)?,
        };
        let until_ns = monotonic_ns() + WATCH_NS;
        loop {
            let asked_ns = monotonic_ns();
            match driver.query(pending.event) {
                SUCCESS => {
                    let seen = Seen { after_ns: pending.after_ns, before_ns: monotonic_ns() };
                    return Ok(Some(Candidate { event: pending.event, seen }));
                }
                NOT_READY => pending.after_ns = asked_ns,
                code => {
                    self.spare.push(pending.event);
                    return Err(code);
                }
            }
            if asked_ns >= until_ns {
                self.pending = Some(pending);
                return Ok(None);
            }
            std::hint::spin_loop();
        }
    }

    fn record(&mut self, driver: &Driver) -> Result<Pending, Code> {
        let stream = match self.stream {
            Some(stream) => stream,
            None => *self.stream.insert(driver.create_stream()?),
        };
        let event = match self.spare.pop() {
            Some(event) => event,
            None => driver.create_event()?,
        };
        let after_ns = monotonic_ns();
        match driver.record(event, stream) {
            SUCCESS => Ok(Pending { event, recorded_ns: after_ns, after_ns }),
            code => {
                self.spare.push(event);
                Err(code)
            }
        }
    }

    fn accept(&mut self, driver: &Driver, best: Candidate) -> Result<NewBase, Code> {
        let since_last = match self.ties.last() {
            Some(last) => Some(driver.elapsed_ms(last, best.event)?),
            None => None,
        };
        (self.best, self.tries) = (None, 0);
        let (tied, forgotten) = self.ties.push(best.event, best.seen, since_last);
        self.spare.extend(forgotten);
        let wait_ns = RENEW_NS.get(self.renewals).or(RENEW_NS.last()).copied().unwrap_or(0);
        self.renewals += 1;
        self.due_ns = monotonic_ns() + wait_ns;
        Ok(NewBase { host_ns: tied.host_ns, width_ns: best.seen.width_ns(), residual_ns: tied.residual_ns })
    }

    /// Host time of the start and the end of a span whose events have happened; `None` while the clock
    /// is not tied.
    ///
    /// # Errors
    ///
    /// What the driver said.
    pub fn interval_ns(
        &self,
        driver: &Driver,
        start: Handle,
        end: Handle,
    ) -> Result<Option<(i64, i64)>, Code> {
        let Some(start_ns) = self.ties.host_ns(|base| driver.elapsed_ms(base, start))? else {
            return Ok(None);
        };
        let milliseconds = f64::from(driver.elapsed_ms(start, end)?) * self.ties.rate_after_last();
        Ok(Some((start_ns, start_ns.saturating_add(to_ns(milliseconds).max(0)))))
    }

    /// Destroys the clock's events and stream.
    pub fn close(&mut self, driver: &Driver) {
        let pending = self.pending.take().map(|pending| pending.event);
        let best = self.best.take().map(|best| best.event);
        let spare = self.spare.drain(..).chain(self.lost.drain(..));
        for event in spare.chain(self.ties.events()).chain(pending).chain(best) {
            driver.destroy_event(event);
        }
        self.ties = Ties::new();
        if let Some(stream) = self.stream.take() {
            driver.destroy_stream(stream);
        }
    }
}
