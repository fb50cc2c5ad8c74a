//! What is known of operations by their names.

/// Whether every rank of `op` has to wait for every other, so that the last arrival tells waiting from
/// transfer.
///
/// Not so for rooted ops: only receivers of a broadcast wait, and only for the root; a reduce makes its
/// root wait and lets the others go. Nor for point-to-point calls.
pub fn is_synchronizing(op: &str) -> bool {
    matches!(
        op,
        "all_reduce"
            | "all_gather"
            | "all_gather_v"
            | "reduce_scatter"
            | "reduce_scatter_v"
            | "all_to_all"
            | "all_to_all_v"
            | "barrier"
    )
}

/// Whether `op` has one sender and one receiver, and is not counted among a communicator's collectives.
pub(crate) fn is_point_to_point(op: &str) -> bool {
    matches!(op, "send" | "recv" | "send_recv")
}

/// Ranks of one collective may move different amounts.
pub(crate) fn bytes_may_differ(op: &str) -> bool {
    op.ends_with("_v")
}
