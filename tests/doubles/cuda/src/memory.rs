//! Memory: the device's is the host's, and every address is checked against what was allocated.

use crate::context::Context;
use crate::error::{Error, Result};
use crate::settings;
use std::alloc::Layout;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Which kind of memory an allocation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Device,
    Managed,
    /// Page-locked host memory.
    Pinned,
}

struct Allocation {
    size: usize,
    layout: Layout,
    kind: Kind,
    context: u64,
    device: i32,
}

/// All that is allocated.
struct Memory {
    /// By address.
    allocations: BTreeMap<usize, Allocation>,
    /// Bytes that count against each device's memory.
    used: BTreeMap<i32, u64>,
}

static MEMORY: RwLock<Memory> = RwLock::new(Memory { allocations: BTreeMap::new(), used: BTreeMap::new() });

/// What fresh memory holds, so that reading it before writing shows.
const FRESH: u8 = 0xa5;
const ALIGNMENT: usize = 256;

fn read() -> RwLockReadGuard<'static, Memory> {
    MEMORY.read().unwrap_or_else(PoisonError::into_inner)
}

fn write() -> RwLockWriteGuard<'static, Memory> {
    MEMORY.write().unwrap_or_else(PoisonError::into_inner)
}

impl Memory {
    fn free_on(&self, device: i32) -> u64 {
        let used = self.used.get(&device).copied().unwrap_or(0);
        settings::get().memory_bytes.saturating_sub(used)
    }

    /// The allocation that holds an address, with its base.
    fn holder(&self, address: usize) -> Option<(usize, &Allocation)> {
        let (base, allocation) = self.allocations.range(..=address).next_back()?;
        (address - base < allocation.size.max(1)).then_some((*base, allocation))
    }
}

impl Allocation {
    /// What it takes of its device's memory; page-locked memory is the host's.
    fn device_bytes(&self) -> u64 {
        if self.kind == Kind::Pinned { 0 } else { self.size as u64 }
    }
}

/// Allocates; zero bytes give an address of their own too.
pub fn allocate(context: &Context, kind: Kind, size: usize) -> Result<usize> {
    let layout = Layout::from_size_align(size.max(1), ALIGNMENT).map_err(|_| Error::OUT_OF_MEMORY)?;
    let device = context.device;
    let allocation = Allocation { size, layout, kind, context: context.id, device };
    let mut memory = write();
    if allocation.device_bytes() > memory.free_on(device) {
        return Err(Error::OUT_OF_MEMORY);
    }
    // SAFETY: the layout's size is not zero, and the whole of it is filled before anybody has it.
    let address = unsafe {
        let address = std::alloc::alloc(layout);
        if address.is_null() {
            return Err(Error::OUT_OF_MEMORY);
        }
        address.write_bytes(FRESH, layout.size());
        address as usize
    };
    *memory.used.entry(device).or_default() += allocation.device_bytes();
    memory.allocations.insert(address, allocation);
    Ok(address)
}

/// Free and total bytes of a device.
pub fn info(device: i32) -> (u64, u64) {
    (read().free_on(device), settings::get().memory_bytes)
}

/// Checks that an address begins an allocation of one of these kinds.
pub fn check_base(address: usize, kinds: &[Kind]) -> Result {
    let memory = read();
    let known = memory.allocations.get(&address).is_some_and(|it| kinds.contains(&it.kind));
    if known { Ok(()) } else { Err(Error::INVALID_VALUE) }
}

/// Frees an allocation; an address that is none is left alone.
pub fn free(address: usize) {
    let mut memory = write();
    let Some(allocation) = memory.allocations.remove(&address) else { return };
    if let Some(used) = memory.used.get_mut(&allocation.device) {
        *used = used.saturating_sub(allocation.device_bytes());
    }
    drop(memory);
    // SAFETY: it was allocated with this layout and has just left the table, so nobody frees it again.
    unsafe { std::alloc::dealloc(address as *mut u8, allocation.layout) };
}

/// Frees all that a context allocated.
pub fn free_all(context: u64) {
    let of_context = |(address, it): (&usize, &Allocation)| (it.context == context).then_some(*address);
    let addresses: Vec<_> = read().allocations.iter().filter_map(of_context).collect();
    addresses.into_iter().for_each(free);
}

fn kind_of(address: usize, length: usize) -> Option<Kind> {
    let memory = read();
    let (base, allocation) = memory.holder(address)?;
    let end = (address - base).checked_add(length)?;
    (end <= allocation.size).then_some(allocation.kind)
}

/// Checks that the device can reach all of `length` bytes from `address`.
pub fn check_device(address: usize, length: usize) -> Result {
    if length == 0 || kind_of(address, length).is_some() { Ok(()) } else { Err(Error::INVALID_VALUE) }
}

/// Whether these bytes are page-locked, so that copies of them are asynchronous.
pub fn is_pinned(address: usize, length: usize) -> bool {
    kind_of(address, length).is_some()
}

/// Kind and device of the allocation that holds an address, and its base and size.
pub fn describe(address: usize) -> Option<(Kind, i32, usize, usize)> {
    let memory = read();
    let (base, it) = memory.holder(address)?;
    Some((it.kind, it.device, base, it.size))
}

/// Where a copy takes its bytes from.
#[derive(Clone)]
pub enum Source {
    Address(usize),
    /// Pageable memory is read when the copy is submitted, not when it runs.
    Staged(Arc<[u8]>),
}

/// Which way a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
}

/// A copy of `length` bytes.
#[derive(Clone)]
pub struct Copy {
    pub direction: Direction,
    pub source: Source,
    pub target: usize,
    pub length: usize,
}

impl Copy {
    /// Checks the device's side of a copy as it is submitted.
    pub fn new(direction: Direction, source: usize, target: usize, length: usize) -> Result<Copy> {
        if length > 0 && (source == 0 || target == 0) {
            return Err(Error::INVALID_VALUE);
        }
        if direction != Direction::HostToDevice {
            check_device(source, length)?;
        }
        if direction != Direction::DeviceToHost {
            check_device(target, length)?;
        }
        Ok(Copy { direction, source: Source::Address(source), target, length })
    }

    /// The copy with its pageable source read now.
    pub fn staged(mut self) -> Copy {
        if let Source::Address(source) = self.source
            && self.length > 0
        {
            // SAFETY: the caller of a copy vouches for its host buffer until the call returns, and this
            // runs within the call.
            let bytes = unsafe { std::slice::from_raw_parts(source as *const u8, self.length) };
            self.source = Source::Staged(bytes.into());
        }
        self
    }

    pub fn name(&self) -> &'static str {
        match self.direction {
            Direction::HostToDevice => "host_to_device",
            Direction::DeviceToHost => "device_to_host",
            Direction::DeviceToDevice => "device_to_device",
        }
    }

    pub fn run(&self) -> Result {
        if self.length == 0 {
            return Ok(());
        }
        let source = match &self.source {
            Source::Address(address) => *address,
            Source::Staged(bytes) => bytes.as_ptr() as usize,
        };
        // What was freed since is an access to an illegal address, as on a device.
        let illegal = |_| Error::ILLEGAL_ADDRESS;
        if self.direction != Direction::HostToDevice {
            check_device(source, self.length).map_err(illegal)?;
        }
        if self.direction != Direction::DeviceToHost {
            check_device(self.target, self.length).map_err(illegal)?;
        }
        // SAFETY: the device's side lies in an allocation; the host's side is the caller's, who must
        // keep it until the copy is done, as with the driver. The ranges may overlap.
        unsafe { std::ptr::copy(source as *const u8, self.target as *mut u8, self.length) };
        Ok(())
    }
}

/// A pattern of 1, 2 or 4 bytes, repeated.
#[derive(Clone)]
pub struct Fill {
    pub target: usize,
    pub pattern: [u8; 4],
    pub width: usize,
    pub count: usize,
}

impl Fill {
    pub fn new(target: usize, pattern: [u8; 4], width: usize, count: usize) -> Result<Fill> {
        let length = width.checked_mul(count).ok_or(Error::INVALID_VALUE)?;
        check_device(target, length)?;
        Ok(Fill { target, pattern, width, count })
    }

    pub fn run(&self) -> Result {
        let length = self.width * self.count;
        check_device(self.target, length).map_err(|_| Error::ILLEGAL_ADDRESS)?;
        if length == 0 {
            return Ok(());
        }
        // SAFETY: the range lies in an allocation, which is initialized; the application must not touch
        // it while the stream does, as with the driver.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.target as *mut u8, length) };
        for piece in bytes.chunks_exact_mut(self.width) {
            piece.copy_from_slice(&self.pattern[..self.width]);
        }
        Ok(())
    }
}
