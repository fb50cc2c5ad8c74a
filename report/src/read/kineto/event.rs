//! One trace event, before anything is known about what it means.

use super::json::{Escapes, Members, Stop, Value};

/// The members of an event that any reader of events needs. Of members that occur twice, the last counts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Event<'a> {
    /// The phase: `X` complete, `B` and `E` begin and end, and so on.
    pub phase: u8,
    pub category: Option<Value<'a>>,
    pub name: Option<Value<'a>>,
    pub process: Option<Value<'a>>,
    pub thread: Option<Value<'a>>,
    pub start: Option<Value<'a>>,
    pub duration: Option<Value<'a>>,
    pub id: Option<Value<'a>>,
    pub args: Option<Value<'a>>,
}

impl<'a> Event<'a> {
    /// The event that `bytes` begin with, and its length.
    pub fn parse(bytes: &'a [u8], escapes: Escapes) -> Result<(Self, usize), Stop> {
        let mut event = Self::default();
        let mut members = Members::new(bytes, escapes);
        while let Some((key, value)) = members.next()? {
            match key {
                b"ph" => event.phase = value.raw().first().copied().unwrap_or(0),
                b"cat" => event.category = Some(value),
                b"name" => event.name = Some(value),
                b"pid" => event.process = Some(value),
                b"tid" => event.thread = Some(value),
                b"ts" => event.start = Some(value),
                b"dur" => event.duration = Some(value),
                b"id" => event.id = Some(value),
                b"args" => event.args = Some(value),
                _ => {}
            }
        }
        Ok((event, members.consumed()))
    }

    /// The members of `args`; none if there are no args.
    pub fn args(&self) -> Args<'a> {
        Args::new(match self.args {
            Some(Value::Nested(object)) => object,
            _ => b"{}",
        })
    }
}

/// The members of an event's `args`, up to the first that is malformed.
#[derive(Debug, Clone)]
pub(super) struct Args<'a> {
    strict: Members<'a>,
}

impl<'a> Args<'a> {
    pub fn new(object: &'a [u8]) -> Self {
        // Whether a lone backslash ends a string was decided when the whole event was taken; within
        // args, only file names could hold one, and none of those is wanted.
        Self { strict: Members::new(object, Escapes::Lenient) }
    }
}

impl<'a> Iterator for Args<'a> {
    type Item = (&'a [u8], Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        self.strict.next().ok().flatten()
    }
}
