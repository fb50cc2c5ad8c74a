//! Ranges of NVTX that tell something: what they are called, and what is attached to them.

use super::database::{Cells, Database};
use super::payload::{Payload, Schemas};
use super::step_name::{StepName, StepNumber};
use super::thread::Thread;
use crate::classify::{HostCall, Op};
use std::collections::HashMap;

const TABLE: &str = "NVTX_EVENTS";

/// What the name of a range means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// A call of NCCL's interface.
    Nccl(NcclName),
    /// A collective in PyTorch's ranges, with what it does as far as the name says.
    Host(Op),
    Step(StepNumber),
}

/// A call of NCCL's interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NcclName {
    /// `ncclAllReduce`, `ncclSend` and so on.
    Does(Op),
    GroupStart,
    GroupEnd,
    /// `ncclCommInitRank`, `ncclCommSplit` and others that make a communicator.
    CommMade,
    /// `ncclCommDestroy` and others that name a communicator.
    Comm,
}

impl Meaning {
    /// What a range called `name` means; `None` if nothing that is looked for.
    pub fn of(name: &str, steps: &StepName) -> Option<Self> {
        if let Some(step) = steps.step(name) {
            return Some(Self::Step(step));
        }
        // PyTorch appends `, seq = 1, op_id = 2, sizes = [...]`.
        let name = name.split_once(", ").map_or(name, |(name, _)| name);
        if let Some(call) = name.strip_prefix("nccl").filter(|rest| rest.starts_with(char::is_uppercase)) {
            return NcclName::of(call).map(Self::Nccl);
        }
        if !name.contains(':') {
            return None;
        }
        HostCall::named(name).map(|call| Self::Host(call.op))
    }
}

impl NcclName {
    /// By the name of the function without `nccl`.
    fn of(call: &str) -> Option<Self> {
        Some(match call {
            "AllReduce" | "AllGather" | "ReduceScatter" | "Broadcast" | "Bcast" | "Reduce" | "Send"
            | "Recv" | "AlltoAll" | "AllToAll" | "AllToAllv" | "AlltoAllv" | "Gather" | "Scatter" => {
                Self::Does(Op::in_name(call)?)
            }
            "GroupStart" => Self::GroupStart,
            "GroupEnd" => Self::GroupEnd,
            _ if call.starts_with("CommInit") || matches!(call, "CommSplit" | "CommShrink" | "CommGrow") => {
                Self::CommMade
            }
            "CommDestroy" | "CommAbort" | "CommFinalize" => Self::Comm,
            _ => return None,
        })
    }
}

/// A range of NCCL's interface.
#[derive(Debug, Clone, Copy)]
pub(super) struct NcclRange {
    pub thread: Thread,
    pub start_ns: i64,
    pub end_ns: i64,
    pub name: NcclName,
    pub payload: Payload,
}

/// A collective of PyTorch.
#[derive(Debug, Clone, Copy)]
pub(super) struct HostRange {
    pub thread: Thread,
    pub start_ns: i64,
    pub end_ns: i64,
    pub op: Op,
}

/// A training step.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepRange {
    pub thread: Thread,
    pub start_ns: i64,
    pub end_ns: i64,
    pub number: StepNumber,
}

/// The ranges that were kept.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    pub nccl: Vec<NcclRange>,
    pub host: Vec<HostRange>,
    pub steps: Vec<StepRange>,
    /// Events of no interest.
    pub other: u64,
    /// Ranges of interest that never ended.
    pub open: u64,
    /// Ranges of NCCL with something attached that could not be decoded.
    pub undecoded: u64,
}

impl Ranges {
    /// Reads the ranges of an export. `meanings` are those of its table of strings.
    pub fn read(database: &mut Database, meanings: &HashMap<i64, Meaning>, steps: &StepName) -> Self {
        let mut ranges = Self::default();
        if !database.has(TABLE) {
            return ranges;
        }
        let schemas = Schemas::read(database);
        // Payloads whose text is in the table of strings: which range, which string.
        let mut by_id: Vec<(usize, i64)> = Vec::new();
        let columns = [
            "start",
            "end",
            "eventType",
            "text",
            "textId",
            "globalTid",
            "domainId",
            "jsonText",
            "jsonTextId",
            "binaryData",
        ];
        database.scan(TABLE, &columns, |row| {
            if row.integer(2).is_some_and(|event| !is_range(event)) {
                ranges.other += 1;
                return;
            }
            let meaning = match row.text(3) {
                Some(text) => Meaning::of(&text, steps),
                None => row.integer(4).and_then(|id| meanings.get(&id).copied()),
            };
            let Some(meaning) = meaning else {
                ranges.other += 1;
                return;
            };
            let (Some(start_ns), Some(end_ns)) = (row.integer(0), row.integer(1)) else {
                ranges.open += 1;
                return;
            };
            let thread = Thread::new(row.integer(5));
            match meaning {
                Meaning::Step(number) => {
                    ranges.steps.push(StepRange { thread, start_ns, end_ns, number });
                }
                Meaning::Host(op) => ranges.host.push(HostRange { thread, start_ns, end_ns, op }),
                Meaning::Nccl(name) => {
                    let payload = payload(row, &schemas);
                    if payload.is_empty() {
                        match row.integer(8) {
                            Some(id) => by_id.push((ranges.nccl.len(), id)),
                            None => ranges.undecoded += u64::from(row.bytes(9).is_some()),
                        }
                    }
                    ranges.nccl.push(NcclRange { thread, start_ns, end_ns, name, payload });
                }
            }
        });
        ranges.resolve(database, by_id);
        ranges
    }

    /// Fills in the payloads whose text is in the table of strings.
    fn resolve(&mut self, database: &mut Database, mut by_id: Vec<(usize, i64)>) {
        if by_id.is_empty() {
            return;
        }
        by_id.sort_unstable_by_key(|&(_, id)| id);
        database.scan("StringIds", &["id", "value"], |row| {
            let (Some(id), Some(text)) = (row.integer(0), row.text(1)) else { return };
            let first = by_id.partition_point(|&(_, other)| other < id);
            let same = by_id.get(first..).unwrap_or_default().iter().take_while(|&&(_, other)| other == id);
            for &(index, _) in same {
                if let Some(range) = self.nccl.get_mut(index) {
                    range.payload = Payload::from_json(&text);
                }
            }
        });
    }
}

fn payload(row: &Cells<'_>, schemas: &Schemas) -> Payload {
    let from_text = row.text(7).map(|text| Payload::from_json(&text)).unwrap_or_default();
    if !from_text.is_empty() {
        return from_text;
    }
    let bytes = row.bytes(9);
    bytes.map(|bytes| schemas.decode(row.integer(6), &bytes)).unwrap_or_default()
}

/// Whether an event of this type is a range (`ENUM_NSYS_EVENT_TYPE`): push and pop, or start and end, of
/// NVTX and of its translated form.
fn is_range(event_type: i64) -> bool {
    matches!(event_type, 59 | 60 | 70 | 71)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meanings_of_names() {
        let steps = StepName::new(None).unwrap();
        let meaning = |name| Meaning::of(name, &steps);
        for (name, expected) in [
            ("ncclAllReduce", NcclName::Does(Op::AllReduce)),
            ("ncclBcast", NcclName::Does(Op::Broadcast)),
            ("ncclSend", NcclName::Does(Op::Send)),
            ("ncclAlltoAll", NcclName::Does(Op::AllToAll)),
            ("ncclGather", NcclName::Does(Op::SendRecv)),
            ("ncclGroupStart", NcclName::GroupStart),
            ("ncclGroupEnd", NcclName::GroupEnd),
            ("ncclCommInitRankConfig", NcclName::CommMade),
            ("ncclCommSplit", NcclName::CommMade),
            ("ncclCommDestroy", NcclName::Comm),
        ] {
            assert_eq!(meaning(name), Some(Meaning::Nccl(expected)), "{name}");
        }
        assert_eq!(meaning("nccl:all_to_all, op_id = 991144"), Some(Meaning::Host(Op::AllToAll)));
        assert_eq!(
            meaning("c10d::alltoall_base_, seq = 3, op_id = 12, sizes = [[4]]"),
            Some(Meaning::Host(Op::AllToAll))
        );
        assert_eq!(meaning("ProfilerStep#4"), Some(Meaning::Step(StepNumber::Is(4))));
        for name in ["ncclCommCount", "ncclGetVersion", "nccl", "aten::add, op_id = 3", "forward", ""] {
            assert_eq!(meaning(name), None, "{name}");
        }
    }
}
