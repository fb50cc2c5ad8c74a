//! Messages of bytes with a deadline, for the end of a run.
//!
//! NCCL has no deadline of its own: a call whose other side never comes stays on the stream until the communicator is
//! aborted. So both sides look at the stream up to the deadline. And a send is over for its stream when NCCL has the
//! bytes, which may still have to cross the network, while the sender drops, and so aborts, the communicator soon
//! after. So the receiver answers.

use std::mem;
use std::thread;
use std::time::{Duration, Instant};

use super::{NcclBuffer, NcclComm, number};
use crate::pending::Pending;
use crate::{CallId, CallKind, Communicator, Error, Op, Result};

/// How often the stream is looked at.
const POLL: Duration = Duration::from_millis(1);

impl NcclComm {
    /// Sends `message`, as its length and then its bytes, and waits for the answer.
    pub(super) fn send_message(&self, message: &[u8], peer: usize, deadline: Instant) -> Result<()> {
        let length = [i64::try_from(message.len()).unwrap_or(i64::MAX)];
        self.by(deadline, Op::Send, peer, self.send_async(self.alloc_from(&length)?, peer))?;
        if !message.is_empty() {
            self.by(deadline, Op::Send, peer, self.send_async(self.alloc_from(message)?, peer))?;
        }
        let answer = self.recv_async(self.alloc_zeros::<u8>(1)?, peer);
        self.by(deadline, Op::Recv, peer, answer).map(drop)
    }

    /// Receives what [`send_message`](Self::send_message) sends, and answers.
    pub(super) fn receive_message(&self, peer: usize, deadline: Instant) -> Result<Vec<u8>> {
        let length = self.by(deadline, Op::Recv, peer, self.recv_async(self.alloc_zeros::<i64>(1)?, peer))?;
        let length = self.to_vec(&length)?.first().and_then(|&length| usize::try_from(length).ok());
        let message = match length {
            Some(length @ 1..) => {
                let message = self.recv_async(self.alloc_zeros::<u8>(length)?, peer);
                self.to_vec(&*self.by(deadline, Op::Recv, peer, message)?)?
            }
            _ => Vec::new(),
        };
        // The message is here whether or not the answer arrives.
        let answer = self.alloc_from(&[1_u8]).map(|answer| self.send_async(answer, peer));
        let _ = answer.and_then(|answer| self.by(deadline, Op::Send, peer, answer));
        Ok(message)
    }

    /// The buffer of `call`, once that is over.
    fn by<T>(
        &self,
        deadline: Instant,
        op: Op,
        peer: usize,
        call: Pending<NcclBuffer<T>>,
    ) -> Result<NcclBuffer<T>> {
        let begun = Instant::now();
        while !call.is_finished() {
            if Instant::now() >= deadline {
                // Freeing its buffer may wait for the stream, which may be for ever.
                mem::forget(call);
                return Err(Error::Timeout {
                    call: CallId {
                        comm: self.name().into(),
                        call: CallKind::WithPeer { op, peer: i32::try_from(peer).unwrap_or(i32::MAX) },
                    },
                    waited: begun.elapsed(),
                    missing: vec![number(peer)],
                });
            }
            thread::sleep(POLL);
        }
        call.wait()
    }
}
