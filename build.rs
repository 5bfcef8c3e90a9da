//! Link settings of the shared library and its C++ and CUDA parts.
fn main() {
    for arg in [
        "-Wl,-soname,libwholegraph.so",
        "-Wl,-z,nodelete",
        "-Wl,-rpath,$ORIGIN:$ORIGIN/../../nvidia/nccl/lib",
    ] {
        println!("cargo::rustc-cdylib-link-arg={arg}");
    }
    // Undefined names are errors at link time; a sanitizer's own names come from the program.
    if std::env::var_os("CARGO_CFG_SANITIZE").is_none() {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,defs");
    }
    println!("cargo::rustc-check-cfg=cfg(wholememory_kernels)");
    println!("cargo::rerun-if-changed=build.rs");
    build_shim();
}

/// The C++ part that calls the caller's functions.
fn build_shim() {
    println!("cargo::rerun-if-changed=src/ffi/callbacks.cc");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .warnings(true)
        .extra_warnings(true)
        .flag("-fvisibility=hidden")
        .file("src/ffi/callbacks.cc")
        .compile("wholememory_shim");
}
