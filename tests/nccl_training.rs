//! The training example on the stand-in driver and NCCL: compute and collectives timed by events.

mod common;

use common::{SHORT, all_reduce_overlap, command, example, listing, summary};
use double_support::{Counts, Doubles, Finished, finish};
use serde_json::Value;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::tempdir;

/// How long a run may take on a machine that is busy with others.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// `ddp_train --backend nccl` on the stand-ins, in a run of a second or two.
fn training(doubles: &Doubles, arguments: &[&str]) -> Command {
    training_with(doubles, &[&SHORT[..], arguments].concat())
}

/// The same with all arguments given.
fn training_with(doubles: &Doubles, arguments: &[&str]) -> Command {
    let mut command = command(example("ddp_train"));
    let path = doubles.command("").get_envs().find_map(|(name, value)| {
        (name == "LD_LIBRARY_PATH").then(|| value.map(ToOwned::to_owned)).flatten()
    });
    command.env("LD_LIBRARY_PATH", path.expect("the path of the stand-ins"));
    command.args(["--backend", "nccl"]).args(arguments);
    command
}

fn run(command: &mut Command) -> Finished {
    finish(command, TIME_LIMIT).unwrap()
}

/// The run must have succeeded.
fn succeeded(run: Finished) -> Finished {
    let ok = run.status.is_some_and(|status| status.success());
    assert!(ok, "{:?}\n--- stdout\n{}--- stderr\n{}", run.status, run.stdout, run.stderr);
    run
}

/// Runs with records in `folder`; returns `summary.json`.
fn recorded(mut training: Command, folder: &Path) -> Value {
    succeeded(run(training.env("COMMTRACE_DIR", folder)));
    summary(folder)
}

fn ranks(report: &Value) -> &[Value] {
    report["ranks"].as_array().unwrap()
}

#[test]
fn compute_and_collectives_are_timed_on_the_devices() {
    let (doubles, folder) = (Doubles::new().unwrap(), tempdir().unwrap());
    let report = recorded(training(&doubles, &[]), folder.path());
    assert_eq!(ranks(&report).len(), 2);
    for (number, rank) in ranks(&report).iter().enumerate() {
        assert_eq!((&rank["rank"], &rank["device"]), (&number.into(), &number.into()));
        let ops = &rank["summary"]["by_op"];
        assert_eq!(ops["broadcast"]["count"], 5, "one per layer");
        // One bucket holds all gradients; metrics before, after and at the last step.
        assert_eq!(ops["all_reduce"]["count"], 12 + 3);
        assert_eq!(ops["all_gather"]["count"], 1);
        assert!(rank["wall"]["compute_ms"].as_f64().unwrap() > 0.0);
        assert!(rank["wall"]["comm_ms"].as_f64().unwrap() > 0.0);
        assert_eq!(rank["untimed"]["count"], 0);
        assert_eq!(rank["steps"].as_array().unwrap().len(), 12);
    }
    let op = report["cross_rank"]["ops"].as_array().unwrap();
    let op = op.iter().find(|op| op["collective"] == "all_reduce").unwrap();
    assert_eq!(op["matched"], 12 + 3, "by a name that both ranks have");
    assert_eq!(report["cross_rank"]["unmatched_events"], 0);
}

#[test]
fn tracing_changes_neither_the_result_nor_the_synchronizations() {
    let (doubles, folder) = (Doubles::new().unwrap(), tempdir().unwrap());
    let counted = |name: &str, variable: &str, value: &Path| {
        let file = folder.path().join(name);
        let run = succeeded(run(training(&doubles, &["--overlap", "on", "--bucket-kib", "8"])
            .env(variable, value)
            .env("DOUBLE_CUDA_COUNTS", &file)));
        (run.stdout, Counts::read(&file).unwrap())
    };
    let (plain, before) = counted("off.json", "COMMTRACE", Path::new("off"));
    let (traced, after) = counted("on.json", "COMMTRACE_DIR", &folder.path().join("records"));
    assert_eq!(traced, plain);
    assert!(plain.contains("bit-identical on all ranks"), "{plain}");
    assert_eq!(after.synchronizing(), before.synchronizing());
    assert!(after.of("cuEventRecord") > before.of("cuEventRecord"), "it was traced");
}

#[test]
fn overlap_is_seen_between_the_streams() {
    let (doubles, off, on) = (Doubles::new().unwrap(), tempdir().unwrap(), tempdir().unwrap());
    // Backward that is long enough for the collectives of the buckets before it.
    let arguments = ["--steps", "20", "--hidden", "256", "--bucket-kib", "128", "--overlap"];
    let with = |overlap| training_with(&doubles, &[&arguments[..], &[overlap]].concat());
    let off = recorded(with("off"), off.path());
    let on = recorded(with("on"), on.path());
    assert_eq!(all_reduce_overlap(&off), 0.0, "one stream for both");
    let hidden: Vec<f64> =
        ranks(&on).iter().map(|rank| rank["summary"]["overlap_ratio"].as_f64().unwrap()).collect();
    assert!(hidden.iter().any(|ratio| *ratio > 0.0), "{hidden:?}");
}

#[test]
fn a_rank_that_computes_longer_is_found() {
    let (doubles, folder) = (Doubles::new().unwrap(), tempdir().unwrap());
    let report = recorded(training(&doubles, &["--slow-rank", "1:40"]), folder.path());
    assert_eq!(report["mitigation"]["strategy"], "rebalance_ranks_or_experts");
    let time = |rank: &Value| rank["summary"]["by_op"]["all_reduce"]["time"].as_f64().unwrap();
    let [first, second] = ranks(&report) else { panic!("two ranks") };
    assert!(time(first) > time(second), "rank 0 waits for rank 1");
}

#[test]
fn each_rank_may_be_a_process() {
    let (doubles, folder) = (Doubles::new().unwrap(), tempdir().unwrap());
    let outputs = two_processes(&doubles, "COMMTRACE_DIR", folder.path().to_str().unwrap());
    assert!(outputs[0].stdout.contains("bit-identical on all ranks"), "{}", outputs[0].stdout);
    let report = summary(folder.path());
    let seen: Vec<_> =
        ranks(&report).iter().map(|rank| (rank["rank"].clone(), rank["device"].clone())).collect();
    assert_eq!(seen, [(0.into(), 0.into()), (1.into(), 1.into())]);
    assert_eq!(report["cross_rank"]["unmatched_events"], 0);
    let records = listing(folder.path()).iter().filter(|name| name.ends_with(".arrows")).count();
    assert_eq!(records, 2);
}

#[test]
fn processes_without_a_folder_gather_their_figures_over_nccl() {
    let doubles = Doubles::new().unwrap();
    let outputs = two_processes(&doubles, "COMMTRACE", "summary");
    let reports = outputs.map(|output| output.stderr.matches("2 ranks, 12 steps").count());
    assert_eq!(reports, [1, 0], "rank 0 reports on both");
}

/// Two ranks as torchrun starts them.
fn two_processes(doubles: &Doubles, variable: &str, value: &str) -> [Finished; 2] {
    // Free now; the chance that another program takes it before rank 0 does is small.
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let rank = |rank: usize| {
        let mut command = training(doubles, &[]);
        command
            .env(variable, value)
            .env("COMMTRACE_MERGE_TIMEOUT_S", "100")
            .env("TORCHELASTIC_RUN_ID", "job-1")
            .env("RANK", rank.to_string())
            .env("LOCAL_RANK", rank.to_string())
            .env("WORLD_SIZE", "2")
            .env("MASTER_ADDR", "127.0.0.1")
            .env("MASTER_PORT", port.to_string());
        command
    };
    std::thread::scope(|scope| {
        let ranks = [0, 1].map(|number| {
            let mut command = rank(number);
            scope.spawn(move || run(&mut command))
        });
        ranks.map(|rank| succeeded(rank.join().unwrap()))
    })
}

#[test]
fn faults_of_the_measurement_leave_the_training_alone() {
    let doubles = Doubles::new().unwrap();
    let plain = succeeded(run(training(&doubles, &[]).env("COMMTRACE", "off"))).stdout;
    let faults = [
        ("DOUBLE_CUDA_STUCK_EVENTS", "5,9"),
        ("DOUBLE_NCCL_SLOW_RANK", "1:3000000"),
        ("DOUBLE_NCCL_MISSING", "ncclAlltoAll,ncclCommSplit"),
        ("COMMTRACE_EVENTS", "8"),
    ];
    for (variable, value) in faults {
        let folder = tempdir().unwrap();
        let run = run(training(&doubles, &[]).env(variable, value).env("COMMTRACE_DIR", folder.path()));
        assert_eq!(succeeded(run).stdout, plain, "{variable}={value}");
        let report = summary(folder.path());
        for rank in ranks(&report) {
            let timed = rank["summary"]["num_comm_events"].as_u64().unwrap();
            let untimed = rank["untimed"]["count"].as_u64().unwrap();
            assert_eq!(timed + untimed, 5 + 12 + 3 + 1, "{variable}={value}: every call is there");
        }
    }
}

#[test]
fn a_device_that_fails_ends_the_training_with_its_error() {
    let (doubles, folder) = (Doubles::new().unwrap(), tempdir().unwrap());
    let run = run(training(&doubles, &["--ranks", "1"])
        .env("DOUBLE_CUDA_STICKY", "illegal_address:launches:200")
        .env("COMMTRACE_DIR", folder.path()));
    assert_eq!(run.status.and_then(|status| status.code()), Some(1), "{}", run.stderr);
    assert!(run.stderr.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{}", run.stderr);
    // What was timed before is reported, what was not has its reason. On a busy machine the device can fail before
    // anything was timed.
    let report = summary(folder.path());
    let rank = &ranks(&report)[0];
    let timed = rank["summary"]["num_comm_events"].as_u64().unwrap();
    assert!(timed + rank["untimed"]["count"].as_u64().unwrap() > 0);
}

#[test]
fn without_a_gpu_the_backend_says_what_it_needs() {
    // SAFETY: it only looks whether there is a driver.
    if unsafe { cudarc::driver::sys::is_culib_present() } {
        return;
    }
    let run = run(command(example("ddp_train")).args(["--backend", "nccl"]));
    assert_eq!(run.status.and_then(|status| status.code()), Some(1));
    assert!(run.stderr.contains("needs a GPU") && run.stderr.contains("libcuda"), "{}", run.stderr);

    let doubles = Doubles::without_nccl().unwrap();
    // SAFETY: as above.
    if unsafe { cudarc::nccl::sys::is_culib_present() } {
        return;
    }
    let run = self::run(&mut training(&doubles, &[]));
    assert_eq!(run.status.and_then(|status| status.code()), Some(1));
    assert!(run.stderr.contains("libnccl.so.2"), "{}", run.stderr);
}

/// The checks for a real GPU, on the stand-ins, which they are told apart from.
#[test]
fn the_checks_for_a_gpu_pass_on_the_stand_ins_and_say_so() {
    let doubles = Doubles::new().unwrap();
    let folder = example("ddp_train").parent().unwrap().to_owned();
    example("gpu_check");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/gpu-check.sh");
    let command = folder.parent().unwrap().join("commtrace");
    let run = succeeded(run(doubles.command("sh").arg(script).arg(folder).arg(&command)));
    let mut lines = run.stdout.lines();
    assert!(lines.next().unwrap().contains("stand-in"), "{}", run.stdout);
    let (passed, others): (Vec<_>, Vec<_>) = lines.partition(|line| line.starts_with("PASS "));
    // The whole workspace's tests have the command to check, too. There is no cuBLAS among these stand-ins.
    let experiments = usize::from(command.exists());
    assert_eq!(passed.len(), 7 + 3 + 1 + 3 + 2 + experiments, "{}", run.stdout);
    let skipped = |line: &&str| line.starts_with("SKIP cost") || line.starts_with("SKIP bench");
    assert!(others.iter().all(skipped), "{}", run.stdout);
}
