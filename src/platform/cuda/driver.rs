//! The CUDA driver: is it there, and how many devices does it report. No context is made here.

use super::loader::{Unusable, library};
use crate::error::{Error, Kind, Result};
use std::ffi::{CStr, c_char, c_int, c_uint};

library! {
    /// The functions of `libcuda.so.1` that the library calls.
    pub struct Driver from ["libcuda.so.1"] {
        required cuInit: fn(flags: c_uint) -> c_int;
        required cuDeviceGetCount: fn(count: *mut c_int) -> c_int;
        optional cuGetErrorString: fn(code: c_int, text: *mut *const c_char) -> c_int;
        optional cuGetErrorName: fn(code: c_int, text: *mut *const c_char) -> c_int;
    }
}

const CUDA_SUCCESS: c_int = 0;
pub(super) const CUDA_ERROR_NO_DEVICE: c_int = 100;

/// What a machine offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Devices {
    /// At least one.
    Count(i32),
    /// No driver, or a driver that reports no device; in words.
    None(String),
}

type Text = unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int;

/// What the driver's two functions say about a code: its name and a sentence.
pub(super) fn words(code: c_int, name: Option<Text>, sentence: Option<Text>) -> String {
    let ask = |function: Option<Text>| {
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: the driver stores a pointer to a constant string, or NULL for an unknown code.
        let answer = unsafe { function?(code, &mut text) };
        if answer != CUDA_SUCCESS || text.is_null() {
            return None;
        }
        // SAFETY: a non-NULL text of a successful call is a NUL-terminated constant.
        Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    let name = ask(name).map_or(format!("CUDA error {code}"), |n| format!("{n} ({code})"));
    match ask(sentence) {
        Some(sentence) => format!("{name}: {sentence}"),
        None => name,
    }
}

impl Driver {
    /// The driver's words for a code of its own.
    pub fn words(&self, code: c_int) -> String {
        words(code, self.cuGetErrorName, self.cuGetErrorString)
    }

    /// Initialises the driver in this process and counts the devices.
    /// # Errors
    /// CUDA_ERROR with the driver's words for every failure but "no device".
    pub fn count(&self) -> Result<Devices> {
        match self.raw_count() {
            Ok(count) if count > 0 => Ok(Devices::Count(count)),
            Ok(count) => Ok(Devices::None(format!("the CUDA driver reports {count} devices"))),
            Err((_, CUDA_ERROR_NO_DEVICE)) => Ok(Devices::None(format!(
                "the CUDA driver reports no device ({})",
                self.words(CUDA_ERROR_NO_DEVICE)
            ))),
            Err((call, code)) => Err(Error::new(
                Kind::Cuda,
                format!("{call} of the CUDA driver failed: {}", self.words(code)),
            )),
        }
    }

    /// [`Driver::count`] without words: the count (0 for no device), or the call that failed and its code. Allocates nothing.
    pub fn raw_count(&self) -> std::result::Result<c_int, (&'static str, c_int)> {
        // SAFETY: cuInit may be called any number of times, from any thread.
        match unsafe { (self.cuInit)(0) } {
            CUDA_SUCCESS => self.initialised_count(),
            code => Err(("cuInit", code)),
        }
    }

    /// The count in a process where somebody has called `cuInit` before; fails elsewhere.
    pub fn initialised_count(&self) -> std::result::Result<c_int, (&'static str, c_int)> {
        let mut count = 0;
        // SAFETY: `count` outlives the call.
        match unsafe { (self.cuDeviceGetCount)(&mut count) } {
            CUDA_SUCCESS => Ok(count),
            code => Err(("cuDeviceGetCount", code)),
        }
    }
}

/// Loads and initialises the driver in this process and counts the devices.
/// # Errors
/// CUDA_ERROR if a driver is there and fails in any other way than reporting no device.
pub fn probe() -> Result<Devices> {
    match Driver::get() {
        Ok(driver) => driver.count(),
        Err(Unusable::Absent(words)) => Ok(Devices::None(format!("no CUDA driver: {words}"))),
        Err(Unusable::Broken(words)) => Err(Error::new(
            Kind::Cuda,
            format!("the CUDA driver cannot be used: {words}"),
        )),
    }
}

/// True for the code with which the driver says that there is no device.
pub fn means_no_device(code: c_int) -> bool {
    code == CUDA_ERROR_NO_DEVICE
}
