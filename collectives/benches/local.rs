//! all_reduce of `LocalComm` beside what the memory can do.
//!
//! An all_reduce of S bytes on n ranks reads every rank's S bytes once and writes every rank's S bytes once,
//! which is what n copies of S bytes do; `memcpy` lets the n threads do just that. Throughput is S
//! over time (algbw) in both.
//!
//!     cargo bench -p commtrace-collectives

use std::thread;

use commtrace_collectives::{Communicator, LocalComm, ReduceOp, Result};
use divan::Bencher;
use divan::counter::BytesCount;

fn main() {
    divan::main();
}

const MIB: usize = 1 << 20;
const RANKS: [usize; 2] = [2, 4];
const SIZES: [usize; 3] = [MIB, 4 * MIB, 16 * MIB];

/// Measures `call` on rank 0 while the other ranks make the same calls, until rank 0 is gone.
fn measure(
    bencher: Bencher<'_, '_>,
    ranks: usize,
    bytes: usize,
    call: impl Fn(&LocalComm, &mut [f32], &mut [f32]) -> Result<()> + Sync,
) {
    let len = bytes / size_of::<f32>();
    let buffers = || (vec![1.0_f32; len], vec![0.0_f32; len]);
    let mut others = LocalComm::world(ranks);
    let comm = others.remove(0);
    thread::scope(|scope| {
        for other in others {
            let call = &call;
            scope.spawn(move || {
                let (mut send, mut recv) = buffers();
                while call(&other, &mut send, &mut recv).is_ok() {}
            });
        }
        let (mut send, mut recv) = buffers();
        bencher.counter(BytesCount::new(bytes)).bench_local(|| call(&comm, &mut send, &mut recv));
        drop(comm);
    });
}

#[divan::bench(args = SIZES, consts = RANKS)]
fn all_reduce<const RANKS: usize>(bencher: Bencher<'_, '_>, bytes: usize) {
    measure(bencher, RANKS, bytes, |comm, send, recv| comm.all_reduce(send, recv, &ReduceOp::Sum));
}

#[divan::bench(args = SIZES, consts = RANKS)]
fn all_reduce_in_place<const RANKS: usize>(bencher: Bencher<'_, '_>, bytes: usize) {
    measure(bencher, RANKS, bytes, |comm, send, _| comm.all_reduce_in_place(send, &ReduceOp::Max));
}

/// The floor of the above: the same traffic without arithmetic.
#[divan::bench(args = SIZES, consts = RANKS)]
fn memcpy<const RANKS: usize>(bencher: Bencher<'_, '_>, bytes: usize) {
    measure(bencher, RANKS, bytes, |comm, send, recv| {
        recv.copy_from_slice(divan::black_box(send));
        comm.barrier()
    });
}

/// What a call costs beside its payload.
#[divan::bench(consts = RANKS)]
fn latency_blocking<const RANKS: usize>(bencher: Bencher<'_, '_>) {
    measure(bencher, RANKS, 4, |comm, send, recv| comm.all_reduce(send, recv, &ReduceOp::Sum));
}

#[divan::bench(consts = RANKS)]
fn latency_nonblocking<const RANKS: usize>(bencher: Bencher<'_, '_>) {
    measure(bencher, RANKS, 4, |comm, send, _| {
        comm.all_reduce_in_place_async(send.to_vec(), &ReduceOp::Sum).wait().map(drop)
    });
}
