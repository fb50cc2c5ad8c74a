//! Which type and operation of MPI a reduction uses.
//!
//! | element | travels as | `Sum`, `Prod`, `Avg` | `Min`, `Max` |
//! | --- | --- | --- | --- |
//! | `f32`, `f64` | itself | `MPI_SUM`, `MPI_PROD` | operations of ours |
//! | `f16`, `bf16` | `f32` | `MPI_SUM`, `MPI_PROD` | operations of ours |
//! | `i32`, `i64` | itself | `MPI_SUM`, `MPI_PROD` of the unsigned type, which wraps around by definition | `MPI_MIN`, `MPI_MAX` |
//! | `u8` | itself | operations of ours | `MPI_MIN`, `MPI_MAX` |
//!
//! MPI leaves open what `MPI_MIN` and `MPI_MAX` make of NaN, and with some libraries the ranks' results then
//! differ. Ours ignore NaN and order `-0.0` below `0.0`, so that the result does not depend on
//! the order in which MPI combines. Open MPI's sums of bytes saturate where it uses AVX instructions; ours wrap
//! around.

use std::ffi::{c_int, c_void};

use half::{bf16, f16};
use mpi::ffi;

use super::runtime::message;
use crate::{Element, Error, ReduceOp, Result};

/// An element type as MPI reduces it. What travels is the type's accumulator.
pub(super) trait Wire: Element {
    /// Whether elements are converted before and after.
    const CONVERTED: bool = size_of::<Self>() != size_of::<Self::Acc>();

    /// MPI's type of the accumulator, for `reduce`.
    fn datatype(reduce: ReduceOp) -> ffi::MPI_Datatype;

    /// MPI's operation.
    fn op(ops: &UserOps, reduce: ReduceOp) -> ffi::MPI_Op;
}

/// Operations that we give to MPI.
pub(super) struct UserOps {
    min_f32: ffi::MPI_Op,
    max_f32: ffi::MPI_Op,
    min_f64: ffi::MPI_Op,
    max_f64: ffi::MPI_Op,
    sum_u8: ffi::MPI_Op,
    prod_u8: ffi::MPI_Op,
}

// SAFETY: handles of MPI, which any thread may use where threads may call MPI at all.
unsafe impl Send for UserOps {}
// SAFETY: as above.
unsafe impl Sync for UserOps {}

impl UserOps {
    /// MPI must be running.
    pub(super) fn create() -> Result<Self> {
        Ok(Self {
            min_f32: create(combine::<f32, Min>)?,
            max_f32: create(combine::<f32, Max>)?,
            min_f64: create(combine::<f64, Min>)?,
            max_f64: create(combine::<f64, Max>)?,
            sum_u8: create(combine::<u8, Sum>)?,
            prod_u8: create(combine::<u8, Prod>)?,
        })
    }

    /// They are not used any more, and MPI is still running.
    pub(super) fn free(&mut self) {
        let Self { min_f32, max_f32, min_f64, max_f64, sum_u8, prod_u8 } = self;
        for op in [min_f32, max_f32, min_f64, max_f64, sum_u8, prod_u8] {
            // SAFETY: made by `create`, freed once, by the last owner.
            unsafe { ffi::MPI_Op_free(op) };
        }
    }
}

type Function = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_int, *mut ffi::MPI_Datatype);

fn create(function: Function) -> Result<ffi::MPI_Op> {
    let mut op = std::mem::MaybeUninit::uninit();
    // SAFETY: the function has MPI's signature and does not unwind; the result is written on success.
    let code = unsafe { ffi::MPI_Op_create(Some(function), 1, op.as_mut_ptr()) };
    if code != 0 {
        let problem = format!("MPI_Op_create: {}", message(code));
        return Err(Error::Setup { library: "MPI", problem });
    }
    // SAFETY: MPI_Op_create succeeded.
    Ok(unsafe { op.assume_init() })
}

/// Total order of the numbers that a reduction meets.
trait Float: Copy {
    fn is_nan(self) -> bool;
    fn is_below(self, other: Self) -> bool;
}

macro_rules! float {
    ($type:ty) => {
        impl Float for $type {
            fn is_nan(self) -> bool {
                self.is_nan()
            }

            fn is_below(self, other: Self) -> bool {
                self.total_cmp(&other).is_lt()
            }
        }
    };
}

float!(f32);
float!(f64);

/// How two values become one. The order of values and their grouping do not matter.
trait Combine<T> {
    fn combine(first: T, second: T) -> T;
}

enum Min {}
enum Max {}
enum Sum {}
enum Prod {}

impl<T: Float> Combine<T> for Min {
    fn combine(first: T, second: T) -> T {
        if !second.is_nan() && (first.is_nan() || second.is_below(first)) { second } else { first }
    }
}

impl<T: Float> Combine<T> for Max {
    fn combine(first: T, second: T) -> T {
        if !second.is_nan() && (first.is_nan() || first.is_below(second)) { second } else { first }
    }
}

impl Combine<u8> for Sum {
    fn combine(first: u8, second: u8) -> u8 {
        first.wrapping_add(second)
    }
}

impl Combine<u8> for Prod {
    fn combine(first: u8, second: u8) -> u8 {
        first.wrapping_mul(second)
    }
}

/// An `MPI_User_function`.
///
/// # Safety
///
/// As MPI calls it: `from` and `into` point to `*len` elements of type `T` each.
unsafe extern "C" fn combine<T, C: Combine<T>>(
    from: *mut c_void,
    into: *mut c_void,
    len: *mut c_int,
    _datatype: *mut ffi::MPI_Datatype,
) {
    // SAFETY: the caller's promise. By pointer and not by slice, since MPI says nothing about alignment of
    // its own temporary buffers.
    unsafe {
        let (from, into) = (from.cast::<T>(), into.cast::<T>());
        for index in 0..usize::try_from(*len).unwrap_or(0) {
            let (value, kept) = (from.add(index).read_unaligned(), into.add(index).read_unaligned());
            into.add(index).write_unaligned(C::combine(kept, value));
        }
    }
}

macro_rules! wire_float {
    ($type:ty, $datatype:ident, $min:ident, $max:ident) => {
        impl Wire for $type {
            fn datatype(_: ReduceOp) -> ffi::MPI_Datatype {
                // SAFETY: a constant of the library.
                unsafe { ffi::$datatype }
            }

            fn op(ops: &UserOps, reduce: ReduceOp) -> ffi::MPI_Op {
                match reduce {
                    // SAFETY: constants of the library.
                    ReduceOp::Sum | ReduceOp::Avg => unsafe { ffi::RSMPI_SUM },
                    // SAFETY: as above.
                    ReduceOp::Prod => unsafe { ffi::RSMPI_PROD },
                    ReduceOp::Min => ops.$min,
                    ReduceOp::Max => ops.$max,
                }
            }
        }
    };
}

macro_rules! wire_integer {
    ($type:ty, $datatype:ident, $wrapping:ident) => {
        impl Wire for $type {
            fn datatype(reduce: ReduceOp) -> ffi::MPI_Datatype {
                match reduce {
                    // SAFETY: constants of the library.
                    ReduceOp::Min | ReduceOp::Max => unsafe { ffi::$datatype },
                    // SAFETY: as above.
                    ReduceOp::Sum | ReduceOp::Avg | ReduceOp::Prod => unsafe { ffi::$wrapping },
                }
            }

            fn op(_: &UserOps, reduce: ReduceOp) -> ffi::MPI_Op {
                // SAFETY: constants of the library.
                unsafe {
                    match reduce {
                        ReduceOp::Sum | ReduceOp::Avg => ffi::RSMPI_SUM,
                        ReduceOp::Prod => ffi::RSMPI_PROD,
                        ReduceOp::Min => ffi::RSMPI_MIN,
                        ReduceOp::Max => ffi::RSMPI_MAX,
                    }
                }
            }
        }
    };
}

wire_float!(f32, RSMPI_FLOAT, min_f32, max_f32);
wire_float!(f64, RSMPI_DOUBLE, min_f64, max_f64);
wire_float!(f16, RSMPI_FLOAT, min_f32, max_f32);
wire_float!(bf16, RSMPI_FLOAT, min_f32, max_f32);
wire_integer!(i32, RSMPI_INT32_T, RSMPI_UINT32_T);
wire_integer!(i64, RSMPI_INT64_T, RSMPI_UINT64_T);

impl Wire for u8 {
    fn datatype(_: ReduceOp) -> ffi::MPI_Datatype {
        // SAFETY: a constant of the library.
        unsafe { ffi::RSMPI_UINT8_T }
    }

    fn op(ops: &UserOps, reduce: ReduceOp) -> ffi::MPI_Op {
        match reduce {
            ReduceOp::Sum | ReduceOp::Avg => ops.sum_u8,
            ReduceOp::Prod => ops.prod_u8,
            // SAFETY: constants of the library.
            ReduceOp::Min => unsafe { ffi::RSMPI_MIN },
            // SAFETY: as above.
            ReduceOp::Max => unsafe { ffi::RSMPI_MAX },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fold<C: Combine<f32>>(values: &[f32]) -> f32 {
        let mut into = values[0];
        for &value in &values[1..] {
            let (mut from, mut len) = (value, 1);
            // SAFETY: one element each; the datatype is not looked at.
            unsafe {
                combine::<f32, C>(
                    (&raw mut from).cast(),
                    (&raw mut into).cast(),
                    &mut len,
                    std::ptr::null_mut(),
                );
            }
        }
        into
    }

    #[test]
    fn the_order_of_the_ranks_does_not_matter() {
        let values = [0.0_f32, -0.0, f32::NAN, 3.0, -3.0, f32::NEG_INFINITY];
        for first in values {
            for second in values {
                for third in values {
                    let (forward, back) = ([first, second, third], [third, second, first]);
                    assert_eq!(fold::<Min>(&forward).to_bits(), fold::<Min>(&back).to_bits(), "{forward:?}");
                    assert_eq!(fold::<Max>(&forward).to_bits(), fold::<Max>(&back).to_bits(), "{forward:?}");
                }
            }
        }
    }

    #[test]
    fn nan_loses_against_numbers_and_zeros_are_ordered() {
        assert_eq!(fold::<Min>(&[f32::NAN, 2.0, f32::NAN, 1.0]), 1.0);
        assert_eq!(fold::<Max>(&[f32::NAN, 2.0, f32::NAN, 1.0]), 2.0);
        assert!(fold::<Max>(&[f32::NAN; 3]).is_nan());
        assert!(fold::<Min>(&[0.0, -0.0]).is_sign_negative());
        assert!(fold::<Max>(&[-0.0, 0.0]).is_sign_positive());
    }
}
