//! Lists without doubles: a hash table of positions, filled by all threads at once. The first position of an id wins its
//! slot whatever the order of the threads, so the result is that of one thread.

use super::{get, part, put};
use crate::error::{Result, ensure};
use crate::kinds::DType;
use crate::platform::cpu::address::Ids;
use crate::platform::cpu::pool;
use crate::platform::{Indices, Workspace};
use crate::span::Address;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where things are in the workspace: 32-bit values all.
#[derive(Clone, Copy)]
struct Areas {
    /// One more than the first position of the id that has the slot, targets before neighbours; 0 is free.
    slots: usize,
    /// For every neighbour its slot.
    slot_of: usize,
    /// For every neighbour that is the first of its id, its place among them.
    places: usize,
    /// For every part, how many of its neighbours are the first of their ids.
    firsts: usize,
    end: usize,
}

/// Parts of the work; fixed, since two calls must divide alike.
const PARTS: usize = 64;

impl Areas {
    fn new(targets: usize, neighbours: usize) -> Areas {
        let slots = (2 * (targets + neighbours)).next_power_of_two().max(2);
        Areas {
            slots: 0,
            slot_of: slots,
            places: slots + neighbours,
            firsts: slots + 2 * neighbours,
            end: slots + 2 * neighbours + PARTS,
        }
    }
}

/// # Errors
/// OUT_OF_MEMORY beyond the address space, of which fewer than 2^31 ids stay far.
pub fn workspace_bytes(targets: usize, neighbours: usize) -> Result<usize> {
    Ok((Areas::new(targets, neighbours).end + 1) * size_of::<u32>())
}

/// Spreads ids over all bits, so that no pattern of ids is one of slots.
fn mix(id: u64) -> u64 {
    let once = (id ^ (id >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let twice = (once ^ (once >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    twice ^ (twice >> 31)
}

/// The two lists and the table between them.
pub struct Lists {
    targets: Ids,
    target_count: usize,
    neighbours: Ids,
    neighbour_count: usize,
    wide: bool,
    base: Address,
    areas: Areas,
}

// SAFETY: ids are only read; of the table, slots are atomic and every other value is written by one part.
unsafe impl Sync for Lists {}

impl Lists {
    /// # Errors
    /// LOGIC_ERROR for a workspace that is smaller than was asked for.
    pub fn new(targets: &Indices, neighbours: &Indices, workspace: Workspace) -> Result<Lists> {
        let needed = workspace_bytes(targets.count, neighbours.count)?;
        ensure!(
            workspace.bytes >= needed && !workspace.address.is_null(),
            Logic,
            "appending unique ids needs {needed} bytes to work in and was given {}",
            workspace.bytes
        );
        Ok(Lists {
            targets: Ids::new(targets),
            target_count: targets.count,
            neighbours: Ids::new(neighbours),
            neighbour_count: neighbours.count,
            wide: targets.dtype == DType::Int64,
            base: Address(workspace.address.0.next_multiple_of(size_of::<u32>())),
            areas: Areas::new(targets.count, neighbours.count),
        })
    }

    fn bytes(&self) -> usize {
        (self.target_count + self.neighbour_count).saturating_mul(64)
    }

    fn slot(&self, slot: usize) -> &AtomicU32 {
        let at = self
            .base
            .offset_bytes((self.areas.slots + slot) * size_of::<u32>());
        // SAFETY: aligned, inside the workspace, and not used but as an atomic while the call runs.
        unsafe { AtomicU32::from_ptr(at.0 as *mut u32) }
    }

    fn read(&self, area: usize, i: usize) -> u32 {
        // SAFETY: the callers stay inside the areas.
        unsafe { get(self.base, area + i) }
    }

    fn write_to(&self, area: usize, i: usize, value: u32) {
        // SAFETY: the callers stay inside the areas.
        unsafe { put(self.base, area + i, value) }
    }

    /// The id at a position, targets before neighbours.
    fn id(&self, position: usize) -> u64 {
        // SAFETY: the position is below both counts together.
        unsafe {
            match position.checked_sub(self.target_count) {
                None => self.targets.get(position),
                Some(i) => self.neighbours.get(i),
            }
        }
    }

    /// Enters a position; the slot that its id has.
    fn enter(&self, position: usize) -> usize {
        let mask = self.areas.slot_of - self.areas.slots - 1;
        let id = self.id(position);
        let mut at = mix(id) as usize & mask;
        let mark = position as u32 + 1;
        loop {
            let slot = self.slot(at);
            // A slot that is taken, as most are, costs a read and no locked write.
            let held = match slot.load(Ordering::Relaxed) {
                0 => match slot.compare_exchange(0, mark, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => return at,
                    Err(held) => held,
                },
                held => held,
            };
            if self.id(held as usize - 1) == id {
                if mark < held {
                    slot.fetch_min(mark, Ordering::Relaxed);
                }
                return at;
            }
            at = (at + 1) & mask;
        }
    }

    /// True if neighbour `i` is the first position of its id.
    fn is_first(&self, i: usize) -> bool {
        let slot = self.read(self.areas.slot_of, i) as usize;
        self.slot(slot).load(Ordering::Relaxed) as usize == self.target_count + i + 1
    }

    fn parts(&self, act: &(dyn Fn(usize) + Sync)) {
        pool::run(PARTS, self.bytes(), act);
    }

    /// Fills the table; how many neighbours are the first of their ids.
    pub fn count(&self) -> u64 {
        let slots = self.areas.slot_of - self.areas.slots;
        self.parts(&|k| part(k, PARTS, slots).for_each(|s| self.slot(s).store(0, Ordering::Relaxed)));
        let positions = self.target_count + self.neighbour_count;
        self.parts(&|k| {
            for position in part(k, PARTS, positions) {
                let slot = self.enter(position);
                if let Some(i) = position.checked_sub(self.target_count) {
                    self.write_to(self.areas.slot_of, i, slot as u32);
                }
            }
        });
        self.parts(&|k| {
            let firsts = part(k, PARTS, self.neighbour_count)
                .filter(|i| self.is_first(*i))
                .count();
            self.write_to(self.areas.firsts, k, firsts as u32);
        });
        (0..PARTS)
            .map(|k| u64::from(self.read(self.areas.firsts, k)))
            .sum()
    }

    /// After [`count`](Lists::count): the targets, then the first neighbours in their order, and where each neighbour is.
    pub fn write(&self, unique: Address, map: Address) {
        let put_id = |at: usize, id: u64| {
            // SAFETY: there is room for all targets and all first neighbours.
            unsafe {
                if self.wide {
                    put(unique, at, id);
                } else {
                    put(unique, at, id as u32);
                }
            }
        };
        self.parts(&|k| part(k, PARTS, self.target_count).for_each(|i| put_id(i, self.id(i))));
        self.parts(&|k| {
            let before: u32 = (0..k).map(|j| self.read(self.areas.firsts, j)).sum();
            let firsts = part(k, PARTS, self.neighbour_count).filter(|i| self.is_first(*i));
            for (place, i) in (self.target_count + before as usize..).zip(firsts) {
                put_id(place, self.id(self.target_count + i));
                self.write_to(self.areas.places, i, place as u32);
            }
        });
        if map.is_null() {
            return;
        }
        self.parts(&|k| {
            for i in part(k, PARTS, self.neighbour_count) {
                let slot = self.read(self.areas.slot_of, i) as usize;
                let first = self.slot(slot).load(Ordering::Relaxed) as usize - 1;
                let place = match first.checked_sub(self.target_count) {
                    None => first as u32,
                    Some(j) => self.read(self.areas.places, j),
                };
                // SAFETY: there is room for a place of every neighbour.
                unsafe { put(map, i, place as i32) };
            }
        });
    }
}
