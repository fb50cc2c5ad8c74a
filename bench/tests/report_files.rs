//! Folders with records and other files, and nccl-tests beside them.

mod report;

use commtrace_bench::report::{BenchReport, SourceError, Sources, render, report as report_of};
use report::{Change, PAYLOADS, failed, local, record, row, rows, write};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::tempdir;

fn nccl_tests(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../report/tests/data/nccl").join(name)
}

fn read(folder: &Path, nccl_tests: &[PathBuf]) -> BenchReport {
    report_of(Sources::read(&[folder.to_owned()], nccl_tests).unwrap())
}

#[test]
fn a_folder_of_records_and_of_what_is_none() {
    let folder = tempdir().unwrap();
    let of = |algorithm| record(algorithm, &[], rows("all_reduce", &PAYLOADS, 0.1, 10.0));
    write(folder.path(), "ring.json", &of("Ring"));
    write(folder.path(), "auto.json", &of("Auto"));
    write(folder.path(), "tree.json", &failed("Tree", "ended"));
    fs::write(folder.path().join("Tree.log"), "node:1:1 [0] NCCL INFO Bootstrap\n").unwrap();
    fs::create_dir(folder.path().join("older")).unwrap();
    let others = [
        ("broken.json", "{\"schema_version\": 1, \"experiment\": \"coll", "its JSON is cut off"),
        ("empty.json", "", "it is empty"),
        ("foreign.json", "{\"schema_version\": 1, \"ranks\": []}", "neither a record"),
        ("notes.txt", "buy milk", "neither a record"),
        (
            "half.json",
            "{\"schema_version\": 1, \"experiment\": \"overlap\"}",
            "it is not a whole record: missing field",
        ),
        (
            "newer.json",
            "{\"schema_version\": 7, \"experiment\": \"overlap\", \"new\": 1}",
            "a newer commtrace wrote",
        ),
    ];
    for (name, content, _) in others {
        fs::write(folder.path().join(name), content).unwrap();
    }
    let report = read(folder.path(), &[]);
    assert_eq!((report.groups.len(), report.groups[0].curves.len(), report.failed.len()), (1, 2, 1));
    assert_eq!(report.left_out.len(), others.len(), "{:?}", report.left_out);
    for (name, _, said) in others {
        let left = report.left_out.iter().find(|left| left.file.ends_with(name)).unwrap();
        assert!(left.reason.contains(said), "{left:?}");
        assert!(render::text(&report).contains(name));
    }
}

#[test]
fn nothing_to_report_is_an_error_that_names_what_there_is() {
    let folder = tempdir().unwrap();
    let nothing = Sources::read(&[folder.path().to_owned()], &[]).unwrap_err();
    assert!(nothing.to_string().contains("commtrace bench collectives -o DIR"), "{nothing}");
    fs::write(folder.path().join("notes.txt"), "buy milk").unwrap();
    let notes = Sources::read(&[folder.path().to_owned()], &[]).unwrap_err();
    assert!(notes.to_string().contains("notes.txt"), "{notes}");
    let missing = Sources::read(&[folder.path().join("none")], &[]).unwrap_err();
    assert!(matches!(missing, SourceError::Io { .. }), "{missing}");
    let missing = Sources::read(&[folder.path().to_owned()], &["no-such-file".into()]).unwrap_err();
    assert!(missing.to_string().contains("no-such-file"), "{missing}");
}

/// The table is of all_reduce, float, 1 KiB, 64 KiB and 4 MiB, on two H100.
#[test]
fn nccl_tests_beside_records_of_the_same() {
    let folder = tempdir().unwrap();
    let measured = vec![row("all_reduce", 1024, 0.019, 0.02), row("all_reduce", 4 << 20, 0.0838, 0.09)];
    write(folder.path(), "auto.json", &record("Auto", &["Ring"], measured));
    fs::copy(nccl_tests("tests_2_17.txt"), folder.path().join("all_reduce_perf.txt")).unwrap();
    let report = read(folder.path(), &[]);
    assert_eq!(report.left_out, []);
    let [table] = report.nccl_tests.as_slice() else { panic!("{report:?}") };
    assert_eq!((table.collective.as_deref(), table.world_size), (Some("all_reduce"), Some(2)));
    assert_eq!(table.dtype.as_deref(), Some("float32"));
    assert_eq!((table.points.len(), table.not_compared.as_deref()), (3, None));
    assert!((table.points[0].mean_ms - 0.0095).abs() < 1e-12 && !table.points[0].in_place);
    let ratios: Vec<f64> = table.beside.iter().map(|beside| beside.ratio).collect();
    assert!(
        ratios.len() == 2 && (ratios[0] - 2.0).abs() < 1e-9 && (ratios[1] - 2.0).abs() < 1e-9,
        "{ratios:?}"
    );
    assert!(render::html(&report).contains("nccl-tests, mean"));
    // The same by name, text and JSON.
    let both = read(folder.path(), &[nccl_tests("tests.json")]);
    assert_eq!(both.nccl_tests.len(), 2);
}

#[test]
fn nccl_tests_are_not_compared_with_what_differs() {
    let folder = tempdir().unwrap();
    let table = [nccl_tests("tests_2_17.txt")];
    write(folder.path(), "a.json", &local(vec![row("all_reduce", 1024, 0.019, 0.02)]));
    let not_compared = |folder: &Path| read(folder, &table).nccl_tests[0].not_compared.clone().unwrap();
    assert!(not_compared(folder.path()).contains("backend local"));
    let changes: Vec<(&str, Change)> = vec![
        ("NVIDIA A100", |record| record.hardware.hosts[0].gpus[0].name = "NVIDIA A100".to_owned()),
        ("of float32, the records of bfloat16", |record| record.workload.dtype = "bfloat16".to_owned()),
        ("of 2 ranks, the records of 8", |record| record.workload.world_size = 8),
        ("no record has the same collective and payload", |record| {
            record.metrics.rows[0].payload_bytes_per_rank = 5;
        }),
    ];
    for (said, change) in changes {
        let mut other = record("Auto", &[], vec![row("all_reduce", 1024, 0.019, 0.02)]);
        change(&mut other);
        write(folder.path(), "a.json", &other);
        let reason = not_compared(folder.path());
        assert!(reason.contains(said), "{said}: {reason}");
    }
}

/// A table whose sizes are unusable is no reason to stop.
#[test]
fn wrong_results_of_nccl_tests_are_left_out() {
    let folder = tempdir().unwrap();
    let text = fs::read_to_string(nccl_tests("tests_2_17.txt")).unwrap();
    let wrong = text.replace("    9.50    0.11    0.11       0", "    9.50    0.11    0.11       4");
    assert_ne!(text, wrong);
    fs::write(folder.path().join("wrong.txt"), wrong).unwrap();
    let report = read(folder.path(), &[]);
    assert_eq!((report.nccl_tests[0].points.len(), report.nccl_tests[0].sizes_left_out), (2, 1));
    assert!(render::text(&report).contains("1 size left out"));
}
