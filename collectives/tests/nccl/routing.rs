//! How exchanges on GPUs spread over ranks, timed one by one and in groups.

use commtrace_collectives::NcclComm;
use commtrace_instrument::{combine_scope, dispatch_scope, init};
use double_support::{in_child, test_name};

use crate::job::{self, DEVICES};

const HIDDEN: usize = 4;

/// Tokens from each rank to each.
const TOKENS: [[usize; 2]; 2] = [[1, 5], [2, 4]];

fn experts(comm: &NcclComm) {
    let rank = comm.rank();
    let out = TOKENS[rank].map(|tokens| tokens * HIDDEN);
    let back = TOKENS.map(|row| row[rank] * HIDDEN);
    let buffer = |counts: &[usize]| comm.stream().alloc_zeros::<f32>(counts.iter().sum()).unwrap();
    let (tokens, mut arrived, mut results) = (buffer(&out), buffer(&back), buffer(&out));
    for _ in 0..3 {
        let _dispatch = dispatch_scope(HIDDEN);
        comm.all_to_all_v(&tokens, &out, &mut arrived, &back).unwrap();
        comm.group(|group| {
            let _combine = combine_scope(HIDDEN);
            group.all_to_all_v(arrived.as_view(), &back, results.as_view_mut(), &out).map(drop)
        })
        .unwrap();
    }
    comm.stream().synchronize().unwrap();
}

#[test]
fn dispatches_on_gpu_streams_are_counted() {
    in_child(test_name!(), &[DEVICES, ("COMMTRACE", "summary")], || {
        let guard = init().unwrap();
        job::ranks(2, |comm| experts(&comm));
        let report = guard.into_report().unwrap();
        let routing = report.cross_rank.unwrap().routing.unwrap();
        let bytes = |tokens: u64| Some(3 * tokens * 4 * HIDDEN as u64);
        assert_eq!(
            (routing.dispatch_payload_bytes, routing.dispatch_cross_rank_bytes),
            (bytes(12), bytes(7))
        );
        assert_eq!((routing.dispatched_tokens, routing.cross_rank_token_ratio), (Some(36), Some(7.0 / 12.0)));
        assert_eq!((routing.expert_load_skew, routing.hottest_rank), (Some(1.5), Some(1)));
        assert!(routing.complete && routing.by_communicator.len() == 2, "{routing:#?}");
        assert!(routing.by_communicator.iter().all(|one| one.exchanges == 3));
    });
}
