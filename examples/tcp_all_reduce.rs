//! Communication of your own, traced by hand: one process per rank, sums over TCP.
//!
//! Start every rank with the variables that torchrun sets, all recording into one folder:
//!
//! ```text
//! cargo build --release --example tcp_all_reduce
//! export COMMTRACE_DIR=out WORLD_SIZE=2 TORCHELASTIC_RUN_ID=demo MASTER_ADDR=127.0.0.1 MASTER_PORT=29500
//! RANK=1 target/release/examples/tcp_all_reduce &
//! RANK=0 target/release/examples/tcp_all_reduce
//! ```
//!
//! The process of rank 0 waits for the others' records and reports on all of them.

use commtrace::prelude::*;
use std::env;
use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

const STEPS: u64 = 8;
const ELEMENTS: usize = 1 << 14;

fn main() -> Result<(), Box<dyn Error>> {
    let _trace = commtrace::init()?;
    let mut job = Job::from_env()?;
    for step in 0..STEPS {
        let _step = step_span!(step).entered();
        let forward = compute_span!("forward").entered();
        let mut values: Vec<f32> =
            (0..ELEMENTS).map(|index| (index as f32).sin() + job.rank as f32).collect();
        drop(forward);
        job.all_reduce(&mut values)?;
    }
    println!("rank {} of {} is done", job.rank, job.size);
    Ok(())
}

/// Rank 0 holds a connection to every other rank; the others hold one to rank 0.
struct Job {
    rank: usize,
    size: usize,
    peers: Vec<TcpStream>,
    seq: u64,
}

impl Job {
    fn from_env() -> Result<Self, Box<dyn Error>> {
        let variable = |name: &str| env::var(name).map_err(|error| format!("{name}: {error}"));
        let number = |name: &str| -> Result<usize, Box<dyn Error>> {
            let text = variable(name)?;
            text.parse().map_err(|_| format!("{name}={text}: expected a whole number").into())
        };
        let (rank, size) = (number("RANK")?, number("WORLD_SIZE")?);
        let address = (variable("MASTER_ADDR")?, u16::try_from(number("MASTER_PORT")?)?);
        let peers = if rank == 0 {
            let listener = TcpListener::bind(address)?;
            (1..size).map(|_| listener.accept().map(|(peer, _)| peer)).collect::<Result<_, _>>()?
        } else {
            vec![connect(address)?]
        };
        Ok(Self { rank, size, peers, seq: 0 })
    }

    /// Sums `values` over all ranks, in place.
    fn all_reduce(&mut self, values: &mut [f32]) -> io::Result<()> {
        // What the report needs to match the ranks' parts: the communicator's name and size, and the
        // number of the call in it.
        let _span = comm_span!(
            "all_reduce",
            bytes = size_of_val(values),
            dtype = "float32",
            comm = "world",
            comm_size = self.size,
            comm_rank = self.rank,
            seq = self.seq
        )
        .entered();
        self.seq += 1;
        let mut bytes = vec![0; size_of_val(values)];
        if self.rank == 0 {
            for peer in &mut self.peers {
                peer.read_exact(&mut bytes)?;
                values.iter_mut().zip(decode(&bytes)).for_each(|(sum, value)| *sum += value);
            }
            let sum = encode(values);
            self.peers.iter_mut().try_for_each(|peer| peer.write_all(&sum))
        } else {
            let mine = encode(values);
            for peer in &mut self.peers {
                peer.write_all(&mine)?;
                peer.read_exact(&mut bytes)?;
            }
            values.iter_mut().zip(decode(&bytes)).for_each(|(value, sum)| *value = sum);
            Ok(())
        }
    }
}

/// Rank 0 may not listen yet.
fn connect(address: (String, u16)) -> io::Result<TcpStream> {
    let mut last = TcpStream::connect(&address);
    for _ in 0..200 {
        if last.is_ok() {
            break;
        }
        thread::sleep(Duration::from_millis(50));
        last = TcpStream::connect(&address);
    }
    last
}

fn encode(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn decode(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.chunks_exact(4).map(|chunk| f32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]))
}
