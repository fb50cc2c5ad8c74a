//! The GPU streams that the process has timed spans on, and their names in records.

use super::driver::{Handle, LEGACY_STREAM, PER_THREAD_STREAM};
use cudarc::driver::{CudaContext, CudaStream};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock, Weak};

/// What a stream is recognised by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Identity {
    /// The address of a cudarc stream, which is not reused while somebody holds a `Weak` of it.
    Cudarc(usize),
    Raw {
        context: Handle,
        stream: Handle,
    },
    /// The per-thread stream `of` as the recorder's thread numbered `thread` means it.
    OfThread {
        of: u32,
        thread: u32,
    },
}

/// Who keeps a stream alive.
#[derive(Debug, Clone)]
pub(crate) enum Owner {
    Cudarc(Weak<CudaStream>),
    /// The caller of an `unsafe` constructor.
    Caller,
}

/// A stream that spans are timed on.
#[derive(Debug, Clone)]
pub(crate) struct KnownStream {
    /// Unique in the process.
    pub id: u32,
    pub handle: Handle,
    pub context: Handle,
    /// Ordinal of its device.
    pub device: u32,
    pub owner: Owner,
    pub label: Arc<str>,
}

impl KnownStream {
    /// Whether each host thread means another stream by it.
    pub fn is_per_thread(&self) -> bool {
        self.handle == PER_THREAD_STREAM
    }

    /// Whether nobody can enqueue anything on it any more.
    pub fn is_gone(&self) -> bool {
        matches!(&self.owner, Owner::Cudarc(stream) if stream.strong_count() == 0)
    }

    /// The stream, to be held while its handle is used. `None` if it is gone.
    pub fn hold(&self) -> Option<Hold> {
        match &self.owner {
            Owner::Cudarc(stream) => stream.upgrade().map(|stream| Hold { _stream: Some(stream) }),
            Owner::Caller => Some(Hold { _stream: None }),
        }
    }

    /// The context of a cudarc stream.
    pub fn cudarc_context(&self) -> Option<Arc<CudaContext>> {
        match &self.owner {
            Owner::Cudarc(stream) => stream.upgrade().map(|stream| Arc::clone(stream.context())),
            Owner::Caller => None,
        }
    }
}

/// Keeps a stream alive.
#[derive(Debug)]
pub(crate) struct Hold {
    _stream: Option<Arc<CudaStream>>,
}

/// A stream that may be new.
pub(crate) struct Candidate<'a> {
    pub identity: Identity,
    pub handle: Handle,
    pub context: Handle,
    pub device: u32,
    pub owner: Owner,
    /// The name that the application gave it.
    pub name: Option<&'a str>,
}

#[derive(Debug, Default)]
struct Registry {
    streams: HashMap<Identity, Arc<KnownStream>>,
    next_id: u32,
    /// Per device, the number of its next stream and its contexts in order of appearance.
    devices: HashMap<u32, Device>,
    /// How many streams the last pruning left.
    after_prune: usize,
}

#[derive(Debug, Default)]
struct Device {
    streams: u32,
    contexts: Vec<Handle>,
}

/// Streams after which those that are gone are looked for.
const MANY: usize = 64;

/// Contexts of a device that get a number of their own.
const MAX_CONTEXTS: usize = 1024;

static REGISTRY: LazyLock<RwLock<Registry>> = LazyLock::new(RwLock::default);

/// The stream that is `identity`, if it is known.
pub(crate) fn find(identity: Identity) -> Option<Arc<KnownStream>> {
    REGISTRY.read().unwrap_or_else(PoisonError::into_inner).streams.get(&identity).cloned()
}

/// The stream that `candidate` describes, known from now on. If it has a name, that is its label.
pub(crate) fn register(candidate: Candidate<'_>) -> Arc<KnownStream> {
    let mut registry = REGISTRY.write().unwrap_or_else(PoisonError::into_inner);
    registry.register(candidate)
}

impl Registry {
    fn register(&mut self, candidate: Candidate<'_>) -> Arc<KnownStream> {
        let Candidate { identity, handle, context, device, owner, name } = candidate;
        if let Some(known) = self.streams.get(&identity)
            && name.is_none_or(|name| *known.label == *name)
        {
            return Arc::clone(known);
        }
        self.prune_if_many();
        let label = match name {
            Some(name) => name.into(),
            None => self.label(device, context, handle).into(),
        };
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        let stream = Arc::new(KnownStream { id, handle, context, device, owner, label });
        self.streams.insert(identity, Arc::clone(&stream));
        stream
    }

    /// A name that is unique on the device and the same in every run that uses its streams in the same
    /// order.
    fn label(&mut self, device: u32, context: Handle, handle: Handle) -> String {
        let device = self.devices.entry(device).or_default();
        let base = match handle {
            0 | LEGACY_STREAM => "default".to_owned(),
            PER_THREAD_STREAM => "per-thread".to_owned(),
            _ => {
                device.streams += 1;
                return format!("stream {}", device.streams);
            }
        };
        let number = device.contexts.iter().position(|&known| known == context).unwrap_or_else(|| {
            if device.contexts.len() < MAX_CONTEXTS {
                device.contexts.push(context);
            }
            device.contexts.len() - 1
        });
        if number == 0 { base } else { format!("{base} of context {}", number + 1) }
    }

    fn prune_if_many(&mut self) {
        if self.streams.len() >= self.after_prune + MANY {
            self.streams.retain(|_, stream| !stream.is_gone());
            self.after_prune = self.streams.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(registry: &mut Registry, context: Handle, stream: Handle, name: Option<&str>) -> Arc<KnownStream> {
        registry.register(Candidate {
            identity: Identity::Raw { context, stream },
            handle: stream,
            context,
            device: 0,
            owner: Owner::Caller,
            name,
        })
    }

    #[test]
    fn streams_of_a_device_are_numbered_in_order_of_appearance() {
        let mut registry = Registry::default();
        assert_eq!(&*raw(&mut registry, 10, 77, None).label, "stream 1");
        assert_eq!(&*raw(&mut registry, 10, 0, None).label, "default");
        assert_eq!(&*raw(&mut registry, 20, 77, None).label, "stream 2");
        assert_eq!(&*raw(&mut registry, 20, 0, None).label, "default of context 2");
        assert_eq!(&*raw(&mut registry, 20, 2, None).label, "per-thread of context 2");
        let again = raw(&mut registry, 10, 77, None);
        assert_eq!((&*again.label, again.id), ("stream 1", 0));
    }

    #[test]
    fn a_name_given_later_replaces_the_number() {
        let mut registry = Registry::default();
        let first = raw(&mut registry, 10, 77, None);
        let named = raw(&mut registry, 10, 77, Some("nccl"));
        assert_eq!(&*named.label, "nccl");
        assert_ne!(named.id, first.id);
        assert_eq!(raw(&mut registry, 10, 77, None).id, named.id);
        assert_eq!(raw(&mut registry, 10, 77, Some("nccl")).id, named.id);
    }
}
