//! Which ranks form which communicator.

use super::JobSpec;

/// One of the groups that a rank is a member of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Group {
    /// All ranks.
    World,
    /// Ranks that share a layer.
    Tensor,
    /// Ranks that hold the same part of the model.
    Data,
    /// The stages of one pipeline.
    Pipeline,
}

impl Group {
    const ALL: [Self; 4] = [Self::World, Self::Tensor, Self::Data, Self::Pipeline];
}

/// A communicator.
#[derive(Debug, Clone)]
pub struct Communicator {
    /// `world`, `tp0.1` (stage, data index), `dp0.1` (stage, tensor index) or `pp0.1` (data, tensor index).
    pub name: String,
    /// Global ranks in the communicator's order.
    pub members: Vec<u32>,
}

/// The communicators of a job.
#[derive(Debug, Clone)]
pub struct Layout {
    /// All communicators with more than one member.
    pub communicators: Vec<Communicator>,
    /// Per rank and group: the communicator and the rank's number in it.
    of_rank: Vec<[Option<(usize, u32)>; 4]>,
}

impl Layout {
    /// The groups of `spec`.
    pub fn new(spec: &JobSpec) -> Self {
        let (tensor, data, pipeline) = (spec.tensor, spec.data, spec.pipeline);
        let rank = |t: u32, d: u32, p: u32| t + tensor * (d + data * p);
        let mut layout =
            Self { communicators: Vec::new(), of_rank: vec![[None; 4]; spec.world_size() as usize] };
        layout.add(Group::World, "world".to_owned(), (0..spec.world_size()).collect());
        for p in 0..pipeline {
            for d in 0..data {
                let members = (0..tensor).map(|t| rank(t, d, p)).collect();
                layout.add(Group::Tensor, format!("tp{p}.{d}"), members);
            }
            for t in 0..tensor {
                layout.add(Group::Data, format!("dp{p}.{t}"), (0..data).map(|d| rank(t, d, p)).collect());
            }
        }
        for d in 0..data {
            for t in 0..tensor {
                let members = (0..pipeline).map(|p| rank(t, d, p)).collect();
                layout.add(Group::Pipeline, format!("pp{d}.{t}"), members);
            }
        }
        layout
    }

    /// The communicator of a rank's group and its number in it; `None` if it is alone there.
    pub fn of(&self, rank: u32, group: Group) -> Option<(usize, u32)> {
        self.of_rank[rank as usize][group as usize]
    }

    fn add(&mut self, group: Group, name: String, members: Vec<u32>) {
        if members.len() < 2 {
            return;
        }
        for (&rank, number) in members.iter().zip(0..) {
            self.of_rank[rank as usize][group as usize] = Some((self.communicators.len(), number));
        }
        self.communicators.push(Communicator { name, members });
    }
}
