//! Work for the stand-in driver, and runs in which it is recorded.

use commtrace_instrument::{Guard, init};
use commtrace_report::read::{ReadOptions, read};
use commtrace_report::timeline::{Comm, Compute, Timeline};
use cudarc::driver::{CudaStream, result};
use double_support::{Run, in_child_within};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::time::Duration;

/// Runs `body` in a child process that records into a folder, and reads what it recorded. `None` in the
/// child.
pub fn recorded(test: &str, variables: &[(&str, &str)], body: impl FnOnce(Guard)) -> Option<(Run, Timeline)> {
    recorded_within(Duration::from_secs(120), test, variables, body)
}

/// As [`recorded`], for a body that has much to do.
pub fn recorded_within(
    limit: Duration,
    test: &str,
    variables: &[(&str, &str)],
    body: impl FnOnce(Guard),
) -> Option<(Run, Timeline)> {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().to_str().unwrap();
    let mut all = vec![("COMMTRACE_DIR", directory)];
    all.extend(variables);
    let run = in_child_within(limit, test, &all, || body(init().unwrap()))?;
    let timeline = read(&[folder.path().to_owned()], &ReadOptions::default()).unwrap();
    Some((run, timeline))
}

/// Enqueues a host function that takes so long.
pub fn work(stream: &CudaStream, milliseconds: u64) {
    unsafe extern "C" fn sleep(milliseconds: *mut c_void) {
        std::thread::sleep(Duration::from_millis(milliseconds as u64));
    }
    enqueue(stream, sleep, milliseconds as *mut c_void);
}

/// Enqueues a host function.
pub fn enqueue(stream: &CudaStream, run: unsafe extern "C" fn(*mut c_void), data: *mut c_void) {
    let _ = try_enqueue(stream, run, data).map_err(|error| panic!("{error}"));
}

/// Enqueues a host function, if the driver takes it.
pub fn try_enqueue(
    stream: &CudaStream,
    run: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
) -> Result<(), result::DriverError> {
    stream.context().bind_to_thread()?;
    // SAFETY: the functions of these tests take what they are given here.
    unsafe { result::stream::launch_host_function(stream.cu_stream(), run, data) }
}

/// Compute intervals by name, each in ascending order.
pub fn compute(timeline: &Timeline) -> BTreeMap<&str, Vec<Compute>> {
    let mut all: BTreeMap<&str, Vec<Compute>> = BTreeMap::new();
    for compute in timeline.tracks.iter().flat_map(|track| track.compute.iter()) {
        all.entry(timeline.names.get(compute.name)).or_default().push(compute);
    }
    all.values_mut().for_each(|intervals| intervals.sort_by_key(|interval| interval.start_ns));
    all
}

/// Communication intervals by op, each in ascending order.
pub fn comm(timeline: &Timeline) -> BTreeMap<&str, Vec<Comm>> {
    let mut all: BTreeMap<&str, Vec<Comm>> = BTreeMap::new();
    for comm in timeline.tracks.iter().flat_map(|track| track.comm.iter()) {
        all.entry(timeline.names.get(comm.op)).or_default().push(comm);
    }
    all.values_mut().for_each(|intervals| intervals.sort_by_key(|interval| interval.start_ns));
    all
}

/// Name of the stream of a communication interval.
pub fn stream_of<'a>(timeline: &'a Timeline, interval: &Comm) -> &'a str {
    interval.stream.map_or("", |stream| timeline.names.get(stream))
}

/// Communication without a time: how many records for each reason, on all tracks.
pub fn untimed(timeline: &Timeline) -> BTreeMap<&str, u64> {
    let mut all = BTreeMap::new();
    for (reason, count) in timeline.tracks.iter().flat_map(|track| &track.untimed.reasons) {
        *all.entry(reason.as_str()).or_default() += count;
    }
    all
}

/// All intervals of communication.
pub fn timed(timeline: &Timeline) -> usize {
    timeline.tracks.iter().map(|track| track.comm.len()).sum()
}
