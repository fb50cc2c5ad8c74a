//! How the ranks get NCCL's unique id, which rank 0 makes.
//!
//! Where `MASTER_ADDR` and `MASTER_PORT` say so, as torchrun does, by TCP, at the port after that one, at which the
//! launcher itself listens. Otherwise by a file in the folder of the ranks' events, which all of them see on one machine or
//! with a shared file system.

use crate::event::EventFolder;
use std::env;
use std::ffi::c_char;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use commtrace_collectives::nccl::Id;

/// NCCL's unique id as bytes.
type Bytes = [u8; 128];

const FILE: &str = "nccl-id";
const POLL: Duration = Duration::from_millis(20);
/// Longest that one connection may take to say who it is.
const HELLO: Duration = Duration::from_secs(5);

/// Where ranks meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Meeting {
    /// Rank 0 listens there.
    Tcp {
        /// Host and port.
        address: (String, u16),
    },
    /// Rank 0 leaves the id there.
    File(PathBuf),
}

impl Meeting {
    /// As the variables of this process say.
    pub fn find(events: &EventFolder) -> Result<Self, String> {
        Self::of(events, |name| env::var(name).ok())
    }

    fn of(events: &EventFolder, variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let (Some(host), Some(port)) = (variable("MASTER_ADDR"), variable("MASTER_PORT")) else {
            return Ok(Self::File(events.path().join(FILE)));
        };
        let next = port.trim().parse::<u16>().ok().and_then(|port| port.checked_add(1));
        let Some(port) = next else {
            return Err(format!(
                "MASTER_PORT={port}: expected a number from 0 to 65534, as torchrun sets it"
            ));
        };
        Ok(Self::Tcp { address: (host, port) })
    }

    /// Gives every rank the id that rank 0 makes. `candidate` is alike for ranks that belong together.
    pub fn share(
        &self,
        candidate: &str,
        rank: u32,
        ranks: u32,
        within: Duration,
        make: impl FnOnce() -> Result<Id, String>,
    ) -> Result<Id, String> {
        let deadline = Instant::now() + within;
        let failed = |what: &str, error: io::Error| format!("{what} {self}: {error}");
        if rank > 0 {
            let got = match self {
                Self::Tcp { address } => fetch(address, candidate, deadline),
                Self::File(path) => poll(path, deadline),
            };
            let bytes = got.map_err(|error| {
                let help = match self {
                    Self::Tcp { .. } => "",
                    Self::File(_) => {
                        ". On several machines without a shared folder, set MASTER_ADDR (rank 0's machine) and \
                         MASTER_PORT on all ranks"
                    }
                };
                failed("rank 0 gave no unique id", error) + help
            })?;
            return Ok(Id::uninit(bytes.map(|byte| byte as c_char)));
        }
        let id = make()?;
        let bytes = id.internal().map(|byte| byte as u8);
        let given = match self {
            Self::Tcp { address } => serve(address, candidate, ranks, &bytes, deadline),
            Self::File(path) => leave(path, &bytes),
        };
        given.map_err(|error| failed("the unique id could not be given to the other ranks", error))?;
        Ok(id)
    }
}

impl std::fmt::Display for Meeting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp { address: (host, port) } => write!(f, "at {host}:{port} (the port after MASTER_PORT)"),
            Self::File(path) => write!(f, "by {}", path.display()),
        }
    }
}

fn too_late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "not in time")
}

fn leave(path: &PathBuf, id: &Bytes) -> io::Result<()> {
    // In one step, so that nobody reads half of it.
    let beside = path.with_extension("new");
    fs::write(&beside, id)?;
    fs::rename(beside, path)
}

fn poll(path: &PathBuf, deadline: Instant) -> io::Result<Bytes> {
    while Instant::now() < deadline {
        if let Ok(bytes) = fs::read(path)
            && let Ok(id) = bytes.try_into()
        {
            return Ok(id);
        }
        thread::sleep(POLL);
    }
    Err(too_late())
}

/// Gives the id to `ranks - 1` ranks of the candidate; those of another one are turned away, and come again.
fn serve(
    address: &(String, u16),
    candidate: &str,
    ranks: u32,
    id: &Bytes,
    deadline: Instant,
) -> io::Result<()> {
    let listener = loop {
        // The last candidate's may still be closing.
        match TcpListener::bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                thread::sleep(POLL);
            }
            bound => break bound?,
        }
    };
    listener.set_nonblocking(true)?;
    let mut given = 1;
    while given < ranks {
        match listener.accept() {
            Ok((connection, _)) => given += u32::from(answer(connection, candidate, id).is_ok()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if Instant::now() >= deadline {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        format!("only {} of the other {} ranks came in time", given - 1, ranks - 1),
                    ));
                }
                thread::sleep(POLL);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn answer(mut connection: TcpStream, candidate: &str, id: &Bytes) -> io::Result<()> {
    connection.set_nonblocking(false)?;
    connection.set_read_timeout(Some(HELLO))?;
    let mut asked = vec![0; candidate.len()];
    connection.read_exact(&mut asked)?;
    if asked != candidate.as_bytes() {
        return Err(io::Error::other("of another candidate"));
    }
    connection.write_all(id)
}

fn fetch(address: &(String, u16), candidate: &str, deadline: Instant) -> io::Result<Bytes> {
    let once = || {
        let mut connection = TcpStream::connect(address)?;
        connection.set_read_timeout(Some(HELLO))?;
        connection.write_all(candidate.as_bytes())?;
        let mut id = [0; 128];
        connection.read_exact(&mut id)?;
        Ok(id)
    };
    loop {
        match once() {
            Err(_) if Instant::now() < deadline => thread::sleep(POLL),
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(byte: u8) -> Id {
        Id::uninit([byte as c_char; 128])
    }

    const LONG: Duration = Duration::from_secs(60);

    fn all_get_it(meeting: &Meeting) {
        let got: Vec<Id> = thread::scope(|scope| {
            let ranks: Vec<_> = (0..3)
                .rev()
                .map(|rank| scope.spawn(move || meeting.share("candidate", rank, 3, LONG, || Ok(id(7)))))
                .collect();
            ranks.into_iter().map(|rank| rank.join().unwrap().unwrap()).collect()
        });
        assert!(got.iter().all(|got| got.internal() == id(7).internal()));
    }

    #[test]
    fn by_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let meeting = Meeting::of(&EventFolder::new(folder.path()), |_| None).unwrap();
        assert_eq!(meeting, Meeting::File(folder.path().join(FILE)));
        let late = meeting.share("candidate", 1, 2, Duration::from_millis(50), || Ok(id(0)));
        let said = late.map(|_| ()).unwrap_err();
        assert!(said.contains("MASTER_ADDR"), "{said}");
        all_get_it(&meeting);
    }

    #[test]
    fn by_tcp() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let before = (free - 1).to_string();
        let meeting = Meeting::of(&EventFolder::new("none"), |name| {
            Some(if name == "MASTER_ADDR" { "127.0.0.1".to_owned() } else { before.clone() })
        });
        let meeting = meeting.unwrap();
        assert_eq!(meeting, Meeting::Tcp { address: ("127.0.0.1".to_owned(), free) });
        all_get_it(&meeting);
        let late = meeting.share("candidate", 0, 2, Duration::from_millis(50), || Ok(id(0)));
        assert!(late.map(|_| ()).unwrap_err().contains("only 0 of the other 1 ranks"));
    }

    #[test]
    fn a_port_that_is_none() {
        let variable = |name: &str| Some(if name == "MASTER_ADDR" { "a" } else { "65535" }.to_owned());
        assert!(Meeting::of(&EventFolder::new("none"), variable).unwrap_err().contains("MASTER_PORT=65535"));
    }

    #[test]
    fn ranks_of_another_candidate_are_turned_away() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = ("127.0.0.1".to_owned(), free);
        thread::scope(|scope| {
            let of_another =
                scope.spawn(|| fetch(&address, "ring", Instant::now() + Duration::from_millis(300)));
            let ours = scope.spawn(|| fetch(&address, "tree", Instant::now() + LONG));
            serve(&address, "tree", 2, &[3; 128], Instant::now() + LONG).unwrap();
            assert_eq!(ours.join().unwrap().unwrap(), [3; 128]);
            assert!(of_another.join().unwrap().is_err());
        });
    }
}
