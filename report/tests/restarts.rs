//! A job that was restarted under its run id: what one start's ranks did is not matched with another's.

use commtrace_report::analyze::{AnalyzeOptions, CrossRank, analyze};
use commtrace_report::read::{ReadOptions, read};
use commtrace_report::record::{Header, RecordWriter, Row, RowKind, file_name, meta};
use std::path::Path;

const MS: i64 = 1_000_000;
const UNIX: i64 = 1_760_000_000_000_000_000;

/// A process of `rank` that was started at `start_ms` and made `calls` collectives, each 10 ms long and of
/// `late_ms` less; every 100 ms from its start on.
fn process(folder: &Path, rank: u32, start_ms: i64, calls: u64, late_ms: i64) {
    let header = Header {
        rank,
        host: "node0".into(),
        boot_id: "boot-0".into(),
        pid: 100 + u32::try_from(start_ms).unwrap(),
        run_id: "job-1".into(),
        start_unix_ns: UNIX + start_ms * MS,
        start_mono_ns: start_ms * MS,
        world_size: Some(2),
        writer_version: "0.1.0".into(),
    };
    let mut writer = RecordWriter::new(Vec::new(), &header).unwrap();
    for seq in 0..calls {
        let at = (start_ms + 50 + seq as i64 * 100) * MS;
        writer.push(&Row {
            start_ns: Some(at + late_ms * MS),
            dur_ns: Some((10 - late_ms) * MS),
            comm: Some("world"),
            comm_size: Some(2),
            comm_rank: Some(rank),
            seq: Some(seq),
            bytes: Some(64),
            ..Row::new(RowKind::Comm, "all_reduce")
        });
    }
    writer.push(&Row::new(RowKind::Meta, meta::END));
    writer.flush().unwrap();
    std::fs::write(folder.join(file_name(&header)), writer.finish().unwrap()).unwrap();
}

fn across(folder: &Path, options: &AnalyzeOptions) -> CrossRank {
    let timeline = read(&[folder.to_owned()], &ReadOptions::default()).unwrap();
    analyze(&timeline, options).cross_rank.expect("two ranks communicate")
}

#[test]
fn each_start_of_the_job_counts_its_own_collectives() {
    let folder = tempfile::tempdir().unwrap();
    process(folder.path(), 0, 0, 8, 0);
    process(folder.path(), 1, 3, 8, 4);
    process(folder.path(), 0, 2000, 6, 0);
    process(folder.path(), 1, 2001, 6, 4);
    let across = across(folder.path(), &AnalyzeOptions::default());
    let op = &across.ops[0];
    assert_eq!((op.matched, op.partial, across.unmatched_events), (14, false, 0));
    // Rank 1 begins 3 ms (then 1 ms) and 4 ms later: rank 0 waits 7 and 5 ms, in the mean of both half of it.
    assert_eq!(op.wait_ms, (8.0 * 7.0 + 6.0 * 5.0) / 2.0);
}

/// Without the record of rank 0's first process, that of its second must not stand in for it.
#[test]
fn a_lost_first_process_is_not_replaced_by_the_second() {
    let folder = tempfile::tempdir().unwrap();
    process(folder.path(), 1, 3, 8, 4);
    process(folder.path(), 0, 2000, 6, 0);
    process(folder.path(), 1, 2001, 6, 4);
    let across = across(folder.path(), &AnalyzeOptions::default());
    let op = &across.ops[0];
    assert_eq!((op.matched, op.wait_ms), (6, 15.0));
    assert_eq!(across.unmatched_events, 8);
    assert!(across.unmatched.iter().all(|one| one.ranks == [1]), "{:?}", across.unmatched);
}

/// A rank that alone starts again finds nobody who counts from 0 with it.
#[test]
fn a_rank_that_alone_starts_again_is_not_matched_with_what_was_before() {
    let folder = tempfile::tempdir().unwrap();
    process(folder.path(), 0, 0, 30, 0);
    process(folder.path(), 1, 3, 8, 4);
    process(folder.path(), 1, 1500, 6, 4);
    let across = across(folder.path(), &AnalyzeOptions::default());
    assert_eq!(across.ops[0].matched, 8);
    assert_eq!(across.unmatched_events, 22 + 6);
}
