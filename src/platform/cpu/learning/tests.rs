use super::rule::{RowPowers, apply};
use super::*;
use crate::platform::Rows;
use crate::platform::learning::{OptimizerKind, Rule};
use half::{bf16, f16};
use proptest::prelude::*;

fn rule(optimizer: OptimizerKind) -> Rule {
    Rule {
        optimizer,
        adam_w: 0,
        learning_rate: 0.125,
        weight_decay: 0.0,
        epsilon: 1e-8,
        beta1: 0.9,
        beta2: 0.999,
        alpha: 0.99,
    }
}

/// Values that no type rounds when few of them are summed, and whose long sums depend on the order.
fn value(i: usize) -> f32 {
    ((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f32 / 65536.0 - 128.0
}

/// The sum of the contract, one gradient after the other.
fn contract_sum(values: &[f32]) -> f32 {
    let left_to_right = |values: &[f32]| {
        let (first, others) = values.split_first().expect("at least one");
        others.iter().fold(*first, |sum, value| sum + value)
    };
    let runs: Vec<f32> = values.chunks(512).map(left_to_right).collect();
    left_to_right(&runs)
}

fn address<T>(values: &mut [T]) -> Address {
    Address(values.as_mut_ptr() as usize)
}

/// A step in a workspace of the size that it asks for, or in none.
fn step(step: &Step<'_>) -> Result<()> {
    let bytes = match step.ids.count % 2 {
        0 => step_workspace(step),
        _ => 0,
    };
    let mut block = vec![0xAAu8; bytes];
    let workspace = Workspace {
        address: Address(block.as_mut_ptr() as usize),
        bytes,
    };
    // SAFETY: the block outlives the call.
    unsafe { super::step(step, workspace) }
}

/// What a step takes is never more than it asks for, whatever the number of gradients of each row.
#[test]
fn the_workspace_suffices() {
    let mut next = 7u64;
    for count in [0, 1, 2, 511, 512, 513, 1024, 1025, 1026, 4000, 9999] {
        for rows in [1, 2, 3, 50, 20_000u64] {
            let mut ids: Vec<i64> = (0..count)
                .map(|_| {
                    next = next.wrapping_mul(6364136223846793005).wrapping_add(1);
                    // Half of them for few rows.
                    let few = if next >> 63 == 0 { rows } else { rows.div_ceil(9) };
                    ((next >> 33) % few) as i64
                })
                .collect();
            let asked = Step {
                ids: Indices {
                    address: address(&mut ids),
                    dtype: DType::Int64,
                    count: ids.len(),
                },
                gradients: Rows {
                    address: Address::NULL,
                    row_stride_bytes: 0,
                    dtype: DType::Float,
                },
                lots: &[],
                cols: 3,
                first_row: 0,
                rows,
                table: Rows {
                    address: Address::NULL,
                    row_stride_bytes: 0,
                    dtype: DType::Float,
                },
                rule: rule(OptimizerKind::Sgd),
                states: &[],
                state_stride_bytes: 0,
                beta_powers: Address::NULL,
                cache: None,
            };
            // SAFETY: no workspace at all.
            let mut working = unsafe { Working::new(Workspace::default()) };
            let pairs = sorted_pairs(&asked, &mut working).unwrap();
            let (segments, hot_runs) = segments(&pairs, &mut working).unwrap();
            let taken = workspace_bytes(&[
                pairs.len() * size_of::<Pair>(),
                segments.len() * size_of::<Segment>(),
                hot_runs.len() * size_of::<Run>(),
                hot_runs.len() * 3 * FLOAT_BYTES,
            ]);
            assert!(taken <= step_workspace(&asked), "{count} ids of {rows} rows");
        }
    }
}

/// A step of SGD with learning rate 1 on zero rows leaves minus the sum there.
fn check_sums(ids: &[i64], first_row: u64, rows: usize, cols: usize, stride: usize) {
    let mut table = vec![0f32; rows * stride];
    let mut gradients: Vec<f32> = (0..ids.len() * (cols + 1)).map(value).collect();
    let given = gradients.clone();
    let mut ids_here = ids.to_vec();
    step(&Step {
        ids: Indices {
            address: address(&mut ids_here),
            dtype: DType::Int64,
            count: ids.len(),
        },
        gradients: Rows {
            address: address(&mut gradients),
            row_stride_bytes: (cols + 1) * 4,
            dtype: DType::Float,
        },
        lots: &[],
        cols,
        first_row,
        rows: rows as u64,
        table: Rows {
            address: address(&mut table),
            row_stride_bytes: stride * 4,
            dtype: DType::Float,
        },
        rule: Rule {
            learning_rate: 1.0,
            ..rule(OptimizerKind::Sgd)
        },
        states: &[],
        state_stride_bytes: 0,
        beta_powers: Address::NULL,
        cache: None,
    })
    .unwrap();
    for row in 0..rows {
        let named: Vec<usize> = (0..ids.len())
            .filter(|i| ids[*i] == (first_row + row as u64) as i64)
            .collect();
        for col in 0..stride {
            let expected = if named.is_empty() || col >= cols {
                0.0
            } else {
                let values: Vec<f32> = named.iter().map(|i| given[i * (cols + 1) + col]).collect();
                0.0 - contract_sum(&values)
            };
            assert_eq!(
                table[row * stride + col].to_bits(),
                f32::to_bits(expected),
                "row {row} column {col}"
            );
        }
    }
}

proptest! {
    #[test]
    fn sums_are_in_the_order_of_the_contract(
        ids in prop::collection::vec(-2i64..14, 0..300),
        first_row in 0u64..4,
        cols in 1usize..9,
    ) {
        check_sums(&ids, first_row, 9, cols, 12);
    }
}

#[test]
fn hot_rows_are_summed_in_runs_on_all_threads() {
    let ids: Vec<i64> = (0..20_000).map(|i| if i % 3 == 0 { i % 7 } else { 4 }).collect();
    check_sums(&ids, 0, 7, 5, 8);
    for count in [511, 512, 513, 1024, 1025] {
        check_sums(&vec![1; count], 0, 3, 2, 4);
    }
}

#[test]
fn ids_beyond_64_bits_of_rows_are_left_out() {
    check_sums(&[i64::MIN, i64::MAX, -1, 3, 5], 3, 2, 4, 4);
}

/// Three steps against f64, for every optimizer and type of table and gradients.
#[test]
fn every_optimizer_and_type_follows_the_formulas() {
    let types = [DType::Float, DType::Half, DType::Bf16];
    for kind in OptimizerKind::ALL {
        for table_dtype in types {
            for gradient_dtype in types {
                for (weight_decay, adam_w) in [(0.0, 0), (0.03, 0), (0.03, 1)] {
                    check_steps(
                        Rule {
                            weight_decay,
                            adam_w,
                            ..rule(kind)
                        },
                        table_dtype,
                        gradient_dtype,
                    );
                }
            }
        }
    }
}

fn store(dtype: DType, values: &[f64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| match dtype {
            DType::Half => f16::from_f64(*value).to_le_bytes().to_vec(),
            DType::Bf16 => bf16::from_f64(*value).to_le_bytes().to_vec(),
            _ => (*value as f32).to_le_bytes().to_vec(),
        })
        .collect()
}

fn load(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    bytes
        .chunks(dtype.size_bytes())
        .map(|raw| match dtype {
            DType::Half => f16::from_le_bytes([raw[0], raw[1]]).to_f64(),
            DType::Bf16 => bf16::from_le_bytes([raw[0], raw[1]]).to_f64(),
            _ => f64::from(f32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]])),
        })
        .collect()
}

const ROWS: usize = 3;
const COLS: usize = 11;
const STRIDE: usize = 16;

fn check_steps(rule: Rule, table_dtype: DType, gradient_dtype: DType) {
    let first: Vec<f64> = (0..ROWS * STRIDE).map(|i| f64::from(value(i)) / 100.0).collect();
    let mut table = store(table_dtype, &first);
    let mut states = [vec![0f32; ROWS * STRIDE], vec![0f32; ROWS * STRIDE]];
    let mut powers = [1f32; 2 * ROWS];
    let mut w = load(table_dtype, &table);
    let (mut m, mut v) = (vec![0f64; w.len()], vec![0f64; w.len()]);
    for number in 0..3 {
        // Row 0 twice, row 2 once, row 1 never.
        let mut ids = [0i32, 2, 0];
        let gradients: Vec<f64> = (0..3 * COLS)
            .map(|i| f64::from(value(i + 77 * number)) / 64.0)
            .collect();
        let mut gradients = store(gradient_dtype, &gradients);
        let given = load(gradient_dtype, &gradients);
        let kept = [address(&mut states[0]), address(&mut states[1])];
        step(&Step {
            ids: Indices {
                address: address(&mut ids),
                dtype: DType::Int,
                count: 3,
            },
            gradients: Rows {
                address: address(&mut gradients),
                row_stride_bytes: COLS * gradient_dtype.size_bytes(),
                dtype: gradient_dtype,
            },
            lots: &[],
            cols: COLS,
            first_row: 0,
            rows: ROWS as u64,
            table: Rows {
                address: address(&mut table),
                row_stride_bytes: STRIDE * table_dtype.size_bytes(),
                dtype: table_dtype,
            },
            rule,
            states: &kept[..rule.optimizer.element_states()],
            state_stride_bytes: STRIDE * 4,
            beta_powers: match rule.optimizer.has_beta_powers() {
                true => address(&mut powers),
                false => Address::NULL,
            },
            cache: None,
        })
        .unwrap();
        for row in [0, 2] {
            for col in 0..COLS {
                let i = row * STRIDE + col;
                let gradient = match row {
                    0 => given[col] + given[2 * COLS + col],
                    _ => given[COLS + col],
                };
                in_f64(
                    &rule,
                    number as i32 + 1,
                    &mut w[i],
                    gradient,
                    &mut m[i],
                    &mut v[i],
                );
            }
        }
        // What the table's type rounds away is gone for the next step too.
        w = load(table_dtype, &store(table_dtype, &w));
        let bound = match table_dtype {
            DType::Half => 5e-3,
            DType::Bf16 => 2e-2,
            _ => 1e-5,
        };
        for (i, (got, expected)) in load(table_dtype, &table).iter().zip(&w).enumerate() {
            assert!(
                (got - expected).abs() <= bound * (1.0 + expected.abs()),
                "{rule:?} {table_dtype} {gradient_dtype} step {number} element {i}: {got}, expected {expected}"
            );
        }
    }
    let expected = match rule.optimizer.has_beta_powers() {
        true => [0.9f32 * 0.9 * 0.9, 0.999f32 * 0.999 * 0.999],
        false => [1.0, 1.0],
    };
    for (row, kept) in powers.chunks(2).enumerate() {
        let expected = if row == 1 { [1.0, 1.0] } else { expected };
        assert!(kept.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6));
    }
}

/// The formulas of the contract.
fn in_f64(rule: &Rule, steps: i32, w: &mut f64, gradient: f64, m: &mut f64, v: &mut f64) {
    let [rate, decay, epsilon] = [rule.learning_rate, rule.weight_decay, rule.epsilon].map(f64::from);
    let [beta1, beta2, alpha] = [rule.beta1, rule.beta2, rule.alpha].map(f64::from);
    let decayed = gradient + decay * *w;
    match rule.optimizer {
        OptimizerKind::Sgd => *w -= rate * decayed,
        OptimizerKind::LazyAdam => {
            let mut g = decayed;
            if rule.adam_w == 1 {
                *w -= rate * decay * *w;
                g = gradient;
            }
            *m = beta1 * *m + (1.0 - beta1) * g;
            *v = beta2 * *v + (1.0 - beta2) * g * g;
            let mean = *m / (1.0 - beta1.powi(steps));
            let spread = (*v / (1.0 - beta2.powi(steps))).sqrt();
            *w -= rate * mean / (spread + epsilon);
        }
        OptimizerKind::RmsProp => {
            *m = alpha * *m + (1.0 - alpha) * decayed * decayed;
            *w -= rate * decayed / (m.sqrt() + epsilon);
        }
        OptimizerKind::AdaGrad => {
            *m += decayed * decayed;
            *w -= rate * decayed / (m.sqrt() + epsilon);
        }
    }
}

#[test]
fn columns_that_gradients_lack_are_not_touched() {
    let mut row = [1.0f32, 2.0, 3.0];
    let (mut first, mut second) = ([0.0f32; 2], [0.0f32; 2]);
    let powers = RowPowers {
        beta1: 0.9,
        beta2: 0.999,
    };
    apply(
        &rule(OptimizerKind::LazyAdam),
        powers,
        &mut row[..2],
        &[1.0, -1.0],
        &mut first,
        &mut second,
    );
    assert!(row[0] < 1.0 && row[1] > 2.0 && row[2] == 3.0);
}

/// Rows and gradients so far apart that their distances need 64 bits; only the pages that are touched exist.
#[test]
fn distances_have_64_bits() {
    const STRIDE: usize = (1 << 31) + 64;
    const ROWS: usize = 4;
    let bytes = STRIDE * ROWS;
    // SAFETY: a fresh private mapping, given back below; nothing else knows of it.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            2 * bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    assert_ne!(base, libc::MAP_FAILED);
    let (table, gradients) = (base as usize, base as usize + bytes);
    let at = |base: usize, row: usize| (base + row * STRIDE) as *mut f32;
    // The last of the rows that INT can name, and ids just past them.
    let first_row = i32::MAX as u64 - 2;
    let mut ids = [i32::MAX, i32::MIN, i32::MAX - 2, i32::MAX];
    for i in 0..ids.len() {
        // SAFETY: inside the mapping.
        unsafe { at(gradients, i).write(1.0 + i as f32) };
    }
    step(&Step {
        ids: Indices {
            address: address(&mut ids),
            dtype: DType::Int,
            count: ids.len(),
        },
        gradients: Rows {
            address: Address(gradients),
            row_stride_bytes: STRIDE,
            dtype: DType::Float,
        },
        lots: &[],
        cols: 1,
        first_row,
        rows: ROWS as u64,
        table: Rows {
            address: Address(table),
            row_stride_bytes: STRIDE,
            dtype: DType::Float,
        },
        rule: Rule {
            learning_rate: 1.0,
            ..rule(OptimizerKind::Sgd)
        },
        states: &[],
        state_stride_bytes: 0,
        beta_powers: Address::NULL,
        cache: None,
    })
    .unwrap();
    for (row, expected) in [-3.0, 0.0, -5.0, 0.0].into_iter().enumerate() {
        // SAFETY: inside the mapping.
        assert_eq!(unsafe { at(table, row).read() }, expected, "row {row}");
    }
    // SAFETY: the mapping made above, which nothing points into any more.
    assert_eq!(unsafe { libc::munmap(base, 2 * bytes) }, 0);
}
