//! A [`Report`](crate::analyze::Report) as text for people and as JSON for programs.

mod json;
mod text;

pub use json::json;
pub use text::{TextOptions, text};
