//! Messages of bytes with a deadline, for the end of a run: beside the calls and their order, so that they also
//! work on a communicator that a call has broken.

use std::ffi::c_int;
use std::time::Instant;

use mpi::ffi;

use super::core::{Core, TAG_BYTES, TAG_LENGTH};
use super::request::{Control, Failure, Pace};
use crate::host::key::Key;
use crate::{CallId, Error, Op, Result};

/// Bytes per call of MPI.
const PIECE: usize = 1 << 26;

impl Core {
    /// Sends `message`, as its length and then its bytes.
    pub(super) fn send_bytes(&self, message: &[u8], peer: usize, deadline: Instant) -> Result<()> {
        let id = self.bytes_id(self.rank, peer, Op::Send);
        self.ready(&id)?;
        let sending = async {
            self.send_piece(message.len().to_le_bytes().to_vec(), peer, TAG_LENGTH, deadline)?.await?;
            for piece in message.chunks(PIECE) {
                self.send_piece(piece.to_vec(), peer, TAG_BYTES, deadline)?.await?;
            }
            Ok(())
        };
        self.run(&Pace::default(), sending).map_err(|failure| self.bytes_error(id, failure, peer))
    }

    /// Receives what [`send_bytes`](Self::send_bytes) sends.
    pub(super) fn receive_bytes(&self, peer: usize, deadline: Instant) -> Result<Vec<u8>> {
        let id = self.bytes_id(peer, self.rank, Op::Recv);
        self.ready(&id)?;
        let receiving = async {
            let length = self.receive_piece(size_of::<usize>(), peer, TAG_LENGTH, deadline)?.await?;
            let mut left = length.first_chunk().map_or(0, |length| usize::from_le_bytes(*length));
            let mut message = Vec::new();
            while left > 0 {
                let piece = self.receive_piece(left.min(PIECE), peer, TAG_BYTES, deadline)?.await?;
                left -= piece.len();
                message.extend_from_slice(&piece);
            }
            Ok(message)
        };
        self.run(&Pace::default(), receiving).map_err(|failure| self.bytes_error(id, failure, peer))
    }

    fn send_piece(
        &self,
        piece: Vec<u8>,
        peer: usize,
        tag: c_int,
        deadline: Instant,
    ) -> Result<Control<'_, Vec<u8>>, Failure> {
        let peer = c_int::try_from(peer).unwrap_or(c_int::MAX);
        // SAFETY: the vector is in the box and keeps its length.
        unsafe {
            Control::start(&self.runtime, "MPI_Isend", Some(deadline), piece, |piece, request| {
                let (data, count) = (piece.as_ptr().cast(), piece.len() as c_int);
                ffi::MPI_Isend(data, count, ffi::RSMPI_UINT8_T, peer, tag, self.control.raw(), request)
            })
        }
    }

    fn receive_piece(
        &self,
        length: usize,
        peer: usize,
        tag: c_int,
        deadline: Instant,
    ) -> Result<Control<'_, Vec<u8>>, Failure> {
        let peer = c_int::try_from(peer).unwrap_or(c_int::MAX);
        // SAFETY: as above.
        unsafe {
            Control::start(&self.runtime, "MPI_Irecv", Some(deadline), vec![0; length], |piece, request| {
                let (data, count) = (piece.as_mut_ptr().cast(), length as c_int);
                ffi::MPI_Irecv(data, count, ffi::RSMPI_UINT8_T, peer, tag, self.control.raw(), request)
            })
        }
    }

    /// Whether MPI can be called.
    fn ready(&self, id: &CallId) -> Result<()> {
        self.runtime.check().map_err(|message| self.library(id.clone(), "no function", message))
    }

    fn bytes_id(&self, source: usize, destination: usize, op: Op) -> CallId {
        self.members.call_id(Key::Message { source, destination, count: 0 }, op)
    }

    fn bytes_error(&self, id: CallId, failure: Failure, peer: usize) -> Error {
        self.runtime.set_damaged();
        match failure {
            Failure::Late => {
                let missing = vec![self.members.global(peer)];
                Error::Timeout { call: id, waited: self.timeout, missing }
            }
            failure => self.error(id, failure),
        }
    }
}
