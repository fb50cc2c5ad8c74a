//! `NcclComm` on the stand-in driver and NCCL, through cudarc as an application uses it. Each test is a
//! process of its own.

#[path = "../common/mod.rs"]
mod common;

mod drop_in;
mod failures;
mod finish;
mod groups;
mod job;
mod results;
mod routing;
mod seen;
mod spans;
