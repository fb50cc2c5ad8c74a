//! Calls become pieces of work in streams.

use crate::collective::{self, Call};
use crate::comm::Comm;
use crate::driver;
use crate::error::{Code, Error, Result};
use crate::{error, settings};
use double_common::lock;
use std::ffi::{CString, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

/// A call that waits for the end of its group.
pub struct Pending {
    pub comm: Arc<Comm>,
    pub stream: usize,
    pub call: Call,
}

/// The calls of one communicator that run as one piece.
struct Part {
    comm: Arc<Comm>,
    /// Taken at the call. A piece that a graph replays takes its turn when it runs.
    turn: Mutex<Option<u64>>,
    calls: Vec<Call>,
}

/// A piece of work: usually of one communicator, of several where they share a stream.
struct Piece {
    parts: Vec<Part>,
}

/// Launches the calls of a group: one piece a stream.
pub fn launch(group: Vec<Pending>) -> Result {
    let driver = driver::get()?;
    let mut pieces: Vec<(usize, usize, Piece)> = Vec::new();
    for Pending { comm, stream, call } in group {
        let place =
            |(context, other, _): &(usize, usize, Piece)| (*context, *other) == (comm.context, stream);
        let at = match pieces.iter().position(place) {
            Some(at) => at,
            None => {
                pieces.push((comm.context, stream, Piece { parts: Vec::new() }));
                pieces.len() - 1
            }
        };
        let parts = &mut pieces[at].2.parts;
        match parts.iter_mut().find(|part| Arc::ptr_eq(&part.comm, &comm)) {
            Some(part) => part.calls.push(call),
            None => parts.push(Part { comm, turn: Mutex::new(None), calls: vec![call] }),
        }
    }
    for (context, stream, piece) in pieces {
        if !driver.is_capturing(context, stream)? {
            for part in &piece.parts {
                *lock(&part.turn) = Some(part.comm.turns.take());
            }
        }
        let name = CString::new(piece.name()).unwrap_or_default();
        let data = Box::into_raw(Box::new(piece)).cast();
        driver.enqueue(context, stream, &name, run, release, data)?;
    }
    Ok(())
}

/// Runs a piece on its stream's thread. Only an illegal address is the device's own error; all else
/// is the communicator's.
extern "C" fn run(data: *mut c_void) -> c_int {
    const ILLEGAL_ADDRESS: c_int = 700;
    // SAFETY: `data` is the piece that `launch` boxed; `release` has not run yet, and no run of a piece
    // changes it but through its locks.
    let piece = unsafe { &*data.cast::<Piece>() };
    match catch_unwind(AssertUnwindSafe(|| piece.run())) {
        Ok(Err(Error { code: Code::UNHANDLED_CUDA_ERROR, .. })) => ILLEGAL_ADDRESS,
        Ok(_) => 0,
        Err(_) => {
            error::remember("the stand-in NCCL panicked in a collective");
            ILLEGAL_ADDRESS
        }
    }
}

extern "C" fn release(data: *mut c_void) {
    // SAFETY: `data` is the piece that `launch` boxed, and the driver releases it once.
    drop(unsafe { Box::from_raw(data.cast::<Piece>()) });
}

impl Piece {
    fn name(&self) -> &'static str {
        match &self.parts[..] {
            [Part { calls, .. }] if calls.len() == 1 => {
                calls.first().map_or("group", |call| call.kind.name())
            }
            _ => "group",
        }
    }

    fn run(&self) -> Result {
        let Some((first, others)) = self.parts.split_first() else { return Ok(()) };
        std::thread::scope(|scope| {
            let others: Vec<_> = others.iter().map(|part| scope.spawn(|| part.run())).collect();
            let own = first.run();
            let failed = |_| Err(Error::new(Code::INTERNAL_ERROR, "a collective panicked"));
            let others: Vec<Result> =
                others.into_iter().map(|thread| thread.join().unwrap_or_else(failed)).collect();
            others.into_iter().chain([own]).collect()
        })
    }
}

impl Part {
    fn run(&self) -> Result {
        let turn = lock(&self.turn).take().unwrap_or_else(|| self.comm.turns.take());
        let result = self.comm.in_turn(turn, |mesh| {
            if let Some((rank, delay)) = settings::get().slow_rank
                && rank == mesh.rank
            {
                std::thread::sleep(delay);
            }
            let (between, among): (Vec<&Call>, Vec<&Call>) =
                self.calls.iter().partition(|call| call.kind.is_point_to_point());
            for call in among {
                collective::run(mesh, call)?;
            }
            if between.is_empty() { Ok(()) } else { collective::run_point_to_point(mesh, &between) }
        });
        if let Err(error) = &result {
            self.comm.fail(error.clone());
        }
        result
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // A piece that never ran, its context being broken, must not hold up those behind it.
        if let Some(turn) = lock(&self.turn).take() {
            self.comm.turns.pass(turn);
        }
    }
}
