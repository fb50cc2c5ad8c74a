//! Which algorithm a collective would run, and what `NCCL_ALGO` has to do with it. The arithmetic here is the
//! same whatever the answer.

use crate::collective::Kind;
use crate::error::{Error, Result};
use crate::settings;

/// NCCL's algorithms, in the order of its table.
pub const ALGORITHMS: [&str; 7] =
    ["Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT"];

/// Sizes from which an all_reduce goes around a ring if nobody asks for anything.
const RING_FROM_BYTES: usize = 64 << 10;

/// NCCL's name of a function.
pub fn function(kind: Kind) -> &'static str {
    match kind {
        Kind::AllReduce => "AllReduce",
        Kind::AllGather => "AllGather",
        Kind::ReduceScatter => "ReduceScatter",
        Kind::AllToAll => "AlltoAll",
        Kind::Broadcast { .. } => "Broadcast",
        Kind::Reduce { .. } => "Reduce",
        Kind::Gather { .. } => "Gather",
        Kind::Scatter { .. } => "Scatter",
        Kind::Send { .. } => "Send",
        Kind::Recv { .. } => "Recv",
    }
}

/// Whether the stand-in has the algorithm for the function.
fn has(kind: Kind, algorithm: &str) -> bool {
    match kind {
        Kind::AllReduce => matches!(algorithm, "Ring" | "Tree"),
        Kind::AllGather | Kind::ReduceScatter | Kind::Broadcast { .. } | Kind::Reduce { .. } => {
            algorithm == "Ring"
        }
        _ => false,
    }
}

/// A part of `NCCL_ALGO`: of one function, or of all that have no part of their own.
struct Part {
    function: Option<String>,
    excludes: bool,
    algorithms: Vec<&'static str>,
}

/// Reads `NCCL_ALGO`: `ring,tree`, `^tree`, `allreduce:tree;broadcast:ring`.
fn parts(text: &str) -> Result<Vec<Part>> {
    let part = |text: &str| {
        let (function, list) = match text.split_once(':') {
            Some((function, list)) => (Some(function.trim().to_ascii_lowercase()), list),
            None => (None, text),
        };
        let (excludes, list) = match list.trim().strip_prefix('^') {
            Some(list) => (true, list),
            None => (false, list),
        };
        let known = |name: &str| {
            let found = ALGORITHMS.into_iter().find(|known| known.eq_ignore_ascii_case(name.trim()));
            found.ok_or_else(|| {
                Error::usage(format!("Unrecognized element token \"{name}\" when parsing \"{text}\""))
            })
        };
        Ok(Part { function, excludes, algorithms: list.split(',').map(known).collect::<Result<_>>()? })
    };
    text.split(';').filter(|text| !text.trim().is_empty()).map(part).collect()
}

/// What `NCCL_ALGO` lets `kind` run.
fn allowed(parts: &[Part], kind: Kind) -> Vec<&'static str> {
    let name = function(kind).to_ascii_lowercase();
    let own = parts.iter().find(|part| part.function.as_ref() == Some(&name));
    let part = own.or_else(|| parts.iter().find(|part| part.function.is_none()));
    let lets =
        |algorithm: &&str| part.is_none_or(|part| part.algorithms.contains(algorithm) != part.excludes);
    ALGORITHMS.into_iter().filter(|algorithm| has(kind, algorithm)).filter(lets).collect()
}

fn asked() -> Option<String> {
    std::env::var("NCCL_ALGO").ok().filter(|text| !text.is_empty())
}

/// Checks `NCCL_ALGO`, as NCCL does when a communicator is made.
pub fn check() -> Result {
    asked().map_or(Ok(()), |text| parts(&text).map(|_| ()))
}

/// Whether there is an algorithm left for a call, as NCCL asks when it is made.
pub fn check_call(kind: Kind, data_type: i32) -> Result {
    let Some(text) = asked() else { return Ok(()) };
    let algorithms = ["Ring", "Tree"].into_iter().any(|algorithm| has(kind, algorithm));
    // Up to 2.23, what has one algorithm only ran it whatever was asked for.
    let asks = algorithms && (settings::get().version >= 22_400 || kind == Kind::AllReduce);
    if asks && allowed(&parts(&text)?, kind).is_empty() {
        return Err(Error::usage(format!(
            "Error : no algorithm/protocol available for function {} with datatype {data_type}. NCCL_ALGO was set \
             to {text}.",
            function(kind)
        )));
    }
    Ok(())
}

/// The algorithm of a call that passed the check.
pub fn algorithm(kind: Kind, bytes: usize) -> &'static str {
    let parts = asked().and_then(|text| parts(&text).ok()).unwrap_or_default();
    let allowed = allowed(&parts, kind);
    let usual = if kind == Kind::AllReduce && bytes < RING_FROM_BYTES { "Tree" } else { "Ring" };
    if allowed.contains(&usual) { usual } else { allowed.first().copied().unwrap_or("Ring") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_algorithms() {
        let allowed = |text: &str, kind| allowed(&parts(text).unwrap(), kind);
        assert_eq!(allowed("Ring", Kind::AllReduce), ["Ring"]);
        assert_eq!(allowed("^ring", Kind::AllReduce), ["Tree"]);
        assert_eq!(allowed("allreduce:tree", Kind::AllReduce), ["Tree"]);
        assert_eq!(allowed("allreduce:tree", Kind::AllGather), ["Ring"]);
        assert!(allowed("Tree", Kind::AllGather).is_empty());
        assert!(parts("Ring,Star").is_err_and(|error| error.text.contains("\"Star\"")));
    }
}
