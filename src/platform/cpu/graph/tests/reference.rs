//! One thread, slow and literal: the generator step by step, the choices as the definitions put them.

use super::{By, Graph, Sampled};
use crate::platform::graph::Take;

/// The generator as it is defined: no jumps.
pub struct Numbers {
    state: u64,
    increment: u64,
}

impl Numbers {
    pub fn new(seed: u64, subsequence: u64) -> Numbers {
        let mut numbers = Numbers {
            state: 0,
            increment: 2 * subsequence + 1,
        };
        numbers.draw();
        numbers.state = numbers.state.wrapping_add(seed);
        numbers.draw();
        for _ in 0..subsequence {
            numbers.draw();
        }
        numbers
    }

    fn draw(&mut self) -> u32 {
        let old = self.state;
        self.state = old.wrapping_mul(6364136223846793005).wrapping_add(self.increment);
        ((((old >> 18) ^ old) >> 27) as u32).rotate_right((old >> 59) as u32)
    }

    fn i31(&mut self) -> u64 {
        u64::from(self.draw() & 0x7fff_ffff)
    }

    fn key(&mut self, weight: f64) -> f32 {
        let a = (self.draw() >> 8) as f32 * 2f32.powi(-24);
        let mut u = -(0.5 + 0.5 * a);
        let mut r = u64::from(self.draw()) + (u64::from(self.draw()) << 32);
        while r < 1 << 63 {
            u /= 2.0;
            r <<= 1;
        }
        (u.ln_1p() / 2f32.ln()) * (1.0 / weight as f32)
    }
}

/// Threads and draws a thread, for every block of 32 that `most` begins.
const LAYOUTS: [(u64, u64); 32] = [
    (32, 1),
    (32, 2),
    (32, 3),
    (64, 2),
    (64, 3),
    (64, 3),
    (128, 2),
    (128, 2),
    (128, 3),
    (128, 3),
    (128, 3),
    (128, 3),
    (256, 2),
    (256, 2),
    (256, 2),
    (256, 2),
    (256, 3),
    (256, 3),
    (256, 3),
    (256, 3),
    (256, 3),
    (256, 3),
    (256, 3),
    (256, 3),
    (256, 4),
    (256, 4),
    (256, 4),
    (256, 4),
    (256, 4),
    (256, 4),
    (256, 4),
    (256, 4),
];

/// The neighbours of a center that has more than `most`.
pub fn uniform(seed: u64, position: u64, most: u64, degree: u64) -> Vec<u64> {
    if most > 1024 {
        let mut slots: Vec<u64> = (0..most).collect();
        for t in 0..32 {
            let mut numbers = Numbers::new(seed, position * 32 + t);
            let mut y = most + t;
            while y < degree {
                let v = numbers.i31() % (y + 1);
                if v < most {
                    slots[v as usize] = slots[v as usize].max(y);
                }
                y += 32;
            }
        }
        return slots;
    }
    let (threads, items) = LAYOUTS[(most as usize - 1) / 32];
    let mut drawn = vec![0; (threads * items) as usize];
    for t in 0..threads {
        let mut numbers = Numbers::new(seed, position * threads + t);
        for j in 0..items {
            drawn[(j * threads + t) as usize] = numbers.i31();
        }
    }
    let mut queue: Vec<u64> = (0..degree).collect();
    (0..most)
        .map(|x| {
            let at = (drawn[x as usize] % (degree - x)) as usize;
            let taken = queue[at];
            queue[at] = queue[(degree - x - 1) as usize];
            taken
        })
        .collect()
}

/// As [`uniform`], by weights: positive ones by their keys, the others behind.
pub fn weighted(seed: u64, position: u64, most: u64, weights: &[f64]) -> Vec<u64> {
    let threads = if most <= 256 { 128 } else { 256 };
    let mut keyed = Vec::new();
    for t in 0..threads.min(weights.len() as u64) {
        let mut numbers = Numbers::new(seed, position * threads + t);
        for y in (t..weights.len() as u64).step_by(threads as usize) {
            let weight = weights[y as usize];
            let key = numbers.key(weight);
            let key = if key.is_nan() { f32::NEG_INFINITY } else { key };
            keyed.push((weight > 0.0, if weight > 0.0 { key } else { 0.0 }, y));
        }
    }
    keyed.sort_by(|a, b| {
        b.0.cmp(&a.0)
            .then(b.1.partial_cmp(&a.1).unwrap())
            .then(a.2.cmp(&b.2))
    });
    keyed.iter().take(most as usize).map(|(_, _, y)| *y).collect()
}

pub fn sample(graph: &Graph, centers: &[i64], take: Take, seed: u64, by: By) -> Sampled {
    let columns = graph.columns.values();
    let mut sampled = Sampled {
        offsets: vec![0],
        dest: vec![],
        center_localid: vec![],
        edge_gid: vec![],
    };
    for (i, center) in centers.iter().enumerate() {
        let start = graph.row_pointers[*center as usize];
        let degree = graph.degree(*center);
        let chosen = match take {
            Take::AtMost(most) if degree > u64::from(most) => {
                let (position, most) = (i as u64, u64::from(most));
                let weights = &graph.doubles[start as usize..][..degree as usize];
                match by {
                    By::Chance => uniform(seed, position, most, degree),
                    By::Floats => {
                        let rounded: Vec<f64> = weights.iter().map(|w| f64::from(*w as f32)).collect();
                        weighted(seed, position, most, &rounded)
                    }
                    By::Doubles | By::Fetched => weighted(seed, position, most, weights),
                }
            }
            Take::AllAbove(bound) if degree <= u64::from(bound) => vec![],
            _ => (0..degree).collect(),
        };
        for y in chosen {
            let edge = start + y as i64;
            sampled.dest.push(columns[edge as usize]);
            sampled.center_localid.push(i as i32);
            sampled.edge_gid.push(edge);
        }
        sampled.offsets.push(sampled.dest.len() as i32);
    }
    sampled
}
