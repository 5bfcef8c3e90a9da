//! The table behind every handle that C callers hold. A handle is a number in the dress of a pointer: kind, generation
//! and slot. The table is never freed and handles are never dereferenced, so NULL, dead and foreign values are told apart
//! without touching freed memory. A lookup takes one uncontended read lock of the slot.

use crate::error::{Error, Kind, Result};
use crate::platform::locks::tried;
use crate::platform::process::{PerProcess, epoch};
use once_cell::race::OnceBox;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

const SLOT_BITS: u32 = 24;
const GENERATION_BITS: u32 = 32;
/// The upper byte is this plus the kind: no address that a program holds begins so.
const TAG: usize = 0x50;

const _: () = assert!(usize::BITS == 64, "handles need pointers of 64 bits");

/// What an object in a table tells of its kind.
pub(crate) trait Kinded {
    /// 1 to 15, fixed for the kind.
    const NUMBER: usize;
    /// With its article, for error texts.
    const WORD: &'static str;
    /// What ended a dead one.
    const END: &'static str;
}

/// The objects of a table by kind.
pub(crate) trait Entry: Clone {
    /// The word of the kind with this number.
    fn word(number: usize) -> Option<&'static str>;
}

/// How a table stores and finds objects of type `T`.
pub(crate) trait Holds<T: Kinded>: Entry {
    fn wrap(object: Arc<T>) -> Self;
    fn find(&self) -> Option<&Arc<T>>;
}

struct State<E> {
    generation: u32,
    entry: Option<E>,
    /// True for an object that is gone for its owner but still says where it belonged.
    tombstone: bool,
}

/// Slots come in blocks of 64, 128, 256 and so on, so a slot's place never moves.
const BLOCKS: usize = (SLOT_BITS - 6) as usize;

type Block<E> = Box<[RwLock<State<E>>]>;

pub(crate) struct Table<E> {
    blocks: [OnceBox<Block<E>>; BLOCKS],
    free: PerProcess<Mutex<Vec<u32>>>,
    next: AtomicU32,
}

fn place(slot: u32) -> (usize, usize) {
    let shifted = slot + 64;
    let block = shifted.ilog2() - 6;
    (block as usize, (shifted - (64 << block)) as usize)
}

fn dress(number: usize, generation: u32, slot: u32) -> usize {
    ((TAG + number) << (SLOT_BITS + GENERATION_BITS)) | ((generation as usize) << SLOT_BITS) | slot as usize
}

fn undress(value: usize) -> Option<(usize, u32, u32)> {
    let number = (value >> (SLOT_BITS + GENERATION_BITS)).checked_sub(TAG)?;
    let slot = (value & ((1 << SLOT_BITS) - 1)) as u32;
    (1..16)
        .contains(&number)
        .then_some((number, (value >> SLOT_BITS) as u32, slot))
}

fn reading<E>(cell: &RwLock<State<E>>) -> Option<RwLockReadGuard<'_, State<E>>> {
    match epoch() {
        0 => Some(cell.read().unwrap_or_else(PoisonError::into_inner)),
        _ => tried(|| cell.try_read()),
    }
}

fn writing<E>(cell: &RwLock<State<E>>) -> Option<RwLockWriteGuard<'_, State<E>>> {
    match epoch() {
        0 => Some(cell.write().unwrap_or_else(PoisonError::into_inner)),
        _ => tried(|| cell.try_write()),
    }
}

impl<E: Entry> Table<E> {
    pub(crate) const fn new() -> Table<E> {
        Table {
            blocks: [const { OnceBox::new() }; BLOCKS],
            free: PerProcess::new(Mutex::new(Vec::new()), Mutex::default),
            next: AtomicU32::new(0),
        }
    }

    fn slot(&self, slot: u32) -> Option<&RwLock<State<E>>> {
        let (block, index) = place(slot);
        self.blocks.get(block)?.get()?.get(index)
    }

    fn free_slot(&self) -> Result<u32> {
        if let Some(slot) = self
            .free
            .get()
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
        {
            return Ok(slot);
        }
        let slot = self.next.fetch_add(1, Ordering::Relaxed);
        let (block, _) = place(slot);
        let Some(block_cell) = self.blocks.get(block) else {
            self.next.fetch_sub(1, Ordering::Relaxed);
            return Err(Error::new(
                Kind::OutOfMemory,
                "more than 16 million live handles in this process",
            ));
        };
        block_cell.get_or_init(|| {
            let empty = || State {
                generation: 1,
                entry: None,
                tombstone: false,
            };
            Box::new((0..64usize << block).map(|_| RwLock::new(empty())).collect())
        });
        Ok(slot)
    }

    /// Puts an object into the table and returns its handle.
    /// # Errors
    /// OUT_OF_MEMORY when every slot is taken.
    pub(crate) fn insert<T: Kinded>(&self, object: Arc<T>) -> Result<usize>
    where
        E: Holds<T>,
    {
        let slot = self.free_slot()?;
        let cell = self
            .slot(slot)
            .ok_or_else(|| Error::new(Kind::Unknown, "a handle slot without a place"))?;
        let mut state = cell.write().unwrap_or_else(PoisonError::into_inner);
        state.entry = Some(E::wrap(object));
        state.tombstone = false;
        Ok(dress(T::NUMBER, state.generation, slot))
    }

    fn look<T: Kinded, R>(&self, value: usize, with: impl FnOnce(&Arc<T>, bool) -> R) -> Option<R>
    where
        E: Holds<T>,
    {
        let (number, generation, slot) = undress(value)?;
        if number != T::NUMBER {
            return None;
        }
        let state = reading(self.slot(slot)?)?;
        if state.generation != generation {
            return None;
        }
        let object = state.entry.as_ref()?.find()?;
        Some(with(object, state.tombstone))
    }

    /// The live object behind a handle that the caller passed as `name`.
    /// # Errors
    /// INVALID_INPUT naming what was given.
    pub(crate) fn live<T: Kinded>(&self, name: &str, value: usize) -> Result<Arc<T>>
    where
        E: Holds<T>,
    {
        self.read(name, value, |object: &Arc<T>, dead| {
            (!dead).then(|| object.clone())
        })?
        .ok_or_else(|| self.refusal::<T>(name, value))
    }

    /// As [`Table::live`], but gives tombstones too, with `true`.
    pub(crate) fn live_or_tombstone<T: Kinded>(&self, name: &str, value: usize) -> Result<(Arc<T>, bool)>
    where
        E: Holds<T>,
    {
        self.read(name, value, |object, dead| (object.clone(), dead))
    }

    /// What `with` takes of an object or tombstone (`true`) without keeping it; `with` locks nothing and does not wait.
    /// # Errors
    /// Those of [`Table::live`].
    pub(crate) fn read<T: Kinded, R>(
        &self,
        name: &str,
        value: usize,
        with: impl FnOnce(&Arc<T>, bool) -> R,
    ) -> Result<R>
    where
        E: Holds<T>,
    {
        self.look(value, with)
            .ok_or_else(|| self.refusal::<T>(name, value))
    }

    /// Turns a live object into a tombstone; false if it was not live.
    pub(crate) fn entomb<T: Kinded>(&self, value: usize) -> bool
    where
        E: Holds<T>,
    {
        self.change::<T, _>(value, |state| !std::mem::replace(&mut state.tombstone, true))
            .unwrap_or(false)
    }

    /// Takes an object or tombstone out; its handle is dead for good.
    pub(crate) fn remove<T: Kinded>(&self, value: usize) -> Option<Arc<T>>
    where
        E: Holds<T>,
    {
        let (entry, reusable, slot) = self.change::<T, _>(value, |state| {
            // A slot whose generations are used up is left out, so that no handle ever comes twice.
            let next = state.generation.checked_add(1);
            state.generation = next.unwrap_or(0);
            state.tombstone = false;
            (state.entry.take(), next.is_some(), undress(value))
        })?;
        if let (true, Some((.., slot))) = (reusable, slot) {
            self.free
                .get()
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(slot);
        }
        entry.as_ref().and_then(|entry| entry.find()).cloned()
    }

    fn change<T: Kinded, R>(&self, value: usize, with: impl FnOnce(&mut State<E>) -> R) -> Option<R>
    where
        E: Holds<T>,
    {
        let (number, generation, slot) = undress(value)?;
        let mut state = writing(self.slot(slot)?)?;
        let there = number == T::NUMBER && state.generation == generation;
        (there && state.entry.as_ref().is_some_and(|entry| entry.find().is_some())).then(|| with(&mut state))
    }

    /// All live objects of a kind with their handles.
    pub(crate) fn all<T: Kinded>(&self) -> Vec<(usize, Arc<T>)>
    where
        E: Holds<T>,
    {
        let mut found = Vec::new();
        for slot in 0..self.next.load(Ordering::Relaxed) {
            let Some(state) = self.slot(slot).and_then(reading) else {
                continue;
            };
            if let (Some(object), false) = (state.entry.as_ref().and_then(|e| e.find()), state.tombstone) {
                found.push((dress(T::NUMBER, state.generation, slot), object.clone()));
            }
        }
        found
    }

    /// Why a value is no live handle of the kind.
    fn refusal<T: Kinded>(&self, name: &str, value: usize) -> Error {
        let wanted = T::WORD;
        let what = match undress(value) {
            _ if value == 0 => format!("{name} is NULL, it must be {wanted}"),
            Some((number, ..)) if number == T::NUMBER => {
                format!(
                    "{name} is {value:#x}, {wanted} that does not exist any more ({})",
                    T::END
                )
            }
            Some((number, ..)) => match E::word(number) {
                Some(word) => format!("{name} is {value:#x}, which is {word}, not {wanted}"),
                None => format!("{name} is {value:#x}, which is no handle of this library"),
            },
            None => format!("{name} is {value:#x}, which is no handle of this library"),
        };
        Error::new(Kind::InvalidInput, what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Apple(u32);
    struct Pear;

    impl Kinded for Apple {
        const NUMBER: usize = 1;
        const WORD: &'static str = "an apple";
        const END: &'static str = "eaten";
    }

    impl Kinded for Pear {
        const NUMBER: usize = 2;
        const WORD: &'static str = "a pear";
        const END: &'static str = "eaten";
    }

    #[derive(Clone)]
    enum Fruit {
        Apple(Arc<Apple>),
        Pear(Arc<Pear>),
    }

    impl Entry for Fruit {
        fn word(number: usize) -> Option<&'static str> {
            [Apple::WORD, Pear::WORD].get(number - 1).copied()
        }
    }

    impl Holds<Apple> for Fruit {
        fn wrap(object: Arc<Apple>) -> Fruit {
            Fruit::Apple(object)
        }

        fn find(&self) -> Option<&Arc<Apple>> {
            match self {
                Fruit::Apple(apple) => Some(apple),
                Fruit::Pear(_) => None,
            }
        }
    }

    impl Holds<Pear> for Fruit {
        fn wrap(object: Arc<Pear>) -> Fruit {
            Fruit::Pear(object)
        }

        fn find(&self) -> Option<&Arc<Pear>> {
            match self {
                Fruit::Pear(pear) => Some(pear),
                Fruit::Apple(_) => None,
            }
        }
    }

    fn words<T>(result: Result<T>) -> String {
        let error = result.err().expect("a refusal");
        assert_eq!(error.kind, Kind::InvalidInput);
        error.what
    }

    #[test]
    fn every_wrong_value_is_named() {
        let table = Table::<Fruit>::new();
        let apple = table.insert(Arc::new(Apple(5))).unwrap();
        assert_eq!(table.live::<Apple>("a", apple).unwrap().0, 5);
        assert!(words(table.live::<Pear>("p", apple)).ends_with("which is an apple, not a pear"));
        assert!(words(table.live::<Apple>("a", 0)).starts_with("a is NULL"));
        let here = 7u32;
        let stack = std::ptr::from_ref(&here) as usize;
        assert!(words(table.live::<Apple>("a", stack)).ends_with("no handle of this library"));
        assert!(words(table.live::<Apple>("a", usize::MAX)).ends_with("no handle of this library"));
        assert!(words(table.live::<Apple>("a", apple + 900_000)).contains("does not exist"));
        assert!(table.remove::<Pear>(apple).is_none());
        assert!(table.remove::<Apple>(apple).is_some());
        assert!(table.remove::<Apple>(apple).is_none());
        assert!(words(table.live::<Apple>("a", apple)).contains("eaten"));
        let other = table.insert(Arc::new(Pear)).unwrap();
        assert_eq!(other as u32 & 0xff_ffff, apple as u32 & 0xff_ffff);
        assert!(words(table.live::<Apple>("a", apple)).contains("eaten"));
    }

    #[test]
    fn tombstones_are_dead_and_still_speak() {
        let table = Table::<Fruit>::new();
        let apple = table.insert(Arc::new(Apple(9))).unwrap();
        assert!(!table.live_or_tombstone::<Apple>("a", apple).unwrap().1);
        assert!(table.entomb::<Apple>(apple));
        assert!(!table.entomb::<Apple>(apple));
        assert!(words(table.live::<Apple>("a", apple)).contains("eaten"));
        let (object, dead) = table.live_or_tombstone::<Apple>("a", apple).unwrap();
        assert!(dead && object.0 == 9);
        assert!(table.all::<Apple>().is_empty());
        assert!(table.remove::<Apple>(apple).is_some());
        assert!(table.live_or_tombstone::<Apple>("a", apple).is_err());
    }

    #[test]
    fn many_threads_make_and_drop() {
        let table = Table::<Fruit>::new();
        std::thread::scope(|scope| {
            for t in 0..4 {
                let table = &table;
                scope.spawn(move || {
                    let made: Vec<usize> = (0..500)
                        .map(|i| table.insert(Arc::new(Apple(t * 1000 + i))).unwrap())
                        .collect();
                    for (i, value) in made.iter().enumerate() {
                        assert_eq!(table.live::<Apple>("a", *value).unwrap().0, t * 1000 + i as u32);
                        assert!(table.remove::<Apple>(*value).is_some());
                    }
                });
            }
        });
        assert!(table.all::<Apple>().is_empty());
        assert!(table.next.load(Ordering::Relaxed) <= 2000);
    }

    #[test]
    fn places_are_dense() {
        let mut expected = (0..6).flat_map(|block| (0..64usize << block).map(move |index| (block, index)));
        for slot in 0..4000 {
            assert_eq!(Some(place(slot)), expected.next());
        }
    }
}
