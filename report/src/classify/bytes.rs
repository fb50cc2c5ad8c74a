//! Payloads.

use super::Op;

/// The payload of a call in bytes, as nccl-tests counts it: the whole of what is gathered or scattered,
/// not one rank's share. `None` if what it depends on is not known.
///
/// `sent` and `received` are the elements of this rank's input and output, `size` bytes per element,
/// `ranks` the communicator's size: from it follows the whole where only a share is known.
///
/// ```
/// use commtrace_report::classify::{Op, payload_bytes};
/// assert_eq!(payload_bytes(Op::AllGather, Some(256), None, 4, Some(8)), Some(8192));
/// assert_eq!(payload_bytes(Op::AllGather, Some(256), Some(2048), 4, None), Some(8192));
/// assert_eq!(payload_bytes(Op::AllReduce, Some(256), None, 4, None), Some(1024));
/// assert_eq!(payload_bytes(Op::AllGather, Some(256), None, 4, None), None);
/// ```
pub fn payload_bytes(
    op: Op,
    sent: Option<u64>,
    received: Option<u64>,
    size: u64,
    ranks: Option<u32>,
) -> Option<u64> {
    let whole = |share: Option<u64>| share?.checked_mul(ranks?.into());
    let elements = match op {
        Op::AllGather => received.or_else(|| whole(sent)),
        Op::ReduceScatter => sent.or_else(|| whole(received)),
        Op::Recv => received.or(sent),
        Op::Barrier => Some(0),
        _ => sent.or(received),
    }?;
    elements.checked_mul(size)
}
