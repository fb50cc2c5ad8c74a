//! How the library is linked: found again under its name, and never unloaded.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcublas.so.12");
    // Streams run its code, which must outlive a caller that only probes and closes.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
