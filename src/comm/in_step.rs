//! Whether the ranks have come to the same meetings of their streams. Calls whose ranks meet on their GPUs return before the
//! others have come, so one that a rank left out is noticed where ranks meet on the host next: a rank that waited for its GPU
//! there would wait for ever. One that waits for its GPU before it comes there is noticed by those who wait for it.

use crate::error::{Error, Kind, Result, ensure};
use crate::platform::{Member, Platform};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Stands for a count that says nothing.
const UNKNOWN: u64 = u64::MAX;
const COUNT_BYTES: usize = size_of::<u64>();

fn own_count(platform: &dyn Platform) -> u64 {
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
        ensure!(
            false,
            Logic,
            "{operation}: rank {behind} left out a call on this communicator that rank {ahead} made, whose GPU waits for it: their streams \
             have met {} and {} times; every rank must make every gather, scatter and gradient step; rank {behind} still can",
            counts[behind],
            counts[ahead]
        );
    }
    Ok(values)
}

/// What a rank in a call leaves for the others of its host; 0 says nothing, as outside calls.
pub fn note(platform: &dyn Platform) -> u64 {
    platform.meetings_so_far().map_or(0, |count| count + 1)
}

/// How long others may be in a call, ahead of a rank that waits for them on the host.
const PATIENCE: Duration = Duration::from_secs(5);

/// Of a rank that waits on the host: since when it has seen another that is in a call and has come to more meetings. That
/// one may be waiting for this rank on its GPU.
#[derive(Default)]
pub struct Behind(Cell<Option<Instant>>);

impl Behind {
    /// The rank that is ahead, once this one has found some ahead for too long.
    pub fn for_too_long(&self, platform: &dyn Platform, notes: impl Iterator<Item = u64>) -> Option<usize> {
        let own = note(platform);
        let ahead = notes.enumerate().find(|(_, note)| own != 0 && *note > own);
        let Some((rank, _)) = ahead else {
            self.0.set(None);
            return None;
        };
        let since = self.0.get().unwrap_or_else(Instant::now);
        self.0.set(Some(since));
        (since.elapsed() >= PATIENCE).then_some(rank)
    }
}

/// True if ranks with these platforms, none of which makes another call, have come to different numbers of meetings.
pub fn are_apart<'a>(platforms: impl Iterator<Item = &'a dyn Member>) -> bool {
    apart(&platforms.map(|one| own_count(one)).collect::<Vec<_>>()).is_some()
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
