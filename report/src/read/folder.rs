//! Record folders: the files of all ranks of a run.

use super::builder::{Builder, in_ranges, name_ranges};
use super::progress::Meters;
use super::{ReadError, ReadOptions, record_file};
use crate::parallel::in_parallel;
use crate::timeline::Input;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Ranges of ranks and names that a message lists, at most.
const NAMED: usize = 8;

/// Reads the newest run in `folder`, or the one that `options` names.
pub(super) fn read(
    folder: &Path,
    options: &ReadOptions,
    meters: &Meters<'_>,
    builder: &mut Builder,
) -> Result<(), ReadError> {
    let paths = record_paths(folder)?;
    if paths.is_empty() {
        return Err(ReadError::NoRecords { path: folder.to_owned(), found: listing(folder)? });
    }
    let runs = runs(paths, meters, builder)?;
    let Some(run) = choose(&runs, options)? else { return Ok(()) };
    let Some(run_files) = runs.get(&run) else { return Ok(()) };
    if options.run.is_none() && runs.len() > 1 {
        let others: Vec<&str> = runs.keys().filter(|&id| *id != run).map(String::as_str).collect();
        let more = others.len().saturating_sub(NAMED);
        let others = others.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        builder.warn(format!(
            "{} holds {} runs; this is the newest, {run}. Others: {others}{more}.",
            folder.display(),
            runs.len()
        ));
    }
    for file in runs.iter().filter(|(id, _)| **id != run).flat_map(|(_, files)| files) {
        meters.done(&file.path);
    }
    let mut wanted = Vec::new();
    for files in run_files.chunk_by(|a, b| a.rank == b.rank) {
        let Some(first) = files.first() else { continue };
        if options.wants(first.rank) {
            wanted.push(files);
            continue;
        }
        builder.left_out(first.rank);
        files.iter().for_each(|file| meters.done(&file.path));
    }
    // Each rank into a builder of its own, several at once, unless another input holds ranks already: what is
    // added to these depends on what is there.
    if !builder.present().is_empty() {
        return wanted.into_iter().try_for_each(|files| read_rank(files, &run, meters, builder));
    }
    let ranks = in_parallel(&wanted, |files| {
        let mut rank = Builder::default();
        read_rank(files, &run, meters, &mut rank)?;
        rank.shrink();
        Ok(rank)
    });
    for rank in ranks {
        builder.absorb(rank?);
    }
    Ok(())
}

/// Reads the files of one rank, of which there are several if it was restarted.
fn read_rank(
    files: &[RankFile],
    run: &str,
    meters: &Meters<'_>,
    builder: &mut Builder,
) -> Result<(), ReadError> {
    for (file, number) in files.iter().zip(0..) {
        if number > 0 {
            builder.warn(format!(
                "Rank {} has several files in run {run}: it was restarted, and {} continues it. Its time \
                 between the two counts as idle.",
                file.rank,
                file.path.display()
            ));
        }
        record_file::open(&file.path, meters.of(&file.path))?.read(builder)?;
        meters.done(&file.path);
    }
    Ok(())
}

struct RankFile {
    rank: u32,
    start_unix_ns: i64,
    path: PathBuf,
}

/// The files by run, each run's in order of rank and start. Files without a readable header are left
/// out with a warning, unless there is no other.
fn runs(
    paths: Vec<PathBuf>,
    meters: &Meters<'_>,
    builder: &mut Builder,
) -> Result<BTreeMap<String, Vec<RankFile>>, ReadError> {
    let mut runs: BTreeMap<String, Vec<RankFile>> = BTreeMap::new();
    let mut first_error = None;
    for path in paths {
        match record_file::open(&path, meters.of(&path)) {
            Ok(file) => {
                let header = file.header;
                runs.entry(header.run_id).or_default().push(RankFile {
                    rank: header.rank,
                    start_unix_ns: header.start_unix_ns,
                    path,
                });
            }
            Err(error) => {
                meters.done(&path);
                builder.warn(format!("A file was left out: {error}."));
                builder.input(Input {
                    path: path.display().to_string(),
                    format: "commtrace-record".to_owned(),
                    skipped: [("unreadable".to_owned(), 1)].into_iter().collect(),
                    ended: Some(false),
                    ..Input::default()
                });
                first_error.get_or_insert(error);
            }
        }
    }
    match first_error {
        Some(error) if runs.is_empty() => Err(error),
        _ => {
            for files in runs.values_mut() {
                files.sort_by(|a, b| {
                    (a.rank, a.start_unix_ns, &a.path).cmp(&(b.rank, b.start_unix_ns, &b.path))
                });
            }
            Ok(runs)
        }
    }
}

/// The run to read: the one that is asked for, or the one that was started last.
fn choose(
    runs: &BTreeMap<String, Vec<RankFile>>,
    options: &ReadOptions,
) -> Result<Option<String>, ReadError> {
    if let Some(run) = &options.run {
        if !runs.contains_key(run) {
            let runs = runs.keys().cloned().collect();
            return Err(ReadError::NoSuchRun { run: run.clone(), runs });
        }
        return Ok(Some(run.clone()));
    }
    let started = |files: &[RankFile]| files.iter().map(|file| file.start_unix_ns).max();
    Ok(runs.iter().max_by_key(|(_, files)| started(files)).map(|(run, _)| run.clone()))
}

/// The record files of `folder`, in order of name.
pub(super) fn record_paths(folder: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(ReadError::io(folder))? {
        let entry = entry.map_err(ReadError::io(folder))?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("rank-") && name.ends_with(".arrows") && entry.path().is_file() {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

/// What a folder without record files holds.
fn listing(folder: &Path) -> Result<String, ReadError> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(ReadError::io(folder))? {
        names.push(entry.map_err(ReadError::io(folder))?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(match names.len() {
        0 => "nothing".to_owned(),
        count if count > NAMED => format!("{} and {} more", names[..NAMED].join(", "), count - NAMED),
        _ => names.join(", "),
    })
}

/// Says which ranks of the job were not read.
pub(super) fn warn_of_missing(builder: &mut Builder, options: &ReadOptions) {
    let Some(world_size) = builder.get_world_size() else { return };
    let present = builder.present();
    let missing = match &options.ranks {
        Some(wanted) => in_ranges(wanted.range(..world_size).copied().filter(|rank| !present.contains(rank))),
        None => gaps(&present, world_size),
    };
    let count: u64 = missing.iter().map(|range| u64::from(range.1 - range.0) + 1).sum();
    if count > 0 {
        let (noun, verb) = if count == 1 { ("Rank", "has") } else { ("Ranks", "have") };
        let (what, why) = if builder.has_records() {
            ("record", "not recorded (COMMTRACE_RANKS), on another host, or ended before the first record")
        } else {
            ("trace", "name their files too, or the folder that holds them all")
        };
        builder.warn(format!(
            "{noun} {} {verb} no {what} ({count} of {world_size} ranks missing): {why}.",
            name_ranges(&missing, NAMED)
        ));
    }
}

/// The ranges (first and last) of `0..world_size` that are not `present`. An input may state any world
/// size, so the numbers in between are never listed.
fn gaps(present: &BTreeSet<u32>, world_size: u32) -> Vec<(u32, u32)> {
    let mut gaps = Vec::new();
    let mut next = 0;
    for &rank in present.range(..world_size) {
        if rank > next {
            gaps.push((next, rank - 1));
        }
        // Below the world size, so one more is a number yet.
        next = rank + 1;
    }
    if world_size > next {
        gaps.push((next, world_size - 1));
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_ranks_are_counted_without_listing_them() {
        assert_eq!(gaps(&BTreeSet::from([0, 1, 2]), 3), []);
        assert_eq!(gaps(&BTreeSet::from([1, 2, 9]), 5), [(0, 0), (3, 4)]);
        assert_eq!(gaps(&BTreeSet::new(), 0), []);
        let mut builder = Builder::default();
        builder.track(7, None);
        builder.world_size(u32::MAX - 1);
        warn_of_missing(&mut builder, &ReadOptions::default());
        let warnings = builder.finish().warnings;
        let told = "Ranks 0-6, 8-4294967293 have no trace (4294967293 of 4294967294 ranks missing)";
        assert!(warnings[0].starts_with(told), "{warnings:?}");
    }

    #[test]
    fn only_wanted_ranks_can_be_missing() {
        let mut builder = Builder::default();
        builder.track(7, None);
        builder.world_size(10);
        let ranks = Some(BTreeSet::from([5, 7, 12]));
        warn_of_missing(&mut builder, &ReadOptions { ranks, ..ReadOptions::default() });
        let warnings = builder.finish().warnings;
        assert!(warnings[0].starts_with("Rank 5 has no trace (1 of 10 ranks missing)"), "{warnings:?}");
    }
}
