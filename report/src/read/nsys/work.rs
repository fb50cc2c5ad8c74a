//! What devices did: kernels, copies, and whole CUDA graphs.

use super::database::{Cells, Database};
use super::thread::Process;
use crate::classify::RuleTally;
use crate::read::kineto::Times;
use crate::timeline::{MatchKind, Names, Sym};
use indexmap::IndexMap;
use std::collections::{HashMap, HashSet};

/// The table without which an export says nothing of use.
pub(super) const KERNELS: &str = "CUPTI_ACTIVITY_KIND_KERNEL";
const COPIES: &str = "CUPTI_ACTIVITY_KIND_MEMCPY";
const MEMSETS: &str = "CUPTI_ACTIVITY_KIND_MEMSET";
/// Executions of graphs that were traced as wholes.
pub(super) const GRAPHS: &str = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE";

/// Columns that all of these tables have.
const COMMON: [&str; 6] = ["start", "end", "deviceId", "streamId", "globalPid", "correlationId"];

/// How a kernel's name was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum NameKey {
    /// In the table of strings.
    Id(i64),
    /// In the kernel's row.
    Text(Sym),
}

/// A kernel, or a copy that counts as one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernel {
    pub name: NameKey,
    pub times: Times,
    pub process: Process,
    pub device: Option<u32>,
    pub stream: Option<u32>,
    /// The call that launched it; 0 if unknown.
    pub correlation: i64,
    /// The node of a CUDA graph that it is; 0 if none.
    pub graph_node: i64,
}

/// What was kept of the tables of devices.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub kernels: Vec<Kernel>,
    /// Copies and memsets, if they count as compute.
    pub copies: Vec<Kernel>,
    /// Names of kernels that were recorded as text.
    pub texts: Names,
    /// Identifiers of kernels' names in the table of strings.
    pub name_ids: HashSet<i64>,
    /// Events that are neither compute nor communication.
    pub neither: IndexMap<&'static str, u64>,
    pub rules: RuleTally,
    /// Time of graphs that were traced as wholes.
    pub graphs_ns: u64,
    /// Rows without a start or an end.
    pub without_time: u64,
}

impl Work {
    pub fn read(database: &mut Database, copies_as_compute: bool) -> Self {
        let mut work = Self::default();
        work.read_kernels(database);
        work.read_copies(database, COPIES, "memcpy", copies_as_compute);
        work.read_copies(database, MEMSETS, "memset", copies_as_compute);
        work.read_graphs(database);
        work
    }

    fn read_kernels(&mut self, database: &mut Database) {
        let [start, end, device, stream, process, correlation] = COMMON;
        let columns = [
            start,
            end,
            device,
            stream,
            process,
            correlation,
            "graphNodeId",
            "demangledName",
            "shortName",
            "mangledName",
            "name",
        ];
        database.scan(KERNELS, &columns, |row| {
            let Some(times) = self.times(row) else { return };
            let name = (7..columns.len()).find_map(|index| {
                if let Some(text) = row.text(index).filter(|text| text.parse::<i64>().is_err()) {
                    return Some(NameKey::Text(self.texts.intern(&text)));
                }
                // 0 stands for no name.
                row.integer(index).filter(|&id| id != 0).map(NameKey::Id)
            });
            let name = name.unwrap_or_else(|| NameKey::Text(self.texts.intern("")));
            if let NameKey::Id(id) = name {
                self.name_ids.insert(id);
            }
            let graph_node = row.integer(6).unwrap_or(0);
            self.kernels.push(Kernel { graph_node, ..kernel(row, name, times) });
        });
    }

    fn read_copies(&mut self, database: &mut Database, table: &str, what: &'static str, keep: bool) {
        let [start, end, device, stream, process, correlation] = COMMON;
        let columns = [start, end, device, stream, process, correlation, "copyKind"];
        database.scan(table, &columns, |row| {
            let Some(times) = self.times(row) else { return };
            if !keep {
                self.leave_out(what, times);
                return;
            }
            let name = match row.integer(6).and_then(direction) {
                Some(direction) => self.texts.intern(&format!("{what} {direction}")),
                None => self.texts.intern(what),
            };
            self.copies.push(kernel(row, NameKey::Text(name), times));
        });
    }

    fn read_graphs(&mut self, database: &mut Database) {
        database.scan(GRAPHS, &COMMON, |row| {
            if let Some(times) = self.times(row) {
                self.leave_out("graph_as_a_whole", times);
                self.graphs_ns = self.graphs_ns.saturating_add(times.length_ns());
            }
        });
    }

    fn times(&mut self, row: &Cells<'_>) -> Option<Times> {
        let times = row.integer(0).zip(row.integer(1));
        if times.is_none() {
            self.without_time += 1;
        }
        times.map(|(start_ns, end_ns)| Times { start_ns, end_ns })
    }

    fn leave_out(&mut self, what: &'static str, times: Times) {
        *self.neither.entry(what).or_default() += 1;
        self.rules.add(what, MatchKind::Neither, None, times.length_ns());
    }
}

/// A row with the columns of [`COMMON`] first.
fn kernel(row: &Cells<'_>, name: NameKey, times: Times) -> Kernel {
    Kernel {
        name,
        times,
        process: Process::new(row.integer(4)),
        device: row.number(2),
        stream: row.number(3),
        correlation: row.integer(5).unwrap_or(0),
        graph_node: 0,
    }
}

/// `CUpti_ActivityMemcpyKind` as Nsight Systems writes it.
fn direction(kind: i64) -> Option<&'static str> {
    Some(match kind {
        1 => "HtoD",
        2 => "DtoH",
        3 => "HtoA",
        4 => "AtoH",
        5 => "AtoA",
        6 => "AtoD",
        7 => "DtoA",
        8 => "DtoD",
        9 => "HtoH",
        10 => "PtoP",
        _ => return None,
    })
}

/// The strings of an export that are looked for, and what they are used for.
#[derive(Debug, Default)]
pub(super) struct Strings<M> {
    /// Names of kernels.
    pub names: HashMap<i64, Sym>,
    /// Meanings of the names of ranges.
    pub meanings: HashMap<i64, M>,
}

impl<M> Strings<M> {
    /// Reads the table of strings once: it may be larger than all that is kept of an export.
    pub fn read(
        database: &mut Database,
        wanted: &HashSet<i64>,
        names: &mut Names,
        meaning: impl Fn(&str) -> Option<M>,
    ) -> Self {
        let mut strings = Self { names: HashMap::new(), meanings: HashMap::new() };
        database.scan("StringIds", &["id", "value"], |row| {
            let (Some(id), Some(value)) = (row.integer(0), row.text(1)) else { return };
            if wanted.contains(&id) {
                strings.names.insert(id, names.intern(&value));
            }
            if let Some(meaning) = meaning(&value) {
                strings.meanings.insert(id, meaning);
            }
        });
        strings
    }
}
