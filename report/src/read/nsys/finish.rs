//! From what was read of an export to tracks.

use super::call::{Calls, HostCalls};
use super::database::Database;
use super::environment::Environment;
use super::launch::{Launches, Site};
use super::range::Ranges;
use super::ranks::{Hints, Place, Ranks};
use super::resolve::Resolver;
use super::step::Steps;
use super::thread::Process;
use super::work::{Kernel, NameKey, Work};
use crate::classify::{Class, Classifier};
use crate::read::fragment::Fragment;
use crate::read::kineto::{Plausible, shift, warn_of_hints};
use crate::timeline::{Comm, Compute, Input, Names, Sym, Timeline, Track};
use indexmap::IndexMap;
use std::collections::{BTreeMap, HashMap};

/// What was read of an export.
pub(super) struct Export<'a> {
    pub path: &'a str,
    pub classifier: Classifier,
    pub names: Names,
    pub work: Work,
    /// Kernels' names in the table of strings.
    pub name_ids: HashMap<i64, Sym>,
    pub ranges: Ranges,
    pub environment: Environment,
    pub process_names: HashMap<Process, String>,
    pub from_name: Option<u32>,
    pub name_first: bool,
}

/// A kernel with its name, and what it is.
#[derive(Debug, Clone, Copy)]
struct Classified {
    kernel: Kernel,
    name: Sym,
    class: Class,
}

impl Export<'_> {
    /// The tracks of the export. `database` is read once more, for the calls that launched the kernels.
    pub fn finish(mut self, database: &mut Database) -> Fragment {
        let mut warnings = Vec::new();
        let mut skipped: IndexMap<String, u64> = IndexMap::new();
        let mut anomalies: IndexMap<String, u64> = IndexMap::new();
        let mut kernels = self.classify();
        let implausible = drop_implausible(&mut kernels);

        let ranges = std::mem::take(&mut self.ranges);
        let steps = Steps::new(ranges.steps);
        let plain: Vec<Kernel> = if steps.is_empty() {
            let wanted = |one: &&Classified| {
                matches!(one.class, Class::Comm(_)) || one.kernel.process == Process::UNKNOWN
            };
            kernels.iter().filter(wanted).map(|one| one.kernel).collect()
        } else {
            kernels.iter().map(|one| one.kernel).collect()
        };
        let launches = Launches::read(database, &plain);
        drop(plain);
        let sites: Vec<Option<Site>> = kernels.iter().map(|one| launches.of(&one.kernel)).collect();
        let call_sites: Vec<Option<Site>> = kernels
            .iter()
            .map(|one| matches!(one.class, Class::Comm(_)).then(|| launches.call_of(&one.kernel)).flatten())
            .collect();
        for (one, site) in kernels.iter_mut().zip(&sites) {
            if let (Process::UNKNOWN, Some(site)) = (one.kernel.process, site) {
                one.kernel.process = site.thread.process();
            }
        }
        let mut calls = Calls::new(ranges.nccl);
        calls.note_launches(call_sites.iter().copied().flatten());
        let host = HostCalls::new(ranges.host);

        let ranks = self.ranks(&kernels, &calls);
        let mut resolver = Resolver {
            classifier: &self.classifier,
            names: &mut self.names,
            rules: std::mem::take(&mut self.work.rules),
            hints: HashMap::new(),
            calls: &calls,
            host: &host,
        };
        let mut tracks: BTreeMap<(u32, Option<u32>), Track> = BTreeMap::new();
        let mut step_of: BTreeMap<u32, Process> = BTreeMap::new();
        let mut reversed = 0;
        let mut unlaunched = 0;
        for ((one, site), call_site) in kernels.iter().zip(&sites).zip(&call_sites) {
            let Kernel { process, device, times, .. } = one.kernel;
            let rank = ranks.of(process, device);
            let track = tracks.entry((rank, device)).or_insert_with(|| Track::new(rank, device));
            step_of.entry(rank).or_insert(process);
            reversed += u64::from(times.end_ns < times.start_ns);
            unlaunched += u64::from(site.is_none());
            let step = site.and_then(|site| steps.at(site));
            match one.class {
                Class::Compute { hint } => {
                    resolver.compute(one.name, times, hint);
                    track.compute.push(Compute {
                        name: one.name,
                        start_ns: times.start_ns,
                        end_ns: times.end_ns,
                        step,
                    });
                }
                Class::Comm(comm) => {
                    let comm = resolver.comm(&one.kernel, comm, *call_site);
                    track.comm.push(Comm { step, ..comm });
                }
            }
        }
        warn_of_hints(std::mem::take(&mut resolver.hints), resolver.names, &mut warnings);
        let rules = std::mem::take(&mut resolver.rules);
        for (&(rank, _), track) in &mut tracks {
            let process = step_of.get(&rank).copied().unwrap_or(Process::UNKNOWN);
            track.steps.extend(steps.of(process));
        }
        let mut note = |reason: &str, count: u64| {
            if count > 0 {
                *skipped.entry(reason.to_owned()).or_default() += count;
            }
        };
        for (&what, &count) in &self.work.neither {
            note(what, count);
        }
        note("bad_time", self.work.without_time);
        note("implausible_time", implausible);
        note("host_call", launches.other_calls);
        note("annotation", ranges.other);
        note("open_range", ranges.open);
        note("nested_step", steps.nested);
        let mut odd = |kind: &str, count: u64| {
            if count > 0 {
                anomalies.insert(kind.to_owned(), count);
            }
        };
        odd("end_before_start", reversed);
        odd("same_time_on_stream", same_time(&kernels));
        odd("undecoded_payload", ranges.undecoded);
        if !steps.is_empty() && unlaunched > 0 {
            odd("no_launch", unlaunched);
            let count = kernels.len();
            warnings.push(format!(
                "{}: for {unlaunched} of {count} kernels no call that launched them was recorded, so their step \
                 is not known.",
                self.path
            ));
        }
        if let Some(&count) = self.work.neither.get("graph_as_a_whole") {
            warnings.push(format!(
                "{}: {count} executions of CUDA graphs ({} ms) were traced as wholes, so the kernels in them \
                 are in none of the figures. Profile with --cuda-graph-trace=node to see them.",
                self.path,
                self.work.graphs_ns as f64 / 1e6
            ));
        }
        if kernels.is_empty() {
            warnings.push(format!("{} holds no kernel: no compute and no communication.", self.path));
        }

        let clock = self.names.intern(&format!("nsys {}", self.path));
        let mut tracks: Vec<Track> = tracks.into_values().collect();
        tracks.iter_mut().for_each(|track| track.clock = Some(clock));
        shift(&mut tracks, self.environment.start_utc_ns);
        let events = |track: &Track| track.compute.len() + track.comm.len() + track.steps.len();
        let input = Input {
            path: self.path.to_owned(),
            format: "nsys-sqlite".to_owned(),
            events: tracks.iter().map(events).sum::<usize>() as u64,
            skipped,
            anomalies,
            rules: rules.finish(),
            ..Input::default()
        };
        warnings.extend(ranks.warnings);
        let timeline = Timeline {
            names: self.names,
            tracks,
            inputs: vec![input],
            warnings,
            world_size: ranks.world_size,
            communicators: IndexMap::new(),
        };
        Fragment { timeline, rank: ranks.source }
    }

    /// Names the kernels and tells which communicate; copies that were kept count as compute.
    fn classify(&mut self) -> Vec<Classified> {
        let Work { kernels, copies, texts, .. } = &mut self.work;
        let mut classes: HashMap<NameKey, (Sym, Class)> = HashMap::new();
        let mut classified = Vec::with_capacity(kernels.len() + copies.len());
        let names = &mut self.names;
        let mut name = |key: NameKey| match key {
            NameKey::Text(sym) => names.intern(texts.get(sym)),
            NameKey::Id(id) => self.name_ids.get(&id).copied().unwrap_or_else(|| names.intern("unnamed")),
        };
        for kernel in std::mem::take(kernels) {
            let &mut (name, class) = classes.entry(kernel.name).or_insert_with(|| {
                // Classified below, where the table of names is not being written.
                (name(kernel.name), Class::Compute { hint: false })
            });
            classified.push(Classified { kernel, name, class });
        }
        for kernel in std::mem::take(copies) {
            classified.push(Classified {
                kernel,
                name: name(kernel.name),
                class: Class::Compute { hint: false },
            });
        }
        for (sym, class) in classes.values_mut() {
            *class = self.classifier.kernel(self.names.get(*sym));
        }
        for one in &mut classified {
            if let Some(&(_, class)) = classes.get(&one.kernel.name) {
                one.class = class;
            }
        }
        classified
    }

    fn ranks(&self, kernels: &[Classified], calls: &Calls) -> Ranks {
        let mut places: IndexMap<(Process, Option<u32>), bool> = IndexMap::new();
        for one in kernels {
            let communicates = places.entry((one.kernel.process, one.kernel.device)).or_default();
            *communicates |= matches!(one.class, Class::Comm(_));
        }
        let places: Vec<Place> = places
            .into_iter()
            .map(|((process, device), communicates)| Place { process, device, communicates })
            .collect();
        let hints = Hints {
            members: calls.members(),
            environment: &self.environment,
            from_name: self.from_name,
            name_first: self.name_first,
            process_names: &self.process_names,
        };
        Ranks::assign(&places, &hints, self.path)
    }
}

fn drop_implausible(kernels: &mut Vec<Classified>) -> u64 {
    let plausible = Plausible::around(kernels.iter().map(|one| one.kernel.times.start_ns).collect());
    let before = kernels.len();
    kernels.retain(|one| plausible.contains(one.kernel.times));
    (before - kernels.len()) as u64
}

/// Kernels of one stream that claim to start at the same time, beyond the first.
fn same_time(kernels: &[Classified]) -> u64 {
    let start = |one: &Classified| {
        let Kernel { process, device, stream, times, .. } = one.kernel;
        (process, device, stream, times.start_ns)
    };
    let mut starts: Vec<_> = kernels.iter().map(start).collect();
    starts.sort_unstable();
    starts.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64
}
