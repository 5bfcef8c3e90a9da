//! The unique ids that are over, as far as this process knows: an id serves one communicator.

use super::place::Cookie;
use crate::error::{Error, Kind, Result};
use crate::platform::process::PerProcess;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// So many are remembered, that a second use may be told from an unknown id.
const MOST: usize = 4096;

struct Over {
    cookie: Cookie,
    /// Why there was no communicator, and the ranks that know it.
    failure: Option<Error>,
    told: BTreeSet<i32>,
}

static OVER: PerProcess<Mutex<VecDeque<Over>>> = PerProcess::new(Mutex::new(VecDeque::new()), Mutex::default);

fn over() -> MutexGuard<'static, VecDeque<Over>> {
    OVER.get().lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn used() -> Error {
    Error::new(
        Kind::InvalidValue,
        "this unique id was used already (an id serves one communicator)",
    )
}

/// The id has served: for a communicator, or for the `failure` that the ranks in `told` have learnt of.
pub fn remember(cookie: &Cookie, failure: Option<Error>, told: BTreeSet<i32>) {
    add(&mut over(), cookie, failure, told);
}

fn add(over: &mut VecDeque<Over>, cookie: &Cookie, failure: Option<Error>, told: BTreeSet<i32>) {
    if over.len() == MOST {
        over.pop_front();
    }
    over.push_back(Over {
        cookie: *cookie,
        failure,
        told,
    });
}

/// The id serves for a communicator that needs no rendezvous.
/// # Errors
/// INVALID_VALUE if it has served.
pub fn use_up(cookie: &Cookie) -> Result<()> {
    let mut over = over();
    if over.iter().any(|o| o.cookie == *cookie) {
        return Err(used());
    }
    add(&mut over, cookie, None, BTreeSet::new());
    Ok(())
}

/// What a rank learns that comes with an id that is over: a rank that comes late why there is no communicator, a rank that has
/// been here that the id was used. `None` for ids of which this process does not know that.
pub fn word_for(cookie: &Cookie, rank: i32) -> Option<Error> {
    let mut over = over();
    let old = over.iter_mut().find(|o| o.cookie == *cookie)?;
    Some(match &old.failure {
        Some(failure) if old.told.insert(rank) => failure.clone(),
        _ => used(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_rank_learns_the_reason_and_a_second_use_is_one() {
        let (failed, served) = ([0xa1; 16], [0xa2; 16]);
        let failure = Error::new(Kind::System, "too many open files");
        remember(&failed, Some(failure), BTreeSet::from([0]));
        remember(&served, None, BTreeSet::from([0, 1]));
        let kind = |cookie, rank| word_for(cookie, rank).map(|e| e.kind);
        assert_eq!(kind(&failed, 0), Some(Kind::InvalidValue));
        assert_eq!(kind(&failed, 1), Some(Kind::System));
        assert_eq!(kind(&failed, 1), Some(Kind::InvalidValue));
        assert_eq!(kind(&served, 2), Some(Kind::InvalidValue));
        assert_eq!(kind(&[0xa3; 16], 0), None);
        assert!(use_up(&served).is_err() && use_up(&[0xa3; 16]).is_ok() && use_up(&[0xa3; 16]).is_err());
    }
}
