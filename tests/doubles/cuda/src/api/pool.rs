//! `cuMemPool*`: pools. Each allocates from the device as any other; attributes are kept and without
//! effect.

use crate::abi::Out;
use crate::context;
use crate::error::{Error, Result};
use crate::memory::{self, Kind};
use crate::stream;
use double_common::handles::{Handle, Table};
use double_common::lock;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct Pool {
    attributes: Mutex<BTreeMap<c_int, u64>>,
}

static POOLS: Table<Pool> = Table::new(0x88);
/// Each device's default pool, then its current one.
static OF_DEVICES: Mutex<BTreeMap<c_int, (Handle, Handle)>> = Mutex::new(BTreeMap::new());

fn of_device(device: c_int) -> Result<(Handle, Handle)> {
    context::check_device(device)?;
    let mut pools = lock(&OF_DEVICES);
    if let Some(pools) = pools.get(&device) {
        return Ok(*pools);
    }
    let pool = POOLS.insert(Arc::default()).ok_or(Error::OUT_OF_MEMORY)?;
    pools.insert(device, (pool, pool));
    Ok((pool, pool))
}

fn find(pool: Handle) -> Result<Arc<Pool>> {
    POOLS.get(pool).ok_or(Error::INVALID_VALUE)
}

/// Attributes 1 to 3 are `int`, the others 64 bits wide.
fn is_narrow(attribute: c_int) -> bool {
    (1..=3).contains(&attribute)
}

driver! {
    fn cuDeviceGetDefaultMemPool(pool: Out<Handle>, device: c_int) { pool.set(of_device(device)?.0) }

    fn cuDeviceGetMemPool(pool: Out<Handle>, device: c_int) { pool.set(of_device(device)?.1) }

    fn cuDeviceSetMemPool(device: c_int, pool: Handle) {
        let (default, _) = of_device(device)?;
        find(pool)?;
        lock(&OF_DEVICES).insert(device, (default, pool));
        Ok(())
    }

    fn cuMemPoolCreate(pool: Out<Handle>, properties: *const c_void) {
        if properties.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        pool.set(POOLS.insert(Arc::default()).ok_or(Error::OUT_OF_MEMORY)?)
    }

    fn cuMemPoolDestroy(pool: Handle) {
        find(pool)?;
        if lock(&OF_DEVICES).values().any(|(default, _)| *default == pool) {
            return Err(Error::INVALID_VALUE);
        }
        POOLS.remove(pool);
        Ok(())
    }

    fn cuMemPoolTrimTo(pool: Handle, _keep: usize) { find(pool).map(|_| ()) }

    fn cuMemPoolGetAttribute(pool: Handle, attribute: c_int, value: *mut c_void) {
        let known = lock(&find(pool)?.attributes).get(&attribute).copied().unwrap_or(0);
        if value.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: the caller gives a place of the attribute's width.
        unsafe {
            if is_narrow(attribute) {
                value.cast::<u32>().write(known as u32);
            } else {
                value.cast::<u64>().write(known);
            }
        }
        Ok(())
    }

    fn cuMemPoolSetAttribute(pool: Handle, attribute: c_int, value: *const c_void) {
        let pool = find(pool)?;
        if value.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: as above.
        let new = unsafe {
            if is_narrow(attribute) { value.cast::<u32>().read().into() } else { value.cast::<u64>().read() }
        };
        lock(&pool.attributes).insert(attribute, new);
        Ok(())
    }

    fn cuMemAllocFromPoolAsync(address: Out<u64>, size: usize, pool: Handle, stream: Handle) {
        find(pool)?;
        let stream = stream::find(stream)?;
        address.set(memory::allocate(&stream.context, Kind::Device, size)? as u64)
    }
}
