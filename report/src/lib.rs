//! Timeline model, readers, overlap analysis, advice and renderers.

pub mod record;
pub mod timeline;
