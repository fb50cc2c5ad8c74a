//! Sends and receives that found no counterpart.

use super::evidence::{Channel, ChannelEvidence, Ending, Entry, Evidence};
use super::finding::{Desync, DesyncKind};
use super::missing::{Proof, absence};
use super::say::{self, Subject};

/// What is wrong on a channel at the end of the record.
pub(super) fn judge(
    evidence: &Evidence<'_>,
    (name, source, destination): Channel,
    channel: &ChannelEvidence,
) -> Option<Desync> {
    let hangs = |call: &&Entry| evidence.hangs(call, channel.longest_ns);
    let calls: Vec<Entry> = channel.open.iter().filter(hangs).copied().collect();
    let (kind, waiting, absent) = match channel.sends.cmp(&channel.recvs) {
        std::cmp::Ordering::Less => (DesyncKind::RecvWithoutSend, destination, source),
        std::cmp::Ordering::Greater => (DesyncKind::SendWithoutRecv, source, destination),
        // Both are there, and the message does not arrive.
        std::cmp::Ordering::Equal => {
            let subject = subject(evidence, name, &calls);
            return (!calls.is_empty()).then(|| say::about(evidence, &subject, DesyncKind::Stalled, &[]));
        }
    };
    let subject = subject(evidence, name, &calls);
    let about = || {
        let op = match kind {
            DesyncKind::RecvWithoutSend => "recv",
            _ => "send",
        };
        let mut found = say::about(evidence, &subject, kind, &[absent]);
        found.op = Some(op.to_owned());
        found.entered = vec![waiting];
        found
    };
    let Some(state) = evidence.ranks.get(&absent) else {
        // Nothing is known of the other side; whoever waits for it is worth a word, who does not is not.
        return (!calls.is_empty()).then(|| Desync {
            not_read: vec![absent],
            weakened: vec![format!("{}: not read.", say::capital(&say::ranks(&[absent])))],
            ..about()
        });
    };
    let mut weakened = say::losses(evidence, &[absent]);
    let left = [source, destination].iter().all(|rank| {
        evidence
            .ranks
            .get(rank)
            .is_some_and(|state| state.ending == Ending::Regular && state.losses.is_empty())
    });
    if calls.is_empty() {
        // A small send returns before it is received. At the end of the run all are to have met.
        if !left {
            return None;
        }
    } else if absence(evidence, &[absent], &calls) == Proof::Unproven && state.ending == Ending::Cut {
        weakened.push(say::cut_before(evidence, &[absent], evidence.stopped(absent)));
    }
    Some(Desync { missing: vec![absent], weakened, ..about() })
}

fn subject<'a>(evidence: &'a Evidence<'_>, name: crate::timeline::Sym, calls: &'a [Entry]) -> Subject<'a> {
    Subject { name: Some(name), comm: evidence.comms.get(&name), seq: None, calls }
}
