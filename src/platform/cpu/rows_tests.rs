//! Gather and scatter against loops that say what is meant, element by element.

use super::rows;
use crate::kinds::DType;
use crate::platform::{Indices, Places, Rows, Selected, Table};
use crate::span::Address;
use half::{bf16, f16};
use proptest::prelude::*;

/// A row of `from` as one of `to`, element by element, by the scalar rules.
fn convert(from: DType, to: DType, bytes: &[u8]) -> Vec<u8> {
    match from == to {
        true => bytes.to_vec(),
        false => bytes
            .chunks(from.size_bytes())
            .flat_map(|one| element(from, to, one))
            .collect(),
    }
}

fn element(from: DType, to: DType, bytes: &[u8]) -> Vec<u8> {
    if from.is_float() {
        let value = match from {
            DType::Float => f32::from_le_bytes(bytes.try_into().expect("4 bytes")),
            DType::Double => f64::from_le_bytes(bytes.try_into().expect("8 bytes")) as f32,
            DType::Half => f16::from_le_bytes(bytes.try_into().expect("2 bytes")).to_f32_const(),
            _ => bf16::from_le_bytes(bytes.try_into().expect("2 bytes")).to_f32_const(),
        };
        return match to {
            DType::Float => value.to_le_bytes().to_vec(),
            DType::Double => f64::from(value).to_le_bytes().to_vec(),
            DType::Half => f16::from_f32_const(value).to_le_bytes().to_vec(),
            _ => bf16::from_f32_const(value).to_le_bytes().to_vec(),
        };
    }
    let negative = bytes.last().expect("a byte") & 0x80 != 0;
    let mut wide = [if negative { 0xff } else { 0 }; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    wide[..to.size_bytes()].to_vec()
}

fn noise(bytes: usize, mut seed: u64) -> Vec<u8> {
    (0..bytes)
        .map(|_| {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (seed >> 56) as u8
        })
        .collect()
}

/// A table over several buffers, plain rows, and ids, all at odd places.
#[derive(Debug)]
struct Case {
    table_type: DType,
    plain_type: DType,
    wide_ids: bool,
    cols: usize,
    table_pad_bytes: usize,
    plain_pad_bytes: usize,
    shift_bytes: usize,
    part_rows: Vec<usize>,
    flat: bool,
    ids: Vec<i64>,
}

struct Scene {
    parts: Vec<Vec<u8>>,
    bases: Vec<Address>,
    starts: Vec<u64>,
    plain: Vec<u8>,
    table_stride: usize,
    plain_stride: usize,
    id_bytes: Vec<u8>,
}

impl Case {
    fn scene(&self) -> Scene {
        let table_stride = self.cols * self.table_type.size_bytes() + self.table_pad_bytes;
        let plain_stride = self.cols * self.plain_type.size_bytes() + self.plain_pad_bytes;
        let sizes: Vec<usize> = match self.flat {
            true => vec![self.part_rows.iter().sum()],
            false => self.part_rows.clone(),
        };
        let parts: Vec<Vec<u8>> = sizes
            .iter()
            .enumerate()
            .map(|(k, rows)| noise(self.shift_bytes + rows * table_stride + 8, k as u64 + 1))
            .collect();
        let mut starts = vec![0u64];
        starts.extend(sizes.iter().scan(0, |sum, n| {
            *sum += *n as u64;
            Some(*sum)
        }));
        let id_bytes = std::iter::once(vec![0u8; self.shift_bytes])
            .chain(self.ids.iter().map(|id| match self.wide_ids {
                true => id.to_le_bytes().to_vec(),
                false => (*id as i32).to_le_bytes().to_vec(),
            }))
            .flatten()
            .collect();
        Scene {
            bases: parts.iter().map(|p| Address(p.as_ptr() as usize)).collect(),
            parts,
            starts,
            plain: noise(self.shift_bytes + self.ids.len() * plain_stride + 8, 99),
            table_stride,
            plain_stride,
            id_bytes,
        }
    }

    fn rows(&self) -> u64 {
        self.part_rows.iter().sum::<usize>() as u64
    }

    /// The part and the byte in it where a row begins.
    fn place(&self, scene: &Scene, id: i64) -> Option<(usize, usize)> {
        let id = if self.wide_ids { id } else { i64::from(id as i32) };
        if id < 0 || id as u64 >= self.rows() {
            return None;
        }
        let part = scene
            .starts
            .windows(2)
            .position(|w| w[0] <= id as u64 && (id as u64) < w[1])
            .expect("an owner");
        Some((
            part,
            self.shift_bytes + (id as u64 - scene.starts[part]) as usize * scene.table_stride,
        ))
    }

    /// All ids at once, or in two selections that take turns irregularly, one of them backwards.
    fn run(&self, scene: &Scene, gather: bool, selecting: bool) {
        let table = Table {
            places: match self.flat {
                true => Places::Flat(scene.bases[0]),
                false => Places::Ranks {
                    bases: &scene.bases,
                    start_rows: &scene.starts,
                },
            },
            offset_bytes: self.shift_bytes,
            row_stride_bytes: scene.table_stride,
            rows: self.rows(),
            cols: self.cols,
            dtype: self.table_type,
        };
        let ids = Indices {
            address: Address(scene.id_bytes.as_ptr() as usize + self.shift_bytes),
            dtype: if self.wide_ids { DType::Int64 } else { DType::Int },
            count: self.ids.len(),
        };
        let plain = Rows {
            address: Address(scene.plain.as_ptr() as usize + self.shift_bytes),
            row_stride_bytes: scene.plain_stride,
            dtype: self.plain_type,
        };
        if !selecting {
            let done = match gather {
                true => rows::gather(&table, &ids, &plain),
                false => rows::scatter(&plain, &ids, &table),
            };
            return done.expect("types of one kind");
        }
        let (some, mut others): (Vec<i64>, Vec<i64>) =
            (0..self.ids.len() as i64).partition(|i| i * i % 7 < 3);
        others.reverse();
        for positions in [some, others] {
            let selected = Selected {
                indices: ids,
                positions: Address(positions.as_ptr() as usize),
                count: positions.len(),
            };
            match gather {
                true => rows::gather_selected(&table, &selected, &plain),
                false => rows::scatter_selected(&plain, &selected, &table),
            }
            .expect("types of one kind");
        }
    }

    fn check_gather(&self, selecting: bool) {
        let scene = self.scene();
        let mut want = scene.plain.clone();
        for (i, id) in self.ids.iter().enumerate() {
            let Some((part, at)) = self.place(&scene, *id) else {
                continue;
            };
            let (f, t) = (self.table_type.size_bytes(), self.plain_type.size_bytes());
            let row = convert(
                self.table_type,
                self.plain_type,
                &scene.parts[part][at..][..self.cols * f],
            );
            want[self.shift_bytes + i * scene.plain_stride..][..self.cols * t].copy_from_slice(&row);
        }
        self.run(&scene, true, selecting);
        assert!(scene.plain == want, "{self:?}");
    }

    /// Ids are made distinct first: which of several equal ones wins is not specified.
    fn check_scatter(mut self, selecting: bool) {
        let mut seen = std::collections::HashSet::new();
        let wide = self.wide_ids;
        self.ids
            .retain(|id| seen.insert(if wide { *id } else { i64::from(*id as i32) }));
        let scene = self.scene();
        let mut want = scene.parts.clone();
        for (i, id) in self.ids.iter().enumerate() {
            let Some((part, at)) = self.place(&scene, *id) else {
                continue;
            };
            let (f, t) = (self.plain_type.size_bytes(), self.table_type.size_bytes());
            let from = self.shift_bytes + i * scene.plain_stride;
            let row = convert(
                self.plain_type,
                self.table_type,
                &scene.plain[from..][..self.cols * f],
            );
            want[part][at..][..self.cols * t].copy_from_slice(&row);
        }
        self.run(&scene, false, selecting);
        assert!(scene.parts == want, "{self:?}");
    }
}

fn types() -> impl Strategy<Value = (DType, DType)> {
    (0usize..2, 0usize..4, 0usize..4)
        .prop_map(|(kind, a, b)| (DType::ALL[kind * 4 + a], DType::ALL[kind * 4 + b]))
}

fn case() -> impl Strategy<Value = Case> {
    let shape = (
        types(),
        any::<bool>(),
        prop_oneof![1usize..40, Just(64), Just(127), Just(128), Just(1025)],
        prop_oneof![Just(0usize), 1usize..20],
        prop_oneof![Just(0usize), 1usize..20],
        prop_oneof![Just(0usize), 1usize..8],
    );
    let parts = prop_oneof![
        prop::collection::vec(0usize..12, 1..6),
        (1usize..9, 1usize..6).prop_map(|(rows, ranks)| vec![rows; ranks]),
    ];
    (shape, parts, any::<bool>(), any::<u64>(), 0usize..120).prop_map(
        |(shape, part_rows, flat, seed, count)| {
            let ((table_type, plain_type), wide_ids, cols, table_pad_bytes, plain_pad_bytes, shift_bytes) =
                shape;
            let rows = part_rows.iter().sum::<usize>() as i64;
            let ids = noise(count * 2, seed)
                .chunks(2)
                .map(|pick| match pick[0] {
                    0..8 => -1 - i64::from(pick[1]),
                    8..12 => rows + i64::from(pick[1]),
                    12 => i64::MIN,
                    13 => i64::MAX,
                    14 => i64::from(i32::MIN),
                    _ => i64::from(pick[1]) % rows.max(1),
                })
                .collect();
            Case {
                table_type,
                plain_type,
                wide_ids,
                cols,
                table_pad_bytes,
                plain_pad_bytes,
                shift_bytes,
                part_rows,
                flat,
                ids,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn gather_is_what_it_says(case in case(), selecting: bool) {
        case.check_gather(selecting);
    }

    #[test]
    fn scatter_is_what_it_says(case in case(), selecting: bool) {
        case.check_scatter(selecting);
    }
}

/// Jobs large enough for the pool and for stores past the caches, with gaps and at every alignment.
#[test]
fn large_jobs() {
    let ids = |count: usize| {
        (0..count as i64)
            .map(|i| if i % 97 == 3 { -i } else { i * 7919 % 4001 })
            .collect::<Vec<_>>()
    };
    for (types, cols, shift, plain_pad) in [
        ((DType::Float, DType::Float), 128, 0, 0),
        ((DType::Float, DType::Float), 127, 4, 0),
        ((DType::Half, DType::Half), 127, 2, 0),
        ((DType::Float, DType::Float), 300, 4, 12),
        ((DType::Float, DType::Float), 16, 1, 0),
        ((DType::Int8, DType::Int8), 21, 3, 0),
        ((DType::Float, DType::Half), 128, 0, 0),
        ((DType::Half, DType::Double), 33, 2, 0),
        ((DType::Float, DType::Bf16), 5000, 0, 0),
        ((DType::Int, DType::Int64), 50, 0, 8),
    ] {
        let bytes = cols * types.0.size_bytes().max(types.1.size_bytes());
        let case = || Case {
            table_type: types.0,
            plain_type: types.1,
            wide_ids: true,
            cols,
            table_pad_bytes: 0,
            plain_pad_bytes: plain_pad,
            shift_bytes: shift,
            part_rows: vec![1001, 1000, 0, 2000],
            flat: false,
            ids: ids((600 << 10) / bytes + 1),
        };
        for selecting in [false, true] {
            case().check_gather(selecting);
            case().check_scatter(selecting);
        }
    }
}
