//! Tests whose body runs as the ranks of an MPI job.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Set in the ranks.
const IN_JOB: &str = "COMMTRACE_TEST_IN_MPI_JOB";

/// Longest that a job of a test may take, on a machine that is busy with others.
const LIMIT: Duration = Duration::from_secs(300);

/// Whether MPI's launcher is here. If not, a test that needs it is skipped with a message, or fails where
/// `COMMTRACE_TEST_MPI=required`.
pub fn is_here() -> bool {
    let found = Command::new("mpirun").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_ok() {
        return true;
    }
    let required = env::var_os("COMMTRACE_TEST_MPI").is_some_and(|value| value == "required");
    assert!(
        !required,
        "COMMTRACE_TEST_MPI=required and no mpirun: apt-get install openmpi-bin libopenmpi-dev"
    );
    eprintln!("skipped: no mpirun (apt-get install openmpi-bin libopenmpi-dev)");
    false
}

/// `mpirun -n ranks`, on a machine with fewer cores than ranks, as any user.
pub fn mpirun(ranks: usize) -> Command {
    let mut command = Command::new("mpirun");
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy().into_owned();
        if ["COMMTRACE", "OMPI_", "PMI", "SLURM_", "RANK", "WORLD_SIZE"]
            .iter()
            .any(|known| text.starts_with(known))
        {
            command.env_remove(name);
        }
    }
    command
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
        .env("OMPI_MCA_mpi_yield_when_idle", "1")
        // Memory of other processes may not be read in containers; Open MPI then warns.
        .env("OMPI_MCA_btl_vader_single_copy_mechanism", "none")
        .args(["--oversubscribe", "-n", &ranks.to_string()]);
    command
}

/// Runs `command` to its end. One job at a time: ranks of several would only wait for each other's cores.
pub fn finish(mut command: Command) -> Output {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.expect("mpirun starts");
    let id = child.id().to_string();
    let (done, ended) = std::sync::mpsc::channel();
    let watch = std::thread::spawn(move || {
        if ended.recv_timeout(LIMIT).is_err() {
            // mpirun passes it on to the ranks.
            let _ = Command::new("kill").args(["-TERM", &id]).status();
        }
    });
    let since = Instant::now();
    let output = child.wait_with_output().expect("mpirun ends");
    let _ = done.send(());
    let _ = watch.join();
    assert!(since.elapsed() < LIMIT, "the job took too long:\n{}", shown(&output));
    output
}

/// Status and both streams, for the message of a failed assertion.
pub fn shown(output: &Output) -> String {
    let text = String::from_utf8_lossy;
    format!("{}\n--- stdout\n{}--- stderr\n{}", output.status, text(&output.stdout), text(&output.stderr))
}

/// In the test: starts this test again as `ranks` processes, which must succeed. In these: runs `rank`.
pub fn ranks(name: &str, ranks: usize, rank: impl FnOnce()) {
    if env::var_os(IN_JOB).is_some() {
        return rank();
    }
    if !is_here() {
        return;
    }
    let program: PathBuf = env::current_exe().expect("the test's own path");
    let mut command = mpirun(ranks);
    command.env(IN_JOB, "1").arg(program).args(["--exact", name, "--nocapture", "--test-threads=1"]);
    let output = finish(command);
    assert!(output.status.success(), "{name} on {ranks} ranks: {}", shown(&output));
    let passed = String::from_utf8_lossy(&output.stdout).matches("1 passed").count();
    assert_eq!(passed, ranks, "{name}: every rank runs the test\n{}", shown(&output));
}
