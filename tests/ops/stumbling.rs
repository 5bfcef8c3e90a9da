//! A rank whose stream cannot be waited for or marked, at any place of a call: it alone fails, and leaves nobody waiting. Where
//! streams meet, the others learn that it does not come.

use crate::delegate::{like_the_cpu, moves_like_the_cpu};
use crate::grid::{Grid, Ids, describe, value};
use crate::heap::Heap;
use crate::moving::Table;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use wholegraph::comm::{Communicator, UniqueId};
use wholegraph::embedding::{Access, CachePolicy, Embedding, Optimizer, Request};
use wholegraph::error::{Error, Kind, Result};
use wholegraph::kinds::{DType, Location, MemoryType};
use wholegraph::memory::Route;
use wholegraph::ops;
use wholegraph::platform::caching::AfterWriteBack;
use wholegraph::platform::cpu::CpuPlatform;
use wholegraph::platform::learning::OptimizerKind;
use wholegraph::platform::{Bootstrap, Mark, Member, Platform, Reach, Stream, StreamName};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Wait,
    Mark,
    Meeting,
}

/// What fails, how often it goes well before, and whether it has failed.
type Fall = Arc<Mutex<Option<(What, usize, bool)>>>;

/// The CPU platform of one rank, whose streams fail in one place.
struct Stumbling {
    meets_on_streams: bool,
    fall: Fall,
}

fn step(fall: &Fall, what: What) -> Result<()> {
    match &mut *fall.lock().unwrap() {
        Some((which, left, fell)) if *which == what && !*fell => {
            if *left > 0 {
                *left -= 1;
                return Ok(());
            }
            *fell = true;
            Err(Error::new(Kind::Cuda, format!("this {what:?} fails")))
        }
        _ => Ok(()),
    }
}

struct Noted(Fall);

impl Mark for Noted {
    fn set(&self, _: Stream) -> Result<()> {
        step(&self.0, What::Mark)
    }

    fn hold_back(&self, _: Stream) -> Result<()> {
        step(&self.0, What::Mark)
    }

    fn is_passed(&self) -> bool {
        false
    }
}

impl Platform for Stumbling {
    like_the_cpu!();
    moves_like_the_cpu!();

    fn synchronize(&self, _: Stream) -> Result<()> {
        step(&self.fall, What::Wait)
    }

    fn name_of(&self, stream: Stream) -> StreamName {
        StreamName::Number(stream.0 as u64)
    }

    fn mark(&self) -> Result<Option<Box<dyn Mark>>> {
        Ok(Some(Box::new(Noted(self.fall.clone()))))
    }

    fn meets_on_streams(&self) -> bool {
        self.meets_on_streams
    }

    fn meet(&self, _: Stream) -> Result<()> {
        step(&self.fall, What::Meeting)
    }
}

impl Member for Stumbling {
    fn identity(&self) -> String {
        CpuPlatform.identity()
    }

    fn rebind(&self) -> Result<Arc<dyn Member>> {
        Ok(Arc::new(Stumbling {
            meets_on_streams: self.meets_on_streams,
            fall: self.fall.clone(),
        }))
    }

    fn acquaint(&self, boot: &dyn Bootstrap, host_of: &[usize]) -> Result<Reach> {
        CpuPlatform.acquaint(boot, host_of)
    }
}

const RANKS: i32 = 3;
const CULPRIT: i32 = 1;
const ROWS: i64 = 96;
const COLS: i64 = 4;

/// What a rank has made, and its calls with it.
struct Made {
    comm: Arc<Communicator>,
    table: Table,
    /// DISTRIBUTED and CHUNKED, as their caches are.
    embeddings: [Embedding; 2],
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Gather,
    Scatter,
    /// Of which embedding, and whether it adjusts.
    Cached(usize, bool),
    Step(usize),
    WriteBack(usize),
}

const CALLS: [Call; 10] = [
    Call::Gather,
    Call::Scatter,
    Call::Cached(0, true),
    Call::Cached(0, false),
    Call::Cached(1, true),
    Call::Cached(1, false),
    Call::Step(0),
    Call::Step(1),
    Call::WriteBack(0),
    Call::WriteBack(1),
];

impl Made {
    fn new(comm: Arc<Communicator>) -> Made {
        let place = (MemoryType::Distributed, Location::Host);
        let table = Table::new(&comm, place, DType::Float, ROWS, (COLS, COLS, 0), None);
        let embeddings = [MemoryType::Distributed, MemoryType::Chunked].map(|cache_type| {
            let policy = CachePolicy {
                comm: comm.clone(),
                memory_type: cache_type.raw(),
                location: Location::Device.raw(),
                access: Access::ReadWrite as u32,
                ratio: 0.5,
            };
            let request = Request {
                description: describe(&[ROWS, COLS], &[COLS, 1], 0, DType::Float),
                memory_type: cache_type.raw(),
                location: Location::Host.raw(),
                policy: Some(policy),
                partition: None,
                sms: -1,
                round_robin_size: 0,
                rmm_enabled: false,
            };
            let embedding = Embedding::create(&comm, Ok(request)).unwrap();
            let sgd = Arc::new(Optimizer::new(OptimizerKind::Sgd as u32).unwrap());
            embedding.set_optimizer(Ok(Some(sgd))).unwrap();
            embedding
        });
        Made {
            comm,
            table,
            embeddings,
        }
    }

    fn call(&self, call: Call, stream: Stream) -> Result<()> {
        let ids: Vec<i64> = (0..ROWS).rev().collect();
        let mut ids = Ids::new(DType::Int64, &ids, 0);
        let mut rows = Grid::new(DType::Float, ROWS as usize, COLS as usize, COLS as usize, 0);
        let (ids, operand, heap) = (ids.operand(), rows.operand(), Heap::default());
        match call {
            Call::Gather => {
                ops::gather(&self.table.operand(), &ids, &operand, &heap, stream, -1)?;
                let mut want = Grid::new(DType::Float, ROWS as usize, COLS as usize, COLS as usize, 0);
                (0..ROWS as usize).for_each(|i| want.set(i, |col| value(0, ROWS - 1 - i as i64, col)));
                rows.assert_same(&want, "rows");
                Ok(())
            }
            // Nothing, so that rows stay what they are.
            Call::Scatter => {
                let mut none = Ids::new(DType::Int64, &[], 0);
                let mut nothing = Grid::new(DType::Float, 0, COLS as usize, COLS as usize, 0);
                let (none, nothing) = (none.operand(), nothing.operand());
                ops::scatter(&nothing, &none, &self.table.operand(), &heap, stream, -1)
            }
            Call::Cached(which, adjust) => {
                self.embeddings[which].gather(&ids, &operand, adjust, &heap, stream)
            }
            Call::Step(which) => {
                let mine = Ok((&ids, &operand));
                self.embeddings[which].apply_gradients(mine, true, 0.25, &heap, stream)
            }
            Call::WriteBack(which) => self.embeddings[which].write_back(Ok(()), AfterWriteBack::Keep, stream),
        }
    }

    fn drop(self) {
        for embedding in self.embeddings {
            embedding.release().unwrap();
        }
        self.table.memory.free().unwrap();
        self.comm.destroy().unwrap();
    }
}

fn ranks(meets_on_streams: bool, body: impl Fn(i32, Arc<Communicator>, &Fall) + Sync) {
    let id = UniqueId::create().unwrap();
    std::thread::scope(|scope| {
        for rank in 0..RANKS {
            let (id, body) = (&id, &body);
            scope.spawn(move || {
                crate::world::or_end_the_process(rank as usize, || {
                    let fall = Fall::default();
                    let bound: Arc<dyn Member> = Arc::new(Stumbling {
                        meets_on_streams,
                        fall: fall.clone(),
                    });
                    body(
                        rank,
                        Communicator::create_on(id, rank, RANKS, || Ok(bound)).unwrap(),
                        &fall,
                    );
                });
            });
        }
    });
}

#[test]
fn a_rank_that_stumbles_fails_alone() {
    let (together, more) = (Barrier::new(RANKS as usize), AtomicBool::new(true));
    ranks(false, |rank, comm, fall| {
        let made = Made::new(comm);
        for what in [What::Wait, What::Mark] {
            let mut falls = 0;
            for call in CALLS {
                // Until nothing of the kind is left to fail.
                for before in 0.. {
                    if rank == CULPRIT {
                        *fall.lock().unwrap() = Some((what, before, false));
                    }
                    // Marks on another stream than the last call's.
                    let done = made.call(call, Stream(before % 3 + 4));
                    let fell = fall.lock().unwrap().take().is_some_and(|(_, _, fell)| fell);
                    match done {
                        Ok(()) => {}
                        Err(error) => {
                            assert!(fell, "rank {rank}, {call:?}, {what:?} {before}: {error}");
                            assert_eq!(error.kind, Kind::Cuda, "{call:?}, {what:?} {before}: {error}");
                        }
                    }
                    if rank == CULPRIT {
                        more.store(fell, Ordering::SeqCst);
                        falls += usize::from(fell);
                    }
                    together.wait();
                    let go_on = more.load(Ordering::SeqCst);
                    together.wait();
                    // All is well for the next call.
                    made.call(Call::Gather, Stream(4)).unwrap();
                    if !go_on {
                        break;
                    }
                }
            }
            // Fewer by the exchange route than by others.
            assert!(
                rank != CULPRIT || falls >= 10,
                "{what:?}s failed in {falls} places"
            );
        }
        made.drop();
    });
}

/// A meeting that a rank cannot enqueue is one that the others would wait for on their GPUs.
#[test]
fn a_rank_that_cannot_meet_ends_the_communicator() {
    for call in [Call::Gather, Call::Cached(0, true), Call::Step(0)] {
        for before in 0..2 {
            ranks(true, |rank, comm, fall| {
                let made = Made::new(comm.clone());
                // Elsewhere there are none.
                if made.table.memory.route() != Route::Direct {
                    return;
                }
                comm.barrier().unwrap();
                if rank == CULPRIT {
                    *fall.lock().unwrap() = Some((What::Meeting, before, false));
                    let error = made.call(call, Stream(4)).unwrap_err();
                    assert_eq!(error.kind, Kind::Cuda, "{call:?}: {error}");
                } else {
                    // Its streams wait for nobody here: it may learn of it in the call, or in the next.
                    let _ = made.call(call, Stream(4));
                }
                let error = (0..1000)
                    .find_map(|_| comm.barrier().err())
                    .expect("the others wait for a rank that is out of step");
                assert_eq!(error.kind, Kind::Communication);
                for words in [&*format!("rank {CULPRIT}"), "this Meeting fails"] {
                    assert!(error.what.contains(words), "{call:?}: {error}");
                }
            });
        }
    }
}
