//! `device_reference.cuh` is plain C++ without CUDA: compiled and run by the host compiler.

use std::path::Path;
use std::process::Command;

#[test]
fn elements_are_found_where_they_lie() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dir = tempfile::tempdir().unwrap();
    for standard in ["c++11", "c++17"] {
        let program = dir.path().join(standard);
        let compiled = Command::new("g++")
            .arg(format!("-std={standard}"))
            .args([
                "-Wall",
                "-Wextra",
                "-pedantic",
                "-Werror",
                "-fsanitize=undefined,address",
                "-I",
            ])
            .arg(root.join("include"))
            .arg(root.join("tests/data/device_reference_test.cc"))
            .arg("-o")
            .arg(&program)
            .output()
            .unwrap();
        assert!(
            compiled.status.success(),
            "{}",
            String::from_utf8_lossy(&compiled.stderr)
        );
        let run = Command::new(&program).output().unwrap();
        assert!(
            run.status.success(),
            "{}{}",
            String::from_utf8_lossy(&run.stdout),
            String::from_utf8_lossy(&run.stderr)
        );
    }
}
