//! How calls spread over the ranks of their communicator, for the few calls of which it is known.

use crate::record::MAX_PEERS;
use serde::{Deserialize, Serialize};

/// What an exchange of tokens with experts is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RoutingPhase {
    /// Tokens go to the ranks of their experts.
    Dispatch,
    /// What the experts made of them comes back.
    Combine,
}

impl RoutingPhase {
    /// The name in records and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dispatch => "dispatch",
            Self::Combine => "combine",
        }
    }

    /// The phase that [`as_str`](Self::as_str) names.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Dispatch, Self::Combine].into_iter().find(|phase| phase.as_str() == name)
    }
}

/// How one rank's part in a call spreads over the ranks of the communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchange<'a> {
    /// What it is for, if it exchanges tokens with experts.
    pub phase: Option<RoutingPhase>,
    /// Size of one token; `None` if it is not known, or the bytes for each rank are no multiple of it.
    pub token_bytes: Option<u64>,
    /// Bytes sent to each rank, in the communicator's order; of communicators with more than
    /// [`MAX_PEERS`] ranks, those to the own rank and those to all others.
    pub sent_bytes: &'a [u64],
    /// Bytes received from each rank, likewise.
    pub received_bytes: &'a [u64],
}

impl Exchange<'_> {
    /// Whether there is a number for each rank of a communicator with `comm_size` ranks, or the two for a
    /// larger one.
    pub fn fits(&self, comm_size: u32) -> bool {
        let size = comm_size as usize;
        let wanted = if size > MAX_PEERS { 2 } else { size };
        size > 0 && self.sent_bytes.len() == wanted && self.received_bytes.len() == wanted
    }
}

/// The exchanges of a track, by row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Exchanges {
    about: Vec<About>,
    /// Those sent, then those received, of one exchange after another.
    bytes: Vec<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct About {
    row: usize,
    phase: Option<RoutingPhase>,
    token_bytes: Option<u64>,
    first: usize,
    sent: usize,
    received: usize,
}

impl Exchanges {
    /// Adds that of `row`, which is behind all before.
    pub(super) fn push(&mut self, row: usize, exchange: Exchange<'_>) {
        let Exchange { phase, token_bytes, sent_bytes, received_bytes } = exchange;
        let (first, sent, received) = (self.bytes.len(), sent_bytes.len(), received_bytes.len());
        self.about.push(About { row, phase, token_bytes, first, sent, received });
        self.bytes.extend_from_slice(sent_bytes);
        self.bytes.extend_from_slice(received_bytes);
    }

    /// That of `row`, if it has one.
    pub(super) fn get(&self, row: usize) -> Option<Exchange<'_>> {
        let at = self.about.binary_search_by_key(&row, |about| about.row).ok()?;
        let &About { phase, token_bytes, first, sent, received, .. } = self.about.get(at)?;
        let (sent_bytes, rest) = self.bytes.get(first..)?.split_at_checked(sent)?;
        let received_bytes = rest.get(..received)?;
        Some(Exchange { phase, token_bytes, sent_bytes, received_bytes })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.about.is_empty()
    }

    /// Gives back memory that was set aside for more.
    pub(super) fn shrink(&mut self) {
        self.about.shrink_to_fit();
        self.bytes.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_without_an_exchange_take_no_memory() {
        let mut exchanges = Exchanges::default();
        let exchange = |sent_bytes, received_bytes| Exchange {
            phase: Some(RoutingPhase::Dispatch),
            token_bytes: Some(2),
            sent_bytes,
            received_bytes,
        };
        exchanges.push(3, exchange(&[4, 2], &[6, 8]));
        exchanges.push(1000, exchange(&[0, 2, 4], &[6, 6, 8]));
        assert_eq!(exchanges.get(3), Some(exchange(&[4, 2], &[6, 8])));
        assert_eq!(exchanges.get(1000), Some(exchange(&[0, 2, 4], &[6, 6, 8])));
        assert_eq!((exchanges.get(0), exchanges.get(4)), (None, None));
        assert_eq!((exchanges.about.len(), exchanges.bytes.len()), (2, 10));
    }

    #[test]
    fn large_communicators_have_two_numbers() {
        let exchange =
            |sent_bytes| Exchange { phase: None, token_bytes: None, sent_bytes, received_bytes: &[1, 2] };
        assert!(exchange(&[1, 2]).fits(2) && exchange(&[1, 2]).fits(257) && !exchange(&[1, 2]).fits(256));
        assert!(!exchange(&[1]).fits(2) && !exchange(&[1]).fits(0));
    }
}
