//! Tables of nccl-tests: what its programs print ([`table`]) and write with `-J` ([`json`]).
//!
//! Format: `common.cu` of nccl-tests from 2.0 to 2.16 and `util.cu` of later versions.

pub(super) mod json;
pub(super) mod table;

use crate::classify::Op;

/// The operation that a program of nccl-tests (`all_reduce_perf`) measures.
fn op_of(program: &str) -> Option<String> {
    let name = program.rsplit(['/', '\\']).next().unwrap_or(program);
    let name = name.strip_suffix(".exe").unwrap_or(name);
    let name = name.strip_suffix("_mpi").unwrap_or(name).strip_suffix("_perf")?;
    // Patterns of their own among the programs that send and receive.
    Some(Op::in_name(name).map_or_else(|| name.to_owned(), |op| op.as_str().to_owned()))
}

/// A version as NCCL encodes it in one number: 22807 is 2.28.7, 2708 is 2.7.8.
fn version_of(code: u64) -> Option<String> {
    let (major, rest, minor_unit) =
        if code < 10_000 { (code / 1000, code % 1000, 100) } else { (code / 10_000, code % 10_000, 100) };
    (code >= 1000).then(|| format!("{major}.{}.{}", rest / minor_unit, rest % minor_unit))
}

/// A root as tables write it: negative where there is none.
fn root_of(text: &str) -> Option<u32> {
    text.trim().parse().ok()
}

fn redop_of(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty() && text != "none").then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_versions() {
        for (program, op) in [
            ("all_reduce_perf", Some("all_reduce")),
            ("./build/alltoall_perf_mpi", Some("all_to_all")),
            ("alltoallv_perf", Some("all_to_all_v")),
            ("sendrecv_perf", Some("send_recv")),
            ("hypercube_perf", Some("hypercube")),
            ("train.py", None),
        ] {
            assert_eq!(op_of(program).as_deref(), op, "{program}");
        }
        assert_eq!(version_of(22_807).as_deref(), Some("2.28.7"));
        assert_eq!(version_of(2708).as_deref(), Some("2.7.8"));
        assert_eq!(version_of(21_005).as_deref(), Some("2.10.5"));
        assert_eq!(version_of(3), None);
    }
}
