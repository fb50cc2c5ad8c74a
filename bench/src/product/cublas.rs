//! The product on a GPU, by cuBLAS.
//!
//! The library is loaded at run time and called through a table of our own, since cudarc's bindings panic where it
//! is missing.

use super::{Product, Real, Sizes};
use crate::nccl::failed;
use commtrace_collectives::{DType, Error, Result};
use cudarc::driver::sys::CUstream;
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DevicePtrMut};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Arc, OnceLock};

/// CUDA's toolkits have the first one, PyPI's `nvidia-cublas-*` one of the others.
const NAMES: [&str; 4] = ["libcublas.so", "libcublas.so.13", "libcublas.so.12", "libcublas.so.11"];

/// How errors name it.
const LIBRARY: &str = "cuBLAS";

const SUCCESS: c_int = 0;
/// `CUBLAS_STATUS_NOT_SUPPORTED`.
const NOT_SUPPORTED: c_int = 15;
/// `CUBLAS_OP_N`.
const AS_IT_IS: c_int = 0;
/// `CUBLAS_GEMM_DEFAULT`.
const ANY_ALGORITHM: c_int = -1;

type Create = unsafe extern "C" fn(*mut *mut c_void) -> c_int;
type Destroy = unsafe extern "C" fn(*mut c_void) -> c_int;
type SetStream = unsafe extern "C" fn(*mut c_void, CUstream) -> c_int;
type GemmEx = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    *const c_void,
    *const c_void,
    c_int,
    c_int,
    *const c_void,
    c_int,
    c_int,
    *const c_void,
    *mut c_void,
    c_int,
    c_int,
    c_int,
    c_int,
) -> c_int;

/// cuBLAS' functions that are needed.
struct Library {
    create: Create,
    destroy: Destroy,
    set_stream: SetStream,
    gemm_ex: GemmEx,
    /// Keeps the code that the functions above point to.
    _file: libloading::Library,
}

impl Library {
    /// cuBLAS, loaded at the first call.
    fn get() -> Result<&'static Self> {
        static LOADED: OnceLock<Result<Library, String>> = OnceLock::new();
        let loaded = LOADED.get_or_init(Self::load).as_ref();
        loaded.map_err(|problem| Error::Setup { library: LIBRARY, problem: problem.clone() })
    }

    fn load() -> Result<Self, String> {
        let mut problems = Vec::new();
        for name in NAMES {
            // SAFETY: loading cuBLAS runs its initializers, which is what a program that uses it wants.
            match unsafe { libloading::Library::new(name) } {
                Ok(file) => return Self::functions_of(file).map_err(|error| format!("{name}: {error}")),
                Err(error) => problems.push(error.to_string()),
            }
        }
        Err(format!(
            "it multiplies the matrices, and was not found ({}); install the CUDA toolkit's libcublas, or \
             nvidia-cublas-cu12 of PyPI and put its folder into LD_LIBRARY_PATH",
            problems.first().map_or("", String::as_str)
        ))
    }

    fn functions_of(file: libloading::Library) -> Result<Self, libloading::Error> {
        // SAFETY: the types are those of the functions of these names in cublas_api.h, enumerations being the
        // integers that they are in C.
        unsafe {
            Ok(Self {
                create: *file.get::<Create>(c"cublasCreate_v2")?,
                destroy: *file.get::<Destroy>(c"cublasDestroy_v2")?,
                set_stream: *file.get::<SetStream>(c"cublasSetStream_v2")?,
                gemm_ex: *file.get::<GemmEx>(c"cublasGemmEx")?,
                _file: file,
            })
        }
    }
}

/// A handle, used on one stream.
struct Handle {
    library: &'static Library,
    raw: *mut c_void,
}

impl Handle {
    fn new(stream: &CudaStream) -> Result<Self> {
        let library = Library::get()?;
        stream.context().bind_to_thread().map_err(|error| failed("making a context current", error))?;
        let mut raw = ptr::null_mut();
        // SAFETY: the place for the handle is ours, and the device's context is current.
        check("cublasCreate", unsafe { (library.create)(&mut raw) })?;
        let handle = Self { library, raw };
        // SAFETY: the handle was just made; the stream lives as long as `DeviceProduct`, which owns both.
        check("cublasSetStream", unsafe { (library.set_stream)(raw, stream.cu_stream()) })?;
        Ok(handle)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: `new` made it, and nobody uses it any more.
        unsafe { (self.library.destroy)(self.raw) };
    }
}

fn check(function: &str, code: c_int) -> Result<()> {
    let message = match code {
        SUCCESS => return Ok(()),
        1 => "CUBLAS_STATUS_NOT_INITIALIZED",
        3 => "CUBLAS_STATUS_ALLOC_FAILED",
        7 => "CUBLAS_STATUS_INVALID_VALUE",
        8 => "CUBLAS_STATUS_ARCH_MISMATCH",
        11 => "CUBLAS_STATUS_MAPPING_ERROR",
        13 => "CUBLAS_STATUS_EXECUTION_FAILED",
        14 => "CUBLAS_STATUS_INTERNAL_ERROR",
        15 => "CUBLAS_STATUS_NOT_SUPPORTED",
        _ => "unknown status",
    };
    Err(Error::Native { library: LIBRARY, what: function.to_owned(), code, message: message.to_owned() })
}

/// `cudaDataType_t` and `cublasComputeType_t` of an element type: the sums are in `f32`, of `f64` in `f64`.
fn codes(dtype: DType) -> Option<(c_int, c_int)> {
    match dtype {
        DType::Float32 => Some((0, 68)),
        DType::Float64 => Some((1, 70)),
        DType::Float16 => Some((2, 68)),
        DType::BFloat16 => Some((14, 68)),
        _ => None,
    }
}

/// Matrices in a device's memory, multiplied in the order of a stream.
pub struct DeviceProduct<T: Real> {
    // Dropped first: destroying it waits for the device.
    handle: Handle,
    stream: Arc<CudaStream>,
    sizes: Sizes,
    left: CudaSlice<T>,
    right: CudaSlice<T>,
    result: CudaSlice<T>,
}

impl<T: Real> DeviceProduct<T> {
    /// Matrices of these sizes on the device of `stream`.
    ///
    /// # Errors
    ///
    /// cuBLAS is missing, or what it or the driver says.
    pub fn new(stream: &Arc<CudaStream>, sizes: Sizes) -> Result<Self> {
        let memory = |error| failed("allocating the matrices", error);
        Ok(Self {
            handle: Handle::new(stream)?,
            sizes,
            left: stream.clone_htod(&sizes.left::<T>()).map_err(memory)?,
            right: stream.clone_htod(&sizes.right::<T>()).map_err(memory)?,
            result: stream.alloc_zeros(sizes.entries()).map_err(memory)?,
            stream: Arc::clone(stream),
        })
    }
}

impl<T: Real> Product for DeviceProduct<T> {
    fn run(&mut self) -> Result<()> {
        let Self { handle: Handle { library, raw }, stream, sizes, left, right, result } = self;
        let (Some((element, compute)), Ok(dim)) = (codes(T::DTYPE), c_int::try_from(sizes.dim())) else {
            return check("cublasGemmEx", NOT_SUPPORTED);
        };
        let (single, double) = ((1.0_f32, 0.0_f32), (1.0_f64, 0.0_f64));
        let (alpha, beta): (*const c_void, *const c_void) = match T::DTYPE {
            DType::Float64 => (ptr::from_ref(&double.0).cast(), ptr::from_ref(&double.1).cast()),
            _ => (ptr::from_ref(&single.0).cast(), ptr::from_ref(&single.1).cast()),
        };
        let (left, _left) = left.device_ptr(stream);
        let (right, _right) = right.device_ptr(stream);
        let (result, _result) = result.device_ptr_mut(stream);
        // Read column after column, as cuBLAS does, each matrix is its transpose; and the transpose of a product is that
        // of the transposes the other way round.
        // SAFETY: three matrices of this dimension in the memory of the stream's device; the scalars are of the type
        // that goes with the compute type, and read before the call returns.
        let code = unsafe {
            (library.gemm_ex)(
                *raw,
                AS_IT_IS,
                AS_IT_IS,
                dim,
                dim,
                dim,
                alpha,
                right as *const c_void,
                element,
                dim,
                left as *const c_void,
                element,
                dim,
                beta,
                result as *mut c_void,
                element,
                dim,
                compute,
                ANY_ALGORITHM,
            )
        };
        check("cublasGemmEx", code)
    }

    fn clear(&mut self) -> Result<()> {
        self.stream.memset_zeros(&mut self.result).map_err(|error| failed("clearing a matrix", error))
    }

    fn wrong_entries(&mut self) -> Result<u64> {
        let copied = self.stream.clone_dtoh(&self.result);
        let result = copied.and_then(|result| self.stream.synchronize().map(|()| result));
        let result = result.map_err(|error| failed("reading a matrix", error))?;
        Ok(self.sizes.wrong_entries(&result))
    }
}
