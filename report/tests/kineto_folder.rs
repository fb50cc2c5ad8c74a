//! Folders and lists of traces, and whose ranks they are.

use commtrace_report::analyze::{AnalyzeOptions, analyze};
use commtrace_report::read::{ReadOptions, read};
use commtrace_report::timeline::Timeline;
use std::fs;
use std::path::{Path, PathBuf};

/// A trace of one kernel, which begins at `start` microseconds, and says its rank if there is one.
fn trace(start: u32, rank: Option<u32>) -> String {
    let info = rank.map(|rank| format!(r#""distributedInfo": {{"rank": {rank}, "world_size": 4}}, "#));
    format!(
        r#"{{"schemaVersion": 1, {}"traceEvents": [{{"ph":"X","cat":"kernel","name":"k","ts":{start},"dur":1,"args":{{"device":0,"stream":7}}}}]}}"#,
        info.unwrap_or_default()
    )
}

fn write(folder: &Path, files: &[(&str, String)]) -> Vec<PathBuf> {
    let path = |name: &str| folder.join(name);
    for (name, content) in files {
        fs::create_dir_all(path(name).parent().unwrap()).unwrap();
        fs::write(path(name), content).unwrap();
    }
    files.iter().map(|(name, _)| path(name)).collect()
}

/// Rank and first start in microseconds of each track.
fn tracks(timeline: &Timeline) -> Vec<(u32, i64)> {
    timeline.tracks.iter().map(|track| (track.rank, track.compute.starts_ns()[0] / 1000)).collect()
}

fn warned(timeline: &Timeline, text: &str) -> bool {
    timeline.warnings.iter().any(|warning| warning.contains(text))
}

#[test]
fn what_is_no_trace_stays_out_of_a_folder_s_report() {
    let folder = tempfile::tempdir().unwrap();
    write(
        folder.path(),
        &[
            ("notes.txt", "hello".into()),
            ("config.json", r#"{"lr": 0.1}"#.into()),
            ("empty.json", String::new()),
            ("b.json", trace(20, Some(1))),
            ("deep/er/a.json", trace(10, Some(0))),
        ],
    );
    let timeline = read(&[folder.path().to_owned()], &ReadOptions::default()).unwrap();
    assert_eq!(tracks(&timeline), [(0, 10), (1, 20)]);
    assert_eq!(timeline.inputs.len(), 2);
    assert!(warned(&timeline, "2 of 4 ranks missing"), "{:?}", timeline.warnings);
}

#[test]
fn a_folder_without_traces_says_what_it_holds() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[("config.json", r#"{"lr": 0.1}"#.into())]);
    let error = read(&[folder.path().to_owned()], &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("config.json"), "{error}");
}

#[test]
fn one_file_that_cannot_be_read_does_not_hide_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let long = format!(r#"{{"traceEvents": [{{"ph":"X","name":"{}"#, "x".repeat(65 << 20));
    let paths = write(folder.path(), &[("rank0.json", trace(10, None)), ("rank1.json", long)]);
    let timeline = read(&[folder.path().to_owned()], &ReadOptions::default()).unwrap();
    assert_eq!(tracks(&timeline), [(0, 10)]);
    assert!(warned(&timeline, "rank1.json"), "{:?}", timeline.warnings);
    assert_eq!(timeline.inputs[1].skipped.get("unreadable"), Some(&1));
    // Named, it is an error.
    assert!(read(&paths[1..], &ReadOptions::default()).is_err());
}

#[test]
fn ranks_by_name_in_the_order_of_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..12).map(|rank| format!("trace_rank{rank}.json")).collect();
    let files: Vec<(&str, String)> =
        names.iter().enumerate().map(|(rank, name)| (name.as_str(), trace(rank as u32, None))).collect();
    write(folder.path(), &files);
    let timeline = read(&[folder.path().to_owned()], &ReadOptions::default()).unwrap();
    assert_eq!(tracks(&timeline), (0..12).map(|rank| (rank, i64::from(rank))).collect::<Vec<_>>());
    let inputs: Vec<_> = timeline.inputs.iter().map(|input| input.rank).collect();
    assert_eq!(inputs, (0..12).map(Some).collect::<Vec<_>>());
    assert!(timeline.warnings.is_empty(), "{:?}", timeline.warnings);
}

#[test]
fn ranks_that_are_not_wanted_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    // What follows the rank is not even looked at: it is no JSON.
    let broken = |rank| trace(10, Some(rank)).replace("\"traceEvents\"", "!");
    let paths = write(folder.path(), &[("a1.json", broken(1)), ("a0.json", trace(20, Some(0)))]);
    let options = ReadOptions { ranks: Some([0].into()), ..ReadOptions::default() };
    let timeline = read(&paths, &options).unwrap();
    assert_eq!(tracks(&timeline), [(0, 20)]);
    assert!(timeline.warnings.is_empty(), "{:?}", timeline.warnings);
    let by_name = ReadOptions { rank_regex: Some(r"a(\d)".into()), ..options };
    assert_eq!(tracks(&read(&paths, &by_name).unwrap()), [(0, 20)]);
}

#[test]
fn a_given_pattern_stands_above_what_the_trace_says() {
    let folder = tempfile::tempdir().unwrap();
    let paths = write(folder.path(), &[("x7.json", trace(10, Some(0))), ("x3.json", trace(20, Some(0)))]);
    let options = ReadOptions { rank_regex: Some(r"x(\d+)".into()), ..ReadOptions::default() };
    assert_eq!(tracks(&read(&paths, &options).unwrap()), [(3, 20), (7, 10)]);
    let wrong = ReadOptions { rank_regex: Some("x(".into()), ..ReadOptions::default() };
    let error = read(&paths, &wrong).unwrap_err().to_string();
    assert!(error.contains("`x(`"), "{error}");
}

#[test]
fn files_that_say_no_rank_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let paths = write(
        folder.path(),
        &[("one.json", trace(10, None)), ("two.json", trace(20, Some(1))), ("three.json", trace(30, None))],
    );
    let timeline = read(&paths, &ReadOptions::default()).unwrap();
    assert_eq!(tracks(&timeline), [(0, 10), (1, 20), (2, 30)]);
    assert!(warned(&timeline, "three.json nor its name says its rank"), "{:?}", timeline.warnings);
    // A single file is rank 0 without ado.
    let single = read(&paths[..1], &ReadOptions::default()).unwrap();
    assert!(single.warnings.is_empty(), "{:?}", single.warnings);
}

#[test]
fn the_same_trace_twice_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let paths = write(
        folder.path(),
        &[
            ("a.json", trace(10, Some(0))),
            ("a copy.json", trace(10, Some(0))),
            ("later.json", trace(90, Some(0))),
        ],
    );
    let timeline = read(&paths, &ReadOptions::default()).unwrap();
    assert_eq!(timeline.tracks.len(), 1);
    assert_eq!(timeline.tracks[0].compute.starts_ns(), [10_000, 90_000]);
    assert!(warned(&timeline, "a copy.json holds the same events as"), "{:?}", timeline.warnings);
}

#[test]
fn one_group_s_name_may_mean_different_ranks() {
    let event = |rank: u32, ranks: &str| {
        format!(
            r#"{{"distributedInfo": {{"rank": {rank}}}, "traceEvents": [{{"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)","ts":1,"dur":1,"args":{{"device":0,"Process Group Name":"1","Process Group Ranks":"{ranks}","In msg nelems":1,"dtype":"Float"}}}}]}}"#
        )
    };
    let folder = tempfile::tempdir().unwrap();
    let paths = write(
        folder.path(),
        &[
            ("0", event(0, "[0, 1]")),
            ("1", event(1, "[0, 1]")),
            ("2", event(2, "[2, 3]")),
            ("3", event(3, "[2, 3]")),
        ],
    );
    let timeline = read(&paths, &ReadOptions::default()).unwrap();
    let names: Vec<&str> = timeline
        .tracks
        .iter()
        .map(|track| timeline.names.get(track.comm.get(0).unwrap().comm.unwrap()))
        .collect();
    assert_eq!(names, ["1", "1", "1 [2, 3]", "1 [2, 3]"]);
    let groups: Vec<_> = timeline.communicators.values().collect();
    assert_eq!(groups, [&[0, 1], &[2, 3]]);
}

#[test]
fn order_does_not_depend_on_which_file_is_read_first() {
    let folder = tempfile::tempdir().unwrap();
    // The first file takes longest to read.
    let padding = format!("\"pad\": \"{}\", ", "x".repeat(4 << 20));
    let slow = trace(10, Some(0)).replacen('{', &format!("{{{padding}"), 1);
    let files: Vec<(String, String)> = (0..8)
        .map(|rank| (format!("{rank}.json"), if rank == 0 { slow.clone() } else { trace(rank, Some(rank)) }))
        .collect();
    let files: Vec<(&str, String)> = files.iter().map(|(name, text)| (name.as_str(), text.clone())).collect();
    write(folder.path(), &files);
    for _ in 0..5 {
        let timeline = read(&[folder.path().to_owned()], &ReadOptions::default()).unwrap();
        let ranks: Vec<_> = timeline.inputs.iter().map(|input| input.rank.unwrap()).collect();
        assert_eq!(ranks, [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(analyze(&timeline, &AnalyzeOptions::default()).ranks.len(), 8);
    }
}
