//! One GPU as this process uses it: its primary context, kept for as long as anything needs it, and what is known of it.

use super::functions::{Functions, drive};
use super::loader::Unusable;
use crate::error::{Error, Kind, Result, ensure, fail};
use crate::platform::Stream;
use crate::platform::process::{epoch, exit_has_begun, watch_exit};
use crate::span::Address;
use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute as Attribute, CUmemAllocationGranularity_flags as Granularity,
    CUpointer_attribute as PointerAttribute, CUstream, CUuuid,
};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// The oldest compute capability that the kernels run on.
const LEAST_CAPABILITY: (i32, i32) = (8, 0);

/// The CUDA major version that the kernels were built for; a driver of an older one cannot run them.
fn toolkit_major() -> i32 {
    option_env!("WHOLEMEMORY_CUDA_MAJOR")
        .and_then(|major| major.parse().ok())
        .unwrap_or(13)
}

/// How `cuInit` answers in a forked child (`CUDA_ERROR_NOT_INITIALIZED`).
pub(super) const NOT_INITIALISED: c_int = 3;

/// Stream handles that name a default stream of the current context instead of a stream object.
const DEFAULT_STREAMS: [usize; 3] = [0, 1, 2];

/// `CU_STREAM_PER_THREAD`: the calling thread's own stream of the current context.
pub const PER_THREAD_STREAM: Stream = Stream(2);

/// What the driver answers for the type of memory that it does not know.
const UNKNOWN_MEMORY: u32 = 0;

/// `CU_MEMORYTYPE_HOST`.
pub(super) const HOST_MEMORY: u32 = 1;

/// `CU_MEMORYTYPE_DEVICE`.
const DEVICE_MEMORY: u32 = 2;

/// What a GPU is and can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub name: String,
    /// `GPU-` and the hexadecimal UUID, as nvidia-smi shows it. Of a MIG slice: the slice's own.
    pub identity: String,
    pub multiprocessors: u32,
    pub capability: (i32, i32),
    /// Size unit of allocations that can be shared.
    pub page_bytes: usize,
    /// Kernels read memory that nobody registered.
    pub reads_pageable: bool,
    /// Memory can be handed to other hosts of an NVLink fabric.
    pub shares_over_fabric: bool,
    /// Has pools of memory in the order of streams.
    pub has_pools: bool,
    /// The NUMA node nearest to it, where the system has such nodes.
    pub numa_node: Option<u32>,
}

/// A GPU with its primary context retained.
pub struct Gpu {
    pub functions: &'static Functions,
    pub facts: Facts,
    pub device: CUdevice,
    /// The process sees no other, so every stream belongs to it.
    is_only_one: bool,
    /// A `CUcontext`; an address that is only ever handed back to the driver.
    context: usize,
    epoch: u32,
}

/// The driver's functions, initialised in this process.
/// # Errors
/// CUDA_ERROR with the driver's words.
pub fn functions() -> Result<&'static Functions> {
    let unusable = |why: &Unusable| Error::new(Kind::Cuda, format!("the CUDA driver cannot be used: {why}"));
    let functions = Functions::get().map_err(unusable)?;
    // SAFETY: cuInit may be called any number of times, from any thread.
    let code = unsafe { (functions.cuInit)(0) };
    functions.check("cuInit", code).map_err(|e| match code {
        NOT_INITIALISED => e.within(
            "CUDA does not work in a process that was forked from one that uses it; fork earlier, or start the child by exec",
        ),
        _ => e,
    })?;
    watch_exit();
    Ok(functions)
}

/// The device that the runtime's notion of "current" means for this thread: the current context's, else device 0.
/// # Errors
/// CUDA_ERROR.
pub fn current_device(functions: &Functions) -> Result<CUdevice> {
    let mut context: CUcontext = std::ptr::null_mut();
    let mut device: CUdevice = 0;
    // SAFETY: both outputs outlive the calls.
    unsafe {
        drive!(functions, cuCtxGetCurrent(&mut context))?;
        match context.is_null() {
            true => drive!(functions, cuDeviceGet(&mut device, 0))?,
            false => drive!(functions, cuCtxGetDevice(&mut device))?,
        }
    }
    Ok(device)
}

impl Gpu {
    /// Retains the primary context of `device`. The caller's current context stays what it was.
    /// # Errors
    /// NOT_SUPPORTED for a GPU or driver that is too old, with both numbers; CUDA_ERROR.
    pub fn bind(functions: &'static Functions, device: CUdevice) -> Result<Gpu> {
        check_driver(functions)?;
        let facts = facts(functions, device)?;
        let mut context: CUcontext = std::ptr::null_mut();
        let mut devices: c_int = 0;
        // SAFETY: the outputs outlive the calls.
        unsafe {
            drive!(functions, cuDeviceGetCount(&mut devices))?;
            drive!(functions, cuDevicePrimaryCtxRetain(&mut context, device))
        }
        .map_err(|e| e.within(format!("binding {} ({})", facts.name, facts.identity)))?;
        Ok(Gpu {
            functions,
            facts,
            device,
            is_only_one: devices == 1,
            context: context as usize,
            epoch: epoch(),
        })
    }

    /// The context's address, which tells it from others.
    pub fn context(&self) -> usize {
        self.context
    }

    /// True in a process forked from the one that bound the GPU.
    pub fn is_inherited(&self) -> bool {
        self.epoch != epoch()
    }

    /// Why the driver must not be called any more for this GPU: it belongs to a parent process, or this one is at its end.
    pub fn check_alive(&self) -> Result<()> {
        ensure!(
            !self.is_inherited(),
            Communication,
            "this process was forked from one that uses the GPU; CUDA works in that process only"
        );
        ensure!(!exit_has_begun(), Cuda, "this process is at its end");
        Ok(())
    }

    /// Makes the GPU's context current on this thread until the guard drops. Meanwhile the driver refuses this thread no call
    /// for the sake of a graph that this or another thread records (with one that records in the global mode, any allocation
    /// would end the recording): what the library does besides enqueueing is never meant to be recorded.
    /// # Errors
    /// COMMUNICATION_ERROR in a forked child, CUDA_ERROR.
    pub fn enter(&self) -> Result<Entered> {
        self.enter_to_enqueue()?.relax()
    }

    /// The same for what may be called at any time: questions, and work for streams. Inside of another guard for this GPU the
    /// driver is not asked again what is current.
    /// # Errors
    /// Those of [`enter`](Gpu::enter).
    pub fn enter_to_enqueue(&self) -> Result<Entered> {
        self.check_alive()?;
        let functions = self.functions;
        let known = KNOWN.get();
        let mut pushed = false;
        if known != self.context {
            let mut current: CUcontext = std::ptr::null_mut();
            // SAFETY: the outputs outlive the calls; the context is retained for the life of `self`.
            unsafe {
                drive!(functions, cuCtxGetCurrent(&mut current))?;
                pushed = current as usize != self.context;
                if pushed {
                    drive!(functions, cuCtxPushCurrent_v2(self.context as CUcontext))?;
                }
            }
            KNOWN.set(self.context);
        }
        Ok(Entered {
            functions,
            pushed,
            known_before: known,
            former_mode: None,
        })
    }

    /// [`enter`](Gpu::enter) for an operation on a stream: as little as the stream's state allows.
    /// # Errors
    /// Those of [`enter`](Gpu::enter).
    pub fn enter_on(&self, stream: Stream) -> Result<Entered> {
        let entered = self.enter_to_enqueue()?;
        match self.is_capturing(stream) {
            Ok(false) => Ok(entered),
            Ok(true) | Err(_) => entered.relax(),
        }
    }

    /// Writes device memory; done on return, for streams too that do not wait for the default one.
    /// # Errors
    /// CUDA_ERROR.
    pub fn write(&self, to: Address, words: &[usize]) -> Result<()> {
        let bytes = size_of_val(words);
        if bytes == 0 {
            return Ok(());
        }
        let _entered = self.enter()?;
        // SAFETY: the caller vouches for the memory; the words outlive the call.
        unsafe {
            drive!(
                self.functions,
                cuMemcpyHtoD_v2(to.0 as u64, words.as_ptr().cast::<c_void>(), bytes)
            )
        }?;
        // The copy of ordinary memory may return before the last bytes are on the GPU.
        self.synchronize_stream(Stream::default())
    }

    /// Begins a copy between any two kinds of memory.
    /// # Errors
    /// CUDA_ERROR.
    pub fn copy(&self, to: Address, from: Address, bytes: usize, stream: Stream) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let _entered = self.enter()?;
        // SAFETY: the caller vouches for `bytes` at both addresses and for the stream.
        unsafe {
            drive!(
                self.functions,
                cuMemcpyAsync(to.0 as u64, from.0 as u64, bytes, stream.0 as CUstream)
            )
        }
        .map_err(|e| e.within(format!("copying {bytes} bytes from {:#x} to {:#x}", from.0, to.0)))
    }

    /// True while the stream records a graph.
    /// # Errors
    /// CUDA_ERROR where the driver refuses the question.
    pub fn is_capturing(&self, stream: Stream) -> Result<bool> {
        let _entered = self.enter_to_enqueue()?;
        let mut status: c_int = 0;
        // SAFETY: the output outlives the call; the caller vouches for the stream.
        unsafe {
            drive!(
                self.functions,
                cuStreamIsCapturing(stream.0 as CUstream, &mut status)
            )
        }?;
        Ok(status != 0)
    }

    /// What the driver numbers the stream by; `None` where it does not say.
    pub fn number_of(&self, stream: Stream) -> Option<u64> {
        let ask = self.functions.cuStreamGetId?;
        let _entered = self.enter_to_enqueue().ok()?;
        let mut number = 0;
        // SAFETY: the output outlives the call; the caller vouches for the stream.
        let code = unsafe { ask(stream.0 as CUstream, &mut number) };
        (code == 0).then_some(number)
    }

    /// # Errors
    /// INVALID_INPUT if the stream belongs to another GPU.
    pub fn check_stream(&self, stream: Stream) -> Result<()> {
        if self.is_only_one || DEFAULT_STREAMS.contains(&stream.0) {
            return Ok(());
        }
        let _entered = self.enter_to_enqueue()?;
        let device = self.device_of(stream)?;
        ensure!(
            device == self.device,
            InvalidInput,
            "the stream belongs to device {device}, the communicator to device {} ({})",
            self.device,
            self.facts.name
        );
        Ok(())
    }

    /// The driver's own "no": the GPU of that identity is visible to this process, and this one has no access to it. Silence
    /// is no promise.
    /// # Errors
    /// CUDA_ERROR.
    pub fn check_peer(&self, wanted: &str) -> Result<()> {
        if wanted == self.facts.identity {
            return Ok(());
        }
        let functions = self.functions;
        let mut count: c_int = 0;
        // SAFETY: the output outlives the call.
        unsafe { drive!(functions, cuDeviceGetCount(&mut count)) }?;
        for ordinal in 0..count {
            let (mut peer, mut can): (CUdevice, c_int) = (0, 1);
            let mut uuid = CUuuid { bytes: [0; 16] };
            // SAFETY: the outputs outlive the calls.
            unsafe {
                drive!(functions, cuDeviceGet(&mut peer, ordinal))?;
                drive!(functions, cuDeviceGetUuid_v2(&mut uuid, peer))?;
                if identity(&uuid) == wanted {
                    drive!(functions, cuDeviceCanAccessPeer(&mut can, self.device, peer))?;
                }
            }
            ensure!(
                can != 0,
                Cuda,
                "the driver offers no peer access between the two GPUs"
            );
        }
        Ok(())
    }

    /// By its context, which may be asked for at any time. A driver that does not name it is asked for the device, which would
    /// end a recording: then the stream counts as this GPU's, and if it is not a launch fails in the driver's words.
    fn device_of(&self, stream: Stream) -> Result<CUdevice> {
        let functions = self.functions;
        let handle = stream.0 as CUstream;
        let mut device: CUdevice = 0;
        let mut context: CUcontext = std::ptr::null_mut();
        // SAFETY: outputs outlive the calls; the caller vouches for the stream; what is pushed is popped.
        unsafe {
            let named = drive!(functions, cuStreamGetCtx(handle, &mut context));
            if named.is_ok() && context as usize == self.context {
                return Ok(self.device);
            }
            if let Err(error) = named {
                let Some(ask) = functions.cuStreamGetDevice else {
                    return Err(error);
                };
                if !matches!(self.is_capturing(stream), Ok(false)) {
                    return Ok(self.device);
                }
                functions.check("cuStreamGetDevice", ask(handle, &mut device))?;
                return Ok(device);
            }
            drive!(functions, cuCtxPushCurrent_v2(context))?;
            let asked = drive!(functions, cuCtxGetDevice(&mut device));
            drive!(functions, cuCtxPopCurrent_v2(&mut context))?;
            asked.map(|()| device)
        }
    }

    /// True if kernels of this GPU can use the memory at `address`: what the driver knows of, but for memory of other GPUs
    /// without access for this one, and any memory where the GPU reads pages that nobody registered.
    pub fn can_reach(&self, address: Address) -> bool {
        if address.is_null() {
            return false;
        }
        let (mut kind, mut device, mut reached) = (UNKNOWN_MEMORY, self.device, 0u64);
        let kind_asked = (
            PointerAttribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            (&raw mut kind).cast(),
        );
        let device_asked = (
            PointerAttribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
            (&raw mut device).cast(),
        );
        let reached_asked = (
            PointerAttribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
            (&raw mut reached).cast(),
        );
        // Every call needs the answer, and each attribute takes time: only memory of another GPU is asked for its access.
        let answered = match self.is_only_one {
            true => self.ask(address, [kind_asked]),
            false => self.ask(address, [kind_asked, device_asked]),
        };
        let kind = if answered { kind } else { UNKNOWN_MEMORY };
        if kind == DEVICE_MEMORY && device != self.device {
            return self.ask(address, [reached_asked]) && reached != 0;
        }
        kind != UNKNOWN_MEMORY || self.facts.reads_pageable
    }

    /// True for memory of the host that is registered with the driver.
    pub fn is_on_host(&self, address: Address) -> bool {
        let mut kind = UNKNOWN_MEMORY;
        let asked = (
            PointerAttribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            (&raw mut kind).cast(),
        );
        self.ask(address, [asked]) && kind == HOST_MEMORY
    }

    /// Asks the driver for attributes of an address, each with a place of its size. False where it does not answer.
    fn ask<const N: usize>(&self, address: Address, asked: [(PointerAttribute, *mut c_void); N]) -> bool {
        let mut attributes = asked.map(|(attribute, _)| attribute);
        let mut values = asked.map(|(_, value)| value);
        let Ok(_entered) = self.enter_to_enqueue() else {
            return false;
        };
        // SAFETY: as many attributes as places of their sizes, which outlive the call.
        let code = unsafe {
            (self.functions.cuPointerGetAttributes)(
                N as c_uint,
                attributes.as_mut_ptr(),
                values.as_mut_ptr(),
                address.0 as u64,
            )
        };
        code == 0
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if self.check_alive().is_ok() {
            // SAFETY: retained once by `bind`; a driver that is gone has nothing left to release.
            unsafe { (self.functions.cuDevicePrimaryCtxRelease_v2)(self.device) };
        }
    }
}

thread_local! {
    /// This thread is inside an [`Entered`] already.
    static RELAXED: Cell<bool> = const { Cell::new(false) };
    /// The context that a guard of this thread has found or made current, while only the library's own code has run; else 0.
    static KNOWN: Cell<usize> = const { Cell::new(0) };
}

/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
pub(super) const CAPTURE_MODE_RELAXED: c_int = 2;

/// To be called before code of the caller's runs on this thread, inside of guards too: it may leave another context current. Guards
/// that are made from then on ask the driver.
pub fn forget_current() {
    KNOWN.set(0);
}

/// Keeps the GPU's context current; what was current before comes back on drop.
pub struct Entered {
    functions: &'static Functions,
    pushed: bool,
    /// [`KNOWN`] before it.
    known_before: usize,
    /// The thread's mode of recording graphs, where this guard changed it.
    former_mode: Option<c_int>,
}

impl Entered {
    fn relax(mut self) -> Result<Entered> {
        if !RELAXED.get() {
            let mut mode = CAPTURE_MODE_RELAXED;
            // SAFETY: the mode goes in and comes out.
            unsafe { drive!(self.functions, cuThreadExchangeStreamCaptureMode(&mut mode)) }?;
            self.former_mode = Some(mode);
            RELAXED.set(true);
        }
        Ok(self)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // What was forgotten meanwhile stays so for the guards around this one.
        if KNOWN.get() != 0 {
            KNOWN.set(self.known_before);
        }
        if let Some(mut mode) = self.former_mode {
            RELAXED.set(false);
            // SAFETY: the mode that the driver gave for this thread.
            unsafe { (self.functions.cuThreadExchangeStreamCaptureMode)(&mut mode) };
        }
        if self.pushed {
            let mut popped: CUcontext = std::ptr::null_mut();
            // SAFETY: pops what `enter` pushed on this thread.
            unsafe { (self.functions.cuCtxPopCurrent_v2)(&mut popped) };
        }
    }
}

/// A version as the driver writes it, e.g. 13000.
fn check_driver(functions: &Functions) -> Result<()> {
    let mut version: c_int = 0;
    // SAFETY: the output outlives the call.
    unsafe { drive!(functions, cuDriverGetVersion(&mut version)) }?;
    let (major, minor) = (version / 1000, version % 1000 / 10);
    let built_for = toolkit_major();
    ensure!(
        major >= built_for,
        NotSupported,
        "the CUDA driver here is for CUDA {major}.{minor}, this library needs one for CUDA {built_for}.0 or newer{}; \
         update it, or set WHOLEMEMORY_PLATFORM=cpu to do without GPUs",
        if built_for == 13 { " (driver 580)" } else { "" }
    );
    Ok(())
}

fn facts(functions: &Functions, device: CUdevice) -> Result<Facts> {
    let ask = |attribute: Attribute| -> Result<c_int> {
        let mut value: c_int = 0;
        // SAFETY: the output outlives the call.
        unsafe { drive!(functions, cuDeviceGetAttribute(&mut value, attribute, device)) }?;
        Ok(value)
    };
    let mut name = [0 as c_char; 256];
    let mut uuid = CUuuid { bytes: [0; 16] };
    // SAFETY: the outputs outlive the calls and have the sizes said.
    unsafe {
        drive!(
            functions,
            cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int - 1, device)
        )?;
        drive!(functions, cuDeviceGetUuid_v2(&mut uuid, device))?;
    }
    // SAFETY: the driver ends the name with NUL; the last byte of the buffer is one in any case.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) }
        .to_string_lossy()
        .into_owned();
    let capability = (
        ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    );
    ensure!(
        capability >= LEAST_CAPABILITY,
        NotSupported,
        "{name} has compute capability {}.{}, this library needs {}.{} or newer",
        capability.0,
        capability.1,
        LEAST_CAPABILITY.0,
        LEAST_CAPABILITY.1
    );
    for (attribute, what) in [
        (
            Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
            "no virtual memory management",
        ),
        (
            Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
            "no memory that file descriptors can share",
        ),
    ] {
        if ask(attribute)? == 0 {
            fail!(
                NotSupported,
                "{name} offers {what} here (a restriction of the driver or of the virtual machine), which this library needs"
            );
        }
    }
    Ok(Facts {
        identity: identity(&uuid),
        multiprocessors: ask(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.max(1) as u32,
        capability,
        page_bytes: page_bytes(functions, device)?,
        reads_pageable: ask(Attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS)? != 0,
        shares_over_fabric: ask(Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED)
            .is_ok_and(|can| can != 0),
        has_pools: ask(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? != 0,
        numa_node: ask(Attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID)
            .ok()
            .and_then(|node| u32::try_from(node).ok()),
        name,
    })
}

fn identity(uuid: &CUuuid) -> String {
    let mut text = String::from("GPU-");
    for (at, byte) in uuid.bytes.iter().enumerate() {
        if [4, 6, 8, 10].contains(&at) {
            text.push('-');
        }
        text.push_str(&format!("{:02x}", *byte as u8));
    }
    text
}

fn page_bytes(functions: &Functions, device: CUdevice) -> Result<usize> {
    let properties = super::vmm::properties(device, super::handover::Handover::Descriptors);
    let recommended = Granularity::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
    let mut bytes = 0;
    // SAFETY: the output and the properties outlive the call.
    unsafe {
        drive!(
            functions,
            cuMemGetAllocationGranularity(&mut bytes, &properties, recommended)
        )
    }?;
    ensure!(
        bytes.is_power_of_two(),
        Cuda,
        "the CUDA driver allocates in units of {bytes} bytes, which is no power of two"
    );
    Ok(bytes)
}
