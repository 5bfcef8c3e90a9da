//! The two functions that are exported and declared in no header: loading from HDFS, which this library does not do.

use super::guard;
use super::wholememory::library::wholememory_error_code_t;
use super::wholememory::memory::wholememory_handle_t;
use crate::error::fail;
use std::ffi::{c_char, c_int};

/// NOT_IMPLEMENTED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_load_hdfs_support() -> wholememory_error_code_t {
    refused()
}

/// NOT_IMPLEMENTED; the arguments are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_load_from_hdfs_file(
    wholememory_handle: wholememory_handle_t,
    memory_offset: usize,
    memory_entry_size: usize,
    file_entry_size: usize,
    hdfs_host: *const c_char,
    hdfs_port: c_int,
    hdfs_user: *const c_char,
    hdfs_path: *const c_char,
    hdfs_prefix: *const c_char,
) -> wholememory_error_code_t {
    let _ = (
        wholememory_handle,
        memory_offset,
        memory_entry_size,
        file_entry_size,
        hdfs_host,
        hdfs_port,
        hdfs_user,
        hdfs_path,
        hdfs_prefix,
    );
    refused()
}

fn refused() -> wholememory_error_code_t {
    guard::code(|| fail!(NotImplemented, "loading from HDFS is not in this version"))
}
