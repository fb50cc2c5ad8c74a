//! Which clocks are tied together, and along which communicators.

use super::sample::Samples;
use std::collections::VecDeque;

/// One step outwards from the first clock of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Edge {
    /// A clock that is joined already.
    pub parent: usize,
    /// The clock that it joins.
    pub child: usize,
    /// Whose collectives both have.
    pub communicator: usize,
}

/// Clocks that are tied together by collectives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// The clocks, the lowest first, parents before children.
    pub clocks: Vec<usize>,
    /// A spanning tree with as few steps to each clock as can be, parents before children.
    pub edges: Vec<Edge>,
}

/// The connected parts of the graph of `clocks` clocks, in order of their lowest clock.
pub(super) fn parts(samples: &[Samples], clocks: usize) -> Vec<Part> {
    let mut of_clock: Vec<Vec<usize>> = vec![Vec::new(); clocks];
    for (index, samples) in samples.iter().enumerate() {
        for clock in samples.clocks() {
            if let Some(list) = of_clock.get_mut(clock) {
                list.push(index);
            }
        }
    }
    let rows: Vec<usize> = samples.iter().map(Samples::rows).collect();
    for list in &mut of_clock {
        // The best known communicator first.
        list.sort_by_key(|&index| std::cmp::Reverse(rows.get(index).copied()));
    }
    let mut joined = vec![false; clocks];
    let mut exhausted = vec![false; samples.len()];
    let mut parts = Vec::new();
    for first in 0..clocks {
        if joined[first] {
            continue;
        }
        joined[first] = true;
        let mut part = Part { clocks: vec![first], edges: Vec::new() };
        let mut queue = VecDeque::from([first]);
        while let Some(parent) = queue.pop_front() {
            for &communicator in &of_clock[parent] {
                if exhausted[communicator] {
                    continue;
                }
                exhausted[communicator] = true;
                for child in samples[communicator].clocks() {
                    if joined[child] {
                        continue;
                    }
                    // Both may be members without ever having been in the same collective.
                    if samples[communicator].ends_of(parent, child).is_empty() {
                        exhausted[communicator] = false;
                        continue;
                    }
                    joined[child] = true;
                    part.clocks.push(child);
                    part.edges.push(Edge { parent, child, communicator });
                    queue.push_back(child);
                }
            }
        }
        parts.push(part);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::super::ClockedPart;
    use super::*;

    fn communicator(rows: usize, clocks: &[u32]) -> Samples {
        let mut samples = Samples::default();
        let parts: Vec<_> =
            clocks.iter().map(|&clock| ClockedPart { clock, start_ns: 0, end_ns: 1 }).collect();
        (0..rows).for_each(|_| samples.add(&parts, 16));
        samples
    }

    #[test]
    fn a_chain_is_one_part_and_strangers_are_others() {
        let samples = [communicator(3, &[0, 2]), communicator(3, &[2, 5]), communicator(3, &[1, 4])];
        let found = parts(&samples, 6);
        let clocks: Vec<_> = found.iter().map(|part| part.clocks.clone()).collect();
        assert_eq!(clocks, [vec![0, 2, 5], vec![1, 4], vec![3]]);
        assert_eq!(
            found[0].edges,
            [Edge { parent: 0, child: 2, communicator: 0 }, Edge { parent: 2, child: 5, communicator: 1 }]
        );
    }

    #[test]
    fn clocks_are_joined_along_the_communicator_with_most_collectives() {
        let samples = [communicator(3, &[0, 1]), communicator(30, &[0, 1])];
        assert_eq!(parts(&samples, 2)[0].edges[0].communicator, 1);
    }

    #[test]
    fn members_that_never_met_are_joined_through_a_third() {
        let mut samples = communicator(1, &[0, 1]);
        let part = |clock| ClockedPart { clock, start_ns: 0, end_ns: 1 };
        samples.add(&[part(1), part(2)], 3);
        let found = parts(&[samples], 3);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].edges[1], Edge { parent: 1, child: 2, communicator: 0 });
    }
}
