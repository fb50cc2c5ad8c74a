//! Graph capture beside spans that are being resolved.

use crate::machine::{Failure, Machine};
use crate::timing::Load;
use crate::traced;
use crate::verdict::Verdicts;
use commtrace::prelude::*;
use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use std::thread;
use std::time::Duration;

/// Spans of another thread while a capture is open.
const SPANS: usize = 50;

pub fn check(machine: &Machine, verdicts: &mut Verdicts) {
    verdicts.of("a capture in global mode survives spans of another thread", capture(machine));
}

fn capture(machine: &Machine) -> Result<String, Failure> {
    let report = traced::report(|dispatch| {
        let context = CudaContext::new(0)?;
        let (captured, busy) = (context.new_stream()?, context.new_stream()?);
        let (mut inside, mut beside) = (Load::new(machine, &captured)?, Load::new(machine, &busy)?);
        captured.synchronize()?;
        busy.synchronize()?;
        // cudarc would make the captured stream wait for events from before the capture.
        // SAFETY: each stream has memory of its own.
        unsafe { context.disable_event_tracking() };
        captured.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL)?;
        let during = thread::scope(|scope| {
            let spans = scope.spawn(|| {
                tracing::dispatcher::with_default(dispatch, || -> Result<(), Failure> {
                    for _ in 0..SPANS {
                        let _span = compute_span!("beside", stream = &busy).entered();
                        beside.enqueue(&busy)?;
                        // So that some are resolved while the capture is open.
                        thread::sleep(Duration::from_millis(2));
                    }
                    Ok(())
                })
            });
            let inside = tracing::dispatcher::with_default(dispatch, || {
                comm_span!("captured", stream = &captured, bytes = 1_u64)
                    .in_scope(|| inside.enqueue(&captured))
            });
            let beside = spans.join().unwrap_or_else(|_| Err("the other thread panicked".into()));
            inside.and(beside)
        });
        let graph =
            captured.end_capture(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
        // SAFETY: as above.
        unsafe { context.enable_event_tracking() };
        during?;
        let graph = graph?.ok_or("the capture was invalidated")?;
        graph.launch()?;
        captured.synchronize()?;
        busy.synchronize()?;
        Ok(())
    })?;
    let reasons = report.ranks.iter().flat_map(|rank| &rank.untimed.reasons);
    let captured: u64 = reasons.filter(|(reason, _)| *reason == "captured").map(|(_, count)| count).sum();
    if captured != 1 {
        return Err(
            format!("{captured} spans are `untimed: captured`, and not the one in the capture").into()
        );
    }
    Ok(format!("the graph ran, beside it {SPANS} spans; the one inside is `untimed: captured`"))
}
