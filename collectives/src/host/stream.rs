//! The order of one rank's calls on one communicator, and the thread of the non-blocking ones.
//!
//! Every call takes a ticket when it is made and has its turn when all earlier tickets are used: a
//! blocking call on its caller's thread, a non-blocking one on the communication thread.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use commtrace_instrument::rank_scope;

use super::key::{Key, Kind};
use super::{Backend, Departure};

pub(super) type Job = Box<dyn FnOnce() + Send>;

pub(crate) struct Stream {
    pub(super) name: String,
    rank: usize,
    queue: Mutex<Queue>,
    changed: Condvar,
}

struct Queue {
    issued: u64,
    finished: u64,
    collectives: u64,
    splits: u64,
    /// Messages to and from each rank.
    sent: Box<[u64]>,
    received: Box<[u64]>,
    /// Calls for the communication thread, by ticket.
    jobs: BTreeMap<u64, Job>,
    /// Tickets whose call will not be made.
    unused: BTreeSet<u64>,
    waiting: usize,
    closed: bool,
    worker: Worker,
}

enum Worker {
    NotStarted,
    Running(Option<JoinHandle<()>>),
    Exited,
}

/// The right to one call. Dropped without a turn, its place in the order is skipped.
pub(crate) struct Ticket<'s> {
    stream: &'s Stream,
    number: u64,
    used: bool,
}

/// While it exists, this rank makes no other call on the communicator.
pub(crate) struct Turn<'s> {
    stream: &'s Stream,
}

impl Stream {
    pub(super) fn new(name: String, rank: usize, size: usize) -> Arc<Self> {
        Arc::new(Self {
            name,
            rank,
            queue: Mutex::new(Queue {
                issued: 0,
                finished: 0,
                collectives: 0,
                splits: 0,
                sent: vec![0; size].into(),
                received: vec![0; size].into(),
                jobs: BTreeMap::new(),
                unused: BTreeSet::new(),
                waiting: 0,
                closed: false,
                worker: Worker::NotStarted,
            }),
            changed: Condvar::new(),
        })
    }

    /// A ticket for one or more calls that are made together.
    pub(super) fn issue(&self) -> Issue<'_> {
        let mut queue = self.lock();
        let number = queue.issued;
        queue.issued += 1;
        Issue { queue, ticket: Ticket { stream: self, number, used: false }, rank: self.rank }
    }

    /// Makes sure that the communication thread runs. `false` if the system gives us none.
    pub(super) fn start<B: Backend>(self: &Arc<Self>, backend: &Arc<B>) -> bool {
        let mut queue = self.lock();
        if !matches!(queue.worker, Worker::NotStarted) {
            return true;
        }
        let (stream, backend) = (Arc::clone(self), Arc::clone(backend));
        let thread = std::thread::Builder::new().name(self.name.clone());
        match thread.spawn(move || stream.work(&*backend)) {
            Ok(handle) => {
                queue.worker = Worker::Running(Some(handle));
                true
            }
            Err(_) => false,
        }
    }

    fn work(&self, backend: &impl Backend) {
        let _rank = rank_scope(backend.members().global(self.rank));
        let mut queue = self.lock();
        loop {
            let next = queue.finished;
            if let Some(job) = queue.jobs.remove(&next) {
                drop(queue);
                // The handle's owner learns of a panic from the job itself, the other ranks from this.
                if catch_unwind(AssertUnwindSafe(job)).is_err() {
                    backend.leave(self.rank, Departure::Panicked);
                }
                queue = self.lock();
                queue.finish();
                self.notify(&queue);
            } else if queue.closed && queue.finished == queue.issued {
                break;
            } else {
                queue = self.sleep(queue);
            }
        }
        queue.worker = Worker::Exited;
        self.notify(&queue);
        drop(queue);
        backend.leave(self.rank, Departure::Dropped);
    }

    /// No further call will be made. Calls under way are completed by the communication thread, which
    /// then leaves the communicator; a thread that has nothing to do, or not to be left alone, is joined.
    pub(super) fn close<B: Backend>(&self, backend: &B) {
        let panicking = std::thread::panicking();
        if panicking {
            // What is still to be done fails at once, so that nobody waits for this rank.
            backend.leave(self.rank, Departure::Panicked);
        }
        let mut queue = self.lock();
        queue.closed = true;
        self.notify(&queue);
        let idle = queue.finished == queue.issued || (B::DROP_WAITS && !panicking);
        match &mut queue.worker {
            Worker::Running(handle) => {
                let handle = handle.take().filter(|_| idle);
                drop(queue);
                if let Some(handle) = handle {
                    let _ = handle.join();
                }
            }
            Worker::NotStarted | Worker::Exited => {
                drop(queue);
                backend.leave(self.rank, Departure::Dropped);
            }
        }
    }

    /// Waits for the calls of a closed stream.
    pub(crate) fn drain(&self) {
        let mut queue = self.lock();
        while queue.closed && matches!(queue.worker, Worker::Running(_)) {
            queue = self.sleep(queue);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing panics while it holds the lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sleep<'q>(&self, mut queue: MutexGuard<'q, Queue>) -> MutexGuard<'q, Queue> {
        queue.waiting += 1;
        let mut queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        queue.waiting -= 1;
        queue
    }

    fn notify(&self, queue: &Queue) {
        if queue.waiting > 0 {
            self.changed.notify_all();
        }
    }
}

/// A ticket being written: numbers its calls while no other thread of the rank can.
pub(super) struct Issue<'s> {
    queue: MutexGuard<'s, Queue>,
    ticket: Ticket<'s>,
    rank: usize,
}

impl<'s> Issue<'s> {
    pub(super) fn key(&mut self, kind: Kind) -> Key {
        let queue = &mut *self.queue;
        match kind {
            Kind::Collective => Key::Collective { seq: next(&mut queue.collectives) },
            Kind::SendTo(peer) => {
                let count = queue.sent.get_mut(peer).map_or(0, next);
                Key::Message { source: self.rank, destination: peer, count }
            }
            Kind::RecvFrom(peer) => {
                let count = queue.received.get_mut(peer).map_or(0, next);
                Key::Message { source: peer, destination: self.rank, count }
            }
        }
    }

    /// The number of a split.
    pub(super) fn split(&mut self) -> u64 {
        next(&mut self.queue.splits)
    }

    pub(super) fn ticket(self) -> Ticket<'s> {
        self.ticket
    }
}

fn next(counter: &mut u64) -> u64 {
    let number = *counter;
    *counter += 1;
    number
}

impl Queue {
    /// The current ticket has been used.
    fn finish(&mut self) {
        self.finished += 1;
        while self.unused.remove(&self.finished) {
            self.finished += 1;
        }
    }
}

impl<'s> Ticket<'s> {
    /// Waits until all earlier calls are done.
    pub(crate) fn turn(mut self) -> Turn<'s> {
        let stream = self.stream;
        let mut queue = stream.lock();
        while queue.finished != self.number {
            queue = stream.sleep(queue);
        }
        drop(queue);
        self.used = true;
        Turn { stream }
    }

    /// Leaves the call to the communication thread, which must have been started. Returns whether no
    /// earlier call is under way.
    pub(super) fn hand_over(mut self, job: Job) -> bool {
        self.used = true;
        let mut queue = self.stream.lock();
        queue.jobs.insert(self.number, job);
        self.stream.notify(&queue);
        queue.finished == self.number
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if !self.used {
            let mut queue = self.stream.lock();
            if queue.finished == self.number {
                queue.finish();
            } else {
                queue.unused.insert(self.number);
            }
            self.stream.notify(&queue);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut queue = self.stream.lock();
        queue.finish();
        self.stream.notify(&queue);
    }
}
