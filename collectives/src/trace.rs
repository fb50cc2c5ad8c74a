//! The span that every call opens.

use commtrace_instrument::{SpanStream, comm_span};
use tracing::Span;

use crate::Op;

/// What a span says about its call.
pub(crate) struct Call<'a> {
    pub(crate) op: Op,
    /// Size as nccl-tests counts it.
    pub(crate) bytes: u64,
    /// PyTorch's name of the element type.
    pub(crate) dtype: Option<&'static str>,
    pub(crate) comm: &'a str,
    /// Number of the collective; point-to-point calls have none.
    pub(crate) seq: Option<u64>,
    /// Global rank.
    pub(crate) rank: u32,
    pub(crate) comm_rank: u32,
    pub(crate) comm_size: u32,
    /// The other side or the root, as a rank of the communicator.
    pub(crate) peer: Option<u64>,
    /// The GPU stream or communication thread; none for a call on the caller's own thread.
    pub(crate) stream: Option<&'a dyn SpanStream>,
    pub(crate) grouped: bool,
}

/// The span of `call`, not yet entered. It belongs to the step that is current on this thread.
pub(crate) fn span(call: &Call<'_>) -> Span {
    // A callsite's name and set of fields are fixed, hence one per op.
    macro_rules! spans {
        ($($op:ident => $name:literal),*) => {
            match (call.op, call.stream) {
                $(
                    (Op::$op, Some(stream)) => comm_span!(
                        $name,
                        stream = stream,
                        bytes = call.bytes,
                        comm = call.comm,
                        seq = call.seq,
                        dtype = call.dtype,
                        rank = u64::from(call.rank),
                        comm_rank = u64::from(call.comm_rank),
                        comm_size = u64::from(call.comm_size),
                        peer = call.peer,
                        grouped = call.grouped.then_some(true)
                    ),
                    (Op::$op, None) => comm_span!(
                        $name,
                        bytes = call.bytes,
                        comm = call.comm,
                        seq = call.seq,
                        dtype = call.dtype,
                        rank = u64::from(call.rank),
                        comm_rank = u64::from(call.comm_rank),
                        comm_size = u64::from(call.comm_size),
                        peer = call.peer,
                        grouped = call.grouped.then_some(true)
                    ),
                )*
            }
        };
    }
    spans! {
        AllReduce => "all_reduce",
        AllGather => "all_gather",
        ReduceScatter => "reduce_scatter",
        Broadcast => "broadcast",
        Reduce => "reduce",
        AllToAll => "all_to_all",
        AllToAllV => "all_to_all_v",
        Send => "send",
        Recv => "recv",
        Barrier => "barrier"
    }
}
