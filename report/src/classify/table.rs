//! Communication kernels that are not NCCL's.

use super::Op;

/// How a rule tells the operation.
enum Which {
    /// All kernels of the rule do this.
    Always(Op),
    /// The kernel's name says it.
    ByName,
    /// By a function of the kernel's name; `None` if it is no communication after all.
    With(fn(&str) -> Option<Op>),
}

/// Name of a rule, what a function's name must contain (any of them, lower case), and the operation.
type Row = (&'static str, &'static [&'static str], Which);

const TABLE: &[Row] = &[
    ("custom all-reduce (vLLM, SGLang, AITER)", &["cross_device_reduce"], Which::Always(Op::AllReduce)),
    ("quick all-reduce (vLLM)", &["allreduce_prototype_", "quickreduce::"], Which::Always(Op::AllReduce)),
    (
        "custom all-reduce (TensorRT-LLM, FlashInfer)",
        &[
            "oneshotallreduce",
            "twoshotallreduce",
            "allreduce_fusion_kernel",
            "allreducefusionkernel",
            "trtllm_allreduce",
            "trtllm_moe_allreduce",
            "lamport_style_one_shot_all_reduce",
            "customallreduce",
        ],
        Which::Always(Op::AllReduce),
    ),
    (
        "symmetric memory (PyTorch)",
        &[
            "one_shot_all_reduce",
            "two_shot_all_reduce",
            "multimem_all_reduce",
            "multimem_one_shot_all_reduce",
            "multimem_all_gather",
            "multimem_reduce_scatter",
            "all_to_all_vdev",
        ],
        Which::ByName,
    ),
    ("DeepEP", &["deep_ep::"], Which::With(deep_ep)),
    ("pplx-kernels", &["pplx::", "pplx_kernels::"], Which::Always(Op::AllToAllV)),
    ("MSCCL", &["mscclkernel", "mscclpp", "msccl::"], Which::ByName),
    ("NVSHMEM", &["nvshmem"], Which::ByName),
    ("rocSHMEM", &["rocshmem"], Which::ByName),
    ("Transformer Engine userbuffers", &["userbuffers"], Which::With(userbuffers)),
    ("oneCCL", &["oneccl", "ccl::kernel", "ccl_kernel"], Which::ByName),
];

/// The rule that `function` (lower case) matches, and its operation.
pub(super) fn builtin(function: &str) -> Option<(&'static str, Op)> {
    TABLE.iter().find_map(|(rule, words, which)| {
        if !words.iter().any(|word| function.contains(word)) {
            return None;
        }
        let op = match which {
            Which::Always(op) => Some(*op),
            Which::ByName => Some(Op::in_name(function).unwrap_or(Op::Unknown)),
            Which::With(op) => op(function),
        };
        op.map(|op| (*rule, op))
    })
}

/// Dispatch and combine are all-to-alls of token counts that differ.
fn deep_ep(function: &str) -> Option<Op> {
    // These two prepare buffers and counts on one device.
    if function.contains("layout") || function.contains("clean_low_latency_buffer") {
        return None;
    }
    Some(if function.contains("barrier") { Op::Barrier } else { Op::AllToAllV })
}

/// `userbuffers_fp16_sum_inplace_gpu_rr_rs`, `kuserbuffers_pushsend`.
fn userbuffers(function: &str) -> Option<Op> {
    let part = |word: &str| function.split('_').any(|part| part == word);
    Some(if part("rs") {
        Op::ReduceScatter
    } else if part("ag") {
        Op::AllGather
    } else if part("sum") {
        Op::AllReduce
    } else {
        Op::in_name(function).unwrap_or(Op::Unknown)
    })
}

/// The path of the function that a demangled kernel name declares, in lower case: without return type,
/// template arguments and parameters, in which words of other functions occur.
pub(super) fn function(name: &str) -> String {
    let name = name.replace("(anonymous namespace)", "anonymous").to_ascii_lowercase();
    let name = name.strip_prefix("void ").unwrap_or(&name);
    name.split(['(', '<']).next().unwrap_or(name).trim().to_owned()
}

/// Whether `function` (lower case) has a word of communication in it.
pub(super) fn hints_at_communication(function: &str) -> bool {
    const WORDS: [&str; 8] =
        ["allreduce", "allgather", "reducescatter", "alltoall", "all2all", "sendrecv", "shmem", "peer2peer"];
    let letters: String = function.chars().filter(char::is_ascii_alphanumeric).collect();
    WORDS.iter().any(|word| letters.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_beside_nccl() {
        for (name, expected) in [
            ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)", Some(Op::AllReduce)),
            ("void sglang::cross_device_reduce_2stage<half, 4>(x)", Some(Op::AllReduce)),
            ("void tensorrt_llm::kernels::twoShotAllReduceKernel<__half, 8, false>(x)", Some(Op::AllReduce)),
            (
                "void tensorrt_llm::kernels::ar_fusion::allreduce_fusion_kernel_oneshot_lamport<0>(x)",
                Some(Op::AllReduce),
            ),
            (
                "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_twoshot_sync<0>(x)",
                Some(Op::AllReduce),
            ),
            (
                "void c10d::symmetric_memory::(anonymous namespace)::multimem_all_gather_kernel<16>(x)",
                Some(Op::AllGather),
            ),
            (
                "void c10d::symmetric_memory::(anonymous namespace)::two_shot_all_reduce_kernel<c10::BFloat16>(x)",
                Some(Op::AllReduce),
            ),
            ("void deep_ep::intranode::dispatch<8, 768, 8192>(int4*)", Some(Op::AllToAllV)),
            ("void deep_ep::internode_ll::combine<true, 7168, 10, 4>(void*)", Some(Op::AllToAllV)),
            ("void deep_ep::intranode::barrier<8, false>(int**, int)", Some(Op::Barrier)),
            ("void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)", None),
            ("nvshmemi_reducescatter_kernel(int)", Some(Op::ReduceScatter)),
            ("nvshmemi_init_array_kernel(int)", Some(Op::Unknown)),
            ("mscclKernel_Sum_half_LL(ncclDevComm*)", Some(Op::Unknown)),
            ("userbuffers_fp16_sum_inplace_gpu_rr_rs(int)", Some(Op::ReduceScatter)),
            ("kuserbuffers_pushrecv(int)", Some(Op::Recv)),
            ("void cutlass::Kernel<DistAllGather>(x)", None),
            ("void at::native::vectorized_elementwise_kernel<4>(int)", None),
        ] {
            assert_eq!(builtin(&function(name)).map(|(_, op)| op), expected, "{name}");
        }
    }
}
