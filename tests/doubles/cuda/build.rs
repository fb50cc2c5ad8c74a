//! How the driver's own library is linked: found again under its name, and never unloaded.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Whoever opens `libcuda.so.1` afterwards, as NCCL does, gets the one that is loaded.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Streams are threads: their code must outlive a caller that only probes and closes.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
