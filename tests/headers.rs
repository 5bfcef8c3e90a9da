//! The public headers are generated from `src/ffi` and committed; here they are made again and compared.
//! `WHOLEMEMORY_WRITE_HEADERS=1 cargo test --test headers` writes them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One public header: the Rust files it is made from, what it includes, and what cbindgen cannot say.
struct Header {
    name: &'static str,
    about: &'static str,
    sources: &'static [&'static str],
    includes: &'static str,
    /// Preprocessor macros, as C text behind the includes.
    macros: &'static str,
    /// Second declarations that give C++ the default arguments.
    defaults: &'static str,
}

const OP_INCLUDES: &str = "#include <wholememory/env_func_ptrs.h>\n#include <wholememory/wholememory.h>\n#include <wholememory/wholememory_tensor.h>\n";

const HEADERS: [Header; 11] = [
    Header {
        name: "wholememory",
        about: "Communicators, memory handles and files.",
        sources: &[
            "wholememory/library.rs",
            "wholememory/communicator.rs",
            "wholememory/memory.rs",
            "wholememory/file.rs",
        ],
        includes: "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n#include <unistd.h>\n\n#include <wholememory/global_reference.h>\n",
        macros: r#"/** Evaluates a call that returns a code; on failure prints where and returns the code from the enclosing function. */
#define WHOLEMEMORY_RETURN_ON_FAIL(call)                                                          \
  do {                                                                                            \
    wholememory_error_code_t wholememory_code_ = (call);                                          \
    if (wholememory_code_ != WHOLEMEMORY_SUCCESS) {                                               \
      fprintf(stderr, "%s:%d: %s failed with code %d\n", __FILE__, __LINE__, #call, (int)wholememory_code_); \
      return wholememory_code_;                                                                   \
    }                                                                                             \
  } while (0)
"#,
        defaults: r#"wholememory_error_code_t wholememory_init(unsigned int flags, LogLevel log_level = LEVEL_INFO);
wholememory_error_code_t wholememory_malloc(wholememory_handle_t *wholememory_handle_ptr,
                                            size_t total_size,
                                            wholememory_comm_t comm,
                                            wholememory_memory_type_t memory_type,
                                            wholememory_memory_location_t memory_location,
                                            size_t data_granularity,
                                            size_t *rank_entry_partition = nullptr);
"#,
    },
    Header {
        name: "global_reference",
        about: "How device code reaches the partitions of a handle.",
        sources: &["global_reference.rs"],
        includes: "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n",
        macros: "",
        defaults: "",
    },
    Header {
        name: "tensor_description",
        about: "Shapes and element types.",
        sources: &["tensor_description.rs"],
        includes: "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <stdlib.h>\n",
        macros: "",
        defaults: "",
    },
    Header {
        name: "wholememory_tensor",
        about: "Tensors over handles and over the caller's memory.",
        sources: &["wholememory_tensor.rs"],
        includes: "#include <wholememory/tensor_description.h>\n#include <wholememory/wholememory.h>\n",
        macros: "/** Says that get_wholememory_tensor_count is there. */\n#define WM_TENSOR_COUNT_DEBUG\n",
        defaults: r#"wholememory_error_code_t wholememory_create_tensor(wholememory_tensor_t *wholememory_tensor,
                                                   wholememory_tensor_description_t *tensor_description,
                                                   wholememory_comm_t comm,
                                                   wholememory_memory_type_t memory_type,
                                                   wholememory_memory_location_t memory_location,
                                                   size_t *tensor_entry_partition = nullptr);
"#,
    },
    Header {
        name: "env_func_ptrs",
        about: "Functions of the caller that give operations memory.",
        sources: &["env_func_ptrs.rs"],
        includes: "#if defined(__has_include)\n#if __has_include(<cuda_runtime_api.h>)\n#include <cuda_runtime_api.h>\n#endif\n#endif\n\n#include <wholememory/tensor_description.h>\n",
        macros: "",
        defaults: "",
    },
    Header {
        name: "wholememory_op",
        about: "Operations on rows.",
        sources: &["wholememory_op.rs"],
        includes: OP_INCLUDES,
        macros: "",
        defaults: r#"wholememory_error_code_t wholememory_gather(wholememory_tensor_t wholememory_tensor,
                                            wholememory_tensor_t indices_tensor,
                                            wholememory_tensor_t output_tensor,
                                            wholememory_env_func_t *p_env_fns,
                                            void *stream,
                                            int gather_sms = -1);
wholememory_error_code_t wholememory_scatter(wholememory_tensor_t input_tensor,
                                             wholememory_tensor_t indices_tensor,
                                             wholememory_tensor_t wholememory_tensor,
                                             wholememory_env_func_t *p_env_fns,
                                             void *stream,
                                             int scatter_sms = -1);
"#,
    },
    Header {
        name: "wholegraph_op",
        about: "Sampling of neighbours, and the random numbers behind it.",
        sources: &["wholegraph_op.rs"],
        includes: OP_INCLUDES,
        macros: "",
        defaults: "",
    },
    Header {
        name: "graph_op",
        about: "Operations on graphs.",
        sources: &["graph_op.rs"],
        includes: OP_INCLUDES,
        macros: "",
        defaults: "",
    },
    Header {
        name: "embedding",
        about: "Tables that can be cached and trained.",
        sources: &["embedding.rs"],
        includes: "#include <wholememory/env_func_ptrs.h>\n#include <wholememory/wholememory_tensor.h>\n",
        macros: "",
        defaults: r#"wholememory_error_code_t wholememory_create_embedding(wholememory_embedding_t *wholememory_embedding,
                                                      wholememory_tensor_description_t *embedding_tensor_description,
                                                      wholememory_comm_t comm,
                                                      wholememory_memory_type_t memory_type,
                                                      wholememory_memory_location_t memory_location,
                                                      wholememory_embedding_cache_policy_t cache_policy,
                                                      size_t *embedding_entry_partition = nullptr,
                                                      int user_defined_sms = -1,
                                                      int round_robin_size = 0);
"#,
    },
    Header {
        name: "cache_stats",
        about: "What the cache of an embedding did.",
        sources: &["cache_stats.rs"],
        includes: "#include <stdint.h>\n\n#include <wholememory/embedding.h>\n",
        macros: "",
        defaults: "",
    },
    Header {
        name: "error",
        about: "Why a call failed, in words.",
        sources: &["error.rs"],
        includes: "",
        macros: "",
        defaults: "",
    },
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Names of the public structs, enums and types of a source: cbindgen writes only those that functions reach.
fn public_types(source: &str) -> Vec<String> {
    source
        .lines()
        .filter_map(|line| {
            ["pub struct ", "pub enum ", "pub type "]
                .iter()
                .find_map(|start| line.strip_prefix(start))
        })
        .map(|rest| {
            rest.chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect()
        })
        .collect()
}

fn generate(header: &Header) -> String {
    let guard = format!("WHOLEMEMORY_{}_H_", header.name.to_uppercase());
    let mut config = cbindgen::Config {
        language: cbindgen::Language::C,
        cpp_compat: true,
        style: cbindgen::Style::Both,
        no_includes: true,
        usize_is_size_t: true,
        documentation_style: cbindgen::DocumentationStyle::Doxy,
        line_length: 110,
        ..Default::default()
    };
    config.enumeration.prefix_with_name = false;
    config.header = Some(format!(
        "/* {} Generated from src/ffi by `make headers`; do not edit.\n *\n\
         \x20* A failing call says why in wholememory_get_last_error() (wholememory/error.h). Outputs are written only on success,\n\
         \x20* where nothing else is said. All functions may be called from any thread.\n */\n\n\
         #ifndef {guard}\n#define {guard}",
        header.about
    ));
    let mut after = String::new();
    if !header.includes.is_empty() {
        after.push_str(header.includes);
    }
    if !header.macros.is_empty() {
        after.push('\n');
        after.push_str(header.macros);
    }
    config.after_includes = Some(after).filter(|text| !text.is_empty());
    // The guard is written here, because cbindgen would close it before the trailer.
    let mut trailer = String::new();
    if !header.defaults.is_empty() {
        trailer = format!(
            "/* Default arguments for C++, by a second declaration. */\n#ifdef __cplusplus\n\
             #ifdef __GNUC__\n#pragma GCC diagnostic push\n#pragma GCC diagnostic ignored \"-Wredundant-decls\"\n#endif\n\
             extern \"C\" {{\n{}}}\n#ifdef __GNUC__\n#pragma GCC diagnostic pop\n#endif\n#endif\n\n",
            header.defaults
        );
    }
    config.trailer = Some(format!("{trailer}#endif  /* {guard} */"));
    let mut builder = cbindgen::Builder::new();
    for source in header.sources {
        let path = root().join("src/ffi").join(source);
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        config.export.include.extend(public_types(&text));
        builder = builder.with_src(path);
    }
    let mut out = Vec::new();
    builder
        .with_config(config)
        .generate()
        .unwrap_or_else(|e| panic!("{}.h: {e}", header.name))
        .write(&mut out);
    let text = String::from_utf8(out).expect("cbindgen writes UTF-8");
    text.replace("\n\n\n", "\n\n")
}

fn header_path(name: &str) -> PathBuf {
    root().join("include/wholememory").join(format!("{name}.h"))
}

#[test]
fn headers_are_fresh() {
    let write = std::env::var_os("WHOLEMEMORY_WRITE_HEADERS").is_some();
    let mut stale = Vec::new();
    for header in &HEADERS {
        let path = header_path(header.name);
        let text = generate(header);
        if write {
            fs::write(&path, &text).unwrap();
        } else if fs::read_to_string(&path).ok().as_deref() != Some(&text) {
            stale.push(header.name);
        }
    }
    assert!(stale.is_empty(), "stale headers {stale:?}: run `make headers`");
}

#[test]
fn include_holds_only_known_headers() {
    for entry in fs::read_dir(root().join("include/wholememory")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let known = name == "device_reference.cuh" || HEADERS.iter().any(|h| format!("{}.h", h.name) == name);
        assert!(known, "include/wholememory/{name} is not generated here");
    }
}

fn compile(compiler: &str, args: &[&str], include: &Path, source: &Path) {
    let output = Command::new(compiler)
        .args(args)
        .args(["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"])
        .arg("-I")
        .arg(include)
        .arg(source)
        .output()
        .unwrap_or_else(|e| panic!("{compiler}: {e}"));
    assert!(
        output.status.success(),
        "{compiler} {args:?}:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Each header alone, and all together, twice.
#[test]
fn headers_are_valid_c11_and_cpp17() {
    let dir = tempfile::tempdir().unwrap();
    let include = dir.path().join("wholememory");
    fs::create_dir(&include).unwrap();
    for header in &HEADERS {
        fs::write(include.join(format!("{}.h", header.name)), generate(header)).unwrap();
    }
    let line = |name: &str| format!("#include <wholememory/{name}.h>\n");
    let mut texts: Vec<String> = HEADERS.iter().map(|h| line(h.name)).collect();
    texts.push(texts.concat().repeat(2));
    for (i, text) in texts.iter().enumerate() {
        let source = dir.path().join(format!("use{i}.c"));
        fs::write(&source, format!("{text}int main(void) {{ return 0; }}\n")).unwrap();
        compile("gcc", &["-std=c11", "-x", "c"], dir.path(), &source);
        compile("g++", &["-std=c++17", "-x", "c++"], dir.path(), &source);
    }
}
