//! Tokens routed to experts by processes under `mpirun`: one report, gathered over the job's communicator.
#![cfg(feature = "mpi")]

#[path = "../collectives/tests/common/under_mpirun.rs"]
mod under_mpirun;

use commtrace::prelude::*;
use commtrace::{Config, Mode};

const RANKS: usize = 3;
const HIDDEN: usize = 16;

/// Tokens from each rank to each.
const TOKENS: [[usize; RANKS]; RANKS] = [[1, 4, 0], [2, 5, 0], [0, 6, 0]];

#[test]
fn the_processes_of_a_job_report_their_experts_load_together() {
    under_mpirun::ranks("the_processes_of_a_job_report_their_experts_load_together", RANKS, || {
        let guard = Config::from_env().unwrap().mode(Mode::Summary).init().unwrap();
        let comm = MpiComm::world().unwrap();
        let rank = comm.rank();
        let out = TOKENS[rank].map(|tokens| tokens * HIDDEN);
        let back = TOKENS.map(|row| row[rank] * HIDDEN);
        let buffer = |counts: &[usize]| vec![0.0_f64; counts.iter().sum()];
        for step in 0..5 {
            let _step = step_span!(step).entered();
            let mut arrived = buffer(&back);
            {
                let _dispatch = dispatch_scope(HIDDEN);
                comm.all_to_all_v(&buffer(&out), &out, &mut arrived, &back).unwrap();
            }
            let _combine = combine_scope(HIDDEN);
            comm.all_to_all_v(&arrived, &back, &mut buffer(&out), &out).unwrap();
        }
        let report = guard.finish(&comm);
        assert_eq!(report.is_some(), rank == 0);
        let Some(report) = report else { return };
        let routing = report.cross_rank.unwrap().routing.unwrap();
        assert!(routing.complete, "{routing:#?}");
        assert_eq!(
            (routing.dispatched_tokens, routing.cross_rank_token_ratio),
            (Some(5 * 18), Some(12.0 / 18.0))
        );
        assert_eq!((routing.expert_load_skew, routing.hottest_rank), (Some(2.5), Some(1)));
        assert_eq!(routing.dispatch_payload_bytes, Some((5 * 18 * HIDDEN * 8) as u64));
        assert!(routing.throughput_tokens_per_s.is_some_and(|rate| rate > 0.0));
        let dispatch = &routing.by_communicator[0];
        let rows = dispatch.bytes_by_pair.as_ref().unwrap();
        assert_eq!(rows.len(), RANKS);
    });
}
