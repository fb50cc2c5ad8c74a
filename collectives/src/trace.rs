//! The span that every call opens.

use commtrace_instrument::{PeerCounts, SpanStream, TokenExchange, comm_span, record_routing};
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

/// The elements that a call exchanges with each rank, where that is worth recording: always where parts may differ,
/// else if they are tokens.
pub(crate) struct Spread<'a> {
    pub(crate) parts: Parts<'a>,
    pub(crate) element_bytes: usize,
    pub(crate) tokens: Option<TokenExchange>,
}

/// Elements for and from each rank.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Parts<'a> {
    /// As many for each.
    Equal(usize),
    Counts {
        sent: &'a [usize],
        received: &'a [usize],
    },
}

/// Records with the call of `span` how it spreads over the ranks of its communicator.
pub(crate) fn record_spread(span: &Span, comm_rank: usize, comm_size: usize, spread: &Spread<'_>) {
    if span.is_disabled() {
        return;
    }
    let &Spread { parts, element_bytes, tokens } = spread;
    let equal;
    let (sent, received) = match parts {
        Parts::Counts { sent, received } => (sent, received),
        Parts::Equal(part) if tokens.is_some() => {
            equal = vec![part; comm_size];
            (&*equal, &*equal)
        }
        Parts::Equal(_) => return,
    };
    record_routing(span, &PeerCounts { comm_rank, sent, received, element_bytes, tokens });
}
