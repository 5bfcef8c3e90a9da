//! Structs that Rust and the kernels share, for the tests: as a C++ compiler lays them out, they must be those of Rust.

use std::fmt::Write;
use std::process::Command;

/// A struct's name in C++, its size and the places of its fields.
pub type Layout = (&'static str, usize, Vec<(&'static str, usize)>);

/// [`Layout`]s: `RustName = "cpp_name" { fields }`.
macro_rules! layouts {
    ($($rust:ident = $c:literal { $($field:ident),+ $(,)? })+) => {
        [$(($c, size_of::<$rust>(), vec![$((stringify!($field), std::mem::offset_of!($rust, $field))),+])),+]
    };
}
pub(super) use layouts;

/// Compiles the headers (of kernels/) with one assertion for every size, place and condition.
pub fn assert_layouts(headers: &[&str], structs: &[Layout], conditions: &[String]) {
    let mut source = String::from("#include <cstddef>\n");
    for header in headers {
        writeln!(source, "#include \"{header}\"").unwrap();
    }
    for (name, bytes, fields) in structs {
        writeln!(source, "static_assert(sizeof({name}) == {bytes}, \"{name}\");").unwrap();
        for (field, at) in fields {
            writeln!(
                source,
                "static_assert(offsetof({name}, {field}) == {at}, \"{name}.{field}\");"
            )
            .unwrap();
        }
    }
    for condition in conditions {
        writeln!(source, "static_assert({condition}, \"a constant\");").unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("layouts.cc");
    std::fs::write(&file, source).unwrap();
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "g++".into());
    let kernels = concat!(env!("CARGO_MANIFEST_DIR"), "/kernels");
    let output = Command::new(compiler)
        .args(["-std=c++17", "-fsyntax-only", "-I", kernels])
        .arg(&file)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
