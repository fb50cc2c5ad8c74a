//! Tables of nccl-tests, as text of old and new versions and as JSON.

use commtrace_report::analyze::{AnalyzeOptions, Report, analyze};
use commtrace_report::nccl::{NcclTests, Place};
use commtrace_report::read::{ReadOptions, read};
use commtrace_report::render::{TextOptions, json, text};
use commtrace_report::timeline::Timeline;
use std::path::{Path, PathBuf};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/nccl").join(name)
}

fn timeline(path: PathBuf) -> Result<Timeline> {
    Ok(read(&[path], &ReadOptions::default())?)
}

fn only(timeline: &Timeline) -> Result<&NcclTests> {
    let [input] = timeline.inputs.as_slice() else { return Err(format!("{:?}", timeline.inputs).into()) };
    assert_eq!(input.format, "nccl-tests");
    Ok(input.nccl_tests.as_deref().ok_or("the input has no table")?)
}

fn page(timeline: &Timeline) -> String {
    text(&analyze(timeline, &AnalyzeOptions::default()), &TextOptions::default())
}

#[test]
fn a_table_of_today() -> Result {
    let timeline = timeline(data("tests_2_17.txt"))?;
    let table = only(&timeline)?;
    assert_eq!(
        (table.op.as_deref(), table.program.as_deref()),
        (Some("all_reduce"), Some("all_reduce_perf"))
    );
    assert_eq!((table.version.as_deref(), table.nccl_version.as_deref()), (Some("2.17.6"), Some("2.28.7")));
    assert_eq!((table.iterations, table.warmup_iterations), (Some(20), Some(5)));
    let devices: Vec<_> =
        table.devices.iter().map(|d| (d.rank, d.host.as_str(), d.device, d.name.as_str())).collect();
    assert_eq!(devices, [(0, "node", 0, "NVIDIA H100 80GB HBM3"), (1, "node", 1, "NVIDIA H100 80GB HBM3")]);
    let rows: Vec<_> =
        table.rows.iter().map(|row| (row.bytes, row.count, row.redop.as_deref(), row.root)).collect();
    assert_eq!(
        rows,
        [
            (1024, 256, Some("sum"), None),
            (65_536, 16_384, Some("sum"), None),
            (4_194_304, 1_048_576, Some("sum"), None)
        ]
    );

    let (row, place, best) = table.best_busbw().ok_or("no best")?;
    assert_eq!((row.bytes, place, best.busbw_gbs, best.time_us), (4_194_304, Place::InPlace, 102.8, 40.8));
    let (row, place, least) = table.latency().ok_or("no latency")?;
    assert_eq!((row.bytes, place, least.time_us), (1024, Place::InPlace, 9.25));
    let wrong: Vec<_> =
        table.wrong().map(|(row, place, measure)| (row.bytes, place, measure.wrong)).collect();
    assert_eq!(wrong, [(4_194_304, Place::InPlace, Some(2.0))]);
    assert_eq!(
        (table.out_of_bounds, table.average_busbw_gbs, table.finished),
        (Some(1), Some(35.3983), true)
    );
    assert_eq!(timeline.inputs[0].events, 6);

    let page = page(&timeline);
    for words in [
        "all_reduce_perf, 2 ranks, 3 sizes",
        "102.80 GB/s",
        "9.25 us at 1.00 KiB, in-place",
        "1 measurement with wrong",
    ] {
        assert!(page.contains(words), "{words} is not in\n{page}");
    }
    assert!(timeline.warnings.iter().any(|warning| warning.contains("#wrong")), "{:?}", timeline.warnings);
    Ok(())
}

#[test]
fn a_table_of_2021_by_its_own_columns() -> Result {
    let timeline = timeline(data("tests_2021.txt"))?;
    let table = only(&timeline)?;
    assert_eq!(table.devices.len(), 2);
    assert_eq!(table.devices[1].name, "Tesla V100-SXM2-32GB");
    let row = &table.rows[1];
    let (out, inside) = (row.out_of_place.ok_or("out")?, row.in_place.ok_or("in")?);
    assert_eq!((out.time_us, out.busbw_gbs, out.wrong, out.max_error), (390.2, 2.69, None, None));
    assert_eq!((inside.time_us, inside.max_error), (386.0, Some(1e-7)));
    assert!(page(&timeline).contains("not checked"));
    Ok(())
}

#[test]
fn the_json_without_the_environment_in_it() -> Result {
    let timeline = timeline(data("tests.json"))?;
    let table = only(&timeline)?;
    assert_eq!((table.op.as_deref(), table.nccl_version.as_deref()), (Some("all_reduce"), Some("2.28.7")));
    assert_eq!(table.devices[0].name, "NVIDIA B200");
    assert_eq!(table.rows.len(), 2);
    assert_eq!(
        table.rows[0].out_of_place.map(|measure| (measure.time_us, measure.wrong)),
        Some((7.25, Some(0.0)))
    );
    assert_eq!(table.rows[1].out_of_place, None);
    assert_eq!(
        table.rows[1].in_place.map(|measure| (measure.busbw_gbs, measure.wrong)),
        Some((0.003_733, None))
    );
    assert_eq!(
        (table.out_of_bounds, table.average_busbw_gbs, table.finished),
        (Some(0), Some(0.002_541), true)
    );
    assert_eq!(timeline.warnings, Vec::<String>::new());

    let object = json(&analyze(&timeline, &AnalyzeOptions::default()));
    assert!(!object.contains("secret"), "{object}");
    let back: Report = serde_json::from_str(&object)?;
    assert_eq!(back.inputs[0].nccl_tests.as_deref(), Some(table));
    Ok(())
}

#[test]
fn text_and_json_of_one_kind() -> Result {
    let (from_text, from_json) = (timeline(data("tests_2_17.txt"))?, timeline(data("tests.json"))?);
    assert_eq!(only(&from_text)?.nccl_version, only(&from_json)?.nccl_version);
    assert_eq!(only(&from_text)?.rows[0].dtype, only(&from_json)?.rows[0].dtype);
    Ok(())
}

#[test]
fn a_cut_json_keeps_whole_results() -> Result {
    let whole = std::fs::read_to_string(data("tests.json"))?;
    let cut = whole.find("\"size\":16").ok_or("no second row")?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("cut");
    std::fs::write(&path, &whole[..cut])?;
    let timeline = timeline(path)?;
    let table = only(&timeline)?;
    assert_eq!((table.rows.len(), table.finished), (1, false));
    assert_eq!(timeline.inputs[0].anomalies["truncated"], 1);
    assert!(
        timeline.warnings.iter().any(|warning| warning.contains("up to there")),
        "{:?}",
        timeline.warnings
    );
    Ok(())
}

#[test]
fn several_tables_and_a_log_in_one_file() -> Result {
    let table = std::fs::read_to_string(data("tests_2_17.txt"))?;
    let log = std::fs::read_to_string(data("log_2_8.txt"))?;
    // As `mpirun --tag-output` writes it, the log among the lines of the first table.
    let (head, tail) = table.split_at(table.find("       65536").ok_or("no row")?);
    let joined: String = [head, &log, tail, &table].concat();
    let tagged: String = joined.lines().map(|line| format!("[1,0]<stdout>:{line}\n")).collect();
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("out.txt");
    std::fs::write(&path, tagged)?;
    let timeline = timeline(path)?;
    let formats: Vec<&str> = timeline.inputs.iter().map(|input| input.format.as_str()).collect();
    assert_eq!(formats, ["nccl-tests", "nccl-tests", "nccl-log"]);
    let rows: Vec<usize> =
        timeline.inputs.iter().filter_map(|input| Some(input.nccl_tests.as_ref()?.rows.len())).collect();
    assert_eq!(rows, [3, 3]);
    Ok(())
}

#[test]
fn a_run_that_failed() -> Result {
    let table = std::fs::read_to_string(data("tests_2_17.txt"))?;
    let cut = table.find("     4194304").ok_or("no last row")?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("out.txt");
    let error = "node: Test NCCL failure common.cu:891 'unhandled system error'";
    std::fs::write(
        &path,
        format!("{}{error}\n .. node pid 812: Test failure common.cu:1019\n", &table[..cut]),
    )?;
    let timeline = timeline(path)?;
    let table = only(&timeline)?;
    assert_eq!((table.rows.len(), table.finished, table.errors.len()), (2, false, 2));
    assert_eq!(table.errors[0], error);
    assert!(timeline.warnings.iter().any(|warning| warning.contains("no summary")));
    assert!(page(&timeline).contains("unhandled system error"));
    Ok(())
}
