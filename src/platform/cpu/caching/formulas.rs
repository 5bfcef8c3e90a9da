//! Where a row of a cache goes and how its uses are counted: kernels/common/cache.h, in Rust.

use crate::platform::caching::SET_LINES;

/// Where a count ends.
pub const MOST_COUNT: u32 = 15;

/// Of the number of a row within its rank.
#[inline(always)]
pub fn hash(row: u64) -> u64 {
    let bits = (row + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let bits = (bits ^ (bits >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    bits ^ (bits >> 32)
}

#[inline(always)]
fn high_product(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) >> 64) as u64
}

/// The set of a row, below `sets`. `whole`: every row has a line, so neighbours share sets.
#[inline(always)]
pub fn set_of(row: u64, hash: u64, sets: u64, whole: bool) -> u64 {
    if whole {
        return row / SET_LINES;
    }
    high_product(hash.wrapping_mul(0x9e37_79b9_7f4a_7c15), sets)
}

/// The word of the sketch that counts a row, below `words`.
#[inline(always)]
pub fn sketch_word(hash: u64, words: u64) -> u64 {
    high_product(hash, words)
}

/// The row's counter in one quarter of its word: the number of its lowest bit.
#[inline(always)]
fn shift(hash: u64, quarter: u32) -> u32 {
    let bits = hash.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56;
    16 * quarter + 4 * ((bits >> (2 * quarter)) & 3) as u32
}

/// How often a row was used, at least; 0 to [`MOST_COUNT`].
#[inline(always)]
pub fn estimate(word: u64, hash: u64) -> u32 {
    (0..4)
        .map(|quarter| ((word >> shift(hash, quarter)) & 15) as u32)
        .min()
        .unwrap_or(0)
}

/// The word with no counter of the row below `count`.
#[inline(always)]
pub fn raised(word: u64, hash: u64, count: u32) -> u64 {
    let wanted = u64::from(count.min(MOST_COUNT));
    (0..4).fold(word, |word, quarter| {
        let shift = shift(hash, quarter);
        if (word >> shift) & 15 < wanted {
            word & !(15 << shift) | wanted << shift
        } else {
            word
        }
    })
}

/// The word after one more use of the row: only its least counters move. The word itself once they are full.
#[inline(always)]
pub fn counted(word: u64, hash: u64) -> u64 {
    raised(word, hash, estimate(word, hash) + 1)
}

/// Sixteen counts at once, halved: ageing.
#[inline(always)]
pub fn halved(word: u64) -> u64 {
    (word >> 1) & 0x7777_7777_7777_7777
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn counts_go_up_one_by_one_and_end() {
        let h = hash(77);
        let mut word = 0;
        for uses in 1..40 {
            word = counted(word, h);
            assert_eq!(estimate(word, h), uses.min(MOST_COUNT));
        }
        assert_eq!(counted(word, h), word);
        assert_eq!(estimate(halved(word), h), 7);
        assert_eq!(estimate(raised(halved(word), h, 3), h), 7);
        assert_eq!(estimate(raised(halved(word), h, 9), h), 9);
    }

    /// Ranges of neighbouring rows fill all sets about alike: no set gets twice its share by much more than chance.
    #[test]
    fn neighbours_are_spread_over_the_sets() {
        for sets in [7u64, 64, 1000, 13_107] {
            let rows = sets * 100;
            let mut filled = vec![0u32; sets as usize];
            for row in 0..rows {
                filled[set_of(row, hash(row), sets, false) as usize] += 1;
            }
            let (least, most) = (filled.iter().min().unwrap(), filled.iter().max().unwrap());
            assert!(
                *least > 40 && *most < 180,
                "{sets} sets: {least} to {most} for 100"
            );
        }
    }

    proptest! {
        #[test]
        fn others_only_raise_an_estimate(rows in prop::collection::vec(any::<u64>(), 1..20)) {
            let mut word = 0;
            for (i, row) in rows.iter().enumerate() {
                word = counted(word, hash(*row));
                let seen = rows[..=i].iter().filter(|r| *r == row).count() as u32;
                prop_assert!(estimate(word, hash(*row)) >= seen.min(MOST_COUNT));
            }
        }

        #[test]
        fn sets_and_words_are_in_range(row in 0u64..1 << 32, sets in 1u64..1 << 40) {
            prop_assert!(set_of(row, hash(row), sets, false) < sets);
            prop_assert!(sketch_word(hash(row), sets) < sets);
        }
    }
}
