//! Link settings of the shared library and its C++ and CUDA parts.
fn main() {
    for arg in [
        "-Wl,-soname,libwholegraph.so",
        "-Wl,-z,nodelete",
        "-Wl,-rpath,$ORIGIN:$ORIGIN/../../nvidia/nccl/lib",
    ] {
        println!("cargo::rustc-cdylib-link-arg={arg}");
    }
    println!("cargo::rustc-check-cfg=cfg(wholememory_kernels)");
    println!("cargo::rerun-if-changed=build.rs");
}
