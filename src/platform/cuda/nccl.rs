//! NCCL: is it there and new enough, its functions, and its words.

use super::loader::library;
use crate::error::{Error, Kind, Result};
use cudarc::driver::sys::CUstream;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

library! {
    /// The functions that tell whether the NCCL found is usable; every version has them.
    pub struct Version from ["libnccl.so.2", "libnccl.so"] {
        required ncclGetVersion: fn(version: *mut c_int) -> c_int;
        required ncclGetErrorString: fn(code: c_int) -> *const c_char;
    }
}

library! {
    /// The functions that the transport calls. Codes come back as plain integers.
    pub struct Nccl from ["libnccl.so.2", "libnccl.so"] {
        required ncclGetErrorString: fn(code: c_int) -> *const c_char;
        required ncclGetLastError: fn(comm: *mut c_void) -> *const c_char;
        required ncclGetUniqueId: fn(id: *mut UniqueId) -> c_int;
        required ncclCommInitRankConfig: fn(comm: *mut *mut c_void, ranks: c_int, id: UniqueId, rank: c_int, config: *mut Config) -> c_int;
        required ncclCommGetAsyncError: fn(comm: *mut c_void, state: *mut c_int) -> c_int;
        required ncclCommFinalize: fn(comm: *mut c_void) -> c_int;
        required ncclCommDestroy: fn(comm: *mut c_void) -> c_int;
        required ncclCommAbort: fn(comm: *mut c_void) -> c_int;
        required ncclGroupStart: fn() -> c_int;
        required ncclGroupEnd: fn() -> c_int;
        required ncclSend: fn(from: *const c_void, count: usize, kind: c_int, peer: c_int, comm: *mut c_void, stream: CUstream) -> c_int;
        required ncclRecv: fn(to: *mut c_void, count: usize, kind: c_int, peer: c_int, comm: *mut c_void, stream: CUstream) -> c_int;
    }
}

/// The oldest version whose configuration and abort calls the library relies on (2.18.0), as NCCL encodes it.
pub const FLOOR: c_int = 21800;

pub const SUCCESS: c_int = 0;
pub const IN_PROGRESS: c_int = 7;
/// `ncclUint8`.
pub const BYTES: c_int = 1;

pub const UNIQUE_ID_BYTES: usize = 128;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId(pub [u8; UNIQUE_ID_BYTES]);

pub(super) const UNDEFINED: c_int = c_int::MIN;

/// `ncclConfig_t` as version 2.18 has it. Newer versions take as much as `size` says; the word that was padding then is a
/// member since, so it says "undefined" too.
#[repr(C)]
pub struct Config {
    pub(super) size: usize,
    pub(super) magic: c_uint,
    pub(super) version: c_uint,
    pub(super) blocking: c_int,
    pub(super) cga_cluster_size: c_int,
    pub(super) min_ctas: c_int,
    pub(super) max_ctas: c_int,
    pub(super) net_name: *const c_char,
    pub(super) split_share: c_int,
    padding: c_int,
}

impl Config {
    /// Calls return at once; the state of the communicator tells when they are done.
    pub fn non_blocking() -> Config {
        Config {
            size: size_of::<Config>(),
            magic: 0xcafe_beef,
            version: FLOOR as c_uint,
            blocking: 0,
            cga_cluster_size: UNDEFINED,
            min_ctas: UNDEFINED,
            max_ctas: UNDEFINED,
            net_name: std::ptr::null(),
            split_share: UNDEFINED,
            padding: UNDEFINED,
        }
    }
}

fn text(words: *const c_char) -> Option<String> {
    if words.is_null() {
        return None;
    }
    // SAFETY: NCCL's texts are NUL-terminated and live as long as the library.
    let words = unsafe { CStr::from_ptr(words) }.to_string_lossy().into_owned();
    Some(words).filter(|words| !words.trim().is_empty())
}

impl Nccl {
    /// The outcome of a call by its code, in NCCL's words. "In progress" is no failure.
    /// # Errors
    /// COMMUNICATION_ERROR.
    pub(super) fn check(&self, call: &str, comm: *mut c_void, code: c_int) -> Result<()> {
        if code == SUCCESS || code == IN_PROGRESS {
            return Ok(());
        }
        // SAFETY: both take any value, a communicator that is NULL included.
        let (name, last) = unsafe { ((self.ncclGetErrorString)(code), (self.ncclGetLastError)(comm)) };
        let name = text(name).unwrap_or_else(|| format!("error {code}"));
        let last = text(last).map_or(String::new(), |last| format!(" ({})", last.trim()));
        Err(Error::new(
            Kind::Communication,
            format!("{call} of NCCL failed: {name}{last}"),
        ))
    }
}

/// The version of the NCCL library found, as NCCL encodes it.
/// # Errors
/// NOT_SUPPORTED with the reason: no NCCL, not loadable, or older than 2.18.
pub fn version() -> Result<c_int> {
    let refuse = |what: String| Error::new(Kind::NotSupported, what);
    let nccl = Version::get().map_err(|unusable| refuse(format!("NCCL cannot be used: {unusable}")))?;
    let mut version = 0;
    // SAFETY: `version` outlives the call.
    let code = unsafe { (nccl.ncclGetVersion)(&mut version) };
    if code != SUCCESS {
        // SAFETY: NCCL returns a constant string for every code.
        let words = text(unsafe { (nccl.ncclGetErrorString)(code) });
        let words = words.unwrap_or_else(|| format!("error {code}"));
        return Err(refuse(format!("ncclGetVersion failed: {words}")));
    }
    if version < FLOOR {
        return Err(refuse(format!(
            "the NCCL library found has version {version}, at least {FLOOR} (2.18.0) is needed"
        )));
    }
    Ok(version)
}

/// NCCL's functions, if it is there and new enough.
/// # Errors
/// NOT_SUPPORTED with the reason.
pub fn usable() -> Result<&'static Nccl> {
    version()?;
    Nccl::get().map_err(|unusable| Error::new(Kind::NotSupported, format!("NCCL cannot be used: {unusable}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_is_laid_out_as_the_header_has_it() {
        assert_eq!(size_of::<Config>(), 48);
        assert_eq!(std::mem::offset_of!(Config, blocking), 16);
        assert_eq!(std::mem::offset_of!(Config, net_name), 32);
        assert_eq!(std::mem::offset_of!(Config, split_share), 40);
        assert_eq!(size_of::<UniqueId>(), UNIQUE_ID_BYTES);
    }

    #[test]
    fn what_is_here_is_usable_or_says_why_not() {
        match usable() {
            Err(error) => {
                assert_eq!(error.kind, Kind::NotSupported);
                println!("skipped: {error}");
            }
            Ok(nccl) => {
                let mut id = UniqueId([0; UNIQUE_ID_BYTES]);
                // SAFETY: the output outlives the call.
                let code = unsafe { (nccl.ncclGetUniqueId)(&mut id) };
                nccl.check("ncclGetUniqueId", std::ptr::null_mut(), code).unwrap();
                assert!(id.0.iter().any(|byte| *byte != 0));
            }
        }
    }
}
