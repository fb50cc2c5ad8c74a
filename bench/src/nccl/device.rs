//! The GPUs, and which of them a rank takes.

use super::failed;
use crate::record::Gpu;
use commtrace_collectives::Result;
use cudarc::driver::CudaContext;
use cudarc::driver::sys::CUdevice_attribute::{
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
};
use std::env;
use std::sync::Arc;

/// Lets NCCL's ranks share a GPU.
const SHARE: &str = "NCCL_MULTI_RANK_GPU_ENABLE";

/// Number of GPUs.
///
/// # Errors
///
/// There is no driver or no GPU, in words.
pub(crate) fn count() -> Result<usize, String> {
    // SAFETY: it loads and unloads the driver's library.
    if !unsafe { cudarc::driver::sys::is_culib_present() } {
        return Err("there is no GPU: the driver's library libcuda.so was not found".to_owned());
    }
    let count =
        CudaContext::device_count().map_err(|error| format!("there is no GPU: the driver says {error}"))?;
    match usize::try_from(count) {
        Ok(count @ 1..) => Ok(count),
        _ => Err("there is no GPU: the driver has no device".to_owned()),
    }
}

/// Whether `ranks` ranks of this machine have a GPU each, or may share.
///
/// # Errors
///
/// They have not, and what to do.
pub(crate) fn are_enough(devices: usize, ranks: u32) -> Result<(), String> {
    let shared = env::var(SHARE).is_ok_and(|value| value.trim() == "1");
    if devices >= ranks as usize || shared {
        return Ok(());
    }
    Err(format!(
        "{ranks} ranks need as many GPUs, and there are {devices}: choose --ranks {devices}, or set {SHARE}=1 (NCCL 2.30 \
         and newer), with which ranks share a GPU"
    ))
}

/// The variables in which launchers say which rank of its machine a process is.
const LOCAL_RANKS: [&str; 4] =
    ["LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"];

/// The device of a rank: by its number on its machine as the launcher says, else by `rank`.
pub(super) fn of_rank(rank: u32, devices: usize) -> usize {
    let local = LOCAL_RANKS.iter().find_map(|name| env::var(name).ok()?.trim().parse::<usize>().ok());
    local.unwrap_or(rank as usize) % devices.max(1)
}

/// What the record says of a device.
pub(super) fn describe(context: &Arc<CudaContext>) -> Result<Gpu> {
    let about = |error| failed("asking for the device", error);
    let major = context.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR).map_err(about)?;
    let minor = context.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR).map_err(about)?;
    Ok(Gpu {
        ordinal: u32::try_from(context.ordinal()).unwrap_or(u32::MAX),
        name: context.name().map_err(about)?,
        memory_bytes: context.total_mem().ok().and_then(|bytes| u64::try_from(bytes).ok()),
        compute_capability: Some(format!("{major}.{minor}")),
    })
}

/// The driver's version of CUDA, for example `12.8`.
pub(super) fn driver_version() -> Option<String> {
    let mut version = 0;
    // SAFETY: the place for the number is ours; the driver is there, since a context was made.
    let code = unsafe { cudarc::driver::sys::cuDriverGetVersion(&mut version) };
    code.result().ok().map(|()| format!("{}.{}", version / 1000, version % 1000 / 10))
}
