//! A driver for tests, without a GPU: device memory is memory files, addresses are this process's own, so bytes really move
//! between ranks. Every thread sits at a desk of its own (a GPU, a context stack, failures to come) in a world that counts
//! what is alive.

use super::functions::Functions;
use cudarc::driver::sys::{
    CUdevice_attribute as Attribute, CUmemAccessDesc, CUmemAllocationProp, CUmemPoolProps,
    CUpointer_attribute, CUuuid,
};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_char, c_int, c_uint, c_ulonglong};
use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Pages of the fake device.
pub const PAGE: usize = 64 << 10;
pub const OUT_OF_MEMORY: c_int = 2;
pub const INVALID_VALUE: c_int = 1;
pub const UNKNOWN: c_int = 999;
pub const OPERATING_SYSTEM: c_int = 304;
/// What a recording stream answers when it is asked for its device.
const CAPTURE_UNSUPPORTED: c_int = 900;
/// What a process gets that may not use the fabric.
const NOT_PERMITTED: c_int = 800;
/// The kind of handles that other hosts can use.
pub const FABRIC: c_uint = 8;

/// A GPU that no desk has.
const OTHER_DEVICE: c_int = 99;

#[derive(Default)]
struct State {
    next: u64,
    memory: BTreeMap<u64, OwnedFd>,
    reserved: BTreeMap<usize, usize>,
    mapped: BTreeMap<usize, usize>,
    registered: BTreeMap<usize, usize>,
    pinned: BTreeMap<usize, usize>,
    pools: Vec<u64>,
    /// Blocks of pools: their sizes and streams.
    pooled: BTreeMap<usize, (usize, usize)>,
    events: Vec<u64>,
    streams: Vec<usize>,
    /// Addresses in memory of a GPU that nobody here has access to.
    elsewhere: BTreeSet<usize>,
    retained: i64,
    /// Calls of all desks in their order: the desk's rank, the function, and the address where there is one.
    log: Vec<(usize, &'static str, usize)>,
}

/// What the desks of a test share.
#[derive(Default)]
pub struct World(Mutex<State>);

impl World {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is alive, in words; empty when all was given back.
    pub fn alive(&self) -> String {
        let s = self.state();
        [
            ("handles", s.memory.len()),
            ("ranges", s.reserved.len()),
            ("mappings", s.mapped.len()),
            ("registrations", s.registered.len()),
            ("pinned blocks", s.pinned.len()),
            ("pools", s.pools.len()),
            ("pooled blocks", s.pooled.len()),
            ("events", s.events.len()),
            ("streams", s.streams.len()),
            ("contexts", s.retained as usize),
        ]
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(what, count)| format!("{count} {what} "))
        .collect()
    }

    /// Lets an address be one in memory of another GPU, without access.
    pub fn put_elsewhere(&self, address: usize) {
        self.state().elsewhere.insert(address);
    }

    pub fn log(&self) -> Vec<(usize, &'static str, usize)> {
        self.state().log.clone()
    }

    pub fn registrations(&self) -> usize {
        self.state().registered.len()
    }
}

/// One thread's GPU and luck.
#[derive(Clone)]
pub struct Desk {
    pub world: Arc<World>,
    pub rank: usize,
    pub uuid: u8,
    pub driver_version: c_int,
    pub capability: (c_int, c_int),
    pub shares_memory: bool,
    pub has_pools: bool,
    pub may_use_fabric: bool,
    /// What this desk reads back through [`Functions::cuMemcpyDtoH_v2`] is wrong.
    pub reads_garbage: bool,
    /// Device and host see registered memory at different addresses.
    pub shifted: bool,
    pub can_access_peers: bool,
    /// Calls of `0` until the `1`th (from 0) succeed; that one gives the code `2`.
    pub failure: Option<(&'static str, usize, c_int)>,
    /// The failure came.
    pub failed: bool,
    /// What a wait for all work gives.
    pub waits_give: c_int,
    /// The thread's own default stream records.
    pub records: bool,
    pub contexts: Vec<usize>,
    /// The thread's mode of recording graphs: 0 (global) at first.
    pub capture_mode: c_int,
}

impl Desk {
    pub fn new(world: &Arc<World>, rank: usize) -> Desk {
        Desk {
            world: world.clone(),
            rank,
            uuid: rank as u8,
            driver_version: 13000,
            capability: (9, 0),
            shares_memory: true,
            has_pools: true,
            may_use_fabric: true,
            reads_garbage: false,
            shifted: false,
            can_access_peers: true,
            failure: None,
            failed: false,
            waits_give: 0,
            records: false,
            contexts: Vec::new(),
            capture_mode: 0,
        }
    }

    /// Seats this thread.
    pub fn sit(self) {
        DESK.with(|desk| *desk.borrow_mut() = Some(self));
    }
}

thread_local! {
    static DESK: RefCell<Option<Desk>> = const { RefCell::new(None) };
}

/// Looks at or changes this thread's desk.
pub fn desk<T>(see: impl FnOnce(&mut Desk) -> T) -> T {
    DESK.with(|desk| see(desk.borrow_mut().as_mut().expect("a test seats its threads")))
}

/// Notes a call; the code if it is to fail.
fn called(name: &'static str, address: usize) -> Result<Arc<World>, c_int> {
    desk(|desk| {
        let world = desk.world.clone();
        world.state().log.push((desk.rank, name, address));
        if let Some((call, left, code)) = &mut desk.failure
            && *call == name
            && !desk.failed
        {
            if *left == 0 {
                desk.failed = true;
                return Err(*code);
            }
            *left -= 1;
        }
        Ok(world)
    })
}

/// Declares the functions of the fake and the table of them.
macro_rules! fakes {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) at $address:expr, |$world:ident| $body:block)+) => {
        $(
            #[allow(non_snake_case)]
            unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
                match called(stringify!($name), $address as usize) {
                    Err(code) => code,
                    Ok($world) => { let _ = &$world; $body }
                }
            }
        )+

        fn find(name: &str) -> Option<*const ()> {
            match name {
                $(stringify!($name) => Some($name as *const ()),)+
                _ => None,
            }
        }
    };
}

/// The table of the fake driver.
pub fn functions() -> &'static Functions {
    static TABLE: OnceLock<Functions> = OnceLock::new();
    TABLE.get_or_init(|| Functions::from_functions(&find))
}

const CONTEXT: usize = 0xC000;

fn put<T>(to: *mut T, value: T) -> c_int {
    // SAFETY: the caller's output, as the driver's contract has it.
    unsafe { to.write(value) };
    0
}

fn shared_file(bytes: usize) -> OwnedFd {
    let fd = rustix::fs::memfd_create("wholememory-fake-device", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&fd, bytes as u64).unwrap();
    fd
}

fn hide(base: usize, bytes: usize) {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
    // SAFETY: replaces a mapping of the fake's own by addresses that nobody can use.
    unsafe { mmap_anonymous(base as *mut _, bytes, ProtFlags::empty(), flags) }.unwrap();
}

fakes! {
    fn cuInit(_flags: c_uint) at 0, |world| { 0 }
    fn cuDriverGetVersion(version: *mut c_int) at 0, |world| { put(version, desk(|d| d.driver_version)) }
    fn cuDeviceGetCount(count: *mut c_int) at 0, |world| { put(count, 2) }
    // Device 0 is the desk's own GPU, device 1 that of the next desk.
    fn cuDeviceGet(device: *mut c_int, ordinal: c_int) at 0, |world| { put(device, ordinal) }
    fn cuDeviceGetName(name: *mut c_char, _bytes: c_int, _device: c_int) at 0, |world| {
        // SAFETY: the caller gives 256 bytes.
        unsafe { name.copy_from_nonoverlapping(c"Fake GPU".as_ptr(), 9) };
        0
    }
    fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: c_int) at 0, |world| {
        // No test has the GPUs of another.
        let (name, place) = desk(|d| (d.uuid + device as u8, Arc::as_ptr(&d.world) as u64));
        let mut bytes = [name as c_char; 16];
        bytes[8..].copy_from_slice(&place.to_le_bytes().map(|byte| byte as c_char));
        put(uuid, CUuuid { bytes })
    }
    fn cuDeviceCanAccessPeer(can: *mut c_int, _device: c_int, _peer: c_int) at 0, |world| {
        put(can, c_int::from(desk(|d| d.can_access_peers)))
    }
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: Attribute, _device: c_int) at 0, |world| {
        put(value, desk(|d| match attribute {
            Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => d.capability.0,
            Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => d.capability.1,
            Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT => 132,
            Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED => c_int::from(d.shares_memory),
            Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED => c_int::from(d.has_pools),
            Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED => 1,
            Attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID => -1,
            _ => 0,
        }))
    }
    fn cuDevicePrimaryCtxRetain(context: *mut usize, device: c_int) at 0, |world| {
        world.state().retained += 1;
        put(context, CONTEXT + device as usize)
    }
    fn cuDevicePrimaryCtxRelease_v2(_device: c_int) at 0, |world| { world.state().retained -= 1; 0 }
    fn cuCtxGetCurrent(context: *mut usize) at 0, |world| { put(context, desk(|d| d.contexts.last().copied().unwrap_or(0))) }
    fn cuCtxGetDevice(device: *mut c_int) at 0, |world| {
        put(device, (desk(|d| *d.contexts.last().expect("a current context")) - CONTEXT) as c_int)
    }
    fn cuCtxPushCurrent_v2(context: usize) at 0, |world| { desk(|d| d.contexts.push(context)); 0 }
    fn cuCtxPopCurrent_v2(context: *mut usize) at 0, |world| { put(context, desk(|d| d.contexts.pop().expect("a pushed context"))) }
    fn cuCtxSynchronize() at 0, |world| {
        desk(|d| {
            assert!(!d.contexts.is_empty(), "no context is current");
            d.waits_give
        })
    }
    fn cuStreamSynchronize(_stream: usize) at 0, |world| { 0 }
    fn cuStreamCreate(stream: *mut usize, _flags: c_uint) at 0, |world| {
        let mut s = world.state();
        s.next += 1;
        // Apart from the bits that mean something in the streams of tests.
        let handle = 0x8000_0000 + 0x1000 * s.next as usize;
        s.streams.push(handle);
        put(stream, handle)
    }
    fn cuStreamDestroy_v2(stream: usize) at 0, |world| { world.state().streams.retain(|handle| *handle != stream); 0 }
    // Streams of the fake: 0x100 + the device; 0x200 more while recording.
    fn cuStreamIsCapturing(stream: usize, status: *mut c_int) at 0, |world| { put(status, c_int::from(stream & 0x200 != 0 || stream == 2 && desk(|d| d.records))) }
    fn cuThreadExchangeStreamCaptureMode(mode: *mut c_int) at 0, |world| {
        // SAFETY: the caller's mode, in and out.
        unsafe { *mode = desk(|d| std::mem::replace(&mut d.capture_mode, *mode)) };
        0
    }
    fn cuStreamGetCtx(stream: usize, context: *mut usize) at 0, |world| {
        // 0x400 more: a stream that names no context.
        match stream & 0x400 {
            0 => put(context, CONTEXT + (stream & 0xff)),
            _ => UNKNOWN,
        }
    }
    // The per-thread stream is another at every desk.
    fn cuStreamGetId(stream: usize, number: *mut u64) at 0, |world| {
        put(number, if stream == 2 { 0x10_0000 + desk(|d| d.rank) as u64 } else { stream as u64 })
    }
    fn cuStreamGetDevice(stream: usize, device: *mut c_int) at 0, |world| {
        match stream & 0x200 {
            0 => put(device, (stream & 0xff) as c_int),
            _ => CAPTURE_UNSUPPORTED,
        }
    }
    fn cuStreamWaitEvent(_stream: usize, event: u64, _flags: c_uint) at 0, |world| { c_int::from(!world.state().events.contains(&event)) * 400 }
    fn cuEventCreate(event: *mut u64, _flags: c_uint) at 0, |world| {
        let mut s = world.state();
        s.next += 1;
        let id = s.next;
        s.events.push(id);
        put(event, id)
    }
    fn cuEventRecord(_event: u64, _stream: usize) at 0, |world| { 0 }
    fn cuEventSynchronize(_event: u64) at 0, |world| { 0 }
    fn cuEventQuery(_event: u64) at 0, |world| { 0 }
    fn cuEventDestroy_v2(event: u64) at 0, |world| { world.state().events.retain(|e| *e != event); 0 }
    fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, _stream: usize) at to, |world| {
        // SAFETY: the fake's device memory is mapped where the device sees it.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) };
        0
    }
    fn cuMemcpyHtoD_v2(to: u64, from: *const u8, bytes: usize) at to, |world| {
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(from, to as *mut u8, bytes) };
        0
    }
    fn cuMemcpyDtoH_v2(to: *mut u8, from: u64, bytes: usize) at from, |world| {
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to, bytes) };
        if desk(|d| d.reads_garbage) {
            // SAFETY: the last byte of the caller's buffer.
            unsafe { *to.add(bytes - 1) ^= 1 };
        }
        0
    }
    fn cuPointerGetAttributes(count: c_uint, attributes: *mut CUpointer_attribute, values: *mut *mut u8, pointer: u64) at pointer, |world| {
        let s = world.state();
        let within = |all: &BTreeMap<usize, usize>| all.iter().any(|(base, bytes)| (*base..base + bytes).contains(&(pointer as usize)));
        let elsewhere = s.elsewhere.contains(&(pointer as usize));
        let kind = if within(&s.mapped) || elsewhere { 2 } else { u32::from(within(&s.registered) || within(&s.pinned)) };
        for k in 0..count as usize {
            // SAFETY: so many attributes are asked for, and their places given, of the sizes that belong to them.
            unsafe {
                let value = *values.add(k);
                match *attributes.add(k) {
                    CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE => value.cast::<u32>().write(kind),
                    CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => {
                        value.cast::<c_int>().write(if elsewhere { OTHER_DEVICE } else { 0 });
                    }
                    CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER => {
                        value.cast::<u64>().write(if kind == 0 || elsewhere { 0 } else { pointer });
                    }
                    other => panic!("nobody here knows {other:?}"),
                }
            }
        }
        0
    }
    fn cuMemGetAllocationGranularity(bytes: *mut usize, _properties: *const CUmemAllocationProp, _option: c_uint) at 0, |world| { put(bytes, PAGE) }
    fn cuMemAddressReserve(base: *mut u64, bytes: usize, alignment: usize, _hint: u64, _flags: c_ulonglong) at 0, |world| {
        assert!(bytes.is_multiple_of(PAGE) && alignment.is_multiple_of(PAGE));
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: new addresses that nobody can use; the ends that alignment does not need are given back.
        let aligned = unsafe {
            let Ok(start) = mmap_anonymous(std::ptr::null_mut(), bytes + alignment, ProtFlags::empty(), flags) else {
                return OUT_OF_MEMORY;
            };
            let aligned = (start as usize).next_multiple_of(alignment);
            let before = aligned - start as usize;
            if before > 0 {
                munmap(start, before).unwrap();
            }
            munmap((aligned + bytes) as *mut _, alignment - before).unwrap();
            aligned
        };
        world.state().reserved.insert(aligned, bytes);
        put(base, aligned as u64)
    }
    fn cuMemAddressFree(base: u64, bytes: usize) at base, |world| {
        let mut s = world.state();
        assert_eq!(s.reserved.remove(&(base as usize)), Some(bytes));
        let end = base as usize + bytes;
        assert!(s.mapped.range(base as usize..end).next().is_none(), "mappings are left in the range");
        // SAFETY: the range that `cuMemAddressReserve` made.
        unsafe { munmap(base as *mut _, bytes) }.unwrap();
        0
    }
    fn cuMemCreate(handle: *mut u64, bytes: usize, properties: *const CUmemAllocationProp, _flags: c_ulonglong) at 0, |world| {
        assert!(bytes > 0 && bytes.is_multiple_of(PAGE));
        // SAFETY: the caller's properties.
        assert_eq!(unsafe { (*properties).location.id }, 0);
        if bytes > 1 << 40 {
            return OUT_OF_MEMORY;
        }
        let mut s = world.state();
        s.next += 1;
        let id = s.next;
        s.memory.insert(id, shared_file(bytes));
        put(handle, id)
    }
    fn cuMemRelease(handle: u64) at 0, |world| { assert!(world.state().memory.remove(&handle).is_some()); 0 }
    fn cuMemMap(base: u64, bytes: usize, offset: usize, handle: u64, _flags: c_ulonglong) at base, |world| {
        let mut s = world.state();
        let file = &s.memory[&handle];
        let there = rustix::fs::fstat(file).unwrap().st_size as usize;
        assert!(offset + bytes <= there, "the memory is smaller than the mapping");
        let inside = s.reserved.iter().any(|(start, size)| *start <= base as usize && base as usize + bytes <= start + size);
        assert!(inside, "mapped outside of a reserved range");
        let end = base as usize + bytes;
        assert!(s.mapped.range(..end).next_back().is_none_or(|(start, size)| start + size <= base as usize), "mapped twice");
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: inside a range of the fake's own.
        unsafe { mmap(base as *mut _, bytes, ProtFlags::empty(), flags, file, offset as u64) }.unwrap();
        s.mapped.insert(base as usize, bytes);
        0
    }
    fn cuMemSetAccess(base: u64, bytes: usize, access: *const CUmemAccessDesc, count: usize) at base, |world| {
        assert_eq!(count, 1);
        // SAFETY: the caller's description.
        assert_eq!(unsafe { (*access).location.id }, 0);
        assert_eq!(world.state().mapped.get(&(base as usize)), Some(&bytes));
        // SAFETY: a mapping of the fake's own.
        unsafe { mprotect(base as *mut _, bytes, MprotectFlags::READ | MprotectFlags::WRITE) }.unwrap();
        0
    }
    fn cuMemUnmap(base: u64, bytes: usize) at base, |world| {
        assert_eq!(world.state().mapped.remove(&(base as usize)), Some(bytes));
        hide(base as usize, bytes);
        0
    }
    // A handle of the fabric holds the number of the memory, which must live when it is taken.
    fn cuMemExportToShareableHandle(shareable: *mut c_int, handle: u64, kind: c_uint, _flags: c_ulonglong) at kind, |world| {
        match kind {
            FABRIC if !desk(|d| d.may_use_fabric) => NOT_PERMITTED,
            FABRIC => put(shareable.cast::<[u64; 8]>(), [handle; 8]),
            _ => put(shareable, world.state().memory[&handle].try_clone().unwrap().into_raw_fd()),
        }
    }
    fn cuMemImportFromShareableHandle(handle: *mut u64, shareable: usize, kind: c_uint) at kind, |world| {
        let mut s = world.state();
        let file = match kind {
            // SAFETY: the caller's handle.
            FABRIC => s.memory[&unsafe { (shareable as *const u64).read_unaligned() }].try_clone().unwrap(),
            // SAFETY: the caller's descriptor, open during the call.
            _ => unsafe { BorrowedFd::borrow_raw(shareable as c_int) }.try_clone_to_owned().unwrap(),
        };
        s.next += 1;
        let id = s.next;
        s.memory.insert(id, file);
        put(handle, id)
    }
    fn cuMemHostRegister_v2(base: usize, bytes: usize, flags: c_uint) at base, |world| {
        assert_eq!(flags, 3);
        world.state().registered.insert(base, bytes);
        0
    }
    fn cuMemHostUnregister(base: usize) at base, |world| { assert!(world.state().registered.remove(&base).is_some()); 0 }
    fn cuMemHostGetDevicePointer_v2(device: *mut u64, host: usize, _flags: c_uint) at host, |world| {
        put(device, (host + usize::from(desk(|d| d.shifted)) * PAGE) as u64)
    }
    fn cuMemAlloc_v2(base: *mut u64, bytes: usize) at 0, |world| {
        let block = Box::into_raw(vec![0u64; bytes.div_ceil(8)].into_boxed_slice()).cast::<u64>() as usize;
        world.state().pinned.insert(block, bytes);
        put(base, block as u64)
    }
    fn cuMemFree_v2(base: u64) at base, |world| {
        let bytes = world.state().pinned.remove(&(base as usize)).expect("an allocated block");
        let words = std::ptr::slice_from_raw_parts_mut(base as *mut u64, bytes.div_ceil(8));
        // SAFETY: the box that `cuMemAlloc_v2` leaked.
        drop(unsafe { Box::from_raw(words) });
        0
    }
    fn cuMemPoolCreate(pool: *mut u64, properties: *const CUmemPoolProps) at 0, |world| {
        // SAFETY: the caller's properties.
        assert_eq!(unsafe { (*properties).location.id }, 0);
        let mut s = world.state();
        s.next += 1;
        let id = s.next;
        s.pools.push(id);
        put(pool, id)
    }
    fn cuMemPoolSetAttribute(pool: u64, _attribute: c_uint, value: *mut u64) at 0, |world| {
        assert!(world.state().pools.contains(&pool));
        // SAFETY: the caller's value.
        assert_eq!(unsafe { *value }, u64::MAX);
        0
    }
    fn cuMemPoolTrimTo(pool: u64, _kept: usize) at 0, |world| { assert!(world.state().pools.contains(&pool)); 0 }
    fn cuMemPoolDestroy(pool: u64) at 0, |world| { world.state().pools.retain(|p| *p != pool); 0 }
    fn cuMemAllocFromPoolAsync(base: *mut u64, bytes: usize, pool: u64, stream: usize) at 0, |world| {
        let mut s = world.state();
        assert!(s.pools.contains(&pool));
        let block = Box::into_raw(vec![0u64; bytes.div_ceil(8)].into_boxed_slice()).cast::<u64>() as usize;
        s.pooled.insert(block, (bytes, stream));
        put(base, block as u64)
    }
    fn cuMemFreeAsync(base: u64, stream: usize) at base, |world| {
        let (bytes, taken_for) = world.state().pooled.remove(&(base as usize)).expect("a block of a pool");
        assert_eq!(stream, taken_for);
        let words = std::ptr::slice_from_raw_parts_mut(base as *mut u64, bytes.div_ceil(8));
        // SAFETY: the box that `cuMemAllocFromPoolAsync` leaked.
        drop(unsafe { Box::from_raw(words) });
        0
    }
    fn cuMemHostAlloc(base: *mut usize, bytes: usize, _flags: c_uint) at 0, |world| {
        let block = Box::into_raw(vec![0u64; bytes.div_ceil(8)].into_boxed_slice()).cast::<u64>() as usize;
        world.state().pinned.insert(block, bytes);
        put(base, block)
    }
    fn cuMemFreeHost(base: usize) at base, |world| {
        let bytes = world.state().pinned.remove(&base).expect("a pinned block");
        let words = std::ptr::slice_from_raw_parts_mut(base as *mut u64, bytes.div_ceil(8));
        // SAFETY: the box that `cuMemHostAlloc` leaked.
        drop(unsafe { Box::from_raw(words) });
        0
    }
}
