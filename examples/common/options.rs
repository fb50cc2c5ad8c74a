//! Arguments that several examples have.

use clap::ValueEnum;
use std::str::FromStr;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Overlap {
    On,
    Off,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    Local,
    Nccl,
    Mpi,
}

/// A rank that computes longer.
#[derive(Debug, Clone, Copy)]
pub struct SlowRank {
    pub rank: usize,
    pub delay: Duration,
}

impl FromStr for SlowRank {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (rank, milliseconds) = text.split_once(':')?;
            let seconds = milliseconds.trim().parse::<f64>().ok()? / 1e3;
            let delay = Duration::try_from_secs_f64(seconds).ok()?;
            Some(Self { rank: rank.trim().parse().ok()?, delay })
        };
        parse().ok_or_else(|| "expected a rank and milliseconds such as 1:20".to_owned())
    }
}

/// What is wrong with `--slow-rank` where the job has `ranks` ranks.
pub fn check_slow_rank(slow_rank: Option<SlowRank>, ranks: usize) -> Result<(), String> {
    match slow_rank {
        Some(SlowRank { rank, .. }) if rank >= ranks => {
            Err(format!("--slow-rank {rank}: the ranks are 0 to {}", ranks - 1))
        }
        _ => Ok(()),
    }
}

pub fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=1_000_000) => Ok(number),
        _ => Err("expected a whole number from 1 to 1000000".to_owned()),
    }
}

pub fn learning_rate(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(rate) if rate > 0.0 && rate.is_finite() => Ok(rate),
        _ => Err("expected a number above 0".to_owned()),
    }
}
