//! `MpiComm`, as processes under `mpirun`: results, spans and errors against those of `LocalComm`.
#![cfg(feature = "mpi")]

mod common;

use std::time::{Duration, Instant, SystemTime};

use common::capture::Capture;
use common::operations::{self, Agree};
use common::{Sample, under_mpirun, values};
use commtrace_collectives::{Communicator, Error, Group, LocalComm, MpiComm, ReduceOp, Result};
use half::{bf16, f16};
use tracing::Dispatch;
use tracing_subscriber::layer::SubscriberExt;

const SUM: ReduceOp = ReduceOp::Sum;

fn world() -> MpiComm {
    MpiComm::world().expect("a world")
}

fn every_reduction(comm: &MpiComm) {
    fn all<T: Sample>(comm: &MpiComm, agree: Agree) {
        for len in [0, 1, 7, 1001] {
            operations::reductions::<T>(comm, len, agree).unwrap();
        }
    }
    all::<f32>(comm, Agree::UpToRounding);
    all::<f64>(comm, Agree::UpToRounding);
    all::<f16>(comm, Agree::UpToRounding);
    all::<bf16>(comm, Agree::UpToRounding);
    all::<i32>(comm, Agree::Exactly);
    all::<i64>(comm, Agree::Exactly);
    all::<u8>(comm, Agree::Exactly);
}

#[test]
fn every_reduction_of_every_type() {
    under_mpirun::ranks("every_reduction_of_every_type", 4, || every_reduction(&world()));
}

#[test]
fn a_single_rank_reduces_with_itself() {
    under_mpirun::ranks("a_single_rank_reduces_with_itself", 1, || every_reduction(&world()));
}

#[test]
fn moves_of_every_element_size() {
    under_mpirun::ranks("moves_of_every_element_size", 3, || {
        let comm = world();
        for len in [0, 1, 7, 66_003] {
            operations::moves::<u8>(&comm, len).unwrap();
            operations::moves::<bf16>(&comm, len).unwrap();
            operations::moves::<f32>(&comm, len).unwrap();
            operations::moves::<i64>(&comm, len).unwrap();
        }
        operations::all_to_all_v(&comm, &[0, 1, 1000, 70_001, 0]).unwrap();
    });
}

/// The same with MPI's counts so small that everything is cut, which no buffer of a test could bring about.
#[test]
fn buffers_beyond_what_mpi_counts_are_moved_in_pieces() {
    under_mpirun::ranks("buffers_beyond_what_mpi_counts_are_moved_in_pieces", 3, || {
        let comm = MpiComm::builder().max_count(5).world().unwrap();
        for len in [1, 5, 6, 23] {
            operations::reductions::<f32>(&comm, len, Agree::UpToRounding).unwrap();
            operations::reductions::<f16>(&comm, len, Agree::UpToRounding).unwrap();
            operations::reductions::<i64>(&comm, len, Agree::Exactly).unwrap();
            operations::moves::<f64>(&comm, len).unwrap();
        }
    });
}

#[test]
fn without_checks_the_results_are_the_same() {
    under_mpirun::ranks("without_checks_the_results_are_the_same", 2, || {
        let comm = MpiComm::builder().checks(false).world().unwrap();
        operations::reductions::<i32>(&comm, 100, Agree::Exactly).unwrap();
        operations::moves::<f32>(&comm, 100).unwrap();
        operations::all_to_all_v(&comm, &[0, 1, 1000]).unwrap();
        let error = comm.all_reduce(&[1.0_f32; 2], &mut [0.0; 3], &SUM).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
    });
}

/// Weights that are trained in parallel stay equal only if every rank gets the same bits.
#[test]
fn floating_point_sums_are_bit_identical_on_all_ranks() {
    under_mpirun::ranks("floating_point_sums_are_bit_identical_on_all_ranks", 4, || {
        let comm = world();
        for len in [1, 10, 1000, 100_003] {
            let mut sum = values::<f32>(comm.rank(), len);
            comm.all_reduce_in_place(&mut sum, &ReduceOp::Avg).unwrap();
            let bits: Vec<i32> = sum.iter().map(|value| value.to_bits() as i32).collect();
            let (mut lowest, mut highest) = (bits.clone(), bits);
            comm.all_reduce_in_place(&mut lowest, &ReduceOp::Min).unwrap();
            comm.all_reduce_in_place(&mut highest, &ReduceOp::Max).unwrap();
            assert_eq!(lowest, highest, "{len} elements");
        }
    });
}

#[test]
fn nan_loses_against_numbers() {
    under_mpirun::ranks("nan_loses_against_numbers", 4, || {
        let comm = world();
        let me = comm.rank();
        let mine =
            [f32::NAN, if me == 2 { -1.5 } else { f32::NAN }, if me.is_multiple_of(2) { -0.0 } else { 0.0 }];
        for (op, number, negative) in [(ReduceOp::Min, -1.5, true), (ReduceOp::Max, -1.5, false)] {
            let mut result = mine;
            comm.all_reduce_in_place(&mut result, &op).unwrap();
            assert!(result[0].is_nan() && result[1] == number, "{op}: {result:?}");
            assert_eq!(result[2].is_sign_negative(), negative, "{op}");
            let mut half = mine.map(f16::from_f32);
            comm.all_reduce_in_place(&mut half, &op).unwrap();
            assert_eq!(half[1], f16::from_f32(number));
        }
    });
}

/// MPI is called in pieces where a buffer has to be staged: the ranks must cut alike, in place or not.
#[test]
fn in_place_on_some_ranks_and_larger_than_a_stage() {
    under_mpirun::ranks("in_place_on_some_ranks_and_larger_than_a_stage", 3, || {
        let comm = world();
        let (me, len) = (comm.rank(), (8 << 20) / size_of::<f32>() + 5);
        let mine = vec![me as f32 + 1.0; len];
        for root in [0, 2] {
            let mut sum = mine.clone();
            comm.reduce_in_place(&mut sum, &SUM, root).unwrap();
            assert!(me != root || sum == vec![6.0; len]);
            let mut sum = mine.clone();
            if me == root {
                comm.all_reduce_in_place(&mut sum, &SUM).unwrap();
            } else {
                comm.all_reduce(&mine, &mut sum, &SUM).unwrap();
            }
            assert!(sum == vec![6.0; len]);
        }
    });
}

/// How a rank makes a call. MPI's blocking functions do not match its non-blocking ones.
#[derive(Clone, Copy)]
enum Way {
    Blocking,
    NonBlocking,
    Grouped,
}

/// Both elements of `send` to both of `recv`, the sum over ranks.
fn all_reduce(comm: &MpiComm, way: Way, send: [i64; 2], recv: &mut [i64; 2]) -> Result<()> {
    match way {
        Way::Blocking => comm.all_reduce(&send, recv, &SUM),
        Way::NonBlocking => {
            let sum = comm.all_reduce_in_place_async(send.to_vec(), &SUM).wait()?;
            recv.copy_from_slice(&sum);
            Ok(())
        }
        Way::Grouped => {
            let (first, second) = recv.split_at_mut(1);
            comm.group(|g| {
                g.all_reduce(&send[..1], first, &SUM)?;
                g.all_reduce(&send[1..], second, &SUM)
            })
        }
    }
}

/// On a number of ranks that is no power of two: the agreement's last round is a short one.
#[test]
fn ranks_may_make_a_call_in_different_ways() {
    under_mpirun::ranks("ranks_may_make_a_call_in_different_ways", 5, || {
        let comm = world();
        let me = comm.rank();
        for round in 0..60 {
            // In every other round all make it blocking.
            let one_of_three = round % 2 == 0 && (me + round).is_multiple_of(3);
            let way = if one_of_three { Way::NonBlocking } else { Way::Blocking };
            let mut sum = [0; 2];
            all_reduce(&comm, way, [me as i64, round as i64], &mut sum).unwrap();
            assert_eq!(sum, [10, 5 * round as i64], "round {round}");
            // As two calls of one element: in a group on one rank, one by one on the others.
            if me == round % 5 {
                all_reduce(&comm, Way::Grouped, [1, me as i64], &mut sum).unwrap();
            } else {
                let (first, second) = sum.split_at_mut(1);
                comm.all_reduce(&[1], first, &SUM).unwrap();
                comm.all_reduce(&[me as i64], second, &SUM).unwrap();
            }
            assert_eq!(sum, [5, 10], "round {round}");
            comm.barrier().unwrap();
        }
    });
}

/// The agreement is also what makes a barrier.
#[test]
fn nobody_leaves_a_barrier_before_the_last_rank_has_come() {
    under_mpirun::ranks("nobody_leaves_a_barrier_before_the_last_rank_has_come", 3, || {
        let comm = world();
        for round in 0..9_usize {
            // The launcher's ranks share a host and its clock.
            if comm.rank() == round % 3 {
                std::thread::sleep(Duration::from_millis(20));
            }
            let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros() as i64;
            let came = now();
            comm.barrier().unwrap();
            let left = now();
            let (mut last_to_come, mut first_to_leave) = ([came], [left]);
            comm.all_reduce_in_place(&mut last_to_come, &ReduceOp::Max).unwrap();
            comm.all_reduce_in_place(&mut first_to_leave, &ReduceOp::Min).unwrap();
            assert!(last_to_come <= first_to_leave, "round {round}: {last_to_come:?} {first_to_leave:?}");
        }
    });
}

/// A program that makes every kind of call.
fn program(comm: &impl Communicator) -> Result<()> {
    let me = comm.rank();
    let (short, long) = (comm.alloc_from(&[1.0_f32; 8])?, comm.alloc_from(&[1.0_f32; 32])?);
    let (mut small, mut large, mut ten) =
        (comm.alloc_zeros(8)?, comm.alloc_zeros(32)?, comm.alloc_zeros(10)?);
    comm.all_reduce(&short, &mut small, &SUM)?;
    comm.reduce(&short, (me == 2).then_some(&mut *small), &SUM, 2)?;
    comm.broadcast((me == 3).then_some(&*short), &mut small, 3)?;
    comm.all_gather(&short, &mut large)?;
    comm.reduce_scatter(&long, &mut small, &ReduceOp::Avg)?;
    comm.all_to_all(&long, &mut large)?;
    comm.all_to_all_v(&long, &[me + 1; 4], &mut ten, &[1, 2, 3, 4])?;
    let mut message = comm.alloc_from(&[0_i64; 5])?;
    if me == 1 {
        comm.send(&message, 2)?;
    } else if me == 2 {
        comm.recv(&mut message, 1)?;
    }
    let pending = comm.all_reduce_in_place_async(comm.alloc_from(&[bf16::ONE; 8])?, &SUM);
    let mut from_left = comm.alloc_zeros::<f32>(8)?;
    comm.group(|g| {
        g.all_reduce_in_place(&mut small, &SUM)?;
        g.send(&short, (me + 1) % 4)?;
        g.recv(&mut from_left, (me + 3) % 4)
    })?;
    pending.wait()?;
    comm.barrier()
}

/// Name and fields of a rank's spans.
fn fields(capture: &Capture, rank: u32) -> Vec<String> {
    let spans = capture.of_rank(rank);
    assert!(
        spans.iter().all(|seen| seen.entered_on.len() == 1 && seen.exits == 1 && seen.closed),
        "{spans:?}"
    );
    spans.iter().map(|seen| format!("{} {:?}", seen.name, seen.fields)).collect()
}

#[test]
fn spans_are_those_of_a_local_communicator() {
    under_mpirun::ranks("spans_are_those_of_a_local_communicator", 4, || {
        let comm = world();
        let (under_mpi, local) = (Capture::default(), Capture::default());
        let dispatch = Dispatch::new(tracing_subscriber::registry().with(under_mpi.clone()));
        tracing::dispatcher::with_default(&dispatch, || program(&comm)).unwrap();
        let results = local.run(LocalComm::builder(4).name("world"), |comm| program(&comm));
        results.into_iter().collect::<Result<Vec<_>>>().unwrap();
        let rank = comm.global_rank();
        assert_eq!(fields(&under_mpi, rank), fields(&local, rank));
        assert_eq!(under_mpi.all().len(), under_mpi.of_rank(rank).len(), "no span of another rank");
    });
}

#[test]
fn split_communicators_have_names_and_global_ranks() {
    under_mpirun::ranks("split_communicators_have_names_and_global_ranks", 4, || {
        let comm = world();
        let me = comm.rank() as u32;
        // Reversed order within each half.
        let half = comm.split(me % 2, 10 - me).unwrap();
        let expected = if me.is_multiple_of(2) { [2, 0] } else { [3, 1] };
        assert_eq!((half.name(), half.global_ranks()), (&*format!("world/{}", me % 2), &expected[..]));
        assert_eq!(half.global_rank(), me);
        let mut sum = [me as i32];
        half.all_reduce_in_place(&mut sum, &SUM).unwrap();
        assert_eq!(sum[0], expected.iter().sum::<u32>() as i32);
        let again = half.split(7, 0).unwrap();
        assert_eq!(again.name(), format!("world/{}/7", me % 2));
        drop(half);
        let third = comm.split(0, me).unwrap();
        assert_eq!((third.name(), third.global_ranks()), ("world/0.1", &[0, 1, 2, 3][..]));
        let second = world();
        assert_eq!(second.name(), "world#1");
        again.barrier().unwrap();
        second.barrier().unwrap();
    });
}

/// Runs `call` on the job and on threads: errors must be the same, and the communicator usable afterwards.
fn fails_alike(
    comm: &MpiComm,
    mpi: impl Fn(&MpiComm) -> Result<()>,
    local: impl Fn(&LocalComm) -> Result<()> + Sync,
) {
    // The same number of calls before, hence the same `seq`.
    let error = mpi(comm).expect_err("the call must fail");
    let expected =
        LocalComm::builder(comm.size()).name(comm.name()).run(|one| local(&one).expect_err("as well"));
    let without_seq = |error: &Error| {
        let text = error.to_string();
        let (before, after) = text.split_once("seq ").map_or((text.as_str(), ""), |(before, after)| {
            (before, after.trim_start_matches(|c: char| c.is_ascii_digit()))
        });
        format!("{before}{after}")
    };
    assert_eq!(without_seq(&error), without_seq(&expected[comm.rank()]));
    let mut one = [1];
    comm.all_reduce_in_place(&mut one, &SUM).expect("still usable");
    assert_eq!(one[0], comm.size() as i32);
}

macro_rules! fails_alike {
    ($world:expr, |$comm:ident| $call:expr) => {
        fails_alike($world, |$comm| $call, |$comm| $call)
    };
}

#[test]
fn disagreements_are_the_same_errors_on_every_rank() {
    under_mpirun::ranks("disagreements_are_the_same_errors_on_every_rank", 4, || {
        let world = &world();
        fails_alike!(world, |comm| match comm.rank() {
            1 => comm.barrier(),
            _ => comm.all_reduce_in_place(&mut [0.0_f32; 4], &SUM),
        });
        fails_alike!(world, |comm| {
            comm.all_reduce_in_place(&mut vec![0.0_f32; if comm.rank() == 2 { 5 } else { 4 }], &SUM)
        });
        fails_alike!(world, |comm| match comm.rank() {
            0 => comm.all_reduce_in_place(&mut [0.0_f32; 4], &SUM),
            _ => comm.all_reduce_in_place(&mut [0_i32; 4], &SUM),
        });
        fails_alike!(world, |comm| {
            let op = if comm.rank() == 3 { ReduceOp::Max } else { ReduceOp::Min };
            comm.all_reduce_in_place(&mut [0.0_f32; 4], &op)
        });
        fails_alike!(world, |comm| comm.broadcast_in_place(&mut [0_u8; 4], comm.rank() % 2));
        fails_alike!(world, |comm| comm
            .broadcast_in_place(&mut [0_u8; 4], if comm.rank() == 1 { 9 } else { 0 }));
        fails_alike!(world, |comm| comm.all_reduce(&[0_u8; 4], &mut vec![0; 4 + comm.rank() / 2], &SUM));
        fails_alike!(world, |comm| comm.reduce(&[0_u8; 4], None, &SUM, 1));
        fails_alike!(world, |comm| comm.all_to_all(&[0_u8; 5], &mut [0; 5]));
        fails_alike!(world, |comm| {
            let counts = if comm.rank() == 2 { [1, 1, 1, 2] } else { [1; 4] };
            comm.all_to_all_v(&[0_u8; 5], &counts, &mut [0; 4], &[1; 4])
        });
        fails_alike!(world, |comm| comm.all_to_all_v(&[0_u8; 2], &[1; 4], &mut [0; 4], &[1; 4]));
        fails_alike!(world, |comm| match comm.rank() {
            0 => comm.send(&[0_u8; 4], 1),
            1 => comm.recv(&mut [0_u8; 5], 0),
            2 => comm.recv(&mut [0_i32; 5], 3),
            _ => comm.send(&[0_f32; 5], 2),
        });
        fails_alike!(world, |comm| comm.send(&[0_u8], 4));
        fails_alike!(world, |comm| comm.recv(&mut [0_u8], comm.rank()));
        fails_alike!(world, |comm| comm
            .all_reduce_in_place_async(vec![1_u8; 1 + comm.rank() / 3], &SUM)
            .wait()
            .map(drop));
    });
}

/// Rank 2 computes on and never makes the call. The job then ends without MPI_Finalize, so each rank ends
/// its process as soon as all have seen the error.
#[test]
fn who_does_not_come_is_named() {
    const NAME: &str = "who_does_not_come_is_named";
    if std::env::var_os("COMMTRACE_TEST_IN_MPI_JOB").is_none() {
        under_mpirun_reports(NAME, 4, "late: [2]", 3);
        return;
    }
    let comm = MpiComm::builder().timeout(Duration::from_secs(2)).world().unwrap();
    let first = comm.barrier();
    assert_eq!(first, Ok(()));
    if comm.rank() == 2 {
        std::thread::sleep(Duration::from_secs(20));
    } else {
        let error = comm.all_reduce_in_place(&mut [1.0_f32; 10], &SUM).unwrap_err();
        let Error::Timeout { missing, .. } = &error else { panic!("{error}") };
        println!("late: {missing:?}");
        let broken = comm.barrier().unwrap_err();
        assert!(matches!(broken, Error::Broken { .. }), "{broken}");
        // So that the launcher does not end the others before they have seen it, too.
        std::thread::sleep(Duration::from_secs(10));
    }
}

/// As [`under_mpirun::ranks`], for a job that may end badly but prints `line` on `count` ranks.
fn under_mpirun_reports(name: &str, ranks: usize, line: &str, count: usize) {
    if !under_mpirun::is_here() {
        return;
    }
    let mut command = under_mpirun::mpirun(ranks);
    command.env("COMMTRACE_TEST_IN_MPI_JOB", "1").arg(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    let output = under_mpirun::finish(command);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.matches(line).count(), count, "{}", under_mpirun::shown(&output));
}

/// Splits, groups and non-blocking calls on several communicators and threads at once.
#[test]
fn communicators_are_independent() {
    under_mpirun::ranks("communicators_are_independent", 4, || {
        let comm = world();
        let me = comm.rank() as u32;
        let (rows, columns) = (comm.split(me / 2, me).unwrap(), comm.split(me % 2, me).unwrap());
        std::thread::scope(|scope| {
            for (comm, ranks) in [(&rows, 2), (&columns, 2), (&comm, 4)] {
                scope.spawn(move || {
                    for round in 0..200 {
                        let pending = comm.all_reduce_in_place_async(vec![round; 100], &SUM);
                        let mut more = [1_i64; 3];
                        comm.all_reduce_in_place(&mut more, &SUM).unwrap();
                        assert_eq!((pending.wait().unwrap()[7], more[0]), (round * ranks, i64::from(ranks)));
                    }
                });
            }
        });
    });
}

/// After a message that was given up, MPI is not ended and the launcher complains: what counts is what the ranks
/// print.
#[test]
fn bytes_of_any_number_arrive_and_waiting_for_them_has_an_end() {
    const NAME: &str = "bytes_of_any_number_arrive_and_waiting_for_them_has_an_end";
    if std::env::var_os("COMMTRACE_TEST_IN_MPI_JOB").is_none() {
        under_mpirun_reports(NAME, 2, "as it should be", 2);
        return;
    }
    let comm = world();
    let later = Instant::now() + Duration::from_secs(100);
    for length in [0, 1, 5000, 300_000] {
        let message: Vec<u8> = (0..length).map(|index| index as u8).collect();
        if comm.rank() == 0 {
            comm.send_bytes(&message, 1, later).unwrap();
        } else {
            assert_eq!(comm.receive_bytes(0, later).unwrap(), message);
        }
    }
    if comm.rank() == 0 {
        let error = comm.receive_bytes(1, Instant::now() + Duration::from_millis(100)).unwrap_err();
        assert!(matches!(&error, Error::Timeout { missing, .. } if *missing == [1]), "{error}");
    }
    println!("rank {}: as it should be", comm.rank());
    // So that the launcher does not end the other before it has come here.
    std::thread::sleep(Duration::from_secs(5));
}

/// An application that has started MPI itself, at the lowest level.
#[test]
fn a_communicator_of_the_crate_mpi_can_be_used() {
    use mpi::traits::Communicator as _;
    under_mpirun::ranks("a_communicator_of_the_crate_mpi_can_be_used", 2, || {
        let universe = mpi::initialize().expect("not yet initialized");
        let theirs = universe.world();
        let comm = MpiComm::builder().name("app").from_communicator(&theirs).unwrap();
        assert_eq!((comm.name(), comm.rank() as i32), ("app", theirs.rank()));
        operations::reductions::<f32>(&comm, 10, Agree::UpToRounding).unwrap();
        drop(universe);
        let error = comm.barrier().unwrap_err();
        assert!(error.to_string().contains("MPI has been finalized"), "{error}");
    });
}
