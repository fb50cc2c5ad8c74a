//! A layer that keeps the spans that it sees.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use commtrace_collectives::{LocalBuilder, LocalComm};
use commtrace_instrument::current_rank;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Dispatch, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// One span, as a layer sees it.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    pub id: u64,
    pub name: &'static str,
    pub fields: BTreeMap<&'static str, String>,
    /// The rank of the thread that made it.
    pub scope: u32,
    pub parent: Option<&'static str>,
    pub entered_on: Vec<String>,
    pub exits: usize,
    pub closed: bool,
}

impl Seen {
    pub fn get(&self, field: &str) -> Option<&str> {
        self.fields.get(field).map(String::as_str)
    }
}

/// Collects spans of target `commtrace`, in order of creation.
#[derive(Clone, Default)]
pub struct Capture(Arc<(Mutex<Vec<Seen>>, Condvar)>);

struct Fields<'a>(&'a mut BTreeMap<&'static str, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl Capture {
    fn change(&self, id: &Id, change: impl FnOnce(&mut Seen)) {
        if let Some(seen) = self.0.0.lock().unwrap().iter_mut().rev().find(|seen| seen.id == id.into_u64()) {
            change(seen);
        }
        self.0.1.notify_all();
    }

    /// Waits until a span is as asked for.
    pub fn wait_for(&self, condition: impl Fn(&Seen) -> bool) {
        let mut seen = self.0.0.lock().unwrap();
        while !seen.iter().any(&condition) {
            seen = self.0.1.wait(seen).unwrap();
        }
    }

    /// Runs ranks whose spans are captured.
    pub fn run<R: Send>(&self, world: LocalBuilder, rank: impl Fn(LocalComm) -> R + Sync) -> Vec<R> {
        let dispatch = Dispatch::new(tracing_subscriber::registry().with(self.clone()));
        world.run(|comm| tracing::dispatcher::with_default(&dispatch, || rank(comm)))
    }

    pub fn all(&self) -> Vec<Seen> {
        self.0.0.lock().unwrap().clone()
    }

    pub fn of_rank(&self, rank: u32) -> Vec<Seen> {
        let rank = rank.to_string();
        self.all().into_iter().filter(|seen| seen.get("rank") == Some(&rank)).collect()
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Capture {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        assert_eq!(attributes.metadata().target(), "commtrace");
        let parent = context.span(id).and_then(|span| span.parent()).map(|parent| parent.name());
        let mut seen = Seen {
            id: id.into_u64(),
            name: attributes.metadata().name(),
            scope: current_rank(),
            parent,
            ..Seen::default()
        };
        attributes.record(&mut Fields(&mut seen.fields));
        self.0.0.lock().unwrap().push(seen);
        self.0.1.notify_all();
    }

    fn on_enter(&self, id: &Id, _: Context<'_, S>) {
        let thread = thread::current().name().unwrap_or_default().to_owned();
        self.change(id, |seen| seen.entered_on.push(thread));
    }

    fn on_exit(&self, id: &Id, _: Context<'_, S>) {
        self.change(id, |seen| seen.exits += 1);
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        self.change(&id, |seen| seen.closed = true);
    }
}
