//! A [`Report`](crate::analyze::Report) as text and HTML for people and as JSON for programs;
//! a timeline as a Chrome trace.

mod chrome;
mod headline;
#[cfg(feature = "html")]
mod html;
mod json;
mod text;

pub use chrome::write_chrome;
pub use headline::headline;
#[cfg(feature = "html")]
pub use html::html;
pub use json::json;
pub use text::{TextOptions, text};
