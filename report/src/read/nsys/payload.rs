//! What NCCL attaches to its NVTX ranges: communicator, message size, peer.
//!
//! The fields and their names are those of NCCL's `nvtx_payload_schemas.h`. Exports hold them as text
//! (`jsonText`), or as bytes (`binaryData`) whose layout the tables `NVTX_PAYLOAD_SCHEMAS` and
//! `NVTX_PAYLOAD_SCHEMA_ENTRIES` describe.

use super::database::Database;
use serde_json::Value;
use std::collections::HashMap;

/// Bytes before the payload: domain, schema, size of the payload, and one more, 8 bytes each.
const HEADER: usize = 32;
/// The longest text that is parsed, in bytes.
const LONGEST_TEXT: usize = 1 << 16;

/// The fields of one range. What is not there is not recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Payload {
    /// Hash of the communicator's id, the same on all of its ranks.
    pub comm: Option<u64>,
    /// Bytes of one message, as the call's `count` tells: of a gather, one rank's share.
    pub bytes: Option<u64>,
    /// The other side of a send or receive, in the communicator's numbering.
    pub peer: Option<u32>,
    /// The root, likewise.
    pub root: Option<u32>,
    /// Ranks of the communicator, where one is made.
    pub ranks: Option<u32>,
    /// This rank in it.
    pub rank: Option<u32>,
    /// The device that this rank uses.
    pub device: Option<u32>,
}

impl Payload {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn set(&mut self, field: Field, value: u64) {
        let small = u32::try_from(value).ok();
        match field {
            Field::Comm => self.comm = Some(value),
            Field::Bytes => self.bytes = Some(value),
            Field::Peer => self.peer = small,
            Field::Root => self.root = small,
            Field::Ranks => self.ranks = small,
            Field::Rank => self.rank = small,
            Field::Device => self.device = small,
        }
    }

    /// From an object of field names and values. Numbers may be grouped by commas, as Nsight shows them.
    pub fn from_json(text: &str) -> Self {
        let mut payload = Self::default();
        if text.len() > LONGEST_TEXT {
            return payload;
        }
        let Ok(Value::Object(members)) = serde_json::from_str(text) else { return payload };
        for (name, value) in members {
            let number = match value {
                Value::Number(number) => number.as_u64().or_else(|| number.as_i64().map(i64::cast_unsigned)),
                Value::String(text) => whole(&text),
                _ => None,
            };
            if let (Some(field), Some(number)) = (Field::named(&name), number) {
                payload.set(field, number);
            }
        }
        payload
    }
}

fn whole(text: &str) -> Option<u64> {
    let text = text.trim();
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok();
    }
    text.chars().filter(|&c| c != ',').collect::<String>().parse().ok()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Comm,
    Bytes,
    Peer,
    Root,
    Ranks,
    Rank,
    Device,
}

impl Field {
    fn named(name: &str) -> Option<Self> {
        Some(match name.trim() {
            "NCCL communicator ID" => Self::Comm,
            // Before communicators were recorded, some sizes were called `Bytes`.
            "Message size [bytes]" | "Bytes" => Self::Bytes,
            "Peer rank" => Self::Peer,
            "Root" => Self::Root,
            "No. of ranks" | "No. of devices" => Self::Ranks,
            "Rank" => Self::Rank,
            "CUDA device" => Self::Device,
            _ => return None,
        })
    }
}

/// A field of a schema.
#[derive(Debug, Clone, Copy)]
struct Entry {
    field: Field,
    offset: usize,
    size: usize,
}

/// How payloads are laid out, by domain and schema.
#[derive(Debug, Default)]
pub(super) struct Schemas {
    entries: HashMap<(i64, u64), Vec<Entry>>,
}

impl Schemas {
    /// The schemas of an export; none if it has no such table.
    pub fn read(database: &mut Database) -> Self {
        let mut schemas = Self::default();
        let columns = ["domainId", "schemaId", "type", "name", "offset", "arrayOrUnionDetail"];
        database.scan("NVTX_PAYLOAD_SCHEMA_ENTRIES", &columns, |row| {
            let field = row.text(3).and_then(|name| Field::named(&name));
            let (Some(schema), Some(field)) = (row.integer(1), field) else { return };
            let size = row.integer(2).and_then(size_of);
            let offset = usize::try_from(row.integer(4).unwrap_or(0)).ok();
            let (Some(size), Some(offset), None | Some(0)) = (size, offset, row.integer(5)) else { return };
            let entries = schemas.entries.entry((row.integer(0).unwrap_or(0), schema.cast_unsigned()));
            let entries = entries.or_default();
            // Every process registers the same schemas.
            if !entries.iter().any(|entry| entry.field == field) {
                entries.push(Entry { field, offset, size });
            }
        });
        schemas
    }

    /// The fields of a payload of `domain`, which the payload itself says if the export does not.
    pub fn decode(&self, domain: Option<i64>, bytes: &[u8]) -> Payload {
        let mut payload = Payload::default();
        let domain = domain.or_else(|| Some(unsigned(bytes, 0, 8)?.cast_signed())).unwrap_or(0);
        let schema = unsigned(bytes, 8, 8).and_then(|schema| self.entries.get(&(domain, schema)));
        let (Some(schema), Some(content)) = (schema, bytes.get(HEADER..)) else { return payload };
        let size = unsigned(bytes, 16, 8).and_then(|size| usize::try_from(size).ok());
        let Some(content) = size.and_then(|size| content.get(..size)) else { return payload };
        for entry in schema {
            if let Some(value) = unsigned(content, entry.offset, entry.size) {
                payload.set(entry.field, value);
            }
        }
        payload
    }
}

fn unsigned(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(size)?)?;
    Some(bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
}

/// Bytes of a whole number of this type (`NVTX_PAYLOAD_ENTRY_TYPE_*` in `nvToolsExtPayload.h`), on 64-bit
/// Linux; `None` for other types.
fn size_of(entry_type: i64) -> Option<usize> {
    Some(match entry_type {
        3 | 4 | 13 | 14 => 2,
        5 | 6 | 15 | 16 => 4,
        7..=10 | 17 | 18 | 22 => 8,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schemas() -> Schemas {
        let entries = vec![
            Entry { field: Field::Comm, offset: 0, size: 8 },
            Entry { field: Field::Bytes, offset: 8, size: 8 },
            Entry { field: Field::Peer, offset: 16, size: 4 },
        ];
        Schemas { entries: [((1, 0x100_0002), entries)].into_iter().collect() }
    }

    fn bytes(schema: u64, size: u64) -> Vec<u8> {
        let words = [1, schema, size, size.wrapping_add(32), 0xabc_def0_1234_5678, 1 << 33, 7];
        words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect()
    }

    #[test]
    fn binary() {
        let expected = Payload {
            comm: Some(0xabc_def0_1234_5678),
            bytes: Some(1 << 33),
            peer: Some(7),
            ..Payload::default()
        };
        assert_eq!(schemas().decode(Some(1), &bytes(0x100_0002, 24)), expected);
        // A payload that is shorter than its schema has the fields that are in it.
        assert_eq!(schemas().decode(Some(1), &bytes(0x100_0002, 16)), Payload { peer: None, ..expected });
        assert_eq!(schemas().decode(None, &bytes(0x100_0002, 24)), expected);
        for (domain, bytes) in [
            (2, bytes(0x100_0002, 24)),
            (1, bytes(0x100_0003, 24)),
            (1, bytes(0x100_0002, 25)),
            (1, bytes(0x100_0002, u64::MAX)),
            (1, bytes(0x100_0002, 24)[..40].to_vec()),
            (1, bytes(0x100_0002, 24)[..20].to_vec()),
            (1, Vec::new()),
        ] {
            assert!(schemas().decode(Some(domain), &bytes).is_empty(), "{bytes:?}");
        }
    }

    #[test]
    fn text() {
        let payload = Payload::from_json(
            r#"{"NCCL communicator ID": 18446744073709551615, "Message size [bytes]": "1,048,576", "Rank": 3,
                "No. of ranks": "8", "CUDA device": 1, "Root": -1, "Reduction operation": "Sum"}"#,
        );
        let expected = Payload {
            comm: Some(u64::MAX),
            bytes: Some(1 << 20),
            rank: Some(3),
            ranks: Some(8),
            device: Some(1),
            ..Payload::default()
        };
        assert_eq!(payload, expected);
        assert_eq!(Payload::from_json(r#"{"NCCL communicator ID": "0xff"}"#).comm, Some(255));
        for text in ["", "[]", "{", "null", r#"{"Rank": 1.5}"#, r#"{"Rank": [1]}"#] {
            assert!(Payload::from_json(text).is_empty(), "{text}");
        }
    }
}
