//! `error.h`: the words behind a code.

use std::ffi::c_char;

/// Why the last failing call of this thread failed: one sentence, at most 1023 bytes, with the values that were wrong.
///
/// Never NULL; "" before the first failure. Calls that return NULL, 0, false or NONE because something was wrong set it too; a call that
/// succeeds leaves it. The text belongs to the library and stands until the next failing call of the thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_last_error() -> *const c_char {
    super::guard::last_error()
}
