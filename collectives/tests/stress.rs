//! Many small calls, from many threads, of every kind: nothing is lost, mixed up or stuck.
//!
//! These and the other tests are made for Miri and ThreadSanitizer, too (nightly, with `miri` and `rust-src`):
//!
//!     MIRIFLAGS="-Zmiri-ignore-leaks -Zmiri-disable-isolation" \
//!         cargo +nightly miri test -p commtrace-collectives --test stress
//!     RUSTFLAGS=-Zsanitizer=thread cargo +nightly test -Zbuild-std \
//!         --target x86_64-unknown-linux-gnu -p commtrace-collectives --test stress

use commtrace_collectives::{Communicator, Group, LocalComm, Pending, ReduceOp};

const SUM: ReduceOp = ReduceOp::Sum;

fn rounds(native: usize) -> usize {
    if cfg!(miri) { native / 500 + 2 } else { native }
}

/// The same on all ranks, different in every round.
fn dice(round: usize) -> usize {
    let mut x = round as u64 + 1;
    for _ in 0..3 {
        x = x.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        x ^= x >> 29;
    }
    x as usize
}

#[test]
fn many_small_calls() {
    for ranks in [2, 4, 7] {
        let rounds = rounds(4000);
        LocalComm::run(ranks, |comm| {
            let me = comm.rank();
            for round in 0..rounds {
                let dice = dice(round);
                let (len, root) = (dice % 50, dice / 64 % ranks);
                let mine = vec![(me + round) as i64; len];
                let sum = (ranks * round + ranks * (ranks - 1) / 2) as i64;
                match dice / 1024 % 6 {
                    0 => {
                        let mut buffer = mine;
                        comm.all_reduce_in_place(&mut buffer, &SUM).unwrap();
                        assert_eq!(buffer, vec![sum; len]);
                    }
                    1 => {
                        let mut buffer = mine;
                        comm.broadcast_in_place(&mut buffer, root).unwrap();
                        assert_eq!(buffer, vec![(root + round) as i64; len]);
                    }
                    2 => {
                        let mut all = vec![0; len * ranks];
                        comm.all_gather(&mine, &mut all).unwrap();
                        for (rank, value) in all.iter().enumerate().map(|(i, value)| (i / len, value)) {
                            assert_eq!(*value, (rank + round) as i64);
                        }
                    }
                    3 => {
                        let buffer = comm.all_reduce_in_place_async(mine, &SUM).wait().unwrap();
                        assert_eq!(buffer, vec![sum; len]);
                    }
                    4 => {
                        let left = (me + ranks - 1) % ranks;
                        let mut received = vec![0; len];
                        comm.group(|g| {
                            g.send(&mine, (me + 1) % ranks)?;
                            g.recv(&mut received, left)
                        })
                        .unwrap();
                        assert_eq!(received, vec![(left + round) as i64; len]);
                    }
                    _ => comm.barrier().unwrap(),
                }
            }
        });
    }
}

/// Handles are waited for late, dropped or leaked by chance of rank and round.
#[test]
fn many_pending_calls() {
    LocalComm::run(4, |comm| {
        let mut open: Vec<(usize, Pending<Vec<f32>>)> = Vec::new();
        for round in 0..rounds(3000) {
            let len = 1 + dice(round) % 30;
            let pending = comm.all_reduce_in_place_async(vec![round as f32; len], &SUM);
            match (dice(round) / 64 + comm.rank()) % 5 {
                0 => drop(pending),
                1 if !cfg!(miri) => std::mem::forget(pending),
                _ => open.push((round, pending)),
            }
            if open.len() > 16 {
                for (round, pending) in open.drain(..) {
                    assert!(pending.wait().unwrap().iter().all(|value| *value == 4.0 * round as f32));
                }
            }
        }
    });
}

/// Large enough to be cut: all ranks read and write one another's buffers, which are freed right after.
#[test]
fn short_lived_buffers() {
    let len = if cfg!(miri) { 300 } else { 200_000 };
    LocalComm::run(4, |comm| {
        for round in 0..rounds(200) {
            let send = vec![round as u8; len];
            let mut recv = vec![0; len];
            comm.all_reduce(&send, &mut recv, &ReduceOp::Max).unwrap();
            drop(send);
            assert!(recv.iter().all(|value| *value == round as u8));
            let failed = comm.all_reduce(&recv, &mut vec![0; len - comm.rank()], &SUM);
            assert!(failed.is_err());
        }
    });
}

/// Worlds come and go, and with them their communication threads; some ranks leave early.
#[test]
fn many_worlds() {
    let len = if cfg!(miri) { 100 } else { 20_000 };
    for round in 0..rounds(300) {
        LocalComm::run(3, |comm| {
            let leaves = dice(round) % 4 == comm.rank();
            let first = comm.all_reduce_in_place_async(vec![1; len], &SUM);
            if leaves {
                return;
            }
            let part = comm.split(0, 0);
            if let Ok(part) = part {
                assert!(part.barrier().is_ok());
            }
            assert_eq!(first.wait().unwrap(), vec![3; len]);
        });
    }
}
