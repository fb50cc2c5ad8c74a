//! What a rank does in a step.

use super::JobSpec;
use super::layout::{Group, Layout};

/// One thing that a rank does.
#[derive(Debug, Clone, Copy)]
pub enum Item {
    /// Computes; `once` marks the span's first place in the step, where a straggler's delay goes.
    Compute { span: &'static str, ns: i64, once: bool },
    /// Enters a collective of a group, and waits for it unless it is `beside` the compute that follows.
    Collective { group: Group, op: &'static str, bytes: u64, beside: bool },
    /// Sends to the stage `peer`, or receives from it.
    PointToPoint { op: &'static str, peer: u32, bytes: u64 },
    /// Waits for what runs beside.
    Join,
}

/// The step of one rank: the same in each step.
pub fn step(spec: &JobSpec, layout: &Layout, rank: u32) -> Vec<Item> {
    let stage = rank / (spec.tensor * spec.data);
    let last_stage = spec.pipeline - 1;
    let mut items = Program { items: Vec::new(), layout, rank };
    items.compute("load_batch", 200_000, true);
    if stage > 0 {
        items.point_to_point("recv", stage - 1);
    }
    for layer in 0..spec.layers {
        items.compute("attention", 400_000, layer == 0);
        items.collective(Group::Tensor, "all_reduce", 8 << 20, false);
        items.compute("mlp", 600_000, layer == 0);
        items.collective(Group::Tensor, "all_reduce", 8 << 20, false);
    }
    if stage < last_stage {
        items.point_to_point("send", stage + 1);
        items.point_to_point("recv", stage + 1);
    }
    for layer in 0..spec.layers {
        items.compute("backward", 1_800_000, layer == 0);
        items.collective(Group::Tensor, "all_reduce", 8 << 20, false);
        items.collective(Group::Data, "reduce_scatter", 64 << 20, true);
    }
    if stage > 0 {
        items.point_to_point("send", stage - 1);
    }
    items.items.push(Item::Join);
    items.compute("optimizer", 500_000, true);
    items.collective(Group::Data, "all_gather", 64 << 20, false);
    if spec.world_all_reduce {
        items.collective(Group::World, "all_reduce", 4, false);
    }
    items.items
}

struct Program<'a> {
    items: Vec<Item>,
    layout: &'a Layout,
    rank: u32,
}

impl Program<'_> {
    fn compute(&mut self, span: &'static str, ns: i64, once: bool) {
        self.items.push(Item::Compute { span, ns, once });
    }

    fn collective(&mut self, group: Group, op: &'static str, bytes: u64, beside: bool) {
        if self.layout.of(self.rank, group).is_some() {
            self.items.push(Item::Collective { group, op, bytes, beside });
        }
    }

    fn point_to_point(&mut self, op: &'static str, peer: u32) {
        self.items.push(Item::PointToPoint { op, peer, bytes: 4 << 20 });
    }
}

/// How long `bytes` take to move: 20 µs and 100 GB/s.
pub fn transfer_ns(bytes: u64) -> i64 {
    20_000 + (bytes / 100) as i64
}
