//! A stand-in for cuBLAS (`libcublas.so`), for tests on machines without a GPU: `cublasGemmEx` of square or other
//! matrices as a piece of work in a stream of the stand-in CUDA driver, computed on its thread. **No figure from
//! it is a GPU figure.**
//!
//! Modelled: alpha 1 and beta 0, f16, bf16, f32 and f64 with all three matrices of one type, and no transposition;
//! what else is asked for is refused. Other functions are missing.

mod driver;
mod gemm;

use gemm::{Gemm, Type};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

const SUCCESS: c_int = 0;
const NOT_INITIALIZED: c_int = 1;
const INVALID_VALUE: c_int = 7;
const EXECUTION_FAILED: c_int = 13;
const NOT_SUPPORTED: c_int = 15;

/// What a handle points to.
struct Handle {
    stream: AtomicUsize,
}

/// # Safety
///
/// `handle` is null or was made by [`cublasCreate_v2`] and not destroyed.
unsafe fn stream_of<'a>(handle: *const c_void) -> Option<&'a AtomicUsize> {
    // SAFETY: the caller says so.
    unsafe { handle.cast::<Handle>().as_ref() }.map(|handle| &handle.stream)
}

/// # Safety
///
/// As cuBLAS demands: a place for the handle.
#[unsafe(no_mangle)]
unsafe extern "C" fn cublasCreate_v2(handle: *mut *mut c_void) -> c_int {
    if handle.is_null() {
        return INVALID_VALUE;
    }
    if driver::enqueue_function().is_none() {
        return NOT_INITIALIZED;
    }
    let made = Box::into_raw(Box::new(Handle { stream: AtomicUsize::new(0) }));
    // SAFETY: not null, and the caller's place.
    unsafe { handle.write(made.cast()) };
    SUCCESS
}

/// # Safety
///
/// As cuBLAS demands: a handle that is not used afterwards.
#[unsafe(no_mangle)]
unsafe extern "C" fn cublasDestroy_v2(handle: *mut c_void) -> c_int {
    if handle.is_null() {
        return NOT_INITIALIZED;
    }
    // SAFETY: `cublasCreate_v2` boxed it, and nobody else destroys it.
    drop(unsafe { Box::from_raw(handle.cast::<Handle>()) });
    SUCCESS
}

/// # Safety
///
/// As cuBLAS demands: a handle that lives.
#[unsafe(no_mangle)]
unsafe extern "C" fn cublasSetStream_v2(handle: *mut c_void, stream: usize) -> c_int {
    // SAFETY: the caller's duty.
    let Some(place) = (unsafe { stream_of(handle) }) else { return NOT_INITIALIZED };
    place.store(stream, Ordering::Relaxed);
    SUCCESS
}

/// # Safety
///
/// As cuBLAS demands: matrices of the sizes that are given, alive until the stream is through.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn cublasGemmEx(
    handle: *mut c_void,
    transpose_a: c_int,
    transpose_b: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const c_void,
    a: usize,
    a_type: c_int,
    lda: c_int,
    b: usize,
    b_type: c_int,
    ldb: c_int,
    beta: *const c_void,
    c: usize,
    c_type: c_int,
    ldc: c_int,
    compute_type: c_int,
    _algorithm: c_int,
) -> c_int {
    // SAFETY: the caller's duty.
    let Some(stream) = (unsafe { stream_of(handle) }) else { return NOT_INITIALIZED };
    let Some(element) = Type::of(a_type) else { return NOT_SUPPORTED };
    if [transpose_a, transpose_b] != [0, 0]
        || [b_type, c_type] != [a_type; 2]
        || !element.computes_in(compute_type)
    {
        return NOT_SUPPORTED;
    }
    if alpha.is_null() || beta.is_null() || [a, b, c].contains(&0) {
        return INVALID_VALUE;
    }
    // SAFETY: not null, and of the type that goes with the compute type.
    if unsafe { (element.scalar(alpha), element.scalar(beta)) } != (1.0, 0.0) {
        return NOT_SUPPORTED;
    }
    let sizes = [m, n, k, lda, ldb, ldc].map(usize::try_from);
    let [Ok(m), Ok(n), Ok(k), Ok(lda), Ok(ldb), Ok(ldc)] = sizes else { return INVALID_VALUE };
    if lda < m.max(1) || ldb < k.max(1) || ldc < m.max(1) {
        return INVALID_VALUE;
    }
    let work = Gemm { element, m, n, k, a, lda, b, ldb, c, ldc };
    if driver::enqueue(stream.load(Ordering::Relaxed), work) { SUCCESS } else { EXECUTION_FAILED }
}
