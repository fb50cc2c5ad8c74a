//! Modules and kernels. There is no compiler here: a module names kernels that are built in.
//!
//! An image is text that ends with NUL and holds a line `.entry NAME` for each kernel, as PTX does:
//!
//! | kernel | parameters | what it does |
//! | --- | --- | --- |
//! | `sleep_ns` | `u64 ns` | takes that long |
//! | `fill_f32` | `ptr y, f32 a, u64 n` | `y[i] = a` |
//! | `axpy_f32` | `ptr y, ptr x, f32 a, u64 n` | `y[i] += a * x[i]` |
//! | `scale_f32` | `ptr y, f32 a, u64 n` | `y[i] *= a` |
//!
//! Grid and block are accepted and have no meaning.

use crate::error::{Error, Result};
use crate::memory;
use double_common::handles::{Handle, Table};
use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

/// The type of a kernel's parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parameter {
    U64,
    F32,
}

/// A kernel that is built in.
pub struct Kernel {
    name: &'static str,
    parameters: &'static [Parameter],
    run: fn(&Arguments) -> Result,
}

/// A launch's parameters as they were at the call, each in the low bits.
struct Arguments(Vec<u64>);

/// A kernel with its parameters.
pub struct Launch {
    kernel: &'static Kernel,
    arguments: Arguments,
}

/// A loaded module: the kernels that its image names, with their handles.
pub struct Module {
    functions: Vec<(&'static str, Handle)>,
}

use Parameter::{F32, U64};

static KERNELS: [Kernel; 4] = [
    Kernel { name: "sleep_ns", parameters: &[U64], run: sleep_ns },
    Kernel { name: "fill_f32", parameters: &[U64, F32, U64], run: fill_f32 },
    Kernel { name: "axpy_f32", parameters: &[U64, U64, F32, U64], run: axpy_f32 },
    Kernel { name: "scale_f32", parameters: &[U64, F32, U64], run: scale_f32 },
];

static MODULES: Table<Module> = Table::new(0x66);
static FUNCTIONS: Table<&'static Kernel> = Table::new(0x77);

/// Loads an image.
pub fn load(image: &str) -> Result<Handle> {
    let entries = image.split(".entry").skip(1);
    let names = entries.filter_map(|rest| {
        rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').find(|name| !name.is_empty())
    });
    let kernels = names.filter_map(|name| KERNELS.iter().find(|kernel| kernel.name == name));
    let functions: Vec<_> = kernels
        .map(|kernel| Some((kernel.name, FUNCTIONS.insert(Arc::new(kernel))?)))
        .collect::<Option<_>>()
        .ok_or(Error::OUT_OF_MEMORY)?;
    if functions.is_empty() {
        return Err(Error::INVALID_IMAGE);
    }
    MODULES.insert(Arc::new(Module { functions })).ok_or(Error::OUT_OF_MEMORY)
}

/// Unloads a module; handles of its functions are stale from then on.
pub fn unload(module: Handle) -> Result {
    let module = MODULES.remove(module).ok_or(Error::INVALID_HANDLE)?;
    for (_, function) in &module.functions {
        FUNCTIONS.remove(*function);
    }
    Ok(())
}

/// The function of a module by its name.
pub fn function(module: Handle, name: &str) -> Result<Handle> {
    let module = MODULES.get(module).ok_or(Error::INVALID_HANDLE)?;
    let function = module.functions.iter().find(|(known, _)| *known == name);
    function.map(|(_, handle)| *handle).ok_or(Error::NOT_FOUND)
}

pub fn check_function(function: Handle) -> Result {
    FUNCTIONS.get(function).map(|_| ()).ok_or(Error::INVALID_HANDLE)
}

impl Launch {
    /// Reads a launch's parameters from where `cuLaunchKernel` gets them: a pointer to each.
    pub fn new(function: Handle, parameters: *const *const c_void) -> Result<Launch> {
        let kernel: &'static Kernel = *FUNCTIONS.get(function).ok_or(Error::INVALID_HANDLE)?;
        if parameters.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        let read = |(at, parameter): (usize, &Parameter)| {
            // SAFETY: a launch must come with a pointer to a value of the declared type for each
            // parameter of the kernel, as with the driver.
            unsafe {
                let value = *parameters.add(at);
                match parameter {
                    _ if value.is_null() => Err(Error::INVALID_VALUE),
                    U64 => Ok(value.cast::<u64>().read_unaligned()),
                    F32 => Ok(u64::from(value.cast::<u32>().read_unaligned())),
                }
            }
        };
        let arguments = kernel.parameters.iter().enumerate().map(read).collect::<Result<_>>()?;
        Ok(Launch { kernel, arguments: Arguments(arguments) })
    }

    pub fn name(&self) -> &'static str {
        self.kernel.name
    }

    pub fn run(&self) -> Result {
        (self.kernel.run)(&self.arguments)
    }
}

impl Arguments {
    fn u64(&self, at: usize) -> Result<u64> {
        self.0.get(at).copied().ok_or(Error::INVALID_VALUE)
    }

    fn f32(&self, at: usize) -> Result<f32> {
        Ok(f32::from_bits(self.u64(at)? as u32))
    }

    /// Where `count` floats lie, if all of them are the device's.
    fn floats(&self, at: usize, count: u64) -> Result<*mut f32> {
        let address = self.u64(at)? as usize;
        let length = count.checked_mul(4).ok_or(Error::ILLEGAL_ADDRESS)?;
        memory::check_device(address, length as usize).map_err(|_| Error::ILLEGAL_ADDRESS)?;
        if !address.is_multiple_of(4) {
            return Err(Error::ILLEGAL_ADDRESS);
        }
        Ok(address as *mut f32)
    }
}

fn sleep_ns(arguments: &Arguments) -> Result {
    std::thread::sleep(Duration::from_nanos(arguments.u64(0)?));
    Ok(())
}

fn fill_f32(arguments: &Arguments) -> Result {
    let value = arguments.f32(1)?;
    each(arguments, 2, |_| value)
}

fn scale_f32(arguments: &Arguments) -> Result {
    let factor = arguments.f32(1)?;
    each(arguments, 2, |y| y * factor)
}

/// Replaces each of the floats of parameter 0, whose number is parameter `count`.
fn each(arguments: &Arguments, count: usize, value: impl Fn(f32) -> f32) -> Result {
    let count = arguments.u64(count)?;
    let y = arguments.floats(0, count)?;
    for at in 0..count as usize {
        // SAFETY: `floats` checked that all `count` floats lie in an allocation, which is initialized.
        unsafe { y.add(at).write(value(y.add(at).read())) };
    }
    Ok(())
}

fn axpy_f32(arguments: &Arguments) -> Result {
    let (factor, count) = (arguments.f32(2)?, arguments.u64(3)?);
    let (y, x) = (arguments.floats(0, count)?, arguments.floats(1, count)?);
    for at in 0..count as usize {
        // SAFETY: as in `each`, for both; they may be the same.
        unsafe { y.add(at).write(y.add(at).read() + factor * x.add(at).read()) };
    }
    Ok(())
}
