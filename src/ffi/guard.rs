//! The one place where errors become codes: catches panics and keeps the words for `wholememory_get_last_error`.

use super::wholememory::library::wholememory_error_code_t;
use crate::error::{Error, Kind, Result};
use crate::platform::call::Call;
use crate::platform::reserve;
use std::any::Any;
use std::cell::UnsafeCell;
use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Bytes of the kept text with its NUL.
const TEXT_BYTES: usize = 1024;

thread_local! {
    /// Const and without destructor, so that it can be read at any time in the life of a thread.
    static TEXT: UnsafeCell<[u8; TEXT_BYTES]> = const { UnsafeCell::new([0; TEXT_BYTES]) };
}

/// The text of this thread's last failure, ended by NUL.
pub(crate) fn last_error() -> *const c_char {
    TEXT.with(|text| text.get().cast::<c_char>().cast_const())
}

/// Keeps the words of a failure: the part that fits, cut between characters; NUL bytes become spaces.
fn keep(words: &str) {
    let mut end = words.len().min(TEXT_BYTES - 1);
    while !words.is_char_boundary(end) {
        end -= 1;
    }
    TEXT.with(|text| {
        // SAFETY: the cell belongs to this thread and no reference into it lives outside this block.
        let text = unsafe { &mut *text.get() };
        for (to, from) in text.iter_mut().zip(&words.as_bytes()[..end]) {
            *to = if *from == 0 { b' ' } else { *from };
        }
        text[end] = 0;
    });
}

fn panic_words(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no text")
}

/// Runs the body of an export; a panic becomes an error of kind UNKNOW_ERROR.
pub(crate) fn caught<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    reserve::keep();
    let _call = Call::begin();
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        let what = format!(
            "a defect of the library (please report it): {}",
            panic_words(&*payload)
        );
        // A payload whose own destructor panics must not end the process.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(payload)));
        Err(Error::new(Kind::Unknown, what))
    })
}

fn code_of(kind: Kind) -> wholememory_error_code_t {
    use wholememory_error_code_t::*;
    match kind {
        Kind::Unknown => WHOLEMEMORY_UNKNOW_ERROR,
        Kind::NotImplemented => WHOLEMEMORY_NOT_IMPLEMENTED,
        Kind::Logic => WHOLEMEMORY_LOGIC_ERROR,
        Kind::Cuda => WHOLEMEMORY_CUDA_ERROR,
        Kind::Communication => WHOLEMEMORY_COMMUNICATION_ERROR,
        Kind::InvalidInput => WHOLEMEMORY_INVALID_INPUT,
        Kind::InvalidValue => WHOLEMEMORY_INVALID_VALUE,
        Kind::OutOfMemory => WHOLEMEMORY_OUT_OF_MEMORY,
        Kind::NotSupported => WHOLEMEMORY_NOT_SUPPORTED,
        Kind::System => WHOLEMEMORY_SYSTEM_ERROR,
    }
}

/// The body of an export that returns a code.
pub(crate) fn code(body: impl FnOnce() -> Result<()>) -> wholememory_error_code_t {
    match caught(body) {
        Ok(()) => wholememory_error_code_t::WHOLEMEMORY_SUCCESS,
        Err(error) => {
            keep(&error.what);
            code_of(error.kind)
        }
    }
}

/// The body of an export that returns something else; `fault` stands for a failure.
pub(crate) fn value<T>(fault: T, body: impl FnOnce() -> Result<T>) -> T {
    caught(body).unwrap_or_else(|error| {
        keep(&error.what);
        fault
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::fail;
    use std::ffi::CStr;

    fn text() -> String {
        // SAFETY: the text is ended by NUL and not changed while it is read.
        unsafe { CStr::from_ptr(last_error()) }
            .to_str()
            .unwrap()
            .to_owned()
    }

    #[test]
    fn failures_overwrite_and_successes_leave() {
        std::thread::spawn(|| {
            assert_eq!(text(), "");
            let failed = code(|| fail!(InvalidValue, "size is {}", -3));
            assert_eq!(failed, wholememory_error_code_t::WHOLEMEMORY_INVALID_VALUE);
            assert_eq!(text(), "size is -3");
            assert_eq!(code(|| Ok(())), wholememory_error_code_t::WHOLEMEMORY_SUCCESS);
            assert_eq!(text(), "size is -3");
            assert_eq!(value(0, || fail!(InvalidInput, "handle is NULL")), 0);
            assert_eq!(text(), "handle is NULL");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn every_kind_keeps_its_code() {
        for raw in 1..=10 {
            let kind = Kind::from_code(raw);
            assert_eq!(code_of(kind) as u32, kind.code());
        }
    }

    #[test]
    fn panics_become_a_code_with_their_text() {
        let result = code(|| panic!("index {} out of range", 7));
        assert_eq!(result, wholememory_error_code_t::WHOLEMEMORY_UNKNOW_ERROR);
        assert!(text().ends_with("index 7 out of range"), "{}", text());
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        code(|| fail!(System, "{}", "é".repeat(1000)));
        assert_eq!(text().len(), 1022);
        code(|| fail!(System, "a\0b"));
        assert_eq!(text(), "a b");
    }
}
