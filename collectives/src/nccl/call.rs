//! What a call is: its operation, size and element type, and whether its buffers are long enough.

use std::ffi::c_int;

use cudarc::nccl::{self, NcclType};

use crate::trace::Parts;
use crate::{Op, ReduceOp};

/// One rank's part in a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) op: Op,
    /// Size as nccl-tests counts it.
    pub(super) bytes: u64,
    /// PyTorch's name of the element type; none for one that NCCL added later.
    pub(super) dtype: Option<&'static str>,
    /// The other side or the root.
    pub(super) peer: Option<i32>,
    /// Elements for and from each rank, of calls that exchange them.
    pub(super) parts: Option<Parts<'a>>,
    pub(super) element_bytes: usize,
}

impl<'a> Call<'a> {
    /// `elements` of `T` as nccl-tests counts them: the buffer of one rank, the long one where there is a short
    /// one.
    pub(super) fn new<T: NcclType>(op: Op, elements: usize) -> Self {
        let bytes = (elements as u64).saturating_mul(size_of::<T>() as u64);
        Self {
            op,
            bytes,
            dtype: dtype(T::as_nccl_type() as c_int),
            peer: None,
            parts: None,
            element_bytes: size_of::<T>(),
        }
    }

    pub(super) fn with_parts(mut self, parts: Parts<'a>) -> Self {
        self.parts = Some(parts);
        self
    }

    pub(super) fn with_peer(mut self, peer: i32) -> Self {
        self.peer = Some(peer);
        self
    }
}

/// PyTorch's name of NCCL's element type `code` (`ncclDataType_t` in nccl.h).
fn dtype(code: c_int) -> Option<&'static str> {
    Some(match code {
        0 => "int8",
        1 => "uint8",
        2 => "int32",
        3 => "uint32",
        4 => "int64",
        5 => "uint64",
        6 => "float16",
        7 => "float32",
        8 => "float64",
        9 => "bfloat16",
        10 => "float8_e4m3fn",
        11 => "float8_e5m2",
        _ => return None,
    })
}

/// A reduction that NCCL can carry out: [`ReduceOp`](crate::ReduceOp) or cudarc's type of the same name.
pub trait NcclReduction {
    /// The reduction's number, `ncclRedOp_t` in nccl.h.
    fn as_nccl_op(&self) -> c_int;
}

impl NcclReduction for ReduceOp {
    fn as_nccl_op(&self) -> c_int {
        match self {
            Self::Sum => 0,
            Self::Prod => 1,
            Self::Max => 2,
            Self::Min => 3,
            Self::Avg => 4,
        }
    }
}

impl NcclReduction for nccl::ReduceOp {
    fn as_nccl_op(&self) -> c_int {
        match self {
            Self::Sum => ReduceOp::Sum,
            Self::Prod => ReduceOp::Prod,
            Self::Max => ReduceOp::Max,
            Self::Min => ReduceOp::Min,
            Self::Avg => ReduceOp::Avg,
        }
        .as_nccl_op()
    }
}

/// What is wrong with the lengths of a call's buffers: NCCL does not know how long they are and would
/// go beyond their ends.
pub(super) fn too_short(name: &str, elements: usize, needed: Option<usize>) -> Option<String> {
    match needed {
        Some(needed) if needed <= elements => None,
        Some(needed) => Some(format!("{name} has {elements} elements, the call needs {needed}")),
        None => Some(format!("the call needs more elements of {name} than can be addressed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::nccl::sys::ncclRedOp_t;
    use half::{bf16, f16};
    use std::collections::BTreeSet;

    fn code<T: NcclType>() -> (Option<&'static str>, u64) {
        let call = Call::new::<T>(Op::AllReduce, 3);
        (call.dtype, call.bytes)
    }

    #[test]
    fn types_have_their_names_and_sizes() {
        assert_eq!(code::<f32>(), (Some("float32"), 12));
        assert_eq!(code::<f64>(), (Some("float64"), 24));
        assert_eq!(code::<f16>(), (Some("float16"), 6));
        assert_eq!(code::<bf16>(), (Some("bfloat16"), 6));
        assert_eq!(code::<i8>(), (Some("int8"), 3));
        assert_eq!(code::<u8>(), (Some("uint8"), 3));
        assert_eq!(code::<i32>(), (Some("int32"), 12));
        assert_eq!(code::<u32>(), (Some("uint32"), 12));
        assert_eq!(code::<i64>(), (Some("int64"), 24));
        assert_eq!(code::<u64>(), (Some("uint64"), 24));
        let names: BTreeSet<_> = (0..12).map(|code| dtype(code).unwrap()).collect();
        assert_eq!(names.len(), 12);
        assert_eq!(dtype(12), None);
    }

    #[test]
    fn reductions_have_the_numbers_of_nccl() {
        let pairs = [
            (ReduceOp::Sum, nccl::ReduceOp::Sum, ncclRedOp_t::ncclSum),
            (ReduceOp::Prod, nccl::ReduceOp::Prod, ncclRedOp_t::ncclProd),
            (ReduceOp::Max, nccl::ReduceOp::Max, ncclRedOp_t::ncclMax),
            (ReduceOp::Min, nccl::ReduceOp::Min, ncclRedOp_t::ncclMin),
            (ReduceOp::Avg, nccl::ReduceOp::Avg, ncclRedOp_t::ncclAvg),
        ];
        for (ours, cudarcs, code) in pairs {
            assert_eq!(ours.as_nccl_op(), code as c_int);
            assert_eq!(cudarcs.as_nccl_op(), code as c_int);
        }
    }

    #[test]
    fn a_size_that_does_not_fit_is_the_largest() {
        assert_eq!(Call::new::<f64>(Op::AllGather, usize::MAX).bytes, u64::MAX);
    }

    #[test]
    fn short_buffers_are_named() {
        assert_eq!(too_short("recv", 4, Some(4)), None);
        assert_eq!(too_short("recv", 3, Some(4)).unwrap(), "recv has 3 elements, the call needs 4");
        assert!(too_short("recv", 3, 2_usize.checked_mul(usize::MAX)).unwrap().contains("addressed"));
    }
}
