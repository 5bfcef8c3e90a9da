//! What the kernels of kernels/ are given: the argument structs of kernels/args.h, made from what the callers pass, and when
//! rows are read in an order of their own. Pure; the shape of a launch is kernels/common/launch.h.

use crate::error::{Result, ensure};
use crate::platform::{Indices, Places, Rows, Selected, Table};
use crate::span::Address;
use std::ptr::null;

/// Most ranks whose rows one kernel reaches (`many_places` of kernels/common/place.h).
pub const MOST_PLACES: usize = 512;

/// Places in a row are counted in 31 bits, with room for the words around it.
pub const MOST_ROW_BYTES: usize = i32::MAX as usize - 64;

/// Most buckets of one split (`WMK_MAX_BUCKETS`).
pub const MOST_BUCKETS: usize = 3072;

/// Blocks of 256 threads that fill a multiprocessor with kernels that wait for memory.
const BLOCKS_PER_SM: u32 = 4;

/// As many blocks as there are pieces for: the GPU hands them out as multiprocessors fall free, which beats blocks that
/// share the pieces out among themselves by up to a tenth.
pub const ALL_BLOCKS: u32 = u32::MAX;

/// `wmk_table`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableArgs {
    pub bases: *const Address,
    pub start_rows: *const u64,
    pub places: u64,
    pub offset_bytes: u64,
    pub stride_bytes: u64,
    pub rows: u64,
}

/// `wmk_rows_args`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowsArgs {
    pub table: TableArgs,
    pub ids: Address,
    pub count: u64,
    pub order: Address,
    pub positions: Address,
    pub count_at: Address,
    pub plain: Address,
    pub plain_stride_bytes: u64,
    pub plain_rows: u64,
    pub cols: u64,
    pub board: Address,
    pub id_bytes: u32,
    pub table_dtype: u32,
    pub plain_dtype: u32,
    pub blocks: u32,
    pub path: u32,
    pub access_bytes: u32,
    pub early_blocks: u32,
    pub reserved: u32,
}

/// `wmk_order_args`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderArgs {
    pub ids: Address,
    pub count: u64,
    pub scratch: Address,
    pub scratch_bytes: u64,
    pub needed_bytes: *mut u64,
    pub order: *mut Address,
    pub id_bytes: u32,
    pub shift: u32,
    pub bits: u32,
    pub reserved: u32,
    pub positions: Address,
}

/// `wmk_bucket_args`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketArgs {
    pub ids: Address,
    pub count: u64,
    pub start_rows: *const u64,
    pub bucket_of_owner: *const u32,
    pub owners: u64,
    pub buckets: u64,
    pub ids_out: Address,
    pub positions: Address,
    pub counts: Address,
    pub scratch: Address,
    pub scratch_bytes: u64,
    pub needed_bytes: *mut u64,
    pub id_bytes: u32,
    pub blocks: u32,
}

/// `wmk_unique_args`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UniqueArgs {
    pub ids: Address,
    pub count: u64,
    pub unique: Address,
    pub slots: Address,
    pub distinct: Address,
    pub scratch: Address,
    pub scratch_bytes: u64,
    pub needed_bytes: *mut u64,
    pub id_bytes: u32,
    pub bits: u32,
}

/// The parts of a meeting (`wmk_meet_part`).
pub const MEET_ARRIVE: u32 = 1;
pub const MEET_WAIT: u32 = 2;
pub const MEET_LETS_NEXT: u32 = 4;

/// `wmk_meet_args`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeetArgs {
    pub board: Address,
    pub abort: Address,
    pub parts: u32,
    pub reserved: u32,
    pub so_far: *mut Meetings,
}

/// `wmk_meetings`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meetings {
    pub turns: u64,
    pub recorded: u32,
    pub reserved: u32,
}

/// `wmk_fill_args`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FillArgs {
    pub input: Address,
    pub output: Address,
    pub stride_bytes: u64,
    pub rows: u64,
    pub cols: u64,
    pub dtype: u32,
    pub reserved: u32,
}

/// Where the rows of `table` are. `base` holds the one base of a flat table for as long as the arguments are used.
/// # Errors
/// NOT_SUPPORTED for more ranks than kernels reach.
pub fn table_args(table: &Table<'_>, base: &Address) -> Result<TableArgs> {
    let (bases, start_rows, places) = match table.places {
        Places::Flat(_) => (std::ptr::from_ref(base), null(), 1),
        Places::Ranks { bases, start_rows } => (bases.as_ptr(), start_rows.as_ptr(), bases.len()),
    };
    ensure!(
        (1..=MOST_PLACES).contains(&places),
        NotSupported,
        "a table over {places} ranks; the kernels for GPUs reach 1 to {MOST_PLACES}"
    );
    Ok(TableArgs {
        bases,
        start_rows,
        places: places as u64,
        offset_bytes: table.offset_bytes as u64,
        stride_bytes: table.row_stride_bytes as u64,
        rows: table.rows,
    })
}

/// The rows of a call. `base` holds the one base of a flat table for as long as the arguments are used. `blocks`: the most.
/// # Errors
/// LOGIC_ERROR for a float and an integer type, NOT_SUPPORTED beyond what a kernel takes.
pub fn rows_args(
    table: &Table<'_>,
    base: &Address,
    indices: &Indices,
    plain: &Rows,
    blocks: u32,
) -> Result<RowsArgs> {
    ensure!(
        table.dtype.is_float() == plain.dtype.is_float(),
        Logic,
        "cannot convert between {} and {}: one is a floating type, the other an integer",
        table.dtype,
        plain.dtype
    );
    let row_bytes = table
        .cols
        .saturating_mul(table.dtype.size_bytes().max(plain.dtype.size_bytes()));
    ensure!(
        row_bytes <= MOST_ROW_BYTES,
        NotSupported,
        "rows of {row_bytes} bytes; the kernels for GPUs take up to {MOST_ROW_BYTES}"
    );
    Ok(RowsArgs {
        table: table_args(table, base)?,
        ids: indices.address,
        count: indices.count as u64,
        order: Address::NULL,
        positions: Address::NULL,
        count_at: Address::NULL,
        plain: plain.address,
        plain_stride_bytes: plain.row_stride_bytes as u64,
        plain_rows: 0,
        cols: table.cols as u64,
        board: Address::NULL,
        id_bytes: indices.dtype.size_bytes() as u32,
        table_dtype: table.dtype.raw(),
        plain_dtype: plain.dtype.raw(),
        blocks,
        path: 0,
        access_bytes: 0,
        early_blocks: 0,
        reserved: 0,
    })
}

/// [`rows_args`] of the selected ids.
/// # Errors
/// Those of [`rows_args`].
pub fn selected_args(
    table: &Table<'_>,
    base: &Address,
    selected: &Selected,
    plain: &Rows,
    blocks: u32,
) -> Result<RowsArgs> {
    Ok(RowsArgs {
        positions: selected.positions,
        plain_rows: selected.indices.count as u64,
        ..rows_args(table, base, &selected.counted(), plain, blocks)?
    })
}

/// Blocks that fill `sms` multiprocessors.
pub fn blocks(sms: u32) -> u32 {
    sms.saturating_mul(BLOCKS_PER_SM).max(1)
}

/// The base of a flat table, or the first rank's that has one.
pub fn first_base(places: &Places<'_>) -> Address {
    match places {
        Places::Flat(base) => *base,
        Places::Ranks { bases, .. } => bases.iter().copied().find(|b| !b.is_null()).unwrap_or_default(),
    }
}

/// Rows longer than this keep a bus busy in any order.
const ORDERED_ROW_BYTES: usize = 512;
/// Tables that a GPU reaches through few enough translations of addresses.
const ORDERED_TABLE_BYTES: u64 = 64 << 20;
/// The most bits that an order looks at (`WMK_MOST_ORDER_BITS`).
const MOST_ORDER_BITS: u32 = 20;

/// So many rows of the host's memory are worth a thought about the bus.
pub fn is_many(indices: &Indices) -> bool {
    indices.count >= 1 << 15
}

/// Which bits of the ids decide in what order rows of the host's memory are read, `(shift, bits)`; `None` where the order of
/// the ids does as well. Measured: rows of 32 bytes come 5 times faster, of 128 bytes 3 times, of 512 a little where all are
/// equally likely and by half where some are favourites; below [`is_many`] ids nothing is gained.
pub fn order_bits(
    rows: u64,
    row_stride_bytes: usize,
    row_bytes: usize,
    indices: &Indices,
) -> Option<(u32, u32)> {
    let table_bytes = u128::from(rows) * row_stride_bytes as u128;
    let pays = row_bytes <= ORDERED_ROW_BYTES
        && is_many(indices)
        && indices.count <= i32::MAX as usize
        && table_bytes >= u128::from(ORDERED_TABLE_BYTES);
    // About two places an id: finer ones do not bring neighbours closer.
    let all = id_bits(rows);
    let bits = (indices.count.ilog2() + 1).min(all).min(MOST_ORDER_BITS);
    pays.then_some((all - bits, bits))
}

/// Bits of the ids below `rows`, at least 1.
pub fn id_bits(rows: u64) -> u32 {
    (u64::BITS - rows.saturating_sub(1).leading_zeros()).max(1)
}

#[cfg(test)]
mod tests {
    use super::super::board::BoardHead;
    use super::super::layouts::{assert_layouts, layouts};
    use super::*;
    use crate::error::Kind;
    use crate::kinds::DType;

    fn table(places: Places<'_>) -> Table<'_> {
        Table {
            places,
            offset_bytes: 8,
            row_stride_bytes: 512,
            rows: 10,
            cols: 100,
            dtype: DType::Float,
        }
    }

    const IDS: Indices = Indices {
        address: Address(0x3000),
        dtype: DType::Int64,
        count: 7,
    };
    const PLAIN: Rows = Rows {
        address: Address(0x2000),
        row_stride_bytes: 200,
        dtype: DType::Half,
    };

    #[test]
    fn arguments_are_those_of_the_call() {
        let base = Address(0x1000);
        let args = rows_args(&table(Places::Flat(base)), &base, &IDS, &PLAIN, 528).unwrap();
        let want = RowsArgs {
            table: TableArgs {
                bases: &base,
                start_rows: null(),
                places: 1,
                offset_bytes: 8,
                stride_bytes: 512,
                rows: 10,
            },
            ids: Address(0x3000),
            count: 7,
            order: Address::NULL,
            positions: Address::NULL,
            count_at: Address::NULL,
            plain: Address(0x2000),
            plain_stride_bytes: 200,
            plain_rows: 0,
            cols: 100,
            board: Address::NULL,
            id_bytes: 8,
            table_dtype: 1,
            plain_dtype: 2,
            blocks: 528,
            path: 0,
            access_bytes: 0,
            early_blocks: 0,
            reserved: 0,
        };
        assert_eq!(args, want);
        let (bases, start_rows) = ([Address(0x1000), Address(0x9000)], [0, 4, 10]);
        let places = Places::Ranks {
            bases: &bases,
            start_rows: &start_rows,
        };
        let args = rows_args(&table(places), &base, &IDS, &PLAIN, ALL_BLOCKS).unwrap();
        assert_eq!(
            (
                args.table.bases,
                args.table.start_rows,
                args.table.places,
                args.blocks
            ),
            (bases.as_ptr(), start_rows.as_ptr(), 2, ALL_BLOCKS)
        );
    }

    #[test]
    fn selected_ids_are_taken_by_their_positions() {
        let base = Address(0x1000);
        let table = table(Places::Flat(base));
        let selected = Selected {
            indices: IDS,
            positions: Address(0x4000),
            count: 3,
        };
        let some = selected_args(&table, &base, &selected, &PLAIN, 528).unwrap();
        let want = RowsArgs {
            count: 3,
            positions: Address(0x4000),
            plain_rows: 7,
            ..rows_args(&table, &base, &IDS, &PLAIN, 528).unwrap()
        };
        assert_eq!(some, want);
    }

    #[test]
    fn what_no_kernel_takes_is_refused() {
        let base = Address(0x1000);
        let flat = table(Places::Flat(base));
        let kind =
            |table: &Table<'_>, plain: &Rows| rows_args(table, &base, &IDS, plain, 1).unwrap_err().kind;
        let integers = Rows {
            dtype: DType::Int,
            ..PLAIN
        };
        assert_eq!(kind(&flat, &integers), Kind::Logic);
        let long = Table {
            cols: 1 << 29,
            ..flat
        };
        assert_eq!(kind(&long, &PLAIN), Kind::NotSupported);
        for ranks in [0, MOST_PLACES + 1] {
            let (bases, start_rows) = (vec![base; ranks], vec![0; ranks + 1]);
            let many = table(Places::Ranks {
                bases: &bases,
                start_rows: &start_rows,
            });
            assert_eq!(kind(&many, &PLAIN), Kind::NotSupported);
        }
    }

    #[test]
    fn rows_are_read_in_order_where_it_pays() {
        let gib = 1u64 << 30;
        // rows, stride, row bytes, ids => shift and bits
        let cases = [
            ((gib / 512, 512, 512, 131_072), Some((3, 18))),
            ((gib / 32, 32, 32, 2 << 20), Some((5, 20))),
            ((gib / 512, 512, 508, 1 << 15), Some((5, 16))),
            ((gib / 512 + 1, 512, 512, 1 << 15), Some((6, 16))),
            // No more bits than ids have.
            ((1 << 17, 512, 512, 1 << 20), Some((0, 17))),
            // Few ids, long rows, small tables, more ids than an order takes.
            ((gib / 512, 512, 512, (1 << 15) - 1), None),
            ((gib / 1024, 1024, 1024, 65_536), None),
            ((1000, 512, 512, 65_536), None),
            ((gib / 32, 32, 32, 1 << 31), None),
            // More rows than 32 bits can count.
            (((1 << 36) + 1, 16, 16, 1 << 20), Some((17, 20))),
            ((u64::MAX, usize::MAX, 1, 1 << 20), Some((44, 20))),
        ];
        for ((rows, stride, row_bytes, count), want) in cases {
            let indices = Indices { count, ..IDS };
            let got = order_bits(rows, stride, row_bytes, &indices);
            assert_eq!(got, want, "{rows} {stride} {row_bytes} {count}");
        }
        assert_eq!([0, 1, 2, 3, 4, 5].map(id_bits), [1, 1, 1, 2, 2, 3]);
    }

    /// The structs of kernels/args.h, as a C++ compiler lays them out, are those of this file.
    #[test]
    fn layouts_are_those_of_the_header() {
        let structs = layouts! {
            TableArgs = "wmk_table" { bases, start_rows, places, offset_bytes, stride_bytes, rows }
            RowsArgs = "wmk_rows_args" {
                table, ids, count, order, positions, count_at, plain, plain_stride_bytes, plain_rows, cols, board, id_bytes, table_dtype,
                plain_dtype, blocks, path, access_bytes, early_blocks, reserved
            }
            OrderArgs = "wmk_order_args" {
                ids, count, scratch, scratch_bytes, needed_bytes, order, id_bytes, shift, bits, reserved, positions
            }
            BucketArgs = "wmk_bucket_args" {
                ids, count, start_rows, bucket_of_owner, owners, buckets, ids_out, positions, counts, scratch, scratch_bytes,
                needed_bytes, id_bytes, blocks
            }
            UniqueArgs = "wmk_unique_args" {
                ids, count, unique, slots, distinct, scratch, scratch_bytes, needed_bytes, id_bytes, bits
            }
            MeetArgs = "wmk_meet_args" { board, abort, parts, reserved, so_far }
            Meetings = "wmk_meetings" { turns, recorded, reserved }
            BoardHead = "wmk_board" { epoch, turns, blocks_done, ranks, rank, busy }
            FillArgs = "wmk_fill_args" { input, output, stride_bytes, rows, cols, dtype, reserved }
        };
        let constants = [
            format!("WMK_MAX_BUCKETS == {MOST_BUCKETS}"),
            format!("wmk::many_places == {MOST_PLACES}"),
            format!("WMK_MOST_ORDER_BITS == {MOST_ORDER_BITS}"),
            format!(
                "WMK_MEET_ARRIVE == {MEET_ARRIVE} && WMK_MEET_WAIT == {MEET_WAIT} && WMK_MEET_LETS_NEXT == {MEET_LETS_NEXT}"
            ),
        ];
        assert_layouts(&["args.h", "common/place.h"], &structs, &constants);
    }
}
