//! Random programs over several streams, against what must have come before what.

use crate::common::enqueue;
use cudarc::driver::sys::CUevent_flags::CU_EVENT_DEFAULT;
use cudarc::driver::{CudaContext, CudaEvent, CudaStream};
use double_support::{in_child, test_name};
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

/// The pieces that ran, in the order in which they did.
static RAN: Mutex<Vec<usize>> = Mutex::new(Vec::new());

extern "C" fn run(piece: *mut c_void) {
    // Whoever must wait for this one has time to be early.
    std::thread::yield_now();
    RAN.lock().unwrap().push(piece as usize);
}

/// Small numbers from a seed: Marsaglia's xorshift64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// Which pieces each stream and event depends on so far, the slow and obvious way.
#[derive(Default)]
struct Model {
    streams: [BTreeSet<usize>; 4],
    events: [BTreeSet<usize>; 3],
    /// What must have run before each piece.
    before: Vec<BTreeSet<usize>>,
}

/// The first two streams do not wait for the legacy stream; the third does, and the fourth is it.
const BLOCKING: usize = 2;
const LEGACY: usize = 3;

impl Model {
    /// What a new piece, record or wait of a stream comes after.
    fn tip(&self, stream: usize) -> BTreeSet<usize> {
        match stream {
            BLOCKING | LEGACY => &self.streams[BLOCKING] | &self.streams[LEGACY],
            _ => self.streams[stream].clone(),
        }
    }
}

fn check(seed: u64, streams: &[Arc<CudaStream>], events: &[CudaEvent]) {
    let (mut random, mut model) = (Random(seed), Model::default());
    for _ in 0..60 {
        let (stream, event) = (random.below(streams.len()), random.below(events.len()));
        model.streams[stream] = model.tip(stream);
        match random.below(4) {
            0 => {
                events[event].record(&streams[stream]).unwrap();
                model.events[event] = model.streams[stream].clone();
            }
            1 => {
                streams[stream].wait(&events[event]).unwrap();
                model.streams[stream] = &model.streams[stream] | &model.events[event];
            }
            _ => {
                let piece = model.before.len();
                enqueue(&streams[stream], run, piece as *mut c_void);
                model.before.push(model.streams[stream].clone());
                model.streams[stream].insert(piece);
            }
        }
    }
    streams[0].context().synchronize().unwrap();
    let ran = std::mem::take(&mut *RAN.lock().unwrap());
    assert_eq!(ran.iter().collect::<BTreeSet<_>>().len(), model.before.len(), "each piece ran once");
    for (at, piece) in ran.iter().enumerate() {
        let earlier: BTreeSet<usize> = ran[..at].iter().copied().collect();
        let missing = &model.before[*piece] - &earlier;
        assert!(missing.is_empty(), "seed {seed}: piece {piece} ran before {missing:?}: {ran:?}");
    }
}

#[test]
fn nothing_runs_before_what_it_waits_for() {
    in_child(test_name!(), &[], || {
        let context = CudaContext::new(0).unwrap();
        let free = || context.new_stream().unwrap();
        let streams = [free(), free(), context.per_thread_stream(), context.default_stream()];
        let event = || context.new_event(Some(CU_EVENT_DEFAULT)).unwrap();
        for seed in 1..=150 {
            check(seed, &streams, &[event(), event(), event()]);
        }
    });
}
