//! The driver's functions that work on a device, and their errors. Loaded when a device is bound, after the probe.

use super::driver::words;
use super::loader::library;
use crate::error::{Error, Kind, Result};
use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUmemAccessDesc,
    CUmemAllocationGranularity_flags, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemGenericAllocationHandle, CUmemPool_attribute, CUmemPoolProps, CUmemoryPool, CUpointer_attribute,
    CUstream, CUuuid,
};
use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

library! {
    /// What a bound device calls. Codes and states come back as plain integers: a driver may know values that no header here has.
    pub struct Functions from ["libcuda.so.1"] {
        required cuInit: fn(flags: c_uint) -> c_int;
        required cuDriverGetVersion: fn(version: *mut c_int) -> c_int;
        required cuDeviceGet: fn(device: *mut CUdevice, ordinal: c_int) -> c_int;
        required cuDeviceGetCount: fn(count: *mut c_int) -> c_int;
        required cuDeviceCanAccessPeer: fn(can: *mut c_int, device: CUdevice, peer: CUdevice) -> c_int;
        required cuDeviceGetName: fn(name: *mut c_char, bytes: c_int, device: CUdevice) -> c_int;
        required cuDeviceGetUuid_v2: fn(uuid: *mut CUuuid, device: CUdevice) -> c_int;
        required cuDeviceGetAttribute: fn(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice) -> c_int;
        required cuDevicePrimaryCtxRetain: fn(context: *mut CUcontext, device: CUdevice) -> c_int;
        required cuDevicePrimaryCtxRelease_v2: fn(device: CUdevice) -> c_int;
        required cuCtxGetCurrent: fn(context: *mut CUcontext) -> c_int;
        required cuCtxGetDevice: fn(device: *mut CUdevice) -> c_int;
        required cuCtxPushCurrent_v2: fn(context: CUcontext) -> c_int;
        required cuCtxPopCurrent_v2: fn(context: *mut CUcontext) -> c_int;
        required cuCtxSynchronize: fn() -> c_int;
        required cuStreamSynchronize: fn(stream: CUstream) -> c_int;
        required cuStreamCreate: fn(stream: *mut CUstream, flags: c_uint) -> c_int;
        required cuStreamDestroy_v2: fn(stream: CUstream) -> c_int;
        required cuStreamIsCapturing: fn(stream: CUstream, status: *mut c_int) -> c_int;
        required cuThreadExchangeStreamCaptureMode: fn(mode: *mut c_int) -> c_int;
        required cuStreamGetCtx: fn(stream: CUstream, context: *mut CUcontext) -> c_int;
        optional cuStreamGetId: fn(stream: CUstream, number: *mut c_ulonglong) -> c_int;
        optional cuStreamGetDevice: fn(stream: CUstream, device: *mut CUdevice) -> c_int;
        required cuStreamWaitEvent: fn(stream: CUstream, event: CUevent, flags: c_uint) -> c_int;
        required cuEventCreate: fn(event: *mut CUevent, flags: c_uint) -> c_int;
        required cuEventRecord: fn(event: CUevent, stream: CUstream) -> c_int;
        required cuEventSynchronize: fn(event: CUevent) -> c_int;
        required cuEventQuery: fn(event: CUevent) -> c_int;
        required cuEventDestroy_v2: fn(event: CUevent) -> c_int;
        required cuMemcpyAsync: fn(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) -> c_int;
        required cuMemcpyHtoD_v2: fn(to: CUdeviceptr, from: *const c_void, bytes: usize) -> c_int;
        required cuMemcpyDtoH_v2: fn(to: *mut c_void, from: CUdeviceptr, bytes: usize) -> c_int;
        required cuPointerGetAttributes: fn(count: c_uint, attributes: *mut CUpointer_attribute, values: *mut *mut c_void, pointer: CUdeviceptr) -> c_int;
        required cuMemGetAllocationGranularity: fn(bytes: *mut usize, properties: *const CUmemAllocationProp, option: CUmemAllocationGranularity_flags) -> c_int;
        required cuMemAddressReserve: fn(base: *mut CUdeviceptr, bytes: usize, alignment_bytes: usize, hint: CUdeviceptr, flags: c_ulonglong) -> c_int;
        required cuMemAddressFree: fn(base: CUdeviceptr, bytes: usize) -> c_int;
        required cuMemCreate: fn(handle: *mut CUmemGenericAllocationHandle, bytes: usize, properties: *const CUmemAllocationProp, flags: c_ulonglong) -> c_int;
        required cuMemRelease: fn(handle: CUmemGenericAllocationHandle) -> c_int;
        required cuMemMap: fn(base: CUdeviceptr, bytes: usize, offset_bytes: usize, handle: CUmemGenericAllocationHandle, flags: c_ulonglong) -> c_int;
        required cuMemUnmap: fn(base: CUdeviceptr, bytes: usize) -> c_int;
        required cuMemSetAccess: fn(base: CUdeviceptr, bytes: usize, access: *const CUmemAccessDesc, count: usize) -> c_int;
        required cuMemExportToShareableHandle: fn(shareable: *mut c_void, handle: CUmemGenericAllocationHandle, kind: CUmemAllocationHandleType, flags: c_ulonglong) -> c_int;
        required cuMemImportFromShareableHandle: fn(handle: *mut CUmemGenericAllocationHandle, shareable: *mut c_void, kind: CUmemAllocationHandleType) -> c_int;
        required cuMemHostRegister_v2: fn(base: *mut c_void, bytes: usize, flags: c_uint) -> c_int;
        required cuMemHostUnregister: fn(base: *mut c_void) -> c_int;
        required cuMemHostGetDevicePointer_v2: fn(device: *mut CUdeviceptr, host: *mut c_void, flags: c_uint) -> c_int;
        required cuMemAlloc_v2: fn(base: *mut CUdeviceptr, bytes: usize) -> c_int;
        required cuMemFree_v2: fn(base: CUdeviceptr) -> c_int;
        required cuMemPoolCreate: fn(pool: *mut CUmemoryPool, properties: *const CUmemPoolProps) -> c_int;
        required cuMemPoolSetAttribute: fn(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void) -> c_int;
        required cuMemPoolTrimTo: fn(pool: CUmemoryPool, kept_bytes: usize) -> c_int;
        required cuMemPoolDestroy: fn(pool: CUmemoryPool) -> c_int;
        required cuMemAllocFromPoolAsync: fn(base: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream) -> c_int;
        required cuMemFreeAsync: fn(base: CUdeviceptr, stream: CUstream) -> c_int;
        required cuMemHostAlloc: fn(base: *mut *mut c_void, bytes: usize, flags: c_uint) -> c_int;
        required cuMemFreeHost: fn(base: *mut c_void) -> c_int;
        optional cuGetErrorString: fn(code: c_int, text: *mut *const c_char) -> c_int;
        optional cuGetErrorName: fn(code: c_int, text: *mut *const c_char) -> c_int;
    }
}

/// How pinned and registered host memory is made: for all contexts of the process, with an address for the device.
pub const PORTABLE: c_uint = 1;
pub const DEVICEMAP: c_uint = 2;

pub(super) const CUDA_ERROR_OUT_OF_MEMORY: c_int = 2;
pub(super) const CUDA_ERROR_OPERATING_SYSTEM: c_int = 304;

/// What a code of the driver, or the runtime's of the same number, is: OUT_OF_MEMORY where it has no memory, SYSTEM_ERROR where the
/// system refused it something, such as a descriptor, else CUDA_ERROR.
pub fn kind_of(code: c_int) -> Kind {
    match code {
        CUDA_ERROR_OUT_OF_MEMORY => Kind::OutOfMemory,
        CUDA_ERROR_OPERATING_SYSTEM => Kind::System,
        _ => Kind::Cuda,
    }
}

impl Functions {
    /// The outcome of a call by its code, in the driver's words.
    pub fn check(&self, call: &str, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let said = words(code, self.cuGetErrorName, self.cuGetErrorString);
        Err(Error::new(kind_of(code), format!("{call} failed: {said}")))
    }
}

/// Calls a function of a table and checks its code. Unsafe as the function is.
macro_rules! drive {
    ($functions:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        let functions = $functions;
        functions.check(stringify!($name), (functions.$name)($($argument),*))
    }};
}

pub(super) use drive;
