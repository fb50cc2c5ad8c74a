//! The same code on cudarc's communicator and on ours, and the same results.

use std::thread;

use cudarc::nccl::Id;
use double_support::in_child;

use crate::job::DEVICES;

macro_rules! program {
    ($module:ident, $comm:path, $reduce_op:path, $group_start:path, $group_end:path) => {
        mod $module {
            use std::sync::Arc;

            use $comm as Comm;
            use $group_end as group_end;
            use $group_start as group_start;
            use $reduce_op as ReduceOp;

            use cudarc::driver::{CudaContext, CudaStream};
            use cudarc::nccl::Id;
            use cudarc::nccl::result::NcclError;

            /// As an application writes it; each `?` is in a function with cudarc's error.
            fn rank(
                stream: Arc<CudaStream>,
                rank: usize,
                ranks: usize,
                id: Id,
            ) -> Result<Vec<f32>, NcclError> {
                let comm = Comm::from_rank(stream.clone(), rank, ranks, id)?;
                assert_eq!((comm.rank(), comm.world_size(), comm.ordinal()), (rank, ranks, rank));
                assert_eq!(*comm.stream(), *stream);
                assert_eq!(comm.context(), stream.context());
                let mine = stream.clone_htod(&vec![rank as f32 + 1.0; 4]).unwrap();
                let mut result = stream.alloc_zeros::<f32>(4).unwrap();
                let mut all = stream.alloc_zeros::<f32>(4 * ranks).unwrap();
                let mut seen = Vec::new();
                comm.all_reduce(&mine, &mut result, &ReduceOp::Sum)?;
                seen.extend(stream.clone_dtoh(&result).unwrap());
                comm.all_reduce_in_place(&mut result, &ReduceOp::Prod)?;
                seen.extend(stream.clone_dtoh(&result).unwrap());
                comm.all_gather(&mine, &mut all)?;
                seen.extend(stream.clone_dtoh(&all).unwrap());
                comm.reduce_scatter(&all.slice(0..2 * ranks), &mut result.slice_mut(1..3), &ReduceOp::Max)?;
                seen.extend(stream.clone_dtoh(&result).unwrap());
                comm.reduce(&mine, Some(&mut result), &ReduceOp::Min, 1)?;
                comm.reduce_in_place(&mut result, &ReduceOp::Sum, 0)?;
                seen.extend(stream.clone_dtoh(&result).unwrap());
                comm.broadcast(Some(&mine), &mut result, 1)?;
                comm.broadcast_in_place(&mut result, 0)?;
                seen.extend(stream.clone_dtoh(&result).unwrap());
                if rank == 0 {
                    comm.send(&mine, 1)?;
                } else if rank == 1 {
                    comm.recv(&mut result, 0)?;
                }
                seen.extend(stream.clone_dtoh(&result).unwrap());
                stream.synchronize().unwrap();
                Ok(seen)
            }

            pub fn of_rank(number: usize, ranks: usize, id: Id) -> Vec<f32> {
                let stream = CudaContext::new(number).unwrap().new_stream().unwrap();
                rank(stream, number, ranks, id).unwrap_or_else(|error| panic!("{:?}", error.0))
            }

            pub fn of_devices(ranks: usize) -> Result<Vec<Vec<f32>>, NcclError> {
                let streams: Vec<_> =
                    (0..ranks).map(|rank| CudaContext::new(rank).unwrap().default_stream()).collect();
                let comms = Comm::from_devices(streams.clone())?;
                let mut buffers: Vec<_> = streams
                    .iter()
                    .enumerate()
                    .map(|(rank, stream)| stream.clone_htod(&[rank as f32, 2.0]).unwrap())
                    .collect();
                group_start()?;
                for (comm, buffer) in comms.iter().zip(&mut buffers) {
                    comm.all_reduce_in_place(buffer, &ReduceOp::Avg)?;
                }
                group_end()?;
                Ok(streams
                    .iter()
                    .zip(&buffers)
                    .map(|(stream, buffer)| stream.clone_dtoh(buffer).unwrap())
                    .collect())
            }
        }
    };
}

program!(
    cudarcs,
    cudarc::nccl::Comm,
    cudarc::nccl::ReduceOp,
    cudarc::nccl::group_start,
    cudarc::nccl::group_end
);
program!(
    ours,
    commtrace_collectives::nccl::Comm,
    commtrace_collectives::nccl::ReduceOp,
    commtrace_collectives::nccl::group_start,
    commtrace_collectives::nccl::group_end
);
// Code that keeps cudarc's reductions.
program!(
    mixed,
    commtrace_collectives::nccl::Comm,
    cudarc::nccl::ReduceOp,
    commtrace_collectives::nccl::group_start,
    commtrace_collectives::nccl::group_end
);

fn threads(ranks: usize, rank: fn(usize, usize, Id) -> Vec<f32>) -> Vec<Vec<f32>> {
    let id = Id::new().unwrap();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..ranks).map(|number| scope.spawn(move || rank(number, ranks, id))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn ranks_get_what_cudarc_gives_them() {
    in_child("drop_in::ranks_get_what_cudarc_gives_them", &[DEVICES], || {
        let expected = threads(3, cudarcs::of_rank);
        assert_eq!(expected[0][..4], [6.0; 4]);
        assert_eq!(threads(3, ours::of_rank), expected);
        assert_eq!(threads(3, mixed::of_rank), expected);
    });
}

#[test]
fn devices_of_one_thread_get_what_cudarc_gives_them() {
    in_child("drop_in::devices_of_one_thread_get_what_cudarc_gives_them", &[DEVICES], || {
        let expected = cudarcs::of_devices(4).unwrap();
        assert_eq!(expected[3], [1.5, 2.0]);
        assert_eq!(ours::of_devices(4).unwrap(), expected);
        assert_eq!(mixed::of_devices(4).unwrap(), expected);
    });
}
