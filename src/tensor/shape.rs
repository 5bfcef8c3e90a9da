//! What may become a tensor, and what becomes of its description: the rules of the interface. Pure.

use super::description::{Description, MAX_DIM};
use crate::error::{Result, ensure, fail};
use crate::kinds::DType;
use crate::platform::Term;
use crate::span::Address;

/// What a new tensor asks of malloc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    pub total_bytes: usize,
    /// Bytes of a row, its padding included.
    pub granule_bytes: usize,
}

fn known_dtype(description: &Description) -> Result<DType> {
    match DType::from_raw(description.dtype) {
        Some(dtype) => Ok(dtype),
        None => fail!(
            InvalidInput,
            "dtype is {}, which is no element type",
            description.dtype as i32
        ),
    }
}

fn one_or_two_dims(description: &Description) -> Result<()> {
    ensure!(
        description.dim == 1 || description.dim == 2,
        InvalidInput,
        "dim is {}, a tensor over a handle has 1 or 2",
        description.dim
    );
    Ok(())
}

fn last_stride_one(description: &Description) -> Result<()> {
    let stride = description.last_stride().unwrap_or(0);
    ensure!(
        stride == 1,
        InvalidInput,
        "the stride of the last dimension is {stride}, it must be 1"
    );
    Ok(())
}

/// What of a description all ranks of a new tensor must pass alike.
pub fn terms(description: &Description) -> Vec<Term> {
    let dims = description.dim.clamp(0, MAX_DIM as i32) as usize;
    let dtype = DType::from_raw(description.dtype);
    vec![
        Term::new("strides", format!("{:?}", &description.strides[..dims])),
        Term::new("sizes", format!("{:?}", &description.sizes[..dims])),
        Term::new(
            "dtype",
            dtype.map_or_else(|| description.dtype.to_string(), |d| d.to_string()),
        ),
    ]
}

/// The rules of `wholememory_create_tensor`, in the order of the contract.
/// # Errors
/// INVALID_INPUT for what cannot be allocated at all, INVALID_VALUE for sizes that make no sense.
pub fn allocation(description: &Description) -> Result<Allocation> {
    one_or_two_dims(description)?;
    ensure!(
        description.storage_offset == 0,
        InvalidInput,
        "storage_offset is {}, a new tensor begins at 0",
        description.storage_offset
    );
    last_stride_one(description)?;
    let element_bytes = known_dtype(description)?.size_bytes();
    let [rows, cols] = [description.sizes[0], description.sizes[1]];
    let row_stride = description.strides[0];
    ensure!(
        rows >= 0,
        InvalidValue,
        "sizes[0] is {rows}, it must not be negative"
    );
    if description.dim == 2 {
        ensure!(
            cols >= 0,
            InvalidValue,
            "sizes[1] is {cols}, it must not be negative"
        );
        ensure!(
            row_stride >= 1,
            InvalidValue,
            "strides[0] is {row_stride}, it must be positive"
        );
        ensure!(
            row_stride >= cols,
            InvalidValue,
            "strides[0] is {row_stride}, less than the {cols} columns of a row"
        );
    }
    let granule_bytes = (row_stride as usize).checked_mul(element_bytes);
    let total_bytes = granule_bytes.and_then(|bytes| bytes.checked_mul(rows as usize));
    match (granule_bytes, total_bytes) {
        (Some(granule_bytes), Some(total_bytes)) if total_bytes <= i64::MAX as usize => Ok(Allocation {
            total_bytes,
            granule_bytes,
        }),
        _ => fail!(
            InvalidValue,
            "{rows} rows of {row_stride} elements of {element_bytes} bytes are more than 2^63 - 1 bytes"
        ),
    }
}

/// The rules of `wholememory_make_tensor_from_pointer`; with no storage, or no dimension, everything passes.
pub fn check_over_pointer(description: &Description, has_storage: bool) -> Result<()> {
    if !has_storage || description.dim == 0 {
        return Ok(());
    }
    ensure!(
        description.dims().is_some(),
        InvalidInput,
        "dim is {}, it must be in [0, 8]",
        description.dim
    );
    last_stride_one(description)?;
    known_dtype(description)?;
    Ok(())
}

/// The rules of `wholememory_make_tensor_from_handle`.
pub fn check_over_handle(description: &Description) -> Result<()> {
    one_or_two_dims(description)?;
    last_stride_one(description)?;
    known_dtype(description)?;
    Ok(())
}

/// How many values `starts` and `ends` of a subtensor have.
/// # Errors
/// NOT_IMPLEMENTED for more than two dimensions.
pub fn window_dims(description: &Description) -> Result<usize> {
    match description.dims() {
        Some(dims) if dims <= 2 => Ok(dims),
        _ => fail!(
            NotImplemented,
            "a subtensor of {} dimensions is not in this version (at most 2)",
            description.dim
        ),
    }
}

/// The description of the window [`starts`, `ends`); -1 stands for the begin and the end.
/// # Errors
/// INVALID_INPUT for an empty window, INVALID_VALUE for one that leaves the tensor.
pub fn window(description: &Description, starts: &[i64], ends: &[i64]) -> Result<Description> {
    let mut result = *description;
    for (i, (&start, &end)) in starts.iter().zip(ends).enumerate() {
        let size = description.sizes[i];
        let from = if start == -1 { 0 } else { start };
        let to = if end == -1 { size } else { end };
        ensure!(
            to > from && from < size && to > 0,
            InvalidInput,
            "window [{start}, {end}) of dimension {i} with {size} elements is empty"
        );
        ensure!(
            from >= 0 && to <= size,
            InvalidValue,
            "window [{start}, {end}) leaves dimension {i}, which has {size} elements"
        );
        let shift = from.checked_mul(description.strides[i]);
        let offset = shift.and_then(|shift| result.storage_offset.checked_add(shift));
        match offset {
            Some(offset) => result.storage_offset = offset,
            None => fail!(InvalidValue, "the offset of window [{start}, {end}) overflows"),
        }
        result.sizes[i] = to - from;
    }
    Ok(result)
}

/// The description of the rows of a tensor that lie in the partition [`offset_bytes`, + `size_bytes`).
/// # Errors
/// INVALID_VALUE for a tensor that cannot be cut by rows, LOGIC_ERROR for a partition that is not whole rows.
pub fn local_rows(description: &Description, offset_bytes: usize, size_bytes: usize) -> Result<Description> {
    let [rows, cols] = [description.sizes[0], description.sizes[1]];
    let offset = description.storage_offset;
    let row_elements = match description.dim {
        1 => {
            ensure!(
                offset == 0,
                InvalidValue,
                "the tensor begins at row {offset}, only whole tensors can be mapped"
            );
            1
        }
        2 => {
            let stride = description.strides[0];
            ensure!(
                offset >= 0 && cols >= 0 && offset.checked_add(cols).is_some_and(|end| end <= stride),
                InvalidValue,
                "columns [{offset}, + {cols}) leave rows of {stride} elements: only column windows can be mapped"
            );
            stride
        }
        dim => fail!(InvalidValue, "dim is {dim}, only 1 and 2 can be mapped"),
    };
    let unit_bytes = row_unit_bytes(description.dtype, row_elements)?;
    ensure!(
        rows >= 0,
        InvalidValue,
        "sizes[0] is {rows}, it must not be negative"
    );
    let end_bytes = (rows as usize).saturating_mul(unit_bytes);
    let bytes = size_bytes.min(end_bytes.saturating_sub(offset_bytes));
    ensure!(
        bytes.is_multiple_of(unit_bytes),
        Logic,
        "{bytes} bytes of the local partition are not a whole number of rows of {unit_bytes} bytes"
    );
    let mut result = *description;
    result.sizes[0] = (bytes / unit_bytes) as i64;
    Ok(result)
}

fn row_unit_bytes(dtype: u32, row_elements: i64) -> Result<usize> {
    let element_bytes = match DType::from_raw(dtype) {
        Some(dtype) => dtype.size_bytes(),
        None => fail!(
            InvalidValue,
            "dtype is {}, which is no element type",
            dtype as i32
        ),
    };
    let unit = usize::try_from(row_elements)
        .ok()
        .and_then(|n| n.checked_mul(element_bytes));
    match unit {
        Some(unit) if unit > 0 => Ok(unit),
        _ => fail!(
            InvalidValue,
            "a row has {row_elements} elements, it must have at least one"
        ),
    }
}

/// Bytes of an entry (a row of the root) as the entry queries count; `dtype` is that of the tensor asked.
/// # Errors
/// INVALID_VALUE for a root that has not 1 or 2 dimensions.
pub fn entry_unit_bytes(dtype: u32, root: &Description) -> Result<usize> {
    match root.dim {
        1 => row_unit_bytes(dtype, 1),
        2 => row_unit_bytes(dtype, root.strides[0]),
        dim => fail!(InvalidValue, "the root tensor has dim {dim}, entries need 1 or 2"),
    }
}

/// Byte positions in entries.
/// # Errors
/// INVALID_VALUE where a position is not a multiple of the unit.
pub fn in_entries(bytes: usize, unit_bytes: usize) -> Result<usize> {
    ensure!(
        bytes.is_multiple_of(unit_bytes),
        InvalidValue,
        "{bytes} bytes are not a whole number of entries of {unit_bytes} bytes"
    );
    Ok(bytes / unit_bytes)
}

/// The entries of a root over plain memory.
/// # Errors
/// INVALID_VALUE for a negative size.
pub fn root_entries(root: &Description) -> Result<usize> {
    match usize::try_from(root.sizes[0]) {
        Ok(entries) => Ok(entries),
        Err(_) => fail!(InvalidValue, "the root tensor has {} rows", root.sizes[0]),
    }
}

/// The address of the first element of a tensor whose storage begins at `base`; NULL stays NULL.
pub fn data_address(description: &Description, base: Address) -> Address {
    let element_bytes = DType::from_raw(description.dtype).map_or(0, DType::size_bytes);
    base.offset_bytes((description.storage_offset as usize).wrapping_mul(element_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    const FLOAT: u32 = DType::Float as u32;

    fn table() -> Description {
        Description::matrix([4, 6], 8, 0, FLOAT)
    }

    fn kind<T: std::fmt::Debug>(result: Result<T>) -> Kind {
        result.unwrap_err().kind
    }

    #[test]
    fn allocations() {
        let good = allocation(&table()).unwrap();
        assert_eq!((good.total_bytes, good.granule_bytes), (4 * 8 * 4, 32));
        let cases: [(Description, Kind); 11] = [
            (Description { dim: 0, ..table() }, Kind::InvalidInput),
            (Description { dim: 3, ..table() }, Kind::InvalidInput),
            (
                Description {
                    storage_offset: 1,
                    ..table()
                },
                Kind::InvalidInput,
            ),
            (
                Description {
                    strides: [8, 2, 1, 1, 1, 1, 1, 1],
                    ..table()
                },
                Kind::InvalidInput,
            ),
            (Description { dtype: 0, ..table() }, Kind::InvalidInput),
            (Description { dtype: 9, ..table() }, Kind::InvalidInput),
            (Description::matrix([4, 6], 5, 0, FLOAT), Kind::InvalidValue),
            (Description::matrix([4, 0], 0, 0, FLOAT), Kind::InvalidValue),
            (Description::matrix([-1, 6], 8, 0, FLOAT), Kind::InvalidValue),
            (Description::matrix([4, -6], 8, 0, FLOAT), Kind::InvalidValue),
            (
                Description::matrix([i64::MAX / 8, 6], 8, 0, FLOAT),
                Kind::InvalidValue,
            ),
        ];
        for (description, expected) in cases {
            assert_eq!(kind(allocation(&description)), expected, "{description:?}");
        }
        assert_eq!(
            allocation(&Description::matrix([0, 6], 8, 0, FLOAT))
                .unwrap()
                .total_bytes,
            0
        );
    }

    #[test]
    fn tensors_over_pointers() {
        let with = |change: fn(&mut Description)| {
            let mut description = table();
            change(&mut description);
            description
        };
        assert!(check_over_pointer(&table(), true).is_ok());
        assert_eq!(
            kind(check_over_pointer(&with(|d| d.strides[1] = 2), true)),
            Kind::InvalidInput
        );
        assert_eq!(
            kind(check_over_pointer(&with(|d| d.dtype = 0), true)),
            Kind::InvalidInput
        );
        assert!(check_over_pointer(&with(|d| d.strides[1] = 2), false).is_ok());
        assert!(check_over_pointer(&Description::EMPTY, true).is_ok());
        assert_eq!(
            kind(check_over_pointer(&with(|d| d.dim = -1), true)),
            Kind::InvalidInput
        );
        assert_eq!(
            kind(check_over_pointer(&with(|d| d.dim = 9), true)),
            Kind::InvalidInput
        );
        assert!(check_over_pointer(&with(|d| d.dim = 8), true).is_ok());
    }

    #[test]
    fn windows() {
        type Window = std::result::Result<([i64; 2], i64), Kind>;
        let cases: [(Description, [i64; 2], [i64; 2], Window); 9] = [
            (table(), [-1, -1], [-1, -1], Ok(([4, 6], 0))),
            (table(), [1, 2], [-1, 4], Ok(([3, 2], 10))),
            (table(), [1, 2], [100, 4], Err(Kind::InvalidValue)),
            (table(), [0, 0], [0, 1], Err(Kind::InvalidInput)),
            (table(), [4, 0], [5, 1], Err(Kind::InvalidInput)),
            (table(), [-2, 0], [2, 1], Err(Kind::InvalidValue)),
            (table(), [2, 0], [1, 1], Err(Kind::InvalidInput)),
            (table(), [-5, 0], [-3, 1], Err(Kind::InvalidInput)),
            (table(), [3, 5], [-1, -1], Ok(([1, 1], 29))),
        ];
        for (description, starts, ends, expected) in cases {
            let found = window(&description, &starts, &ends)
                .map(|d| ([d.sizes[0], d.sizes[1]], d.storage_offset))
                .map_err(|e| e.kind);
            assert_eq!(found, expected, "{starts:?} {ends:?}");
        }
        let first = window(&table(), &[1, 2], &[-1, -1]).unwrap();
        let second = window(&first, &[1, 1], &[-1, -1]).unwrap();
        assert_eq!(
            (second.sizes[0], second.sizes[1], second.storage_offset),
            (2, 3, 19)
        );
        assert_eq!(
            kind(window_dims(&Description { dim: 8, ..table() })),
            Kind::NotImplemented
        );
        assert_eq!(window_dims(&Description::EMPTY).unwrap(), 0);
    }

    #[test]
    fn entries_of_a_pointer_tensor() {
        assert_eq!(entry_unit_bytes(FLOAT, &table()).unwrap(), 32);
        assert_eq!(
            entry_unit_bytes(FLOAT, &Description::array(9, 0, FLOAT)).unwrap(),
            4
        );
        assert_eq!(
            kind(entry_unit_bytes(FLOAT, &Description { dim: 3, ..table() })),
            Kind::InvalidValue
        );
        assert_eq!(in_entries(96, 32).unwrap(), 3);
        assert_eq!(kind(in_entries(97, 32)), Kind::InvalidValue);
    }

    #[test]
    fn local_parts() {
        let rows = |description: &Description, offset, size| {
            local_rows(description, offset, size)
                .map(|d| d.sizes[0])
                .map_err(|e| e.kind)
        };
        assert_eq!(rows(&table(), 0, 64), Ok(2));
        assert_eq!(rows(&table(), 96, 32), Ok(1));
        assert_eq!(rows(&table(), 96, 320), Ok(1));
        assert_eq!(rows(&table(), 128, 64), Ok(0));
        assert_eq!(rows(&table(), 160, 64), Ok(0));
        assert_eq!(rows(&table(), 0, 33), Err(Kind::Logic));
        let columns = window(&table(), &[-1, 2], &[-1, -1]).unwrap();
        assert_eq!(rows(&columns, 32, 64), Ok(2));
        let below = window(&table(), &[1, 0], &[-1, -1]).unwrap();
        assert_eq!(rows(&below, 32, 64), Err(Kind::InvalidValue));
        assert_eq!(
            rows(&Description { dim: 3, ..table() }, 0, 64),
            Err(Kind::InvalidValue)
        );
        assert_eq!(
            rows(&Description::array(5, 1, FLOAT), 0, 4),
            Err(Kind::InvalidValue)
        );
        assert_eq!(
            rows(&Description::matrix([4, 0], 0, 0, FLOAT), 0, 64),
            Err(Kind::InvalidValue)
        );
    }
}
