//! The runtime's account of a device (`cudaDeviceProp`), which only code compiled against the runtime's header can fill.

use super::MOST_DEVICES;
use super::gpu::{current_device, functions};
use crate::span::Address;
use std::sync::OnceLock;

#[cfg(wholememory_kernels)]
unsafe extern "C" {
    fn wmk_device_properties(
        device: std::ffi::c_int,
        out: *mut std::ffi::c_void,
        bytes: *mut usize,
    ) -> std::ffi::c_int;
}

/// See [`crate::platform::device_properties`].
pub fn device_properties(ordinal: i32) -> Option<Address> {
    static KNOWN: [OnceLock<Box<[u64]>>; MOST_DEVICES] = [const { OnceLock::new() }; MOST_DEVICES];
    let device = match ordinal {
        -1 => current_device(functions().ok()?).ok()?,
        other => other,
    };
    let place = KNOWN.get(usize::try_from(device).ok()?)?;
    if place.get().is_none() {
        let _ = place.set(ask(device)?);
    }
    place.get().map(|words| Address(words.as_ptr() as usize))
}

#[cfg(wholememory_kernels)]
fn ask(device: i32) -> Option<Box<[u64]>> {
    let mut bytes = 0;
    // SAFETY: with no place for the properties only their size is written.
    if unsafe { wmk_device_properties(device, std::ptr::null_mut(), &mut bytes) } != 0 {
        return None;
    }
    let mut words = vec![0u64; bytes.div_ceil(8)].into_boxed_slice();
    // SAFETY: the place has the size just told.
    let code = unsafe { wmk_device_properties(device, words.as_mut_ptr().cast(), &mut bytes) };
    (code == 0).then_some(words)
}

#[cfg(not(wholememory_kernels))]
fn ask(_device: i32) -> Option<Box<[u64]>> {
    None
}
