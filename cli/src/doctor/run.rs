//! The state of a run, from its records.

use super::{DoctorArgs, Format, process};
use crate::failure::Failure;
use crate::output;
use crate::progress::read;
use commtrace_report::analyze::desync::{DesyncOptions, Surroundings, diagnose};
use commtrace_report::read::ReadOptions;
use commtrace_report::render;
use std::time::{SystemTime, UNIX_EPOCH};

pub fn report(args: &DoctorArgs) -> Result<(), Failure> {
    let options = ReadOptions { run: args.run.clone(), ranks: args.ranks.clone(), ..ReadOptions::default() };
    let timeline = read(&args.paths, &options)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok();
    let boot_id = process::boot_id();
    let around = Surroundings {
        now_unix_ns: now.and_then(|now| i64::try_from(now.as_nanos()).ok()),
        runs: Some(&|recorded| process::runs(recorded, boot_id.as_deref())),
    };
    let options = DesyncOptions { ranks: args.ranks.clone(), patience_ms: args.stuck_after };
    let diagnosis = diagnose(&timeline, &options, &around);
    let text = match args.format {
        Format::Text => render::diagnosis(&diagnosis, &render::TextOptions::default()),
        Format::Json => {
            crate::report::warn(&diagnosis.warnings);
            render::diagnosis_json(&diagnosis)
        }
    };
    output::write(None, false, |out| out.write_all(text.as_bytes()))?;
    if diagnosis.verdict.is_failure() { Err(Failure::Told) } else { Ok(()) }
}
