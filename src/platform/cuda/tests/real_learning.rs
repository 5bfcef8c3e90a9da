//! The gradient step on a real GPU, bit for bit that of the CPU platform. On a machine without one they print a skip.

use super::real::{Block, bound, get, gpus, put};
use super::real_rows::{Noise, aligned, at, values, workspace};
use crate::kinds::DType;
use crate::platform::cpu::CpuPlatform;
use crate::platform::learning::{LearningKernels, OptimizerKind, RoundRobin, Rule, Step};
use crate::platform::{Indices, Launch, Rows, Stream};
use crate::span::Address;

/// What a step reads and writes: ids, gradients, table, states, powers.
type Memory = [Address; 5];

struct Case {
    rule: Rule,
    table_dtype: DType,
    gradient_dtype: DType,
    rows: usize,
    count: usize,
    cols: usize,
    row_stride: usize,
    gradient_stride: usize,
    first_row: u64,
}

impl Case {
    fn states(&self) -> usize {
        self.rule.optimizer.element_states()
    }

    fn state_stride_bytes(&self) -> usize {
        self.states() * self.row_stride * 4
    }

    fn with<T>(&self, memory: Memory, body: impl FnOnce(&Step<'_>) -> T) -> T {
        let [ids, gradients, table, states, powers] = memory;
        let states: Vec<Address> = (0..self.states())
            .map(|k| states.offset_bytes(k * self.row_stride * 4))
            .collect();
        body(&Step {
            ids: Indices {
                address: ids,
                dtype: DType::Int64,
                count: self.count,
            },
            gradients: Rows {
                address: gradients,
                row_stride_bytes: self.gradient_stride * self.gradient_dtype.size_bytes(),
                dtype: self.gradient_dtype,
            },
            lots: &[],
            cols: self.cols,
            first_row: self.first_row,
            rows: self.rows as u64,
            table: Rows {
                address: table,
                row_stride_bytes: self.row_stride * self.table_dtype.size_bytes(),
                dtype: self.table_dtype,
            },
            rule: self.rule,
            states: &states,
            state_stride_bytes: self.state_stride_bytes(),
            beta_powers: match self.rule.optimizer.has_beta_powers() {
                true => powers,
                false => Address::NULL,
            },
            cache: None,
        })
    }
}

/// Ids of which one in 8 is the same, one in 8 names no row of this rank, and the others are spread.
fn ids(noise: &mut Noise, case: &Case) -> Vec<u8> {
    (0..case.count)
        .flat_map(|_| {
            let row = match noise.below(8) {
                0 => case.rows as i64 / 2,
                1 => noise.below(1000) as i64 - 1000,
                2 => case.rows as i64 + noise.below(1000) as i64,
                _ => noise.below(case.rows as u64) as i64,
            };
            (case.first_row as i64 + row).to_le_bytes()
        })
        .collect()
}

#[test]
fn steps_are_those_of_the_cpu() {
    if gpus() == 0 {
        return;
    }
    let (platform, cpu, mut noise) = (bound(0), CpuPlatform, Noise(21));
    for (optimizer, table_dtype) in OptimizerKind::ALL
        .iter()
        .flat_map(|kind| [DType::Float, DType::Half, DType::Bf16].map(|dtype| (*kind, dtype)))
    {
        for (count, cols) in [(1, 3), (300, 128), (20_000, 17), (5000, 260)] {
            let unit = 16 / table_dtype.size_bytes();
            let case = Case {
                rule: Rule {
                    optimizer,
                    adam_w: noise.below(2) as u32,
                    learning_rate: 0.01,
                    weight_decay: 0.02,
                    epsilon: 1e-8,
                    beta1: 0.9,
                    beta2: 0.999,
                    alpha: 0.99,
                },
                table_dtype,
                gradient_dtype: [DType::Float, DType::Half, DType::Bf16][noise.below(3) as usize],
                rows: 1 + noise.below(3000) as usize,
                count,
                cols,
                row_stride: cols.next_multiple_of(unit),
                gradient_stride: cols + noise.below(3) as usize,
                first_row: noise.below(1 << 40),
            };
            let gradient_elements = count * case.gradient_stride;
            let bytes = [
                ids(&mut noise, &case),
                values(&mut noise, case.gradient_dtype, gradient_elements),
                values(&mut noise, table_dtype, case.rows * case.row_stride),
                vec![0; case.rows * case.state_stride_bytes().max(4)],
                1f32.to_le_bytes().repeat(2 * case.rows),
            ];
            let blocks = bytes.each_ref().map(|bytes| {
                let block = Block::new(&platform, bytes.len());
                put(&platform, block.address(), bytes);
                block
            });
            let host = bytes.each_ref().map(|bytes| aligned(bytes));
            let on_gpu = blocks.each_ref().map(|block| block.address());
            for _ in 0..3 {
                case.with(on_gpu, |step| {
                    let needed = platform.step_workspace_bytes(step).unwrap();
                    let (_room, launch) = workspace(&platform, needed);
                    platform.step(step, launch).unwrap();
                    crate::platform::Platform::synchronize(&platform, Stream(0)).unwrap();
                });
                case.with(host.each_ref().map(|words| at(words)), |step| {
                    cpu.step(step, Launch::default()).unwrap();
                });
            }
            for (what, i) in [("rows", 2), ("states", 3), ("powers", 4)] {
                // SAFETY: the words hold that many bytes.
                let want =
                    unsafe { std::slice::from_raw_parts(host[i].as_ptr().cast::<u8>(), bytes[i].len()) };
                assert!(
                    get(&platform, blocks[i].address(), bytes[i].len()) == want,
                    "{what} of {optimizer:?} on {table_dtype} by {}: {count} gradients of {cols} columns",
                    case.gradient_dtype
                );
            }
        }
    }
}

#[test]
fn rows_are_dealt_and_values_set_as_on_the_cpu() {
    if gpus() == 0 {
        return;
    }
    let (platform, cpu) = (bound(0), CpuPlatform);
    let map = RoundRobin {
        block_rows: 7,
        ranks: 3,
        rank_rows: 400,
        rows: 1150,
    };
    let ids: Vec<u8> = (-5i32..1200).flat_map(i32::to_le_bytes).collect();
    let count = ids.len() / 4;
    let (given, mapped) = (Block::new(&platform, ids.len()), Block::new(&platform, count * 8));
    put(&platform, given.address(), &ids);
    let (host_given, host_mapped) = (aligned(&ids), aligned(&vec![0; count * 8]));
    let indices = |address| Indices {
        address,
        dtype: DType::Int,
        count,
    };
    let launch = Launch::default();
    platform
        .map_rows(&indices(given.address()), &map, mapped.address(), launch)
        .unwrap();
    cpu.map_rows(&indices(at(&host_given)), &map, at(&host_mapped), launch)
        .unwrap();
    let want: Vec<u8> = host_mapped[..count]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    assert!(get(&platform, mapped.address(), count * 8) == want);
    platform.fill(mapped.address(), 5, 2.5, Stream(0)).unwrap();
    let got = get(&platform, mapped.address(), 24);
    assert_eq!(got[..20], 2.5f32.to_le_bytes().repeat(5));
    assert_eq!(got[20..], want[20..24]);
}
