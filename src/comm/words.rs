//! How many ranks are named in a sentence.

use std::collections::BTreeSet;

/// The numbers of [0, size) that are not among `present`, as a list of ranges that is never long.
pub(super) fn gaps(present: BTreeSet<i32>, size: i32) -> String {
    const MOST_RANGES: usize = 12;
    let ends = present.iter().copied().chain([size]);
    let begins = [-1].into_iter().chain(present.iter().copied());
    let mut ranges = begins.zip(ends).filter(|(before, behind)| behind - before > 1);
    let mut words: Vec<String> = ranges
        .by_ref()
        .take(MOST_RANGES)
        .map(|(before, behind)| match behind - before {
            2 => (before + 1).to_string(),
            _ => format!("{} to {}", before + 1, behind - 1),
        })
        .collect();
    if ranges.next().is_some() {
        words.push("...".into());
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_missing_is_told_in_ranges() {
        assert_eq!(
            gaps(BTreeSet::from([0]), i32::MAX),
            format!("1 to {}", i32::MAX - 1)
        );
        assert_eq!(gaps(BTreeSet::from([1, 2, 4, 9]), 12), "0, 3, 5 to 8, 10 to 11");
        assert_eq!(gaps(BTreeSet::from([0, 1]), 2), "");
        let long = gaps((0..100).map(|r| r * 2).collect(), 200);
        assert!(
            long.starts_with("1, 3, 5, ") && long.ends_with("23, ..."),
            "{long}"
        );
    }
}
