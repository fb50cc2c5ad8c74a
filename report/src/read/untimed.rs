//! Records that carry no time.

use crate::timeline::Untimed;

impl Untimed {
    /// Adds a record.
    pub(crate) fn add(&mut self, reason: &str, bytes: Option<u64>) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes.unwrap_or(0));
        *self.reasons.entry(reason.to_owned()).or_default() += 1;
    }
}

/// What a reader of the report has to know of a rank's compute without a time, of which the figures know
/// nothing.
pub(crate) fn compute_warning(rank: u32, untimed: &Untimed) -> String {
    let reasons: Vec<String> =
        untimed.reasons.iter().map(|(reason, count)| format!("{reason}: {count}")).collect();
    format!(
        "Rank {rank} has {} compute spans without a time ({}): communication that they hid counts as exposed.",
        untimed.count,
        reasons.join(", ")
    )
}

/// What a reader of the report has to know of calls whose bytes per rank were lost.
pub(crate) fn peer_bytes_warning(calls: u64) -> String {
    format!(
        "Of {calls} calls it was lost how their bytes spread over ranks (a queue was full, or the counts given for a \
         call were not those of its communicator): these are not in the figures of expert routing."
    )
}
