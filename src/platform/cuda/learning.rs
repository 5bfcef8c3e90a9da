//! What tables that learn need, in the context of the bound GPU. A step sorts the ids by their rows, then one kernel sums the
//! gradients of each row and changes it.

use super::CudaPlatform;
use super::cache::order_bits;
use super::kernels;
use super::launch::{ALL_BLOCKS, blocks};
use super::row_lists::RowLists;
use super::rows::{MOST_SORTED, check_workspace};
use crate::error::{Result, ensure};
use crate::platform::learning::{
    LearningKernels, Lot, MOST_GRADIENT_ROWS, MOST_LOTS, RoundRobin, Rule, Step,
};
use crate::platform::{Indices, Launch, Stream};
use crate::span::Address;
use std::ptr::null_mut;

/// Columns of a row that the kernel takes are fewer.
const MOST_COLS: usize = 1 << 28;

/// What rows and states are aligned to.
const ROW_ALIGNMENT_BYTES: usize = 16;

/// Blocks that change rows of the host's memory beside others that change lines of a cache: few of them keep the bus busy, and
/// stay close to each other; more of them also hold the others up (on an H200, 16 to 24 were best, 8 and 66 clearly worse).
const HOME_BLOCKS: u32 = 16;

/// `WMK_GROUP_WINDOW`.
const GROUP_WINDOW: usize = 64;

/// Scratch arrays begin at multiples of this.
pub(super) const SCRATCH_ALIGNMENT_BYTES: usize = 256;

/// `wmk_group_args`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GroupArgs {
    pub ids: Address,
    pub count: u64,
    pub first_row: u64,
    pub rows: u64,
    pub scratch: Address,
    pub scratch_bytes: u64,
    pub needed_bytes: *mut u64,
    pub rows_at: *mut Address,
    pub positions_at: *mut Address,
    pub zeros_at: *mut Address,
    pub id_bytes: u32,
    pub ascends: u32,
    pub lots: u32,
    pub spare: u32,
    pub lot_firsts: [u32; MOST_LOTS],
    pub lot_positions: [u32; MOST_LOTS],
}

/// `wmk_step_args`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StepArgs {
    pub sorted_rows: Address,
    pub positions: Address,
    pub zeros: Address,
    pub count: u64,
    pub rows: u64,
    pub gradients: Address,
    pub gradient_stride_bytes: u64,
    pub cols: u64,
    pub table: Address,
    pub table_stride_bytes: u64,
    pub states: [Address; 2],
    pub state_stride_bytes: u64,
    pub beta_powers: Address,
    pub row_places: Address,
    pub state_sources: Address,
    pub state_targets: Address,
    pub home_heads: Address,
    pub home_count: Address,
    pub scratch: Address,
    pub scratch_bytes: u64,
    pub needed_bytes: *mut u64,
    pub rule: Rule,
    pub gradient_dtype: u32,
    pub table_dtype: u32,
    pub blocks: u32,
    pub home_blocks: u32,
}

/// `wmk_map_rows_args`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MapRowsArgs {
    pub ids: Address,
    pub mapped: Address,
    pub count: u64,
    pub block_rows: u64,
    pub ranks: u64,
    pub rank_rows: u64,
    pub rows: u64,
    pub id_bytes: u32,
    pub reserved: u32,
}

/// `wmk_set_args`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SetArgs {
    pub values: Address,
    pub count: u64,
    pub value: f32,
    pub reserved: u32,
}

/// Where [`GroupArgs`] leaves the zeros behind those of its windows.
fn spare_zeros(zeros: Address, count: usize) -> Address {
    zeros.offset_bytes((count / GROUP_WINDOW + 1) * size_of::<u32>())
}

/// Bytes that number a row among `rows` and one more (`wmk_group`).
fn sorted_row_bytes(rows: u64) -> u32 {
    if rows <= u64::from(u32::MAX) { 4 } else { 8 }
}

impl CudaPlatform {
    /// Rows of the host's memory are changed by few blocks, which keep the bus busy and stay close to each other.
    fn step_blocks(&self, step: &Step<'_>, on_host: bool, launch: Launch) -> u32 {
        match launch.sms {
            Some(sms) => blocks(sms),
            None if step.cache.is_none() && on_host => blocks(self.multiprocessors()),
            None => ALL_BLOCKS,
        }
    }

    /// What the second half of a step needs; the first has what is behind it.
    fn change_bytes(&self, change: &StepArgs) -> Result<usize> {
        let mut needed = 0;
        let ask = StepArgs {
            needed_bytes: &mut needed,
            ..*change
        };
        kernels::step(&ask, Stream::default())?;
        Ok((needed as usize).next_multiple_of(SCRATCH_ALIGNMENT_BYTES))
    }
}

impl LearningKernels for CudaPlatform {
    fn step_workspace_bytes(&self, step: &Step<'_>) -> Result<usize> {
        if step.ids.count == 0 {
            return Ok(0);
        }
        let on_host = self.gpu.is_on_host(step.table.address);
        let mut group_bytes = 0;
        let group = GroupArgs {
            needed_bytes: &mut group_bytes,
            ..group_args(step, on_host)?
        };
        let change = step_args(step)?;
        let _entered = self.gpu.enter()?;
        kernels::group(&group, Stream::default())?;
        let (_, list_bytes) = RowLists::cut(Address::NULL, step, on_host);
        Ok(self.change_bytes(&change)? + list_bytes + group_bytes as usize)
    }

    fn step(&self, step: &Step<'_>, launch: Launch) -> Result<()> {
        if step.ids.count == 0 {
            return Ok(());
        }
        let _entered = self.gpu.enter()?;
        let mut change = step_args(step)?;
        let change_bytes = self.change_bytes(&change)?;
        let on_host = self.gpu.is_on_host(step.table.address);
        let lists_at = launch.workspace.address.offset_bytes(change_bytes);
        let (mut lists, list_bytes) = RowLists::cut(lists_at, step, on_host);
        let before_group = change_bytes + list_bytes;
        check_workspace("the gradient step", launch.workspace, before_group)?;
        change.scratch = launch.workspace.address;
        change.scratch_bytes = change_bytes as u64;
        change.blocks = self.step_blocks(step, on_host, launch);
        let group = GroupArgs {
            scratch: launch.workspace.address.offset_bytes(before_group),
            scratch_bytes: (launch.workspace.bytes - before_group) as u64,
            rows_at: &mut change.sorted_rows,
            positions_at: &mut change.positions,
            zeros_at: &mut change.zeros,
            ..group_args(step, on_host)?
        };
        kernels::group(&group, launch.stream)?;
        if let Some(view) = step.cache {
            let sorted = (change.sorted_rows, sorted_row_bytes(step.rows), step.ids.count);
            lists.home_buckets = spare_zeros(change.zeros, step.ids.count);
            self.locate_in_cache(view, sorted, &lists, launch.stream)?;
            change.row_places = lists.places;
            (change.state_sources, change.state_targets) = (lists.state_sources, lists.state_targets);
            (change.home_heads, change.home_count) = (lists.home_heads, lists.home_count);
        }
        kernels::step(&change, launch.stream)?;
        self.launched("the gradient step", launch.stream)
    }

    fn map_rows(&self, indices: &Indices, map: &RoundRobin, mapped: Address, launch: Launch) -> Result<()> {
        let args = MapRowsArgs {
            ids: indices.address,
            mapped,
            count: indices.count as u64,
            block_rows: map.block_rows,
            ranks: map.ranks,
            rank_rows: map.rank_rows,
            rows: map.rows,
            id_bytes: indices.dtype.size_bytes() as u32,
            reserved: 0,
        };
        let _entered = self.gpu.enter()?;
        kernels::map_rows(&args, launch.stream)?;
        self.launched("mapping rows by round robin", launch.stream)
    }

    fn fill(&self, address: Address, count: usize, value: f32, stream: Stream) -> Result<()> {
        let args = SetArgs {
            values: address,
            count: count as u64,
            value,
            reserved: 0,
        };
        let _entered = self.gpu.enter()?;
        kernels::set(&args, stream)?;
        self.launched("setting values", stream)
    }
}

/// Everything but where the results go, of a table in the host's memory or not. Such rows are best changed in their order; others
/// come together quicker in any order. Where a cache has most of them, the few others are brought into theirs when they are
/// known, counted in spare zeros.
fn group_args(step: &Step<'_>, on_host: bool) -> Result<GroupArgs> {
    ensure!(
        step.ids.count <= MOST_SORTED,
        NotSupported,
        "a gradient step with {} gradients for one rank; the kernels for GPUs take up to {MOST_SORTED}",
        step.ids.count
    );
    let rows = |k: usize, lot: &Lot| {
        let end = step
            .lots
            .get(k + 1)
            .map_or(step.ids.count as u64, |next| next.first);
        lot.row + (end - lot.first)
    };
    ensure!(
        step.lots.len() <= MOST_LOTS
            && step
                .lots
                .iter()
                .enumerate()
                .all(|(k, lot)| rows(k, lot) <= MOST_GRADIENT_ROWS),
        Logic,
        "a gradient step with gradients in {:?}; up to {MOST_LOTS} lots of fewer than {MOST_GRADIENT_ROWS} rows together are taken",
        step.lots
    );
    let of_lots = |what: fn(&Lot) -> u64| {
        let mut words = [0; MOST_LOTS];
        for (word, lot) in words.iter_mut().zip(step.lots) {
            *word = what(lot) as u32;
        }
        words
    };
    Ok(GroupArgs {
        ids: step.ids.address,
        count: step.ids.count as u64,
        first_row: step.first_row,
        rows: step.rows,
        scratch: Address::NULL,
        scratch_bytes: 0,
        needed_bytes: null_mut(),
        rows_at: null_mut(),
        positions_at: null_mut(),
        zeros_at: null_mut(),
        id_bytes: step.ids.dtype.size_bytes() as u32,
        ascends: u32::from(on_host && step.cache.is_none()),
        lots: step.lots.len() as u32,
        spare: match on_host && step.cache.is_some() {
            true => 1 << order_bits(step.ids.count),
            false => 0,
        },
        lot_firsts: of_lots(|lot| lot.first),
        lot_positions: of_lots(|lot| lot.row),
    })
}

/// Everything but the sorted rows and the scratch.
fn step_args(step: &Step<'_>) -> Result<StepArgs> {
    ensure!(
        step.cols < MOST_COLS,
        NotSupported,
        "gradients of {} columns; the kernels for GPUs take fewer than {MOST_COLS}",
        step.cols
    );
    let states = [0, 1].map(|k| step.states.get(k).copied().unwrap_or_default());
    let places = [
        step.table.address.0,
        step.table.row_stride_bytes,
        step.state_stride_bytes,
        states[0].0,
        states[1].0,
    ];
    ensure!(
        places.iter().all(|at| at % ROW_ALIGNMENT_BYTES == 0),
        Logic,
        "rows at {:#x}, {} bytes apart, with states at {:#x} and {:#x}, {} bytes apart, are not all aligned to \
         {ROW_ALIGNMENT_BYTES} bytes",
        places[0],
        places[1],
        places[3],
        places[4],
        places[2]
    );
    Ok(StepArgs {
        sorted_rows: Address::NULL,
        positions: Address::NULL,
        zeros: Address::NULL,
        count: step.ids.count as u64,
        rows: step.rows,
        gradients: step.gradients.address,
        gradient_stride_bytes: step.gradients.row_stride_bytes as u64,
        cols: step.cols as u64,
        table: step.table.address,
        table_stride_bytes: step.table.row_stride_bytes as u64,
        states,
        state_stride_bytes: step.state_stride_bytes as u64,
        beta_powers: step.beta_powers,
        row_places: Address::NULL,
        state_sources: Address::NULL,
        state_targets: Address::NULL,
        home_heads: Address::NULL,
        home_count: Address::NULL,
        scratch: Address::NULL,
        scratch_bytes: 0,
        needed_bytes: null_mut(),
        rule: step.rule,
        gradient_dtype: step.gradients.dtype.raw(),
        table_dtype: step.table.dtype.raw(),
        blocks: ALL_BLOCKS,
        home_blocks: HOME_BLOCKS,
    })
}

#[cfg(test)]
mod tests {
    use super::super::layouts::{assert_layouts, layouts};
    use super::*;
    use crate::error::Kind;
    use crate::kinds::DType;
    use crate::platform::Rows;
    use crate::platform::caching::{CacheView, Geometry};
    use crate::platform::learning::OptimizerKind;

    fn step() -> Step<'static> {
        Step {
            ids: Indices {
                address: Address(0x1000),
                dtype: DType::Int64,
                count: 7,
            },
            gradients: Rows {
                address: Address(0x2004),
                row_stride_bytes: 36,
                dtype: DType::Float,
            },
            lots: &[Lot { first: 0, row: 5 }, Lot { first: 4, row: 20 }],
            cols: 9,
            first_row: 100,
            rows: 50,
            table: Rows {
                address: Address(0x3000),
                row_stride_bytes: 32,
                dtype: DType::Half,
            },
            rule: Rule {
                optimizer: OptimizerKind::LazyAdam,
                adam_w: 1,
                learning_rate: 0.1,
                weight_decay: 0.2,
                epsilon: 0.3,
                beta1: 0.4,
                beta2: 0.5,
                alpha: 0.0,
            },
            states: &[Address(0x4000), Address(0x4040)],
            state_stride_bytes: 128,
            beta_powers: Address(0x5000),
            cache: None,
        }
    }

    #[test]
    fn arguments_are_those_of_the_step() {
        let group = group_args(&step(), false).unwrap();
        assert_eq!(
            (group.lots, group.lot_firsts[1], group.lot_positions[..3].to_vec()),
            (2, 4, vec![5, 20, 0])
        );
        assert_eq!(
            (
                group.ids,
                group.count,
                group.first_row,
                group.rows,
                group.id_bytes
            ),
            (Address(0x1000), 7, 100, 50, 8)
        );
        let args = step_args(&step()).unwrap();
        assert_eq!(
            (
                args.gradients,
                args.gradient_stride_bytes,
                args.cols,
                args.gradient_dtype
            ),
            (Address(0x2004), 36, 9, 1)
        );
        assert_eq!(
            (args.table, args.table_stride_bytes, args.table_dtype, args.rows),
            (Address(0x3000), 32, 2, 50)
        );
        assert_eq!(
            (args.states, args.state_stride_bytes, args.beta_powers),
            ([Address(0x4000), Address(0x4040)], 128, Address(0x5000))
        );
        assert_eq!(args.rule, step().rule);
        let sgd = Step {
            states: &[],
            ..step()
        };
        assert_eq!(step_args(&sgd).unwrap().states, [Address::NULL; 2]);
    }

    #[test]
    fn cached_rows_are_listed() {
        let base = Address(0x1000);
        assert_eq!(RowLists::cut(base, &step(), true), (RowLists::default(), 0));
        let cache = CacheView {
            geometry: Geometry {
                ranks: 1,
                rows: 64,
                rank_rows: 64,
                coverage_rows: 64,
            },
            rank: 0,
            tags: &[],
            lines: &[],
            row_stride_bytes: 32,
            control: Address(0x6000),
            home: Address(0x3000),
            states: None,
        };
        let adam = Step {
            cache: Some(&cache),
            ..step()
        };
        // 7 addresses are less than 256 bytes.
        let lists = RowLists {
            places: Address(0x1000),
            state_sources: Address(0x1100),
            state_targets: Address(0x1200),
            ..RowLists::default()
        };
        assert_eq!(RowLists::cut(base, &adam, false), (lists, 0x300));
        let at_home = RowLists {
            home_heads: Address(0x1300),
            home_count: Address(0x1400),
            home_turns: Address(0x1500),
            ..lists
        };
        assert_eq!(RowLists::cut(base, &adam, true), (at_home, 0x600));
        let sgd = Step { states: &[], ..adam };
        let lists = RowLists {
            places: Address(0x1000),
            home_heads: Address(0x1100),
            home_count: Address(0x1200),
            home_turns: Address(0x1300),
            ..RowLists::default()
        };
        assert_eq!(RowLists::cut(base, &sgd, true), (lists, 0x400));
        // The host's rows in their order; few of them where a cache has the others.
        let order = |step: &Step<'_>, on_host| {
            let args = group_args(step, on_host).unwrap();
            (args.ascends, args.spare)
        };
        assert_eq!([order(&step(), false), order(&step(), true)], [(0, 0), (1, 0)]);
        assert_eq!(
            [order(&adam, false), order(&adam, true)],
            [(0, 0), (0, 1 << order_bits(adam.ids.count))]
        );
        let cases = [(1, 4), (u64::from(u32::MAX), 4), (1 << 32, 8), (1 << 40, 8)];
        assert_eq!(
            cases.map(|(rows, _)| sorted_row_bytes(rows)),
            cases.map(|(_, bytes)| bytes)
        );
    }

    #[test]
    fn what_the_kernels_do_not_take_is_refused() {
        let far = [Lot {
            first: 0,
            row: MOST_GRADIENT_ROWS - 6,
        }];
        let error = group_args(&Step { lots: &far, ..step() }, false).unwrap_err();
        assert_eq!(error.kind, Kind::Logic);
        let crowd = [Lot { first: 0, row: 0 }; MOST_LOTS + 1];
        assert_eq!(
            group_args(
                &Step {
                    lots: &crowd,
                    ..step()
                },
                false
            )
            .unwrap_err()
            .kind,
            Kind::Logic
        );
        let mut many = step();
        many.ids.count = MOST_SORTED + 1;
        assert_eq!(group_args(&many, false).unwrap_err().kind, Kind::NotSupported);
        let long = Step {
            cols: MOST_COLS,
            ..step()
        };
        assert_eq!(step_args(&long).unwrap_err().kind, Kind::NotSupported);
        let mut crooked = step();
        crooked.table.row_stride_bytes = 24;
        let error = step_args(&crooked).unwrap_err();
        assert_eq!(error.kind, Kind::Logic);
        assert!(error.to_string().contains("24 bytes apart"), "{error}");
    }

    #[test]
    fn layouts_are_those_of_the_header() {
        let structs = layouts! {
            GroupArgs = "wmk_group_args" {
                ids, count, first_row, rows, scratch, scratch_bytes, needed_bytes, rows_at, positions_at, zeros_at, id_bytes, ascends,
                lots, spare, lot_firsts, lot_positions
            }
            StepArgs = "wmk_step_args" {
                sorted_rows, positions, zeros, count, rows, gradients, gradient_stride_bytes, cols, table, table_stride_bytes,
                states, state_stride_bytes, beta_powers, row_places, state_sources, state_targets, home_heads, home_count,
                scratch, scratch_bytes, needed_bytes, rule, gradient_dtype, table_dtype, blocks, home_blocks
            }
            Rule = "wmk_rule" {
                optimizer, adam_w, learning_rate, weight_decay, epsilon, beta1, beta2, alpha
            }
            Rule = "wmk::rule" {
                optimizer, adam_w, learning_rate, weight_decay, epsilon, beta1, beta2, alpha
            }
            MapRowsArgs = "wmk_map_rows_args" {
                ids, mapped, count, block_rows, ranks, rank_rows, rows, id_bytes, reserved
            }
            SetArgs = "wmk_set_args" { values, count, value, reserved }
        };
        let constants = [
            format!("WMK_GROUP_LOTS == {MOST_LOTS} && WMK_GROUP_WINDOW == {GROUP_WINDOW}"),
            format!("wmk::optimizer_sgd == {}", OptimizerKind::Sgd as u32),
            format!("wmk::optimizer_lazy_adam == {}", OptimizerKind::LazyAdam as u32),
            format!("wmk::optimizer_rms_prop == {}", OptimizerKind::RmsProp as u32),
            format!("wmk::optimizer_ada_grad == {}", OptimizerKind::AdaGrad as u32),
        ];
        assert_layouts(&["args_learning.h", "common/optimizer.h"], &structs, &constants);
    }
}
