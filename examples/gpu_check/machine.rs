//! What there is to check on.

use commtrace::nccl::{self, Id, NcclComm};
use cudarc::driver::{CudaContext, CudaStream, DriverError};
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::thread;

pub const RANKS: usize = 2;

pub type Failure = Box<dyn Error + Send + Sync>;

pub struct Machine {
    device: String,
    devices: usize,
    nccl: (u32, u32, u32),
    /// Not a GPU, but the stand-in of this project's tests.
    pub is_stand_in: bool,
}

impl Machine {
    /// The devices and NCCL; why there is nothing to check otherwise.
    pub fn find() -> Result<Self, String> {
        // SAFETY: it loads and unloads the driver's library.
        if !unsafe { cudarc::driver::sys::is_culib_present() } {
            return Err("no libcuda.so: this machine has no GPU, or no driver for it".to_owned());
        }
        let said = |error: DriverError| format!("the driver: {error}");
        let devices = usize::try_from(CudaContext::device_count().map_err(said)?).unwrap_or(0);
        if devices == 0 {
            return Err("the driver has no device".to_owned());
        }
        let device = CudaContext::new(0).and_then(|context| context.name()).map_err(said)?;
        let nccl = nccl::version().map_err(|error| error.to_string())?;
        let is_stand_in = device.contains("stand-in");
        Ok(Self { device, devices, nccl, is_stand_in })
    }

    pub fn device_of(&self, rank: usize) -> usize {
        rank % self.devices
    }

    /// Runs both ranks, each on a thread of its own with a communicator and its stream.
    pub fn run<R: Send>(
        &self,
        rank: impl Fn(NcclComm, Arc<CudaStream>) -> Result<R, Failure> + Sync,
    ) -> Result<Vec<R>, Failure> {
        let id: Id = nccl::unique_id()?;
        thread::scope(|scope| {
            let threads: Vec<_> = (0..RANKS)
                .map(|number| {
                    let rank = &rank;
                    scope.spawn(move || {
                        let _scope = commtrace::rank_scope(number as u32);
                        let stream = CudaContext::new(self.device_of(number))?.new_stream()?;
                        rank(NcclComm::from_rank(Arc::clone(&stream), number, RANKS, id)?, stream)
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| Err("a rank panicked".into())))
                .collect()
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor, patch) = self.nccl;
        let Self { device, devices, .. } = self;
        write!(f, "{devices} x {device}, NCCL {major}.{minor}.{patch}, {RANKS} ranks")?;
        if self.is_stand_in {
            f.write_str(" (stand-in: no figure below is a GPU's)")?;
        }
        Ok(())
    }
}
