//! The rules of the house: calls between rooms go down only, `unsafe` stays in two rooms, files stay short, every header has its
//! file. ARCHITECTURE.md says why.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Rooms from the lowest to the highest; those of one row do not know each other.
const ROOMS: [&[&str]; 7] = [
    &["platform"],
    &["comm"],
    &["memory"],
    &["tensor"],
    &["ops"],
    &["embedding", "inference"],
    &["ffi"],
];

const UNSAFE_ROOMS: [&str; 2] = ["ffi", "platform"];
const MOST_LINES: usize = 600;
const SOURCE_FOLDERS: [&str; 7] = [
    "src",
    "kernels",
    "c_tests",
    "examples_c",
    "tests",
    "tests_py",
    "scripts",
];
const SOURCE_ENDINGS: [&str; 9] = ["rs", "c", "cc", "cpp", "h", "cu", "cuh", "py", "sh"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files_under(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_under(&path, found);
        } else {
            found.push(path);
        }
    }
}

fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in SOURCE_FOLDERS {
        files_under(&root().join(folder), &mut found);
    }
    found.retain(|path| {
        let ending = path.extension().and_then(|e| e.to_str()).unwrap_or("");
        SOURCE_ENDINGS.contains(&ending) && !path.starts_with(root().join("tests/data"))
    });
    found.sort();
    found
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

/// The Rust files under `src` with their text; comments are cut away.
fn rust_sources() -> Vec<(String, String)> {
    let under_src =
        |path: &PathBuf| path.starts_with(root().join("src")) && path.extension().is_some_and(|e| e == "rs");
    sources()
        .into_iter()
        .filter(under_src)
        .map(|path| {
            let code: String = fs::read_to_string(&path)
                .unwrap()
                .lines()
                .map(|line| line.split("//").next().unwrap_or("").to_owned() + "\n")
                .collect();
            (shown(&path), code)
        })
        .collect()
}

/// `src/comm/net.rs` is in room `comm`; files of the root are in none.
fn room_of(file: &str) -> Option<&str> {
    let (room, _) = file.strip_prefix("src/")?.split_once('/')?;
    Some(room)
}

fn floor_of(room: &str) -> Option<usize> {
    ROOMS.iter().position(|row| row.contains(&room))
}

fn word_at(text: &str) -> &str {
    let end = text
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(text.len());
    &text[..end]
}

/// The first words of all paths behind `crate::`, those in braces too.
fn crate_paths(code: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        let Some(inner) = rest.strip_prefix('{') else {
            found.push(word_at(rest));
            continue;
        };
        let mut depth = 0;
        let mut begin = true;
        for (i, c) in inner.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => begin = true,
                c if begin && !c.is_whitespace() => {
                    found.push(word_at(&inner[i..]));
                    begin = false;
                }
                _ => {}
            }
        }
    }
    found
}

#[test]
fn the_parser_sees_every_form() {
    let code = "use crate::comm::{A, B};\nuse crate::{memory, ops::{self, plan}, tensor::X};\nlet x = crate::ffi::y();";
    assert_eq!(crate_paths(code), ["comm", "memory", "ops", "tensor", "ffi"]);
    assert_eq!(room_of("src/comm/net.rs"), Some("comm"));
    assert_eq!(room_of("src/error.rs"), None);
    assert!(floor_of("platform") < floor_of("ffi"));
}

#[test]
fn every_folder_is_a_known_room() {
    let rooms: BTreeSet<String> = rust_sources()
        .iter()
        .filter_map(|(file, _)| room_of(file).map(str::to_owned))
        .collect();
    for room in &rooms {
        assert!(
            floor_of(room).is_some(),
            "src/{room} has no place in the order of the rooms"
        );
    }
    assert!(rooms.len() >= 6, "only {rooms:?} found");
}

#[test]
fn calls_go_down_only() {
    let mut wrong = Vec::new();
    for (file, code) in rust_sources() {
        if file == "src/lib.rs" {
            continue;
        }
        let own = room_of(&file);
        for word in crate_paths(&code) {
            let Some(floor) = floor_of(word) else { continue };
            let allowed = own.is_some_and(|own| own == word || floor_of(own) > Some(floor));
            if !allowed {
                wrong.push(format!("{file} uses crate::{word}"));
            }
        }
    }
    assert!(wrong.is_empty(), "calls go down only:\n{}", wrong.join("\n"));
}

/// `super` must not climb out of a room, where the order above would not see it.
#[test]
fn super_stays_in_its_room() {
    for (file, code) in rust_sources() {
        if room_of(&file).is_none() {
            continue;
        }
        let folders = file.matches('/').count() - 1;
        let depth = if file.ends_with("/mod.rs") {
            folders
        } else {
            folders + 1
        };
        let mut inline = 0;
        for line in code.lines() {
            inline += usize::from(line.trim_start().starts_with("mod ") && line.trim_end().ends_with('{'));
            let climbs = line.matches("super::").count();
            let nested = line.contains("super::super::");
            let most = depth - 1 + inline;
            assert!(!nested || climbs <= most, "{file} climbs out of its room: {line}");
            assert!(climbs == 0 || most > 0, "{file} climbs out of its room: {line}");
        }
    }
}

#[test]
fn unsafe_stays_in_two_rooms() {
    for (file, code) in rust_sources() {
        if room_of(&file).is_some_and(|room| UNSAFE_ROOMS.contains(&room)) {
            continue;
        }
        for (at, _) in code.match_indices("unsafe") {
            let word = word_at(&code[at..]);
            let lint =
                word == "unsafe_code" || word == "unsafe_op_in_unsafe_fn" || code[..at].ends_with("_in_");
            assert!(lint, "{file}: {word} outside of {UNSAFE_ROOMS:?}");
        }
    }
    let lib = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    assert!(lib.contains("#![deny(unsafe_code)]"));
}

#[test]
fn files_are_short_and_named_by_idea() {
    for path in sources() {
        let text = fs::read_to_string(&path).unwrap();
        let (lines, file) = (text.lines().count(), shown(&path));
        assert!(
            lines <= MOST_LINES,
            "{file} has {lines} lines, more than {MOST_LINES}: split it by idea"
        );
        let stem = path.file_stem().unwrap().to_str().unwrap();
        assert!(
            !["util", "utils", "helper", "helpers", "misc"].contains(&stem),
            "{file} is named after nothing"
        );
        let marks = [["TO", "DO"].concat(), ["FIX", "ME"].concat()];
        assert!(
            marks.iter().all(|mark| !text.contains(mark.as_str())),
            "{file} has an open end"
        );
    }
}

/// What puts files together (reports after tables, headers after headers) reads wrongly where one ends inside a line.
#[test]
fn texts_end_with_a_line() {
    let mut texts = Vec::new();
    files_under(&root().join("include"), &mut texts);
    texts.extend(fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path()));
    texts.retain(|path| {
        let ending = path.extension().and_then(|e| e.to_str()).unwrap_or("");
        path.is_file() && ["h", "md", "svg", "toml"].contains(&ending)
    });
    assert!(
        texts.contains(&root().join("BENCHMARKS.md")),
        "found only {texts:?}"
    );
    texts.extend(sources());
    let open: Vec<String> = texts
        .iter()
        .filter(|path| !fs::read(path).unwrap().ends_with(b"\n"))
        .map(|path| shown(path))
        .collect();
    assert!(open.is_empty(), "these end inside a line: {open:?}");
}

/// A header `x.h` comes from `src/ffi/x.rs` or the folder `src/ffi/x`; files with exports have a header.
#[test]
fn headers_and_files_of_the_door_pair_up() {
    let ffi = root().join("src/ffi");
    let headers: BTreeSet<String> = fs::read_dir(root().join("include/wholememory"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "h"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    for header in &headers {
        assert!(
            ffi.join(format!("{header}.rs")).exists() || ffi.join(header).join("mod.rs").exists(),
            "{header}.h has no file in src/ffi"
        );
    }
    for (file, code) in rust_sources() {
        let Some(rest) = file.strip_prefix("src/ffi/") else {
            continue;
        };
        let name = rest.split(['/', '.']).next().unwrap();
        // The two functions of hdfs.rs are declared nowhere, as in the published library.
        if code.contains("#[unsafe(no_mangle)]") && name != "hdfs" {
            assert!(
                headers.contains(name),
                "{file} exports functions but has no header"
            );
        }
    }
}

#[test]
fn every_export_says_its_contract() {
    for path in sources() {
        if !path.starts_with(root().join("src/ffi")) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for (i, line) in lines.iter().enumerate() {
            let exports = line.trim() == "#[unsafe(no_mangle)]";
            assert!(
                !exports || lines[i - 1].starts_with("///"),
                "{}:{} exports a function without a contract",
                shown(&path),
                i + 1
            );
        }
    }
}
