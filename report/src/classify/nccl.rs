//! What the name of an NCCL or RCCL kernel tells.

use super::{Dtype, Op};

/// An NCCL or RCCL kernel by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NcclKernel {
    /// The operation; [`Op::Unknown`] for generic kernels, which take it from their arguments.
    pub op: Op,
    /// `ring`, `tree`, `collnet_direct`, `collnet_chain`, `nvls`, `nvls_tree`, `pat` or `symmetric`.
    pub algorithm: Option<&'static str>,
    /// `ll`, `ll128` or `simple`.
    pub protocol: Option<&'static str>,
    /// Element type, where the name holds the one of the call. Operations that only move data are
    /// compiled for `int8_t` alone.
    pub dtype: Option<Dtype>,
}

impl NcclKernel {
    /// What `name` tells; `None` if it is not the name of an NCCL kernel.
    ///
    /// Understood are the forms of NCCL 2.19 and later (`ncclDevKernel_AllReduce_Sum_f32_RING_LL`), of
    /// 2.8 to 2.18 (`ncclKernel_AllReduce_RING_LL_Sum_float`), older ones
    /// (`ncclAllReduceRingLLKernel_sum_f32`), symmetric-memory kernels of 2.27 and later
    /// (`ncclSymkDevKernel_AllGather_LL`) and RCCL's.
    ///
    /// ```
    /// use commtrace_report::classify::{NcclKernel, Op};
    /// let kernel = NcclKernel::parse("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)");
    /// let kernel = kernel.ok_or("an NCCL kernel")?;
    /// assert_eq!((kernel.op, kernel.algorithm, kernel.protocol), (Op::AllReduce, Some("ring"), Some("ll")));
    /// # Ok::<(), &str>(())
    /// ```
    pub fn parse(name: &str) -> Option<Self> {
        // Arguments repeat the words (`ncclDevComm*`), so the part before them decides.
        let name = name.split(['(', '<']).next().unwrap_or(name).trim();
        let name = name.rsplit([' ', ':']).next().unwrap_or(name);
        let lower = name.to_ascii_lowercase();
        let rest = lower.strip_prefix("nccl").or_else(|| lower.strip_prefix("rccl"))?;
        let rest = ["symkdevkernel", "symdevkernel", "devkernel", "kernel"]
            .into_iter()
            .find_map(|prefix| rest.strip_prefix(prefix))
            .unwrap_or(rest);
        let symmetric = lower.contains("symkdevkernel") || lower.contains("symdevkernel");

        let op = if rest.trim_start_matches('_').starts_with("generic") {
            Op::Unknown
        } else {
            Op::in_name(rest).unwrap_or(Op::Unknown)
        };
        let tokens: Vec<&str> = rest.split('_').filter(|token| !token.is_empty()).collect();
        let has = |token: &str| tokens.contains(&token);
        let pair = |a: &str, b: &str| tokens.windows(2).any(|pair| pair == [a, b]);
        // Before 2.8, one word held everything: `AllReduceRingLL128Kernel`.
        let old = tokens.first().filter(|token| token.ends_with("kernel")).copied().unwrap_or("");
        let algorithm = if symmetric {
            Some("symmetric")
        } else if pair("nvls", "tree") {
            Some("nvls_tree")
        } else if has("nvls") {
            Some("nvls")
        } else if pair("collnet", "direct") || has("collnetdirect") {
            Some("collnet_direct")
        } else if pair("collnet", "chain") || has("collnetchain") {
            Some("collnet_chain")
        } else if has("ring") || old.contains("ring") {
            Some("ring")
        } else if has("tree") || old.contains("tree") {
            Some("tree")
        } else if has("pat") {
            Some("pat")
        } else {
            None
        };
        let protocol = if has("ll128") || old.contains("ll128") {
            Some("ll128")
        } else if has("ll") || old.contains("ll1kernel") || old.ends_with("llkernel") {
            Some("ll")
        } else if has("simple") || (!old.is_empty() && algorithm.is_some()) {
            Some("simple")
        } else {
            None
        };
        let reduces = matches!(op, Op::AllReduce | Op::ReduceScatter | Op::Reduce);
        // A type's name may hold an underscore itself: `int8_t`.
        let dtype = tokens.iter().skip(1).find_map(|token| Dtype::named(token));
        Some(Self { op, algorithm, protocol, dtype: dtype.filter(|_| reduces) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_of_all_ages() {
        for (name, op, algorithm, protocol, dtype) in [
            (
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                Op::AllReduce,
                "ring",
                "ll",
                "f32",
            ),
            (
                "ncclDevKernel_AllReduce_Sum_bf16_TREE_LL128(ncclDevComm*, unsigned long, ncclWork*)",
                Op::AllReduce,
                "tree",
                "ll128",
                "bf16",
            ),
            (
                "ncclDevKernel_AllReduce_Sum_f16_NVLS_TREE_SIMPLE(x)",
                Op::AllReduce,
                "nvls_tree",
                "simple",
                "f16",
            ),
            (
                "ncclDevKernel_AllReduce_Sum_f16_COLLNET_DIRECT_SIMPLE(x)",
                Op::AllReduce,
                "collnet_direct",
                "simple",
                "f16",
            ),
            (
                "ncclDevKernel_ReduceScatter_Sum_bf16_RING_SIMPLE(x)",
                Op::ReduceScatter,
                "ring",
                "simple",
                "bf16",
            ),
            ("ncclDevKernel_AllGather_RING_LL(x)", Op::AllGather, "ring", "ll", ""),
            ("ncclDevKernel_AllGather_PAT_SIMPLE(x)", Op::AllGather, "pat", "simple", ""),
            ("ncclDevKernel_Broadcast_RING_LL(x)", Op::Broadcast, "ring", "ll", ""),
            ("ncclDevKernel_SendRecv(x)", Op::SendRecv, "", "", ""),
            ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", Op::Unknown, "", "", ""),
            ("ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*)", Op::Unknown, "", "", ""),
            ("ncclSymkDevKernel_AllReduce_AGxLL_R_Sum_bf16(x)", Op::AllReduce, "symmetric", "", "bf16"),
            ("ncclSymkDevKernel_AllGather_LL(x)", Op::AllGather, "symmetric", "ll", ""),
            (
                "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
                Op::SendRecv,
                "ring",
                "simple",
                "",
            ),
            (
                "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
                Op::AllReduce,
                "ring",
                "ll",
                "f32",
            ),
            (
                "ncclKernel_AllReduce_TREE_SIMPLE_Sum___nv_bfloat16(x)",
                Op::AllReduce,
                "tree",
                "simple",
                "bf16",
            ),
            ("ncclKernel_Reduce_RING_SIMPLE_Sum_half(x)", Op::Reduce, "ring", "simple", "f16"),
            ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", Op::AllReduce, "ring", "ll", "f32"),
            ("ncclAllReduceTreeLL128Kernel_sum_f16(ncclColl)", Op::AllReduce, "tree", "ll128", "f16"),
            ("ncclReduceScatterRingKernel_sum_f16(ncclColl)", Op::ReduceScatter, "ring", "simple", "f16"),
            ("void ncclKernel_AllGather_RING_LL_Sum_int8_t<1>(x)", Op::AllGather, "ring", "ll", ""),
            ("rcclGenericKernel<4, false>(ncclDevComm*)", Op::Unknown, "", "", ""),
        ] {
            let kernel = NcclKernel::parse(name).unwrap_or_else(|| panic!("{name} was not recognised"));
            let text = |part: Option<&'static str>| part.unwrap_or("");
            let found = (
                kernel.op,
                text(kernel.algorithm),
                text(kernel.protocol),
                text(kernel.dtype.map(|d| d.name)),
            );
            assert_eq!(found, (op, algorithm, protocol, dtype), "{name}");
        }
        for name in ["void at::native::elementwise_kernel<128, 2>(int)", "my_kernel(ncclDevComm*)", ""] {
            assert_eq!(NcclKernel::parse(name), None, "{name}");
        }
    }
}
