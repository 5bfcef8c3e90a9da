//! NCCL: is it there, and new enough.

use super::loader::library;
use crate::error::{Error, Kind, Result};
use std::ffi::{CStr, c_char, c_int};

library! {
    /// The functions of `libnccl.so.2` that the library calls.
    pub struct Nccl from ["libnccl.so.2", "libnccl.so"] {
        required ncclGetVersion: fn(version: *mut c_int) -> c_int;
        required ncclGetErrorString: fn(code: c_int) -> *const c_char;
    }
}

/// The oldest version whose configuration and abort calls the library relies on (2.18.0), as NCCL encodes it.
pub const FLOOR: c_int = 21800;

/// The version of the NCCL library found, as NCCL encodes it.
/// # Errors
/// NOT_SUPPORTED with the reason: no NCCL, not loadable, or older than 2.18.
pub fn version() -> Result<c_int> {
    let refuse = |what: String| Error::new(Kind::NotSupported, what);
    let nccl = Nccl::get().map_err(|unusable| refuse(format!("NCCL cannot be used: {unusable}")))?;
    let mut version = 0;
    // SAFETY: `version` outlives the call.
    let code = unsafe { (nccl.ncclGetVersion)(&mut version) };
    if code != 0 {
        // SAFETY: NCCL returns a constant string for every code.
        let text = unsafe { (nccl.ncclGetErrorString)(code) };
        let words = if text.is_null() {
            format!("error {code}")
        } else {
            // SAFETY: not NULL, NUL-terminated constant.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        return Err(refuse(format!("ncclGetVersion failed: {words}")));
    }
    if version < FLOOR {
        return Err(refuse(format!(
            "the NCCL library found has version {version}, at least {FLOOR} (2.18.0) is needed"
        )));
    }
    Ok(version)
}
