use super::super::collective::NcclTransport;
use super::super::fake_nccl::{Exchange, LATE, Seat, nccl, seat};
use super::exchange::{exchange, ship_two};
use super::*;
use crate::error::{Error, Kind};
use crate::platform::{Bootstrap, Stream, Transport};
use crate::span::Address;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn over_nccl<T: Send>(
    size: usize,
    prepare: impl Fn(usize, &mut Seat) + Sync,
    body: impl Fn(&CudaPlatform, &Threaded) -> T + Sync,
) -> (Vec<T>, Arc<Exchange>) {
    let shared = Arc::new(Exchange::default());
    let (results, world) = on_gpus(
        size,
        |_| {},
        |platform, boot| {
            let mut seat = Seat::new(&shared);
            prepare(boot.rank(), &mut seat);
            seat.sit();
            body(platform, boot)
        },
    );
    assert_eq!(world.alive(), "");
    (results, shared)
}

#[test]
fn bytes_move_and_the_end_is_a_common_one() {
    let (_, shared) = over_nccl(
        3,
        |_, _| {},
        |platform, boot| {
            let transport = NcclTransport::with(nccl(), &platform.gpu, boot).unwrap();
            for bytes in [0, 1, 70_000] {
                exchange(&transport, boot, bytes).unwrap();
                ship_two(&transport, boot, bytes);
            }
            transport
                .all_to_all_v(
                    boot,
                    Default::default(),
                    &[0; 3],
                    Default::default(),
                    &[0; 3],
                    Default::default(),
                )
                .unwrap();
            transport.release(Some(boot)).unwrap();
            assert_eq!(
                exchange(&transport, boot, 5).unwrap_err().kind,
                Kind::Communication
            );
        },
    );
    assert_eq!(shared.counts(), (0, 0));
}

#[test]
fn one_rank_that_cannot_begin_leaves_nobody_waiting() {
    for call in [
        "ncclGetUniqueId",
        "ncclCommInitRankConfig",
        "ncclCommGetAsyncError",
    ] {
        let unlucky = usize::from(call != "ncclGetUniqueId");
        let (errors, shared) = over_nccl(
            3,
            |rank, seat| seat.failing = (rank == unlucky).then_some(call),
            |platform, boot| NcclTransport::with(nccl(), &platform.gpu, boot).err().unwrap(),
        );
        for error in errors {
            assert_eq!(error.kind, Kind::Communication);
            assert!(error.what.contains("the fake fails (as it was told)"), "{error}");
        }
        assert_eq!(shared.counts().0, 0);
    }
}

#[test]
fn an_exchange_that_fails_on_one_rank_fails_on_all_and_frees_their_streams() {
    for call in ["ncclSend", "ncclGroupEnd", "ncclCommGetAsyncError"] {
        let (_, shared) = over_nccl(
            3,
            |_, _| {},
            |platform, boot| {
                let transport = NcclTransport::with(nccl(), &platform.gpu, boot).unwrap();
                if boot.rank() == 2 {
                    seat(|seat| seat.failing = Some(call));
                }
                let error = exchange(&transport, boot, 1000).unwrap_err();
                assert_eq!(error.kind, Kind::Communication);
                assert_eq!(error.what.starts_with("rank 2: "), boot.rank() != 2, "{error}");
                let error = exchange(&transport, boot, 1000).unwrap_err();
                assert_eq!(error.kind, Kind::Communication);
                transport.release(None).unwrap();
            },
        );
        assert_eq!(shared.counts(), (0, 3), "{call}");
    }
}

#[test]
fn an_end_that_fails_on_one_rank_is_an_abort_on_all() {
    let (_, shared) = over_nccl(
        2,
        |rank, seat| seat.failing = (rank == 0).then_some("ncclCommFinalize"),
        |platform, boot| {
            let transport = NcclTransport::with(nccl(), &platform.gpu, boot).unwrap();
            assert!(transport.release(Some(boot)).is_err());
        },
    );
    assert_eq!(shared.counts(), (0, 2));
    // Dropped without a word: aborted as well.
    let (_, shared) = over_nccl(
        2,
        |_, _| {},
        |platform, boot| {
            drop(NcclTransport::with(nccl(), &platform.gpu, boot).unwrap());
        },
    );
    assert_eq!(shared.counts(), (0, 2));
}

/// Meetings that fail once a peer is known to be dead.
struct Broken<'a> {
    boot: &'a Threaded,
    dead: &'a AtomicBool,
}

impl Bootstrap for Broken<'_> {
    fn rank(&self) -> usize {
        self.boot.rank()
    }

    fn size(&self) -> usize {
        self.boot.size()
    }

    fn all_gather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        if !self.dead.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
            // The other rank is alive, and as far as this one.
            return Ok(vec![mine.to_vec(); self.size()]);
        }
        Err(self.failure().unwrap())
    }

    fn barrier(&self) -> Result<()> {
        self.all_gather(&[]).map(drop)
    }

    fn exchange_descriptors(&self, mine: Option<BorrowedFd<'_>>) -> Result<Vec<Option<OwnedFd>>> {
        self.boot.exchange_descriptors(mine)
    }

    fn failure(&self) -> Option<Error> {
        let dead = self.dead.load(Ordering::Acquire);
        dead.then(|| Error::new(Kind::Communication, "rank 1 died"))
    }
}

#[test]
fn a_death_ends_a_wait_and_aborts_what_the_dead_rank_never_will_do() {
    let (_, shared) = over_nccl(
        2,
        |_, seat| seat.stuck = true,
        |platform, boot| {
            let transport = NcclTransport::with(nccl(), &platform.gpu, boot).unwrap();
            platform.watch_over(transport.abortable());
            let dead = AtomicBool::new(false);
            let start = Instant::now();
            let outcome = std::thread::scope(|scope| {
                // As the control thread does when the communicator breaks.
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(50));
                    dead.store(true, Ordering::Release);
                    crate::platform::Member::abort(platform);
                    crate::platform::Member::abort(platform);
                });
                let boot = Broken { boot, dead: &dead };
                exchange(&transport, &boot, 1000)
            });
            assert_eq!(outcome.unwrap_err().kind, Kind::Communication);
            assert!(start.elapsed() < Duration::from_secs(2));
            transport.release(None).unwrap();
        },
    );
    assert_eq!(shared.counts(), (0, 2));
}

#[test]
fn buffers_of_a_failed_exchange_are_the_callers_again() {
    const BYTES: usize = 1000;
    over_nccl(
        2,
        |_, seat| (seat.stuck, seat.slow_abort) = (true, Duration::from_millis(200)),
        |platform, boot| {
            let transport = NcclTransport::with(nccl(), &platform.gpu, boot).unwrap();
            if boot.rank() == 1 {
                seat(|seat| seat.failing = Some("ncclCommGetAsyncError"));
            }
            let send = [1u8; 2 * BYTES];
            let mut received = vec![2u8; 2 * BYTES];
            let error = transport
                .all_to_all_v(
                    boot,
                    Address(send.as_ptr() as usize),
                    &[BYTES; 2],
                    Address(received.as_mut_ptr() as usize),
                    &[BYTES; 2],
                    Stream(0x100),
                )
                .unwrap_err();
            assert_eq!(error.kind, Kind::Communication);
            // What was on its way has arrived by now, and nothing comes later.
            let peers = BYTES * (1 - boot.rank())..BYTES * (2 - boot.rank());
            assert!(received[peers.clone()].iter().all(|byte| *byte == LATE));
            received[peers.clone()].fill(3);
            std::thread::sleep(Duration::from_millis(300));
            assert!(received[peers].iter().all(|byte| *byte == 3));
        },
    );
}
