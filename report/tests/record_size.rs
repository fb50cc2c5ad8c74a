//! Bytes per record on disk.

use commtrace_report::record::{Header, RecordWriter, Row, RowKind};

fn header() -> Header {
    Header {
        rank: 0,
        host: "node0".into(),
        boot_id: "3f6d3a0e-3c7b-4b4e-9a36-0c8d1f6b7a55".into(),
        pid: 4711,
        run_id: "4242".into(),
        start_unix_ns: 1_760_000_000_123_456_789,
        start_mono_ns: 98_765_432_101_234,
        world_size: Some(8),
        writer_version: "0.1.0".into(),
    }
}

/// Splitmix64: the jitter that a real clock shows, the same on every run of the test.
struct Jitter(u64);

impl Jitter {
    fn below(&mut self, bound: u64) -> i64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound) as i64
    }
}

/// Training with sharded parameters: per layer an all_gather and a compute span forward, and a compute
/// span and a reduce_scatter backward; a gradient norm, a broadcast and a barrier per step.
fn training(mut push: impl FnMut(&Row<'_>), rows: usize) {
    let labels: Vec<String> = (0..12).map(|layer| format!("layer.{layer}")).collect();
    let mut jitter = Jitter(7);
    let mut now = 98_765_432_101_234_i64;
    let (mut span, mut seq, mut step, mut count) = (0_u64, 0_u64, 0_i64, 0);
    let mut emit = |row: Row<'_>| {
        count += 1;
        push(&row);
        count < rows
    };
    loop {
        let begin = now;
        for pass in ["forward", "backward"] {
            for (layer, label) in labels.iter().enumerate() {
                let (op, bytes) = if pass == "forward" {
                    ("all_gather", 4_u64 << 20 | (layer as u64 % 3) << 18)
                } else {
                    ("reduce_scatter", 8_u64 << 20)
                };
                let compute = 400_000 + jitter.below(300_000);
                let comm = 250_000 + jitter.below(400_000);
                span += 2;
                let more = emit(Row {
                    label: Some(label),
                    start_ns: Some(now),
                    dur_ns: Some(compute),
                    thread: Some(0),
                    step: Some(step),
                    span: Some(span - 1),
                    ..Row::new(RowKind::Compute, pass)
                }) && emit(Row {
                    start_ns: Some(now + jitter.below(20_000)),
                    dur_ns: Some(comm),
                    bytes: Some(bytes),
                    comm: Some("fsdp"),
                    comm_size: Some(8),
                    comm_rank: Some(0),
                    seq: Some(seq),
                    dtype: Some("bf16"),
                    stream: Some("comm"),
                    thread: Some(1),
                    step: Some(step),
                    span: Some(span),
                    ..Row::new(RowKind::Comm, op)
                });
                if !more {
                    return;
                }
                seq += 1;
                now += compute.max(comm) + 5_000 + jitter.below(40_000);
            }
        }
        for (op, bytes) in [("all_reduce", 4_u64), ("broadcast", 64), ("barrier", 0)] {
            let dur = 20_000 + jitter.below(100_000);
            span += 1;
            let more = emit(Row {
                start_ns: Some(now),
                dur_ns: Some(dur),
                bytes: Some(bytes),
                comm: Some("world"),
                comm_size: Some(8),
                comm_rank: Some(0),
                seq: Some(seq),
                dtype: Some("f32"),
                thread: Some(0),
                step: Some(step),
                span: Some(span),
                ..Row::new(RowKind::Comm, op)
            });
            if !more {
                return;
            }
            seq += 1;
            now += dur + jitter.below(9_000);
        }
        span += 1;
        let row = Row {
            start_ns: Some(begin),
            dur_ns: Some(now - begin),
            thread: Some(0),
            step: Some(step),
            span: Some(span),
            ..Row::new(RowKind::Step, "step")
        };
        if !emit(row) {
            return;
        }
        step += 1;
    }
}

fn bytes_per_record(rows: usize, batch: usize) -> f64 {
    let mut writer = RecordWriter::new(Vec::new(), &header()).unwrap();
    let start = writer.bytes_written();
    training(
        |row| {
            writer.push(row);
            if writer.pending() == batch {
                writer.flush().unwrap();
            }
        },
        rows,
    );
    writer.flush().unwrap();
    let bytes = writer.bytes_written() - start;
    assert_eq!(writer.finish().unwrap().len() as u64, start + bytes + 8, "schema, batches, end marker");
    bytes as f64 / rows as f64
}

#[test]
fn at_most_forty_bytes_per_record_in_batches_of_a_thousand() {
    for (rows, batch) in [(1_000, 1_000), (20_000, 1_000), (20_000, 4_000), (130_000, 65_536)] {
        let bytes = bytes_per_record(rows, batch);
        println!("{rows} rows in batches of {batch}: {bytes:.1} bytes per record");
        assert!(bytes <= 40.0, "{rows} rows in batches of {batch}: {bytes:.1} bytes per record");
    }
}
