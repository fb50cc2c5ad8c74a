//! Causes before consequences: who is waited for by everybody and waits for nobody.
//!
//! A finding waits for another if a rank that is missing in the first waits in the second. Findings
//! without such an edge are causes. What is left when causes, and then what only leads to others, are
//! taken away are cycles: ranks that wait for each other.

use super::finding::{BlockedBy, Desync, DesyncKind};
use std::collections::HashMap;

/// Marks consequences and cycles, and sorts: causes first, then what they hold up, then disagreements
/// that hold up nothing, then ranks that stopped or have no record.
pub(super) fn sort(findings: &mut Vec<Desync>) {
    let edges = edges(findings);
    let cycle = in_cycles(&edges);
    let depth = depths(&edges, &cycle);
    let blocked: Vec<Option<BlockedBy>> = edges
        .iter()
        .enumerate()
        .map(|(from, targets)| {
            // The target nearest to a cause.
            let &to = targets.iter().min_by_key(|&&to| (depth.get(to).copied(), to))?;
            let (waits, held) = (findings.get(from)?, findings.get(to)?);
            let ranks = waits.missing.iter().filter(|rank| held.waiting.contains(rank)).copied().collect();
            Some(BlockedBy { comm: held.comm.clone(), seq: held.seq, op: held.op.clone(), ranks })
        })
        .collect();
    let held_up = held_up(&edges);
    let mut order: Vec<(usize, Desync)> = std::mem::take(findings).into_iter().enumerate().collect();
    for (index, finding) in &mut order {
        finding.blocked_by = blocked.get(*index).cloned().flatten();
        finding.in_cycle = cycle.get(*index).copied().unwrap_or(false);
    }
    let key = |index: usize, finding: &Desync| {
        let class = match finding.kind {
            DesyncKind::NoRecord => 3,
            DesyncKind::Stopped => 2,
            _ if finding.was_passed() => 1,
            _ => 0,
        };
        let waits = held_up.get(index).copied().unwrap_or(0) + finding.waiting.len();
        // A disagreement about a call is why it hangs.
        let disagrees = !finding.kind.is_disagreement();
        // Of calls on a cycle, the one that the fewest ranks miss is the likelier cause.
        let absent = if finding.in_cycle { finding.missing.len() } else { 0 };
        (class, depth.get(index).copied().unwrap_or(0), disagrees, absent, std::cmp::Reverse(waits))
    };
    order.sort_by(|(a_index, a), (b_index, b)| {
        let since = |finding: &Desync| finding.since_ms.unwrap_or(f64::INFINITY);
        key(*a_index, a).cmp(&key(*b_index, b)).then_with(|| since(a).total_cmp(&since(b)))
    });
    findings.extend(order.into_iter().map(|(_, finding)| finding));
}

/// Per finding, the findings in which its missing ranks wait.
fn edges(findings: &[Desync]) -> Vec<Vec<usize>> {
    let mut waits_in: HashMap<u32, Vec<usize>> = HashMap::new();
    for (index, finding) in findings.iter().enumerate() {
        for &rank in &finding.waiting {
            waits_in.entry(rank).or_default().push(index);
        }
    }
    findings
        .iter()
        .enumerate()
        .map(|(index, finding)| {
            let held = finding.missing.iter().flat_map(|rank| waits_in.get(rank)).flatten().copied();
            let mut targets: Vec<usize> = held.filter(|&target| target != index).collect();
            targets.sort_unstable();
            targets.dedup();
            targets
        })
        .collect()
}

/// Which findings stand on a cycle, or on a path from one cycle to another.
fn in_cycles(edges: &[Vec<usize>]) -> Vec<bool> {
    let mut left = vec![true; edges.len()];
    // Peeled from both ends: what waits for nothing that is left, and what nothing that is left waits for.
    for reversed in [false, true] {
        let graph = if reversed { transposed(edges) } else { edges.to_vec() };
        let back = transposed(&graph);
        let alive = |targets: &[usize], left: &[bool]| targets.iter().filter(|&&to| left[to]).count();
        let mut degree: Vec<usize> = graph.iter().map(|targets| alive(targets, &left)).collect();
        let mut ready: Vec<usize> =
            (0..graph.len()).filter(|&node| left[node] && degree[node] == 0).collect();
        while let Some(node) = ready.pop() {
            left[node] = false;
            for &from in &back[node] {
                degree[from] = degree[from].saturating_sub(1);
                if left[from] && degree[from] == 0 {
                    ready.push(from);
                }
            }
        }
    }
    left
}

fn transposed(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut back = vec![Vec::new(); edges.len()];
    for (from, targets) in edges.iter().enumerate() {
        targets.iter().for_each(|&to| back[to].push(from));
    }
    back
}

/// How many steps each finding is from a cause; those on cycles are causes.
fn depths(edges: &[Vec<usize>], cycle: &[bool]) -> Vec<usize> {
    let back = transposed(edges);
    let mut depth = vec![usize::MAX; edges.len()];
    let mut level: Vec<usize> =
        (0..edges.len()).filter(|&node| edges[node].is_empty() || cycle[node]).collect();
    let mut steps = 0;
    while !level.is_empty() {
        let reached: Vec<usize> = level.into_iter().filter(|&node| depth[node] == usize::MAX).collect();
        reached.iter().for_each(|&node| depth[node] = steps);
        level = reached.iter().flat_map(|&node| back[node].iter().copied()).collect();
        steps += 1;
    }
    depth
}

/// How many findings wait for each one directly.
fn held_up(edges: &[Vec<usize>]) -> Vec<usize> {
    transposed(edges).iter().map(Vec::len).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(comm: &str, waiting: &[u32], missing: &[u32]) -> Desync {
        Desync {
            comm: Some(comm.to_owned()),
            waiting: waiting.to_vec(),
            missing: missing.to_vec(),
            ..Desync::default()
        }
    }

    fn order(mut findings: Vec<Desync>) -> Vec<(String, bool, Option<String>)> {
        sort(&mut findings);
        let name = |comm: Option<String>| comm.unwrap_or_default();
        findings
            .into_iter()
            .map(|one| (name(one.comm), one.in_cycle, one.blocked_by.map(|by| name(by.comm))))
            .collect()
    }

    #[test]
    fn causes_come_before_what_they_hold_up() {
        let by = |name: &str| Some(name.to_owned());
        // Rank 3 is missing in tp1; rank 2 waits there, for whom dp0 waits, for which pp waits.
        let found =
            order(vec![finding("pp", &[8], &[0]), finding("dp0", &[0], &[2]), finding("tp1", &[2], &[3])]);
        let expected = [
            ("tp1".to_owned(), false, None),
            ("dp0".to_owned(), false, by("tp1")),
            ("pp".to_owned(), false, by("dp0")),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn ranks_that_wait_for_each_other_are_a_cycle_and_others_are_not_on_it() {
        let found =
            order(vec![finding("behind", &[7], &[1]), finding("a", &[0], &[1]), finding("b", &[1], &[0])]);
        // More wait for the call of `b` than for that of `a`.
        assert_eq!(found[0], ("b".to_owned(), true, Some("a".to_owned())));
        assert_eq!(found[1], ("a".to_owned(), true, Some("b".to_owned())));
        assert_eq!(found[2], ("behind".to_owned(), false, Some("b".to_owned())));
    }

    /// Against the definition: a finding is on a cycle or between two if it can be reached from a
    /// finding that reaches itself, and reaches one.
    #[test]
    fn cycles_agree_with_reachability() {
        let mut state = 1_u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..300 {
            let nodes = 1 + random(9) as usize;
            let mut edges = vec![Vec::new(); nodes];
            for _ in 0..random(14) {
                let (from, to) = (random(nodes as u64) as usize, random(nodes as u64) as usize);
                if from != to && !edges[from].contains(&to) {
                    edges[from].push(to);
                }
            }
            let mut reach = vec![vec![false; nodes]; nodes];
            edges.iter().enumerate().for_each(|(from, to)| to.iter().for_each(|&to| reach[from][to] = true));
            for via in 0..nodes {
                for from in 0..nodes {
                    for to in 0..nodes {
                        reach[from][to] |= reach[from][via] && reach[via][to];
                    }
                }
            }
            let cyclic: Vec<usize> = (0..nodes).filter(|&node| reach[node][node]).collect();
            let expected: Vec<bool> = (0..nodes)
                .map(|node| {
                    cyclic.iter().any(|&from| from == node || reach[from][node])
                        && cyclic.iter().any(|&to| to == node || reach[node][to])
                })
                .collect();
            assert_eq!(in_cycles(&edges), expected, "{edges:?}");
        }
    }
}
