//! The formulas of kernels/common/, compiled by g++, against those of the library, bit for bit.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use wholegraph::kinds::DType;
use wholegraph::ops::random::Pcg;
use wholegraph::platform::cpu::address::Resolver;
use wholegraph::platform::cpu::convert::row_converter;
use wholegraph::platform::{Places, Table};
use wholegraph::span::Address;

fn program() -> &'static Path {
    static BUILT: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, program) = BUILT.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("kernels_common");
        let compiler = std::env::var_os("CXX").unwrap_or_else(|| "g++".into());
        let status = Command::new(compiler)
            .args(["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&program)
            .arg("-I")
            .arg(root.join("kernels"))
            .arg(root.join("tests/kernels_common.cc"))
            .status()
            .expect("a C++ compiler");
        assert!(status.success(), "the headers do not compile");
        (folder, program)
    });
    program
}

fn run(args: &[String], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new(program())
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("piped");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input).expect("it reads all"));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("written");
    assert!(output.status.success(), "{args:?}: {}", output.status);
    output.stdout
}

fn numbers(what: &str, input: &[u64]) -> Vec<u64> {
    let bytes: Vec<u8> = input.iter().flat_map(|v| v.to_le_bytes()).collect();
    run(&[what.into()], &bytes)
        .chunks(8)
        .map(|v| u64::from_le_bytes(v.try_into().expect("8 bytes")))
        .collect()
}

/// A fixed stream of bits to make cases of.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let mixed = (self.0 ^ (self.0 >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed ^ (mixed >> 29)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

#[test]
fn conversions() {
    let mut noise = Noise(1);
    for from in DType::ALL {
        // All 16-bit patterns in every element's upper half, noise and edges below.
        let mut input = Vec::new();
        for pattern in 0..=0xffffu64 {
            for low in [0, u64::MAX, 1 << 47, noise.next()] {
                let wide = pattern << 48 | low >> 16;
                input.extend(&wide.to_le_bytes()[8 - from.size_bytes()..]);
            }
            // Around the midpoints of half's and bf16's grids.
            let float = (pattern as u32) << 16
                | [0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001][pattern as usize % 6];
            match from {
                DType::Float => input.extend(float.to_le_bytes()),
                DType::Double => input.extend(f64::from(f32::from_bits(float)).to_le_bytes()),
                _ => {}
            }
        }
        for to in DType::ALL {
            let Some(convert) = row_converter(from, to) else {
                continue;
            };
            let count = input.len() / from.size_bytes();
            let mut want = vec![0u8; count * to.size_bytes()];
            // SAFETY: both buffers hold `count` elements.
            unsafe { convert(want.as_mut_ptr(), input.as_ptr(), count) };
            let got = run(
                &["convert".into(), from.raw().to_string(), to.raw().to_string()],
                &input,
            );
            let (f, t) = (from.size_bytes(), to.size_bytes());
            let first = (0..count).find(|i| want[i * t..][..t] != got[i * t..][..t]);
            assert_eq!(got.len(), want.len());
            if let Some(i) = first {
                panic!(
                    "{from} to {to}: {:02x?} gives {:02x?}, the library {:02x?}",
                    &input[i * f..][..f],
                    &got[i * t..][..t],
                    &want[i * t..][..t]
                );
            }
        }
    }
}

#[test]
fn addresses() {
    let mut noise = Noise(2);
    for ranks in [0usize, 1, 2, 3, 7, 8, 9, 64, 1000] {
        for equal in [true, false] {
            let mut starts = vec![0u64];
            for _ in 0..ranks.max(1) {
                let part = match (equal, noise.below(4)) {
                    (true, _) => 1 << 33,
                    (false, 0) => 0,
                    (false, _) => noise.below(1 << 34),
                };
                starts.push(starts.last().expect("one") + part);
            }
            let rows = *starts.last().expect("one");
            let bases: Vec<Address> = (0..ranks)
                .map(|_| Address(noise.below(1 << 46) as usize))
                .collect();
            let flat = Address(noise.below(1 << 46) as usize);
            let table = Table {
                places: match ranks {
                    0 => Places::Flat(flat),
                    _ => Places::Ranks {
                        bases: &bases,
                        start_rows: &starts,
                    },
                },
                offset_bytes: noise.below(4096) as usize,
                row_stride_bytes: noise.below(8192) as usize,
                rows,
                cols: 1,
                dtype: DType::Int8,
            };
            let mut ids: Vec<u64> = (0..2000).map(|_| noise.below(rows.max(1))).collect();
            ids.extend(starts.iter().flat_map(|s| [s.wrapping_sub(1), *s, s + 1]));
            ids.extend([u64::MAX, i64::MIN as u64, i64::MAX as u64, -5i64 as u64]);

            let mut input = vec![ranks as u64, flat.0 as u64];
            input.extend([table.offset_bytes as u64, table.row_stride_bytes as u64, rows]);
            input.extend(bases.iter().map(|b| b.0 as u64));
            if ranks > 0 {
                input.extend(&starts);
            }
            input.extend(&ids);
            let resolver = Resolver::new(&table);
            let want: Vec<u64> = ids.iter().map(|id| resolver.row(*id) as u64).collect();
            assert!(
                numbers("addresses", &input) == want,
                "{ranks} ranks, equal {equal}"
            );
        }
    }
}

#[test]
fn random_numbers() {
    let mut noise = Noise(3);
    let mut pairs = vec![
        (0, 0),
        (42, 7),
        (12345678901234, 3),
        (u64::MAX, u64::MAX),
        (5, 1 << 63),
    ];
    pairs.extend((0..500).map(|_| (noise.next(), noise.next() >> noise.below(64))));
    let want: Vec<u64> = pairs
        .iter()
        .flat_map(|(seed, subsequence)| {
            let mut pcg = Pcg::new(*seed, *subsequence);
            let mut draws = vec![
                u64::from(pcg.u32()),
                pcg.u64(),
                pcg.i31() as u64,
                pcg.i63() as u64,
                u64::from(pcg.f32().to_bits()),
            ];
            pcg.skip(*seed);
            draws.push(pcg.u64());
            draws
        })
        .collect();
    let input: Vec<u64> = pairs.iter().flat_map(|(a, b)| [*a, *b]).collect();
    assert!(numbers("draws", &input) == want);
}

#[test]
fn launch_shapes() {
    // rows, accesses a row, rows in flight, most blocks => lanes a row, blocks
    let table: [([u64; 4], [u64; 2]); 9] = [
        ([1, 1, 4, 528], [1, 1]),
        ([1 << 20, 1, 4, 528], [1, 528]),
        ([2048, 1, 4, 528], [1, 2]),
        ([2049, 1, 4, 528], [1, 3]),
        ([1000, 8, 4, 528], [8, 8]),
        ([1000, 32, 4, 528], [32, 32]),
        ([1000, 33, 4, 528], [32, 32]),
        ([10, 5, 2, 528], [8, 1]),
        ([u64::MAX >> 1, 1 << 40, 4, 1], [32, 1]),
    ];
    let input: Vec<u64> = table.iter().flat_map(|(case, _)| *case).collect();
    let want: Vec<u64> = table.iter().flat_map(|(_, shape)| *shape).collect();
    assert_eq!(numbers("launches", &input), want);
}

#[test]
fn access_widths() {
    let bits = [
        0u64,
        1,
        2,
        3,
        4,
        6,
        8,
        12,
        16,
        24,
        32,
        1 << 40,
        1 << 63,
        (1 << 40) | 4,
    ];
    assert_eq!(
        numbers("accesses", &bits),
        [16, 1, 2, 1, 4, 2, 8, 4, 16, 8, 16, 16, 16, 4]
    );
}
