//! Communicators.

use crate::driver;
use crate::element::DataType;
use crate::error::{Error, Result};
use crate::mesh::{Abort, Mesh};
use crate::reduce::Scalar;
use crate::turn::Turns;
use double_common::handles::{Handle, Table};
use double_common::lock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// One rank's side of a communicator.
pub struct Comm {
    pub handle: Handle,
    pub device: i32,
    /// The context in which its work is launched.
    pub context: usize,
    /// Whether the device's primary context was retained for it.
    retained: bool,
    mesh: OnceLock<Arc<Mesh>>,
    pub turns: Turns,
    pub abort: Arc<Abort>,
    failure: Mutex<Option<Error>>,
    /// How often it was split, which makes the names of what it is split into.
    pub splits: AtomicU64,
    scalars: Mutex<Vec<Option<(DataType, Scalar)>>>,
}

static COMMS: Table<Comm> = Table::new(0x99);

impl Comm {
    /// A communicator that is not yet connected.
    pub fn new(context: usize, device: i32, retained: bool) -> Result<Arc<Comm>> {
        let abort = Abort::new()?;
        let make = |handle| {
            Arc::new(Comm {
                handle,
                device,
                context,
                retained,
                mesh: OnceLock::new(),
                turns: Turns::default(),
                abort,
                failure: Mutex::new(None),
                splits: AtomicU64::new(0),
                scalars: Mutex::default(),
            })
        };
        let made = COMMS.insert_with(make).ok_or_else(|| Error::usage("too many communicators"))?;
        Ok(made.1)
    }

    /// Connects it, once.
    pub fn set_mesh(&self, mesh: Mesh) -> Result<Arc<Mesh>> {
        let mesh = Arc::new(mesh);
        self.mesh.set(mesh.clone()).map_err(|_| Error::usage("the communicator is connected already"))?;
        Ok(mesh)
    }

    pub fn mesh(&self) -> Result<&Arc<Mesh>> {
        self.mesh.get().ok_or_else(|| Error::usage("the communicator is not ready before the group ends"))
    }

    /// What went wrong first, if anything.
    pub fn failure(&self) -> Option<Error> {
        lock(&self.failure).clone()
    }

    /// Remembers what went wrong, and lets the other ranks know by breaking off.
    pub fn fail(&self, error: Error) {
        crate::error::remember(&error.text);
        lock(&self.failure).get_or_insert(error);
        if let Some(mesh) = self.mesh.get() {
            mesh.shut_down();
        }
    }

    /// Runs `act` when all earlier calls of this communicator are through.
    pub fn in_turn<R>(&self, turn: u64, act: impl FnOnce(&Mesh) -> Result<R>) -> Result<R> {
        let came = self.turns.wait_for(turn);
        let result = match self.failure() {
            Some(error) => Err(error),
            None if !came => Err(Error::usage("the communicator is gone")),
            None => self.mesh().and_then(|mesh| act(mesh)),
        };
        self.turns.pass(turn);
        result
    }

    /// Keeps the scalar of a reduction of the application's own, and returns its number.
    pub fn add_scalar(&self, data_type: DataType, scalar: Scalar) -> usize {
        let mut scalars = lock(&self.scalars);
        let place = scalars.iter().position(Option::is_none).unwrap_or(scalars.len());
        if place == scalars.len() {
            scalars.push(None);
        }
        scalars[place] = Some((data_type, scalar));
        place
    }

    pub fn scalar(&self, number: usize) -> Option<(DataType, Scalar)> {
        lock(&self.scalars).get(number).cloned().flatten()
    }

    pub fn remove_scalar(&self, number: usize) -> Option<(DataType, Scalar)> {
        lock(&self.scalars).get_mut(number).and_then(Option::take)
    }

    /// A number for the next split; every rank counts alike.
    pub fn next_split(&self) -> u64 {
        self.splits.fetch_add(1, Ordering::Relaxed)
    }
}

/// The communicator behind a handle.
pub fn find(handle: Handle) -> Result<Arc<Comm>> {
    COMMS.get(handle).ok_or_else(|| Error::argument("the communicator is null or gone"))
}

fn remove(comm: &Comm) {
    COMMS.remove(comm.handle);
    if comm.retained
        && let Ok(driver) = driver::get()
    {
        driver.release(comm.device);
    }
}

/// Waits for all that was called, and lets the communicator go.
pub fn destroy(handle: Handle) -> Result {
    let comm = find(handle)?;
    comm.turns.wait_for_all();
    remove(&comm);
    Ok(())
}

/// Lets the communicator go at once; what runs or waits ends with an error.
pub fn abort(handle: Handle) -> Result {
    let comm = find(handle)?;
    comm.abort.raise();
    comm.turns.end();
    remove(&comm);
    Ok(())
}
