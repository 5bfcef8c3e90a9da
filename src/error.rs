//! The one error type of the library: what kind of failure (the C code) and a sentence that says what was wrong.

use std::fmt::Display;

/// The kinds of failure, with the values of `wholememory_error_code_t` (0 is success and no kind).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Kind {
    Unknown = 1,
    NotImplemented = 2,
    Logic = 3,
    Cuda = 4,
    Communication = 5,
    InvalidInput = 6,
    InvalidValue = 7,
    OutOfMemory = 8,
    NotSupported = 9,
    System = 10,
}

impl Kind {
    /// The code that C callers see.
    pub fn code(self) -> u32 {
        self as u32
    }

    /// The kind of a code received from another rank; an unknown code is [`Kind::Unknown`].
    pub fn from_code(code: u32) -> Kind {
        use Kind::*;
        [
            Unknown,
            NotImplemented,
            Logic,
            Cuda,
            Communication,
            InvalidInput,
            InvalidValue,
            OutOfMemory,
            NotSupported,
            System,
        ]
        .into_iter()
        .find(|k| k.code() == code)
        .unwrap_or(Unknown)
    }
}

/// A failure: its kind, a sentence with the values that were wrong, and the underlying cause if there is one.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{what}")]
pub struct Error {
    pub kind: Kind,
    pub what: String,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn new(kind: Kind, what: impl Into<String>) -> Error {
        Error {
            kind,
            what: what.into(),
        }
    }

    /// The same failure seen from further up: `context: what`.
    pub fn within(mut self, context: impl Display) -> Error {
        self.what = format!("{context}: {}", self.what);
        self
    }

    /// A failed system call: [`Kind::System`] with the call and the system's words.
    pub fn system(call: impl Display, error: impl Display) -> Error {
        Error::new(Kind::System, format!("{call}: {error}"))
    }
}

/// Returns an [`Error`](crate::error::Error) of the kind named first from the enclosing function.
macro_rules! fail {
    ($kind:ident, $($words:tt)+) => {
        return Err($crate::error::Error::new($crate::error::Kind::$kind, format!($($words)+)))
    };
}

/// Fails as [`fail!`] unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $kind:ident, $($words:tt)+) => {
        if !$condition {
            $crate::error::fail!($kind, $($words)+);
        }
    };
}

pub(crate) use ensure;
pub(crate) use fail;
