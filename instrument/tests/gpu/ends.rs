//! How a run may end while the GPU still has work.

use crate::support::{comm, recorded, timed, work};
use commtrace_instrument::{comm_span, init};
use commtrace_report::read::{ReadOptions, read};
use cudarc::driver::CudaContext;
use double_support::{Doubles, finish, test_name};
use std::time::{Duration, Instant};

#[test]
fn a_call_that_hangs_on_the_gpu_is_seen_while_it_hangs() {
    let test = test_name!();
    let variables = [("DOUBLE_CUDA_STUCK_EVENTS", "40.."), ("COMMTRACE_FLUSH_MS", "50")];
    recorded(test, &variables, |guard| {
        let folder = std::env::var_os("COMMTRACE_DIR").unwrap();
        let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
        // Before the fault, and long enough for the clock to be tied.
        comm_span!("broadcast", stream = &stream).in_scope(|| work(&stream, 1));
        while guard.stats().recorded < 1 {
            assert!(guard.flush());
        }
        for seq in 0..30_u64 {
            comm_span!("all_reduce", stream = &stream, comm = "world", seq = seq).in_scope(|| ());
        }
        // What a report would say if the process were killed now.
        let until = Instant::now() + Duration::from_secs(60);
        let open = loop {
            let timeline = read(&[folder.clone().into()], &ReadOptions::default()).unwrap();
            let open: Vec<_> = timeline.tracks.iter().flat_map(|track| track.open.clone()).collect();
            if !open.is_empty() || Instant::now() > until {
                break open.iter().map(|open| (timeline.names.get(open.name).to_owned(), open.seq)).collect();
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        let open: Vec<(String, Option<u64>)> = open;
        assert!(open.contains(&("all_reduce".to_owned(), Some(29))), "{open:?}");
        assert!(open.iter().all(|(name, _)| name == "all_reduce"), "{open:?}");
    });
}

#[test]
fn an_exit_without_the_guard_keeps_the_times() {
    const CHILD: &str = "COMMTRACE_TEST_EXIT";
    if std::env::var_os(CHILD).is_some() {
        let guard = init().unwrap();
        let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
        for _ in 0..5 {
            comm_span!("all_reduce", stream = &stream).in_scope(|| work(&stream, 10));
        }
        std::mem::forget(guard);
        std::process::exit(0);
    }
    let folder = tempfile::tempdir().unwrap();
    let doubles = Doubles::new().unwrap();
    let mut command = doubles.command(std::env::current_exe().unwrap());
    command.args(["--exact", test_name!(), "--nocapture"]);
    command.env(CHILD, "1").env("COMMTRACE_DIR", folder.path());
    let finished = finish(&mut command, Duration::from_secs(120)).unwrap();
    assert!(finished.status.is_some_and(|status| status.success()), "{}", finished.stderr);
    let timeline = read(&[folder.path().to_owned()], &ReadOptions::default()).unwrap();
    assert_eq!(timed(&timeline), 5, "{}", finished.stderr);
    let all_reduce = &comm(&timeline)["all_reduce"];
    assert!(all_reduce.iter().all(|comm| comm.end_ns - comm.start_ns >= 10_000_000));
    assert!(folder.path().join("report.txt").exists());
}
