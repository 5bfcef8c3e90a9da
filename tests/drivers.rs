//! Machines without a driver, with a broken one, with an old NCCL: stand-ins for the vendors' libraries, each tried in a
//! process of its own. Nothing may panic, and the words must name what is wrong.

use std::path::Path;
use std::process::Command;
use tempfile::TempDir;
use wholegraph::platform;
use wholegraph::platform::cuda::{driver::Driver, nccl};

const DRIVER: &str = r#"
#include <stdlib.h>
static int ready;
int cuInit(unsigned flags) { (void)flags; if (CRASH) abort(); if (INIT == 0) ready = 1; return INIT; }
#ifndef NO_COUNT
int cuDeviceGetCount(int* count) { if (!ready) return 3; *count = COUNT; return 0; }
#endif
int cuGetErrorString(int code, const char** text) { (void)code; *text = "the words of the stub"; return 0; }
#ifdef VERSION
int cuDriverGetVersion(int* version) { *version = VERSION; return 0; }
#define NAMED(name) int name(void) { return 999; }
NAMED(cuDeviceGetName) NAMED(cuDeviceGetUuid_v2) NAMED(cuDeviceGetAttribute) NAMED(cuDeviceCanAccessPeer)
NAMED(cuDevicePrimaryCtxRetain) NAMED(cuDevicePrimaryCtxRelease_v2) NAMED(cuCtxGetDevice) NAMED(cuCtxPushCurrent_v2)
NAMED(cuCtxPopCurrent_v2) NAMED(cuCtxSynchronize) NAMED(cuStreamSynchronize) NAMED(cuStreamIsCapturing)
NAMED(cuThreadExchangeStreamCaptureMode) NAMED(cuStreamWaitEvent) NAMED(cuEventQuery)
NAMED(cuStreamCreate) NAMED(cuStreamDestroy_v2)
NAMED(cuStreamGetCtx) NAMED(cuEventCreate) NAMED(cuEventRecord) NAMED(cuEventSynchronize) NAMED(cuEventDestroy_v2)
NAMED(cuMemcpyAsync) NAMED(cuMemcpyHtoD_v2) NAMED(cuMemcpyDtoH_v2) NAMED(cuPointerGetAttributes)
NAMED(cuMemGetAllocationGranularity) NAMED(cuMemAddressReserve) NAMED(cuMemAddressFree) NAMED(cuMemCreate)
NAMED(cuMemRelease) NAMED(cuMemMap) NAMED(cuMemUnmap) NAMED(cuMemSetAccess) NAMED(cuMemExportToShareableHandle)
NAMED(cuMemImportFromShareableHandle) NAMED(cuMemHostRegister_v2) NAMED(cuMemHostUnregister)
NAMED(cuMemHostGetDevicePointer_v2) NAMED(cuMemAlloc_v2) NAMED(cuMemFree_v2) NAMED(cuMemHostAlloc)
NAMED(cuMemPoolCreate) NAMED(cuMemPoolSetAttribute) NAMED(cuMemPoolTrimTo) NAMED(cuMemPoolDestroy)
NAMED(cuMemAllocFromPoolAsync) NAMED(cuMemFreeAsync) NAMED(cuMemFreeHost)
int cuCtxGetCurrent(void** context) { *context = 0; return 0; }
int cuDeviceGet(int* device, int ordinal) { *device = ordinal; return 0; }
#endif
"#;

const NCCL: &str = r#"
int ncclGetVersion(int* version) { *version = VERSION; return 0; }
const char* ncclGetErrorString(int code) { (void)code; return "the words of the stub"; }
"#;

/// A folder with a library of this name made from C.
fn library(name: &str, source: &str, definitions: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("stub.c");
    std::fs::write(&file, source).expect("a file");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "gcc".into());
    let status = Command::new(compiler)
        .args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"])
        .arg(folder.path().join(name))
        .arg(&file)
        .args(definitions.iter().map(|d| format!("-D{d}")))
        .status()
        .expect("a C compiler");
    assert!(status.success());
    folder
}

fn driver(definitions: &[&str]) -> TempDir {
    let mut all = definitions.to_vec();
    for default in ["CRASH=0", "INIT=0", "COUNT=2"] {
        let (name, _) = default.split_once('=').expect("a value");
        if !definitions.iter().any(|d| d.starts_with(name)) {
            all.push(default);
        }
    }
    library("libcuda.so.1", DRIVER, &all)
}

/// What a process that finds its libraries in `folder` says about `question`, and its log.
fn ask(folder: &Path, wish: &str, question: &str) -> (String, String) {
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "the_asked_process", "--nocapture"])
        .env("LD_LIBRARY_PATH", folder)
        .env("WHOLEMEMORY_PLATFORM", wish)
        .env("WHOLEMEMORY_TEST_QUESTION", question)
        .env_remove("WHOLEMEMORY_LOG")
        .output()
        .expect("it starts");
    let (text, log) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{question}: {text}\n{log}");
    let answer = text
        .lines()
        .find_map(|line| line.split_once("answer: "))
        .expect("an answer")
        .1;
    (answer.to_owned(), log.into_owned())
}

/// Not a test of its own: the other side of [`ask`].
#[test]
fn the_asked_process() {
    let Ok(question) = std::env::var("WHOLEMEMORY_TEST_QUESTION") else {
        return;
    };
    let answer = match question.as_str() {
        "platform" => match platform::current() {
            Ok(platform) => platform.name().to_owned(),
            Err(error) => format!("{:?} {}", error.kind, error.what),
        },
        "init" => match platform::at_init() {
            Ok(()) => "SUCCESS".to_owned(),
            Err(error) => format!("{:?} {}", error.kind, error.what),
        },
        "count" => platform::fork_device_count().to_string(),
        "count twice" => format!(
            "{} {}",
            platform::fork_device_count(),
            platform::fork_device_count()
        ),
        "count, is this process initialised" => {
            let count = platform::fork_device_count();
            let here = Driver::get()
                .ok()
                .and_then(|driver| driver.initialised_count().ok());
            format!("{count} {here:?}")
        }
        "platform, count" => format!(
            "{} {}",
            platform::at_init().is_ok(),
            platform::fork_device_count()
        ),
        "bind" => match platform::bind() {
            Ok(platform) => platform.identity(),
            Err(error) => format!("{:?} {}", error.kind, error.what),
        },
        "nccl" => match nccl::version() {
            Ok(version) => version.to_string(),
            Err(error) => format!("{:?} {}", error.kind, error.what),
        },
        other => panic!("no such question: {other}"),
    };
    println!("\nanswer: {answer}");
}

/// True (and says so) where the machine has a real library of the name, so that its absence cannot be tried.
fn is_here(name: &str) -> bool {
    // SAFETY: vendors' libraries may be loaded at any time.
    let here = unsafe { libloading::Library::new(name) }.is_ok();
    if here {
        println!("skipped: this machine has a {name}");
    }
    here
}

fn check(folder: &Path, wish: &str, question: &str, begins: &str, words: &[&str]) {
    let (answer, _) = ask(folder, wish, question);
    assert!(answer.starts_with(begins), "{wish}, {question}: {answer}");
    for word in words {
        assert!(answer.contains(word), "{wish}, {question}: {answer}");
    }
}

#[test]
fn no_driver() {
    if is_here("libcuda.so.1") {
        return;
    }
    let empty = tempfile::tempdir().expect("a folder");
    let (answer, log) = ask(empty.path(), "auto", "platform");
    assert_eq!(answer, "cpu");
    assert!(
        log.contains("WARN") && log.contains("libcuda.so.1") && log.contains("CPU"),
        "{log}"
    );
    check(empty.path(), "auto", "init", "SUCCESS", &[]);
    check(
        empty.path(),
        "cuda",
        "init",
        "Cuda",
        &["WHOLEMEMORY_PLATFORM=cuda", "libcuda.so.1"],
    );
    check(empty.path(), "auto", "count", "0", &[]);
    let (answer, log) = ask(empty.path(), "cpu", "platform");
    assert_eq!(answer, "cpu");
    assert!(!log.contains("WARN"), "asked for, so no warning: {log}");
}

#[test]
fn a_toolkit_stub_is_no_driver() {
    if is_here("libcuda.so.1") {
        return;
    }
    let stub = library("libcuda.so", DRIVER, &["CRASH=0", "INIT=34", "COUNT=0"]);
    check(stub.path(), "auto", "platform", "cpu", &[]);
    check(stub.path(), "auto", "count", "0", &[]);
}

#[test]
fn a_driver_that_does_not_start() {
    let broken = driver(&["INIT=999"]);
    let words = ["cuInit", "999", "the words of the stub"];
    check(
        broken.path(),
        "auto",
        "init",
        "Cuda",
        &[&words[..], &["WHOLEMEMORY_PLATFORM=cpu"]].concat(),
    );
    check(broken.path(), "cuda", "platform", "Cuda", &words);
    check(broken.path(), "cpu", "init", "SUCCESS", &[]);
    let (answer, log) = ask(broken.path(), "auto", "count");
    assert_eq!(answer, "-1");
    assert!(log.contains("the words of the stub"), "{log}");
}

#[test]
fn a_driver_without_devices() {
    for definitions in [["INIT=100"], ["COUNT=0"]] {
        let empty = driver(&definitions);
        let (answer, log) = ask(empty.path(), "auto", "platform");
        assert_eq!(answer, "cpu");
        assert!(log.contains("WARN") && log.contains("device"), "{log}");
        check(empty.path(), "cuda", "init", "Cuda", &["device"]);
        check(empty.path(), "auto", "count", "0", &[]);
    }
}

#[test]
fn a_driver_that_lacks_a_function() {
    let old = driver(&["NO_COUNT"]);
    check(
        old.path(),
        "auto",
        "init",
        "Cuda",
        &["libcuda.so.1", "cuDeviceGetCount"],
    );
    check(old.path(), "cpu", "init", "SUCCESS", &[]);
    check(old.path(), "auto", "count", "-1", &[]);
}

#[test]
fn a_driver_that_is_no_library() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("libcuda.so.1"), "no library").expect("a file");
    check(folder.path(), "auto", "init", "Cuda", &["libcuda.so.1"]);
    check(folder.path(), "auto", "count", "-1", &[]);
}

#[test]
fn a_driver_with_devices() {
    let two = driver(&[]);
    check(two.path(), "auto", "init", "SUCCESS", &[]);
    check(two.path(), "auto", "count twice", "2 2", &[]);
    check(
        two.path(),
        "auto",
        "count, is this process initialised",
        "2 None",
        &[],
    );
    check(two.path(), "auto", "platform, count", "true 2", &[]);
}

#[test]
fn a_driver_that_is_too_old_for_the_library() {
    if !cfg!(wholememory_kernels) {
        let any = driver(&[]);
        for question in ["bind", "platform"] {
            let words = ["without nvcc", "WHOLEMEMORY_PLATFORM=cpu"];
            check(any.path(), "auto", question, "NotSupported", &words);
        }
        return;
    }
    // One so old that it lacks functions, one that says its version, and a new one that fails.
    let ancient = driver(&[]);
    let words = ["cuDriverGetVersion", "too old"];
    check(ancient.path(), "auto", "bind", "Cuda", &words);
    let old = driver(&["VERSION=12040"]);
    for question in ["bind", "platform"] {
        check(old.path(), "auto", question, "NotSupported", &["12.4", "13.0"]);
    }
    let failing = driver(&["VERSION=13000"]);
    let words = ["cuDeviceGetName", "999", "the words of the stub"];
    check(failing.path(), "auto", "bind", "Cuda", &words);
}

#[test]
fn a_driver_that_crashes() {
    let crash = driver(&["CRASH=1"]);
    let (answer, log) = ask(crash.path(), "auto", "count");
    assert_eq!(answer, "-1");
    assert!(log.contains("died inside the CUDA driver"), "{log}");
}

#[test]
fn a_wild_wish() {
    let empty = tempfile::tempdir().expect("a folder");
    check(
        empty.path(),
        "gpu",
        "init",
        "InvalidValue",
        &["WHOLEMEMORY_PLATFORM", "\"gpu\"", "auto, cuda or cpu"],
    );
}

#[test]
fn nccl_absent_old_and_new() {
    if !is_here("libnccl.so.2") && !is_here("libnccl.so") {
        let empty = tempfile::tempdir().expect("a folder");
        check(empty.path(), "cpu", "nccl", "NotSupported", &["libnccl.so.2"]);
    }
    let old = library("libnccl.so.2", NCCL, &["VERSION=21704"]);
    check(old.path(), "cpu", "nccl", "NotSupported", &["21704", "2.18"]);
    let new = library("libnccl.so.2", NCCL, &["VERSION=22809"]);
    check(new.path(), "cpu", "nccl", "22809", &[]);
}
