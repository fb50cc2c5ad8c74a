//! Calls that are started together.

use commtrace_collectives::{Communicator, Error, Group, LocalComm, ReduceOp, Result};

const SUM: ReduceOp = ReduceOp::Sum;

#[test]
fn rings_in_both_directions() {
    for ranks in 1..=5 {
        for len in [0, 3, if cfg!(miri) { 100 } else { 50_000 }] {
            LocalComm::run(ranks, |comm| {
                let (me, right, left) =
                    (comm.rank(), (comm.rank() + 1) % ranks, (comm.rank() + ranks - 1) % ranks);
                let mine = vec![me as i32; len];
                let (mut from_left, mut from_right) = (vec![-1; len], vec![-1; len]);
                comm.group(|g| {
                    g.send(&mine, right)?;
                    g.recv(&mut from_left, left)?;
                    g.send(&mine, left)?;
                    g.recv(&mut from_right, right)
                })
                .unwrap();
                assert_eq!(from_left, vec![left as i32; len]);
                assert_eq!(from_right, vec![right as i32; len]);
            });
        }
    }
}

/// all_to_all as NCCL's documentation writes it: a send and a receive per peer, oneself included.
#[test]
fn all_to_all_of_sends_and_receives() {
    LocalComm::run(4, |comm| {
        let send: Vec<i32> = (0..4).map(|to| (comm.rank() * 10 + to) as i32).collect();
        let mut recv = [0; 4];
        comm.group(|g| {
            for (to, value) in send.chunks(1).enumerate() {
                g.send(value, to)?;
            }
            for (from, value) in recv.chunks_mut(1).enumerate() {
                g.recv(value, from)?;
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(recv, [0, 1, 2, 3].map(|from| from * 10 + comm.rank() as i32));
    });
}

/// Each rank waits for calls that come last in another rank's group.
#[test]
fn the_order_within_a_group_does_not_matter_across_peers() {
    for len in [1, if cfg!(miri) { 100 } else { 40_000 }] {
        LocalComm::run(4, |comm| {
            let me = comm.rank();
            let mine = vec![me as i32; len];
            let mut received = vec![vec![0; len]; 4];
            comm.group(|g| {
                let peers = (0..4).map(|step| (me * 3 + step * if me % 2 == 0 { 1 } else { 3 }) % 4);
                let mut buffers: Vec<_> = received.iter_mut().map(Some).collect();
                for peer in peers {
                    if me % 3 == 0 {
                        g.send(&mine, peer)?;
                    }
                    if let Some(buffer) = buffers[peer].take() {
                        g.recv(buffer, peer)?;
                    }
                    if me % 3 != 0 {
                        g.send(&mine, peer)?;
                    }
                }
                Ok(())
            })
            .unwrap();
            for (peer, received) in received.iter().enumerate() {
                assert_eq!(*received, vec![peer as i32; len]);
            }
        });
    }
}

#[test]
fn collectives_and_messages_together() {
    let len = if cfg!(miri) { 50 } else { 30_000 };
    LocalComm::run(3, |comm| {
        let me = comm.rank();
        let mine = vec![me as f64; len];
        let (mut sum, mut largest, mut left) = (vec![0.0; len], vec![me as f64; len], vec![0.0; len]);
        let mut gathered = vec![0.0; 3 * len];
        let got = comm
            .group(|g| {
                g.all_reduce(&mine, &mut sum, &SUM)?;
                g.send(&mine, (me + 1) % 3)?;
                g.all_reduce_in_place(&mut largest, &ReduceOp::Max)?;
                g.recv(&mut left, (me + 2) % 3)?;
                g.all_gather(&mine, &mut gathered)?;
                Ok("done")
            })
            .unwrap();
        assert_eq!(got, "done");
        assert_eq!(sum, vec![3.0; len]);
        assert_eq!(largest, vec![2.0; len]);
        assert_eq!(left, vec![((me + 2) % 3) as f64; len]);
        assert!(gathered.chunks(len).enumerate().all(|(rank, part)| part == vec![rank as f64; len]));
    });
}

#[test]
fn rooted_and_uneven_collectives_together() {
    LocalComm::run(3, |comm| {
        let me = comm.rank();
        let (mut at_one, mut at_two, mut from_two) = ([me as i32], [0], [me as i32]);
        let (mine, mut parts, mut scattered) = ([me as i32; 6], vec![-1; 3], [0; 2]);
        let mut exchanged = [0; 6];
        comm.group(|g| {
            g.reduce_in_place(&mut at_one, &SUM, 1)?;
            g.reduce(&mine[..1], (me == 2).then_some(&mut at_two[..]), &ReduceOp::Max, 2)?;
            g.broadcast((me == 2).then_some(&mine[..1]), &mut from_two, 2)?;
            g.all_to_all_v(&mine, &[me; 3], &mut parts, &[0, 1, 2])?;
            g.reduce_scatter(&mine, &mut scattered, &SUM)?;
            g.all_to_all(&mine, &mut exchanged)
        })
        .unwrap();
        assert_eq!(at_one, [if me == 1 { 3 } else { me as i32 }]);
        assert_eq!(at_two, [if me == 2 { 2 } else { 0 }]);
        assert_eq!((from_two, &*parts, scattered), ([2], &[1, 2, 2][..], [3; 2]));
        assert_eq!(exchanged, [0, 0, 1, 1, 2, 2]);
    });
}

/// One rank groups what the others call one by one.
#[test]
fn a_group_meets_single_calls() {
    LocalComm::run(2, |comm| {
        let (mut a, mut b) = ([1], [2]);
        if comm.rank() == 0 {
            comm.group(|g| {
                g.all_reduce_in_place(&mut a, &SUM)?;
                g.broadcast_in_place(&mut b, 0)
            })
            .unwrap();
        } else {
            comm.all_reduce_in_place(&mut a, &SUM).unwrap();
            let sum = comm.broadcast_in_place_async(vec![0], 0).wait().unwrap();
            b.copy_from_slice(&sum);
        }
        assert_eq!((a, b), ([2], [2]));
    });
}

#[test]
fn an_error_in_a_group_keeps_the_other_calls() {
    LocalComm::run(2, |comm| {
        let (mut good, mut bad) = ([1], vec![1; 1 + comm.rank()]);
        let error = comm
            .group(|g| {
                g.all_reduce_in_place(&mut bad, &SUM)?;
                g.all_reduce_in_place(&mut good, &SUM)
            })
            .unwrap_err();
        assert!(matches!(error, Error::Mismatch { .. }), "{error}");
        assert_eq!(good, [2]);
        comm.barrier().unwrap();
    });
}

/// The closure fails after its first call on one rank, which the other rank needs.
#[test]
fn calls_before_a_failing_closure_are_carried_out() {
    LocalComm::run(2, |comm| {
        let mut sum = [1];
        let result: Result<()> = comm.group(|g| {
            g.all_reduce_in_place(&mut sum, &SUM)?;
            if comm.rank() == 0 { g.send(&[1], 99) } else { Ok(()) }
        });
        assert_eq!(result.is_err(), comm.rank() == 0);
        assert_eq!(sum, [2]);
        comm.barrier().unwrap();
    });
}

#[test]
fn an_empty_group_does_nothing() {
    let comm = LocalComm::world(2).remove(0);
    assert_eq!(comm.group(|_| Ok(3)), Ok(3));
}
