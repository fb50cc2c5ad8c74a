//! Where the ranks of a call meet.
//!
//! A call is a *round*: each of its ranks posts what it wants and the last one to come checks that all
//! fit. Then the round's units of work ([`super::kernel`]) are done by whichever of its ranks are awake, so that a
//! rank which the operating system has not scheduled yet holds nobody up. The round is complete when
//! all units are done.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::kernel::Work;
use super::posted::Posted;
use super::split::{self, Member};
use crate::host::Departure;
use crate::host::call::{Call, RawCall};
use crate::host::check::check;
use crate::host::key::{Key, Members};
use crate::{CallId, Error, Op, Result};

/// What the ranks of a communicator share.
pub(super) struct Core {
    pub(super) members: Members,
    pub(super) timeout: Duration,
    pub(super) spins: u32,
    state: Mutex<State>,
    /// One per rank. A rank makes one call at a time, so at most one thread waits on each.
    pub(super) wake: Box<[Condvar]>,
}

pub(super) struct State {
    pub(super) gathering: HashMap<Key, Gathering>,
    gone: Box<[Option<Departure>]>,
    first_panicked: Option<usize>,
    pub(super) asleep: Box<[bool]>,
    broken: Option<Arc<Error>>,
}

/// A round that not all ranks have come to.
pub(super) struct Gathering {
    round: Arc<Round>,
    offers: Box<[Option<Offer>]>,
    arrived: usize,
}

enum Offer {
    Call(RawCall),
    Split { color: u32, key: u32 },
}

/// A round's phases.
pub(super) const GATHERING: u8 = 0;
pub(super) const RUNNING: u8 = 1;
pub(super) const COMPLETE: u8 = 2;
pub(super) const FAILED: u8 = 3;

/// What its ranks share of a round.
pub(super) struct Round {
    pub(super) key: Key,
    pub(super) phase: AtomicU8,
    /// Set before `RUNNING`.
    pub(super) work: OnceLock<Work>,
    pub(super) units: AtomicUsize,
    /// The first unit that nobody has taken.
    pub(super) next: AtomicUsize,
    pub(super) unfinished: AtomicUsize,
    /// Set before `COMPLETE`, in a split.
    members: OnceLock<Vec<Member>>,
    /// Set before `FAILED`.
    pub(super) error: OnceLock<Error>,
}

impl Core {
    pub(super) fn new(name: Arc<str>, ranks: Box<[u32]>, timeout: Duration) -> Self {
        let size = ranks.len();
        // With more ranks than cores, a spinning rank keeps the one it waits for from running.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            timeout,
            spins: if size <= cores { 2000 } else { 0 },
            state: Mutex::new(State {
                gathering: HashMap::new(),
                gone: vec![None; size].into(),
                first_panicked: None,
                asleep: vec![false; size].into(),
                broken: None,
            }),
            wake: (0..size).map(|_| Condvar::new()).collect(),
            members: Members { name, ranks },
        }
    }

    pub(super) fn size(&self) -> usize {
        self.members.size()
    }

    /// Joins `rank` to the round `key` with `call`.
    pub(super) fn post<'c, 'b>(&'c self, rank: usize, key: Key, call: Call<'b>) -> Result<Posted<'c, 'b>> {
        // A rank that sends to itself comes twice, as sender and as receiver.
        let slot = match key {
            Key::Message { .. } if call.raw.op == Op::Send => 0,
            Key::Message { .. } => 1,
            Key::Collective { .. } | Key::Split { .. } => rank,
        };
        self.join(rank, slot, key, Offer::Call(call.raw))
    }

    /// Joins `rank` to a split and returns its new communicator.
    pub(super) fn split(&self, rank: usize, count: u64, color: u32, key: u32) -> Result<Member> {
        let posted = self.join(rank, rank, Key::Split { count }, Offer::Split { color, key })?;
        let round = Arc::clone(posted.round());
        posted.wait()?;
        let members = round.members.get().map(Vec::as_slice).unwrap_or_default();
        // A split completes with one member per rank, so the rank is there.
        members.get(rank).cloned().ok_or_else(|| Error::RankLost {
            call: self.call_id(round.key, Op::Barrier),
            rank: self.global(rank),
            panicked: false,
        })
    }

    fn join<'c, 'b>(&'c self, rank: usize, slot: usize, key: Key, offer: Offer) -> Result<Posted<'c, 'b>> {
        let op = offer.op();
        let mut state = self.lock();
        if let Some(cause) = &state.broken {
            return Err(Error::Broken { comm: Arc::clone(&self.members.name), cause: Arc::clone(cause) });
        }
        let entry = state.gathering.entry(key).or_insert_with(|| Gathering::new(key, self.size()));
        let round = Arc::clone(&entry.round);
        if let Some(place) = entry.offers.get_mut(slot) {
            *place = Some(offer);
            entry.arrived += 1;
        }
        let all_here = entry.arrived == entry.offers.len();
        let posted = Posted::new(self, rank, round, op);
        if all_here {
            self.start(&mut state, posted.round());
        } else {
            // The rank itself is gone if it panicked with calls still to be made.
            let missing = state.gathering.get(&key).into_iter().flat_map(Gathering::missing);
            let lost = missing.chain([rank]).find_map(|rank| self.lost(&state, rank, key, op));
            if let Some(error) = lost {
                self.break_with(&mut state, error);
            }
        }
        drop(state);
        Ok(posted)
    }

    /// All ranks have come: checks their calls and starts (or, without work, completes) the round.
    fn start(&self, state: &mut State, round: &Arc<Round>) {
        let Some(gathering) = state.gathering.remove(&round.key) else { return };
        let mut calls = Vec::with_capacity(gathering.offers.len());
        let mut wishes = Vec::new();
        for offer in gathering.offers.into_iter().flatten() {
            match offer {
                Offer::Call(call) => calls.push(call),
                Offer::Split { color, key } => wishes.push((color, key)),
            }
        }
        let phase = if let Key::Split { count } = round.key {
            let _ = round.members.set(split::members(self, count, &wishes));
            COMPLETE
        } else if let Err(fault) = check(&calls) {
            let op = calls.first().map_or(Op::Barrier, |call| call.op);
            let _ = round.error.set(fault.into_error(&self.members, round.key, op));
            FAILED
        } else {
            match Work::new(calls.into()) {
                Some(work) if work.units() > 0 => {
                    round.units.store(work.units(), Ordering::Relaxed);
                    round.unfinished.store(work.units(), Ordering::Relaxed);
                    let _ = round.work.set(work);
                    RUNNING
                }
                _ => COMPLETE,
            }
        };
        round.phase.store(phase, Ordering::Release);
        // The only unit will be done by this thread before another has woken up.
        if phase != RUNNING || round.units.load(Ordering::Relaxed) > 1 {
            self.wake_ranks(state, round.key);
        }
    }

    pub(super) fn wake_ranks(&self, state: &State, key: Key) {
        let wake = |rank: usize| {
            if state.asleep.get(rank) == Some(&true)
                && let Some(wake) = self.wake.get(rank)
            {
                wake.notify_one();
            }
        };
        match key {
            Key::Message { source, destination, .. } => [source, destination].into_iter().for_each(wake),
            Key::Collective { .. } | Key::Split { .. } => (0..self.size()).for_each(wake),
        }
    }

    /// Ends every round that still gathers, and the communicator with it.
    pub(super) fn break_with(&self, state: &mut State, error: Error) {
        for (key, gathering) in std::mem::take(&mut state.gathering) {
            let Gathering { round, offers, .. } = gathering;
            drop(offers);
            let _ = round.error.set(error.clone());
            round.phase.store(FAILED, Ordering::Release);
            self.wake_ranks(state, key);
        }
        state.broken.get_or_insert_with(|| Arc::new(error));
    }

    /// `rank` will make no further call. If it panicked, those that it already waits in end as well.
    pub(super) fn leave(&self, rank: usize, how: Departure) {
        let mut state = self.lock();
        match state.gone.get_mut(rank) {
            Some(gone @ None) => *gone = Some(how),
            _ => return,
        }
        if how == Departure::Panicked {
            state.first_panicked.get_or_insert(rank);
        }
        let ended = state
            .gathering
            .iter()
            .filter(|(_, gathering)| {
                how == Departure::Panicked || gathering.missing().any(|missing| missing == rank)
            })
            .map(|(key, gathering)| (*key, gathering.op()))
            .min_by_key(|(key, _)| *key);
        if let Some((key, op)) = ended
            && let Some(error) = self.lost(&state, rank, key, op)
        {
            self.break_with(&mut state, error);
        }
    }

    /// The rank that panicked before others did, perhaps as a consequence.
    pub(super) fn first_panicked(&self) -> Option<usize> {
        self.lock().first_panicked
    }

    fn lost(&self, state: &State, rank: usize, key: Key, op: Op) -> Option<Error> {
        let how = (*state.gone.get(rank)?)?;
        Some(Error::RankLost {
            call: self.call_id(key, op),
            rank: self.global(rank),
            panicked: how == Departure::Panicked,
        })
    }

    pub(super) fn call_id(&self, key: Key, op: Op) -> CallId {
        self.members.call_id(key, op)
    }

    pub(super) fn global(&self, rank: usize) -> u32 {
        self.members.global(rank)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Offer {
    fn op(&self) -> Op {
        match self {
            Self::Call(call) => call.op,
            // Named by its key alone.
            Self::Split { .. } => Op::Barrier,
        }
    }
}

impl Gathering {
    fn new(key: Key, size: usize) -> Self {
        let round = Arc::new(Round {
            key,
            phase: AtomicU8::new(GATHERING),
            work: OnceLock::new(),
            units: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
            unfinished: AtomicUsize::new(0),
            members: OnceLock::new(),
            error: OnceLock::new(),
        });
        let offers = (0..key.slots(size)).map(|_| None).collect();
        Self { round, offers, arrived: 0 }
    }

    /// Ranks that have not come.
    pub(super) fn missing(&self) -> impl Iterator<Item = usize> + '_ {
        let key = self.round.key;
        let open = self.offers.iter().enumerate().filter(|(_, offer)| offer.is_none());
        open.map(move |(slot, _)| key.rank_of(slot))
    }

    fn op(&self) -> Op {
        self.offers.iter().flatten().next().map_or(Op::Barrier, Offer::op)
    }
}

impl Round {
    pub(super) fn phase(&self) -> u8 {
        self.phase.load(Ordering::Acquire)
    }
}
