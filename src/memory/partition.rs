//! Which rank is responsible for which bytes. Pure.

use crate::error::{Result, ensure};

/// The partition of a handle: rank r owns bytes `[starts_bytes[r], starts_bytes[r + 1])` of the whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    pub granule_bytes: usize,
    /// World size + 1 values, ascending from 0.
    pub starts_bytes: Box<[usize]>,
    /// With `same_chunk` the owner of byte b is `b / stride_bytes`; never 0.
    pub stride_bytes: usize,
    /// False where the owner has to be looked up in `starts_bytes`.
    pub same_chunk: bool,
}

impl Partition {
    /// The default plan: `ceil(granules / world_ranks)` granules a rank; the remainder is missing at the end, so the last
    /// ranks may own less or nothing.
    /// # Errors
    /// INVALID_VALUE for a granule of 0 bytes or a total that is not a multiple of it.
    pub fn equal(total_bytes: usize, granule_bytes: usize, world_ranks: usize) -> Result<Partition> {
        let granules = whole_granules(total_bytes, granule_bytes)?;
        let per_rank = granules.div_ceil(world_ranks.max(1));
        let starts_bytes = (0..=world_ranks)
            .map(|rank| rank.saturating_mul(per_rank).min(granules) * granule_bytes)
            .collect();
        Ok(Partition {
            granule_bytes,
            starts_bytes,
            stride_bytes: per_rank.max(1) * granule_bytes,
            same_chunk: true,
        })
    }

    /// The caller's plan: `rank_granules[r]` granules for rank r, one value a rank.
    /// # Errors
    /// INVALID_VALUE for a granule of 0 bytes, a total that is not a multiple of it, a rank with 0 granules, or a sum that
    /// is not the total.
    pub fn custom(total_bytes: usize, granule_bytes: usize, rank_granules: &[usize]) -> Result<Partition> {
        let granules = whole_granules(total_bytes, granule_bytes)?;
        let mut starts_bytes = Vec::with_capacity(rank_granules.len() + 1);
        starts_bytes.push(0);
        let mut sum: u128 = 0;
        for (rank, &own) in rank_granules.iter().enumerate() {
            ensure!(
                own > 0,
                InvalidValue,
                "rank_entry_partition[{rank}] is 0, every rank must own at least 1 entry"
            );
            sum += own as u128;
            starts_bytes.push(sum.min(granules as u128) as usize * granule_bytes);
        }
        ensure!(
            sum == granules as u128,
            InvalidValue,
            "rank_entry_partition sums to {sum} entries of {granule_bytes} bytes, total_size {total_bytes} holds {granules}"
        );
        let (same_chunk, stride_granules) = match rank_granules.split_last() {
            Some((last, [])) => (true, *last),
            Some((last, [first, others @ ..])) if others.iter().all(|g| g == first) && last <= first => {
                (true, *first)
            }
            _ => (false, (granules / rank_granules.len().max(1)).max(1)),
        };
        Ok(Partition {
            granule_bytes,
            starts_bytes: starts_bytes.into(),
            stride_bytes: stride_granules * granule_bytes,
            same_chunk,
        })
    }

    pub fn world_ranks(&self) -> usize {
        self.starts_bytes.len() - 1
    }

    pub fn total_bytes(&self) -> usize {
        self.starts_bytes[self.world_ranks()]
    }

    pub fn offset_bytes(&self, rank: usize) -> usize {
        self.starts_bytes[rank]
    }

    pub fn size_bytes(&self, rank: usize) -> usize {
        self.starts_bytes[rank + 1] - self.starts_bytes[rank]
    }

    /// The rank that owns a byte of the whole; `None` past the end.
    pub fn owner_of_byte(&self, byte: usize) -> Option<usize> {
        (byte < self.total_bytes()).then(|| self.starts_bytes.partition_point(|start| *start <= byte) - 1)
    }

    /// The rank that owns row `row` of a table whose rows take `row_bytes` each (a divisor of the granule).
    pub fn owner_of_row(&self, row: u64, row_bytes: usize) -> Option<usize> {
        let byte = usize::try_from(row).ok()?.checked_mul(row_bytes)?;
        self.owner_of_byte(byte)
    }
}

fn whole_granules(total_bytes: usize, granule_bytes: usize) -> Result<usize> {
    ensure!(
        granule_bytes > 0,
        InvalidValue,
        "data_granularity is 0, it must be at least 1 byte"
    );
    ensure!(
        total_bytes.is_multiple_of(granule_bytes),
        InvalidValue,
        "total_size {total_bytes} is not a multiple of data_granularity {granule_bytes}"
    );
    Ok(total_bytes / granule_bytes)
}

/// `ceil(total_entries / world_size)`: the entries each rank but the last ones owns by default.
/// # Errors
/// INVALID_VALUE for a world size below 1.
pub fn equal_entry_partition_plan(total_entries: usize, world_size: i32) -> Result<usize> {
    ensure!(
        world_size >= 1,
        InvalidValue,
        "world_size is {world_size}, it must be at least 1"
    );
    Ok(total_entries.div_ceil(world_size as usize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use proptest::prelude::*;

    fn sizes(partition: &Partition) -> Vec<usize> {
        (0..partition.world_ranks())
            .map(|rank| partition.size_bytes(rank))
            .collect()
    }

    #[test]
    fn the_remainder_of_the_default_plan_is_missing_at_the_end() {
        assert_eq!(sizes(&Partition::equal(5, 1, 4).unwrap()), [2, 2, 1, 0]);
        assert_eq!(sizes(&Partition::equal(9 * 8, 8, 4).unwrap()), [24, 24, 24, 0]);
        assert_eq!(sizes(&Partition::equal(0, 8, 3).unwrap()), [0, 0, 0]);
        let huge = Partition::equal(usize::MAX, 1, 8).unwrap();
        assert_eq!(huge.total_bytes(), usize::MAX);
        assert_eq!(huge.stride_bytes, 1 << 61);
    }

    #[test]
    fn the_published_vectors_of_the_equal_plan() {
        let plan = equal_entry_partition_plan;
        let vectors = [
            (0, 4, 0),
            (1, 4, 1),
            (5, 4, 2),
            (8, 4, 2),
            (9, 4, 3),
            (usize::MAX, 8, 1 << 61),
        ];
        for (total, world, per_rank) in vectors {
            assert_eq!(plan(total, world).unwrap(), per_rank);
        }
        for world in [0, -1, i32::MIN] {
            let error = plan(5, world).unwrap_err();
            assert_eq!(error.kind, Kind::InvalidValue);
            assert!(error.what.contains(&world.to_string()));
        }
    }

    #[test]
    fn a_stride_is_claimed_only_where_it_finds_the_owner() {
        let shape = |granules: &[usize]| {
            let p = Partition::custom(granules.iter().sum::<usize>() * 4, 4, granules).unwrap();
            (p.same_chunk, p.stride_bytes)
        };
        assert_eq!(shape(&[7]), (true, 28));
        assert_eq!(shape(&[3, 1]), (true, 12));
        assert_eq!(shape(&[4, 4, 2]), (true, 16));
        assert_eq!(shape(&[4, 4, 4]), (true, 16));
        let (same, stride) = shape(&[1, 3]);
        assert!(!same && stride > 0);
        let (same, stride) = shape(&[4, 4, 5]);
        assert!(!same && stride > 0);
        let (same, stride) = shape(&[4, 3, 2]);
        assert!(!same && stride > 0);
    }

    #[test]
    fn bad_plans_are_refused_with_the_wrong_value() {
        let refused = |total, granule, plan: &[usize], word: &str| {
            let error = Partition::custom(total, granule, plan).unwrap_err();
            assert_eq!(error.kind, Kind::InvalidValue);
            assert!(error.what.contains(word), "{}", error.what);
        };
        refused(12, 0, &[1, 2], "data_granularity is 0");
        refused(13, 4, &[1, 2], "13");
        refused(12 * 4, 4, &[5, 0, 7, 0], "rank_entry_partition[1] is 0");
        refused(12, 4, &[1, 1], "sums to 2");
        refused(12, 4, &[usize::MAX, 4], "sums to 18446744073709551619");
        refused(0, 4, &[1], "sums to 1");
        assert!(Partition::equal(13, 4, 2).is_err());
        assert!(Partition::equal(13, 0, 2).is_err());
    }

    fn check_invariants(p: &Partition, total: usize) {
        assert_eq!(p.starts_bytes[0], 0);
        assert_eq!(p.total_bytes(), total);
        assert!(p.starts_bytes.is_sorted());
        assert!(p.starts_bytes.iter().all(|s| s.is_multiple_of(p.granule_bytes)));
        assert_ne!(p.stride_bytes, 0);
        assert_eq!(p.owner_of_byte(total), None);
        for byte in (0..total).step_by(p.granule_bytes) {
            let owner = p.owner_of_byte(byte).unwrap();
            assert!(p.starts_bytes[owner] <= byte && byte < p.starts_bytes[owner + 1]);
            if p.same_chunk {
                assert_eq!(owner, byte / p.stride_bytes);
            }
        }
    }

    proptest! {
        #[test]
        fn default_plans_cover_every_byte_once(granules in 0usize..300, granule in 1usize..17, world in 1usize..20) {
            let total = granules * granule;
            let p = Partition::equal(total, granule, world).unwrap();
            check_invariants(&p, total);
            let per_rank = equal_entry_partition_plan(granules, world as i32).unwrap();
            for rank in 0..world {
                prop_assert_eq!(p.offset_bytes(rank), (rank * per_rank).min(granules) * granule);
            }
        }

        #[test]
        fn custom_plans_give_what_was_asked(plan in prop::collection::vec(1usize..40, 1..10), granule in 1usize..17) {
            let total = plan.iter().sum::<usize>() * granule;
            let p = Partition::custom(total, granule, &plan).unwrap();
            check_invariants(&p, total);
            for (rank, own) in plan.iter().enumerate() {
                prop_assert_eq!(p.size_bytes(rank), own * granule);
                prop_assert_eq!(p.owner_of_row(p.offset_bytes(rank) as u64, 1), Some(rank));
            }
            prop_assert!(Partition::custom(total + granule, granule, &plan).is_err());
        }
    }
}
