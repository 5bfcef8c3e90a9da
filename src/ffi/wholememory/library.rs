//! `wholememory.h`, the library as a whole: codes, log levels, begin and end.

#![allow(non_camel_case_types)]

use std::ffi::{c_int, c_uint};
use std::mem::MaybeUninit;

/// What a call came to. The sentence that belongs to a failure is `wholememory_get_last_error()` (`wholememory/error.h`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum wholememory_error_code_t {
    WHOLEMEMORY_SUCCESS = 0,
    /// A defect of the library (a panic was caught).
    WHOLEMEMORY_UNKNOW_ERROR = 1,
    /// This version does not have it.
    WHOLEMEMORY_NOT_IMPLEMENTED = 2,
    /// The call contradicts the state of the library or another argument.
    WHOLEMEMORY_LOGIC_ERROR = 3,
    /// The CUDA driver refused.
    WHOLEMEMORY_CUDA_ERROR = 4,
    /// Another rank died or cannot be reached.
    WHOLEMEMORY_COMMUNICATION_ERROR = 5,
    /// A NULL, dead or foreign object, or a tensor of the wrong shape.
    WHOLEMEMORY_INVALID_INPUT = 6,
    /// A number out of range, or one that differs between ranks.
    WHOLEMEMORY_INVALID_VALUE = 7,
    WHOLEMEMORY_OUT_OF_MEMORY = 8,
    /// These ranks or this machine cannot do it.
    WHOLEMEMORY_NOT_SUPPORTED = 9,
    /// The operating system refused.
    WHOLEMEMORY_SYSTEM_ERROR = 10,
}

/// Levels of the messages on stderr, from silent to chatty.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    LEVEL_FATAL = 0,
    LEVEL_ERROR = 1,
    LEVEL_WARN = 2,
    LEVEL_INFO = 3,
    LEVEL_DEBUG = 4,
    LEVEL_TRACE = 5,
}

/// Begins the use of the library in this process (once for all its ranks) and sets the log level. Local.
///
/// Makes no CUDA context and selects no device, so it may come before the caller chooses one. No other function needs it;
/// only `get_device_prop` answers NULL before it.
/// `flags` is ignored. `log_level` above TRACE means TRACE; the environment variable `WHOLEMEMORY_LOG` overrides it. C++: default LEVEL_INFO.
///
/// Errors: LOGIC_ERROR if the process is initialised already; CUDA_ERROR if the driver fails, or finds no device although
/// `WHOLEMEMORY_PLATFORM=cuda` asks for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_init(
    flags: c_uint,
    log_level: MaybeUninit<LogLevel>,
) -> wholememory_error_code_t {
    let _ = (flags, log_level);
    super::super::guard::later()
}

/// Ends the use of the library: destroys every live communicator of the process with its handles. Collective over all of them:
/// the other processes of these communicators finalize or destroy them too. Ranks that are threads of one process need one call.
///
/// Handles and communicators are dead afterwards (using them is INVALID_INPUT); tensors remain and may still be
/// destroyed. The library may be initialised again. Always SUCCESS, also without init and after the death of a rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_finalize() -> wholememory_error_code_t {
    super::super::guard::later()
}

/// Sets a flag of the process that asks for allocation through RMM. This library does not use RMM: the flag is kept and
/// reported, allocation is not changed. Always SUCCESS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_set_rmm_enabled(enabled: MaybeUninit<bool>) -> wholememory_error_code_t {
    let _ = enabled;
    super::super::guard::later()
}

/// The flag of `wholememory_set_rmm_enabled`; false at first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_is_rmm_enabled() -> bool {
    false
}

/// True if the library was built with NVSHMEM. This version: false.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_is_build_with_nvshmem() -> bool {
    false
}

/// The number of CUDA devices, learned in a short-lived child process so that CUDA stays uninitialised in this one.
/// 0 without a driver or a device, -1 when fork, pipe or the driver fails. A count above 0 is remembered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fork_get_device_count() -> c_int {
    0
}
