//! Recording a part of the program, and its report.

use crate::machine::Failure;
use commtrace::report::analyze::Report;
use commtrace::{Config, Mode};
use std::time::Duration;
use tracing::Dispatch;
use tracing_subscriber::layer::SubscriberExt;

/// Runs `part`, which sets the subscriber that it gets on its threads, and reports on its spans.
pub fn report(part: impl FnOnce(&Dispatch) -> Result<(), Failure>) -> Result<Report, Failure> {
    let folder = tempfile::tempdir()?;
    let config = Config::from_env()?.mode(Mode::Directory(folder.path().into()));
    // All ranks are in this process, and some parts of it have one only.
    let config = config.merge_timeout(Duration::ZERO);
    let (layer, guard) = config.layer()?;
    let dispatch = Dispatch::new(tracing_subscriber::registry().with(layer));
    part(&dispatch)?;
    guard.into_report().ok_or_else(|| "there is no report".into())
}
