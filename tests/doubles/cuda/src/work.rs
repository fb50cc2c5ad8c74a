//! The kinds of work that a stream does.

use crate::clock;
use crate::error::Error;
use crate::event::{Event, Record};
use crate::faults;
use crate::kernels::Launch;
use crate::log;
use crate::memory::{self, Copy, Fill};
use crate::stream::Stream;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// A function of the application with its argument.
#[derive(Clone, Copy)]
pub struct HostFunction {
    pub function: extern "C" fn(*mut c_void),
    /// The pointer that the function gets.
    pub data: usize,
}

/// Work of a library that stands on this one, such as a collective.
pub struct Foreign {
    /// Kind and name in the log; nothing in them that JSON would have to escape.
    pub kind: String,
    pub name: String,
    /// Runs the piece; another value than 0 is an error code that breaks the context.
    pub run: extern "C" fn(*mut c_void) -> c_int,
    /// Releases `data`.
    pub release: extern "C" fn(*mut c_void),
    pub data: usize,
}

impl Drop for Foreign {
    fn drop(&mut self) {
        (self.release)(self.data as *mut c_void);
    }
}

/// A piece of work.
#[derive(Clone)]
pub enum Work {
    Record(Arc<Record>),
    Wait(Arc<Record>),
    Host(HostFunction),
    Kernel(Arc<Launch>),
    Copy(Copy),
    Fill(Fill),
    Free(usize),
    Foreign(Arc<Foreign>),
    /// All nodes of a graph, in the order of capture.
    Graph(Arc<Vec<Work>>),
    /// Nodes of a graph that record an event or wait for one; each launch makes them `Record`, `Wait`.
    RecordNode(Arc<Event>),
    WaitNode(Arc<Event>),
}

impl Work {
    /// Runs the piece, which starts at `start_ns` of the host's clock, and says when it ended.
    pub fn run(&self, stream: &Stream, start_ns: i64) -> i64 {
        match self {
            Work::Record(record) => {
                record.reached(start_ns);
                if log::events() {
                    log::piece(stream, "event", "record", start_ns, start_ns);
                }
                start_ns
            }
            Work::Wait(record) => {
                record.wait();
                let end_ns = start_ns.max(record.host_ns());
                if log::events() {
                    log::piece(stream, "wait", "event", start_ns, end_ns);
                }
                end_ns
            }
            Work::Host(host) => launch(stream, "host", "host_function", start_ns, || {
                (host.function)(host.data as *mut c_void);
                Ok(())
            }),
            Work::Kernel(kernel) => launch(stream, "kernel", kernel.name(), start_ns, || kernel.run()),
            Work::Copy(copy) => piece(stream, "memcpy", copy.name(), start_ns, || copy.run()),
            Work::Fill(fill) => piece(stream, "memset", "memset", start_ns, || fill.run()),
            Work::Free(address) => {
                memory::free(*address);
                start_ns
            }
            Work::Foreign(foreign) => {
                piece(stream, &foreign.kind, &foreign.name, start_ns, || {
                    match (foreign.run)(foreign.data as *mut c_void) {
                        0 => Ok(()),
                        code => Err(Error(code)),
                    }
                })
            }
            Work::Graph(nodes) => nodes.iter().fold(start_ns, |at_ns, node| node.run(stream, at_ns)),
            Work::RecordNode(_) | Work::WaitNode(_) => start_ns,
        }
    }

    /// Lets a piece pass whose context is broken: nothing runs, but nothing leaks or waits either.
    pub fn skip(&self, start_ns: i64) -> i64 {
        match self {
            Work::Record(record) => record.reached(start_ns),
            Work::Free(address) => memory::free(*address),
            Work::Graph(nodes) => {
                for node in nodes.iter() {
                    node.skip(start_ns);
                }
            }
            _ => {}
        }
        start_ns
    }
}

/// Runs a piece, logs it, and breaks the context if it fails.
fn piece(
    stream: &Stream,
    kind: &str,
    name: &str,
    start_ns: i64,
    run: impl FnOnce() -> crate::error::Result,
) -> i64 {
    if let Err(error) = run() {
        stream.context.fail(error);
    }
    let end_ns = clock::host_ns().max(start_ns);
    log::piece(stream, kind, name, start_ns, end_ns);
    end_ns
}

/// As `piece`, for kernels and host functions, at which the faults aim.
fn launch(
    stream: &Stream,
    kind: &str,
    name: &str,
    start_ns: i64,
    run: impl FnOnce() -> crate::error::Result,
) -> i64 {
    faults::on_launch(&stream.context);
    if stream.context.check().is_err() {
        return start_ns;
    }
    piece(stream, kind, name, start_ns, || {
        run()?;
        if let Some(delay) = faults::delay(stream.context.device) {
            std::thread::sleep(delay);
        }
        Ok(())
    })
}
