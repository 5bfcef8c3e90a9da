//! Whether the ranks have come to the same meetings of their streams. Calls whose ranks meet on their GPUs return before the
//! others have come, so one that a rank left out is noticed where ranks meet on the host next: a rank that waited for its GPU
//! there would wait for ever. One that waits for its GPU before it comes there is noticed by those of its host who wait for it.

use crate::error::{Error, Kind, Result, fail};
use crate::platform::Platform;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Stands for a count that says nothing.
pub const UNKNOWN: u64 = u64::MAX;
const COUNT_BYTES: usize = size_of::<u64>();

/// The meetings that this rank has come to, as others are told.
pub fn own_count(platform: &dyn Platform) -> u64 {
    platform.meetings_so_far().unwrap_or(UNKNOWN)
}

/// The value of a rank with the meetings that it has come to in front.
pub fn with_count(platform: &dyn Platform, value: &[u8]) -> Vec<u8> {
    [&own_count(platform).to_le_bytes(), value].concat()
}

/// The ranks' values of [`with_count`] without the counts.
/// # Errors
/// LOGIC_ERROR, on all ranks, where two have come to different numbers of meetings.
pub fn checked(operation: &str, mut values: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
    let mut counts = Vec::with_capacity(values.len());
    for value in &mut values {
        let count = value.first_chunk::<COUNT_BYTES>().copied();
        let unreadable = || Error::new(Kind::Communication, "a rank sent an unreadable value");
        counts.push(u64::from_le_bytes(count.ok_or_else(unreadable)?));
        value.drain(..COUNT_BYTES);
    }
    if let Some((ahead, behind)) = apart(&counts) {
        fail!(
            Logic,
            "{operation}: rank {behind} left out a call on this communicator that rank {ahead} made, whose GPU waits for it: their streams \
             have met {} and {} times; every rank must make every collective call; rank {behind} still can",
            counts[behind],
            counts[ahead]
        );
    }
    Ok(values)
}

/// What a rank leaves for the others of its host: how many meetings it has come to, and whether it is in a call. 0 says nothing.
pub fn note(platform: &dyn Platform, in_call: bool) -> u64 {
    let counted = |count| 2 * (count + 1) + u64::from(in_call);
    platform.meetings_so_far().map_or(0, counted)
}

/// How long a rank that waits on the host sees another ahead of it, in a call and between its calls, before it takes that one for
/// one that waits for it on its GPU.
const PATIENCE: Duration = Duration::from_secs(5);
const PATIENCE_BETWEEN_CALLS: Duration = Duration::from_secs(30);

/// Of a rank that waits on the host: since when it has seen another that has come to more meetings. Where no rank leaves a call out
/// there is none, as all make their calls in one order.
#[derive(Default)]
pub struct Behind(Cell<Option<Instant>>);

impl Behind {
    /// The rank that is ahead, once this one has found some ahead for too long.
    pub fn for_too_long(&self, platform: &dyn Platform, notes: impl Iterator<Item = u64>) -> Option<usize> {
        self.seen_at(Instant::now(), note(platform, true), notes)
    }

    fn seen_at(&self, now: Instant, own: u64, notes: impl Iterator<Item = u64>) -> Option<usize> {
        let is_ahead = |(_, note): &(usize, u64)| own != 0 && *note > own;
        // One in a call rather than one that may come yet.
        let ahead = notes
            .enumerate()
            .filter(is_ahead)
            .max_by_key(|(_, note)| note % 2);
        let Some((rank, note)) = ahead else {
            self.0.set(None);
            return None;
        };
        let since = self.0.get().unwrap_or(now);
        self.0.set(Some(since));
        let patience = [PATIENCE_BETWEEN_CALLS, PATIENCE][(note % 2) as usize];
        (now - since >= patience).then_some(rank)
    }
}

/// True if this rank has come to as many meetings as one with that last count, or more.
pub fn is_at(platform: &dyn Platform, last: u64) -> bool {
    platform.meetings_so_far().is_some_and(|count| count >= last)
}

/// True if this rank has come to meetings to which one with that last count does not come.
pub fn is_beyond(platform: &dyn Platform, last: u64) -> bool {
    platform.meetings_so_far().is_some_and(|count| count > last)
}

/// A rank with most of the known counts and one with fewest, if these differ.
fn apart(counts: &[u64]) -> Option<(usize, usize)> {
    let known = || counts.iter().enumerate().filter(|(_, count)| **count != UNKNOWN);
    let (ahead, most) = known().max_by_key(|(rank, count)| (**count, usize::MAX - rank))?;
    let (behind, least) = known().min_by_key(|(_, count)| **count)?;
    (most != least).then_some((ahead, behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_is_never_apart() {
        let cases: [(&[u64], _); 6] = [
            (&[], None),
            (&[3], None),
            (&[3, 3, UNKNOWN], None),
            (&[UNKNOWN, 3, UNKNOWN], None),
            (&[3, 4, 4, 2, 2], Some((1, 3))),
            (&[UNKNOWN, 0, 1], Some((2, 1))),
        ];
        for (counts, want) in cases {
            assert_eq!(apart(counts), want, "{counts:?}");
        }
    }

    #[test]
    fn who_is_behind_is_patient() {
        let (behind, begun) = (Behind::default(), Instant::now());
        let at = |s, own, notes: &[u64]| {
            behind.seen_at(begun + Duration::from_secs(s), own, notes.iter().copied())
        };
        // Notes of 4 meetings are 10 and 11, of 5 12 and 13; 0 says nothing.
        for s in 0..100 {
            assert_eq!(at(s, 11, &[11, 10, 0]), None);
            assert_eq!(at(s, 0, &[0, 13, 13]), None);
        }
        assert_eq!(at(100, 11, &[11, 12, 13]), None);
        assert_eq!(at(104, 11, &[11, 12, 13]), None);
        assert_eq!(at(105, 11, &[11, 12, 13]), Some(2));
        // Between calls it may come yet.
        assert_eq!(at(129, 11, &[11, 12, 0]), None);
        assert_eq!(at(130, 11, &[11, 12, 0]), Some(1));
        // It came.
        assert_eq!(at(131, 13, &[13, 12, 13]), None);
        assert_eq!(at(132, 13, &[13, 15, 13]), None);
        assert_eq!(at(137, 13, &[13, 15, 13]), Some(1));
    }

    #[test]
    fn values_come_back_without_their_counts() {
        let framed = |count: u64, value: &[u8]| [&count.to_le_bytes(), value].concat();
        let values = checked(
            "free",
            vec![framed(7, b"ab"), framed(7, b""), framed(UNKNOWN, b"c")],
        );
        assert_eq!(values.unwrap(), [&b"ab"[..], b"", b"c"]);
        let error = checked("free", vec![framed(7, b"ab"), framed(5, b"")]).unwrap_err();
        assert_eq!(error.kind, Kind::Logic);
        for words in ["free", "rank 1 left out", "5 and 7"] {
            assert!(error.what.contains(words), "{error}");
        }
        let error = checked("free", vec![framed(7, b"ab"), b"short".to_vec()]).unwrap_err();
        assert_eq!(error.kind, Kind::Communication);
    }
}
