//! The JSON Schema of reports: the file in the repository is the one of the types, and reports satisfy it.

use commtrace_report::analyze::{AnalyzeOptions, analyze};
use commtrace_report::read::{ReadOptions, read};
use commtrace_report::render::json;
use commtrace_report::schema::report_schema;
use commtrace_report::timeline::{Comm, Compute, Step, Timeline, Track};
use serde_json::Value;
use std::path::PathBuf;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../schemas/report.schema.json");

#[test]
fn the_schema_in_the_repository_is_that_of_the_types() {
    let generated = report_schema();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(FILE, &generated).expect("the folder of schemas can be written");
    }
    let committed = std::fs::read_to_string(FILE).unwrap_or_default();
    assert!(
        committed == generated,
        "schemas/report.schema.json is not that of the types any more. Write it again with:\n\
         UPDATE_EXPECT=1 cargo test -p commtrace-report --test json_schema"
    );
}

fn validator() -> jsonschema::Validator {
    let schema: Value = serde_json::from_str(&report_schema()).expect("the schema is JSON");
    jsonschema::validator_for(&schema).expect("the schema is a schema")
}

/// The report of `timeline` satisfies the schema.
fn check(timeline: &Timeline) {
    let document: Value =
        serde_json::from_str(&json(&analyze(timeline, &AnalyzeOptions::default()))).unwrap();
    let validator = validator();
    let errors: Vec<String> =
        validator.iter_errors(&document).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

/// Two ranks with collectives, messages, steps, a rank that is late and calls that do not match.
fn job() -> Timeline {
    let mut timeline = Timeline::default();
    let clock = Some(timeline.names.intern("boot"));
    let [op, exchange, send, recv, comm, forward] =
        ["all_reduce", "all_to_all_v", "send", "recv", "world", "forward"]
            .map(|name| timeline.names.intern(name));
    for rank in 0..2_u32 {
        let mut track = Track { clock, ..Track::new(rank, Some(0)) };
        for step in 0..6_i64 {
            let at = step * 1_000_000;
            let of_step = |op, from: i64, to: i64, seq| Comm {
                comm: Some(comm),
                seq,
                bytes: Some(4096),
                comm_rank: Some(rank),
                step: Some(step),
                ..Comm::new(op, at + from, at + to)
            };
            let number = |next: u64| Some(step.unsigned_abs() * 2 + next);
            track.steps.push(Step { step, start_ns: at, end_ns: at + 900_000 });
            let end_ns = at + 300_000;
            track.compute.push(Compute { name: forward, start_ns: at, end_ns, step: Some(step) });
            let late = i64::from(rank) * 50_000;
            track.comm.push(of_step(op, 100_000 + late, 400_000, number(0)));
            track.comm.push(of_step(exchange, 500_000, 600_000, number(1)));
            let message = if rank == 0 { send } else { recv };
            let peer = Some(1 - rank);
            track.comm.push(Comm { peer, ..of_step(message, 700_000, 800_000, None) });
        }
        timeline.tracks.push(track);
    }
    let unnumbered = Comm::new(op, 9_000_000, 9_100_000);
    timeline.tracks[0].comm.push(unnumbered);
    timeline
}

#[test]
fn reports_of_runs_satisfy_the_schema() {
    check(&Timeline::default());
    let mut job = job();
    check(&job);
    // Communication of which only the length is known leaves figures null.
    let op = job.names.intern("all_gather");
    job.tracks[1].unplaced.push(Comm::new(op, 0, 5_000));
    check(&job);
}

#[test]
fn reports_of_real_traces_satisfy_the_schema() {
    for file in
        ["kineto/ddp_2ranks_rank0.json.gz", "kineto/p2p_128ranks_rank0.json.gz", "nsys/p2p_2gpus.sqlite"]
    {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus").join(file);
        if !path.exists() {
            println!("skipped: {} is missing", path.display());
            continue;
        }
        check(&read(&[path], &ReadOptions::default()).unwrap());
    }
}

#[test]
fn the_schema_refuses_what_is_no_report() {
    let validator = validator();
    let report = json(&analyze(&job(), &AnalyzeOptions::default()));
    let mut document: Value = serde_json::from_str(&report).unwrap();
    document["cross_rank"]["ops"][0]["wait_ms"] = "long".into();
    assert!(!validator.is_valid(&document));
    let mut document: Value = serde_json::from_str(&report).unwrap();
    document["cross_rank"]["ops"][0].as_object_mut().unwrap().remove("verdict");
    assert!(!validator.is_valid(&document));
}

/// Every key is documented: its description is the type's documentation.
#[test]
fn every_key_has_a_description() {
    let schema: Value = serde_json::from_str(&report_schema()).unwrap();
    let mut without = Vec::new();
    let mut look = |name: &str, object: &Value| {
        for (key, property) in object["properties"].as_object().into_iter().flatten() {
            let described = property.get("description").is_some();
            if !described {
                without.push(format!("{name}.{key}"));
            }
        }
    };
    look("Report", &schema);
    for (name, object) in schema["$defs"].as_object().expect("types are defined") {
        look(name, object);
    }
    assert!(without.is_empty(), "without a description: {without:?}");
}
