//! A recorder in a folder of its own, under the current thread's subscriber.
#![allow(dead_code, reason = "each test file uses a part of it")]

use commtrace_instrument::{CommtraceLayer, Config, Guard, Mode};
use commtrace_report::read::{ReadOptions, read};
use commtrace_report::timeline::{Comm, Compute, Timeline, Track};
use tempfile::TempDir;
use tracing::Dispatch;
use tracing_subscriber::layer::SubscriberExt;

/// A run that is being recorded.
pub struct Recording {
    pub folder: TempDir,
    pub guard: Guard,
}

impl Recording {
    /// A recorder with these settings and its layer.
    pub fn with_layer(config: Config) -> (Self, CommtraceLayer) {
        let folder = tempfile::tempdir().unwrap();
        let (layer, guard) = config.mode(Mode::Directory(folder.path().into())).layer().unwrap();
        (Self { folder, guard }, layer)
    }

    /// A recorder with these settings and a subscriber of only its layer.
    pub fn start(config: Config) -> (Self, Dispatch) {
        let (recording, layer) = Self::with_layer(config);
        (recording, Dispatch::new(tracing_subscriber::registry().with(layer)))
    }

    /// Ends the run and reads what was recorded.
    pub fn finish(self) -> Timeline {
        let Self { folder, guard } = self;
        drop(guard);
        read(&[folder.path().to_owned()], &ReadOptions::default()).unwrap()
    }
}

/// Records `work`, run under a subscriber of only our layer.
pub fn record(config: Config, work: impl FnOnce()) -> Timeline {
    let (recording, dispatch) = Recording::start(config);
    tracing::dispatcher::with_default(&dispatch, work);
    recording.finish()
}

/// The only track of a timeline.
pub fn only_track(timeline: &Timeline) -> &Track {
    assert_eq!(timeline.tracks.len(), 1, "{:?}", timeline.tracks);
    &timeline.tracks[0]
}

/// Compute intervals with their names.
pub fn compute<'a>(timeline: &'a Timeline, track: &'a Track) -> Vec<(&'a str, Compute)> {
    track.compute.iter().map(|compute| (timeline.names.get(compute.name), compute)).collect()
}

/// Communication intervals with their ops.
pub fn comm<'a>(timeline: &'a Timeline, track: &'a Track) -> Vec<(&'a str, Comm)> {
    track.comm.iter().map(|comm| (timeline.names.get(comm.op), comm)).collect()
}

/// Sleeps for some milliseconds, the least that a test can tell from nothing.
pub fn pause() {
    std::thread::sleep(std::time::Duration::from_millis(3));
}

/// Length of [`pause`] at least, in nanoseconds.
pub const PAUSE_NS: i64 = 3_000_000;
