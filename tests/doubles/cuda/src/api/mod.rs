//! The driver's functions, by subject. Each is a few lines over the modules that know the rules.
//!
//! Names and argument orders are those of `cuda.h`. A pointer that C calls an opaque handle is a number
//! here, which has the same representation.
#![allow(non_snake_case)]

mod capture;
mod context;
mod copy;
mod device;
mod event;
mod foreign;
mod graph;
mod init;
mod launch;
mod memory;
mod pool;
mod stream;
