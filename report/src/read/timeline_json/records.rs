//! Lists of intervals.

use super::place::Place;
use super::room::Room;
use super::value::{Text, count, small_count, step, time};
use crate::timeline::{Names, Sym};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// A list of intervals, each handed to `keep`.
pub(super) struct Records<'a, K> {
    pub names: &'a mut Names,
    pub place: &'a mut Place,
    pub room: &'a Room,
    /// The key of the list.
    pub list: &'static str,
    pub keep: K,
}

impl<'de, K: FnMut(&Record) -> Result<(), &'static str>> DeserializeSeed<'de> for Records<'_, K> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.place.list = Some(self.list);
        deserializer.deserialize_seq(self)
    }
}

impl<'de, K: FnMut(&Record) -> Result<(), &'static str>> Visitor<'de> for Records<'_, K> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        for index in 0.. {
            self.place.record = Some(index);
            self.room.begin();
            let seed = RecordSeed { names: self.names, place: self.place };
            let Some(record) = seq.next_element_seed(seed)? else { break };
            self.place.key = None;
            (self.keep)(&record).map_err(A::Error::custom)?;
        }
        self.place.list = None;
        self.place.record = None;
        Ok(())
    }
}

/// The values of one interval, whatever its kind.
#[derive(Default)]
pub(super) struct Record {
    pub name: Option<Sym>,
    pub op: Option<Sym>,
    pub start_ns: Option<i64>,
    pub end_ns: Option<i64>,
    /// Outer `None`: absent; inner: null.
    pub bytes: Option<Option<u64>>,
    pub step: Option<i64>,
    pub comm: Option<Sym>,
    pub seq: Option<u64>,
    pub comm_size: Option<u32>,
    pub comm_rank: Option<u32>,
    pub stream: Option<Sym>,
    pub dtype: Option<Sym>,
    pub peer: Option<u32>,
}

impl Record {
    /// Start and end.
    pub fn times(&self) -> Result<(i64, i64), &'static str> {
        Ok((self.start_ns.ok_or("it has no `start`")?, self.end_ns.ok_or("it has no `end`")?))
    }
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum RecordKey {
    Name,
    Op,
    Start,
    End,
    Bytes,
    Step,
    Comm,
    Seq,
    CommSize,
    CommRank,
    Stream,
    Dtype,
    Peer,
    #[serde(other)]
    Other,
}

impl RecordKey {
    fn name(&self) -> Option<&'static str> {
        Some(match self {
            Self::Name => "name",
            Self::Op => "op",
            Self::Start => "start",
            Self::End => "end",
            Self::Bytes => "bytes",
            Self::Step => "step",
            Self::Comm => "comm",
            Self::Seq => "seq",
            Self::CommSize => "comm_size",
            Self::CommRank => "comm_rank",
            Self::Stream => "stream",
            Self::Dtype => "dtype",
            Self::Peer => "peer",
            Self::Other => return None,
        })
    }
}

struct RecordSeed<'a> {
    names: &'a mut Names,
    place: &'a mut Place,
}

impl<'de> DeserializeSeed<'de> for RecordSeed<'_> {
    type Value = Record;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Record, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for RecordSeed<'_> {
    type Value = Record;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Record, A::Error> {
        let mut record = Record::default();
        while let Some(key) = map.next_key::<RecordKey>()? {
            self.place.key = key.name();
            let names = &mut *self.names;
            match key {
                RecordKey::Name => record.name = map.next_value_seed(Text(names))?,
                RecordKey::Op => record.op = map.next_value_seed(Text(names))?,
                RecordKey::Comm => record.comm = map.next_value_seed(Text(names))?,
                RecordKey::Stream => record.stream = map.next_value_seed(Text(names))?,
                RecordKey::Dtype => record.dtype = map.next_value_seed(Text(names))?,
                RecordKey::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
                number => {
                    let raw = map.next_value::<Box<RawValue>>()?;
                    match number {
                        RecordKey::Start => record.start_ns = Some(time(&raw)?),
                        RecordKey::End => record.end_ns = Some(time(&raw)?),
                        RecordKey::Bytes => record.bytes = Some(count(&raw)?),
                        RecordKey::Step => record.step = step(&raw)?,
                        RecordKey::Seq => record.seq = count(&raw)?,
                        RecordKey::CommSize => record.comm_size = small_count(&raw)?,
                        RecordKey::CommRank => record.comm_rank = small_count(&raw)?,
                        _ => record.peer = small_count(&raw)?,
                    }
                }
            }
            self.place.key = None;
        }
        Ok(record)
    }
}
