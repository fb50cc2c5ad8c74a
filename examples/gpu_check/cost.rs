//! What a span costs the thread that enqueues the work.

use crate::machine::{Failure, Machine};
use crate::traced;
use crate::verdict::Verdicts;
use commtrace::prelude::*;
use cudarc::driver::CudaContext;
use std::time::Instant;

/// Spans of a round; the resolver catches up between two rounds.
const SPANS: u32 = 1000;
const ROUNDS: usize = 20;

/// Two event records are a few microseconds; this is far beyond.
const MAX_NS: f64 = 50_000.0;

pub fn check(machine: &Machine, verdicts: &mut Verdicts) {
    let what = "cost of a span on the host";
    if machine.is_stand_in {
        verdicts.skip(what, "stand-in: its events cost something else");
        return;
    }
    verdicts.of(what, cost());
}

fn cost() -> Result<String, Failure> {
    let mut rounds = Vec::new();
    traced::report(|dispatch| {
        let stream = CudaContext::new(0)?.new_stream()?;
        tracing::dispatcher::with_default(dispatch, || -> Result<(), Failure> {
            for _ in 0..ROUNDS {
                let start = Instant::now();
                for _ in 0..SPANS {
                    let _span = compute_span!("empty", stream = &stream).entered();
                }
                rounds.push(start.elapsed().as_nanos() as f64 / f64::from(SPANS));
                stream.synchronize()?;
            }
            Ok(())
        })
    })?;
    rounds.sort_by(f64::total_cmp);
    let median = rounds.get(rounds.len() / 2).copied().ok_or("no round was measured")?;
    let said = format!("{median:.0} ns (median of {ROUNDS} rounds of {SPANS} spans)");
    if median <= MAX_NS { Ok(said) } else { Err(said.into()) }
}
