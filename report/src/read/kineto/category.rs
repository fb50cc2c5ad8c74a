//! What an event's `cat` says it is.

use super::json::Value;

/// The categories that matter. Their spelling changed over the years, so case does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Category {
    /// A kernel on a device.
    Kernel,
    /// A copy on a device.
    Copy,
    /// A memset on a device.
    Memset,
    /// Waiting on a device, shown as if it were work.
    Sync,
    /// A call of CUDA's or HIP's API.
    Runtime,
    /// An operator, or a collective, on the host.
    Operator,
    /// A range that the program or PyTorch marked on the host.
    Annotation,
    /// The projection of such a range onto a device: it repeats the kernels that it spans.
    DeviceAnnotation,
    /// Anything else that PyTorch's profiler writes.
    Profiler,
    /// Marked as compute, communication or a step: our own traces.
    Marked(Mark),
    /// A span of ours in the trace of another recorder: its arguments say what it is.
    Span,
    /// Of another program, or none.
    Other,
}

/// What our own traces mark an interval as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Compute,
    Comm,
    Step,
}

impl Mark {
    /// By the word in a category or in `commtrace.kind`.
    pub fn named(word: &[u8]) -> Option<Self> {
        match word {
            b"compute" => Some(Self::Compute),
            b"comm" => Some(Self::Comm),
            b"step" => Some(Self::Step),
            _ => None,
        }
    }
}

impl Category {
    pub fn of(category: Option<Value<'_>>) -> Self {
        // The longest of the words below.
        const LONGEST: usize = 20;
        let Some(category) = category else { return Self::Other };
        let raw = category.raw();
        let mut lower = [0; LONGEST];
        let Some(word) = lower.get_mut(..raw.len()) else { return Self::Other };
        word.copy_from_slice(raw);
        word.make_ascii_lowercase();
        match &*word {
            b"kernel" => Self::Kernel,
            b"gpu_memcpy" | b"memcpy" => Self::Copy,
            b"gpu_memset" | b"memset" => Self::Memset,
            b"cuda_sync" | b"gpu_sync" | b"sync" | b"synchronization" => Self::Sync,
            b"cuda_runtime" | b"cuda_driver" | b"runtime" | b"driver" | b"hip_runtime" | b"hip_driver"
            | b"xpu_runtime" | b"xpu_driver" => Self::Runtime,
            b"cpu_op" | b"operator" => Self::Operator,
            b"user_annotation" => Self::Annotation,
            b"gpu_user_annotation" => Self::DeviceAnnotation,
            b"ac2g"
            | b"fwdbwd"
            | b"async_cpu_to_gpu"
            | b"forward_backward"
            | b"python_function"
            | b"overhead"
            | b"trace"
            | b"cpu_instant_event"
            | b"cuda_profiler_range"
            | b"collective_comm" => Self::Profiler,
            b"commtrace" => Self::Span,
            word => Mark::named(word).map_or(Self::Other, Self::Marked),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_case() {
        for (text, category) in [
            ("kernel", Category::Kernel),
            ("Kernel", Category::Kernel),
            ("GPU_MEMCPY", Category::Copy),
            ("Memcpy", Category::Copy),
            ("Memset", Category::Memset),
            ("cuda_sync", Category::Sync),
            ("Runtime", Category::Runtime),
            ("Operator", Category::Operator),
            ("user_annotation", Category::Annotation),
            ("gpu_user_annotation", Category::DeviceAnnotation),
            ("Trace", Category::Profiler),
            ("comm", Category::Marked(Mark::Comm)),
            ("step", Category::Marked(Mark::Step)),
            ("", Category::Other),
            ("a category that is longer than any", Category::Other),
        ] {
            assert_eq!(Category::of(Some(Value::Text(text.as_bytes()))), category, "{text}");
        }
        assert_eq!(Category::of(None), Category::Other);
    }
}
