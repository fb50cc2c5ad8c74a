//! Unique ids: a random name under which ranks find each other.

use crate::error::{Error, Result};

/// `ncclUniqueId`, which is passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId {
    internal: [u8; 128],
}

const PREFIX: &str = "commtrace-nccl-";

impl UniqueId {
    /// A new id.
    pub fn random() -> Result<UniqueId> {
        let mut random = [0_u8; 16];
        // SAFETY: the buffer has the length that is given.
        let filled = unsafe { libc::getrandom(random.as_mut_ptr().cast(), random.len(), 0) };
        if filled != random.len() as isize {
            return Err(Error::system("random bytes", &std::io::Error::last_os_error()));
        }
        let mut id = UniqueId { internal: [0; 128] };
        let name = format!("{PREFIX}{:032x}", u128::from_ne_bytes(random));
        id.internal[..name.len()].copy_from_slice(name.as_bytes());
        Ok(id)
    }

    /// The name in it.
    pub fn name(&self) -> Result<String> {
        let end = self.internal.iter().position(|byte| *byte == 0).unwrap_or(self.internal.len());
        let name = std::str::from_utf8(&self.internal[..end]).ok().filter(|name| name.starts_with(PREFIX));
        name.map(str::to_owned).ok_or_else(|| Error::argument("the unique id is not one of this library"))
    }
}
