//! The connections of one rank to all others of its communicator.
//!
//! Every rank listens on an abstract Unix socket whose name is made of the communicator's and its own;
//! it connects to the lower ranks and accepts the higher ones. Threads and processes of one machine are
//! alike here, and nothing is left in the file system.

use crate::error::{Error, Result};
use crate::settings;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Tells every thread that waits for a peer that the communicator is aborted.
pub struct Abort {
    event: OwnedFd,
}

impl Abort {
    pub fn new() -> Result<Arc<Abort>> {
        // SAFETY: a new descriptor, which nobody else has.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(Error::system("an event descriptor", &std::io::Error::last_os_error()));
        }
        // SAFETY: as above: it is ours alone.
        Ok(Arc::new(Abort { event: unsafe { OwnedFd::from_raw_fd(fd) } }))
    }

    /// Wakes all, now and later.
    pub fn raise(&self) {
        let one = 1_u64;
        // SAFETY: eight bytes of a value that lives through the call; the descriptor is open.
        unsafe { libc::write(self.event.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
    }

    fn is_raised(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.event.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one element, as said.
        unsafe { libc::poll(&mut poll, 1, 0) > 0 }
    }
}

/// A rank's connections.
pub struct Mesh {
    /// The communicator's name, from which those of its splits are made.
    pub name: String,
    pub rank: usize,
    pub size: usize,
    /// One a peer; none at the rank's own place.
    links: Vec<Option<UnixStream>>,
    abort: Arc<Abort>,
}

/// How long to wait before trying a rank again that does not listen yet.
const RETRY: Duration = Duration::from_millis(2);

impl Mesh {
    /// Meets all other ranks of the communicator of this name.
    pub fn connect(name: &str, rank: usize, size: usize, abort: &Arc<Abort>) -> Result<Mesh> {
        let deadline = Instant::now() + settings::get().init_timeout;
        let listener =
            UnixListener::bind_addr(&address(name, rank)?).map_err(|error| match error.kind() {
                ErrorKind::AddrInUse => Error::usage(format!("rank {rank} is there already")),
                _ => Error::system("listening for other ranks", &error),
            })?;
        let waits = Waits { rank, deadline, abort };
        let mut links: Vec<Option<UnixStream>> = (0..size).map(|_| None).collect();
        for (peer, link) in links.iter_mut().enumerate().take(rank) {
            *link = Some(waits.connect(&address(name, peer)?, peer, size)?);
        }
        for _ in rank + 1..size {
            let (peer, socket) = waits.accept(&listener, size)?;
            match links.get_mut(peer) {
                Some(link) if link.is_none() && peer > rank => *link = Some(socket),
                _ => return Err(Error::usage(format!("rank {peer} came to rank {rank} twice or in vain"))),
            }
        }
        let nonblocking = |socket: &UnixStream| socket.set_nonblocking(true);
        links
            .iter()
            .flatten()
            .try_for_each(nonblocking)
            .map_err(|error| Error::system("a socket of a peer", &error))?;
        Ok(Mesh { name: name.to_owned(), rank, size, links, abort: abort.clone() })
    }

    /// The peers with their sockets.
    pub fn links(&self) -> impl Iterator<Item = (usize, &UnixStream)> {
        self.links.iter().enumerate().filter_map(|(peer, link)| Some((peer, link.as_ref()?)))
    }

    /// All ranks but this one.
    pub fn peers(&self) -> impl Iterator<Item = usize> {
        let rank = self.rank;
        (0..self.size).filter(move |peer| *peer != rank)
    }

    /// Breaks all connections, so that no peer waits for this rank.
    pub fn shut_down(&self) {
        for (_, socket) in self.links() {
            // A socket that is closed already needs no more.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    pub fn abort_fd(&self) -> RawFd {
        self.abort.event.as_raw_fd()
    }
}

fn address(name: &str, rank: usize) -> Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("{name}-{rank}"))
        .map_err(|error| Error::system("the name of the communicator", &error))
}

/// Waiting for ranks until a deadline.
struct Waits<'a> {
    rank: usize,
    deadline: Instant,
    abort: &'a Abort,
}

impl Waits<'_> {
    /// Sleeps a little; an error when it has been long enough.
    fn pause(&self, what: &str) -> Result {
        if self.abort.is_raised() {
            return Err(Error::usage("the communicator was aborted as it was being made"));
        }
        if Instant::now() > self.deadline {
            return Err(Error::usage(format!("rank {}: {what} did not come in time", self.rank)));
        }
        std::thread::sleep(RETRY);
        Ok(())
    }

    fn connect(&self, address: &SocketAddr, peer: usize, size: usize) -> Result<UnixStream> {
        loop {
            match UnixStream::connect_addr(address) {
                Ok(mut socket) => {
                    let hello = [self.rank as u32, size as u32].map(u32::to_ne_bytes).concat();
                    let sent = socket.write_all(&hello);
                    sent.map_err(|error| Error::system("greeting another rank", &error))?;
                    return Ok(socket);
                }
                Err(error) => match error.kind() {
                    ErrorKind::ConnectionRefused | ErrorKind::WouldBlock | ErrorKind::Interrupted => {
                        self.pause(&format!("rank {peer}"))?;
                    }
                    _ => return Err(Error::system("connecting to another rank", &error)),
                },
            }
        }
    }

    fn accept(&self, listener: &UnixListener, size: usize) -> Result<(usize, UnixStream)> {
        let failed = |error: &std::io::Error| Error::system("accepting another rank", error);
        listener.set_nonblocking(true).map_err(|error| failed(&error))?;
        loop {
            match listener.accept() {
                Ok((mut socket, _)) => {
                    let mut hello = [0; 8];
                    let left = self.deadline.saturating_duration_since(Instant::now());
                    socket
                        .set_nonblocking(false)
                        .and_then(|()| socket.set_read_timeout(Some(left.max(RETRY))))
                        .and_then(|()| socket.read_exact(&mut hello))
                        .map_err(|error| failed(&error))?;
                    let number = |at: usize| {
                        let bytes = hello.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
                        u32::from_ne_bytes(bytes.unwrap_or_default()) as usize
                    };
                    if number(4) != size {
                        let (peer, theirs) = (number(0), number(4));
                        let text = format!("rank {peer} says there are {theirs} ranks, not {size}");
                        return Err(Error::argument(text));
                    }
                    return Ok((number(0), socket));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.pause("a higher rank")?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(&error)),
            }
        }
    }
}
