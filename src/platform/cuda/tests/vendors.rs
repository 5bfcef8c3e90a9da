//! Our declarations of the vendors' functions, constants and structs against their headers, where those are: a C++ file of
//! assertions is made from them and compiled. Without headers the tests print a skip.

use super::super::handover::FABRIC_HANDLE_BYTES;
use super::super::{driver, fabric, functions, gpu, mark, nccl, side};
use cudarc::driver::sys;
use std::fmt::Write;
use std::mem::offset_of;
use std::path::PathBuf;
use std::process::Command;

/// A type as an ABI sees it: bytes of a number or a struct, a pointer with the bytes of what it points to (0 if nobody says).
const SHAPES: &str = r"
template <class T, class = void> struct pointee { static constexpr unsigned bytes = 0; };
template <class T> struct pointee<T, decltype(void(sizeof(T)))> { static constexpr unsigned bytes = sizeof(T); };
template <> struct pointee<void, void> { static constexpr unsigned bytes = 0; };
template <> struct pointee<const void, void> { static constexpr unsigned bytes = 0; };
template <class T> struct shape { static constexpr unsigned value = sizeof(T); };
template <class T> struct shape<T*> { static constexpr unsigned value = 100000 + pointee<T>::bytes; };
template <unsigned... kShapes> struct list {};
template <class F> struct signature;
template <class R, class... A> struct signature<R (*)(A...)> { using type = list<shape<R>::value, shape<A>::value...>; };
#define IS(function, ...) static_assert(std::is_same<signature<decltype(&function)>::type, list<__VA_ARGS__>>::value, #function)
";

const POINTER: usize = 100_000;

/// The bytes of a type as our declarations spell it; handles of the vendors are pointers to what nobody knows.
fn bytes_of(name: &str) -> usize {
    match name {
        "c_void" => 0,
        "c_char" => 1,
        "c_int" | "c_uint" | "CUdevice" => 4,
        "usize" | "c_ulonglong" | "CUdeviceptr" | "CUmemGenericAllocationHandle" => 8,
        "CUcontext" | "CUstream" | "CUevent" | "CUmemoryPool" => 8,
        "CUdevice_attribute"
        | "CUpointer_attribute"
        | "CUmemAllocationGranularity_flags"
        | "CUmemAllocationHandleType"
        | "CUmemPool_attribute" => 4,
        "CUuuid" => size_of::<sys::CUuuid>(),
        "CUmemAllocationProp" => size_of::<sys::CUmemAllocationProp>(),
        "CUmemAccessDesc" => size_of::<sys::CUmemAccessDesc>(),
        "CUmemPoolProps" => size_of::<sys::CUmemPoolProps>(),
        "UniqueId" => size_of::<nccl::UniqueId>(),
        "FabricInfo" => size_of::<fabric::FabricInfo>(),
        // Newer versions of NCCL have a longer one and take the shorter by its size.
        "Config" => 0,
        other => panic!("the type {other} is new here"),
    }
}

fn shape_of(spelled: &str) -> usize {
    let behind = |spelled: &str| {
        spelled
            .strip_prefix("*mut ")
            .or(spelled.strip_prefix("*const "))
            .map(str::to_owned)
    };
    match behind(spelled) {
        Some(inner) if behind(&inner).is_some() => POINTER + size_of::<usize>(),
        Some(inner) => POINTER + bytes_of(&inner),
        None if ["CUcontext", "CUstream", "CUevent", "CUmemoryPool"].contains(&spelled) => POINTER,
        None => bytes_of(spelled),
    }
}

/// An assertion for every function declared in a source file of ours.
fn functions_of(source: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for line in source.lines().map(str::trim) {
        let declared = line.strip_prefix("required ").or(line.strip_prefix("optional "));
        let Some((name, rest)) = declared.and_then(|d| d.split_once(": fn(")) else {
            continue;
        };
        let (arguments, result) = rest.split_once(") -> ").expect("a result");
        let shapes = std::iter::once(result.trim_end_matches(';'))
            .chain(
                arguments
                    .split(", ")
                    .filter(|a| !a.is_empty())
                    .map(|a| a.split_once(": ").expect("a named argument").1),
            )
            .map(|spelled| shape_of(spelled).to_string())
            .collect::<Vec<_>>()
            .join(", ");
        found.push((name.to_owned(), format!("IS({name}, {shapes});")));
    }
    found
}

/// The folder of a vendor's header; prints a skip where there is none.
fn folder_of(header: &str) -> Option<PathBuf> {
    let home = |name: &str| std::env::var_os(name).map(PathBuf::from).unwrap_or_default();
    let project = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(".cuda/nvidia");
    let folders = [
        home("CUDA_HOME").join("include"),
        home("CUDA_PATH").join("include"),
        home("NCCL_HOME").join("include"),
        project.join("cu13/include"),
        project.join("nccl/include"),
        PathBuf::from("/usr/local/cuda/include"),
        PathBuf::from("/usr/include"),
    ];
    let found = folders.into_iter().find(|folder| folder.join(header).is_file());
    if found.is_none() {
        println!("skipped: there is no {header} here");
    }
    found
}

fn compile(header: &str, also: &[PathBuf], assertions: &str) -> std::result::Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("vendors.cc");
    let source =
        format!("#include <cstddef>\n#include <type_traits>\n#include <{header}>\n{SHAPES}{assertions}");
    std::fs::write(&file, source).unwrap();
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "g++".into());
    let output = Command::new(compiler)
        .args(["-std=c++17", "-fsyntax-only"])
        .args(also.iter().map(|folder| format!("-I{}", folder.display())))
        .arg(&file)
        .output()
        .unwrap();
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Fields of a struct of the vendor's header, as the Rust type that stands for it has them.
macro_rules! layouts {
    ($out:ident: $($name:ident { $($field:ident = $theirs:literal),+ $(,)? })+) => {
        $(
            writeln!($out, "static_assert(sizeof({0}) == {1}, \"{0}\");", stringify!($name), size_of::<sys::$name>()).unwrap();
            $(writeln!(
                $out,
                "static_assert(offsetof({0}, {1}) == {2}, \"{0}.{1}\");",
                stringify!($name), $theirs, offset_of!(sys::$name, $field)
            ).unwrap();)+
        )+
    };
}

#[test]
fn the_drivers_declarations_are_those_of_its_header() {
    let Some(folder) = folder_of("cuda.h") else { return };
    let declared: Vec<_> = [include_str!("../functions.rs"), include_str!("../driver.rs")]
        .iter()
        .flat_map(|source| functions_of(source))
        .collect();
    assert!(declared.len() > 50, "{}", declared.len());
    let mut text = String::new();
    for (_, assertion) in &declared {
        writeln!(text, "{assertion}").unwrap();
    }
    layouts! { text:
        CUmemLocation { type_ = "type", id = "id" }
        CUmemAllocationProp { type_ = "type", requestedHandleTypes = "requestedHandleTypes", location = "location" }
        CUmemAccessDesc { location = "location", flags = "flags" }
        CUmemPoolProps { allocType = "allocType", handleTypes = "handleTypes", location = "location" }
        CUuuid { bytes = "bytes" }
    }
    let constants = [
        (
            "CUDA_ERROR_OUT_OF_MEMORY",
            functions::CUDA_ERROR_OUT_OF_MEMORY as u64,
        ),
        (
            "CUDA_ERROR_OPERATING_SYSTEM",
            functions::CUDA_ERROR_OPERATING_SYSTEM as u64,
        ),
        ("CUDA_ERROR_NOT_INITIALIZED", gpu::NOT_INITIALISED as u64),
        ("CUDA_ERROR_NO_DEVICE", driver::CUDA_ERROR_NO_DEVICE as u64),
        ("CU_MEMHOSTREGISTER_PORTABLE", functions::PORTABLE.into()),
        ("CU_MEMHOSTREGISTER_DEVICEMAP", functions::DEVICEMAP.into()),
        ("CU_MEMHOSTALLOC_PORTABLE", functions::PORTABLE.into()),
        ("CU_MEMHOSTALLOC_DEVICEMAP", functions::DEVICEMAP.into()),
        ("CU_MEMORYTYPE_HOST", gpu::HOST_MEMORY.into()),
        ("CU_STREAM_CAPTURE_MODE_RELAXED", gpu::CAPTURE_MODE_RELAXED as u64),
        ("CU_EVENT_DISABLE_TIMING", mark::DISABLE_TIMING.into()),
        ("CU_STREAM_DEFAULT", side::BEHIND_LEGACY.into()),
        ("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", 900),
        ("CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", 908),
        (
            "reinterpret_cast<size_t>(CU_STREAM_PER_THREAD)",
            gpu::PER_THREAD_STREAM.0 as u64,
        ),
        (
            "CU_MEMPOOL_ATTR_RELEASE_THRESHOLD",
            sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD as u64,
        ),
        (
            "CU_POINTER_ATTRIBUTE_MEMORY_TYPE",
            sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE as u64,
        ),
        (
            "CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED",
            sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED as u64,
        ),
        (
            "CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID",
            sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID as u64,
        ),
        (
            "CU_MEM_ALLOC_GRANULARITY_RECOMMENDED",
            sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED as u64,
        ),
        (
            "CU_MEM_HANDLE_TYPE_FABRIC",
            sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_FABRIC.0.into(),
        ),
        ("sizeof(CUmemFabricHandle)", FABRIC_HANDLE_BYTES as u64),
        (
            "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR",
            sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0 as u64,
        ),
    ];
    for (name, ours) in constants {
        // A cast of a pointer is no constant.
        match name.contains("cast") {
            true => writeln!(text, "bool per_thread() {{ return {name} == {ours}; }}").unwrap(),
            false => writeln!(text, "static_assert({name} == {ours}, \"{name}\");").unwrap(),
        }
    }
    let also = [folder];
    compile("cuda.h", &also, &text).unwrap_or_else(|said| panic!("{said}"));
    // It is the header that decides: a wrong word of ours does not pass.
    for wrong in [
        "IS(cuCtxSynchronize, 4, 4);",
        "IS(cuDeviceGet, 4, 100008, 4);",
        "static_assert(CU_MEMORYTYPE_HOST == 2, \"wrong\");",
    ] {
        assert!(compile("cuda.h", &also, wrong).is_err(), "{wrong}");
    }
}

#[test]
fn the_declarations_of_nccl_are_those_of_its_header() {
    let (Some(folder), Some(runtime)) = (folder_of("nccl.h"), folder_of("cuda_runtime.h")) else {
        return;
    };
    let mut text = String::new();
    for (name, assertion) in functions_of(include_str!("../nccl.rs")) {
        // By its size the configuration is one of several; its first fields are looked at below.
        if name != "ncclCommInitRankConfig" {
            writeln!(text, "{assertion}").unwrap();
        }
    }
    let fields = [
        ("size", offset_of!(nccl::Config, size)),
        ("magic", offset_of!(nccl::Config, magic)),
        ("version", offset_of!(nccl::Config, version)),
        ("blocking", offset_of!(nccl::Config, blocking)),
        ("cgaClusterSize", offset_of!(nccl::Config, cga_cluster_size)),
        ("minCTAs", offset_of!(nccl::Config, min_ctas)),
        ("maxCTAs", offset_of!(nccl::Config, max_ctas)),
        ("netName", offset_of!(nccl::Config, net_name)),
        ("splitShare", offset_of!(nccl::Config, split_share)),
    ];
    for (field, at) in fields {
        writeln!(
            text,
            "static_assert(offsetof(ncclConfig_t, {field}) == {at}, \"{field}\");"
        )
        .unwrap();
    }
    let constants = [
        ("ncclSuccess", nccl::SUCCESS),
        ("ncclInProgress", nccl::IN_PROGRESS),
        ("ncclUint8", nccl::BYTES),
        ("NCCL_CONFIG_UNDEF_INT", nccl::UNDEFINED),
    ];
    for (name, ours) in constants {
        writeln!(text, "static_assert({name} == {ours}, \"{name}\");").unwrap();
    }
    writeln!(
        text,
        "static_assert(sizeof(ncclUniqueId) == {}, \"id\");",
        nccl::UNIQUE_ID_BYTES
    )
    .unwrap();
    compile("nccl.h", &[folder, runtime], &text).unwrap_or_else(|said| panic!("{said}"));
}

#[test]
fn the_declarations_of_nvml_are_those_of_its_header() {
    let Some(folder) = folder_of("nvml.h") else { return };
    let mut text = String::new();
    for (_, assertion) in functions_of(include_str!("../fabric.rs")) {
        writeln!(text, "{assertion}").unwrap();
    }
    let fields = [
        ("clusterUuid", offset_of!(fabric::FabricInfo, cluster)),
        ("status", offset_of!(fabric::FabricInfo, status)),
        ("cliqueId", offset_of!(fabric::FabricInfo, clique)),
        ("state", offset_of!(fabric::FabricInfo, state)),
    ];
    for (field, at) in fields {
        writeln!(
            text,
            "static_assert(offsetof(nvmlGpuFabricInfo_t, {field}) == {at}, \"{field}\");"
        )
        .unwrap();
    }
    writeln!(
        text,
        "static_assert(NVML_GPU_FABRIC_STATE_COMPLETED == {}, \"completed\");",
        fabric::COMPLETED
    )
    .unwrap();
    compile("nvml.h", &[folder], &text).unwrap_or_else(|said| panic!("{said}"));
}
