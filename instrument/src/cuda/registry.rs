//! The GPU streams that the process has timed spans on, and their names in records.

use super::driver::{Handle, LEGACY_STREAM, PER_THREAD_STREAM};
use cudarc::driver::{CudaContext, CudaStream};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock, Weak};

/// What a stream is recognised by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Identity {
    /// The address of a cudarc stream, which is not reused while somebody holds a `Weak` of it.
    Cudarc(usize),
    /// A stream that every context has: cudarc makes another object of it each time it is asked for. The address is
    /// that of cudarc's context.
    OfContext {
        context: usize,
        stream: Handle,
    },
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
    /// It lives as long as its context.
    Context(Weak<CudaContext>),
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
    /// It is what one thread means by a per-thread stream.
    pub is_of_thread: bool,
}

impl KnownStream {
    /// Whether each host thread means another stream by it.
    pub fn is_per_thread(&self) -> bool {
        self.handle == PER_THREAD_STREAM
    }

    /// Whether nobody can enqueue anything on it any more.
    pub fn is_gone(&self) -> bool {
        match &self.owner {
            Owner::Cudarc(stream) => stream.strong_count() == 0,
            Owner::Context(context) => context.strong_count() == 0,
            Owner::Caller => false,
        }
    }

    /// The stream, to be held while its handle is used. `None` if it is gone.
    pub fn hold(&self) -> Option<Hold> {
        Some(match &self.owner {
            Owner::Cudarc(stream) => Hold::Stream { _stream: stream.upgrade()? },
            Owner::Context(context) => Hold::Context { _context: context.upgrade()? },
            Owner::Caller => Hold::Nothing,
        })
    }

    /// The context of a cudarc stream.
    pub fn cudarc_context(&self) -> Option<Arc<CudaContext>> {
        match &self.owner {
            Owner::Cudarc(stream) => stream.upgrade().map(|stream| Arc::clone(stream.context())),
            Owner::Context(context) => context.upgrade(),
            Owner::Caller => None,
        }
    }
}

/// Keeps a stream alive.
#[derive(Debug)]
pub(crate) enum Hold {
    Stream {
        _stream: Arc<CudaStream>,
    },
    Context {
        _context: Arc<CudaContext>,
    },
    /// The caller of an `unsafe` constructor does.
    Nothing,
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

/// How often a stream was given another name.
static RENAMED: AtomicU64 = AtomicU64::new(0);

/// Streams that a thread finds without asking the registry.
const CACHED: usize = 8;

/// A stream of the registry, as of a value of [`RENAMED`].
type Found = (u64, Identity, Arc<KnownStream>);

thread_local! {
    /// What the thread found last, the newest anywhere. It also keeps the `Weak` of a cudarc stream, so that its
    /// address is not that of another one.
    static FOUND: RefCell<([Option<Found>; CACHED], usize)> = const { RefCell::new(([const { None }; CACHED], 0)) };
}

/// As [`find`], for a stream that is asked for again and again: without a lock.
pub(crate) fn find_again(identity: Identity) -> Option<Arc<KnownStream>> {
    let renamed = RENAMED.load(Ordering::Acquire);
    let cached = FOUND.try_with(|found| {
        let found = found.try_borrow().ok()?;
        let mut entries = found.0.iter().flatten();
        entries
            .find(|(as_of, known, _)| *as_of == renamed && *known == identity)
            .map(|(.., stream)| Arc::clone(stream))
    });
    if let Ok(Some(stream)) = cached {
        return Some(stream);
    }
    let stream = find(identity)?;
    // A thread that is being torn down caches nothing.
    let _ = FOUND.try_with(|found| {
        let Ok(mut found) = found.try_borrow_mut() else { return };
        let (entries, next) = &mut *found;
        if let Some(entry) = entries.get_mut(*next % CACHED) {
            *entry = Some((renamed, identity, Arc::clone(&stream)));
        }
        *next = next.wrapping_add(1);
    });
    Some(stream)
}

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
        let is_of_thread = matches!(identity, Identity::OfThread { .. });
        let stream = Arc::new(KnownStream { id, handle, context, device, owner, label, is_of_thread });
        if self.streams.insert(identity, Arc::clone(&stream)).is_some() {
            // After the change: who reads the new number finds the new name.
            RENAMED.fetch_add(1, Ordering::Release);
        }
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
            self.streams.retain(|_, stream| {
                let unused = stream.is_of_thread && Arc::strong_count(stream) == 1;
                !(unused || stream.is_gone())
            });
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

    #[test]
    fn streams_of_threads_that_are_gone_are_forgotten() {
        let mut registry = Registry::default();
        let base = raw(&mut registry, 10, PER_THREAD_STREAM, None);
        let of_thread = |registry: &mut Registry, thread: u32| {
            registry.register(Candidate {
                identity: Identity::OfThread { of: base.id, thread },
                handle: base.handle,
                context: base.context,
                device: base.device,
                owner: base.owner.clone(),
                name: Some(&format!("per-thread {thread}")),
            })
        };
        let alive = of_thread(&mut registry, 0);
        for thread in 1..1_000 {
            of_thread(&mut registry, thread);
        }
        assert!(registry.streams.len() < 3 * MANY, "{}", registry.streams.len());
        assert_eq!(of_thread(&mut registry, 0).id, alive.id);
        assert_eq!(raw(&mut registry, 10, PER_THREAD_STREAM, None).id, base.id);
    }
}
