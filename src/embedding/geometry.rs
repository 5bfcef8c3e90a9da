//! What the rows of an embedding take in memory, and where they go. Pure.

use crate::error::{Result, ensure, fail};
use crate::kinds::DType;
use crate::log::say;
use crate::platform::learning::RoundRobin;
use crate::tensor::Description;

/// Rows begin at multiples of this.
const ROW_ALIGNMENT_BYTES: usize = 16;

/// Lines of a set of a cache.
const SET_LINES: f32 = 32.0;

/// Most rows that one set of a cache stands for.
const MOST_COVERED_ROWS: f32 = 16384.0;

/// A widest launch: larger wishes are taken for mistakes.
const MOST_SMS: i32 = 1568;

/// What the caller of create asks for.
#[derive(Clone, Debug)]
pub struct Wish<'a> {
    pub description: &'a Description,
    /// Rows of each rank; `None` is the default plan.
    pub partition: Option<Vec<usize>>,
    /// Rows of a block of round robin, 0 for none.
    pub round_robin_size: i32,
    pub ranks: usize,
    /// Ratio of the cache and ranks of its communicator.
    pub cache: Option<(f32, usize)>,
}

/// The rows of an embedding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Rows that ids name.
    pub logical_rows: u64,
    /// Rows of the tensor that callers see: more under round robin, where every rank has the same number (with a cache as many
    /// as it has in memory).
    pub user_rows: u64,
    /// Rows in memory: more for a cached table, which is cut into sets.
    pub allocated_rows: u64,
    pub cols: usize,
    /// Elements from one row to the next.
    pub stride: usize,
    pub dtype: DType,
    pub partition: Option<Vec<usize>>,
    /// `None` also where it would change nothing.
    pub round_robin: Option<RoundRobin>,
}

/// Elements from one row of `cols` elements to the next.
pub fn padded(cols: u64, dtype: DType) -> u64 {
    cols.next_multiple_of((ROW_ALIGNMENT_BYTES / dtype.size_bytes()) as u64)
}

/// Rows that one set of 32 lines stands for.
pub fn covered_rows(ratio: f32) -> u64 {
    (SET_LINES / ratio).round().clamp(SET_LINES, MOST_COVERED_ROWS) as u64
}

/// The launch width of gathers: -1 (automatic) for wishes that make no sense, with a warning.
pub fn usable_sms(wished: i32) -> i32 {
    if wished == -1 || (1..=MOST_SMS).contains(&wished) {
        return wished;
    }
    say!(
        Warn,
        "user_defined_sms is {wished}, not in [1, {MOST_SMS}]: the width is chosen automatically"
    );
    -1
}

impl Geometry {
    /// # Errors
    /// INVALID_INPUT for a description that is no matrix or has no rows or columns; INVALID_VALUE for a negative round robin size
    /// and for sizes that leave 63 bits.
    pub fn new(wish: &Wish<'_>) -> Result<Geometry> {
        let description = wish.description;
        let Some(matrix) = description.to_matrix() else {
            fail!(
                InvalidInput,
                "the description of an embedding (dim {}, strides[1] {}, dtype {}) is no matrix: dim must be 1 or 2, with 2 strides[1] \
                 must be 1, and dtype must be one of elements",
                description.dim,
                description.strides[1],
                DType::name_of(description.dtype)
            );
        };
        ensure!(
            matrix.rows > 0 && matrix.cols > 0,
            InvalidInput,
            "an embedding of {} rows and {} columns would be empty",
            matrix.rows,
            matrix.cols
        );
        ensure!(
            wish.round_robin_size >= 0,
            InvalidValue,
            "round_robin_size is {}, it must be 0 (none) or more",
            wish.round_robin_size
        );
        let mut block_rows = wish.round_robin_size as u64;
        let partition = match (&wish.partition, wish.cache) {
            (Some(partition), None) => {
                if block_rows != 0 {
                    say!(
                        Warn,
                        "round_robin_size is {block_rows}, but embedding_entry_partition is given: there is no round robin"
                    );
                }
                block_rows = 0;
                Some(partition.clone())
            }
            _ => None,
        };
        let too_large = || {
            crate::error::Error::new(
                crate::error::Kind::InvalidValue,
                format!(
                    "{} rows of {} columns over {} ranks are more than 2^63 - 1 elements",
                    matrix.rows, matrix.cols, wish.ranks
                ),
            )
        };
        let logical_rows = matrix.rows as u64;
        let ranks = wish.ranks as u64;
        let user_rows = match block_rows {
            0 => logical_rows,
            _ => round_robin_rank_rows(logical_rows, block_rows, ranks)
                .checked_mul(ranks)
                .ok_or_else(too_large)?,
        };
        let dealt = block_rows != 0 && ranks > 1;
        let allocated_rows = match wish.cache {
            None => user_rows,
            Some((ratio, cache_ranks)) => {
                let unit_rows = covered_rows(ratio) * cache_ranks as u64;
                let mut rows = user_rows
                    .checked_next_multiple_of(unit_rows)
                    .ok_or_else(too_large)?;
                // Parts of the table end elsewhere than those of a cache with other ranks, and the last of them may be short.
                while dealt && rows_of_last_rank(rows, ranks) < user_rows / ranks {
                    rows = rows.checked_add(unit_rows).ok_or_else(too_large)?;
                }
                rows
            }
        };
        let stride = padded(matrix.cols as u64, matrix.dtype);
        allocated_rows
            .checked_mul(stride)
            .filter(|elements| *elements <= i64::MAX as u64)
            .ok_or_else(too_large)?;
        Ok(Geometry {
            logical_rows,
            // Rows dealt to partitions that are longer because of a cache lie all over what is allocated.
            user_rows: if dealt { allocated_rows } else { user_rows },
            allocated_rows,
            cols: matrix.cols as usize,
            stride: stride as usize,
            dtype: matrix.dtype,
            partition,
            round_robin: dealt.then(|| RoundRobin {
                block_rows,
                ranks,
                rank_rows: allocated_rows.div_ceil(ranks),
                rows: logical_rows,
            }),
        })
    }

    /// All that is allocated, padding between the rows left out.
    pub fn allocated(&self) -> Description {
        Description::matrix(
            [self.allocated_rows as i64, self.cols as i64],
            self.stride as i64,
            0,
            self.dtype.raw(),
        )
    }

    /// The rows that callers see.
    pub fn user(&self) -> Description {
        Description::matrix(
            [self.user_rows as i64, self.cols as i64],
            self.stride as i64,
            0,
            self.dtype.raw(),
        )
    }

    /// The rows that (mapped) ids may name.
    pub fn named(&self) -> Description {
        match self.round_robin {
            Some(_) => self.allocated(),
            None => self.user(),
        }
    }

    pub fn named_rows(&self) -> u64 {
        match self.round_robin {
            Some(_) => self.allocated_rows,
            None => self.user_rows,
        }
    }
}

/// What the last of `ranks` holds where every other one holds as many as the first.
fn rows_of_last_rank(rows: u64, ranks: u64) -> u64 {
    rows.saturating_sub(rows.div_ceil(ranks).saturating_mul(ranks - 1))
}

/// Rows of every rank if `rows` are dealt to `ranks` in blocks of `block_rows`.
fn round_robin_rank_rows(rows: u64, block_rows: u64, ranks: u64) -> u64 {
    // A product beyond 64 bits is more than all rows.
    let turn_rows = block_rows.saturating_mul(ranks);
    let whole = rows / turn_rows * block_rows;
    whole + (rows % turn_rows).min(block_rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use proptest::prelude::*;

    fn matrix(rows: i64, cols: i64, dtype: DType) -> Description {
        Description::matrix([rows, cols], cols, 0, dtype.raw())
    }

    fn wish(description: &Description, ranks: usize) -> Wish<'_> {
        Wish {
            description,
            partition: None,
            round_robin_size: 0,
            ranks,
            cache: None,
        }
    }

    #[test]
    fn rows_are_aligned_to_16_bytes() {
        let strides = [
            (DType::Float, 7, 8),
            (DType::Int, 4, 4),
            (DType::Half, 9, 16),
            (DType::Bf16, 8, 8),
            (DType::Int8, 17, 32),
            (DType::Int16, 1, 8),
            (DType::Double, 3, 4),
            (DType::Int64, 2, 2),
        ];
        for (dtype, cols, stride) in strides {
            let description = matrix(5, cols, dtype);
            let geometry = Geometry::new(&wish(&description, 3)).unwrap();
            assert_eq!(geometry.stride, stride, "{dtype}");
            assert_eq!(geometry.user(), geometry.allocated());
        }
        // One dimension is one column; its stride and offset are of no account.
        let mut line = Description::array(9, 4, DType::Float.raw());
        line.strides[0] = 1;
        let geometry = Geometry::new(&wish(&line, 2)).unwrap();
        assert_eq!((geometry.user_rows, geometry.cols, geometry.stride), (9, 1, 4));
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_numbers() {
        let refused = |description: Description, round_robin_size: i32, kind: Kind, word: &str| {
            let asked = Wish {
                round_robin_size,
                ..wish(&description, 4)
            };
            let error = Geometry::new(&asked).unwrap_err();
            assert_eq!(error.kind, kind, "{error}");
            assert!(error.what.contains(word), "{error}");
        };
        refused(matrix(0, 4, DType::Float), 0, Kind::InvalidInput, "0 rows");
        refused(matrix(4, 0, DType::Float), 0, Kind::InvalidInput, "0 columns");
        refused(matrix(-4, 4, DType::Float), 0, Kind::InvalidInput, "-4 rows");
        refused(matrix(4, 4, DType::Float), -1, Kind::InvalidValue, "-1");
        refused(matrix(i64::MAX, 4, DType::Float), 0, Kind::InvalidValue, "2^63");
        refused(
            matrix(i64::MAX, 1, DType::Int8),
            1 << 20,
            Kind::InvalidValue,
            "2^63",
        );
        let mut wide = matrix(4, 4, DType::Float);
        wide.strides[1] = 2;
        refused(wide, 0, Kind::InvalidInput, "strides[1] 2, dtype FLOAT");
        wide.dim = 3;
        refused(wide, 0, Kind::InvalidInput, "dim 3");
        refused(
            Description::matrix([4, 4], 4, 0, 99),
            0,
            Kind::InvalidInput,
            "dtype 99",
        );
    }

    #[test]
    fn caches_round_the_rows_up_and_ignore_partitions() {
        let covered = [
            (1.0, 32),
            (0.5, 64),
            (0.2, 160),
            (0.02, 1600),
            (0.002, 16000),
            (1.0 / 512.0, 16384),
        ];
        for (ratio, rows) in covered {
            assert_eq!(covered_rows(ratio), rows, "{ratio}");
        }
        let description = matrix(1000, 4, DType::Float);
        let cached = Geometry::new(&Wish {
            partition: Some(vec![999, 1]),
            cache: Some((0.2, 2)),
            ..wish(&description, 2)
        })
        .unwrap();
        assert_eq!((cached.user_rows, cached.allocated_rows), (1000, 1280));
        assert_eq!(cached.partition, None);
    }

    #[test]
    fn dealt_rows_of_a_cached_table_are_all_seen() {
        let description = matrix(1000, 4, DType::Float);
        for ranks in [2, 3, 4] {
            let geometry = Geometry::new(&Wish {
                round_robin_size: 7,
                cache: Some((0.2, ranks)),
                ..wish(&description, ranks)
            })
            .unwrap();
            let map = geometry.round_robin.unwrap();
            assert_eq!(map.rank_rows * ranks as u64, geometry.allocated_rows);
            let last = (0..1000).map(|id| map.row(id)).max().unwrap();
            assert!(last < geometry.user_rows as i64);
        }
    }

    #[test]
    fn a_partition_switches_round_robin_off() {
        let description = matrix(10, 4, DType::Float);
        let geometry = Geometry::new(&Wish {
            partition: Some(vec![9, 1]),
            round_robin_size: 2,
            ..wish(&description, 2)
        })
        .unwrap();
        assert_eq!(geometry.round_robin, None);
        assert_eq!(geometry.partition, Some(vec![9, 1]));
        assert_eq!(geometry.user_rows, 10);
    }

    #[test]
    fn widths() {
        for (wished, used) in [
            (-1, -1),
            (1, 1),
            (1568, 1568),
            (1569, -1),
            (0, -1),
            (-2, -1),
            (i32::MIN, -1),
        ] {
            assert_eq!(usable_sms(wished), used);
        }
    }

    proptest! {
        /// Of a cache with any other ranks: every row has a place of its own, in the part of the rank it is dealt to.
        #[test]
        fn dealt_rows_have_places_whatever_ranks_cache_them(
            rows in 1u64..3000, block in 1u64..40, ranks in 2u64..9, cache_ranks in 1usize..9, ratio in 0.02f32..1.0
        ) {
            let description = matrix(rows as i64, 4, DType::Float);
            let asked = Wish {
                round_robin_size: block as i32,
                cache: Some((ratio, cache_ranks)),
                ..wish(&description, ranks as usize)
            };
            let geometry = Geometry::new(&asked).unwrap();
            let map = geometry.round_robin.unwrap();
            let all = geometry.allocated_rows;
            prop_assert_eq!(all % (covered_rows(ratio) * cache_ranks as u64), 0);
            prop_assert_eq!(map.rank_rows, all.div_ceil(ranks));
            let mut seen = std::collections::BTreeSet::new();
            for id in 0..rows {
                let (row, owner) = (map.row(id as i64) as u64, id / block % ranks);
                prop_assert!(seen.insert(row), "{} twice", row);
                prop_assert!((owner * map.rank_rows..((owner + 1) * map.rank_rows).min(all)).contains(&row), "{} at {}", id, row);
            }
        }

        /// Dealing blocks one by one gives the same rows, each once, each with its owner.
        #[test]
        fn round_robin_deals_blocks(rows in 1u64..200, block in 1u64..20, ranks in 2u64..6) {
            let description = matrix(rows as i64, 4, DType::Float);
            let asked = Wish { round_robin_size: block as i32, ..wish(&description, ranks as usize) };
            let geometry = Geometry::new(&asked).unwrap();
            let map = geometry.round_robin.unwrap();
            let mut held = vec![0u64; ranks as usize];
            for id in 0..rows {
                let owner = (id / block % ranks) as usize;
                prop_assert_eq!(map.row(id as i64), (owner as u64 * map.rank_rows + held[owner]) as i64);
                held[owner] += 1;
            }
            prop_assert_eq!(geometry.user_rows, held.iter().max().unwrap() * ranks);
            prop_assert_eq!(map.rank_rows * ranks, geometry.user_rows);
            for outside in [-1, i64::MIN, rows as i64, i64::MAX] {
                prop_assert_eq!(map.row(outside), -1);
            }
        }
    }
}
