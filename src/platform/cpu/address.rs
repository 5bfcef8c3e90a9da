//! From a row id to the row's address.

use crate::kinds::DType;
use crate::platform::{Indices, Places, Table};

/// Reads row ids, at any alignment.
#[derive(Clone, Copy)]
pub struct Ids {
    at: *const u8,
    wide: bool,
}

// SAFETY: the ids are only read, and the caller keeps them for the time of the call.
unsafe impl Sync for Ids {}

impl Ids {
    pub fn new(indices: &Indices) -> Ids {
        Ids {
            at: indices.address.0 as *const u8,
            wide: indices.dtype == DType::Int64,
        }
    }

    /// Id number `i`, negative ones as values above every row count.
    /// # Safety
    /// `i` is below the count of the indices.
    #[inline(always)]
    pub unsafe fn get(&self, i: usize) -> u64 {
        // SAFETY: the caller of the kernel vouches for `count` ids.
        unsafe {
            if self.wide {
                self.at.cast::<u64>().add(i).read_unaligned()
            } else {
                i64::from(self.at.cast::<i32>().add(i).read_unaligned()) as u64
            }
        }
    }
}

/// Finds the owner of a row: the k with `starts[k] <= id < starts[k + 1]`.
#[derive(Clone, Copy)]
pub struct Owners<'a> {
    starts: &'a [u64],
    /// ceil(2^64 / chunk) where all parts but the last ones have `chunk` rows; 0 where they have not.
    reciprocal: u64,
}

impl<'a> Owners<'a> {
    /// `starts`: one value an owner and the row count, ascending from 0.
    pub fn new(starts: &'a [u64]) -> Owners<'a> {
        let rows = starts.last().copied().unwrap_or(0);
        let chunk = starts.get(1).copied().unwrap_or(0);
        let equal = chunk > 1
            && starts
                .iter()
                .enumerate()
                .all(|(k, s)| *s == chunk.saturating_mul(k as u64).min(rows));
        Owners {
            starts,
            reciprocal: if equal { u64::MAX / chunk + 1 } else { 0 },
        }
    }

    /// `id` is below the last start.
    #[inline(always)]
    pub fn of(&self, id: u64) -> usize {
        if self.reciprocal != 0 {
            // The reciprocal is rounded up, so the product is right or one too high.
            let guess = ((u128::from(id) * u128::from(self.reciprocal)) >> 64) as usize;
            return guess - usize::from(self.starts.get(guess).is_none_or(|start| id < *start));
        }
        self.starts.partition_point(|start| *start <= id) - 1
    }
}

/// Where each row of a table is.
#[derive(Clone, Copy)]
pub struct Resolver<'a> {
    table: &'a Table<'a>,
    owners: Owners<'a>,
}

impl<'a> Resolver<'a> {
    pub fn new(table: &'a Table<'a>) -> Resolver<'a> {
        let starts = match table.places {
            Places::Flat(_) => &[],
            Places::Ranks { start_rows, .. } => start_rows,
        };
        Resolver {
            table,
            owners: Owners::new(starts),
        }
    }

    /// The address of row `id`; NULL for ids outside [0, rows).
    #[inline(always)]
    pub fn row(&self, id: u64) -> *mut u8 {
        if id >= self.table.rows {
            return std::ptr::null_mut();
        }
        let (base, local) = match self.table.places {
            Places::Flat(base) => (base.0, id),
            Places::Ranks { bases, start_rows } => {
                let owner = self.owners.of(id);
                (bases[owner].0, id - start_rows[owner])
            }
        };
        (base + self.table.offset_bytes + local as usize * self.table.row_stride_bytes) as *mut u8
    }

    /// All rows are aligned to a power of two if this has none of the bits below it. (Not the other way round: a base and
    /// an offset may be aligned together and not each.)
    pub fn misalignment(&self) -> usize {
        let bases = match self.table.places {
            Places::Flat(base) => base.0,
            Places::Ranks { bases, .. } => bases.iter().fold(0, |bits, base| bits | base.0),
        };
        bases | self.table.offset_bytes | self.table.row_stride_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slow(starts: &[u64], id: u64) -> usize {
        (0..starts.len() - 1)
            .find(|k| starts[*k] <= id && id < starts[k + 1])
            .expect("an owner")
    }

    proptest! {
        #[test]
        fn owners_of_any_partition(sizes in prop::collection::vec(0u64..9, 1..40), at in any::<prop::sample::Index>()) {
            let mut starts = vec![0];
            starts.extend(sizes.iter().scan(0, |sum, n| { *sum += n; Some(*sum) }));
            let rows = *starts.last().expect("one");
            prop_assume!(rows > 0);
            let id = at.index(rows as usize) as u64;
            prop_assert_eq!(Owners::new(&starts).of(id), slow(&starts, id));
        }

        #[test]
        fn owners_of_equal_chunks(chunk in 1u64..1 << 55, ranks in 1usize..200, short in any::<u64>(), offset in any::<u64>()) {
            let rows = chunk * ranks as u64 - short % (chunk * ranks as u64).min(chunk * 2);
            let starts: Vec<u64> = (0..=ranks as u64).map(|k| (k * chunk).min(rows)).collect();
            for id in [0, chunk - 1, chunk, rows / chunk * chunk, (rows / chunk * chunk).wrapping_sub(1), rows - 1, offset % rows] {
                if id < rows {
                    prop_assert_eq!(Owners::new(&starts).of(id), slow(&starts, id));
                }
            }
        }
    }
}
