//! How calls spread over the ranks of their communicator: the counts of all_to_all_v, and which of these
//! calls carry tokens to experts and back.
//!
//! Only calls that have such counts pay for them: a span's fields and its record stay as they are, and the counts
//! go to the writer by a queue of their own, under the number of the span.

use crate::layer::recorder_of;
use crate::local::with_local;
use crate::spans::NO_U32;
use commtrace_report::record::fold_peers;
pub use commtrace_report::timeline::RoutingPhase;
use std::cell::Cell;

thread_local! {
    static SCOPE: Cell<Option<TokenExchange>> = const { Cell::new(None) };
}

/// What the calls of a [`dispatch_scope`] or [`combine_scope`] exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenExchange {
    /// Whether tokens go to experts or come back.
    pub phase: RoutingPhase,
    /// Elements that one token consists of, for example the hidden size. 0 says nothing: no tokens are counted.
    pub elements_per_token: usize,
}

impl TokenExchange {
    /// That of the innermost scope of this thread.
    pub fn current() -> Option<Self> {
        SCOPE.try_with(Cell::get).ok().flatten()
    }

    /// Bytes of one token, if all counts are whole tokens.
    fn token_bytes(self, counts: &PeerCounts<'_>) -> Option<u64> {
        let whole = |count: &usize| count.is_multiple_of(self.elements_per_token);
        let all_whole = self.elements_per_token > 0 && counts.sent.iter().chain(counts.received).all(whole);
        let bytes = bytes(self.elements_per_token, counts.element_bytes);
        (all_whole && bytes > 0).then_some(bytes)
    }
}

/// Until the guard is dropped, the all_to_all and all_to_all_v calls that this thread makes send tokens to
/// the ranks of their experts. A token consists of `elements_per_token` elements.
///
/// Of such calls the report tells how many tokens leave their rank and how evenly the experts are loaded. A
/// call whose counts are not whole tokens is recorded without a number of tokens. Scopes nest; the inner
/// one counts.
///
/// ```
/// use commtrace_instrument::{TokenExchange, combine_scope, dispatch_scope};
/// let hidden = 4096;
/// {
///     let _dispatch = dispatch_scope(hidden);
///     // comm.all_to_all_v(&tokens, &send_counts, &mut arrived, &recv_counts)?;
///     assert!(TokenExchange::current().is_some());
/// }
/// // experts work
/// let _combine = combine_scope(hidden);
/// // comm.all_to_all_v(&results, &recv_counts, &mut tokens, &send_counts)?;
/// ```
pub fn dispatch_scope(elements_per_token: usize) -> RoutingScope {
    enter(RoutingPhase::Dispatch, elements_per_token)
}

/// As [`dispatch_scope`], for calls that bring back what the experts made of the tokens.
pub fn combine_scope(elements_per_token: usize) -> RoutingScope {
    enter(RoutingPhase::Combine, elements_per_token)
}

fn enter(phase: RoutingPhase, elements_per_token: usize) -> RoutingScope {
    let scope = Some(TokenExchange { phase, elements_per_token });
    // A thread that is being torn down makes no calls any more.
    let previous = SCOPE.try_with(|current| current.replace(scope)).ok().flatten();
    RoutingScope { previous, not_send: std::marker::PhantomData }
}

/// Ends a [`dispatch_scope`] or [`combine_scope`] when dropped.
#[derive(Debug)]
#[must_use = "the scope ends when the guard is dropped"]
pub struct RoutingScope {
    previous: Option<TokenExchange>,
    /// It belongs to its thread.
    not_send: std::marker::PhantomData<*const ()>,
}

impl Drop for RoutingScope {
    fn drop(&mut self) {
        let _ = SCOPE.try_with(|scope| scope.set(self.previous));
    }
}

/// How one rank's part in a call spreads over the ranks of the communicator, for [`record_routing`].
#[derive(Debug, Clone, Copy)]
pub struct PeerCounts<'a> {
    /// This rank's number in the communicator.
    pub comm_rank: usize,
    /// Elements sent to each rank, in the communicator's order, the own rank included.
    pub sent: &'a [usize],
    /// Elements received from each rank, likewise.
    pub received: &'a [usize],
    /// Bytes of one element.
    pub element_bytes: usize,
    /// What the elements are, where they are tokens: [`TokenExchange::current`], or a value of your own.
    pub tokens: Option<TokenExchange>,
}

/// Records with the call of `span` how it spreads over the ranks of its communicator. To be called before the
/// span is entered.
///
/// The communicators of `commtrace-collectives` do this themselves; it is for applications that call a library on
/// their own, in a [`comm_span!`](crate::comm_span). Counts for another number of ranks than the span's
/// `comm_size`, or of different lengths, are dropped, which the report says. In communicators of more than 256
/// ranks, only what goes to the own rank and to all others is kept.
///
/// ```
/// use commtrace_instrument::{PeerCounts, TokenExchange, comm_span, dispatch_scope, record_routing};
/// let hidden = 4096;
/// let _dispatch = dispatch_scope(hidden);
/// let span = comm_span!("all_to_all_v", bytes = 24_576_u64, comm = "ep", comm_rank = 0_u64, comm_size = 2_u64);
/// let counts = PeerCounts {
///     comm_rank: 0,
///     sent: &[hidden, 2 * hidden],
///     received: &[hidden, 0],
///     element_bytes: 2,
///     tokens: TokenExchange::current(),
/// };
/// record_routing(&span, &counts);
/// span.in_scope(|| { /* ncclGroupStart(), ncclSend() and ncclRecv() for each rank, ncclGroupEnd() */ });
/// ```
pub fn record_routing(span: &tracing::Span, counts: &PeerCounts<'_>) {
    span.with_subscriber(|(id, dispatch)| {
        if let Some(recorder) = recorder_of(dispatch) {
            with_local(recorder, |local| local.send_exchange(id.into_u64(), counts));
        }
    });
}

/// Calls whose counts wait for the writer, or for the end of their span, at most. With the largest that is kept of one,
/// that is 16 MiB.
pub(crate) const MAX_WAITING: usize = 4096;

/// The counts of a call on their way to the writer.
#[derive(Debug)]
pub(crate) struct ExchangeRecord {
    /// Number of the span in this process.
    pub span: u64,
    pub exchange: Box<Exchange>,
}

/// The counts of a call, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exchange {
    pub phase: Option<RoutingPhase>,
    /// `None` if the counts are not tokens, or no whole ones.
    pub token_bytes: Option<u64>,
    pub comm_rank: u32,
    pub comm_size: u32,
    pub sent_bytes: Box<[u64]>,
    pub received_bytes: Box<[u64]>,
}

impl Exchange {
    /// `None` if the counts contradict each other.
    pub fn new(counts: &PeerCounts<'_>) -> Option<Self> {
        if counts.sent.len() != counts.received.len() {
            return None;
        }
        let per_peer = |elements: &[usize]| -> Option<Box<[u64]>> {
            let all: Vec<u64> = elements.iter().map(|&count| bytes(count, counts.element_bytes)).collect();
            Some(fold_peers(counts.comm_rank, &all)?.into())
        };
        Some(Self {
            phase: counts.tokens.map(|tokens| tokens.phase),
            token_bytes: counts.tokens.and_then(|tokens| tokens.token_bytes(counts)),
            comm_rank: u32::try_from(counts.comm_rank).ok()?,
            comm_size: u32::try_from(counts.sent.len()).ok().filter(|&size| size != NO_U32)?,
            sent_bytes: per_peer(counts.sent)?,
            received_bytes: per_peer(counts.received)?,
        })
    }

    /// Tokens were exchanged and could not be counted.
    pub fn is_uneven(&self) -> bool {
        self.phase.is_some() && self.token_bytes.is_none()
    }
}

fn bytes(elements: usize, element_bytes: usize) -> u64 {
    (elements as u64).saturating_mul(element_bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts<'a>(sent: &'a [usize], received: &'a [usize], elements_per_token: usize) -> PeerCounts<'a> {
        let tokens = Some(TokenExchange { phase: RoutingPhase::Dispatch, elements_per_token });
        PeerCounts { comm_rank: 1, sent, received, element_bytes: 4, tokens }
    }

    #[test]
    fn scopes_nest_and_restore() {
        let phase = || TokenExchange::current().map(|scope| (scope.phase, scope.elements_per_token));
        assert_eq!(phase(), None);
        {
            let _dispatch = dispatch_scope(8);
            {
                let _combine = combine_scope(4);
                assert_eq!(phase(), Some((RoutingPhase::Combine, 4)));
            }
            assert_eq!(phase(), Some((RoutingPhase::Dispatch, 8)));
            assert_eq!(std::thread::spawn(TokenExchange::current).join().unwrap(), None);
        }
        assert_eq!(phase(), None);
    }

    #[test]
    fn only_whole_tokens_are_counted() {
        let token_bytes = |elements_per_token| {
            let exchange = Exchange::new(&counts(&[6, 0, 12], &[3, 0, 9], elements_per_token)).unwrap();
            (exchange.token_bytes, exchange.is_uneven())
        };
        assert_eq!(token_bytes(3), (Some(12), false));
        assert_eq!(token_bytes(6), (None, true));
        assert_eq!(token_bytes(0), (None, true));
        let nothing = PeerCounts { tokens: None, ..counts(&[1, 2, 3], &[1, 2, 3], 0) };
        let exchange = Exchange::new(&nothing).unwrap();
        assert_eq!((&*exchange.sent_bytes, exchange.token_bytes), (&[4, 8, 12][..], None));
        assert!(!exchange.is_uneven());
    }

    #[test]
    fn counts_that_contradict_each_other_are_none() {
        assert_eq!(Exchange::new(&counts(&[1, 2], &[1, 2, 3], 1)), None);
        assert_eq!(Exchange::new(&counts(&[1], &[1], 1)), None, "rank 1 of 1");
    }

    #[test]
    fn what_waits_is_small() {
        assert_eq!(size_of::<ExchangeRecord>(), 16);
        let exchange = Exchange::new(&counts(&[7; 5000], &[1; 5000], 7)).unwrap();
        assert_eq!((&*exchange.sent_bytes, exchange.comm_size), (&[28, 28 * 4999][..], 5000));
        assert_eq!(exchange.token_bytes, None, "what was received are no whole tokens");
    }
}
