//! What handles of C callers stand for, and what becomes of them: communicators, memory, tensors.

use super::convert::address;
use super::embedding_objects::EmbeddingObject;
use super::handle::{Entry, Holds, Kinded, Table};
use super::tensor_description::wholememory_tensor_description_t;
use crate::comm::{Communicator, Hierarchy};
use crate::embedding::{CachePolicy, Optimizer, Part};
use crate::error::{Error, Kind, Result, fail};
use crate::memory::Memory;
use crate::platform::locks::ForkMutex;
use crate::span::Address;
use crate::tensor::{Description, Operand, Storage};
use std::cell::UnsafeCell;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Dead handles of one communicator that still name it; the oldest are forgotten.
const MOST_TOMBSTONES: usize = 4096;

static TABLE: Table<Object> = Table::new();
static LIVE_TENSORS: AtomicI64 = AtomicI64::new(0);

pub(crate) fn table() -> &'static Table<Object> {
    &TABLE
}

/// Tensors that are not destroyed yet.
pub(crate) fn live_tensors() -> i64 {
    LIVE_TENSORS.load(Ordering::Relaxed)
}

pub(crate) struct CommObject {
    pub(crate) comm: Arc<Communicator>,
    /// Whose it is, in words, if it is not the caller's to destroy.
    pub(crate) owner: Option<String>,
    belongings: ForkMutex<Belongings>,
}

/// Handles that go with a communicator.
#[derive(Default)]
struct Belongings {
    memories: BTreeSet<usize>,
    tombstones: VecDeque<Tombstone>,
    /// The local and the cross communicator of HIERARCHY handles, once somebody asked for them.
    pair: Option<(usize, usize)>,
}

pub(super) enum Tombstone {
    Memory(usize),
    Tensor(usize),
    Embedding(usize),
}

impl Tombstone {
    fn forget(&self) {
        match self {
            Tombstone::Memory(value) => drop(TABLE.remove::<MemoryObject>(*value)),
            Tombstone::Tensor(value) => drop(TABLE.remove::<TensorObject>(*value)),
            Tombstone::Embedding(value) => drop(TABLE.remove::<EmbeddingObject>(*value)),
        }
    }
}

pub(crate) struct MemoryObject {
    pub(crate) memory: Arc<Memory>,
    /// The handle of the communicator as it was passed to malloc.
    pub(crate) comm: usize,
    /// The handle of the embedding it belongs to, 0 for the caller's own.
    pub(crate) lender: usize,
}

pub(crate) struct TensorObject {
    /// Written by C callers through `wholememory_tensor_get_tensor_description`.
    description: UnsafeCell<wholememory_tensor_description_t>,
    pub(crate) storage: Storage,
    /// The handle under it, 0 for plain memory.
    pub(crate) memory: usize,
    /// The top of the chain of subtensors with its handle; `None` for tops.
    root: Option<(usize, Arc<TensorObject>)>,
    pub(crate) owns: bool,
    /// The handle of the embedding it belongs to, 0 for the caller's own.
    lender: usize,
}

// SAFETY: the description is the only part without protection. It is read and written through its pointer alone (no
// reference to it is ever made), and C callers who write it while another thread uses the tensor break the C contract.
unsafe impl Send for TensorObject {}
// SAFETY: as above.
unsafe impl Sync for TensorObject {}

#[derive(Clone)]
pub(crate) enum Object {
    Communicator(Arc<CommObject>),
    Memory(Arc<MemoryObject>),
    Tensor(Arc<TensorObject>),
    Embedding(Arc<EmbeddingObject>),
    Optimizer(Arc<Optimizer>),
    Policy(Arc<CachePolicy>),
}

macro_rules! kinds {
    ($($variant:ident($type:ty) = $number:literal, $word:literal, $end:literal;)+) => {
        $(
            impl Kinded for $type {
                const NUMBER: usize = $number;
                const WORD: &'static str = $word;
                const END: &'static str = $end;
            }

            impl Holds<$type> for Object {
                fn wrap(object: Arc<$type>) -> Object {
                    Object::$variant(object)
                }

                fn find(&self) -> Option<&Arc<$type>> {
                    match self {
                        Object::$variant(object) => Some(object),
                        _ => None,
                    }
                }
            }
        )+

        impl Entry for Object {
            fn word(number: usize) -> Option<&'static str> {
                match number {
                    $($number => Some($word),)+
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    Communicator(CommObject) = 1, "a communicator", "destroyed, or finalized";
    Memory(MemoryObject) = 2, "a memory handle", "freed, or gone with its communicator";
    Tensor(TensorObject) = 3, "a tensor", "destroyed";
    Embedding(EmbeddingObject) = 4, "an embedding", "destroyed";
    Optimizer(Optimizer) = 5, "an optimizer", "destroyed";
    Policy(CachePolicy) = 6, "a cache policy", "destroyed";
}

impl CommObject {
    /// Puts a communicator into the table; `owner` says whose it is if not the caller's.
    pub(crate) fn enter(comm: Arc<Communicator>, owner: Option<String>) -> Result<usize> {
        TABLE.insert(Arc::new(CommObject {
            comm,
            owner,
            belongings: ForkMutex::default(),
        }))
    }

    /// Every lock of the communicator and its handles, held.
    #[cfg(test)]
    pub(crate) fn hold_locks(&self) -> impl Sized + '_ {
        (self.comm.hold_locks(), self.belongings.lock())
    }

    /// The handles of the pair of a HIERARCHY handle, entered at the first question.
    pub(crate) fn pair(&self, own: usize, hierarchy: &Hierarchy) -> Result<(usize, usize)> {
        let mut belongings = self.belongings.lock()?;
        if let Some(pair) = belongings.pair {
            return Ok(pair);
        }
        let owner = |which: &str| Some(format!("the {which} communicator of communicator {own:#x}"));
        let local = CommObject::enter(hierarchy.local.clone(), owner("local"))?;
        let cross = CommObject::enter(hierarchy.cross.clone(), owner("cross"))?;
        belongings.pair = Some((local, cross));
        Ok((local, cross))
    }

    pub(super) fn bury(&self, tombstone: Tombstone) {
        let Ok(mut belongings) = self.belongings.lock() else {
            return;
        };
        if let Tombstone::Memory(value) = tombstone {
            belongings.memories.remove(&value);
        }
        belongings.tombstones.push_back(tombstone);
        let oldest = (belongings.tombstones.len() > MOST_TOMBSTONES)
            .then(|| belongings.tombstones.pop_front())
            .flatten();
        drop(belongings);
        if let Some(oldest) = oldest {
            oldest.forget();
        }
    }
}

/// Takes a dead communicator out of the table with everything that went with it; in a forked child without what a thread of its
/// parent was at work on.
pub(crate) fn forget_communicator(value: usize) {
    let Some(object) = TABLE.remove::<CommObject>(value) else {
        return;
    };
    let gone = object
        .belongings
        .lock()
        .map(|mut belongings| std::mem::take(&mut *belongings));
    forget_all(gone.unwrap_or_default());
}

fn forget_all(belongings: Belongings) {
    for memory in belongings.memories {
        TABLE.remove::<MemoryObject>(memory);
    }
    for tombstone in belongings.tombstones {
        tombstone.forget();
    }
    if let Some((local, cross)) = belongings.pair {
        forget_communicator(local);
        forget_communicator(cross);
    }
}

impl MemoryObject {
    /// Puts new memory of communicator `comm` (its handle) into the table.
    pub(crate) fn enter(memory: Arc<Memory>, comm: usize, object: &CommObject) -> Result<usize> {
        MemoryObject::lend(memory, comm, object, 0)
    }

    /// The same for memory of embedding `lender` (its handle).
    pub(crate) fn lend(
        memory: Arc<Memory>,
        comm: usize,
        object: &CommObject,
        lender: usize,
    ) -> Result<usize> {
        let mut belongings = object.belongings.lock()?;
        let value = TABLE.insert(Arc::new(MemoryObject { memory, comm, lender }))?;
        belongings.memories.insert(value);
        Ok(value)
    }
}

/// Turns the handle of memory that was freed into a tombstone.
pub(crate) fn bury_memory(value: usize, comm: usize) {
    if !TABLE.entomb::<MemoryObject>(value) {
        return;
    }
    match TABLE.live::<CommObject>("comm", comm) {
        Ok(comm) => comm.bury(Tombstone::Memory(value)),
        Err(_) => drop(TABLE.remove::<MemoryObject>(value)),
    }
}

impl TensorObject {
    fn enter(object: TensorObject) -> Result<usize> {
        let value = TABLE.insert(Arc::new(object))?;
        LIVE_TENSORS.fetch_add(1, Ordering::Relaxed);
        Ok(value)
    }

    /// A tensor over the caller's memory.
    pub(crate) fn over_pointer(storage: Address, description: Description) -> Result<usize> {
        TensorObject::enter(TensorObject {
            description: UnsafeCell::new(description.into()),
            storage: Storage::Pointer(storage),
            memory: 0,
            root: None,
            owns: false,
            lender: 0,
        })
    }

    /// A tensor over a handle; with `owns` it frees it.
    pub(crate) fn over_handle(
        memory: Arc<Memory>,
        handle: usize,
        description: Description,
        owns: bool,
    ) -> Result<usize> {
        TensorObject::enter(TensorObject {
            description: UnsafeCell::new(description.into()),
            storage: Storage::Memory(memory),
            memory: handle,
            root: None,
            owns,
            lender: 0,
        })
    }

    /// A tensor that belongs to embedding `lender`: the window `seen` of all of a handle, which is its root. Returns both handles,
    /// of the root first.
    pub(crate) fn lend(part: &Part, handle: usize, lender: usize) -> Result<(usize, usize)> {
        let lent = |description: Description, root| TensorObject {
            description: UnsafeCell::new(description.into()),
            storage: Storage::Memory(part.memory.clone()),
            memory: handle,
            root,
            owns: false,
            lender,
        };
        let whole = TensorObject::enter(lent(part.whole, None))?;
        let root = TABLE.live::<TensorObject>("the root", whole)?;
        match TensorObject::enter(lent(part.seen, Some((whole, root)))) {
            Ok(seen) => Ok((whole, seen)),
            Err(error) => {
                retire_tensor(whole, None);
                Err(error)
            }
        }
    }

    /// A window of this tensor, which has handle `own`.
    pub(crate) fn window(self: &Arc<Self>, own: usize, description: Description) -> Result<usize> {
        TensorObject::enter(TensorObject {
            description: UnsafeCell::new(description.into()),
            storage: self.storage.clone(),
            memory: self.memory,
            root: Some(self.root.clone().unwrap_or_else(|| (own, self.clone()))),
            owns: false,
            lender: 0,
        })
    }

    /// The description at this moment.
    pub(crate) fn description(&self) -> Description {
        // SAFETY: the cell is always initialised, every pattern of its bytes is valid, and it is only accessed by pointer.
        unsafe { self.description.get().read() }.into()
    }

    /// Where C callers read and write the description. It stays while the tensor is alive.
    pub(crate) fn description_place(&self) -> *mut wholememory_tensor_description_t {
        self.description.get()
    }

    /// The handle of the root of a tensor with handle `own`.
    pub(crate) fn root_handle(&self, own: usize) -> usize {
        self.root.as_ref().map_or(own, |(handle, _)| *handle)
    }

    pub(crate) fn root_description(&self) -> Description {
        self.root
            .as_ref()
            .map_or_else(|| self.description(), |(_, root)| root.description())
    }
}

/// The tensor behind a handle as an operation sees it.
pub(crate) fn operand(name: &str, value: *const impl Sized) -> Result<Operand> {
    let (operand, refusal) = table_operand(name, value)?;
    refusal.map(|()| operand)
}

/// The tensor that decides who takes part in an operation. One that was destroyed with its memory is given too, with the
/// refusal: its rank takes part with nothing, so that the others do not wait.
pub(crate) fn table_operand(name: &str, value: *const impl Sized) -> Result<(Operand, Result<()>)> {
    let value = address(value).0;
    // Written where it stays: a description is long, and every call makes three operands.
    let mut operand = Operand::none();
    let dead = TABLE.read(name, value, |tensor: &Arc<TensorObject>, dead| {
        operand.description = tensor.description();
        operand.storage = tensor.storage.clone();
        dead
    })?;
    let refusal = match dead {
        true => TABLE.live::<TensorObject>(name, value).map(drop),
        false => Ok(()),
    };
    Ok((operand, refusal))
}

/// An operand that is missing: the operation still runs with none, since it may be collective; the first failure is kept.
pub(crate) fn or_none(operand: Result<Operand>, failure: &mut Result<()>) -> Operand {
    operand.unwrap_or_else(|error: Error| {
        if failure.is_ok() {
            *failure = Err(error);
        }
        Operand::none()
    })
}

/// Destroys a tensor: frees its memory if it owns it (collective then), and lowers the counter.
pub(crate) fn destroy_tensor(value: usize) -> Result<()> {
    let (tensor, dead) = TABLE.live_or_tombstone::<TensorObject>("wholememory_tensor", value)?;
    if tensor.lender != 0 && !dead {
        fail!(
            InvalidInput,
            "wholememory_tensor {value:#x} belongs to embedding {:#x}: it goes with its owner",
            tensor.lender
        );
    }
    let owned = match &tensor.storage {
        Storage::Memory(memory) if tensor.owns => Some(memory),
        _ => None,
    };
    if dead {
        // The others may be destroying another tensor of the communicator: take part, so that they learn of it.
        let refusal = match owned.map(|memory| memory.free()) {
            Some(Err(error)) => error,
            _ => Error::new(Kind::InvalidInput, "its memory is freed"),
        };
        return Err(refusal.within(format_args!("wholememory_tensor {value:#x} was destroyed before")));
    }
    let outcome = match owned {
        Some(memory) if memory.is_live() => memory.free(),
        _ => Ok(()),
    };
    if owned.is_some_and(|memory| memory.is_live()) {
        return outcome;
    }
    let memory = owned.and_then(|_| TABLE.live::<MemoryObject>("handle", tensor.memory).ok());
    if let Some(memory) = &memory {
        bury_memory(tensor.memory, memory.comm);
    }
    if !retire_tensor(value, memory.map(|memory| memory.comm)) {
        fail!(
            InvalidInput,
            "wholememory_tensor {value:#x} was destroyed by another thread at the same time"
        );
    }
    outcome
}

/// Takes a tensor out of the table; with a communicator (its handle) it leaves a tombstone there. False if it is gone already.
pub(crate) fn retire_tensor(value: usize, comm: Option<usize>) -> bool {
    let gone = match comm {
        Some(comm) => {
            let gone = TABLE.entomb::<TensorObject>(value);
            match TABLE.live::<CommObject>("comm", comm) {
                Ok(comm) if gone => comm.bury(Tombstone::Tensor(value)),
                _ => drop(TABLE.remove::<TensorObject>(value)),
            }
            gone
        }
        None => TABLE.remove::<TensorObject>(value).is_some(),
    };
    if gone {
        LIVE_TENSORS.fetch_sub(1, Ordering::Relaxed);
    }
    gone
}
