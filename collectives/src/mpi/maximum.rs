//! The largest of what all ranks say, word by word, by messages that have a deadline.
//!
//! In each round a rank tells what it knows to the rank at a distance that doubles from round to round, so that
//! after ⌈log₂ n⌉ rounds everyone has heard of everyone (dissemination: Hensgen, Finkel and Manber, "Two algorithms
//! for barrier synchronization", 1988). To hear of a rank twice does not change a maximum.
//! `MPI_Iallreduce` would do as well, at twice the cost: it makes a schedule first, and has more rounds.

use std::ffi::c_int;
use std::time::Instant;

use mpi::ffi;

use super::core::{Core, TAG_MAXIMUM};
use super::request::{Control, Failure};

type Words = [u64; 5];

/// A maximum under way.
pub(super) struct Maximum<'r> {
    core: &'r Core,
    words: Words,
    deadline: Option<Instant>,
    first: Option<Round<'r>>,
}

struct Round<'r> {
    sending: Control<'r, Words>,
    receiving: Control<'r, Words>,
}

impl Core {
    /// Begins with what this rank says. All ranks of the communicator do so, in the same order.
    pub(super) fn maximum(&self, words: Words) -> Result<Maximum<'_>, Failure> {
        let deadline = self.deadline();
        let first = self.round(1, words, deadline)?;
        Ok(Maximum { core: self, words, deadline, first })
    }

    /// `None` if everyone has been heard of. In two rounds of one maximum a rank hears from two different ones,
    /// so that the order of messages tells those of one pair apart.
    fn round(
        &self,
        distance: usize,
        words: Words,
        deadline: Option<Instant>,
    ) -> Result<Option<Round<'_>>, Failure> {
        let size = self.members.size();
        if distance >= size {
            return Ok(None);
        }
        let number = |rank: usize| c_int::try_from(rank % size).unwrap_or(c_int::MAX);
        let (to, from) = (number(self.rank + distance), number(self.rank + size - distance));
        let (count, comm) = (words.len() as c_int, self.control.raw());
        let (receive, send) = ("MPI_Irecv", "MPI_Isend");
        // SAFETY: the words lie in the boxes.
        unsafe {
            let receiving = Control::start(&self.runtime, receive, deadline, words, |words, request| {
                let (data, word) = (words.as_mut_ptr().cast(), ffi::RSMPI_UINT64_T);
                ffi::MPI_Irecv(data, count, word, from, TAG_MAXIMUM, comm, request)
            })?;
            let sending = Control::start(&self.runtime, send, deadline, words, |words, request| {
                let (data, word) = (words.as_ptr().cast(), ffi::RSMPI_UINT64_T);
                ffi::MPI_Isend(data, count, word, to, TAG_MAXIMUM, comm, request)
            })?;
            Ok(Some(Round { sending, receiving }))
        }
    }
}

impl Maximum<'_> {
    /// Waits until all ranks have spoken.
    pub(super) async fn over_ranks(self) -> Result<Words, Failure> {
        let Self { core, mut words, deadline, first: mut round } = self;
        let mut distance = 1;
        while let Some(Round { sending, receiving }) = round {
            for (word, theirs) in words.iter_mut().zip(receiving.await?) {
                *word = theirs.max(*word);
            }
            sending.await?;
            distance *= 2;
            round = core.round(distance, words, deadline)?;
        }
        Ok(words)
    }
}
