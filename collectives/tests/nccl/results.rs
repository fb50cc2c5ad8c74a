//! Every operation against a naive version, by the operations that all backends share.

use commtrace_collectives::nccl::{ReduceOp, version};
use commtrace_collectives::{Communicator, NcclComm, Result};
use double_support::in_child;
use half::{bf16, f16};

use crate::common::Sample;
use crate::common::operations::{self, Agree};
use crate::job::{self, DEVICES};

/// Lengths: empty, one, odd, and more than a message's worth.
const LENGTHS: [usize; 4] = [0, 1, 7, 40_001];

fn all_of<T: Sample>() {
    for ranks in [1, 2, 3] {
        for result in job::ranks(ranks, |comm| all_of_rank::<T>(&comm)) {
            result.unwrap();
        }
    }
}

fn all_of_rank<T: Sample>(comm: &NcclComm) -> Result<()> {
    for len in LENGTHS {
        operations::reductions::<T>(comm, len, Agree::UpToRounding)?;
        operations::moves::<T>(comm, len)?;
    }
    Ok(())
}

macro_rules! of_types {
    ($($name:ident: $type:ty),*) => {
        $(
            #[test]
            fn $name() {
                let name = concat!("results::", stringify!($name));
                in_child(name, &[DEVICES], all_of::<$type>);
            }
        )*
    };
}

of_types!(
    all_operations_of_f32: f32,
    all_operations_of_f64: f64,
    all_operations_of_f16: f16,
    all_operations_of_bf16: bf16,
    all_operations_of_i32: i32,
    all_operations_of_i64: i64,
    all_operations_of_u8: u8
);

/// What NCCL has and the shared operations have not.
#[test]
fn types_that_only_nccl_has() {
    in_child("results::types_that_only_nccl_has", &[DEVICES], || {
        job::ranks(2, |comm| {
            let stream = comm.stream();
            let mut signed = stream.clone_htod(&[-3_i8, comm.rank() as i8]).unwrap();
            comm.all_reduce_in_place(&mut signed, &ReduceOp::Sum).unwrap();
            assert_eq!(stream.clone_dtoh(&signed).unwrap(), [-6, 1]);
            let mut words = stream.clone_htod(&[7_u32 << comm.rank(), 5]).unwrap();
            comm.all_reduce_in_place(&mut words, &ReduceOp::Max).unwrap();
            assert_eq!(stream.clone_dtoh(&words).unwrap(), [14, 5]);
            let mut long = stream.clone_htod(&[u64::MAX - comm.rank() as u64]).unwrap();
            comm.all_reduce_in_place(&mut long, &ReduceOp::Min).unwrap();
            assert_eq!(stream.clone_dtoh(&long).unwrap(), [u64::MAX - 1]);
        });
    });
}

#[test]
fn all_to_all_of_a_library_without_it() {
    let name = "results::all_to_all_of_a_library_without_it";
    in_child(name, &[DEVICES, ("DOUBLE_NCCL_MISSING", "ncclAlltoAll")], || {
        assert!(version().unwrap() > (2, 0, 0));
        for ranks in [1, 2, 3] {
            let results = job::ranks(ranks, |comm| {
                LENGTHS.iter().try_for_each(|len| operations::moves::<f32>(&comm, *len))
            });
            results.into_iter().collect::<Result<Vec<_>>>().unwrap();
        }
    });
}

#[test]
fn split_makes_communicators_of_their_own() {
    in_child("results::split_makes_communicators_of_their_own", &[DEVICES], || {
        let parts = job::ranks(4, |world| {
            // In reverse order within each part.
            let part = world.split(world.rank() as u32 % 2, 9 - world.rank() as u32).unwrap();
            assert_eq!(part.name(), format!("{}/{}", world.name(), world.rank() % 2));
            let again = part.split(0, 0).unwrap();
            assert_eq!(again.name(), format!("{}/0", part.name()));
            let mine = part.alloc_from(&[world.rank() as i32]).unwrap();
            let mut all = part.alloc_zeros(2).unwrap();
            Communicator::all_gather(&part, &mine, &mut all).unwrap();
            assert_eq!(part.global_rank(), world.global_rank());
            part.to_vec(&all).unwrap()
        });
        assert_eq!(parts, [[2, 0], [3, 1], [2, 0], [3, 1]]);
    });
}

#[test]
fn a_raw_communicator_changes_hands() {
    in_child("results::a_raw_communicator_changes_hands", &[DEVICES], || {
        job::ranks(2, |comm| {
            let (stream, rank) = (comm.stream(), comm.rank());
            let raw = comm.into_raw();
            // SAFETY: it was this library's and is nobody's.
            let comm = unsafe { NcclComm::from_raw(raw, stream, "taken over") }.unwrap();
            assert_eq!((comm.rank(), comm.world_size(), comm.name()), (rank, 2, "taken over"));
            assert_eq!(comm.as_raw(), raw);
            operations::moves::<i32>(&comm, 5).unwrap();
        });
    });
}
