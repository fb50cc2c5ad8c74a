//! How far reading has come, as a bar on a terminal.

use commtrace_report::read::{Progress, ReadError, ReadOptions, read_with};
use commtrace_report::timeline::Timeline;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

/// Often enough to be seen to live while nothing is told.
const TICK: Duration = Duration::from_millis(100);

/// Reads `paths`, with a bar on stderr if that is a terminal.
pub fn read(paths: &[PathBuf], options: &ReadOptions) -> Result<Timeline, ReadError> {
    if io::stderr().is_terminal() {
        read_with(paths, options, &Bar::new())
    } else {
        read_with(paths, options, &())
    }
}

struct Bar(ProgressBar);

impl Bar {
    fn new() -> Self {
        Self(ProgressBar::hidden())
    }
}

impl Progress for Bar {
    fn begin(&self, files: usize, bytes: u64) {
        let noun = if files == 1 { "file" } else { "files" };
        let template = "reading {msg} [{bar:32}] {bytes} of {total_bytes}, {elapsed}";
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        self.0.set_style(style.progress_chars("=> "));
        self.0.set_message(format!("{files} {noun}"));
        self.0.set_length(bytes);
        // Shown only now that it is whole.
        self.0.set_draw_target(ProgressDrawTarget::stderr());
        self.0.enable_steady_tick(TICK);
    }

    fn advance(&self, bytes: u64) {
        self.0.inc(bytes);
    }

    fn finish(&self) {
        self.0.finish_and_clear();
    }
}
