//! A [`Report`](crate::analyze::Report) as text and HTML for people and as JSON for programs;
//! a timeline as a Chrome trace.

mod chrome;
mod clocks;
mod headline;
#[cfg(feature = "html")]
mod html;
mod json;
mod text;

pub use chrome::{ChromeOptions, write_chrome, write_chrome_with};
pub use headline::headline;
#[cfg(feature = "html")]
pub use html::{HtmlPage, escape, html};
pub use json::{diagnosis_json, json};
pub use text::{Column, TextOptions, TextPage, counted, diagnosis, text};

/// Whether a character steers what shows a text instead of standing in it: control characters, and those
/// that turn the direction of writing. Names come from inputs and may hold them.
fn steers(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
