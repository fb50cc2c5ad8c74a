//! What programs of nccl-tests print.

use super::{op_of, redop_of, root_of, version_of};
use crate::nccl::{Measure, NcclTests, Place, TestDevice, TestRow};

/// Tables of one file, and rows, devices and errors of one table, that are kept at most.
const MOST_TABLES: usize = 256;
const MOST_ROWS: usize = 1 << 16;
const MOST_DEVICES: usize = 1 << 16;
const MOST_ERRORS: usize = 16;

/// Reads tables line by line.
#[derive(Debug, Default)]
pub(in crate::read) struct TableReader {
    tables: Vec<NcclTests>,
    columns: Vec<Column>,
    /// Rows that stand where rows stand and cannot be read.
    pub malformed: u64,
}

/// What a column of a table holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Size,
    Count,
    Type,
    Redop,
    Root,
    Time(Place),
    Algbw(Place),
    Busbw(Place),
    Wrong(Place),
    MaxError(Place),
    /// Read over.
    Other,
}

impl TableReader {
    /// Takes what `line` tells, a launcher's prefix removed; false if it is not of a table.
    pub fn line(&mut self, line: &str) -> bool {
        let line = line.trim();
        match line.strip_prefix('#') {
            Some(comment) => self.comment(comment.trim()),
            None => self.row(line) || self.error(line),
        }
    }

    /// All tables.
    pub fn finish(self) -> Vec<NcclTests> {
        self.tables
    }

    /// The table that lines belong to; a new one after a finished one, or where `begins` and there are
    /// rows already.
    fn table(&mut self, begins: bool) -> Option<&mut NcclTests> {
        let over =
            self.tables.last().is_none_or(|table| begins && (table.finished || !table.rows.is_empty()));
        if over && self.tables.len() < MOST_TABLES {
            self.columns.clear();
            self.tables.push(NcclTests::default());
        }
        self.tables.last_mut()
    }

    fn comment(&mut self, text: &str) -> bool {
        if let Some(rest) = text.strip_prefix("nccl-tests version ") {
            let Some(table) = self.table(true) else { return false };
            table.version = rest.split_ascii_whitespace().next().map(str::to_owned);
            let code = rest.split_once("nccl-library=").map(|(_, code)| code);
            table.nccl_version = code.and_then(|code| version_of(code.split(' ').next()?.parse().ok()?));
        } else if let Some(program) = text.strip_prefix("Collective test starting: ") {
            let Some(table) = self.table(true) else { return false };
            table.op = op_of(program);
            table.program = Some(program.chars().take(128).collect());
        } else if text.starts_with("nThread ") {
            let Some(table) = self.table(true) else { return false };
            table.iterations = after(text, " iters:", 1).or_else(|| after(text, " iters:", 0));
            table.warmup_iterations = after(text, "warmup iters:", 0);
        } else if text.starts_with("Rank ") {
            return self.device(text);
        } else if text.starts_with("size ") {
            return self.header(text);
        } else if let Some(rest) = text.strip_prefix("Out of bounds values") {
            let Some(table) = self.tables.last_mut() else { return false };
            table.out_of_bounds = number(rest);
            table.finished = true;
        } else if let Some(rest) = text.strip_prefix("Avg bus bandwidth") {
            let Some(table) = self.tables.last_mut() else { return false };
            table.average_busbw_gbs = number(rest).filter(|value: &f64| value.is_finite());
            table.finished = true;
        } else if let Some(program) = text.strip_prefix("Collective test concluded: ") {
            let Some(table) = self.tables.last_mut() else { return false };
            table.op = table.op.take().or_else(|| op_of(program));
            table.program.get_or_insert_with(|| program.chars().take(128).collect());
        } else {
            return false;
        }
        true
    }

    /// `Rank  0 Group  0 Pid  12 on  host device  0 [0000:07:00] NAME`
    fn device(&mut self, text: &str) -> bool {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let at = |key: &str| words.iter().position(|word| *word == key).map(|at| at + 1);
        let word = |key: &str| words.get(at(key)?).copied();
        let rank = word("Rank").and_then(|rank| rank.parse().ok());
        let device = word("device").and_then(|device| device.parse().ok());
        let (Some(rank), Some(device), Some(host)) = (rank, device, word("on")) else { return false };
        let name = text.split_once("] ").map_or("", |(_, name)| name.trim());
        let device = TestDevice {
            rank,
            host: host.chars().take(128).collect(),
            device,
            name: name.chars().take(128).collect(),
        };
        match self.tables.last_mut() {
            Some(table) if table.devices.len() < MOST_DEVICES => table.devices.push(device),
            Some(_) => {}
            None => return false,
        }
        true
    }

    fn header(&mut self, text: &str) -> bool {
        let columns = columns(text);
        let measured = columns.iter().any(|column| matches!(column, Column::Busbw(_)));
        if !measured || self.table(false).is_none() {
            return false;
        }
        if let Some(table) = self.tables.last_mut() {
            table.cpu_time = text.contains("cputime");
        }
        self.columns = columns;
        true
    }

    fn row(&mut self, line: &str) -> bool {
        let columns = &self.columns;
        let Some(table) = self.tables.last_mut().filter(|table| !table.finished && !columns.is_empty())
        else {
            return false;
        };
        if !line.starts_with(|c: char| c.is_ascii_digit()) {
            return false;
        }
        let words: Vec<&str> = line.split_ascii_whitespace().take(columns.len()).collect();
        let Some(row) = row(columns, &words) else {
            // A line of another program may begin with a number as well.
            let of_a_row = words.len() > 2 && words.iter().take(2).all(|word| word.parse::<u64>().is_ok());
            self.malformed += u64::from(of_a_row);
            return of_a_row;
        };
        if table.rows.len() < MOST_ROWS {
            table.rows.push(row);
        }
        true
    }

    fn error(&mut self, line: &str) -> bool {
        const SIGNS: [&str; 4] = ["Test NCCL failure", "Test CUDA failure", "Test failure", "Test timeout"];
        let Some(table) = self.tables.last_mut() else { return false };
        if !SIGNS.iter().any(|sign| line.contains(sign)) {
            return false;
        }
        if table.errors.len() < MOST_ERRORS {
            table.errors.push(line.chars().take(400).collect());
        }
        true
    }
}

/// The columns that a header names. The first group of measurements is out-of-place, the second
/// in-place.
fn columns(text: &str) -> Vec<Column> {
    let mut place = Place::OutOfPlace;
    let mut timed = false;
    text.split_ascii_whitespace()
        .map(|name| match name {
            "size" => Column::Size,
            "count" => Column::Count,
            "type" => Column::Type,
            "redop" => Column::Redop,
            "root" => Column::Root,
            "time" | "cputime" => {
                if std::mem::replace(&mut timed, true) {
                    place = Place::InPlace;
                }
                Column::Time(place)
            }
            "algbw" => Column::Algbw(place),
            "busbw" => Column::Busbw(place),
            "#wrong" => Column::Wrong(place),
            "error" => Column::MaxError(place),
            _ => Column::Other,
        })
        .collect()
}

fn row(columns: &[Column], words: &[&str]) -> Option<TestRow> {
    let leading = columns.iter().position(|column| matches!(column, Column::Time(_)))?;
    let is_second = |column: &&Column| matches!(column, Column::Time(Place::InPlace));
    let second = columns.iter().position(|column| is_second(&column));
    // A run that replays a trace measures in-place only and leaves the first group blank.
    let only_in_place = second.is_some_and(|second| words.len() == leading + (columns.len() - second))
        && words.len() < columns.len();
    let mut found = TestRow::default();
    let (mut out, mut inside) = (Partial::default(), Partial::default());
    let mut words = words.iter().copied();
    let (mut size, mut any) = (None, false);
    for (index, column) in columns.iter().enumerate() {
        if only_in_place && index >= leading && Some(index) < second {
            continue;
        }
        let Some(word) = words.next() else { break };
        let mut set = |place: Place, field: fn(&mut Partial) -> &mut Option<f64>| {
            any = true;
            let partial = if place == Place::OutOfPlace { &mut out } else { &mut inside };
            *field(partial) = word.parse().ok().filter(|value: &f64| value.is_finite() && *value >= 0.0);
        };
        match *column {
            Column::Size => size = Some(word.parse().ok()?),
            Column::Count => found.count = word.parse().ok()?,
            Column::Type => word.clone_into(&mut found.dtype),
            Column::Redop => found.redop = redop_of(word),
            Column::Root => found.root = root_of(word),
            Column::Time(place) => set(place, |partial| &mut partial.time),
            Column::Algbw(place) => set(place, |partial| &mut partial.algbw),
            Column::Busbw(place) => set(place, |partial| &mut partial.busbw),
            Column::Wrong(place) => set(place, |partial| &mut partial.wrong),
            Column::MaxError(place) => set(place, |partial| &mut partial.max_error),
            Column::Other => {}
        }
    }
    found.bytes = size?;
    found.out_of_place = out.measure();
    found.in_place = inside.measure();
    let measured = any && (found.out_of_place.is_some() || found.in_place.is_some());
    measured.then_some(found)
}

#[derive(Debug, Clone, Copy, Default)]
struct Partial {
    time: Option<f64>,
    algbw: Option<f64>,
    busbw: Option<f64>,
    wrong: Option<f64>,
    max_error: Option<f64>,
}

impl Partial {
    /// The measurement, if the line reached to its bandwidths.
    fn measure(self) -> Option<Measure> {
        Some(Measure {
            time_us: self.time?,
            algbw_gbs: self.algbw?,
            busbw_gbs: self.busbw?,
            wrong: self.wrong,
            max_error: self.max_error,
        })
    }
}

/// The number behind the occurrence of `key` with this index.
fn after(text: &str, key: &str, index: usize) -> Option<u64> {
    let (at, _) = text.match_indices(key).nth(index)?;
    text.get(at + key.len()..)?.split_ascii_whitespace().next()?.parse().ok()
}

/// The number in ` : 12.5 OK`.
fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.trim().strip_prefix(':')?.split_ascii_whitespace().next()?.parse().ok()
}
