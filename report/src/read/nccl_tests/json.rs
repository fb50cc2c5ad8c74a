//! What programs of nccl-tests write with `-J FILE.json`.

use super::{op_of, redop_of, root_of, version_of};
use crate::nccl::{Measure, NcclTests, TestDevice, TestRow};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::io::{self, Read};

/// Rows that are kept.
const MOST_ROWS: usize = 1 << 16;
/// Longest text of this format, with the times of every iteration of every process in it.
const LONGEST: u64 = 1 << 27;

/// Whether a JSON document that begins with `start` is of this format.
pub(in crate::read) fn matches(start: &[u8]) -> bool {
    let text = String::from_utf8_lossy(start);
    let has = |key: &str| text.contains(key);
    has("\"version\"") && has("\"start_time\"") && has("\"args\"")
}

/// A table, and why it could not be read to its end.
pub(in crate::read) struct Outcome {
    pub table: NcclTests,
    pub fault: Option<serde_json::Error>,
    pub malformed: u64,
}

/// Reads the document from `reader`, as far as it goes.
pub(in crate::read) fn read(reader: impl Read) -> Outcome {
    let mut state = State::default();
    let mut deserializer = serde_json::Deserializer::from_reader(io::BufReader::new(reader.take(LONGEST)));
    let fault = (&mut deserializer).deserialize_map(Document(&mut state)).err();
    // A blank end is the document's; anything else behind it is not looked at.
    let mut table = state.table;
    if fault.is_some() {
        table.finished = false;
    }
    Outcome { table, fault, malformed: state.malformed }
}

#[derive(Debug, Default)]
struct State {
    table: NcclTests,
    malformed: u64,
}

struct Document<'a>(&'a mut State);

impl<'de> Visitor<'de> for Document<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the object that nccl-tests writes")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let state = self.0;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                // The environment is someone's own and stays where it is.
                "args" => {
                    let args: Lenient<Vec<Lenient<String>>> = map.next_value()?;
                    let program = args.0.and_then(|args| args.into_iter().next()?.0);
                    if let Some(program) = program {
                        state.table.op = op_of(&program);
                        let name = program.rsplit('/').next().unwrap_or(&program);
                        state.table.program = Some(name.chars().take(128).collect());
                    }
                }
                "nccl_version" => {
                    let code: Number = map.next_value()?;
                    state.table.nccl_version = code.0.and_then(|code| version_of(code as u64));
                }
                "config" => {
                    let config: Lenient<Config> = map.next_value()?;
                    let config = config.0.unwrap_or_default();
                    state.table.iterations = config.iterations.whole();
                    state.table.warmup_iterations = config.warmup_iters.whole();
                    let devices = config.devices.into_iter().filter_map(|device| device.0);
                    state.table.devices = devices.filter_map(Device::finish).collect();
                }
                "results" => map.next_value_seed(Rows(state))?,
                "out_of_bounds" => {
                    let bounds: Lenient<Bounds> = map.next_value()?;
                    state.table.out_of_bounds = bounds.0.and_then(|bounds| bounds.count.whole());
                    state.table.finished = true;
                }
                "average_bus_bandwidth" => {
                    let bandwidth: Lenient<Bandwidth> = map.next_value()?;
                    state.table.average_busbw_gbs = bandwidth.0.and_then(|bandwidth| bandwidth.bandwidth.0);
                    state.table.finished = true;
                }
                "errors" => {
                    let errors: Lenient<Vec<Lenient<String>>> = map.next_value()?;
                    let errors = errors.0.unwrap_or_default().into_iter().filter_map(|error| error.0);
                    let errors = errors.filter(|error| !error.is_empty()).take(16);
                    state.table.errors = errors.map(|error| error.chars().take(400).collect()).collect();
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Rows one by one, so that those before a cut are kept.
struct Rows<'a>(&'a mut State);

impl<'de> DeserializeSeed<'de> for Rows<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Rows<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an array of results")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut rows: A) -> Result<(), A::Error> {
        let State { table, malformed } = self.0;
        while let Some(row) = rows.next_element::<Lenient<Row>>()? {
            let row = row.0.and_then(|row| {
                table.cpu_time |= row.cpu_time();
                if table.op.is_none() {
                    table.op = row.experiment_name.as_deref().and_then(op_of);
                }
                row.finish()
            });
            match row {
                Some(row) if table.rows.len() < MOST_ROWS => table.rows.push(row),
                Some(_) => {}
                None => *malformed += 1,
            }
        }
        Ok(())
    }
}

/// A value, or `None` for one of another kind. Damage of the document is still an error.
struct Lenient<T>(Option<T>);

impl<'de, T: serde::de::DeserializeOwned> Deserialize<'de> for Lenient<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        Ok(Self(serde_json::from_value(value).ok()))
    }
}

/// A finite number, which may stand in a string; `None` for anything else, `"nan"` for one.
#[derive(Debug, Clone, Copy, Default)]
struct Number(Option<f64>);

impl Number {
    fn whole(self) -> Option<u64> {
        self.0.filter(|value| *value >= 0.0 && value.fract() == 0.0).map(|value| value as u64)
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::Number(number) => number.as_f64(),
            serde_json::Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        Ok(Self(number.filter(|number: &f64| number.is_finite())))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Config {
    iterations: Number,
    warmup_iters: Number,
    devices: Vec<Lenient<Device>>,
}

impl fmt::Debug for Lenient<Device> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Device {
    rank: Number,
    hostname: String,
    device: Number,
    device_info: String,
}

impl Device {
    fn finish(self) -> Option<TestDevice> {
        let small = |number: Number| u32::try_from(number.whole()?).ok();
        Some(TestDevice {
            rank: small(self.rank)?,
            host: self.hostname,
            device: small(self.device)?,
            name: self.device_info.trim().to_owned(),
        })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Bounds {
    count: Number,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Bandwidth {
    bandwidth: Number,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Row {
    size: Option<u64>,
    count: u64,
    #[serde(rename = "type")]
    dtype: String,
    redop: Option<String>,
    root: Option<String>,
    out_of_place: Option<Measured>,
    in_place: Option<Measured>,
    experiment_name: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct Measured {
    time: Number,
    cpu_time: Number,
    alg_bw: Number,
    bus_bw: Number,
    nwrong: Number,
}

impl Measured {
    fn finish(self) -> Option<Measure> {
        let sound = |number: Number| number.0.filter(|value| *value >= 0.0);
        Some(Measure {
            time_us: sound(self.time).or(sound(self.cpu_time))?,
            algbw_gbs: sound(self.alg_bw)?,
            busbw_gbs: sound(self.bus_bw)?,
            wrong: sound(self.nwrong),
            max_error: None,
        })
    }
}

impl Row {
    fn cpu_time(&self) -> bool {
        [self.out_of_place, self.in_place].iter().flatten().any(|measured| measured.cpu_time.0.is_some())
    }

    fn finish(self) -> Option<TestRow> {
        let row = TestRow {
            bytes: self.size?,
            count: self.count,
            dtype: self.dtype,
            redop: self.redop.as_deref().and_then(redop_of),
            root: self.root.as_deref().and_then(root_of),
            out_of_place: self.out_of_place.and_then(Measured::finish),
            in_place: self.in_place.and_then(Measured::finish),
        };
        let measured = row.out_of_place.is_some() || row.in_place.is_some();
        measured.then_some(row)
    }
}
