use super::*;
use crate::error::Kind;
use crate::platform::{Bootstrap, Segments, Shipment, Stream, Transport, TransportChoice};
use crate::span::Address;

/// Every rank sends `bytes + 100 * (from + 2 * to)` bytes of value `from * 16 + to` to each.
pub(super) fn exchange(transport: &dyn Transport, boot: &dyn Bootstrap, bytes: usize) -> Result<()> {
    let (me, all) = (boot.rank(), 0..boot.size());
    let size = |from: usize, to: usize| bytes + 100 * (from + 2 * to);
    let send_bytes: Vec<usize> = all.clone().map(|to| size(me, to)).collect();
    let receive_bytes: Vec<usize> = all.clone().map(|from| size(from, me)).collect();
    let send: Vec<u8> = all
        .clone()
        .flat_map(|to| vec![(me * 16 + to) as u8; size(me, to)])
        .collect();
    let want: Vec<u8> = all
        .flat_map(|from| vec![(from * 16 + me) as u8; size(from, me)])
        .collect();
    let mut got = vec![0xEEu8; want.len()];
    let moved = transport.all_to_all_v(
        boot,
        Address(send.as_ptr() as usize),
        &send_bytes,
        Address(got.as_mut_ptr() as usize),
        &receive_bytes,
        Stream(0x100),
    );
    if moved.is_err() {
        // What a failed exchange had begun may still go on, until the transport is aborted: the buffers stay.
        std::mem::forget((send, got));
        return moved;
    }
    assert_eq!(got, want);
    Ok(())
}

/// Two shipments in one call: bytes that tell who sent them to whom, and twice as many of another value.
pub(super) fn ship_two(transport: &dyn Transport, boot: &dyn Bootstrap, bytes: usize) {
    let (me, all) = (boot.rank(), 0..boot.size());
    let value = |from: usize, to: usize| (from * 16 + to) as u8;
    let sizes = [vec![bytes; boot.size()], vec![2 * bytes; boot.size()]];
    let content = |of: &dyn Fn(usize) -> u8, times: usize| -> Vec<u8> {
        all.clone()
            .flat_map(|peer| vec![of(peer); times * bytes])
            .collect()
    };
    let sent = [
        content(&|to| value(me, to), 1),
        content(&|to| value(me, to) ^ 0x55, 2),
    ];
    let wanted = [
        content(&|from| value(from, me), 1),
        content(&|from| value(from, me) ^ 0x55, 2),
    ];
    let mut got = wanted.clone().map(|want| vec![0xEEu8; want.len()]);
    let receive = got.each_mut().map(|got| Address(got.as_mut_ptr() as usize));
    let shipments = [0, 1].map(|k| Shipment {
        send: Address(sent[k].as_ptr() as usize),
        send_bytes: &sizes[k],
        receive: receive[k],
        receive_bytes: &sizes[k],
    });
    transport.ship(boot, &shipments, Stream(0x100)).unwrap();
    assert_eq!(got, wanted);
}

#[test]
fn local_copies_move_the_bytes_through_gpus_or_the_host() {
    for (garbage, size) in [(false, 3), (true, 2), (false, 1)] {
        let (_, world) = on_gpus(
            size,
            |desk| desk.reads_garbage = garbage,
            |platform, boot| {
                let reach = acquainted(platform, boot).unwrap();
                assert_eq!(reach.unreachable.is_some(), garbage);
                let transport = platform.make_transport(TransportChoice::Local, boot).unwrap();
                for bytes in [0, 1, 70_000] {
                    exchange(&*transport, boot, bytes).unwrap();
                    ship_two(&*transport, boot, bytes);
                }
                transport.release(Some(boot)).unwrap();
            },
        );
        assert_eq!(world.alive(), "");
    }
}

#[test]
fn a_local_exchange_that_fails_on_one_rank_fails_on_all_and_nothing_stays() {
    let calls = [
        "cuEventCreate",
        "cuMemMap",
        "cuMemcpyAsync",
        "cuStreamSynchronize",
    ];
    let tried = sweep(
        &calls,
        fake::UNKNOWN,
        |platform, boot| {
            let transport = platform.make_transport(TransportChoice::Local, boot)?;
            let outcome = exchange(&*transport, boot, 50_000);
            transport.release(Some(boot)).and(outcome)
        },
        |what, outcomes| {
            // A copy out of the staging after the last meeting concerns its own rank alone.
            let late = what.contains("cuMemcpyAsync") && outcomes[0].is_ok();
            for (rank, outcome) in outcomes.into_iter().enumerate() {
                match outcome {
                    Err(error) => assert_eq!(error.kind, Kind::Cuda, "{what}: {error}"),
                    Ok(()) => assert!(late && rank != 1, "{what}: rank {rank} succeeded"),
                }
            }
        },
    );
    assert!(tried >= calls.len());
}

#[test]
fn hosts_apart_have_no_local_copies() {
    let (_, world) = on_gpus(
        2,
        |_| {},
        |platform, boot| {
            platform.acquaint(boot, &[0, 1]).unwrap();
            assert_eq!(platform.granularity_bytes(), fake::PAGE);
            for made in [
                platform.make_transport(TransportChoice::Local, boot),
                crate::platform::Platform::local_transport(platform, boot),
            ] {
                assert_eq!(made.err().unwrap().kind, Kind::NotSupported);
            }
        },
    );
    assert_eq!(world.alive(), "");
}
