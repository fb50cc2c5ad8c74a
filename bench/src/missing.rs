//! What a backend needs and does not find.

use crate::plan::Backend;

/// What `backend` lacks in this build; `None` if nothing.
pub(crate) fn in_this_build(backend: Backend) -> Option<String> {
    let feature = match backend {
        Backend::Mpi if !cfg!(feature = "mpi") => "mpi",
        Backend::Nccl if !cfg!(feature = "nccl") => "nccl",
        _ => return None,
    };
    Some(format!(
        "this commtrace was built without the backend {backend}: build it with `--features {feature}`"
    ))
}

/// Why `backend` finds no GPU; `None` if it does, or needs none. That it is not part of this build is no answer.
pub fn no_gpu(backend: Backend) -> Option<String> {
    match backend {
        #[cfg(feature = "nccl")]
        Backend::Nccl => crate::nccl::devices().err(),
        _ => None,
    }
}
