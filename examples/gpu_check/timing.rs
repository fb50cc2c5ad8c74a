//! Times of spans against `cuEventElapsedTime` taken by hand.

use crate::machine::{Failure, Machine, RANKS};
use crate::traced;
use crate::verdict::Verdicts;
use commtrace::nccl::unique_id;
use commtrace::prelude::*;
use commtrace::report::analyze::Report;
use cudarc::driver::sys::CUevent_flags::CU_EVENT_DEFAULT;
use cudarc::driver::{CudaContext, CudaSlice, CudaStream};
use std::sync::Arc;

const SPANS: usize = 20;

/// Work of a millisecond or more: memory that is filled over and over.
pub struct Load {
    memory: CudaSlice<u8>,
    times: usize,
}

impl Load {
    pub fn new(machine: &Machine, stream: &Arc<CudaStream>) -> Result<Self, Failure> {
        // A GPU fills some terabytes a second, the unoptimized stand-in some megabytes.
        let kibibytes = if machine.is_stand_in { 64 } else { 1 << 20 };
        Ok(Self { memory: stream.alloc_zeros(kibibytes << 10)?, times: 8 })
    }

    pub fn enqueue(&mut self, stream: &Arc<CudaStream>) -> Result<(), Failure> {
        for _ in 0..self.times {
            stream.memset_zeros(&mut self.memory)?;
        }
        Ok(())
    }
}

/// How far sums over the spans may be apart, in ms: what lies between two events that are recorded one
/// after the other, which on the stand-in is two time slices of a thread.
fn tolerance_ms(machine: &Machine) -> f64 {
    SPANS as f64 * if machine.is_stand_in { 1.0 } else { 0.02 }
}

pub fn check(machine: &Machine, verdicts: &mut Verdicts) {
    verdicts.of("time of compute spans against events by hand", compute(machine));
    verdicts.of("time of all_reduce leaves out the wait for its data", producer(machine));
    verdicts.of("a group's time is split among its calls", group(machine));
}

/// The device's figures of `rank`.
fn of_rank<T>(
    report: &Report,
    rank: u32,
    figure: impl Fn(&commtrace::report::analyze::RankReport) -> T,
) -> Option<T> {
    report.ranks.iter().find(|found| found.rank == rank && found.device.is_some()).map(figure)
}

fn compute(machine: &Machine) -> Result<String, Failure> {
    let mut by_hand = 0.0;
    let report = traced::report(|dispatch| {
        let context = CudaContext::new(0)?;
        let stream = context.new_stream()?;
        let mut load = Load::new(machine, &stream)?;
        let mut events = Vec::new();
        tracing::dispatcher::with_default(dispatch, || -> Result<(), Failure> {
            for _ in 0..SPANS {
                let span = compute_span!("load", stream = &stream).entered();
                let start = stream.record_event(Some(CU_EVENT_DEFAULT))?;
                load.enqueue(&stream)?;
                events.push((start, stream.record_event(Some(CU_EVENT_DEFAULT))?));
                drop(span);
            }
            Ok(())
        })?;
        for (start, end) in &events {
            by_hand += f64::from(start.elapsed_ms(end)?);
        }
        Ok(())
    })?;
    let spans = of_rank(&report, 0, |rank| rank.wall.as_ref().map(|wall| wall.compute_ms)).flatten();
    let spans = spans.ok_or("no compute was timed on the device")?;
    let said = format!("{spans:.3} ms in {SPANS} spans, {by_hand:.3} ms by hand");
    // The events by hand lie within the span's.
    let near = (-0.01 * by_hand..=0.01 * by_hand + tolerance_ms(machine)).contains(&(spans - by_hand));
    if near { Ok(said) } else { Err(said.into()) }
}

/// The data comes from another stream, which is busy. Events by hand around the call contain the wait for
/// it, the span must not. One rank, so that there is no other wait.
fn producer(machine: &Machine) -> Result<String, Failure> {
    let (mut around, mut load) = (0.0, 0.0);
    let report = traced::report(|dispatch| {
        let context = CudaContext::new(0)?;
        let (stream, producing) = (context.new_stream()?, context.new_stream()?);
        let comm = NcclComm::from_rank(Arc::clone(&stream), 0, 1, unique_id()?)?;
        let mut work = Load::new(machine, &producing)?;
        let mut data = producing.alloc_zeros::<f32>(1024)?;
        let mut events = Vec::new();
        tracing::dispatcher::with_default(dispatch, || -> Result<(), Failure> {
            for _ in 0..SPANS {
                let begin = producing.record_event(Some(CU_EVENT_DEFAULT))?;
                work.enqueue(&producing)?;
                producing.memset_zeros(&mut data)?;
                let made = producing.record_event(Some(CU_EVENT_DEFAULT))?;
                let start = stream.record_event(Some(CU_EVENT_DEFAULT))?;
                comm.all_reduce_in_place(&mut data, &ReduceOp::Sum)?;
                events.push((begin, made, start, stream.record_event(Some(CU_EVENT_DEFAULT))?));
            }
            Ok(())
        })?;
        for (begin, made, start, end) in &events {
            around += f64::from(start.elapsed_ms(end)?);
            load += f64::from(begin.elapsed_ms(made)?);
        }
        Ok(())
    })?;
    let spans = of_rank(&report, 0, |rank| rank.summary.by_op.get("all_reduce").map(|op| op.time));
    let spans = spans.flatten().ok_or("no all_reduce was timed on the device")?;
    let said = format!("{spans:.3} ms in spans, {around:.3} ms around the calls, the data took {load:.3} ms");
    if spans <= around - 0.5 * load { Ok(said) } else { Err(said.into()) }
}

/// All devices by one thread, and two calls of each in a group.
fn group(machine: &Machine) -> Result<String, Failure> {
    let report = traced::report(|dispatch| {
        let streams = (0..RANKS)
            .map(|rank| CudaContext::new(machine.device_of(rank))?.new_stream())
            .collect::<Result<Vec<_>, _>>()?;
        let comms = NcclComm::from_devices(streams.clone())?;
        let mut buffers = Vec::new();
        for stream in &streams {
            buffers.push((stream.alloc_zeros::<f32>(3 << 18)?, stream.alloc_zeros::<f32>(1 << 18)?));
        }
        tracing::dispatcher::with_default(dispatch, || -> Result<(), Failure> {
            for _ in 0..SPANS {
                commtrace::nccl::group_start()?;
                for (comm, (long, short)) in comms.iter().zip(&mut buffers) {
                    comm.all_reduce_in_place(long, &ReduceOp::Sum)?;
                    comm.broadcast_in_place(short, 0)?;
                }
                commtrace::nccl::group_end()?;
            }
            Ok(())
        })?;
        for stream in &streams {
            stream.synchronize()?;
        }
        Ok(())
    })?;
    let mut said = Vec::new();
    for rank in 0..RANKS as u32 {
        let times = of_rank(&report, rank, |rank| {
            let time = |op: &str| rank.summary.by_op.get(op).map(|op| (op.count, op.time));
            Some((time("all_reduce")?, time("broadcast")?))
        });
        let ((long_count, long), (short_count, short)) =
            times.flatten().ok_or("a group's calls were not timed on the device")?;
        said.push(format!("rank {rank} all_reduce {long:.3} ms, broadcast {short:.3} ms"));
        let whole = (long_count, short_count) == (SPANS as u64, SPANS as u64);
        // By bytes, three to one; each part is rounded to a nanosecond.
        if !whole || long <= 0.0 || (long / short - 3.0).abs() > 0.01 {
            return Err(said.join("; ").into());
        }
    }
    Ok(said.join("; "))
}
