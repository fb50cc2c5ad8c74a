//! Figures of one rank on one device.

use super::filter::Selected;
use super::interval::{Cover, duration_ns, overlaps_ns};
use super::routing::{add_throughput, rank_routing};
use super::steps::step_figures;
use super::wall::extent;
use super::{RankReport, Summary, SummaryBuilder, Wall};
use crate::timeline::{Names, Track};

/// `compute` is the union of the track's compute.
pub(super) fn rank_report(
    selected: &Selected<'_>,
    compute: &Cover,
    base_ns: i64,
    names: &Names,
) -> RankReport {
    let track = &selected.track;
    let comm = Cover::new(track.comm.starts_ns(), track.comm.ends_ns());
    let columns = [
        (track.compute.starts_ns(), track.compute.ends_ns()),
        (track.comm.starts_ns(), track.comm.ends_ns()),
    ];
    let mut report = RankReport {
        rank: track.rank,
        device: track.device,
        summary: summary(track, compute, names),
        wall: track.unplaced.is_empty().then(|| Wall::from_covers(&comm, compute, extent(columns))),
        untimed: (&track.untimed).into(),
        steps: step_figures(selected, base_ns),
        routing: rank_routing(track, names).map(Box::new),
    };
    add_throughput(&mut report);
    report
}

fn summary(track: &Track, compute: &Cover, names: &Names) -> Summary {
    let overlaps = overlaps_ns(compute, track.comm.starts_ns(), track.comm.ends_ns());
    let mut builder = SummaryBuilder::default();
    let mut slots: Vec<Option<usize>> = vec![None; names.len()];
    for (comm, overlap_ns) in track.comm.iter().zip(overlaps) {
        let duration_ns = duration_ns(comm.start_ns, comm.end_ns);
        match slots.get_mut(comm.op.index()) {
            Some(slot) => {
                let slot = *slot.get_or_insert_with(|| builder.slot(names.get(comm.op)));
                builder.add_at(slot, duration_ns, overlap_ns, comm.bytes);
            }
            None => builder.add(names.get(comm.op), duration_ns, overlap_ns, comm.bytes),
        }
    }
    for comm in track.unplaced.iter() {
        let duration_ns = duration_ns(comm.start_ns, comm.end_ns);
        builder.add_unplaced(names.get(comm.op), duration_ns, comm.bytes);
    }
    builder.finish()
}
