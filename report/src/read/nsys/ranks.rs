//! Which rank a process, or a device of it, is.

use super::call::{Member, Members};
use super::environment::Environment;
use super::thread::Process;
use crate::read::fragment::RankSource;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Ranks that a warning lists, at most.
const LISTED: usize = 8;

/// A process on a device, and whether it communicates there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub process: Process,
    pub device: Option<u32>,
    pub communicates: bool,
}

/// What else tells ranks.
pub(super) struct Hints<'a> {
    pub members: &'a Members,
    pub environment: &'a Environment,
    /// By the name of the file.
    pub from_name: Option<u32>,
    /// The user said how to read that name, which stands above everything else.
    pub name_first: bool,
    pub process_names: &'a HashMap<Process, String>,
}

/// The ranks of an export.
#[derive(Debug)]
pub(super) struct Ranks {
    by_place: HashMap<(Process, Option<u32>), u32>,
    pub source: RankSource,
    pub world_size: Option<u32>,
    pub warnings: Vec<String>,
}

/// What is one rank: a process, or one device of a process that communicates on several.
#[derive(Debug, Clone)]
struct Unit {
    process: Process,
    /// Its devices; the first is the one it is called by.
    devices: Vec<Option<u32>>,
    alone: bool,
}

impl Ranks {
    /// Assigns ranks to `places`. `path` is how warnings call the file.
    pub fn assign(places: &[Place], hints: &Hints<'_>, path: &str) -> Self {
        let mut units = units(places);
        let launched = hints.environment.launched;
        let mut ranks = Self {
            by_place: HashMap::new(),
            source: RankSource::Unknown,
            world_size: None,
            warnings: Vec::new(),
        };
        if let [unit] = &units[..] {
            let member = world_member(unit, hints.members).and_then(|member| Some((member, member.rank?)));
            let (rank, world) = match (hints.from_name.filter(|_| hints.name_first), launched, member) {
                (Some(rank), ..) => (Some(rank), None),
                (None, Some(launched), _) => (Some(launched.rank), launched.world_size),
                (None, None, Some((member, rank))) => (Some(rank), Some(member.ranks)),
                (None, None, None) => (hints.from_name, None),
            };
            ranks.source = rank.map_or(RankSource::Unknown, RankSource::File);
            ranks.world_size = world.or(launched.and_then(|launched| launched.world_size));
            ranks.set(&units, &[rank.unwrap_or(0)]);
            return ranks;
        }
        if hints.name_first {
            ranks.warnings.push(format!(
                "{path} holds {} ranks: --rank-regex, which gives a file one rank, was not applied to it.",
                units.len()
            ));
        }
        let (how, numbers) = match by_communicator(&units, hints.members) {
            Some((numbers, size)) => {
                ranks.source = RankSource::Tracks;
                ranks.world_size = Some(size);
                (format!("by their numbers in an NCCL communicator of {size}"), numbers)
            }
            None => {
                ranks.source = RankSource::Counted;
                let firsts: BTreeSet<Option<u32>> =
                    units.iter().filter_map(|unit| unit.devices.first().copied()).collect();
                let by_device = firsts.len() == units.len();
                if by_device {
                    units.sort_by_key(|unit| unit.devices.first().copied());
                }
                let order = if by_device { "devices" } else { "process numbers" };
                let numbers = (0..).take(units.len()).collect();
                (format!("in the order of their {order}, since nothing in the file says them"), numbers)
            }
        };
        if !units.is_empty() {
            let named = describe(&units, &numbers, hints.process_names);
            ranks.warnings.push(format!("{path} holds {} ranks, numbered {how}: {named}.", units.len()));
        }
        ranks.set(&units, &numbers);
        ranks
    }

    fn set(&mut self, units: &[Unit], numbers: &[u32]) {
        for (unit, &number) in units.iter().zip(numbers) {
            for &device in &unit.devices {
                self.by_place.insert((unit.process, device), number);
            }
        }
    }

    /// The rank of a process on a device.
    pub fn of(&self, process: Process, device: Option<u32>) -> u32 {
        self.by_place.get(&(process, device)).copied().unwrap_or(0)
    }
}

fn units(places: &[Place]) -> Vec<Unit> {
    let mut processes: BTreeMap<Process, BTreeMap<Option<u32>, bool>> = BTreeMap::new();
    for place in places {
        *processes.entry(place.process).or_default().entry(place.device).or_default() |= place.communicates;
    }
    let mut units = Vec::new();
    for (process, devices) in processes {
        let communicating: Vec<Option<u32>> =
            devices.iter().filter(|&(_, &communicates)| communicates).map(|(&device, _)| device).collect();
        // NCCL has one rank per device.
        if communicating.len() > 1 {
            let quiet = devices.keys().filter(|device| !communicating.contains(device)).copied();
            let mut quiet: Vec<Option<u32>> = quiet.collect();
            for device in communicating {
                let devices = std::iter::once(device).chain(quiet.drain(..)).collect();
                units.push(Unit { process, devices, alone: false });
            }
        } else {
            let others = devices.keys().filter(|device| !communicating.contains(device)).copied();
            let devices = communicating.iter().copied().chain(others).collect();
            units.push(Unit { process, devices, alone: true });
        }
    }
    units
}

/// What `unit` is in the largest communicator of the file.
fn world_member<'a>(unit: &Unit, members: &'a Members) -> Option<&'a Member> {
    let largest = members.iter().map(|member| member.ranks).max()?;
    let mut found = members.iter().filter(|member| {
        let here = unit.alone || (member.device.is_some() && unit.devices.contains(&member.device));
        member.ranks == largest && member.process == unit.process && here && member.rank.is_some()
    });
    let first = found.next()?;
    found.all(|other| other.rank == first.rank).then_some(first)
}

/// The units' numbers in the largest communicator, and its size, if all have one and no two the same.
fn by_communicator(units: &[Unit], members: &Members) -> Option<(Vec<u32>, u32)> {
    let found: Vec<&Member> =
        units.iter().map(|unit| world_member(unit, members)).collect::<Option<Vec<_>>>()?;
    let size = found.first()?.ranks;
    let numbers: Vec<u32> = found.iter().filter_map(|member| member.rank).collect();
    let distinct: BTreeSet<u32> = numbers.iter().copied().collect();
    let sound = distinct.len() == units.len() && distinct.last().is_some_and(|&last| last < size);
    sound.then_some((numbers, size))
}

fn describe(units: &[Unit], numbers: &[u32], process_names: &HashMap<Process, String>) -> String {
    let mut listed: Vec<(u32, &Unit)> = numbers.iter().copied().zip(units).collect();
    listed.sort_by_key(|&(number, _)| number);
    let one = |&(number, unit): &(u32, &Unit)| {
        let name = process_names.get(&unit.process).map(|name| format!(" ({name})")).unwrap_or_default();
        let process = match unit.process {
            Process::UNKNOWN => "a process without a number".to_owned(),
            process => format!("process {}{name}", process.pid()),
        };
        let devices: Vec<String> = unit.devices.iter().flatten().map(u32::to_string).collect();
        let on = match &devices[..] {
            [] => String::new(),
            [device] => format!(" on device {device}"),
            devices => format!(" on devices {}", devices.join(", ")),
        };
        format!("rank {number} is {process}{on}")
    };
    let mut text = listed.iter().take(LISTED).map(one).collect::<Vec<_>>().join(", ");
    if listed.len() > LISTED {
        text.push_str(&format!(" and {} more", listed.len() - LISTED));
    }
    text
}
