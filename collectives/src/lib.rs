//! Communicators that trace themselves.
