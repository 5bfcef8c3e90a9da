//! `wholememory.h`, the library as a whole: codes, log levels, begin and end.

#![allow(non_camel_case_types)]

use crate::comm::depart_all;
use crate::error::ensure;
use crate::ffi::convert::{raw, truth};
use crate::ffi::guard;
use crate::ffi::objects::{CommObject, forget_communicator, table};
use crate::log::say;
use crate::platform::process::epoch;
use crate::{platform, settings};
use std::ffi::{c_int, c_uint};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static RMM_ENABLED: AtomicBool = AtomicBool::new(false);

/// The flag that malloc compares over the ranks.
pub(crate) fn rmm_enabled() -> bool {
    RMM_ENABLED.load(Ordering::Relaxed)
}

/// Whether the library is in use. No lock: a forked child could not wait for a thread that only its parent has.
static USE: AtomicU64 = AtomicU64::new(UNUSED);
const UNUSED: u64 = 0;
const USED: u64 = 1;

/// A thread of this process is in init; one that only the parent of a forked child has does not count.
fn beginning() -> u64 {
    2 + u64::from(epoch())
}

/// Nothing began if this goes before init is through.
struct Beginning;

impl Drop for Beginning {
    fn drop(&mut self) {
        let _ = USE.compare_exchange(beginning(), UNUSED, Ordering::AcqRel, Ordering::Acquire);
    }
}

/// True between init and finalize.
pub(crate) fn is_initialised() -> bool {
    USE.load(Ordering::Acquire) == USED
}

/// What a call came to. The sentence that belongs to a failure is `wholememory_get_last_error()` (`wholememory/error.h`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum wholememory_error_code_t {
    WHOLEMEMORY_SUCCESS = 0,
    /// A defect of the library (a panic was caught).
    WHOLEMEMORY_UNKNOW_ERROR = 1,
    /// This version does not have it: a function, a dtype, a kind of optimizer.
    WHOLEMEMORY_NOT_IMPLEMENTED = 2,
    /// The call contradicts the state of the library or another argument, or lists of files differ between ranks.
    WHOLEMEMORY_LOGIC_ERROR = 3,
    /// The CUDA driver refused.
    WHOLEMEMORY_CUDA_ERROR = 4,
    /// Another rank died or cannot be reached.
    WHOLEMEMORY_COMMUNICATION_ERROR = 5,
    /// A NULL, dead or foreign object, a name or file that is not there, a shape, an offset or a dtype that does not fit.
    WHOLEMEMORY_INVALID_INPUT = 6,
    /// A number or enumerator out of range, or a value that differs between ranks.
    WHOLEMEMORY_INVALID_VALUE = 7,
    /// There is not enough memory, or a function of the caller gave none.
    WHOLEMEMORY_OUT_OF_MEMORY = 8,
    /// These ranks, this machine or this object in its state cannot do it.
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
/// Errors: LOGIC_ERROR if the process is initialised already (a forked child is if its parent was); INVALID_VALUE for an unknown
/// `WHOLEMEMORY_PLATFORM`; CUDA_ERROR if the driver fails, or finds no device although
/// `WHOLEMEMORY_PLATFORM=cuda` asks for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_init(
    flags: c_uint,
    log_level: MaybeUninit<LogLevel>,
) -> wholememory_error_code_t {
    let _ = flags;
    guard::code(|| {
        let before = USE.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| {
            (now != USED && now != beginning()).then(beginning)
        });
        ensure!(
            before != Err(USED),
            Logic,
            "the library is initialised already in this process; wholememory_finalize comes before another wholememory_init"
        );
        ensure!(
            before.is_ok(),
            Logic,
            "another thread of this process is in wholememory_init; one call serves all its threads"
        );
        let _beginning = Beginning;
        // What the choice of the platform has to say is said at the caller's level; a failed init changes nothing.
        let level_before = crate::log::set_level(raw(log_level));
        platform::at_init().inspect_err(|_| {
            crate::log::set_level(level_before);
        })?;
        for name in settings::ignored_but_set() {
            say!(Info, "{name} is set, but has no effect in this library");
        }
        for wrong in settings::misread() {
            say!(Warn, "{wrong}; it counts as unset");
        }
        USE.store(USED, Ordering::Release);
        Ok(())
    })
}

/// Ends the use of the library: destroys every live communicator of the process with its handles. Collective over all of them:
/// the other processes of these communicators finalize or destroy them too. Ranks that are threads of one process need one call.
///
/// Handles and communicators are dead afterwards (using them is INVALID_INPUT); tensors, embeddings, optimizers and cache policies remain and may still be
/// destroyed. The library may be initialised again. Always SUCCESS, also without init and after the death of a rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_finalize() -> wholememory_error_code_t {
    guard::code(|| {
        USE.store(UNUSED, Ordering::Release);
        let mut all = table().all::<CommObject>();
        all.retain(|(_, object)| object.owner.is_none());
        let communicators: Vec<_> = all.iter().map(|(_, object)| object.comm.clone()).collect();
        depart_all(&communicators);
        all.iter().for_each(|(handle, _)| forget_communicator(*handle));
        platform::trim_scratch();
        Ok(())
    })
}

/// Sets a flag of the process that asks for allocation through RMM. This library does not use RMM: the flag is kept and
/// reported, allocation is not changed. Always SUCCESS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_set_rmm_enabled(enabled: MaybeUninit<bool>) -> wholememory_error_code_t {
    guard::code(|| {
        let enabled = truth(enabled);
        if enabled && !RMM_ENABLED.swap(enabled, Ordering::Relaxed) {
            say!(Warn, "RMM is asked for, but this library allocates without it");
        }
        RMM_ENABLED.store(enabled, Ordering::Relaxed);
        Ok(())
    })
}

/// The flag of `wholememory_set_rmm_enabled`; false at first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_is_rmm_enabled() -> bool {
    rmm_enabled()
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
    guard::value(-1, || {
        let count = platform::fork_device_count();
        ensure!(
            count >= 0,
            Cuda,
            "the devices cannot be counted: the message at ERROR says why"
        );
        Ok(count)
    })
}
