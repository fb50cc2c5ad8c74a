//! How processes find each other: rank 0 hands out NCCL's unique id over TCP.

use super::Error;
use cudarc::nccl::Id;
use std::env;
use std::ffi::c_char;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

/// A process's place in its job, by the variables that torchrun sets.
pub struct Launch {
    pub rank: usize,
    pub size: usize,
    /// The number of the process on its machine.
    pub local_rank: usize,
    address: (String, u16),
}

impl Launch {
    /// None if this process is the whole job.
    pub fn from_env() -> Result<Option<Self>, Error> {
        if env::var_os("RANK").is_none() || env::var_os("WORLD_SIZE").is_none() {
            return Ok(None);
        }
        let text = |name: &str| env::var(name).map_err(|error| format!("{name}: {error}"));
        let number = |name: &str| -> Result<usize, Error> {
            let text = text(name)?;
            text.parse().map_err(|_| format!("{name}={text}: expected a whole number").into())
        };
        let rank = number("RANK")?;
        let local_rank = if env::var_os("LOCAL_RANK").is_some() { number("LOCAL_RANK")? } else { rank };
        let address = (text("MASTER_ADDR")?, u16::try_from(number("MASTER_PORT")?)?);
        Ok(Some(Self { rank, size: number("WORLD_SIZE")?, local_rank, address }))
    }

    /// The id that rank 0 makes.
    pub fn share(&self, make: impl FnOnce() -> Result<Id, Error>) -> Result<Id, Error> {
        if self.rank == 0 {
            let listener = TcpListener::bind(self.address.clone())?;
            let id = make()?;
            let bytes = id.internal().map(|byte| byte as u8);
            for _ in 1..self.size {
                listener.accept()?.0.write_all(&bytes)?;
            }
            return Ok(id);
        }
        let mut bytes = [0; 128];
        self.connect()?.read_exact(&mut bytes)?;
        Ok(Id::uninit(bytes.map(|byte| byte as c_char)))
    }

    /// Rank 0 may not listen yet.
    fn connect(&self) -> Result<TcpStream, Error> {
        let mut last = TcpStream::connect(&self.address);
        for _ in 0..1200 {
            if last.is_ok() {
                break;
            }
            thread::sleep(Duration::from_millis(50));
            last = TcpStream::connect(&self.address);
        }
        last.map_err(|error| format!("no connection to rank 0 at {:?}: {error}", self.address).into())
    }
}
