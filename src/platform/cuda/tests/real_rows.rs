//! The operations on rows on a real GPU, against those of the CPU platform. On a machine without one they print a skip.

use super::real::{Block, bound, get, gpus, on_real, put};
use super::*;
use crate::kinds::{DType, Location};
use crate::platform::cpu::CpuPlatform;
use crate::platform::{
    Bootstrap, Indices, Kernels, Launch, Places, Rows, SegmentRequest, Segments, Selected, Stream, Table,
    Workspace,
};
use crate::span::Address;

pub(super) struct Noise(pub(super) u64);

impl Noise {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 29) % bound
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.below(256) as u8).collect()
    }
}

/// Words with the bytes of `bytes`, so that elements are aligned.
pub(super) fn aligned(bytes: &[u8]) -> Vec<u64> {
    let mut words = vec![0u64; bytes.len().div_ceil(8) + 2];
    // SAFETY: the words have room for the bytes.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), words.as_mut_ptr().cast(), bytes.len()) };
    words
}

pub(super) fn at(words: &[u64]) -> Address {
    Address(words.as_ptr() as usize)
}

/// Values that no conversion turns into a NaN, whose payload may differ between platforms.
pub(super) fn values(noise: &mut Noise, dtype: DType, count: usize) -> Vec<u8> {
    (0..count)
        .flat_map(|_| {
            let small = noise.below(4000) as f32 / 16.0 - 125.0;
            match dtype {
                DType::Float => (small * 1.001).to_le_bytes().to_vec(),
                DType::Double => (f64::from(small) * 1.000_000_1).to_le_bytes().to_vec(),
                DType::Half => half::f16::from_f32(small).to_le_bytes().to_vec(),
                DType::Bf16 => half::bf16::from_f32(small).to_le_bytes().to_vec(),
                integer => noise.bytes(integer.size_bytes()),
            }
        })
        .collect()
}

fn ids(noise: &mut Noise, dtype: DType, count: usize, rows: u64) -> Vec<u8> {
    (0..count)
        .flat_map(|_| {
            let id = noise.below(rows + rows / 4 + 2) as i64 - (rows / 8) as i64;
            match dtype {
                DType::Int => (id as i32).to_le_bytes().to_vec(),
                _ => id.to_le_bytes().to_vec(),
            }
        })
        .collect()
}

#[test]
fn gather_and_scatter_are_those_of_the_cpu() {
    if gpus() == 0 {
        return;
    }
    let (platform, cpu, mut noise) = (bound(0), CpuPlatform, Noise(11));
    for (from, to) in DType::ALL
        .iter()
        .flat_map(|from| DType::ALL.map(|to| (*from, to)))
    {
        if from.is_float() != to.is_float() {
            continue;
        }
        for ranks in [0, 1, 3, 9, 40] {
            let (rows, cols, count) = (
                1 + noise.below(300),
                1 + noise.below(40) as usize,
                1 + noise.below(600) as usize,
            );
            let index = if noise.below(2) == 0 {
                DType::Int
            } else {
                DType::Int64
            };
            let row_stride_bytes = (cols + noise.below(3) as usize) * from.size_bytes();
            let plain_stride_bytes = (cols + noise.below(3) as usize) * to.size_bytes();
            let table_bytes = values(
                &mut noise,
                from,
                rows as usize * row_stride_bytes / from.size_bytes(),
            );
            let plain_bytes = values(&mut noise, to, count * plain_stride_bytes / to.size_bytes());
            let id_bytes = ids(&mut noise, index, count, rows);
            let blocks = [&table_bytes, &plain_bytes, &id_bytes].map(|bytes| {
                let block = Block::new(&platform, bytes.len());
                put(&platform, block.address(), bytes);
                block
            });
            let mut start_rows: Vec<u64> = (0..ranks).map(|r| rows * r / ranks.max(1)).collect();
            start_rows.push(rows);
            let bases_from = |base: Address| -> Vec<Address> {
                start_rows[..ranks as usize]
                    .iter()
                    .map(|r| base.offset_bytes(*r as usize * row_stride_bytes))
                    .collect()
            };
            let host = [&table_bytes, &plain_bytes, &id_bytes].map(|bytes| aligned(bytes));
            let run = |kernels: &dyn Kernels, [table, plain, index_at]: [Address; 3], scatters: bool| {
                let bases = bases_from(table);
                let table = Table {
                    places: match ranks {
                        0 => Places::Flat(table),
                        _ => Places::Ranks {
                            bases: &bases,
                            start_rows: &start_rows,
                        },
                    },
                    offset_bytes: 0,
                    row_stride_bytes,
                    rows,
                    cols,
                    dtype: from,
                };
                let indices = Indices {
                    address: index_at,
                    dtype: index,
                    count,
                };
                let plain = Rows {
                    address: plain,
                    row_stride_bytes: plain_stride_bytes,
                    dtype: to,
                };
                let sms = [None, Some(1)][ranks as usize % 2];
                let launch = Launch {
                    sms,
                    ..Launch::default()
                };
                match scatters {
                    false => kernels.gather(&table, &indices, &plain, launch).unwrap(),
                    // One row, so that no two compete for a place.
                    true => {
                        let one = Indices { count: 1, ..indices };
                        kernels.scatter(&plain, &one, &table, launch).unwrap();
                    }
                }
            };
            for scatters in [false, true] {
                run(&platform, [0, 1, 2].map(|i| blocks[i].address()), scatters);
                run(&cpu, [0, 1, 2].map(|i| at(&host[i])), scatters);
            }
            for (block, words, bytes) in [
                (&blocks[0], &host[0], table_bytes.len()),
                (&blocks[1], &host[1], plain_bytes.len()),
            ] {
                // SAFETY: the words hold that many bytes.
                let want = unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), bytes) };
                assert!(
                    get(&platform, block.address(), bytes) == want,
                    "{from} {to} over {ranks} ranks, {cols} columns"
                );
            }
        }
    }
}

/// Of all ids every third, from the last one on.
fn every_third(count: usize) -> Vec<u8> {
    (0..count as i64)
        .rev()
        .step_by(3)
        .flat_map(i64::to_le_bytes)
        .collect()
}

#[test]
fn selected_rows_move_as_on_the_cpu() {
    if gpus() == 0 {
        return;
    }
    let (platform, cpu, mut noise) = (bound(0), CpuPlatform, Noise(29));
    for (from, to) in [
        (DType::Float, DType::Float),
        (DType::Float, DType::Half),
        (DType::Half, DType::Float),
        (DType::Int8, DType::Int64),
        (DType::Int16, DType::Int16),
    ] {
        for (rows, cols, pad) in [(200u64, 32usize, 0usize), (77, 7, 1), (900, 1, 0)] {
            let count = rows as usize;
            let index = [DType::Int, DType::Int64][cols % 2];
            let (table_stride, plain_stride) =
                ((cols + pad) * from.size_bytes(), (cols + pad) * to.size_bytes());
            // Every row once, backwards, so that no two compete for a place.
            let id_bytes: Vec<u8> = (0..count as i64)
                .rev()
                .flat_map(|id| id.to_le_bytes()[..index.size_bytes()].to_vec())
                .collect();
            let contents = [
                values(&mut noise, from, count * (cols + pad)),
                values(&mut noise, to, count * (cols + pad)),
                id_bytes,
                every_third(count),
            ];
            let blocks = contents.each_ref().map(|bytes| {
                let block = Block::new(&platform, bytes.len());
                put(&platform, block.address(), bytes);
                block
            });
            let host = contents.each_ref().map(|bytes| aligned(bytes));
            let run = |kernels: &dyn Kernels, [table, plain, ids, positions]: [Address; 4]| {
                let table = Table {
                    places: Places::Flat(table),
                    offset_bytes: 0,
                    row_stride_bytes: table_stride,
                    rows,
                    cols,
                    dtype: from,
                };
                let plain = Rows {
                    address: plain,
                    row_stride_bytes: plain_stride,
                    dtype: to,
                };
                let all = Selected {
                    indices: Indices {
                        address: ids,
                        dtype: index,
                        count,
                    },
                    positions,
                    count: count.div_ceil(3),
                };
                let launch = Launch::default();
                kernels.gather_selected(&table, &all, &plain, launch).unwrap();
                // Of what was gathered half goes back, one row on.
                let some = Selected {
                    positions: positions.offset_bytes(8),
                    count: all.count / 2,
                    ..all
                };
                kernels.scatter_selected(&plain, &some, &table, launch).unwrap();
            };
            run(&platform, [0, 1, 2, 3].map(|i| blocks[i].address()));
            run(&cpu, [0, 1, 2, 3].map(|i| at(&host[i])));
            for i in [0, 1] {
                // SAFETY: the words hold that many bytes.
                let want =
                    unsafe { std::slice::from_raw_parts(host[i].as_ptr().cast::<u8>(), contents[i].len()) };
                assert!(
                    get(&platform, blocks[i].address(), want.len()) == want,
                    "{from} {to}, {rows} rows of {cols}"
                );
            }
        }
    }
}

/// A workspace of the size asked for.
pub(super) fn workspace(platform: &CudaPlatform, bytes: usize) -> (Block<'_>, Launch) {
    let block = Block::new(platform, bytes);
    let workspace = Workspace {
        address: block.address(),
        bytes,
    };
    let launch = Launch {
        workspace,
        ..Launch::default()
    };
    (block, launch)
}

#[test]
fn ids_are_split_and_made_distinct_as_on_the_cpu() {
    if gpus() == 0 {
        return;
    }
    let (platform, cpu, mut noise) = (bound(0), CpuPlatform, Noise(5));
    for (count, owners) in [(1, 1), (1000, 3), (5000, 8), (100_000, 70)] {
        for index in [DType::Int, DType::Int64] {
            let rows = 1 + noise.below(1 << 20);
            let start_rows: Vec<u64> = (0..=owners).map(|k| rows * k / owners).collect();
            let bucket_of: Vec<u32> = (0..owners).map(|_| noise.below(owners) as u32).collect();
            let id_bytes = ids(&mut noise, index, count, rows);
            let host_ids = aligned(&id_bytes);
            let device_ids = Block::new(&platform, id_bytes.len());
            put(&platform, device_ids.address(), &id_bytes);
            let outputs = [id_bytes.len(), count * 8]
                .map(|bytes| (Block::new(&platform, bytes), aligned(&vec![0; bytes])));
            let on = |address| Indices {
                address,
                dtype: index,
                count,
            };
            let on_gpu = on(device_ids.address());
            let bytes = platform
                .bucket_workspace_bytes(&on_gpu, &start_rows, owners as usize)
                .unwrap();
            let (_room, launch) = workspace(&platform, bytes);
            let [(ids_out, host_out), (positions, host_positions)] = &outputs;
            let got = platform
                .bucket(
                    &on_gpu,
                    &start_rows,
                    &bucket_of,
                    owners as usize,
                    ids_out.address(),
                    positions.address(),
                    launch,
                )
                .unwrap();
            let want = cpu
                .bucket(
                    &on(at(&host_ids)),
                    &start_rows,
                    &bucket_of,
                    owners as usize,
                    at(host_out),
                    at(host_positions),
                    launch,
                )
                .unwrap();
            assert_eq!(got, want);
            let kept = want.iter().sum::<u64>() as usize;
            let same = |block: &Block<'_>, words: &[u64], bytes: usize| {
                // SAFETY: the words hold that many bytes.
                let want = unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), bytes) };
                get(&platform, block.address(), bytes) == want
            };
            assert!(
                same(ids_out, host_out, kept * index.size_bytes())
                    && same(positions, host_positions, kept * 8)
            );
            let error = platform
                .bucket(
                    &on_gpu,
                    &start_rows,
                    &bucket_of,
                    owners as usize,
                    ids_out.address(),
                    positions.address(),
                    Launch::default(),
                )
                .unwrap_err();
            assert_eq!(error.kind, crate::error::Kind::Logic, "{error}");

            // The ids that were kept are in range, as distinct ids must be.
            if kept == 0 {
                continue;
            }
            let kept_on = |address| Indices {
                address,
                dtype: index,
                count: kept,
            };
            let sorted = [id_bytes.len(), count * 8]
                .map(|bytes| (Block::new(&platform, bytes), aligned(&vec![0; bytes])));
            let [(unique, host_unique), (slots, host_slots)] = &sorted;
            let on_gpu = kept_on(ids_out.address());
            let (_room, launch) =
                workspace(&platform, platform.unique_workspace_bytes(&on_gpu, rows).unwrap());
            let got = platform
                .unique(&on_gpu, rows, unique.address(), slots.address(), launch)
                .unwrap();
            let want = cpu
                .unique(
                    &kept_on(at(host_out)),
                    rows,
                    at(host_unique),
                    at(host_slots),
                    launch,
                )
                .unwrap();
            assert_eq!(got, want);
            assert!(
                same(unique, host_unique, want as usize * index.size_bytes())
                    && same(slots, host_slots, kept * 8)
            );
        }
    }
}

/// A table on the host that is large enough for reading in order: with a workspace and without, the rows are the same.
#[test]
fn rows_of_the_host_read_in_order_are_the_same_rows() {
    on_real(1, |platform, boot| {
        let (cols, rows, count) = (31usize, 1u64 << 20, 100_000usize);
        let row_bytes = cols * 4;
        let request = SegmentRequest {
            location: Location::Host,
            starts_bytes: &[0, rows as usize * row_bytes],
            contiguous: true,
        };
        let segment = platform.create(&request, boot).unwrap();
        let base = segment.address_of_rank(boot.rank());
        let mut noise = Noise(3);
        for row in 0..rows as usize {
            // SAFETY: host memory of the segment.
            unsafe { ((base.0 + row * row_bytes) as *mut u32).write(row as u32) };
        }
        let id_bytes = ids(&mut noise, DType::Int64, count, rows);
        let (device_ids, output) = (
            Block::new(platform, id_bytes.len()),
            Block::new(platform, count * row_bytes),
        );
        put(platform, device_ids.address(), &id_bytes);
        let table = Table {
            places: Places::Flat(base),
            offset_bytes: 0,
            row_stride_bytes: row_bytes,
            rows,
            cols,
            dtype: DType::Int,
        };
        let indices = Indices {
            address: device_ids.address(),
            dtype: DType::Int64,
            count,
        };
        let rows_out = Rows {
            address: output.address(),
            row_stride_bytes: row_bytes,
            dtype: DType::Int,
        };
        let bytes = platform
            .gather_workspace_bytes(&table, &indices, Launch::default())
            .unwrap();
        assert!(bytes > 0, "a table on the host is read in order");
        let (_room, ordered) = workspace(platform, bytes);
        let gathered = [Launch::default(), ordered].map(|launch| {
            put(platform, output.address(), &vec![0xEE; count * row_bytes]);
            platform.gather(&table, &indices, &rows_out, launch).unwrap();
            get(platform, output.address(), count * row_bytes)
        });
        assert!(gathered[0] == gathered[1]);
        for (i, id) in id_bytes.as_chunks::<8>().0.iter().enumerate() {
            let id = i64::from_le_bytes(*id);
            let first = u32::from_le_bytes(gathered[1][i * row_bytes..][..4].try_into().unwrap());
            let want = if (0..rows as i64).contains(&id) {
                id as u32
            } else {
                0xEEEE_EEEE
            };
            assert_eq!(first, want);
        }
        let position_bytes = every_third(count);
        let positions = Block::new(platform, position_bytes.len());
        put(platform, positions.address(), &position_bytes);
        let selected = Selected {
            indices,
            positions: positions.address(),
            count: count.div_ceil(3),
        };
        let bytes = platform
            .gather_selected_workspace_bytes(&table, &selected, Launch::default())
            .unwrap();
        assert!(bytes > 0, "selected rows are read in order as well");
        let (_room, ordered) = workspace(platform, bytes);
        for launch in [Launch::default(), ordered] {
            put(platform, output.address(), &vec![0xEE; count * row_bytes]);
            platform
                .gather_selected(&table, &selected, &rows_out, launch)
                .unwrap();
            let got = get(platform, output.address(), count * row_bytes);
            for (i, row) in got.chunks(row_bytes).enumerate() {
                let want = match (count - 1 - i) % 3 {
                    0 => &gathered[0][i * row_bytes..][..row_bytes],
                    _ => &[0xEE; 31 * 4][..],
                };
                assert!(row == want, "row {i}");
            }
        }
        drop(segment);
    });
}

#[test]
fn row_numbers_are_added_as_on_the_cpu() {
    if gpus() == 0 {
        return;
    }
    let (platform, cpu, mut noise) = (bound(0), CpuPlatform, Noise(8));
    for dtype in DType::ALL {
        let (rows, cols) = (300, 17);
        let stride_bytes = 20 * dtype.size_bytes();
        let input = values(&mut noise, dtype, cols);
        let host_input = aligned(&input);
        let device_input = Block::new(&platform, input.len());
        put(&platform, device_input.address(), &input);
        let bytes = rows * stride_bytes;
        let (output, host_output) = (Block::new(&platform, bytes), aligned(&vec![7; bytes]));
        put(&platform, output.address(), &vec![7; bytes]);
        let rows_at = |address| Rows {
            address,
            row_stride_bytes: stride_bytes,
            dtype,
        };
        let launch = Launch::default();
        platform
            .add_row_numbers(
                device_input.address(),
                rows,
                cols,
                &rows_at(output.address()),
                launch,
            )
            .unwrap();
        cpu.add_row_numbers(at(&host_input), rows, cols, &rows_at(at(&host_output)), launch)
            .unwrap();
        crate::platform::Platform::synchronize(&platform, Stream(0)).unwrap();
        // SAFETY: the words hold that many bytes.
        let want = unsafe { std::slice::from_raw_parts(host_output.as_ptr().cast::<u8>(), bytes) };
        assert!(get(&platform, output.address(), bytes) == want, "{dtype}");
    }
}
