//! Moving bytes to and from all peers at once, without threads of its own and without deadlock.

use crate::error::{Code, Error, Result};
use crate::mesh::Mesh;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// Bytes for a peer.
pub struct Send<'a> {
    pub peer: usize,
    pub bytes: &'a [u8],
}

/// Room for bytes from a peer.
pub struct Receive<'a> {
    pub peer: usize,
    pub bytes: &'a mut [u8],
}

/// What is still to be moved between this rank and one peer.
struct Lane<'a> {
    peer: usize,
    socket: &'a UnixStream,
    sends: VecDeque<&'a [u8]>,
    receives: VecDeque<&'a mut [u8]>,
}

impl Mesh {
    /// Sends and receives all of these; those of one peer in their order. Returns when all are moved.
    pub fn exchange<'a>(&'a self, sends: Vec<Send<'a>>, receives: Vec<Receive<'a>>) -> Result {
        let mut lanes: Vec<Lane<'a>> = self
            .links()
            .map(|(peer, socket)| Lane { peer, socket, sends: VecDeque::new(), receives: VecDeque::new() })
            .collect();
        let unknown = |peer: usize| Error::argument(format!("rank {peer} is no peer"));
        for Send { peer, bytes } in sends {
            let lane = lanes.iter_mut().find(|lane| lane.peer == peer).ok_or_else(|| unknown(peer))?;
            lane.sends.push_back(bytes);
        }
        for Receive { peer, bytes } in receives {
            let lane = lanes.iter_mut().find(|lane| lane.peer == peer).ok_or_else(|| unknown(peer))?;
            lane.receives.push_back(bytes);
        }
        loop {
            for lane in &mut lanes {
                lane.progress()?;
            }
            lanes.retain(|lane| !lane.is_done());
            if lanes.is_empty() {
                return Ok(());
            }
            self.wait(&lanes)?;
        }
    }

    /// Waits until a lane can progress; an error if the communicator is aborted.
    fn wait(&self, lanes: &[Lane<'_>]) -> Result {
        let poll = |fd, events| libc::pollfd { fd, events, revents: 0 };
        let mut watched: Vec<libc::pollfd> = lanes
            .iter()
            .map(|lane| {
                let write = if lane.sends.is_empty() { 0 } else { libc::POLLOUT };
                let read = if lane.receives.is_empty() { 0 } else { libc::POLLIN };
                poll(lane.socket.as_raw_fd(), write | read)
            })
            .collect();
        watched.push(poll(self.abort_fd(), libc::POLLIN));
        // SAFETY: the array has the length that is given.
        let ready = unsafe { libc::poll(watched.as_mut_ptr(), watched.len() as libc::nfds_t, -1) };
        if ready < 0 {
            let error = std::io::Error::last_os_error();
            if error.kind() != ErrorKind::Interrupted {
                return Err(Error::system("waiting for the other ranks", &error));
            }
        }
        if watched.last().is_some_and(|abort| abort.revents != 0) {
            return Err(Error::new(Code::INTERNAL_ERROR, "the communicator was aborted"));
        }
        Ok(())
    }
}

impl Lane<'_> {
    fn is_done(&self) -> bool {
        self.sends.is_empty() && self.receives.is_empty()
    }

    /// Moves what can be moved now.
    fn progress(&mut self) -> Result {
        let gone = |peer: usize| Error::new(Code::REMOTE_ERROR, format!("rank {peer} is gone"));
        while let Some(bytes) = self.sends.front_mut() {
            if bytes.is_empty() {
                self.sends.pop_front();
                continue;
            }
            // SAFETY: the buffer has the length that is given. A peer that is gone is an error, no signal.
            let sent = unsafe {
                libc::send(self.socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL)
            };
            match usize::try_from(sent) {
                Ok(sent) => *bytes = &bytes[sent..],
                Err(_) => match std::io::Error::last_os_error().kind() {
                    ErrorKind::WouldBlock => break,
                    ErrorKind::Interrupted => {}
                    _ => return Err(gone(self.peer)),
                },
            }
        }
        while let Some(bytes) = self.receives.front_mut() {
            if bytes.is_empty() {
                self.receives.pop_front();
                continue;
            }
            match self.socket.read(bytes) {
                Ok(0) => return Err(gone(self.peer)),
                Ok(read) => {
                    let rest = std::mem::take(bytes);
                    *bytes = &mut rest[read..];
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => break,
                    ErrorKind::Interrupted => {}
                    _ => return Err(gone(self.peer)),
                },
            }
        }
        Ok(())
    }
}
