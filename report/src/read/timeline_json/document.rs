//! The document's objects, read as they come.

use super::super::ReadOptions;
use super::super::builder::Builder;
use super::place::Place;
use super::value::{Text, count, small_count, step, time};
use crate::timeline::{Comm, Compute, Names, Step, Sym, Track};
use indexmap::IndexMap;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// What was read of a document.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub events: u64,
    pub anomalies: IndexMap<String, u64>,
    /// The rank, if there is only one.
    pub only_rank: Option<u32>,
    ranks: u64,
}

/// The state of reading a document.
pub(super) struct Reader<'b, 'o> {
    builder: &'b mut Builder,
    options: &'o ReadOptions,
    counts: Counts,
    place: Place,
}

impl<'b, 'o> Reader<'b, 'o> {
    pub fn new(builder: &'b mut Builder, options: &'o ReadOptions) -> Self {
        Self { builder, options, counts: Counts::default(), place: Place::default() }
    }

    /// What was read, and where reading ended.
    pub fn finish(self) -> (Counts, Place) {
        (self.counts, self.place)
    }

    fn add(&mut self, track: Track) {
        let rank = track.rank;
        if !self.options.wants(rank) {
            self.builder.left_out(rank);
            return;
        }
        let reversed = |starts: &[i64], ends: &[i64]| {
            starts.iter().zip(ends).filter(|(start, end)| end < start).count() as u64
        };
        let anomalies = reversed(track.compute.starts_ns(), track.compute.ends_ns())
            + reversed(track.comm.starts_ns(), track.comm.ends_ns())
            + track.steps.iter().filter(|step| step.end_ns < step.start_ns).count() as u64;
        if anomalies > 0 {
            *self.counts.anomalies.entry("end_before_start".to_owned()).or_default() += anomalies;
        }
        self.counts.events += (track.compute.len() + track.comm.len() + track.steps.len()) as u64;
        self.counts.ranks += 1;
        self.counts.only_rank = (self.counts.ranks == 1).then_some(rank);
        self.builder.add(track);
    }
}

/// The whole document.
pub(super) struct Document<'r, 'b, 'o>(pub &'r mut Reader<'b, 'o>);

impl<'de> DeserializeSeed<'de> for Document<'_, '_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum RankKey {
    Ranks,
    Rank,
    Compute,
    Comm,
    Device,
    Host,
    Steps,
    #[serde(untagged)]
    Other(String),
}

impl<'de> Visitor<'de> for Document<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `ranks`, or with `compute` and `comm`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let reader = self.0;
        let mut ranks = false;
        let mut bare = RankParts::default();
        let mut others = Vec::new();
        while let Some(key) = map.next_key::<RankKey>()? {
            match key {
                RankKey::Ranks => {
                    ranks = true;
                    map.next_value_seed(Ranks(reader))?;
                }
                RankKey::Other(key) => {
                    if others.len() < 5 {
                        others.push(key);
                    }
                    map.next_value::<IgnoredAny>()?;
                }
                key => bare.value(key, &mut map, reader)?,
            }
        }
        match (ranks, bare.has_intervals()) {
            (true, true) => {
                Err(A::Error::custom("it has both `ranks` and intervals beside them: which count?"))
            }
            (true, false) => Ok(()),
            (false, true) => {
                let rank = bare.rank.unwrap_or(0);
                bare.finish(rank, reader)
            }
            (false, false) => {
                let keys = others.join("`, `");
                let keys = if others.is_empty() { "none of them".into() } else { format!("`{keys}`") };
                Err(A::Error::custom(format_args!(
                    "this JSON is not a timeline: it should have `ranks`, or `compute` and `comm`, and has \
                     {keys}"
                )))
            }
        }
    }
}

/// The list of ranks.
struct Ranks<'r, 'b, 'o>(&'r mut Reader<'b, 'o>);

impl<'de> DeserializeSeed<'de> for Ranks<'_, '_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.0.place.key = Some("ranks");
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Ranks<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of ranks")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let reader = self.0;
        for entry in 0.. {
            reader.place = Place { entry: Some(entry), ..Place::default() };
            if seq.next_element_seed(Rank(reader))?.is_none() {
                break;
            }
        }
        reader.place = Place::default();
        Ok(())
    }
}

/// One rank's object.
struct Rank<'r, 'b, 'o>(&'r mut Reader<'b, 'o>);

impl<'de> DeserializeSeed<'de> for Rank<'_, '_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Rank<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `rank`, `compute` and `comm`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let reader = self.0;
        let mut parts = RankParts::default();
        while let Some(key) = map.next_key::<RankKey>()? {
            parts.value(key, &mut map, reader)?;
        }
        let rank = parts.rank.ok_or_else(|| A::Error::custom("it has no `rank`"))?;
        parts.finish(rank, reader)
    }
}

/// What was read of a rank's object. Its keys may come in any order.
#[derive(Default)]
struct RankParts {
    track: Track,
    rank: Option<u32>,
    compute: bool,
    comm: bool,
}

impl RankParts {
    fn has_intervals(&self) -> bool {
        self.compute || self.comm
    }

    fn value<'de, A: MapAccess<'de>>(
        &mut self,
        key: RankKey,
        map: &mut A,
        reader: &mut Reader<'_, '_>,
    ) -> Result<(), A::Error> {
        let track = &mut self.track;
        let place = &mut reader.place;
        let names = reader.builder.names();
        match key {
            RankKey::Rank => {
                place.key = Some("rank");
                self.rank = small_count(&map.next_value::<Box<RawValue>>()?)?;
                place.rank = self.rank;
            }
            RankKey::Device => {
                place.key = Some("device");
                track.device = small_count(&map.next_value::<Box<RawValue>>()?)?;
            }
            RankKey::Host => {
                place.key = Some("host");
                track.clock = map.next_value_seed(Text(names))?;
            }
            RankKey::Compute => {
                self.compute = true;
                map.next_value_seed(Records {
                    names,
                    place,
                    list: "compute",
                    keep: |record: &Record| {
                        let (start_ns, end_ns) = record.times()?;
                        let name = record.name.ok_or("it has no `name`")?;
                        track.compute.push(Compute { name, start_ns, end_ns, step: record.step });
                        Ok(())
                    },
                })?;
            }
            RankKey::Comm => {
                self.comm = true;
                map.next_value_seed(Records {
                    names,
                    place,
                    list: "comm",
                    keep: |record: &Record| {
                        let (start_ns, end_ns) = record.times()?;
                        let op = record.op.ok_or("it has no `op`")?;
                        track.comm.push(Comm {
                            bytes: record.bytes.ok_or("it has no `bytes`; write null if unknown")?,
                            comm: record.comm,
                            seq: record.seq,
                            comm_size: record.comm_size,
                            comm_rank: record.comm_rank,
                            stream: record.stream,
                            dtype: record.dtype,
                            peer: record.peer,
                            step: record.step,
                            ..Comm::new(op, start_ns, end_ns)
                        });
                        Ok(())
                    },
                })?;
            }
            RankKey::Steps => {
                map.next_value_seed(Records {
                    names,
                    place,
                    list: "steps",
                    keep: |record: &Record| {
                        let (start_ns, end_ns) = record.times()?;
                        let step = record.step.ok_or("it has no `step`")?;
                        track.steps.push(Step { step, start_ns, end_ns });
                        Ok(())
                    },
                })?;
            }
            RankKey::Ranks | RankKey::Other(_) => {
                map.next_value::<IgnoredAny>()?;
            }
        }
        reader.place.key = None;
        Ok(())
    }

    fn finish<E: Error>(mut self, rank: u32, reader: &mut Reader<'_, '_>) -> Result<(), E> {
        for (present, key) in [(self.compute, "compute"), (self.comm, "comm")] {
            if !present {
                return Err(E::custom(format_args!("it has no `{key}`; write [] if there is none")));
            }
        }
        self.track.rank = rank;
        reader.add(self.track);
        Ok(())
    }
}

/// A list of intervals, each handed to `keep`.
struct Records<'a, K> {
    names: &'a mut Names,
    place: &'a mut Place,
    list: &'static str,
    keep: K,
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
struct Record {
    name: Option<Sym>,
    op: Option<Sym>,
    start_ns: Option<i64>,
    end_ns: Option<i64>,
    /// Outer `None`: absent; inner: null.
    bytes: Option<Option<u64>>,
    step: Option<i64>,
    comm: Option<Sym>,
    seq: Option<u64>,
    comm_size: Option<u32>,
    comm_rank: Option<u32>,
    stream: Option<Sym>,
    dtype: Option<Sym>,
    peer: Option<u32>,
}

impl Record {
    fn times(&self) -> Result<(i64, i64), &'static str> {
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
