//! The stand-ins, through cudarc as an application uses it.

mod capture;
mod common;
mod driver;
mod faults;
mod folder;
mod memory;
mod nccl;
mod nccl_failures;
mod nccl_log;
mod nccl_processes;
mod order;
mod values;
