//! Running `commtrace bench`.

use super::command as commtrace;
use serde_json::Value;
use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// `commtrace bench collectives` with records in `folder`, as if no launcher had started this test.
pub fn command(folder: &Path, arguments: &[&str]) -> Command {
    of_experiment("collectives", folder, arguments)
}

/// The same of another experiment.
pub fn of_experiment(experiment: &str, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = commtrace();
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy().into_owned();
        if ["COMMTRACE", "OMPI_COMM", "PMI", "SLURM_", "RANK", "WORLD_SIZE"]
            .iter()
            .any(|known| text.starts_with(known))
        {
            command.env_remove(name);
        }
    }
    command.args(["bench", experiment]).args(arguments).arg("-o").arg(folder);
    command
}

pub fn bench(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().expect("commtrace starts")
}

/// The names in a folder, in order; none if there is no folder.
pub fn records(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A record, which satisfies the JSON Schema in the repository.
pub fn record(folder: &Path, stem: &str) -> Value {
    let path = folder.join(format!("{stem}.json"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let record: Value = serde_json::from_str(&text).unwrap();
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/../schemas/bench.schema.json");
    let schema: Value = serde_json::from_str(&fs::read_to_string(schema).unwrap()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> =
        validator.iter_errors(&record).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    record
}
