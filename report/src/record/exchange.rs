//! How a call's bytes spread over the ranks of its communicator: the columns `phase`, `token_bytes`,
//! `sent_bytes` and `received_bytes`.

use std::borrow::Cow;

/// Ranks of a communicator up to which a call's bytes are recorded for each of them. In larger ones they
/// are recorded as two numbers: of the own rank, and of all others.
///
/// So a call takes at most 4 KiB while it is recorded, however many ranks there are.
pub const MAX_PEERS: usize = 256;

/// `bytes` for each rank of a communicator, as they are recorded by the rank at `own`: all of them, or
/// `[own, others]` if there are more than [`MAX_PEERS`]. `None` if `own` is none of the ranks.
///
/// ```
/// use commtrace_report::record::fold_peers;
/// assert_eq!(fold_peers(1, &[5, 6, 7]).as_deref(), Some(&[5, 6, 7][..]));
/// assert_eq!(fold_peers(3, &[2; 1000]).as_deref(), Some(&[2, 1998][..]));
/// assert_eq!(fold_peers(3, &[5, 6, 7]), None);
/// ```
pub fn fold_peers(own: usize, bytes: &[u64]) -> Option<Cow<'_, [u64]>> {
    let &to_own = bytes.get(own)?;
    if bytes.len() <= MAX_PEERS {
        return Some(Cow::Borrowed(bytes));
    }
    let all = bytes.iter().fold(0_u64, |sum, &bytes| sum.saturating_add(bytes));
    Some(Cow::Owned(vec![to_own, all.saturating_sub(to_own)]))
}
