//! The processes that `commtrace bench` starts: ranks, and those that watch one rank each.

use super::program;
use crate::failure::Failure;
use clap::Args;
use commtrace_bench::{EventFolder, Fault, Launched, Orders, Plan, Session};
use std::path::PathBuf;

/// The name of the subcommand that ranks are started with; not shown in the help.
pub const NAME: &str = "bench-rank";

/// What a rank is told.
#[derive(Debug, Args)]
pub struct RankArgs {
    #[arg(long, value_parser = plan)]
    pub plan: Plan,
    #[arg(long)]
    pub events: PathBuf,
    #[arg(long)]
    pub rank: Option<u32>,
    #[arg(long)]
    pub fault: Option<Fault>,
    /// Start the rank that the launcher says this is, and watch it.
    #[arg(long)]
    pub watch: bool,
}

fn plan(text: &str) -> Result<Plan, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

pub fn run(args: RankArgs) -> Result<(), Failure> {
    let RankArgs { plan, events, rank, fault, watch } = args;
    let events = EventFolder::new(events);
    if watch {
        let launched = Launched::detect();
        let rank = launched.as_ref().map_or(0, |launched| launched.rank);
        let folder = events.path().parent().map(PathBuf::from).unwrap_or_default();
        let session = Session { folder, program: program()?, launched, fault };
        // How it ended is among the events. A status other than 0 would make the launcher end the others.
        session.watch(&plan, &events, rank);
        return Ok(());
    }
    let orders = Orders { plan, events, rank, fault };
    if orders.run()? { Ok(()) } else { Err(Failure::Told) }
}
