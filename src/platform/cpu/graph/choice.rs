//! Which of a center's neighbours are taken when it has more than are wanted. By the seed, the center's place in the list,
//! its degree and the weights alone, so the same on every platform and for every division of the work.

use super::reserve;
use crate::error::Result;
use crate::platform::random::{Jump, MOST_ITEMS, Pcg, unweighted_threads, weighted_rank, weighted_threads};

/// Chooses for one center after the other; keeps its working memory.
pub struct Chooser {
    seed: u64,
    most: u32,
    threads: u32,
    /// The streams' jump over all centers before the one at `position`.
    base: Jump,
    position: u64,
    /// One center's worth of streams.
    step: Jump,
    streams: Vec<Pcg>,
    holes: Holes,
    candidates: Vec<(u32, u64)>,
    chosen: Vec<u64>,
}

impl Chooser {
    /// For choices of `most` (at least 1) neighbours.
    pub fn new(seed: u64, most: u32, weighted: bool) -> Chooser {
        let threads = if weighted {
            weighted_threads(most)
        } else {
            unweighted_threads(most)
        };
        Chooser {
            seed,
            most,
            threads,
            base: Jump::of(0),
            position: 0,
            step: Jump::of(u64::from(threads)),
            streams: Vec::new(),
            holes: Holes::default(),
            candidates: Vec::new(),
            chosen: Vec::new(),
        }
    }

    /// How many are chosen.
    pub fn most(&self) -> u32 {
        self.most
    }

    /// The first `count` streams of the center at `position`.
    fn begin(&mut self, position: u64, count: u32) -> Result<()> {
        if position == self.position + 1 {
            self.base = self.base.then(self.step);
        } else if position != self.position {
            self.base = Jump::of(position.wrapping_mul(u64::from(self.threads)));
        }
        self.position = position;
        self.streams.clear();
        reserve(&mut self.streams, count as usize)?;
        let mut jump = self.base;
        for _ in 0..count {
            self.streams.push(Pcg::at(self.seed, jump));
            jump = jump.then(Jump::ONE);
        }
        Ok(())
    }

    /// The neighbours (numbers below `degree`) that the center at `position` takes, in their order. `degree` is above `most`.
    /// # Errors
    /// OUT_OF_MEMORY.
    pub fn uniform(&mut self, position: u64, degree: u64) -> Result<&[u64]> {
        let most = self.most as usize;
        self.begin(position, self.threads.min(self.most))?;
        self.chosen.clear();
        reserve(&mut self.chosen, most)?;
        if self.most <= MOST_ITEMS {
            self.shuffle(degree)?;
        } else {
            self.reservoir(degree);
        }
        Ok(&self.chosen)
    }

    /// Draw x takes a neighbour out of those left, and the last one left moves into the hole.
    fn shuffle(&mut self, degree: u64) -> Result<()> {
        self.holes.clear(self.most as usize)?;
        for x in 0..u64::from(self.most) {
            let left = degree - x;
            let stream = (x % u64::from(self.threads)) as usize;
            let at = self.streams[stream].i31() as u64 % left;
            self.chosen.push(self.holes.get(at));
            let last = self.holes.get(left - 1);
            self.holes.set(at, last);
        }
        Ok(())
    }

    /// Neighbour y beyond the first `most` takes a place with a chance of most / (y + 1); of those that want a place, the
    /// last gets it.
    fn reservoir(&mut self, degree: u64) {
        let most = u64::from(self.most);
        self.chosen.extend(0..most);
        for (t, stream) in self.streams.iter_mut().enumerate() {
            for y in (most + t as u64..degree).step_by(self.threads as usize) {
                let place = stream.i31() as u64 % (y + 1);
                if place < most {
                    let held = &mut self.chosen[place as usize];
                    *held = y.max(*held);
                }
            }
        }
    }

    /// As [`uniform`](Chooser::uniform), a neighbour's chance by its weight: those of the best ranks, best first.
    /// # Errors
    /// OUT_OF_MEMORY.
    pub fn weighted(&mut self, position: u64, degree: u64, weight: impl Fn(u64) -> f64) -> Result<&[u64]> {
        let most = self.most as usize;
        let streams = u64::from(self.threads).min(degree) as u32;
        self.begin(position, streams)?;
        self.candidates.clear();
        let room = (2 * most).min(usize::try_from(degree).unwrap_or(usize::MAX));
        reserve(&mut self.candidates, room)?;
        // Once there are `most` candidates, none that is worse than all of them comes in.
        let mut worst = (u32::MAX, u64::MAX);
        for y in 0..degree {
            let stream = &mut self.streams[(y % u64::from(self.threads)) as usize];
            let candidate = (weighted_rank(weight(y), stream.minus_uniform()), y);
            if candidate > worst {
                continue;
            }
            self.candidates.push(candidate);
            if self.candidates.len() == 2 * most {
                self.candidates.select_nth_unstable(most - 1);
                self.candidates.truncate(most);
                worst = self.candidates[most - 1];
            }
        }
        self.candidates.sort_unstable();
        self.candidates.truncate(most);
        self.chosen.clear();
        reserve(&mut self.chosen, most)?;
        self.chosen.extend(self.candidates.iter().map(|(_, y)| *y));
        Ok(&self.chosen)
    }
}

/// A sequence that is 0, 1, 2 and so on but at a few places.
#[derive(Default)]
struct Holes {
    /// Place and value; a power of two, at most half of them used.
    slots: Vec<(u64, u64)>,
}

const FREE: u64 = u64::MAX;

impl Holes {
    /// Forgets everything, and makes room for `places` values.
    fn clear(&mut self, places: usize) -> Result<()> {
        let size = (2 * places).next_power_of_two();
        self.slots.clear();
        reserve(&mut self.slots, size)?;
        self.slots.resize(size, (FREE, 0));
        Ok(())
    }

    /// The slot of a place: its own, or the free one it would take.
    fn find(&self, place: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
        while self.slots[slot].0 != place && self.slots[slot].0 != FREE {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn get(&self, place: u64) -> u64 {
        match self.slots[self.find(place)] {
            (FREE, _) => place,
            (_, value) => value,
        }
    }

    fn set(&mut self, place: u64, value: u64) {
        let slot = self.find(place);
        self.slots[slot] = (place, value);
    }
}
