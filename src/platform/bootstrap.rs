//! What the platform asks of the ranks' meeting place, and the agreement every control call is built on.

use crate::error::{Error, Kind, Result};
use std::os::fd::{BorrowedFd, OwnedFd};

/// The ranks of one communicator inside one collective call. Implemented in `comm`; every method but `rank`, `size` and
/// `failure` is collective. A dead rank turns every pending and later call into COMMUNICATION_ERROR; ranks found in
/// different operations get LOGIC_ERROR naming both.
pub trait Bootstrap {
    fn rank(&self) -> usize;

    fn size(&self) -> usize;

    /// The bytes of every rank, in rank order; lengths may differ.
    fn all_gather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>>;

    fn barrier(&self) -> Result<()>;

    /// Hands `mine` to every rank of the host; returns the descriptors of all ranks (`None` where a rank gave none). The own
    /// one comes back duplicated. Only for communicators inside one host.
    fn exchange_descriptors(&self, mine: Option<BorrowedFd<'_>>) -> Result<Vec<Option<OwnedFd>>>;

    /// Why the communicator is broken, if it is.
    fn failure(&self) -> Option<Error>;

    /// Breaks the communicator for all: this rank failed alone, where the others go on to meet it. Those who have nothing that can be
    /// broken do nothing.
    fn break_off(&self, _error: &Error) {}
}

/// An argument that must be the same on all ranks: its name and the value passed here, as the error text shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    pub name: &'static str,
    pub value: String,
}

impl Term {
    pub fn new(name: &'static str, value: impl std::fmt::Display) -> Term {
        Term {
            name,
            value: value.to_string(),
        }
    }
}

const TEXT_BYTES: usize = 700;

fn encode(terms: &[Term], verdict: Option<&Error>) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(verdict.map_or(0, |e| e.kind.code()).to_le_bytes());
    let mut field = |text: &str| {
        let text = truncate(text, TEXT_BYTES);
        out.extend((text.len() as u32).to_le_bytes());
        out.extend(text.as_bytes());
    };
    field(verdict.map_or("", |e| &e.what));
    for term in terms {
        field(term.name);
        field(&term.value);
    }
    out
}

fn truncate(text: &str, most_bytes: usize) -> &str {
    let mut end = text.len().min(most_bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

struct Vote {
    code: u32,
    what: String,
    terms: Vec<(String, String)>,
}

fn decode(bytes: &[u8]) -> Option<Vote> {
    let (code, mut rest) = bytes.split_first_chunk::<4>()?;
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let (len, tail) = rest.split_first_chunk::<4>()?;
        let (text, tail) = tail.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        fields.push(String::from_utf8_lossy(text).into_owned());
        rest = tail;
    }
    let mut fields = fields.into_iter();
    let what = fields.next()?;
    let mut terms = Vec::new();
    while let (Some(name), Some(value)) = (fields.next(), fields.next()) {
        terms.push((name, value));
    }
    Some(Vote {
        code: u32::from_le_bytes(*code),
        what,
        terms,
    })
}

/// All succeed or all fail: every rank brings its own result, and the values that must match. If any rank failed, every
/// rank returns the code of the lowest failing rank, with rank and reason. Else, if a term differs, every rank returns
/// `mismatch` with both values. Else the own value. Collective.
pub fn agree_or<T>(boot: &dyn Bootstrap, terms: &[Term], mismatch: Kind, mine: Result<T>) -> Result<T> {
    let votes: Vec<Vote> = boot
        .all_gather(&encode(terms, mine.as_ref().err()))?
        .iter()
        .map(|b| {
            decode(b).ok_or_else(|| Error::new(Kind::Communication, "a rank sent an unreadable verdict"))
        })
        .collect::<Result<_>>()?;
    if let Some((rank, vote)) = votes.iter().enumerate().find(|(_, v)| v.code != 0) {
        let kind = Kind::from_code(vote.code);
        return Err(match mine {
            Err(own) if rank == boot.rank() => own,
            _ => Error::new(kind, format!("rank {rank}: {}", vote.what)),
        });
    }
    for (rank, vote) in votes.iter().enumerate().skip(1) {
        if let Some((a, b)) = votes[0].terms.iter().zip(&vote.terms).find(|(a, b)| a != b) {
            let what = format!(
                "{} differs between ranks: rank 0 passed {}, rank {rank} passed {}",
                a.0, a.1, b.1
            );
            return Err(Error::new(mismatch, what));
        }
        if votes[0].terms.len() != vote.terms.len() {
            return Err(Error::new(
                mismatch,
                format!("rank 0 and rank {rank} passed different numbers of values"),
            ));
        }
    }
    mine
}

/// The largest of the ranks' numbers. Collective.
/// # Errors
/// COMMUNICATION_ERROR.
pub fn largest(boot: &dyn Bootstrap, own: u64) -> Result<u64> {
    let unreadable = || Error::new(Kind::Communication, "a rank sent an unreadable number");
    let mut most = own;
    for bytes in &boot.all_gather(&own.to_le_bytes())? {
        let bytes = <[u8; 8]>::try_from(bytes.as_slice()).map_err(|_| unreadable())?;
        most = most.max(u64::from_le_bytes(bytes));
    }
    Ok(most)
}

/// [`agree_or`] with INVALID_VALUE for terms that differ.
pub fn agree<T>(boot: &dyn Bootstrap, terms: &[Term], mine: Result<T>) -> Result<T> {
    agree_or(boot, terms, Kind::InvalidValue, mine)
}
