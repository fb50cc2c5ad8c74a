//! Driver, devices, NCCL and MPI.

use super::check::Check;
use super::probe::{Driver, Mpi, Nccl, What, ask};
use std::env;
use std::fs;
use std::process::{Command, Stdio};

pub fn checks() -> Vec<Check> {
    let mut checks = driver();
    checks.push(kernel_module());
    checks.push(nccl());
    checks.push(mpi());
    checks.push(mpirun());
    checks
}

const NO_DRIVER: &str = "Without it spans are timed by the host clock. In a container, start it with the GPU \
                         (`docker run --gpus all`); else install NVIDIA's driver.";

fn driver() -> Vec<Check> {
    const SUBJECT: &str = "CUDA driver";
    let found: Driver = match ask(What::Driver) {
        Ok(found) => found,
        Err(error) => {
            let remedy = "Reinstall NVIDIA's driver, or take the broken libcuda off the library path.";
            return vec![Check::problem(SUBJECT, format!("libcuda: {error}"), remedy)];
        }
    };
    let Some(path) = &found.path else {
        return vec![match found.load_error {
            Some(error) => Check::problem(SUBJECT, format!("libcuda cannot be loaded: {error}"), NO_DRIVER),
            None => Check::absent(SUBJECT, "libcuda.so.1 is not on the library path", NO_DRIVER),
        }];
    };
    let version = found.version.map_or_else(
        || "of unknown version".to_owned(),
        |version| format!("for CUDA up to {}.{}", version / 1000, version % 1000 / 10),
    );
    let mut checks = vec![Check::ok(SUBJECT, format!("{path}, {version}"))];
    if !found.missing.is_empty() {
        checks.push(Check::problem(
            SUBJECT,
            format!("it has no {}: it is older than what commtrace was made for", found.missing.join(", ")),
            "Update NVIDIA's driver.",
        ));
    }
    let visible = env::var("CUDA_VISIBLE_DEVICES").ok();
    let visible = visible.map_or_else(String::new, |list| format!(" (CUDA_VISIBLE_DEVICES={list})"));
    if let Some(error) = found.error {
        // Without a device, a driver library is what a container without a GPU or a build machine has.
        let no_device = error.contains("CUDA_ERROR_NO_DEVICE");
        let remedy = "See `nvidia-smi`: the device is not there, not visible here, or its driver does not match the kernel \
                      module.";
        checks.push(if no_device {
            Check::absent("devices", format!("{error}{visible}"), remedy)
        } else {
            Check::problem("devices", format!("{error}{visible}"), remedy)
        });
        return checks;
    }
    if found.devices.is_empty() {
        let remedy = "See `nvidia-smi`, and whether CUDA_VISIBLE_DEVICES hides them.";
        checks.push(Check::absent("devices", format!("none{visible}"), remedy));
    }
    for (ordinal, device) in found.devices.iter().enumerate() {
        let name = device.name.as_deref().unwrap_or("of unknown name");
        let memory = device.bytes.map_or_else(
            || "memory unknown".to_owned(),
            |bytes| format!("{:.1} GiB", bytes as f64 / (1_u64 << 30) as f64),
        );
        checks.push(Check::ok(&format!("device {ordinal}"), format!("{name}, {memory}{visible}")));
    }
    checks
}

fn kernel_module() -> Check {
    const SUBJECT: &str = "kernel module";
    let version = fs::read_to_string("/sys/module/nvidia/version")
        .ok()
        .or_else(|| fs::read_to_string("/proc/driver/nvidia/version").ok());
    match version.as_deref().and_then(|text| text.lines().next()) {
        Some(version) => Check::ok(SUBJECT, format!("nvidia {}", version.trim())),
        None => {
            Check::absent(SUBJECT, "NVIDIA's is not loaded", "On a machine with a GPU, `modprobe nvidia`.")
        }
    }
}

fn nccl() -> Check {
    const SUBJECT: &str = "NCCL";
    const NONE: &str = "`NcclComm` loads libnccl.so.2 at run time: install NCCL, or PyPI's nvidia-nccl-cu12, and \
                        put its folder into LD_LIBRARY_PATH.";
    let found: Nccl = match ask(What::Nccl) {
        Ok(found) => found,
        Err(error) => return Check::problem(SUBJECT, format!("libnccl: {error}"), NONE),
    };
    match (found.path, found.version) {
        (Some(path), Some(version)) => Check::ok(SUBJECT, format!("{version}, {path}")),
        (Some(path), None) => {
            let error = found.error.unwrap_or_else(|| "of unknown version".to_owned());
            Check::problem(SUBJECT, format!("{path}: {error}"), NONE)
        }
        (None, _) => match found.load_error {
            Some(error) => Check::problem(SUBJECT, format!("libnccl cannot be loaded: {error}"), NONE),
            None => Check::absent(SUBJECT, "libnccl.so.2 is not on the library path", NONE),
        },
    }
}

fn mpi() -> Check {
    const SUBJECT: &str = "MPI";
    const NONE: &str =
        "Only `MpiComm` needs it: install Open MPI or MPICH, or put its folder into LD_LIBRARY_PATH.";
    let found: Mpi = match ask(What::Mpi) {
        Ok(found) => found,
        Err(error) => return Check::problem(SUBJECT, format!("libmpi: {error}"), NONE),
    };
    match found.path {
        Some(path) => {
            let version = found.version.unwrap_or_else(|| "of unknown version".to_owned());
            Check::ok(SUBJECT, format!("{version}, {path}"))
        }
        None => match found.load_error {
            Some(error) => Check::problem(SUBJECT, format!("libmpi cannot be loaded: {error}"), NONE),
            None => Check::absent(SUBJECT, "libmpi is not on the library path", NONE),
        },
    }
}

fn mpirun() -> Check {
    const SUBJECT: &str = "mpirun";
    let output = Command::new("mpirun").arg("--version").stdin(Stdio::null()).output();
    let text = output.as_ref().map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    match text.as_deref().map(|text| text.lines().find(|line| !line.trim().is_empty())) {
        Ok(Some(version)) => Check::ok(SUBJECT, version.trim()),
        Ok(None) => Check::problem(SUBJECT, "`mpirun --version` says nothing", "Reinstall the MPI library."),
        Err(_) => Check::absent(
            SUBJECT,
            "not on the PATH",
            "Only jobs that are started with it need it: install Open MPI or MPICH.",
        ),
    }
}
