//! SQLite exports of Nsight Systems (`nsys export --type sqlite`).
//!
//! The tables are described in "SQLite Schema Reference" of the Nsight Systems User Guide. They are made
//! lazily and differ between versions, so a table or a column that is not there is not missed: what depends on
//! it is not known. Only the kernels' table must be there.
//!
//! No table is taken into memory as it is, and each is read once from its beginning to its end, since exports
//! have no indexes. What is kept are the kernels ([`work`]), the ranges of NVTX that tell of collectives and
//! steps ([`range`]), and the calls that launched kernels ([`launch`]). Kernels are then joined with NCCL's
//! calls ([`call`], [`resolve`]) and steps ([`step`]) by the call that launched them, and the ranks are told
//! apart ([`ranks`]).

mod call;
mod content;
mod database;
mod environment;
mod finish;
mod launch;
mod payload;
mod range;
mod ranks;
mod resolve;
mod step;
mod step_name;
mod thread;
mod work;

use super::compress::Opened;
use super::fragment::Fragment;
use super::rank_name::RankName;
use super::{ReadError, ReadOptions};
use crate::classify::Classifier;
use crate::timeline::Names;
use content::{Content, MAGIC};
use database::Database;
use environment::Environment;
use finish::Export;
use range::{Meaning, Ranges};
use std::collections::HashMap;
use std::path::Path;
use step_name::StepName;
use thread::Process;
use work::{GRAPHS, KERNELS, Strings, Work};

/// Tables that a message lists, at most.
const LISTED: usize = 6;

/// Whether a content that begins with `start` is an SQLite database.
pub(super) fn is_sqlite(start: &[u8]) -> bool {
    start.starts_with(MAGIC)
}

/// Reads the export `path`, which was opened.
pub(super) fn read(path: &Path, opened: Opened<'_>, options: &ReadOptions) -> Result<Fragment, ReadError> {
    let pattern = |source| ReadError::Pattern { source };
    let classifier = Classifier::new(options).map_err(pattern)?;
    let steps = StepName::new(options.step_pattern.as_deref()).map_err(pattern)?;
    let rank_name = RankName::new(options).map_err(pattern)?;

    let content = Content::new(path, opened)?;
    let cut = is_cut(&content);
    let refused = |what| ReadError::Database { path: path.to_owned(), what };
    let mut database = Database::open(&content).map_err(|why| {
        refused(match &cut {
            Some(cut) => format!("the SQLite database cannot be read ({why}): {cut}"),
            None => format!("the SQLite database cannot be read ({why}): the file is damaged"),
        })
    })?;
    refuse_others(&database).map_err(refused)?;

    let mut names = Names::default();
    let work = Work::read(&mut database, options.copies_as_compute);
    if work.kernels.is_empty() && !database.faults.is_empty() {
        return Err(refused(format!("nothing can be read: {}", database.faults.join("; "))));
    }
    let meaning = |name: &str| Meaning::of(name, &steps);
    let strings = Strings::read(&mut database, &work.name_ids, &mut names, meaning);
    let ranges = Ranges::read(&mut database, &strings.meanings, &steps);
    let shown = path.display().to_string();
    let export = Export {
        path: &shown,
        classifier,
        names,
        work,
        name_ids: strings.names,
        ranges,
        environment: Environment::read(&mut database),
        process_names: process_names(&mut database),
        from_name: rank_name.rank(path),
        name_first: rank_name.is_given(),
    };
    let mut fragment = export.finish(&mut database);
    let warnings = &mut fragment.timeline.warnings;
    if let Some(cut) = cut {
        warnings.push(format!("{shown}: {cut}; what is there was read."));
    }
    if content.has_log() {
        warnings.push(format!(
            "{shown} has a write-ahead log beside it, which was not read: another program has not finished \
             writing it."
        ));
    }
    if !database.faults.is_empty() {
        warnings.push(format!("{shown} is damaged: {}.", database.faults.join("; ")));
        if let Some(input) = fragment.timeline.inputs.first_mut() {
            input.anomalies.insert("damaged_table".to_owned(), database.faults.len() as u64);
        }
    }
    Ok(fragment)
}

/// What is missing of a file that is shorter than it ought to be, in words.
fn is_cut(content: &Content) -> Option<String> {
    let expected = content.expected.filter(|_| content.is_cut());
    match (expected, &content.fault) {
        (_, Some(fault)) => {
            Some(format!("it can be decompressed only up to byte {} ({fault})", content.length))
        }
        (Some(expected), None) => {
            Some(format!("the file is cut: it has {} of its {expected} bytes", content.length))
        }
        (None, None) => None,
    }
}

/// Says why a database that holds no kernels of Nsight Systems is of no use.
fn refuse_others(database: &Database) -> Result<(), String> {
    if database.has(KERNELS) {
        let missing = ["start", "end"].into_iter().find(|column| !database.has_column(KERNELS, column));
        return match missing {
            Some(column) => Err(format!("its table {KERNELS} has no column {column}")),
            None => Ok(()),
        };
    }
    let has = |tables: &[&str]| tables.iter().any(|table| database.has(table));
    if has(&[GRAPHS]) {
        return Err(
            "this export of Nsight Systems holds CUDA graphs as wholes and no kernels: profile with \
                    `nsys profile --cuda-graph-trace=node`"
                .to_owned(),
        );
    }
    if has(&["CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "StringTable"]) {
        return Err(
            "this is a database of nvprof; supported are those of `nsys export --type sqlite`".to_owned()
        );
    }
    if has(&["META_DATA_EXPORT", "EXPORT_META_DATA", "ENUM_NSYS_EVENT_TYPE", "NVTX_EVENTS", "StringIds"]) {
        return Err(format!(
            "this export of Nsight Systems holds no kernels (no table {KERNELS}): profile with \
             `nsys profile --trace=cuda,nvtx`, and check that the program used a GPU"
        ));
    }
    let tables = database.tables();
    let more = tables.len().saturating_sub(LISTED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let listed = tables.iter().take(LISTED).copied().collect::<Vec<_>>().join(", ");
    let found = if tables.is_empty() { "no table".to_owned() } else { format!("the tables {listed}{more}") };
    Err(format!(
        "this is an SQLite database of another program, with {found}; supported are those of \
         `nsys export --type sqlite`"
    ))
}

fn process_names(database: &mut Database) -> HashMap<Process, String> {
    let mut names = HashMap::new();
    database.scan("PROCESSES", &["globalPid", "name"], |row| {
        if let (Some(process), Some(name)) = (row.integer(0), row.text(1)) {
            names.insert(Process::new(Some(process)), name.into_owned());
        }
    });
    names
}
