//! Sub-communicators.

use commtrace_collectives::{Communicator, LocalComm, ReduceOp};

const SUM: ReduceOp = ReduceOp::Sum;

/// 2 x 3: rows are tensor parallel, columns data parallel.
#[test]
fn a_grid_of_rows_and_columns() {
    LocalComm::builder(6).name("grid").run(|world| {
        let (row, column) = (world.rank() as u32 / 3, world.rank() as u32 % 3);
        let tp = world.split(row, column).unwrap();
        let dp = world.split(column, row).unwrap();
        assert_eq!((tp.size(), tp.rank()), (3, column as usize));
        assert_eq!((dp.size(), dp.rank()), (2, row as usize));
        assert_eq!(tp.name(), format!("grid/{row}"));
        assert_eq!(dp.name(), format!("grid/{column}.1"));
        assert_eq!(tp.global_ranks(), [3 * row, 3 * row + 1, 3 * row + 2]);
        assert_eq!(dp.global_ranks(), [column, column + 3]);
        assert_eq!((tp.global_rank(), dp.global_rank()), (world.rank() as u32, world.rank() as u32));

        // Both at work at the same time, and the world too.
        let of_row = tp.all_reduce_in_place_async(vec![world.rank() as i64], &SUM);
        let of_column = dp.all_reduce_in_place_async(vec![world.rank() as i64], &SUM);
        let mut of_all = [world.rank() as i64];
        world.all_reduce_in_place(&mut of_all, &SUM).unwrap();
        assert_eq!(of_row.wait().unwrap(), [i64::from(9 * row + 3)]);
        assert_eq!(of_column.wait().unwrap(), [i64::from(2 * column + 3)]);
        assert_eq!(of_all, [15]);
    });
}

#[test]
fn keys_order_the_ranks_and_ties_keep_their_order() {
    LocalComm::run(4, |world| {
        let reversed = world.split(0, 3 - world.rank() as u32).unwrap();
        assert_eq!(reversed.rank(), 3 - world.rank());
        assert_eq!(reversed.global_ranks(), [3, 2, 1, 0]);
        let mut all = [0; 4];
        reversed.all_gather(&[world.rank() as i32], &mut all).unwrap();
        assert_eq!(all, [3, 2, 1, 0]);
        let same = world.split(7, 7).unwrap();
        assert_eq!(same.rank(), world.rank());
    });
}

#[test]
fn a_part_can_be_split_again() {
    LocalComm::builder(8).name("w").run(|world| {
        let half = world.split(world.rank() as u32 / 4, 0).unwrap();
        let quarter = half.split(half.rank() as u32 / 2, 0).unwrap();
        assert_eq!(quarter.name(), format!("w/{}/{}", world.rank() / 4, half.rank() / 2));
        let first = world.rank() as u32 / 2 * 2;
        assert_eq!(quarter.global_ranks(), [first, first + 1]);
        let mut sum = [1];
        quarter.all_reduce_in_place(&mut sum, &SUM).unwrap();
        assert_eq!(sum, [2]);
    });
}

/// Point-to-point ranks are those of the part, its errors name global ranks.
#[test]
fn errors_of_a_part_name_global_ranks() {
    let errors = LocalComm::builder(4).name("w").run(|world| {
        let odd_even = world.split(world.rank() as u32 % 2, 0).unwrap();
        odd_even.all_reduce_in_place(&mut vec![0; 1 + world.rank()], &SUM).unwrap_err().to_string()
    });
    assert_eq!(
        errors[3],
        "all_reduce (communicator w/1, seq 0): the ranks disagree on the length: 2 elements on rank 1; 4 \
         elements on rank 3"
    );
}

#[test]
fn a_split_with_a_rank_that_left_fails() {
    let results = LocalComm::run(3, |world| (world.rank() != 1).then(|| world.split(0, 0).err()));
    assert!(matches!(results[..], [Some(Some(_)), None, Some(Some(_))]), "{results:?}");
}
