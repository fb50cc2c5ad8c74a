//! An application on cudarc, as far as the compiler has to see it.

use commtrace::prelude::*;
use cudarc::driver::CudaContext;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _trace = commtrace::init()?;
    let stream = CudaContext::new(0)?.new_stream()?;
    let copies = GpuStream::new(&stream).named("copies");
    for step in 0..3 {
        let _step = step_span!(step).entered();
        let _forward = compute_span!("forward", stream = &stream).entered();
        let _load = compute_span!("load", stream = &copies, label = step).entered();
    }
    let comms = NcclComm::from_devices(vec![stream.clone()])?;
    let mut gradients = stream.alloc_zeros::<f32>(1024)?;
    for comm in &comms {
        comm.all_reduce_in_place(&mut gradients, &ReduceOp::Avg)?;
    }
    stream.synchronize()?;
    Ok(())
}
