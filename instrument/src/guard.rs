//! Starting a recorder, and ending it however the process ends.

use crate::config::{Config, ConfigError, Mode};
use crate::gather::{self, Exchange};
use crate::layer::CommtraceLayer;
use crate::message::say;
use crate::rank;
use crate::record_files::RecordFiles;
use crate::recorder::{Recorder, Stats, lock};
use crate::shutdown;
use crate::writer::Writer;
use commtrace_report::gather::RunSummary;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, Weak};
use std::time::Duration;
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt;

/// Why recording could not be started.
#[derive(thiserror::Error)]
pub enum InitError {
    /// A variable cannot be parsed.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The folder for the records cannot be used.
    #[error(
        "COMMTRACE_DIR={path:?}: cannot write records there: {source}; name a folder that this user can create and write"
    )]
    Directory {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// [`init`] found another subscriber.
    #[error(
        "a global tracing subscriber is already set: add the layer of `commtrace::layer()` to it \
         instead of calling `commtrace::init()`"
    )]
    SubscriberSet,
    /// The writer thread could not be started.
    #[error("cannot start the thread that writes records: {0}")]
    Thread(io::Error),
}

/// As the message: a `main` that returns the error prints it with `Debug`.
impl fmt::Debug for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Longest that the end of the process may wait for the writer, beyond the merge timeout.
const FINISH_TIMEOUT: Duration = Duration::from_secs(120);

/// Longest that an explicit flush waits.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);

static ACTIVE: Mutex<Vec<(Weak<Recorder>, Duration)>> = Mutex::new(Vec::new());
static ANY_ACTIVE: AtomicBool = AtomicBool::new(false);
static IN_FORKED_CHILD: AtomicBool = AtomicBool::new(false);

/// Whether this process was forked from one that records. It has no writer thread, and a lock may be
/// held by a thread that it does not have, so nothing here may be touched any more.
#[inline]
pub(crate) fn in_forked_child() -> bool {
    IN_FORKED_CHILD.load(Ordering::Relaxed)
}

/// The recorders that are recording.
pub(crate) fn active_recorders() -> Vec<Arc<Recorder>> {
    if !ANY_ACTIVE.load(Ordering::Relaxed) || in_forked_child() {
        return Vec::new();
    }
    lock(&ACTIVE).iter().filter_map(|(recorder, _)| recorder.upgrade()).collect()
}

/// Starts recording as the environment asks and makes this process's global subscriber.
///
/// Without `COMMTRACE_DIR` and `COMMTRACE=summary` nothing is installed and spans stay disabled
/// callsites. Keep the guard until the end of `main`: the reports are made when it is dropped. To
/// record beside other layers, use [`layer`].
///
/// # Errors
///
/// [`InitError`]: a variable that cannot be parsed, a folder that cannot be written, or a global
/// subscriber that is already set.
///
/// ```
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let _trace = commtrace_instrument::init()?;
///     Ok(())
/// }
/// ```
pub fn init() -> Result<Guard, InitError> {
    Config::from_env()?.init()
}

/// A layer to add to a subscriber, and the guard that ends recording when dropped.
///
/// When recording is off, the layer does nothing.
///
/// # Errors
///
/// [`InitError`]: a variable that cannot be parsed, or a folder that cannot be written.
///
/// ```
/// use tracing_subscriber::layer::SubscriberExt;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (layer, _guard) = commtrace_instrument::layer()?;
/// let subscriber = tracing_subscriber::registry().with(layer);
/// # let _ = subscriber;
/// # Ok(())
/// # }
/// ```
pub fn layer() -> Result<(CommtraceLayer, Guard), InitError> {
    Config::from_env()?.layer()
}

impl Config {
    /// As [`init`], with these settings.
    ///
    /// # Errors
    ///
    /// As [`init`].
    pub fn init(self) -> Result<Guard, InitError> {
        let guard = self.start()?;
        if let Some(recorder) = &guard.recorder {
            let subscriber = Registry::default().with(CommtraceLayer::alone(Arc::clone(recorder)));
            if tracing::subscriber::set_global_default(subscriber).is_err() {
                guard.discard();
                return Err(InitError::SubscriberSet);
            }
            warn_of_static_level();
        }
        Ok(guard)
    }

    /// As [`layer`], with these settings.
    ///
    /// # Errors
    ///
    /// As [`layer`].
    pub fn layer(self) -> Result<(CommtraceLayer, Guard), InitError> {
        let guard = self.start()?;
        if guard.is_on() {
            warn_of_static_level();
        }
        Ok((CommtraceLayer::new(guard.recorder.clone()), guard))
    }

    fn start(self) -> Result<Guard, InitError> {
        rank::set_launcher(self.launch.rank, self.launch.world_size);
        if !self.is_on() {
            return Ok(Guard {
                recorder: None,
                finish_timeout: Duration::ZERO,
                merge_timeout: self.merge_timeout,
            });
        }
        let files = match &self.mode {
            Some(Mode::Directory(path)) => Some(
                RecordFiles::prepare(path, &self)
                    .map_err(|source| InitError::Directory { path: path.clone(), source })?,
            ),
            _ => None,
        };
        let merge_timeout = self.merge_timeout;
        let finish_timeout = FINISH_TIMEOUT + merge_timeout;
        let recorder = Recorder::new(&self);
        Writer::spawn(Arc::clone(&recorder), self, files).map_err(InitError::Thread)?;
        lock(&ACTIVE).push((Arc::downgrade(&recorder), finish_timeout));
        ANY_ACTIVE.store(true, Ordering::SeqCst);
        finish_at_exit();
        Ok(Guard { recorder: Some(recorder), finish_timeout, merge_timeout })
    }
}

/// Says that the application was compiled without our spans.
fn warn_of_static_level() {
    if tracing::level_filters::STATIC_MAX_LEVEL < tracing::level_filters::LevelFilter::INFO {
        say(format_args!(
            "recording is on, but this program was built with a `max_level_…` feature of \
             `tracing` that removes INFO spans: nothing can be recorded"
        ));
    }
}

/// Ends recording and makes the reports when dropped.
#[derive(Debug)]
#[must_use = "recording ends when the guard is dropped"]
pub struct Guard {
    recorder: Option<Arc<Recorder>>,
    finish_timeout: Duration,
    merge_timeout: Duration,
}

impl Guard {
    /// Whether anything is recorded.
    pub fn is_on(&self) -> bool {
        self.recorder.is_some()
    }

    /// What was recorded and lost so far. Zeros when recording is off.
    pub fn stats(&self) -> Stats {
        self.recorder.as_ref().map_or_else(Stats::default, |recorder| recorder.stats())
    }

    /// Writes everything recorded so far and waits for it, at most ten seconds. Returns whether it was
    /// written; `true` when recording is off.
    pub fn flush(&self) -> bool {
        self.recorder.as_ref().is_none_or(|recorder| recorder.flush(FLUSH_TIMEOUT))
    }

    /// Ends recording and returns the report that was made, `None` if this process does not report
    /// (recording is off, or another rank's process reports).
    pub fn into_report(self) -> Option<commtrace_report::analyze::Report> {
        let recorder = self.recorder.as_ref()?;
        end(recorder, self.finish_timeout);
        recorder.control().report.take()
    }

    /// Ends recording and gathers what all processes recorded over `exchange`, so that process 0 reports on
    /// all ranks although they share no folder. All processes call it, those that do not record included.
    ///
    /// In a folder that process 0 sees (`COMMTRACE_DIR`), the report is made of the record files, which are
    /// complete then. Otherwise, and with `COMMTRACE=summary`, it is made of the [summaries] of the processes:
    /// figures per rank are exact, figures across ranks are of a sample of the steps, whose size is stated.
    ///
    /// It does not hang: a process that does not come within `COMMTRACE_MERGE_TIMEOUT_S` (and a second for
    /// each doubling of the number of processes) is named in the report, as far as `exchange` keeps to its
    /// deadlines. Returns the report on process 0, `None` on the others.
    ///
    /// [summaries]: commtrace_report::gather
    pub fn finish_over(
        mut self,
        exchange: &(impl Exchange + ?Sized),
    ) -> Option<commtrace_report::analyze::Report> {
        if exchange.size() <= 1 || in_forked_child() {
            return self.into_report();
        }
        let ended = self.recorder.take().and_then(|recorder| {
            recorder.control().gather = true;
            end(&recorder, self.finish_timeout);
            recorder.control().ended.take()
        });
        let mine = ended.as_ref().map_or_else(RunSummary::default, |ended| ended.summary(exchange.size()));
        let gathered = gather::reduce(exchange, mine, self.merge_timeout)?;
        match ended {
            Some(ended) => Some(ended.report_on(&gathered)),
            // This rank was not to be recorded, others were.
            None => shutdown::print_report_on(&gathered),
        }
    }

    /// Ends recording of a run that never began.
    fn discard(mut self) {
        if let Some(recorder) = self.recorder.take() {
            recorder.control().discard = true;
            end(&recorder, FINISH_TIMEOUT);
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(recorder) = self.recorder.take() {
            end(&recorder, self.finish_timeout);
        }
    }
}

fn end(recorder: &Arc<Recorder>, timeout: Duration) {
    if in_forked_child() {
        return;
    }
    if !recorder.finish(timeout) && std::process::id() == recorder.pid {
        say(format_args!(
            "the reports were not ready after {} s; the records written so far can be read \
             with `commtrace report`",
            timeout.as_secs()
        ));
    }
    let mut active = lock(&ACTIVE);
    active.retain(|(other, _)| other.upgrade().is_some_and(|other| !Arc::ptr_eq(&other, recorder)));
    ANY_ACTIVE.store(!active.is_empty(), Ordering::SeqCst);
}

/// Ends all recorders, for ways out of the process that drop no guard.
fn end_all() {
    if in_forked_child() {
        return;
    }
    // No lock is held while waiting; a thread that holds it now may be the one that was interrupted.
    let recorders: Vec<_> = match ACTIVE.try_lock() {
        Ok(active) => {
            active.iter().filter_map(|(recorder, timeout)| Some((recorder.upgrade()?, *timeout))).collect()
        }
        Err(_) => return,
    };
    for (recorder, timeout) in recorders {
        recorder.finish(timeout);
    }
}

/// The driver's library ends the use of the GPU when the process exits, before what was registered
/// earlier. Called once the driver is there, so that recording ends while it still is.
#[cfg(feature = "cuda")]
pub(crate) fn finish_before_the_driver() {
    static ONCE: Once = Once::new();
    ONCE.call_once(register_at_exit);
}

#[cfg(all(feature = "cuda", not(unix)))]
fn register_at_exit() {}

/// Ends recording when the process exits, before what is registered already.
#[cfg(unix)]
fn register_at_exit() {
    extern "C" fn at_exit() {
        // A panic must not cross the C frame.
        let _ = std::panic::catch_unwind(end_all);
    }
    // SAFETY: the handler is a plain function that does not unwind.
    unsafe { libc::atexit(at_exit) };
}

/// `std::process::exit` runs no destructors of `main`, and a panic under `panic = "abort"` none at all.
fn finish_at_exit() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        #[cfg(unix)]
        {
            extern "C" fn in_child() {
                IN_FORKED_CHILD.store(true, Ordering::Relaxed);
            }
            register_at_exit();
            // SAFETY: the handler is a plain function that does not unwind and only stores to an atomic.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        }
        if cfg!(panic = "abort") {
            let previous = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                previous(info);
                end_all();
            }));
        }
    });
}

/// Ends recording and makes the reports when the process gets SIGTERM, then dies of it as it would
/// have without the handler. Opt-in, because a signal handler belongs to the application: call it once
/// after [`init`] in jobs whose scheduler (Slurm, Kubernetes) sends SIGTERM before SIGKILL.
///
/// # Errors
///
/// The handler cannot be installed.
#[cfg(unix)]
pub fn finish_on_sigterm() -> io::Result<()> {
    use signal_hook::consts::SIGTERM;
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM])?;
    std::thread::Builder::new().name("commtrace-sigterm".to_owned()).spawn(move || {
        if signals.forever().next().is_some() {
            end_all();
            let _ = signal_hook::low_level::emulate_default_handler(SIGTERM);
        }
    })?;
    Ok(())
}

/// Says once that a filter keeps our spans from us although recording is on.
#[inline]
pub(crate) fn notice_if_disabled(span: tracing::Span) -> tracing::Span {
    if span.is_disabled() && ANY_ACTIVE.load(Ordering::Relaxed) {
        notice_disabled();
    }
    span
}

#[cold]
fn notice_disabled() {
    static ONCE: Once = Once::new();
    // Only where our layer is in the subscriber: before it is installed, or on a thread with another
    // subscriber, spans are disabled for a good reason.
    let installed = tracing::dispatcher::get_default(|dispatch| {
        dispatch.downcast_ref::<CommtraceLayer>().is_some_and(CommtraceLayer::is_on)
    });
    if installed {
        ONCE.call_once(|| {
            say(format_args!(
                "recording is on, but a filter of the tracing subscriber (for example \
                 EnvFilter at `warn`) disables spans of target `commtrace` at level INFO, so they are \
                 not recorded; allow them, for example with RUST_LOG=warn,commtrace=info"
            ));
        });
    }
}
