//! The formulas of kernels/common/, compiled by g++, against those of the library, bit for bit.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use wholegraph::kinds::DType;
use wholegraph::platform::cpu::address::Resolver;
use wholegraph::platform::cpu::caching::formulas;
use wholegraph::platform::cpu::convert::row_converter;
use wholegraph::platform::cpu::learning::rule::{RowPowers, apply};
use wholegraph::platform::learning::{OptimizerKind, RoundRobin, Rule};
use wholegraph::platform::random::{Pcg, unweighted_threads, weighted_rank, weighted_threads};
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
    for ranks in [0usize, 1, 2, 3, 7, 8, 9, 16, 17, 64, 512] {
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

            let mut input = vec![
                ranks as u64,
                table.offset_bytes as u64,
                table.row_stride_bytes as u64,
                rows,
            ];
            match ranks {
                0 => input.push(flat.0 as u64),
                _ => {
                    input.extend(bases.iter().map(|b| b.0 as u64));
                    input.extend(&starts);
                }
            }
            input.extend(&ids);
            let resolver = Resolver::new(&table);
            let want: Vec<u64> = ids
                .iter()
                .flat_map(|id| {
                    let alone = ranks == 0 && (*id == 0 || id.wrapping_add(1) == rows);
                    let at_an_end =
                        ranks > 0 && (starts.contains(id) || starts.contains(&id.wrapping_add(1)));
                    let inside = *id < rows && !alone && !at_an_end;
                    [resolver.row(*id) as u64, u64::from(inside)]
                })
                .collect();
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
            draws.push(Pcg::new(*seed, *subsequence).u64());
            draws
        })
        .collect();
    let input: Vec<u64> = pairs.iter().flat_map(|(a, b)| [*a, *b]).collect();
    assert!(numbers("draws", &input) == want);
}

#[test]
fn keys_of_weights() {
    let mut noise = Noise(5);
    let mut input = Vec::new();
    let mut want = Vec::new();
    for case in 0..20_000 {
        let (seed, subsequence) = (noise.next(), noise.below(1 << 40));
        let weight = match case % 8 {
            0 => f32::from_bits(noise.next() as u32),
            1 => [0.0, -0.0, f32::INFINITY, -1.0, 1e-45, f32::NAN][noise.below(6) as usize],
            _ => noise.below(1000) as f32 / 8.0 + 0.125,
        };
        input.extend([seed, subsequence, u64::from(weight.to_bits())]);
        let mut pcg = Pcg::new(seed, subsequence);
        let minus_u = pcg.minus_uniform();
        let rank = weighted_rank(f64::from(weight), minus_u);
        want.extend([minus_u.to_bits(), rank, rank, pcg.u32()].map(u64::from));
    }
    assert!(numbers("keys", &input) == want);
}

#[test]
fn layouts_of_draws() {
    let input: Vec<u64> = (1..=1100).chain([1 << 20, u64::from(u32::MAX)]).collect();
    let want: Vec<u64> = input
        .iter()
        .flat_map(|most| [unweighted_threads(*most as u32), weighted_threads(*most as u32)])
        .map(u64::from)
        .collect();
    assert_eq!(numbers("layouts", &input), want);
}

const MOVE: u64 = 1;
const SHIFT: u64 = 2;
const CONVERT: u64 = 3;
const CONVERT_SHIFT: u64 = 4;

#[test]
fn launch_shapes() {
    // columns, bytes read and written, whether types differ, bits of both sides => path, access, pieces a row
    let table: [([u64; 6], [u64; 3]); 21] = [
        // Equal types, everything a multiple of 16 bytes.
        ([128, 4, 4, 0, 512, 512], [MOVE, 16, 32]),
        ([8, 2, 2, 0, 16, 0x70], [MOVE, 16, 1]),
        ([2, 8, 8, 0, 1 << 20, 16], [MOVE, 16, 1]),
        // A narrower access where it costs no more than a shifted one.
        ([1, 4, 4, 0, 4, 4], [MOVE, 4, 1]),
        ([3, 4, 4, 0, 12, 12], [MOVE, 4, 3]),
        ([100, 2, 2, 0, 200, 200], [MOVE, 8, 25]),
        ([1, 1, 1, 0, 1, 1], [MOVE, 1, 1]),
        ([7, 8, 8, 0, 56, 56], [MOVE, 8, 7]),
        ([5, 1, 1, 0, 5, 5], [MOVE, 1, 5]),
        // Rows of odd lengths and places.
        ([127, 2, 2, 0, 254, 254], [SHIFT, 0, 18]),
        ([127, 2, 2, 0, 256, 254], [SHIFT, 0, 18]),
        ([127, 2, 2, 0, 256, 256], [SHIFT, 0, 17]),
        ([127, 4, 4, 0, 512, 508], [SHIFT, 0, 34]),
        ([128, 4, 4, 0, 516, 512], [SHIFT, 0, 33]),
        ([7, 1, 1, 0, 7, 7], [SHIFT, 0, 3]),
        // Different types: whole pieces of 4 floats and halves, of 2 doubles.
        ([128, 4, 2, 1, 512, 256], [CONVERT, 0, 32]),
        ([128, 2, 4, 1, 256, 512], [CONVERT, 0, 32]),
        ([2, 8, 1, 1, 16, 2], [CONVERT, 0, 1]),
        ([126, 4, 2, 1, 512, 256], [CONVERT_SHIFT, 0, 33]),
        ([128, 4, 2, 1, 516, 256], [CONVERT_SHIFT, 0, 33]),
        ([127, 4, 2, 1, 512, 254], [CONVERT_SHIFT, 0, 34]),
    ];
    let input: Vec<u64> = table.iter().flat_map(|(case, _)| *case).collect();
    let want: Vec<u64> = table.iter().flat_map(|(_, shape)| *shape).collect();
    assert_eq!(numbers("shapes", &input), want);
}

#[test]
fn tiles_shrink_with_the_centers() {
    // centers, fewest and most seats => seats
    let table: [([u64; 3], u64); 9] = [
        ([1, 1, 8], 1),
        ([2047, 1, 8], 1),
        ([4096, 1, 8], 2),
        ([10_000, 1, 8], 4),
        ([200_000, 1, 8], 8),
        ([1000, 3, 32], 3),
        ([8192, 3, 32], 4),
        ([200_000, 3, 32], 32),
        ([(1 << 31) - 2, 32, 32], 32),
    ];
    let input: Vec<u64> = table.iter().flat_map(|(case, _)| *case).collect();
    let want: Vec<u64> = table.iter().map(|(_, seats)| *seats).collect();
    assert_eq!(numbers("seats", &input), want);
}

#[test]
fn pieces_find_their_rows_without_dividing() {
    let mut noise = Noise(4);
    let limit = 1u64 << 31;
    let mut pairs = Vec::new();
    for per_row in (1..200).chain([255, 256, 257, (1 << 30) - 1, 1 << 30, (1 << 30) + 1, limit - 1]) {
        let multiple = per_row * (noise.below(limit) / per_row);
        for piece in [
            0,
            1,
            per_row - 1,
            per_row,
            multiple,
            multiple.saturating_sub(1),
            limit - 1,
            noise.below(limit),
        ] {
            if piece < limit {
                pairs.push((per_row, piece));
            }
        }
    }
    pairs.extend((0..5000).map(|_| {
        (
            1 + noise.below(limit - 1) % (1 << noise.below(31)),
            noise.below(limit),
        )
    }));
    let input: Vec<u64> = pairs
        .iter()
        .flat_map(|(per_row, piece)| [*per_row, *piece])
        .collect();
    let want: Vec<u64> = pairs.iter().map(|(per_row, piece)| piece / per_row).collect();
    assert!(numbers("splits", &input) == want);
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

#[test]
fn dealt_rows() {
    let mut noise = Noise(6);
    let (mut input, mut want) = (Vec::new(), Vec::new());
    for _ in 0..5000 {
        let (rows_bits, block_bits) = (1 + noise.below(40), 1 + noise.below(20));
        let rows = 1 + noise.below(1 << rows_bits);
        let map = RoundRobin {
            block_rows: 1 + noise.below(1 << block_bits),
            ranks: 1 + noise.below(70),
            rank_rows: noise.below(rows + 5),
            rows,
        };
        for id in [0, noise.below(rows), rows - 1, rows, u64::MAX, 1 << 63] {
            input.extend([map.block_rows, map.ranks, map.rank_rows, map.rows, id]);
            want.push(map.row(id as i64) as u64);
        }
    }
    assert_eq!(numbers("dealt", &input), want);
}

#[test]
fn optimizers() {
    let mut noise = Noise(5);
    let mut floats = |count: usize, scale: f32| -> Vec<f32> {
        let one = |bits: u64| match bits % 40 {
            0 => 0.0,
            1 => f32::from_bits((bits >> 32) as u32),
            _ => ((bits >> 40) as f32 / 8_388_608.0 - 1.0) * scale,
        };
        (0..count).map(|_| one(noise.next())).collect()
    };
    for case in 0..200 {
        let rule = Rule {
            optimizer: OptimizerKind::ALL[case % 4],
            adam_w: (case / 4 % 2) as u32,
            learning_rate: floats(1, 0.1)[0],
            weight_decay: floats(1, 0.05)[0],
            epsilon: 1e-8,
            beta1: 0.9,
            beta2: 0.999,
            alpha: 0.99,
        };
        let before = RowPowers {
            beta1: 0.9f32.powi(case as i32 % 7),
            beta2: 0.999f32.powi(case as i32 % 7),
        };
        let count = 300;
        let (mut w, g, mut first) = (floats(count, 3.0), floats(count, 2.0), floats(count, 1.0));
        let mut second: Vec<f32> = floats(count, 1.0).iter().map(|v| v.abs()).collect();
        let head = [
            rule.learning_rate,
            rule.weight_decay,
            rule.epsilon,
            rule.beta1,
            rule.beta2,
            rule.alpha,
            before.beta1,
            before.beta2,
        ];
        let mut input: Vec<u8> = [rule.optimizer as u32, rule.adam_w]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        input.extend(head.iter().flat_map(|value| value.to_le_bytes()));
        for i in 0..count {
            input.extend(
                [w[i], g[i], first[i], second[i]]
                    .iter()
                    .flat_map(|v| v.to_le_bytes()),
            );
        }
        let output = run(&["optimizer".into()], &input);
        let got: Vec<f32> = output
            .chunks(4)
            .map(|raw| f32::from_le_bytes(raw.try_into().expect("4 bytes")))
            .collect();
        let powers = before.next(&rule);
        apply(&rule, powers, &mut w, &g, &mut first, &mut second);
        let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
        assert!(same(got[0], powers.beta1) && same(got[1], powers.beta2));
        assert_eq!(got.len(), 2 + 3 * count);
        for i in 0..count {
            let want = [w[i], first[i], second[i]];
            let here = &got[2 + 3 * i..][..3];
            assert!(
                want.iter().zip(here).all(|(a, b)| same(*a, *b)),
                "{rule:?} element {i}: {here:?}, the library {want:?}"
            );
        }
    }
}

#[test]
fn caches() {
    let mut noise = Noise(11);
    let mut input = Vec::new();
    let mut want = Vec::new();
    for case in 0..5000u64 {
        let row = noise.next() >> (32 + case % 32);
        let (sets, words) = (
            1 + noise.below(1 << (case % 40)),
            1 + noise.below(1 << (case % 40)),
        );
        // Words of any content, sparse ones and full ones.
        let word = [
            noise.next(),
            noise.next() & noise.next() & noise.next(),
            u64::MAX,
            0,
        ][case as usize % 4];
        let count = noise.below(40);
        input.extend([row, sets, words, word, count]);
        let hash = formulas::hash(row);
        want.extend([
            hash,
            formulas::set_of(row, hash, sets, false),
            formulas::set_of(row, hash, sets, true),
            formulas::sketch_word(hash, words),
            u64::from(formulas::estimate(word, hash)),
            formulas::counted(word, hash),
            formulas::raised(word, hash, count as u32),
            formulas::halved(word),
        ]);
    }
    assert_eq!(numbers("caches", &input), want);
}
