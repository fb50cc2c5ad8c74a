//! What a run of nccl-tests measured.

use serde::{Deserialize, Serialize};

/// One table of nccl-tests, from its text or its JSON.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NcclTests {
    /// The operation, from the program's name; `None` if nothing says.
    pub op: Option<String>,
    /// The program, for example `all_reduce_perf`.
    pub program: Option<String>,
    /// Version of nccl-tests.
    pub version: Option<String>,
    /// Version of NCCL.
    pub nccl_version: Option<String>,
    /// The ranks' devices.
    pub devices: Vec<TestDevice>,
    /// Timed iterations per size.
    pub iterations: Option<u64>,
    /// Untimed iterations before them.
    pub warmup_iterations: Option<u64>,
    /// Whether `time_us` is the time of the host's calls (`-C 1`) instead of the operation's.
    pub cpu_time: bool,
    /// The sizes, in order.
    pub rows: Vec<TestRow>,
    /// Sizes whose results were wrong, as the summary counts them.
    pub out_of_bounds: Option<u64>,
    /// Mean of the bus bandwidths, GB/s, as the summary has it.
    pub average_busbw_gbs: Option<f64>,
    /// Failures that were reported, as text.
    pub errors: Vec<String>,
    /// Whether the summary is there: without it the run stopped before its end.
    pub finished: bool,
}

/// The device of one rank.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TestDevice {
    /// Rank.
    pub rank: u32,
    /// Host name.
    pub host: String,
    /// Device ordinal.
    pub device: u32,
    /// Name of the device.
    pub name: String,
}

/// One size.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TestRow {
    /// Payload in bytes.
    pub bytes: u64,
    /// Elements.
    pub count: u64,
    /// Element type as the table names it.
    pub dtype: String,
    /// Reduction, for operations that have one.
    pub redop: Option<String>,
    /// Root, for operations that have one.
    pub root: Option<u32>,
    /// With separate buffers for input and output.
    pub out_of_place: Option<Measure>,
    /// With one buffer for both.
    pub in_place: Option<Measure>,
}

/// What was measured for one size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Measure {
    /// Mean time of an operation in microseconds.
    pub time_us: f64,
    /// Algorithm bandwidth, GB/s.
    pub algbw_gbs: f64,
    /// Bus bandwidth, GB/s.
    pub busbw_gbs: f64,
    /// Wrong elements; `None` if not checked.
    pub wrong: Option<f64>,
    /// Largest deviation from the right result, in tables of 2021 and before, which have no `wrong`.
    pub max_error: Option<f64>,
}

/// Where an operation puts its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// Into a buffer of its own.
    OutOfPlace,
    /// Into its input.
    InPlace,
}

impl Place {
    /// The name as nccl-tests writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OutOfPlace => "out-of-place",
            Self::InPlace => "in-place",
        }
    }
}

impl TestRow {
    /// What was measured, out-of-place first.
    pub fn measures(&self) -> impl Iterator<Item = (Place, Measure)> + use<> {
        let out = self.out_of_place.map(|measure| (Place::OutOfPlace, measure));
        out.into_iter().chain(self.in_place.map(|measure| (Place::InPlace, measure)))
    }
}

impl NcclTests {
    /// The largest bus bandwidth, its size and place; the first of equals.
    pub fn best_busbw(&self) -> Option<(&TestRow, Place, Measure)> {
        let mut best: Option<(&TestRow, Place, Measure)> = None;
        for (row, place, measure) in self.all() {
            if best.is_none_or(|(_, _, known)| measure.busbw_gbs > known.busbw_gbs) {
                best = Some((row, place, measure));
            }
        }
        best
    }

    /// The shortest time of the smallest size: the latency of a call.
    pub fn latency(&self) -> Option<(&TestRow, Place, Measure)> {
        let mut least: Option<(&TestRow, Place, Measure)> = None;
        for (row, place, measure) in self.all().filter(|(row, ..)| row.bytes > 0) {
            let key = (row.bytes, measure.time_us);
            if least.is_none_or(|(known, _, time)| key < (known.bytes, time.time_us)) {
                least = Some((row, place, measure));
            }
        }
        least
    }

    /// Measurements with wrong results.
    pub fn wrong(&self) -> impl Iterator<Item = (&TestRow, Place, Measure)> {
        self.all().filter(|(_, _, measure)| measure.wrong.is_some_and(|wrong| wrong > 0.0))
    }

    fn all(&self) -> impl Iterator<Item = (&TestRow, Place, Measure)> {
        self.rows.iter().flat_map(|row| row.measures().map(move |(place, measure)| (row, place, measure)))
    }
}
