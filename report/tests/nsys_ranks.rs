//! Which ranks an export of Nsight Systems holds: by process and device, and by all that says so.

mod nsys_database;

use commtrace_report::read::{ReadOptions, read};
use commtrace_report::timeline::Timeline;
use nsys_database::*;
use std::path::PathBuf;

const COMM: u64 = 0xdef;

/// Two processes with a communication kernel each: `(pid, device)`.
fn two(places: [(i64, i64); 2]) -> Export {
    let export = Export::new();
    for (index, (pid, device)) in places.into_iter().enumerate() {
        let start = 100 * (index as i64 + 1);
        export.kernel(pid, device, ALL_REDUCE, (start, start + 10), 1);
        export.sql(&format!("INSERT INTO PROCESSES VALUES ({}, {pid}, 'python3')", process(pid)));
    }
    export
}

/// Rank, device, and start of the first communication of each track.
fn found(timeline: &Timeline) -> Vec<(u32, Option<u32>, i64)> {
    timeline.tracks.iter().map(|track| (track.rank, track.device, track.comm.starts_ns()[0])).collect()
}

#[test]
fn by_device_if_each_process_has_its_own() {
    let timeline = two([(11, 1), (12, 0)]).read();
    assert_eq!(found(&timeline), [(0, Some(0), 200), (1, Some(1), 100)]);
    assert_warns(&timeline, "2 ranks, numbered in the order of their devices");
    assert_warns(
        &timeline,
        "rank 0 is process 12 (python3) on device 0, rank 1 is process 11 (python3) on device 1",
    );
    assert_eq!(timeline.world_size, None);
}

#[test]
fn by_process_if_they_see_the_same_device() {
    let timeline = two([(12, 0), (11, 0)]).read();
    assert_eq!(found(&timeline), [(0, Some(0), 200), (1, Some(0), 100)]);
    assert_warns(&timeline, "numbered in the order of their process numbers");
}

#[test]
fn by_the_largest_communicator() {
    let export = two([(11, 0), (12, 1)]);
    // 11 is rank 6 of 8, 12 is rank 4; both are also in a communicator of two.
    for (pid, rank, rank_of_two, device) in [(11, 6, 0, 0), (12, 4, 1, 1)] {
        export.comm(thread(pid, pid), 1, COMM, (rank, 8), device);
        export.comm(thread(pid, pid), 3, 77, (rank_of_two, 2), device);
    }
    let timeline = export.read();
    assert_eq!(found(&timeline), [(4, Some(1), 200), (6, Some(0), 100)]);
    assert_warns(
        &timeline,
        "2 ranks, numbered by their numbers in an NCCL communicator of 8: rank 4 is process 12",
    );
    assert_eq!(timeline.world_size, Some(8));
}

#[test]
fn communicators_that_do_not_tell_ranks_apart() {
    for (first, second) in [((0, 2), (0, 2)), ((0, 2), (5, 2)), ((0, 2), (1, 4))] {
        let export = two([(11, 0), (12, 1)]);
        export.comm(thread(11, 11), 1, COMM, first, 0);
        export.comm(thread(12, 12), 1, COMM, second, 1);
        assert_eq!(found(&export.read()), [(0, Some(0), 100), (1, Some(1), 200)], "{first:?} {second:?}");
    }
}

#[test]
fn devices_of_one_process_that_communicate_are_ranks() {
    let export = Export::new();
    for device in 0..3 {
        export.kernel(11, device, ALL_REDUCE, (100 + device, 200), 1 + device);
    }
    export.kernel(11, 3, GEMM, (100, 200), 9);
    let timeline = export.read();
    assert_eq!(places(&timeline), [(0, Some(0)), (0, Some(3)), (1, Some(1)), (2, Some(2))]);
    assert_warns(&timeline, "rank 1 is process 11 on device 1");
    // Of one communicator, with the device that each of its ranks has.
    for (rank, device) in [(2, 0), (1, 1), (0, 2)] {
        export.comm(thread(11, 11), 1, COMM, (rank, 3), device);
    }
    let timeline = export.read();
    assert_eq!(places(&timeline), [(0, Some(2)), (1, Some(1)), (2, Some(0)), (2, Some(3))]);
}

#[test]
fn devices_of_one_process_with_one_that_communicates_are_one_rank() {
    let export = Export::new();
    export.kernel(11, 0, GEMM, (100, 200), 1);
    export.kernel(11, 1, ALL_REDUCE, (100, 200), 2);
    let timeline = export.read();
    assert_eq!(places(&timeline), [(0, Some(0)), (0, Some(1))]);
    assert_no_warning(&timeline);
}

#[test]
fn a_process_that_kernels_do_not_name_is_found_by_their_launches() {
    let export = two([(11, 0), (12, 1)]);
    export.launch(thread(11, 11), 50, 5);
    export.launch(thread(12, 12), 50, 6);
    export.sql(
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = NULL, correlationId = 5 + deviceId;
         UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = 0",
    );
    assert_eq!(found(&export.read()), [(0, Some(0), 100), (1, Some(0), 200)]);
}

fn one() -> Export {
    let export = Export::new();
    export.kernel(11, 0, ALL_REDUCE, (100, 200), 1);
    export
}

#[test]
fn the_launcher_s_variables() {
    for (name, value, rank, world) in [
        ("DeviceEnvironment", "PATH=/bin\0RANK=5\0WORLD_SIZE=16\0HOME=/", 5, Some(16)),
        ("DeviceEnvironment", "OMPI_COMM_WORLD_RANK=3\nOMPI_COMM_WORLD_SIZE=4\nSLURM_PROCID=0", 3, Some(4)),
        ("SLURM_PROCID", "7", 7, None),
        // Impossible or no numbers.
        ("DeviceEnvironment", "RANK=9\0WORLD_SIZE=4", 0, None),
        ("DeviceEnvironment", "RANK=x\0MY_RANK=3\0RANK", 0, None),
    ] {
        let export = one();
        export.database.execute("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (?, ?)", [name, value]).unwrap();
        let timeline = export.read();
        assert_eq!((timeline.tracks[0].rank, timeline.world_size), (rank, world), "{value}");
    }
    // The environment of several processes is that of none of them.
    let export = two([(11, 0), (12, 1)]);
    export.sql("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('RANK', '5')");
    assert_eq!(places(&export.read()), [(0, Some(0)), (1, Some(1))]);
}

/// The export under another name in its folder.
fn renamed(export: &Export, name: &str) -> PathBuf {
    let path = export.folder().join(name);
    std::fs::copy(&export.path, &path).unwrap();
    path
}

#[test]
fn the_file_s_name() {
    let export = one();
    let path = renamed(&export, "report_rank3.sqlite");
    let rank = |options: &ReadOptions| read(std::slice::from_ref(&path), options).unwrap().tracks[0].rank;
    assert_eq!(rank(&ReadOptions::default()), 3);
    let regex = |regex: &str| ReadOptions { rank_regex: Some(regex.to_owned()), ..ReadOptions::default() };
    assert_eq!(rank(&regex(r"t_rank(\d)")), 3);
    export.sql("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('RANK', '5')");
    renamed(&export, "report_rank3.sqlite");
    assert_eq!(rank(&ReadOptions::default()), 5);
    assert_eq!(rank(&regex(r"t_rank(\d)")), 3);

    let several = two([(11, 0), (12, 1)]);
    let timeline = several.read_with(&regex(r"export"));
    assert_eq!(places(&timeline), [(0, Some(0)), (1, Some(1))]);
}

#[test]
fn a_pattern_for_names_is_not_for_files_of_several_ranks() {
    let export = two([(11, 0), (12, 1)]);
    let options = ReadOptions { rank_regex: Some(r"x(\d)".to_owned()), ..ReadOptions::default() };
    assert_warns(&export.read_with(&options), "holds 2 ranks: --rank-regex");
}

#[test]
fn a_folder_of_files_whose_ranks_nothing_says() {
    let export = two([(11, 0), (12, 1)]);
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(&export.path, folder.path().join("a.sqlite")).unwrap();
    let other = two([(11, 0), (12, 1)]);
    other.sql("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = start + 1");
    std::fs::copy(&other.path, folder.path().join("b.sqlite")).unwrap();
    let timeline = read(&[folder.path().to_owned()], &ReadOptions::default()).unwrap();
    assert_eq!(places(&timeline), [(0, Some(0)), (1, Some(1)), (2, Some(0)), (3, Some(1))]);
    assert_warns(&timeline, "Ranks 0 to 1 of");
    // One more with a rank of its own, and only some of them wanted.
    let third = one();
    third.sql("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('RANK', '9')");
    std::fs::copy(&third.path, folder.path().join("c.sqlite")).unwrap();
    let options = ReadOptions { ranks: Some([1, 9].into()), ..ReadOptions::default() };
    let timeline = read(&[folder.path().to_owned()], &options).unwrap();
    assert_eq!(places(&timeline), [(1, Some(1)), (9, Some(0))]);
}
