//! The ABI: types, values and layouts as C++ sees them in the headers, and the names the shared library exports.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Exported beside the published names, and documented.
const ADDITIONS: [&str; 2] = [
    "wholememory_embedding_get_cache_stats",
    "wholememory_get_last_error",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// The shared library that was built beside this test.
fn library() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let deps = exe.parent().unwrap();
    [deps, deps.parent().unwrap()]
        .iter()
        .map(|dir| dir.join("libwholegraph.so"))
        .find(|path| path.exists())
        .expect("libwholegraph.so beside the test")
}

#[test]
fn headers_match_the_published_types() {
    let dir = tempfile::tempdir().unwrap();
    let print = dir.path().join("abi_print");
    run(Command::new("g++")
        .args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(root().join("include"))
        .arg(root().join("tests/data/abi_print.cc"))
        .arg("-o")
        .arg(&print)
        .arg("-Wl,--unresolved-symbols=ignore-all"));
    let found = run(&mut Command::new(&print));
    let golden = fs::read_to_string(root().join("tests/data/abi_golden.txt")).unwrap();
    for (line, (found, golden)) in found.lines().zip(golden.lines()).enumerate() {
        assert_eq!(found, golden, "line {} of abi_golden.txt", line + 1);
    }
    assert_eq!(found, golden);
}

#[test]
fn exports_are_the_published_names_and_our_additions() {
    let symbols = run(Command::new("nm")
        .args(["-D", "--defined-only", "--format=posix"])
        .arg(library()));
    let found: BTreeSet<&str> = symbols.lines().filter_map(|l| l.split(' ').next()).collect();
    let golden = fs::read_to_string(root().join("tests/data/abi_symbols.txt")).unwrap();
    let expected: BTreeSet<&str> = golden.lines().chain(ADDITIONS).collect();
    let missing: Vec<_> = expected.difference(&found).collect();
    let extra: Vec<_> = found.difference(&expected).collect();
    assert!(
        missing.is_empty() && extra.is_empty(),
        "missing {missing:?}, extra {extra:?}"
    );
}

/// The address of each default-argument function stays unambiguous, and every declared name is exported.
#[test]
fn a_program_links_against_every_declared_name() {
    let dir = tempfile::tempdir().unwrap();
    let golden = fs::read_to_string(root().join("tests/data/abi_symbols.txt")).unwrap();
    let mut text = String::new();
    for header in fs::read_dir(root().join("include/wholememory")).unwrap() {
        let name = header.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".h") {
            text.push_str(&format!("#include <wholememory/{name}>\n"));
        }
    }
    text.push_str("typedef void (*any)(void);\nvolatile any table[] = {\n");
    for name in golden.lines().chain(ADDITIONS).filter(|n| !n.contains("hdfs")) {
        text.push_str(&format!("  (any)&{name},\n"));
    }
    text.push_str("};\nint main(void) { return table[0] == 0; }\n");
    for (compiler, source) in [("gcc", "all.c"), ("g++", "all.cc")] {
        let source = dir.path().join(source);
        fs::write(&source, &text).unwrap();
        let program = dir.path().join("all");
        let library = library();
        run(Command::new(compiler)
            .arg("-I")
            .arg(root().join("include"))
            .arg(&source)
            .arg(&library)
            .arg("-o")
            .arg(&program));
        // Cargo's own search path would find the library in the build folder under its SONAME.
        run(Command::new(&program).env("LD_LIBRARY_PATH", library.parent().unwrap()));
    }
}

/// Exceptions of the caller's memory functions, in C++.
#[test]
fn exceptions_of_callbacks_reach_the_caller() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("exceptions");
    let library = library();
    run(Command::new("g++")
        .args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(root().join("include"))
        .arg(root().join("tests/data/exceptions_test.cc"))
        .arg(&library)
        .arg("-o")
        .arg(&program));
    let output = Command::new(&program)
        .env("LD_LIBRARY_PATH", library.parent().unwrap())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
