//! Where a GPU is in an NVLink fabric, as NVML tells it. NVML is optional, and whatever fails in it means "in no fabric".

use super::gpu::Gpu;
use super::loader::library;
use crate::log::say;
use crate::platform::Fabric;
use crate::platform::process::PerProcess;
use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::sync::{Mutex, PoisonError};

library! {
    /// The functions of NVML that the library calls.
    pub struct Nvml from ["libnvidia-ml.so.1", "libnvidia-ml.so"] {
        required nvmlInit_v2: fn() -> c_int;
        required nvmlShutdown: fn() -> c_int;
        required nvmlDeviceGetHandleByUUID: fn(uuid: *const c_char, device: *mut *mut c_void) -> c_int;
        required nvmlDeviceGetGpuFabricInfo: fn(device: *mut c_void, info: *mut FabricInfo) -> c_int;
    }
}

/// `nvmlGpuFabricInfo_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FabricInfo {
    pub cluster: [u8; 16],
    pub status: c_int,
    pub clique: c_uint,
    pub state: c_int,
}

/// `NVML_GPU_FABRIC_STATE_COMPLETED`.
pub const COMPLETED: c_int = 3;

/// The oldest compute capability whose memory other hosts can map.
const LEAST_CAPABILITY: (i32, i32) = (9, 0);

const NONE: Fabric = Fabric {
    cluster: [0; 16],
    clique: 0,
    is_ready: false,
};

/// The place of a GPU; `None` where there is no NVML. Asked once a process and GPU, since NVML takes its time to begin.
pub fn fabric_of(gpu: &Gpu) -> Option<Fabric> {
    static KNOWN: PerProcess<Mutex<BTreeMap<String, Fabric>>> =
        PerProcess::new(Mutex::new(BTreeMap::new()), Mutex::default);
    let nvml = match Nvml::get() {
        Ok(nvml) => nvml,
        Err(unusable) => {
            say!(Debug, "nothing is known of NVLink fabrics: {unusable}");
            return None;
        }
    };
    let facts = &gpu.facts;
    if !facts.shares_over_fabric || facts.capability < LEAST_CAPABILITY {
        return Some(NONE);
    }
    let mut known = KNOWN.get().lock().unwrap_or_else(PoisonError::into_inner);
    let place = known
        .entry(facts.identity.clone())
        .or_insert_with(|| ask(nvml, &facts.identity));
    Some(*place)
}

/// The place of the GPU with this UUID.
fn ask(nvml: &Nvml, identity: &str) -> Fabric {
    let Ok(uuid) = CString::new(identity) else {
        return NONE;
    };
    let mut info = FabricInfo::default();
    let mut device: *mut c_void = std::ptr::null_mut();
    // SAFETY: the outputs and the name outlive the calls; what is begun is ended.
    let code = unsafe {
        match (nvml.nvmlInit_v2)() {
            0 => {
                let code = match (nvml.nvmlDeviceGetHandleByUUID)(uuid.as_ptr(), &mut device) {
                    0 => (nvml.nvmlDeviceGetGpuFabricInfo)(device, &mut info),
                    code => code,
                };
                (nvml.nvmlShutdown)();
                code
            }
            code => code,
        }
    };
    if code != 0 {
        say!(
            Debug,
            "{identity} counts as in no NVLink fabric: NVML error {code}"
        );
        return NONE;
    }
    Fabric {
        cluster: info.cluster,
        clique: info.clique,
        is_ready: info.state == COMPLETED && info.status == 0 && info.cluster != [0; 16],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::ffi::CStr;

    thread_local! {
        /// What the fake answers: the code of each call, and the state.
        static ANSWERS: Cell<([c_int; 3], c_int)> = const { Cell::new(([0; 3], COMPLETED)) };
        static BEGUN: Cell<i32> = const { Cell::new(0) };
    }

    unsafe extern "C" fn init() -> c_int {
        let code = ANSWERS.get().0[0];
        BEGUN.set(BEGUN.get() + c_int::from(code == 0));
        code
    }

    unsafe extern "C" fn shutdown() -> c_int {
        BEGUN.set(BEGUN.get() - 1);
        0
    }

    unsafe extern "C" fn by_uuid(uuid: *const c_char, device: *mut *mut c_void) -> c_int {
        // SAFETY: the caller's name and output.
        unsafe {
            assert_eq!(CStr::from_ptr(uuid), c"GPU-7");
            device.write(7 as *mut c_void);
        }
        ANSWERS.get().0[1]
    }

    unsafe extern "C" fn info(device: *mut c_void, info: *mut FabricInfo) -> c_int {
        assert_eq!(device as usize, 7);
        let told = FabricInfo {
            cluster: [5; 16],
            status: 0,
            clique: 3,
            state: ANSWERS.get().1,
        };
        // SAFETY: the caller's output.
        unsafe { info.write(told) };
        ANSWERS.get().0[2]
    }

    #[test]
    fn whatever_fails_is_no_fabric_and_what_is_begun_is_ended() {
        assert_eq!(size_of::<FabricInfo>(), 28);
        let nvml = Nvml::from_functions(&|name| {
            Some(match name {
                "nvmlInit_v2" => init as *const (),
                "nvmlShutdown" => shutdown as *const (),
                "nvmlDeviceGetHandleByUUID" => by_uuid as *const (),
                "nvmlDeviceGetGpuFabricInfo" => info as *const (),
                _ => return None,
            })
        });
        let there = Fabric {
            cluster: [5; 16],
            clique: 3,
            is_ready: true,
        };
        assert_eq!(ask(&nvml, "GPU-7"), there);
        for (answers, want) in [
            (
                ([0; 3], 2),
                Fabric {
                    is_ready: false,
                    ..there
                },
            ),
            (([1, 0, 0], COMPLETED), NONE),
            (([0, 6, 0], COMPLETED), NONE),
            (([0, 0, 3], COMPLETED), NONE),
        ] {
            ANSWERS.set(answers);
            assert_eq!(ask(&nvml, "GPU-7"), want, "{answers:?}");
            assert_eq!(BEGUN.get(), 0);
        }
    }
}
