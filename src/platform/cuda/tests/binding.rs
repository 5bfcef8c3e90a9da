use super::super::mark::EventMark;
use super::*;
use crate::error::Kind;
use crate::kinds::DType;
use crate::platform::process::in_a_forked_child;
use crate::platform::{Indices, Kernels, Launch, Places, Platform, Rows, Stream, StreamName, Table};
use crate::span::Address;

fn seated(change: impl FnOnce(&mut Desk)) -> Arc<World> {
    let world = Arc::new(World::default());
    let mut desk = Desk::new(&world, 0);
    change(&mut desk);
    desk.sit();
    world
}

fn bound() -> Result<Arc<Gpu>> {
    let functions = fake::functions();
    let device = super::super::gpu::current_device(functions)?;
    Ok(Arc::new(Gpu::bind(functions, device)?))
}

#[test]
fn what_is_too_old_is_refused_with_both_numbers() {
    let refused = |change: fn(&mut Desk), words: &[&str]| {
        let world = seated(change);
        let error = bound().err().unwrap();
        assert_eq!(error.kind, Kind::NotSupported);
        for word in words {
            assert!(error.what.contains(word), "{error}");
        }
        assert_eq!(world.alive(), "");
    };
    refused(|d| d.driver_version = 12090, &["12.9", "13.0"]);
    refused(|d| d.capability = (7, 5), &["7.5", "8.0", "Fake GPU"]);
    refused(|d| d.shares_memory = false, &["file descriptors", "Fake GPU"]);
    seated(|d| d.capability = (8, 0));
    assert_eq!(bound().unwrap().facts.multiprocessors, 132);
}

#[test]
fn the_current_context_names_the_device_and_comes_back() {
    let world = seated(|_| {});
    assert_eq!(bound().unwrap().device, 0);
    desk(|d| d.contexts.push(0xC001));
    let gpu = bound().unwrap();
    assert_eq!(gpu.device, 1);
    let other = {
        desk(|d| d.contexts.clear());
        bound().unwrap()
    };
    // The second half of the fake's is the world's.
    let mut hex: Vec<char> = format!(
        "{}{:016x}",
        "01".repeat(8),
        (Arc::as_ptr(&world) as u64).swap_bytes()
    )
    .chars()
    .collect();
    for dash in [20, 16, 12, 8] {
        hex.insert(dash, '-');
    }
    assert_eq!(gpu.facts.identity, format!("GPU-{}", String::from_iter(hex)));
    for context in [vec![], vec![0xC000], vec![0xC001, 0xC000], vec![0xBEEF]] {
        desk(|d| d.contexts = context.clone());
        for gpu in [&gpu, &other] {
            let inside = gpu.enter().unwrap();
            assert_eq!(
                desk(|d| *d.contexts.last().unwrap()),
                0xC000 + gpu.device as usize
            );
            let deeper = other.enter().unwrap();
            assert_eq!(
                desk(|d| (*d.contexts.last().unwrap(), d.capture_mode)),
                (0xC000, 2)
            );
            drop(deeper);
            assert_eq!(desk(|d| d.capture_mode), 2);
            drop(inside);
            gpu.synchronize().unwrap();
            assert_eq!(desk(|d| d.contexts.clone()), context);
            assert_eq!(desk(|d| d.capture_mode), 0);
        }
    }
    drop((gpu, other));
    assert_eq!(world.alive(), "");
}

/// What tells streams apart is the driver's number, else handle and thread.
#[test]
fn streams_are_told_apart_by_their_numbers() {
    let world = seated(|_| {});
    let platform = CudaPlatform::new(bound().unwrap());
    let name = |handle| platform.name_of(Stream(handle));
    assert_eq!(name(0x100), StreamName::Number(0x100));
    assert_eq!(name(2), StreamName::Number(0x10_0000));
    desk(|d| d.failure = Some(("cuStreamGetId", 0, fake::UNKNOWN)));
    let mine = name(2);
    assert_eq!(mine, StreamName::Handle(Stream(2), std::thread::current().id()));
    drop(platform);
    assert_eq!(world.alive(), "");
}

/// What a refused rank takes part with is done now, whatever records.
#[test]
fn work_beside_a_recording_has_a_stream_that_does_not_record() {
    let world = seated(|_| {});
    let own = |platform: &CudaPlatform| {
        desk(|d| d.records = true);
        let streams = [platform.side_stream(), platform.side_stream()];
        desk(|d| d.records = false);
        assert_eq!(platform.side_stream(), Stream(2));
        streams
    };
    let platform = CudaPlatform::new(bound().unwrap());
    assert_eq!(platform.side_stream(), Stream(2));
    assert_eq!(world.alive(), "1 contexts ");
    let [first, second] = own(&platform);
    assert!(first == second && first != Stream(2));
    assert!(!platform.is_capturing(first).unwrap());
    assert_eq!(world.alive(), "1 streams 1 contexts ");
    drop(platform);
    let platform = CudaPlatform::new(bound().unwrap());
    desk(|d| (d.failure, d.failed) = (Some(("cuStreamCreate", 0, fake::UNKNOWN)), false));
    let [failed, next] = own(&platform);
    assert!(failed == Stream(2) && next != Stream(2));
    drop(platform);
    assert_eq!(world.alive(), "");
}

/// What the system refuses the driver: the limit that may be why is in the sentence, and nobody asks again, since the driver
/// answers so from then on.
#[test]
fn waits_that_the_system_refuses_name_the_limit_of_descriptors() {
    let world = seated(|_| {});
    let gpu = bound().unwrap();
    let mark = EventMark::new(&gpu).unwrap();
    type Wait<'a> = &'a dyn Fn() -> Result<()>;
    let waits: [(&str, Wait<'_>); 3] = [
        ("cuStreamSynchronize", &|| gpu.synchronize_stream(Stream(0))),
        ("cuEventSynchronize", &|| mark.wait()),
        ("cuCtxSynchronize", &|| gpu.synchronize()),
    ];
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile)
        .current
        .unwrap();
    for (call, wait) in waits {
        desk(|d| (d.failure, d.failed) = (Some((call, 0, fake::OPERATING_SYSTEM)), false));
        let before = world.log().len();
        let error = wait().unwrap_err();
        assert_eq!(error.kind, Kind::System, "{call}");
        for word in [call, "304", "RLIMIT_NOFILE", &format!(" {limit}; ")] {
            assert!(error.what.contains(word), "{error}");
        }
        let log = world.log();
        assert_eq!(
            log[before..].iter().filter(|(_, name, _)| *name == call).count(),
            1
        );
    }
    drop((mark, gpu));
    assert_eq!(world.alive(), "");
}

#[test]
fn a_failing_call_speaks_the_drivers_number_and_leaves_the_context_alone() {
    let world = seated(|_| {});
    let gpu = bound().unwrap();
    desk(|d| d.failure = Some(("cuStreamSynchronize", 0, 700)));
    let error = gpu.synchronize_stream(Stream(0)).unwrap_err();
    assert_eq!(error.kind, Kind::Cuda);
    assert!(
        error.what.contains("cuStreamSynchronize") && error.what.contains("700"),
        "{error}"
    );
    assert!(desk(|d| d.contexts.is_empty()));
    drop(gpu);
    desk(|d| (d.failure, d.failed) = (Some(("cuThreadExchangeStreamCaptureMode", 0, 999)), false));
    assert_eq!(bound().unwrap().synchronize().unwrap_err().kind, Kind::Cuda);
    assert!(desk(|d| d.contexts.is_empty() && d.capture_mode == 0));
    for call in [
        "cuDeviceGetCount",
        "cuDevicePrimaryCtxRetain",
        "cuDeviceGetUuid_v2",
        "cuDeviceGetAttribute",
    ] {
        desk(|d| (d.failure, d.failed) = (Some((call, 0, 999)), false));
        assert_eq!(bound().err().unwrap().kind, Kind::Cuda);
    }
    assert_eq!(world.alive(), "");
}

#[test]
fn streams_of_other_devices_are_refused_and_recording_ones_are_known() {
    seated(|_| {});
    let platform = CudaPlatform::new(bound().unwrap());
    for stream in [0, 1, 2, 0x100, 0x300, 0x500, 0x700] {
        platform.check_stream(Stream(stream)).unwrap();
    }
    // Those that record too, and those whose context is not told.
    for stream in [0x101, 0x301, 0x501] {
        let error = platform.check_stream(Stream(stream)).unwrap_err();
        assert_eq!(error.kind, Kind::InvalidInput);
        assert!(error.what.contains("device 1"), "{error}");
    }
    assert!(desk(|d| d.contexts.is_empty()));
    assert!(!platform.is_capturing(Stream(0x100)).unwrap());
    assert!(platform.is_capturing(Stream(0x300)).unwrap());
}

#[test]
fn pageable_memory_and_other_gpus_are_out_of_reach() {
    let world = seated(|_| {});
    let platform = CudaPlatform::new(bound().unwrap());
    let word = super::super::abort::AbortWord::new(&platform.gpu).unwrap();
    assert!(platform.can_reach(word.address()));
    let local = 7u64;
    assert!(!platform.can_reach(Address(&raw const local as usize)));
    assert!(!platform.can_reach(Address::NULL));
    world.put_elsewhere(0x7000);
    assert!(!platform.can_reach(Address(0x7000)));
}

#[test]
fn a_forked_child_calls_nothing() {
    let world = seated(|_| {});
    let mut held = Some(bound().unwrap());
    let before = world.log().len();
    in_a_forked_child(|| {
        let Some(gpu) = held.take() else { return false };
        let refused = gpu
            .synchronize()
            .is_err_and(|e| e.kind == Kind::Communication && e.what.contains("forked"));
        let reached = CudaPlatform::new(gpu.clone()).can_reach(Address(0x1000));
        // The last one: what it holds is not given back by the child.
        let last = Arc::strong_count(&gpu) == 1;
        drop(gpu);
        refused && !reached && last && world.log().len() == before
    });
    held.unwrap().synchronize().unwrap();
}

#[test]
fn marks_order_streams_and_go() {
    let world = seated(|_| {});
    let platform = CudaPlatform::new(bound().unwrap());
    let marks = [0, 1].map(|_| platform.mark().unwrap().unwrap());
    for mark in &marks {
        mark.set(Stream(0x100)).unwrap();
        mark.hold_back(Stream::default()).unwrap();
    }
    for call in ["cuEventCreate", "cuEventRecord", "cuStreamWaitEvent"] {
        desk(|d| (d.failure, d.failed) = (Some((call, 0, 400)), false));
        let refused = match call {
            "cuEventCreate" => platform.mark().map(drop),
            "cuEventRecord" => marks[0].set(Stream::default()),
            _ => marks[0].hold_back(Stream::default()),
        };
        assert_eq!(refused.unwrap_err().kind, Kind::Cuda, "{call}");
    }
    assert!(marks[0].is_passed());
    // Not ready, unknown, a fault of the work: who would forget such a mark would not be behind it.
    for code in [600, fake::UNKNOWN, 700] {
        desk(|d| (d.failure, d.failed) = (Some(("cuEventQuery", 0, code)), false));
        assert!(!marks[0].is_passed(), "{code}");
    }
    drop(marks);
    drop(platform);
    assert_eq!(world.alive(), "");
}

/// The driver's functions that `work` calls, in their order.
fn calls_of(world: &World, work: impl FnOnce()) -> Vec<&'static str> {
    let before = world.log().len();
    work();
    world.log()[before..].iter().map(|(_, name, _)| *name).collect()
}

/// What a gather of few rows asks the driver, step by step as `ops` does, up to the launch: of each question it takes less time to
/// move the rows.
#[test]
fn a_small_gather_asks_the_driver_little() {
    let world = seated(|_| {});
    let platform = CudaPlatform::new(bound().unwrap());
    let word = super::super::abort::AbortWord::new(&platform.gpu).unwrap();
    let at = word.address();
    let table = Table {
        places: Places::Flat(at),
        offset_bytes: 0,
        row_stride_bytes: 512,
        rows: 1000,
        cols: 128,
        dtype: DType::Float,
    };
    let ids = Indices {
        address: at,
        dtype: DType::Int64,
        count: 10,
    };
    let output = Rows {
        address: at,
        row_stride_bytes: 512,
        dtype: DType::Float,
    };
    let gather = |stream: Stream| {
        let mut steps = || {
            platform.check_stream(stream)?;
            assert!(platform.can_reach(output.address) && platform.can_reach(ids.address));
            let launch = Launch {
                stream,
                ..Launch::default()
            };
            assert_eq!(platform.gather_workspace_bytes(&table, &ids, launch)?, 0);
            #[cfg(not(wholememory_kernels))]
            assert_eq!(
                platform.gather(&table, &ids, &output, launch).unwrap_err().kind,
                Kind::NotSupported
            );
            Ok(())
        };
        platform.within_on(stream, &mut steps).unwrap();
    };
    let asked = ["cuPointerGetAttributes", "cuPointerGetAttributes"];
    let entered = ["cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuStreamIsCapturing"];
    // The default stream is of every GPU.
    let calls = calls_of(&world, || gather(Stream(0)));
    assert_eq!(calls, [&entered[..], &asked, &["cuCtxPopCurrent_v2"]].concat());
    desk(|d| d.contexts.push(0xC000));
    let calls = calls_of(&world, || gather(Stream(0x100)));
    let current = ["cuCtxGetCurrent", "cuStreamIsCapturing", "cuStreamGetCtx"];
    assert_eq!(calls, [&current[..], &asked].concat());
    // A recording stream relaxes the thread's mode meanwhile.
    let calls = calls_of(&world, || gather(Stream(0x300)));
    let mode = ["cuThreadExchangeStreamCaptureMode"];
    assert_eq!(
        calls,
        [&current[..2], &mode, &current[2..], &asked, &mode].concat()
    );
}

/// A function of the caller may leave any context current; what the library does then is done in its own again.
#[test]
fn a_context_that_the_caller_left_is_noticed_in_the_middle_of_a_call() {
    let world = seated(|_| {});
    let gpu = bound().unwrap();
    let on_top = || desk(|d| d.contexts.last().copied());
    let outer = gpu.enter().unwrap();
    let inner = gpu.enter_to_enqueue().unwrap();
    assert_eq!(calls_of(&world, || drop(gpu.enter_to_enqueue())), [""; 0]);
    crate::platform::forget_current();
    desk(|d| d.contexts.push(0xBEEF));
    for guard in [inner, outer] {
        let again = gpu.enter_to_enqueue().unwrap();
        assert_eq!(on_top(), Some(0xC000));
        drop(again);
        assert_eq!(on_top(), Some(0xBEEF));
        // Guards take away what they pushed themselves, so the caller's comes off first, as it must.
        desk(|d| d.contexts.retain(|c| *c != 0xBEEF));
        drop(guard);
        desk(|d| d.contexts.push(0xBEEF));
    }
    desk(|d| d.contexts.clear());
    assert_eq!(gpu.is_capturing(Stream(0)).ok(), Some(false));
    assert!(on_top().is_none());
}
