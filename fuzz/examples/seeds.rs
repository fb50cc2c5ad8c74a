//! Fills corpus/ with a file of each format and version for the targets to begin with.

use commtrace_report::convert::write_records;
use commtrace_report::read::{ReadOptions, read, write_timeline_json};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use std::error::Error;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Exports of Nsight Systems as the tests make them.
#[path = "../../report/tests/nsys_database/mod.rs"]
mod nsys_database;

use nsys_database::{ALL_GATHER, ALL_REDUCE, Export, GEMM, SEND_RECV, thread};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result {
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let corpus = project.join("corpus");
    let data = project.join("../report/tests/data");
    for path in files(&data.join("kineto"))? {
        copy(&path, &corpus.join("kineto"))?;
    }
    for path in files(&data.join("nccl"))? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let target = match name.as_str() {
            name if name.starts_with("inspector") => "nccl_inspector",
            name if name.starts_with("log") => "nccl_log",
            _ => "nccl_tests",
        };
        copy(&path, &corpus.join(target))?;
    }
    for path in files(&data.join("pytorch"))? {
        if path.extension().is_some_and(|extension| extension == "gz") {
            let mut content = Vec::new();
            flate2::read::MultiGzDecoder::new(File::open(&path)?).read_to_end(&mut content)?;
            copy(&path, &corpus.join("compressed"))?;
            let name = path.with_extension("zst");
            let name = name.file_name().unwrap_or_default();
            fs::write(
                corpus.join("compressed").join(name),
                compress_to_vec(&content[..], CompressionLevel::Fastest),
            )?;
            convert(&path, &corpus)?;
        }
    }
    for path in files(&data.join("kineto"))? {
        convert(&path, &corpus)?;
        // In front: gzip or zstd, where to change and how, where to cut.
        for (index, head) in [[0, 0, 0, 0], [1, 0, 0, 0], [0, 200, 3, 10], [1, 200, 3, 10]].iter().enumerate()
        {
            let name = format!("{index}-{}", path.file_name().unwrap_or_default().display());
            fs::write(corpus.join("compressed").join(name), [head, &fs::read(&path)?[..]].concat())?;
        }
    }
    nsys(&corpus.join("nsys"))
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files: Vec<_> = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.sort();
    Ok(files)
}

fn copy(path: &Path, folder: &Path) -> Result {
    fs::create_dir_all(folder)?;
    fs::copy(path, folder.join(path.file_name().unwrap_or_default()))?;
    Ok(())
}

/// A trace as record files and as timeline JSON.
fn convert(path: &Path, corpus: &Path) -> Result {
    let Ok(timeline) = read(&[path.to_owned()], &ReadOptions::default()) else { return Ok(()) };
    if timeline.tracks.is_empty() {
        return Ok(());
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let folder = tempfile::tempdir()?;
    for (index, record) in write_records(&timeline, folder.path(), false)?.iter().enumerate() {
        fs::create_dir_all(corpus.join("record"))?;
        fs::copy(record, corpus.join("record").join(format!("{name}-{index}.arrows")))?;
    }
    fs::create_dir_all(corpus.join("timeline"))?;
    write_timeline_json(
        &timeline,
        &mut File::create(corpus.join("timeline").join(format!("{name}.timeline.json")))?,
    )?;
    Ok(())
}

fn nsys(folder: &Path) -> Result {
    let export = Export::new();
    export.sql("INSERT INTO PROCESSES VALUES (281475245998080, 16, 'python')");
    export.sql("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('EnvVars', 'RANK=3')");
    export.sql("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000)");
    for pid in [16, 17] {
        let on = thread(pid, 1);
        export.comm(on, 0, 9, (pid as u64 - 16, 2), 0);
        for step in 0..3 {
            let at = 1000 * (step + 1);
            export.range(on, &format!("step {step}"), (at, at + 900));
            export.nccl(on, "ncclAllReduce", (at + 10, at + 20), Some((2, &[9, 4096])));
            export.launch(on, at + 11, 10 * step + 1);
            export.kernel(pid, 0, ALL_REDUCE, (at + 100, at + 300), 10 * step + 1);
            export.launch(on, at + 21, 10 * step + 2);
            export.kernel(pid, 0, GEMM, (at + 200, at + 400), 10 * step + 2);
            export.kernel(
                pid,
                0,
                if step == 0 { ALL_GATHER } else { SEND_RECV },
                (at + 500, at + 600),
                10 * step + 3,
            );
        }
    }
    export.sql("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (700, 800, 0, 7, 5, NULL, 64, 1)");
    copy(&export.path, folder)?;
    export.sql("PRAGMA page_size = 512; VACUUM");
    fs::copy(&export.path, folder.join("small_pages.sqlite"))?;
    Ok(())
}
