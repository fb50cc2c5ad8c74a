//! Spans on GPU streams, through cudarc, on the stand-in driver. Its times are those of host threads:
//! no figure here is a GPU figure.

mod ends;
mod faults;
mod graphs;
mod streams;
mod support;
mod times;
mod volume;
