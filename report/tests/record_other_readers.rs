//! A record file opened by Arrow readers other than ours.
//!
//! `COMMTRACE_TEST_PYTHON` names a Python interpreter that has `pyarrow`, `polars` and `duckdb`; the
//! test fails if it lacks one. Without the variable, the test is skipped where `python3` lacks one.

use commtrace_report::record::{Header, RecordWriter, Row, RowKind};
use serde_json::json;
use std::fs::File;
use std::process::Command;

/// Three batches whose dictionaries grow, a fourth that adds nothing, and one column that outgrows
/// the dictionary that is kept from batch to batch.
fn write(file: File) -> (File, Vec<serde_json::Value>) {
    let header = Header {
        rank: 1,
        host: "node0".into(),
        boot_id: "b0".into(),
        pid: 4711,
        run_id: "job-1".into(),
        start_unix_ns: 1_760_000_000_000_000_000,
        start_mono_ns: 5,
        world_size: None,
        writer_version: "0.1.0".into(),
    };
    let mut writer = RecordWriter::new(file, &header).unwrap();
    let mut expected = Vec::new();
    let mut push = |writer: &mut RecordWriter<File>, row: Row<'_>| {
        writer.push(&row);
        expected.push(json!({
            "kind": row.kind.as_str(), "name": row.name, "label": row.label,
            "start_ns": row.start_ns, "dur_ns": row.dur_ns, "bytes": row.bytes, "comm": row.comm,
            "comm_size": row.comm_size, "comm_rank": row.comm_rank, "seq": row.seq, "peer": row.peer,
            "dtype": row.dtype, "stream": row.stream, "device": row.device, "thread": row.thread,
            "step": row.step, "span": row.span, "untimed": row.untimed, "value": row.value,
            "phase": row.phase, "token_bytes": row.token_bytes, "sent_bytes": row.sent_bytes,
            "received_bytes": row.received_bytes,
        }));
    };
    for batch in 0_u32..4 {
        for index in 0..1500_u64 {
            let label = format!("label {batch}.{index}");
            let op = ["all_reduce", "all_gather", "broadcast"][batch.min(2) as usize];
            let bytes = [index, 0, u64::MAX];
            push(
                &mut writer,
                Row {
                    label: Some(&label),
                    start_ns: Some(i64::from(batch) << 40 | index as i64),
                    dur_ns: Some(-1),
                    bytes: Some(u64::MAX - index),
                    comm: (index % 3 == 0).then_some("dp"),
                    comm_size: Some(u32::MAX),
                    comm_rank: Some(0),
                    seq: Some(index),
                    peer: (index % 5 == 0).then_some(3),
                    dtype: Some("bf16"),
                    stream: (batch == 2).then_some("comm \u{7d93}"),
                    device: (index % 2 == 0).then_some(1),
                    thread: Some(7),
                    step: Some(-3),
                    span: Some(u64::from(batch) * 1500 + index),
                    untimed: (batch == 3).then_some("captured"),
                    value: Some(i64::MIN),
                    phase: (index % 7 == 0).then_some("dispatch"),
                    token_bytes: (index % 7 == 0).then_some(4096),
                    sent_bytes: (index % 3 == 1).then_some(&bytes[..]),
                    received_bytes: (index % 3 == 1).then_some(&bytes[..(index % 4) as usize]),
                    ..Row::new(if batch == 1 { RowKind::Open } else { RowKind::Comm }, op)
                },
            );
        }
        writer.flush().unwrap();
    }
    push(&mut writer, Row::new(RowKind::Meta, "end"));
    (writer.finish().unwrap(), expected)
}

#[test]
fn pyarrow_polars_and_duckdb_read_what_was_written() {
    let chosen = std::env::var_os("COMMTRACE_TEST_PYTHON");
    let python = chosen.clone().unwrap_or_else(|| "python3".into());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rank-00001.4711.1.arrows");
    let (_, expected) = write(File::create_new(&path).unwrap());
    let expected_path = folder.path().join("expected.json");
    std::fs::write(&expected_path, serde_json::to_vec(&expected).unwrap()).unwrap();

    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/readers/read_record.py");
    let output = match Command::new(&python).arg(script).arg(&path).arg(&expected_path).output() {
        Ok(output) => output,
        Err(error) => {
            assert!(chosen.is_none(), "cannot run {}: {error}", python.display());
            println!("skipped: cannot run {}: {error}", python.display());
            return;
        }
    };
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(77) && chosen.is_none() {
        println!("skipped: {}", text.trim());
        return;
    }
    assert!(output.status.success(), "{text}");
    print!("{text}");
}
