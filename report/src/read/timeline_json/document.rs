//! The document's objects, read as they come.

use super::super::ReadOptions;
use super::super::builder::Builder;
use super::place::Place;
use super::records::{Record, Records};
use super::room::Room;
use super::value::{Text, small_count};
use crate::timeline::{Comm, Compute, Step, Track};
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
    room: &'o Room,
}

impl<'b, 'o> Reader<'b, 'o> {
    pub fn new(builder: &'b mut Builder, options: &'o ReadOptions, room: &'o Room) -> Self {
        Self { builder, options, counts: Counts::default(), place: Place::default(), room }
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
                    reader.room.unlimited();
                    map.next_value::<IgnoredAny>()?;
                    reader.room.begin();
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
            reader.room.begin();
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
        let room = reader.room;
        let names = reader.builder.names();
        room.begin();
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
                    room,
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
                    room,
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
                    room,
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
                room.unlimited();
                map.next_value::<IgnoredAny>()?;
            }
        }
        room.begin();
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
