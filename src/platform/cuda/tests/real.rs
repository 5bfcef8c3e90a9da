//! The same questions to a real driver. On a machine without one they print a skip.

use super::super::collective::NcclTransport;
use super::super::loader::library;
use super::super::nccl as found_nccl;
use super::super::{Gpu, gpu};
use super::exchange::exchange as host_exchange;
use super::*;
use crate::error::Kind;
use crate::kinds::Location;
use crate::platform::{Bootstrap, Platform, SegmentRequest, Segments, Stream, Transport, TransportChoice};
use crate::span::Address;
use std::ffi::{c_int, c_uint, c_void};

library! {
    /// What the tests need besides.
    struct Extra from ["libcuda.so.1"] {
        required cuMemGetInfo_v2: fn(free: *mut usize, total: *mut usize) -> c_int;
        required cuMemAlloc_v2: fn(address: *mut u64, bytes: usize) -> c_int;
        required cuMemFree_v2: fn(address: u64) -> c_int;
        required cuCtxGetCurrent: fn(context: *mut *mut c_void) -> c_int;
        required cuStreamCreate: fn(stream: *mut *mut c_void, flags: c_uint) -> c_int;
        required cuStreamDestroy_v2: fn(stream: *mut c_void) -> c_int;
        required cuStreamBeginCapture_v2: fn(stream: *mut c_void, mode: c_uint) -> c_int;
        required cuStreamEndCapture: fn(stream: *mut c_void, graph: *mut *mut c_void) -> c_int;
        required cuGraphDestroy: fn(graph: *mut c_void) -> c_int;
    }
}

/// How many GPUs there are; prints a skip if none.
pub(super) fn gpus() -> i32 {
    let count = super::super::driver::probe().map_or(0, |devices| match devices {
        super::super::driver::Devices::Count(count) => count,
        super::super::driver::Devices::None(_) => 0,
    });
    if count == 0 {
        println!("skipped: no GPU");
    }
    count
}

pub(super) fn bound(device: i32) -> CudaPlatform {
    let functions = gpu::functions().unwrap();
    CudaPlatform::new(Arc::new(Gpu::bind(functions, device).unwrap()))
}

fn free_bytes(platform: &CudaPlatform) -> usize {
    let _entered = platform.gpu.enter().unwrap();
    let (mut free, mut total) = (0, 0);
    // SAFETY: both outputs outlive the call.
    let code = unsafe { (Extra::get().unwrap().cuMemGetInfo_v2)(&mut free, &mut total) };
    assert_eq!(code, 0);
    free
}

/// Device memory of the tests.
pub(super) struct Block<'a> {
    platform: &'a CudaPlatform,
    address: u64,
}

impl Block<'_> {
    pub(super) fn new(platform: &CudaPlatform, bytes: usize) -> Block<'_> {
        let _entered = platform.gpu.enter().unwrap();
        let mut address = 0;
        // SAFETY: the output outlives the call.
        let code = unsafe { (Extra::get().unwrap().cuMemAlloc_v2)(&mut address, bytes.max(1)) };
        assert_eq!(code, 0);
        Block { platform, address }
    }

    pub(super) fn address(&self) -> Address {
        Address(self.address as usize)
    }
}

impl Drop for Block<'_> {
    fn drop(&mut self) {
        let _entered = self.platform.gpu.enter().unwrap();
        // SAFETY: allocated above.
        unsafe { (Extra::get().unwrap().cuMemFree_v2)(self.address) };
    }
}

pub(super) fn put(platform: &CudaPlatform, to: Address, bytes: &[u8]) {
    let from = Address(bytes.as_ptr() as usize);
    platform.copy(to, from, bytes.len(), Stream(0)).unwrap();
    platform.synchronize(Stream(0)).unwrap();
}

pub(super) fn get(platform: &CudaPlatform, from: Address, bytes: usize) -> Vec<u8> {
    let mut seen = vec![0u8; bytes];
    let to = Address(seen.as_mut_ptr() as usize);
    platform.copy(to, from, bytes, Stream(0)).unwrap();
    platform.synchronize(Stream(0)).unwrap();
    seen
}

fn content(rank: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 7 + i / 251 + rank * 31) as u8).collect()
}

/// Ranks as threads, on the GPUs there are in turn.
pub(super) fn on_real<T: Send>(size: usize, body: impl Fn(&CudaPlatform, &Threaded) -> T + Sync) -> Vec<T> {
    let count = gpus();
    if count == 0 {
        return Vec::new();
    }
    ranks(size, |boot| {
        let platform = bound(boot.rank() as i32 % count);
        let reach = platform.acquaint(&boot, &vec![0; size]).unwrap();
        println!(
            "rank {} of {size}: {:?}, {reach:?}",
            boot.rank(),
            platform.gpu.facts
        );
        body(&platform, &boot)
    })
}

#[test]
fn memory_is_seen_by_all_ranks_and_given_back() {
    for size in [1, 2, 4] {
        let page = 2 << 20;
        let mut starts: Vec<usize> = (0..=size).map(|r| r * 5 * page / 2 + r * 4).collect();
        starts[size] += 3 * page;
        for location in [Location::Device, Location::Host] {
            for contiguous in [true, false] {
                let left = on_real(size, |platform, boot| {
                    let before = free_bytes(platform);
                    boot.barrier().unwrap();
                    let request = SegmentRequest {
                        location,
                        starts_bytes: &starts,
                        contiguous,
                    };
                    let segment = platform.create(&request, boot).unwrap();
                    let bytes = |rank: usize| starts[rank + 1] - starts[rank];
                    let me = boot.rank();
                    put(platform, segment.address_of_rank(me), &content(me, bytes(me)));
                    boot.barrier().unwrap();
                    for peer in 0..boot.size() {
                        let address = segment.address_of_rank(peer);
                        assert_eq!(get(platform, address, bytes(peer)), content(peer, bytes(peer)));
                        assert!(platform.can_reach(address));
                    }
                    boot.barrier().unwrap();
                    segment.release(Some(boot)).unwrap();
                    boot.barrier().unwrap();
                    before.saturating_sub(free_bytes(platform))
                });
                // The driver keeps some memory of its own once it was needed.
                assert!(left.iter().all(|bytes| *bytes < 64 << 20), "{left:?}");
            }
        }
    }
}

#[test]
fn handles_in_turn_leave_memory_and_descriptors_flat() {
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    on_real(2, |platform, boot| {
        let once = || {
            let request = SegmentRequest {
                location: Location::Device,
                starts_bytes: &[0, 8 << 20, 16 << 20],
                contiguous: true,
            };
            let segment = platform.create(&request, boot).unwrap();
            boot.barrier().unwrap();
            segment.release(Some(boot)).unwrap();
            boot.barrier().unwrap();
        };
        (0..5).for_each(|_| once());
        let before = (free_bytes(platform), open());
        boot.barrier().unwrap();
        (0..200).for_each(|_| once());
        let after = (free_bytes(platform), open());
        assert!(
            before.0.saturating_sub(after.0) < 32 << 20,
            "{before:?} {after:?}"
        );
        assert!(after.1 <= before.1 + 2, "{before:?} {after:?}");
        boot.barrier().unwrap();
    });
}

#[test]
fn more_than_the_gpu_has_is_out_of_memory_on_every_rank() {
    let outcomes = on_real(2, |platform, boot| {
        let before = free_bytes(platform);
        boot.barrier().unwrap();
        let request = SegmentRequest {
            location: Location::Device,
            starts_bytes: &[0, 4 << 20, 1 << 42],
            contiguous: true,
        };
        let error = platform.create(&request, boot).err().unwrap();
        boot.barrier().unwrap();
        assert!(before.saturating_sub(free_bytes(platform)) < 32 << 20);
        error
    });
    for error in outcomes {
        println!("{error}");
        assert_eq!(error.kind, Kind::OutOfMemory, "{error}");
    }
}

#[test]
fn local_copies_exchange_device_memory() {
    for size in [1, 2, 4] {
        on_real(size, |platform, boot| {
            let transport = platform.make_transport(TransportChoice::Local, boot).unwrap();
            device_exchange(platform, &*transport, boot, 3 << 20);
            device_exchange(platform, &*transport, boot, 90 << 20);
            device_exchange(platform, &*transport, boot, 0);
            // Buffers of the host do as well.
            host_exchange_on(platform, &*transport, boot);
            transport.release(Some(boot)).unwrap();
        });
    }
}

fn host_exchange_on(platform: &CudaPlatform, transport: &dyn Transport, boot: &Threaded) {
    if platform.gpu.facts.reads_pageable {
        host_exchange(transport, boot, 5000).unwrap();
    }
}

/// Every rank sends about `bytes` to each, from and to device memory.
fn device_exchange(platform: &CudaPlatform, transport: &dyn Transport, boot: &dyn Bootstrap, bytes: usize) {
    let (me, all) = (boot.rank(), 0..boot.size());
    let size = |from: usize, to: usize| bytes / (1 + (from + to) % 3);
    let send_bytes: Vec<usize> = all.clone().map(|to| size(me, to)).collect();
    let receive_bytes: Vec<usize> = all.clone().map(|from| size(from, me)).collect();
    let sent: Vec<u8> = all
        .clone()
        .flat_map(|to| content(me * 8 + to, size(me, to)))
        .collect();
    let want: Vec<u8> = all
        .flat_map(|from| content(from * 8 + me, size(from, me)))
        .collect();
    let (send, receive) = (Block::new(platform, sent.len()), Block::new(platform, want.len()));
    put(platform, send.address(), &sent);
    put(platform, receive.address(), &vec![0xEE; want.len()]);
    transport
        .all_to_all_v(
            boot,
            send.address(),
            &send_bytes,
            receive.address(),
            &receive_bytes,
            Stream(0),
        )
        .unwrap();
    assert!(get(platform, receive.address(), want.len()) == want);
}

#[test]
fn nccl_comes_up_exchanges_and_ends() {
    if let Err(error) = found_nccl::usable() {
        println!("skipped: {error}");
        return;
    }
    // One rank a GPU: NCCL takes no more.
    let size = gpus().clamp(1, 4) as usize;
    on_real(size, |platform, boot| {
        let transport = NcclTransport::create(&platform.gpu, boot).unwrap();
        for bytes in [0, 1000, 40 << 20] {
            device_exchange(platform, &transport, boot, bytes);
        }
        transport.release(Some(boot)).unwrap();
        // And one that is aborted instead.
        let transport = NcclTransport::create(&platform.gpu, boot).unwrap();
        device_exchange(platform, &transport, boot, 1000);
        platform.watch_over(transport.abortable());
        boot.barrier().unwrap();
        platform.abort();
        transport.release(None).unwrap();
        assert_eq!(
            transport
                .all_to_all_v(
                    boot,
                    Address::NULL,
                    &vec![0; size],
                    Address::NULL,
                    &vec![0; size],
                    Stream(0)
                )
                .unwrap_err()
                .kind,
            Kind::Communication
        );
    });
}

#[test]
fn streams_pointers_and_the_callers_context() {
    if gpus() == 0 {
        return;
    }
    let extra = Extra::get().unwrap();
    let current = || {
        let mut context = std::ptr::null_mut();
        // SAFETY: the output outlives the call.
        assert_eq!(unsafe { (extra.cuCtxGetCurrent)(&mut context) }, 0);
        context as usize
    };
    let platform = bound(0);
    let before = current();
    let block = Block::new(&platform, 4096);
    put(&platform, block.address(), &content(0, 4096));
    assert_eq!(get(&platform, block.address(), 4096), content(0, 4096));
    assert!(platform.can_reach(block.address()));
    let pageable = vec![0u8; 4096];
    assert_eq!(
        platform.can_reach(Address(pageable.as_ptr() as usize)),
        platform.gpu.facts.reads_pageable
    );
    assert_eq!(current(), before, "the caller's context is unchanged");

    let entered = platform.gpu.enter().unwrap();
    let (mut stream, mut graph) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: a stream and a graph of this test's own.
    unsafe {
        assert_eq!((extra.cuStreamCreate)(&mut stream, 1), 0);
        let handle = Stream(stream as usize);
        platform.check_stream(handle).unwrap();
        assert!(!platform.is_capturing(handle).unwrap());
        assert_eq!((extra.cuStreamBeginCapture_v2)(stream, 2), 0);
        assert!(platform.is_capturing(handle).unwrap());
        assert_eq!((extra.cuStreamEndCapture)(stream, &mut graph), 0);
        assert_eq!((extra.cuGraphDestroy)(graph), 0);
        if gpus() > 1 {
            let error = bound(1).check_stream(handle).unwrap_err();
            assert_eq!(error.kind, Kind::InvalidInput, "{error}");
        }
        assert_eq!((extra.cuStreamDestroy_v2)(stream), 0);
    }
    drop(entered);
    drop(block);
    let again = platform.rebind().unwrap();
    assert_eq!(again.identity(), platform.identity());
}
