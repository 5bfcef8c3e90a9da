//! The one place where errors become codes.

use super::wholememory::library::wholememory_error_code_t;

pub(crate) fn later() -> wholememory_error_code_t {
    wholememory_error_code_t::WHOLEMEMORY_NOT_IMPLEMENTED
}

pub(crate) fn last_error() -> *const std::ffi::c_char {
    c"".as_ptr()
}
