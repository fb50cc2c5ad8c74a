//! A layer that notes the spans of communication.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Dispatch, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// A span.
#[derive(Debug, Clone)]
pub struct Seen {
    pub id: u64,
    pub op: &'static str,
    pub fields: BTreeMap<&'static str, String>,
    /// How often it was entered and left.
    pub entered: usize,
    pub left: usize,
}

impl Seen {
    pub fn get(&self, field: &str) -> Option<&str> {
        self.fields.get(field).map(String::as_str)
    }
}

/// Notes spans in the order in which they are made.
#[derive(Clone, Default)]
pub struct Capture(Arc<Mutex<Vec<Seen>>>);

impl Capture {
    /// A subscriber that notes into this.
    pub fn dispatch(&self) -> Dispatch {
        Dispatch::new(tracing_subscriber::registry().with(self.clone()))
    }

    /// Those of the global rank `rank`.
    pub fn of_rank(&self, rank: usize) -> Vec<Seen> {
        let rank = rank.to_string();
        self.0.lock().unwrap().iter().filter(|seen| seen.get("rank") == Some(&rank)).cloned().collect()
    }

    fn change(&self, id: &Id, change: impl FnOnce(&mut Seen)) {
        let mut seen = self.0.lock().unwrap();
        if let Some(seen) = seen.iter_mut().rev().find(|seen| seen.id == id.into_u64()) {
            change(seen);
        }
    }
}

struct Fields<'a>(&'a mut BTreeMap<&'static str, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl<S: Subscriber + for<'s> LookupSpan<'s>> Layer<S> for Capture {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, _: Context<'_, S>) {
        let metadata = attributes.metadata();
        if metadata.target() == "commtrace" {
            let mut fields = BTreeMap::new();
            attributes.record(&mut Fields(&mut fields));
            let seen = Seen { id: id.into_u64(), op: metadata.name(), fields, entered: 0, left: 0 };
            self.0.lock().unwrap().push(seen);
        }
    }

    fn on_enter(&self, id: &Id, _: Context<'_, S>) {
        self.change(id, |seen| seen.entered += 1);
    }

    fn on_exit(&self, id: &Id, _: Context<'_, S>) {
        self.change(id, |seen| seen.left += 1);
    }
}
