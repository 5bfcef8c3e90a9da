//! C values to Rust values: enumerators that may be wild, bools of any byte, pointers that may be NULL.

use super::tensor_description::wholememory_tensor_description_t;
use crate::error::{Result, ensure, fail};
use crate::span::Address;
use crate::tensor::Description;
use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr::NonNull;

/// The integer behind an inbound enumerator, whatever it is. `T` is one of the C enums of 32 bits.
pub(crate) fn raw<T: Copy>(value: MaybeUninit<T>) -> u32 {
    const { assert!(size_of::<T>() == 4 && align_of::<T>() == 4) };
    // SAFETY: the caller passed all 4 bytes, and every pattern of them is a u32.
    unsafe { value.as_ptr().cast::<u32>().read() }
}

/// True unless the byte is 0.
pub(crate) fn truth(value: MaybeUninit<bool>) -> bool {
    // SAFETY: the caller passed the byte, and every pattern of it is a u8.
    unsafe { value.as_ptr().cast::<u8>().read() != 0 }
}

/// The enum of a raw dtype as the C structs hold it.
pub(crate) fn dressed<T: Copy>(raw: u32) -> MaybeUninit<T> {
    const { assert!(size_of::<T>() == 4 && align_of::<T>() == 4) };
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: 4 aligned bytes are written to a place that has them; the place may hold any pattern.
    unsafe { value.as_mut_ptr().cast::<u32>().write(raw) };
    value
}

/// A place of the caller for an output.
pub(crate) struct Out<T>(NonNull<T>);

impl<T> Out<T> {
    /// # Errors
    /// INVALID_INPUT for NULL.
    pub(crate) fn new(name: &str, place: *mut T) -> Result<Out<T>> {
        match NonNull::new(place) {
            Some(place) => Ok(Out(place)),
            None => fail!(InvalidInput, "{name} is NULL, there is no place for the result"),
        }
    }

    /// # Safety
    /// The place is valid for a write of `T`, as the C contract of every output says.
    pub(crate) unsafe fn write(self, value: T) {
        // SAFETY: by the contract of this function.
        unsafe { self.0.write(value) }
    }

    /// # Safety
    /// The place is valid for writes of `values.len()` values.
    pub(crate) unsafe fn write_all(self, values: &[T])
    where
        T: Copy,
    {
        // SAFETY: by the contract of this function; the caller's array and ours are apart.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), self.0.as_ptr(), values.len()) }
    }
}

/// Writes to an output that may be NULL for "not wanted".
/// # Safety
/// The place is NULL or valid for a write of `T`.
pub(crate) unsafe fn write_if_wanted<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: by the contract of this function.
        unsafe { place.write(value) }
    }
}

/// # Errors
/// INVALID_INPUT for NULL.
/// # Safety
/// The pointer is NULL or valid for a read of `T`.
pub(crate) unsafe fn read<T: Copy>(name: &str, from: *const T) -> Result<T> {
    ensure!(!from.is_null(), InvalidInput, "{name} is NULL");
    // SAFETY: by the contract of this function.
    Ok(unsafe { from.read() })
}

/// `count` values of the caller's array.
/// # Errors
/// INVALID_INPUT for NULL.
/// # Safety
/// The pointer is NULL or valid for reads of `count` values.
pub(crate) unsafe fn values<T: Copy>(name: &str, from: *const T, count: usize) -> Result<Vec<T>> {
    ensure!(!from.is_null(), InvalidInput, "{name} is NULL");
    // SAFETY: by the contract of this function.
    Ok(unsafe { std::slice::from_raw_parts(from, count) }.to_vec())
}

/// The optional partition of the caller, one value a rank.
/// # Safety
/// The pointer is NULL or valid for reads of `ranks` values.
pub(crate) unsafe fn partition(from: *const usize, ranks: usize) -> Option<Vec<usize>> {
    // SAFETY: by the contract of this function.
    (!from.is_null()).then(|| unsafe { std::slice::from_raw_parts(from, ranks) }.to_vec())
}

/// A file name of the caller.
/// # Errors
/// INVALID_INPUT for NULL.
/// # Safety
/// The pointer is NULL or points at a string ended by NUL.
pub(crate) unsafe fn path(name: &str, from: *const c_char) -> Result<PathBuf> {
    ensure!(
        !from.is_null(),
        InvalidInput,
        "{name} is NULL, it must be a file name"
    );
    // SAFETY: by the contract of this function.
    let text = unsafe { CStr::from_ptr(from) };
    Ok(PathBuf::from(std::ffi::OsStr::from_bytes(text.to_bytes())))
}

pub(crate) fn address<T>(pointer: *const T) -> Address {
    Address(pointer as usize)
}

pub(crate) fn pointer(address: Address) -> *mut c_void {
    address.0 as *mut c_void
}

impl From<wholememory_tensor_description_t> for Description {
    fn from(c: wholememory_tensor_description_t) -> Description {
        Description {
            sizes: c.sizes,
            strides: c.strides,
            storage_offset: c.storage_offset,
            dim: c.dim,
            dtype: raw(c.dtype),
        }
    }
}

impl From<Description> for wholememory_tensor_description_t {
    fn from(description: Description) -> wholememory_tensor_description_t {
        wholememory_tensor_description_t {
            sizes: description.sizes,
            strides: description.strides,
            storage_offset: description.storage_offset,
            dim: description.dim,
            dtype: dressed(description.dtype),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ffi::tensor_description::wholememory_dtype_t;

    #[test]
    fn wild_enumerators_and_bools_are_defined() {
        for value in [0, 1, 99, u32::MAX] {
            assert_eq!(raw(dressed::<wholememory_dtype_t>(value)), value);
        }
        for (byte, expected) in [(0u8, false), (1, true), (2, true), (255, true)] {
            let mut value = MaybeUninit::<bool>::uninit();
            // SAFETY: a byte is written to a place of one byte that may hold any pattern.
            unsafe { value.as_mut_ptr().cast::<u8>().write(byte) };
            assert_eq!(truth(value), expected);
        }
    }

    #[test]
    fn null_is_an_error_with_the_name() {
        let what = Out::<i32>::new("rank", std::ptr::null_mut()).err().unwrap().what;
        assert!(what.starts_with("rank is NULL"), "{what}");
        // SAFETY: NULL is what these functions check for.
        unsafe {
            assert!(read::<i64>("starts", std::ptr::null()).is_err());
            assert!(values::<i64>("starts", std::ptr::null(), 2).is_err());
            assert!(path("local_file_name", std::ptr::null()).is_err());
            write_if_wanted::<i64>(std::ptr::null_mut(), 1);
        }
    }
}
