//! Link settings of the shared library and its C++ and CUDA parts.

use std::collections::hash_map::DefaultHasher;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

fn main() {
    for arg in [
        "-Wl,-soname,libwholegraph.so",
        "-Wl,-z,nodelete",
        "-Wl,-rpath,$ORIGIN:$ORIGIN/../../nvidia/nccl/lib",
    ] {
        println!("cargo::rustc-cdylib-link-arg={arg}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    // A sanitizer's runtime is in the program, so the library has undefined symbols then.
    println!("cargo::rerun-if-env-changed=CARGO_CFG_SANITIZE");
    if env::var_os("CARGO_CFG_SANITIZE").is_none() {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,defs");
    }
    build_shim();
    println!("cargo::rustc-check-cfg=cfg(wholememory_kernels)");
    if let Err(reason) = build_kernels() {
        for line in reason.lines() {
            println!("cargo::error={line}");
        }
    }
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

/// The oldest nvcc that knows all the options and architectures used here.
const OLDEST_NVCC: (u32, u32) = (12, 8);
const ARCHITECTURES: &str = "80,90,100";

/// Compiles `kernels/*.cu` and links them, if there is an nvcc. `WHOLEMEMORY_NVCC`: `off` does without and says nothing,
/// `require` makes its absence an error; unset, its absence is a warning.
fn build_kernels() -> Result<(), String> {
    for name in [
        "WHOLEMEMORY_NVCC",
        "WHOLEMEMORY_CUDA_ARCHS",
        "NVCC",
        "CUDA_HOME",
        "CUDA_PATH",
        "VIRTUAL_ENV",
    ] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    println!("cargo::rerun-if-changed=kernels");
    let wish = env::var("WHOLEMEMORY_NVCC").unwrap_or_default();
    if !["", "auto", "off", "require"].contains(&wish.as_str()) {
        return Err(format!(
            "WHOLEMEMORY_NVCC is \"{wish}\", it must be auto, off or require"
        ));
    }
    if wish == "off" {
        return Ok(());
    }
    match find_nvcc() {
        Ok(nvcc) => {
            let toolkit = Toolkit::of(nvcc)?;
            toolkit.build()?;
            toolkit.link()
        }
        Err(reason) if wish == "require" => Err(format!(
            "WHOLEMEMORY_NVCC=require, but {reason} (scripts/get-cuda fetches one)"
        )),
        Err(reason) => {
            println!(
                "cargo::warning={reason}; building without CUDA kernels (scripts/get-cuda fetches a compiler, \
                 WHOLEMEMORY_NVCC=off silences this; one that is put into /usr/local/cuda later is found after touch build.rs)"
            );
            Ok(())
        }
    }
}

struct Nvcc {
    path: PathBuf,
    version: String,
}

/// The first usable nvcc of: NVCC, CUDA_HOME, CUDA_PATH, .cuda/, VIRTUAL_ENV, PATH, /usr/local/cuda.
fn find_nvcc() -> Result<Nvcc, String> {
    let variable = |name: &str| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let mut candidates: Vec<PathBuf> = variable("NVCC").into_iter().collect();
    candidates.extend(
        ["CUDA_HOME", "CUDA_PATH"]
            .into_iter()
            .filter_map(variable)
            .map(|p| p.join("bin/nvcc")),
    );
    candidates.extend(wheels_in(&root().join(".cuda")));
    if let Some(environment) = variable("VIRTUAL_ENV") {
        for python in folders_of(&environment.join("lib")) {
            candidates.extend(wheels_in(&python.join("site-packages")));
        }
    }
    candidates.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()).map(|p| p.join("nvcc")));
    candidates.push("/usr/local/cuda/bin/nvcc".into());

    candidates.retain(|path| path.is_file());
    let mut refused = Vec::new();
    for path in &candidates {
        match nvcc_version(path) {
            Ok((number, version)) if number >= OLDEST_NVCC => {
                println!("cargo::rustc-env=WHOLEMEMORY_CUDA_MAJOR={}", number.0);
                return Ok(Nvcc {
                    path: path.clone(),
                    version,
                });
            }
            Ok((number, _)) => refused.push(format!(
                "{} is version {}.{}, at least {}.{} is needed",
                path.display(),
                number.0,
                number.1,
                OLDEST_NVCC.0,
                OLDEST_NVCC.1
            )),
            Err(words) => refused.push(format!("{} does not run: {words}", path.display())),
        }
    }
    // One that comes later is looked for again. A place where there is none cannot be watched: to cargo what is missing has changed,
    // at every build.
    println!("cargo::rerun-if-env-changed=PATH");
    for path in &candidates {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    Err(match refused.is_empty() {
        true => "there is no nvcc".into(),
        false => refused.join("; "),
    })
}

fn root() -> PathBuf {
    PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"))
}

fn folders_of(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|e| e.path()).filter(|p| p.is_dir()).collect();
    folders.sort();
    folders
}

/// The compilers of wheels installed into `folder`, the newest toolkit first.
fn wheels_in(folder: &Path) -> Vec<PathBuf> {
    folders_of(&folder.join("nvidia"))
        .into_iter()
        .rev()
        .map(|toolkit| toolkit.join("bin/nvcc"))
        .collect()
}

fn nvcc_version(nvcc: &Path) -> Result<((u32, u32), String), String> {
    let text = run(Command::new(nvcc).arg("--version"))?;
    let number = text
        .split("release ")
        .nth(1)
        .and_then(|rest| rest.split([',', ' ']).next()?.split_once('.'))
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    number
        .map(|number| (number, text.clone()))
        .ok_or_else(|| format!("its version is unreadable: {text}"))
}

fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|e| e.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(format!(
            "{}\n{}\n{}",
            output.status,
            text(&output.stdout),
            text(&output.stderr)
        ))
    }
}

struct Toolkit {
    nvcc: Nvcc,
    libraries: PathBuf,
    flags: Vec<String>,
    /// Objects of all profiles, by what they were made from.
    cache: PathBuf,
    out: PathBuf,
}

impl Toolkit {
    fn of(nvcc: Nvcc) -> Result<Toolkit, String> {
        let real = nvcc
            .path
            .canonicalize()
            .map_err(|e| format!("{}: {e}", nvcc.path.display()))?;
        let home = real
            .parent()
            .and_then(Path::parent)
            .unwrap_or(Path::new("/usr/local/cuda"));
        let libraries = [
            "lib64",
            "lib",
            "targets/x86_64-linux/lib",
            "targets/sbsa-linux/lib",
        ]
        .into_iter()
        .map(|folder| home.join(folder))
        .find(|folder| folder.join("libcudart_static.a").is_file())
        .ok_or_else(|| format!("there is no libcudart_static.a beside {}", real.display()))?;
        let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
        let target = out
            .ancestors()
            .find(|folder| folder.join("CACHEDIR.TAG").is_file());
        let cache = target.unwrap_or(&out).join("cuda-objects");
        fs::create_dir_all(&cache).map_err(|e| format!("{}: {e}", cache.display()))?;
        Ok(Toolkit {
            flags: flags()?,
            nvcc,
            libraries,
            cache,
            out,
        })
    }

    fn build(&self) -> Result<(), String> {
        let folder = root().join("kernels");
        let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let mut sources: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
        sources.retain(|path| path.extension() == Some(OsStr::new("cu")));
        let objects = self.objects(sources)?;
        let archive = self.out.join("libwholememory_kernels.a");
        let _ = fs::remove_file(&archive);
        let ar = env::var_os("AR").unwrap_or_else(|| "ar".into());
        run(Command::new(ar).arg("crs").arg(&archive).args(&objects)).map_err(|e| format!("ar: {e}"))?;
        Ok(())
    }

    /// As many compilers side by side as cargo allows jobs; the longest sources first, so that none is left alone at the end.
    fn objects(&self, mut sources: Vec<PathBuf>) -> Result<Vec<PathBuf>, String> {
        let bytes = |path: &PathBuf| fs::metadata(path).map_or(0, |it| it.len());
        sources.sort_by(|a, b| bytes(b).cmp(&bytes(a)).then_with(|| a.cmp(b)));
        let jobs: usize = env::var("NUM_JOBS")
            .ok()
            .and_then(|jobs| jobs.parse().ok())
            .unwrap_or(1);
        let next = AtomicUsize::new(0);
        let compile = || {
            let turns = std::iter::from_fn(|| sources.get(next.fetch_add(1, Ordering::Relaxed)));
            turns
                .map(|source| self.object(source))
                .collect::<Result<Vec<_>, _>>()
        };
        let made: Result<Vec<Vec<_>>, String> = thread::scope(|scope| {
            let workers: Vec<_> = (0..jobs.clamp(1, sources.len().max(1)))
                .map(|_| scope.spawn(compile))
                .collect();
            let ended = workers.into_iter().map(|worker| {
                worker
                    .join()
                    .unwrap_or_else(|_| Err("a thread that compiles kernels panicked".into()))
            });
            ended.collect()
        });
        let mut objects = made?.concat();
        objects.sort();
        Ok(objects)
    }

    /// The object of a source, compiled only if the source, a header it included the last time, the flags or the compiler
    /// changed.
    fn object(&self, source: &Path) -> Result<PathBuf, String> {
        let stem = source.file_stem().and_then(OsStr::to_str).unwrap_or("kernel");
        let mut hasher = DefaultHasher::new();
        (&self.flags, &self.nvcc.version).hash(&mut hasher);
        // The list of includes belongs to a compiler and its flags.
        let list = self.cache.join(format!("{stem}-{:016x}.d", hasher.finish()));
        let named = |includes: &str| {
            let mut hasher = hasher.clone();
            for include in includes.lines() {
                (include, fs::read(root().join(include)).ok()).hash(&mut hasher);
            }
            self.cache.join(format!("{stem}-{:016x}.o", hasher.finish()))
        };
        if let Ok(includes) = fs::read_to_string(&list) {
            let object = named(&includes);
            if object.is_file() {
                return Ok(object);
            }
        }
        let fresh = self.out.join(format!("{stem}.o"));
        let made = self.out.join(format!("{stem}.d"));
        let mut command = Command::new(&self.nvcc.path);
        command
            .current_dir(root())
            .args(&self.flags)
            .arg("-MD")
            .arg("-MF")
            .arg(&made);
        run(command.arg("-c").arg(source).arg("-o").arg(&fresh)).map_err(|e| {
            format!(
                "{} (WHOLEMEMORY_NVCC=off builds without): {e}",
                self.nvcc.path.display()
            )
        })?;
        let includes =
            own_includes(&fs::read_to_string(&made).map_err(|e| format!("{}: {e}", made.display()))?);
        let object = named(&includes);
        // Other builds may look at the cache at the same time: things appear there whole.
        let keep = |from: &Path, to: &Path| {
            let passing = to.with_extension(format!("{}", std::process::id()));
            fs::copy(from, &passing)
                .and_then(|_| fs::rename(&passing, to))
                .map_err(|e| format!("{}: {e}", to.display()))
        };
        keep(&fresh, &object)?;
        fs::write(&made, includes).map_err(|e| format!("{}: {e}", made.display()))?;
        keep(&made, &list)?;
        Ok(object)
    }

    fn link(&self) -> Result<(), String> {
        println!("cargo::rustc-cfg=wholememory_kernels");
        println!("cargo::rustc-link-search=native={}", self.out.display());
        println!("cargo::rustc-link-lib=static=wholememory_kernels");
        println!("cargo::rustc-link-search=native={}", self.libraries.display());
        println!("cargo::rustc-link-lib=static=cudart_static");
        for library in ["rt", "pthread", "dl", "stdc++"] {
            println!("cargo::rustc-link-lib=dylib={library}");
        }
        Ok(())
    }
}

/// Machine code for every architecture, and PTX of the last one for those to come.
fn flags() -> Result<Vec<String>, String> {
    let wish = env::var("WHOLEMEMORY_CUDA_ARCHS").unwrap_or_default();
    let list = if wish.trim().is_empty() {
        ARCHITECTURES
    } else {
        &wish
    };
    let mut flags: Vec<String> = [
        "-O3",
        "-std=c++17",
        "-lineinfo",
        "-Xcompiler=-fPIC,-fvisibility=hidden,-Wall,-Wextra",
        "--threads=2",
        "--compress-mode=size",
        "-Ikernels",
    ]
    .map(String::from)
    .into();
    let mut last = String::new();
    for arch in list
        .split([',', ';', ' '])
        .map(str::trim)
        .filter(|a| !a.is_empty())
    {
        if arch.trim_end_matches(['a', 'f']).parse::<u32>().is_err() {
            return Err(format!(
                "WHOLEMEMORY_CUDA_ARCHS is \"{list}\", it must be like {ARCHITECTURES}"
            ));
        }
        flags.push(format!("-gencode=arch=compute_{arch},code=sm_{arch}"));
        last = arch.into();
    }
    flags.push(format!("-gencode=arch=compute_{last},code=compute_{last}"));
    Ok(flags)
}

/// The files of this project in a list of includes in make's form, one a line, relative to the root.
fn own_includes(rule: &str) -> String {
    let root = root();
    let list = rule
        .split_once(": ")
        .map_or("", |(_, list)| list)
        .replace("\\\n", " ");
    let mut own: Vec<String> = list
        .split_whitespace()
        .map(|path| root.join(path))
        .filter_map(|path| Some(path.strip_prefix(root.join("kernels")).ok()?.to_str()?.to_owned()))
        .map(|path| format!("kernels/{path}"))
        .collect();
    own.sort();
    own.dedup();
    own.join("\n")
}
