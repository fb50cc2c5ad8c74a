//! `commtrace convert`: any input as record files, timeline JSON or a Chrome trace.

use crate::args::InputArgs;
use crate::failure::{Failure, message};
use crate::progress::read;
use crate::{output, report};
use clap::error::ErrorKind;
use clap::{Args, ValueEnum};
use commtrace_report::convert::{ConvertError, Target, left_out, write_records};
use commtrace_report::read::write_timeline_json;
use commtrace_report::render::{ChromeOptions, write_chrome_with};
use std::path::{Path, PathBuf};

/// Write what `report` reads in another format, with its instants as they are; a Chrome trace puts ranks on
/// different clocks on one time scale.
///
/// PATHs are read into one timeline. What the other format has no place for is said.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    #[command(flatten)]
    pub input: InputArgs,

    /// Where to write: a folder for record files, else a file.
    #[arg(short, long, value_name = "OUT")]
    pub output: PathBuf,

    /// What to write; without it, timeline JSON if OUT ends with `.json`, record files otherwise.
    #[arg(long, value_enum)]
    pub format: Option<Format>,

    /// In a Chrome trace, take all times as those of one clock.
    #[arg(long)]
    pub no_align: bool,

    /// Replace OUT if it is a file that exists; add a run to it if it is a folder with record files.
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Record files, one per rank.
    Records,
    /// Timeline JSON.
    Timeline,
    /// Chrome trace, for Perfetto.
    Chrome,
}

pub fn run(args: &ConvertArgs) -> Result<(), Failure> {
    let out = args.output.as_path();
    let format = args.format.unwrap_or_else(|| format_of(out));
    match (format, out.is_dir()) {
        (Format::Records, false) if out.exists() => {
            let text = format!("{} is a file; record files need a folder", out.display());
            return Err(Failure::usage("convert", ErrorKind::ValueValidation, text));
        }
        (Format::Timeline | Format::Chrome, true) => {
            let text = format!("{} is a folder; this format is one file", out.display());
            return Err(Failure::usage("convert", ErrorKind::ValueValidation, text));
        }
        _ => {}
    }
    let timeline = read(&args.input.paths, &args.input.read_options())?;
    if timeline.tracks.is_empty() {
        return Err(ConvertError::Nothing.into());
    }
    report::warn(&timeline.warnings);
    let target = match format {
        Format::Records => Target::Records,
        Format::Timeline => Target::TimelineJson,
        Format::Chrome => Target::Chrome,
    };
    report::warn(&left_out(&timeline, target));
    match format {
        Format::Records => {
            let files = write_records(&timeline, out, args.force)?;
            let noun = if files.len() == 1 { "record file" } else { "record files" };
            message(&format!("commtrace: wrote {} {noun} into {}", files.len(), out.display()));
        }
        Format::Timeline => {
            output::write(Some(out), args.force, |mut to| write_timeline_json(&timeline, &mut to))?;
        }
        Format::Chrome => {
            let chrome = ChromeOptions { align: !args.no_align };
            output::write(Some(out), args.force, |mut to| write_chrome_with(&timeline, chrome, &mut to))?;
        }
    }
    Ok(())
}

fn format_of(out: &Path) -> Format {
    let json = out.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    if json && !out.is_dir() { Format::Timeline } else { Format::Records }
}
