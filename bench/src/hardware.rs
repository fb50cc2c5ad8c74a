//! What a rank runs on, as far as the system tells.

use crate::record::{Hardware, Host};
use std::fs;
use std::thread;

/// This machine, with `rank` as its only rank and without GPUs.
pub fn this_host(rank: u32) -> Host {
    let read = |path: &str| fs::read_to_string(path).ok();
    Host {
        name: read("/proc/sys/kernel/hostname")
            .map_or_else(|| "unknown".to_owned(), |name| name.trim().to_owned()),
        ranks: vec![rank],
        cpu: read("/proc/cpuinfo").as_deref().and_then(cpu_model),
        cpus: thread::available_parallelism().ok().and_then(|cpus| u32::try_from(cpus.get()).ok()),
        memory_bytes: read("/proc/meminfo").as_deref().and_then(memory_bytes),
        gpus: Vec::new(),
    }
}

/// Ranks of the same machine together, in the order of `hosts`.
pub fn hardware(hosts: impl IntoIterator<Item = Host>) -> Hardware {
    let mut together: Vec<Host> = Vec::new();
    for host in hosts {
        match together.iter_mut().find(|known| known.name == host.name) {
            Some(known) => {
                known.ranks.extend(host.ranks);
                for gpu in host.gpus {
                    if !known.gpus.contains(&gpu) {
                        known.gpus.push(gpu);
                    }
                }
            }
            None => together.push(host),
        }
    }
    Hardware { hosts: together }
}

/// The processor's name in `/proc/cpuinfo`; x86 and some others have it.
fn cpu_model(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    let (_, name) = line.split_once(':')?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// `MemTotal` of `/proc/meminfo`, which is in KiB.
fn memory_bytes(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Gpu;

    #[test]
    fn what_proc_says() {
        assert_eq!(
            cpu_model("processor\t: 0\nmodel name\t: AMD EPYC 7B13\nflags\t: fpu\n").as_deref(),
            Some("AMD EPYC 7B13")
        );
        assert_eq!(cpu_model("processor\t: 0\nBogoMIPS\t: 243.75\n"), None, "as on Arm");
        assert_eq!(memory_bytes("MemTotal:       16 kB\nMemFree:  1 kB\n"), Some(16 * 1024));
        assert_eq!(memory_bytes("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn ranks_of_a_machine_come_together() {
        let host = |name: &str, rank, ordinal| Host {
            name: name.to_owned(),
            ranks: vec![rank],
            gpus: vec![Gpu { ordinal, ..Gpu::default() }],
            ..Host::default()
        };
        let found = hardware([host("b", 0, 0), host("a", 1, 0), host("b", 2, 1)]);
        let shown: Vec<_> = found
            .hosts
            .iter()
            .map(|host| (host.name.as_str(), host.ranks.clone(), host.gpus.len()))
            .collect();
        assert_eq!(shown, [("b", vec![0, 2], 2), ("a", vec![1], 1)]);
    }
}
