//! The driver of an older version: symbols that the environment names are taken out of the library
//! as it is loaded, before anybody can look them up.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

/// An entry of the dynamic symbol table (`Elf64_Sym`).
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

const RTLD_DL_SYMENT: c_int = 1;

unsafe extern "C" {
    /// glibc: as `dladdr`, and the symbol's entry besides.
    fn dladdr1(
        address: *const c_void,
        info: *mut libc::Dl_info,
        extra: *mut *mut c_void,
        flags: c_int,
    ) -> c_int;
}

/// Hides every symbol that `variable` lists, separated by commas. `anchor` is the address of any
/// function of this library.
pub fn hide(variable: &CStr, anchor: *const c_void) {
    // SAFETY: the variable's name ends with NUL; its value is copied before anything can change it.
    let list = unsafe {
        let value = libc::getenv(variable.as_ptr());
        if value.is_null() {
            return;
        }
        CStr::from_ptr(value).to_string_lossy().into_owned()
    };
    for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        if CString::new(name).ok().and_then(|name| hide_one(&name, anchor)).is_none() {
            eprintln!("stand-in: {} names {name}, which cannot be hidden", variable.to_string_lossy());
        }
    }
}

fn hide_one(name: &CStr, anchor: *const c_void) -> Option<()> {
    // SAFETY: `info` and `extra` are places of the types that glibc fills; the library's own path is
    // that of a loaded object, so opening it again only counts a reference, which stays.
    let entry = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(anchor, &mut info) == 0 {
            return None;
        }
        let library = libc::dlopen(info.dli_fname as *const c_char, libc::RTLD_NOLOAD | libc::RTLD_LAZY);
        if library.is_null() {
            return None;
        }
        let address = libc::dlsym(library, name.as_ptr());
        let mut extra: *mut c_void = std::ptr::null_mut();
        if address.is_null() || dladdr1(address, &mut info, &mut extra, RTLD_DL_SYMENT) == 0 {
            return None;
        }
        extra.cast::<Symbol>()
    };
    if entry.is_null() {
        return None;
    }
    // SAFETY: `entry` lies in this library's symbol table, which is mapped privately and read-only; the
    // pages are made writable for the change, and no other thread looks symbols up here before the
    // library's initializers, of which this is one, have run.
    unsafe {
        let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        let first = entry as usize & !(page - 1);
        let last = (entry as usize + size_of::<Symbol>() - 1) & !(page - 1);
        let length = last - first + page;
        let pages = first as *mut c_void;
        if libc::mprotect(pages, length, libc::PROT_READ | libc::PROT_WRITE) != 0 {
            return None;
        }
        // An undefined symbol without a value is what the dynamic linker passes over.
        (*entry).section = 0;
        (*entry).value = 0;
        libc::mprotect(pages, length, libc::PROT_READ);
    }
    Some(())
}
