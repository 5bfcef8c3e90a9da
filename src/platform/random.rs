//! The random generator of the samplers, and the formulas both platforms draw by (kernels/common/{pcg,sample}.h has them for
//! GPUs; a test compares the two).

const MULTIPLIER: u64 = 6364136223846793005;

/// A permuted congruential generator: one stream of numbers per (seed, subsequence).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pcg {
    state: u64,
    increment: u64,
}

/// `subsequence` draws at once, for every seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    subsequence: u64,
    /// The multiplier to the power of `subsequence`.
    factor: u64,
    /// The sum of its lower powers.
    sum: u64,
}

impl Jump {
    /// One draw.
    pub const ONE: Jump = Jump {
        subsequence: 1,
        factor: MULTIPLIER,
        sum: 1,
    };

    /// In at most 64 steps.
    pub fn of(subsequence: u64) -> Jump {
        let mut all = Jump {
            subsequence: 0,
            factor: 1,
            sum: 0,
        };
        let (mut power, mut left) = (Jump::ONE, subsequence);
        while left > 0 {
            if left & 1 == 1 {
                all = all.then(power);
            }
            power = power.then(power);
            left >>= 1;
        }
        all
    }

    /// This jump and another behind it.
    pub fn then(self, other: Jump) -> Jump {
        Jump {
            subsequence: self.subsequence.wrapping_add(other.subsequence),
            factor: self.factor.wrapping_mul(other.factor),
            sum: self.sum.wrapping_mul(other.factor).wrapping_add(other.sum),
        }
    }
}

impl Pcg {
    /// The stream `subsequence` of `seed`, skipped ahead by `subsequence` draws.
    pub fn new(seed: u64, subsequence: u64) -> Pcg {
        Pcg::at(seed, Jump::of(subsequence))
    }

    /// The same, the jump known.
    pub fn at(seed: u64, jump: Jump) -> Pcg {
        let increment = jump.subsequence.wrapping_mul(2).wrapping_add(1);
        let begin = increment
            .wrapping_add(seed)
            .wrapping_mul(MULTIPLIER)
            .wrapping_add(increment);
        Pcg {
            state: begin
                .wrapping_mul(jump.factor)
                .wrapping_add(increment.wrapping_mul(jump.sum)),
            increment,
        }
    }

    /// Advances by `draws` draws of 32 bits, in at most 64 steps.
    pub fn skip(&mut self, draws: u64) {
        let jump = Jump::of(draws);
        self.state = self
            .state
            .wrapping_mul(jump.factor)
            .wrapping_add(self.increment.wrapping_mul(jump.sum));
    }

    pub fn u32(&mut self) -> u32 {
        let old = self.state;
        self.state = old.wrapping_mul(MULTIPLIER).wrapping_add(self.increment);
        let mixed = (((old >> 18) ^ old) >> 27) as u32;
        mixed.rotate_right((old >> 59) as u32)
    }

    pub fn u64(&mut self) -> u64 {
        let low = u64::from(self.u32());
        low | u64::from(self.u32()) << 32
    }

    /// A non-negative INT.
    pub fn i31(&mut self) -> i32 {
        (self.u32() & 0x7fff_ffff) as i32
    }

    /// A non-negative INT64.
    pub fn i63(&mut self) -> i64 {
        (self.u64() & i64::MAX as u64) as i64
    }

    /// A multiple of 2^-24 in [0, 1).
    pub fn f32(&mut self) -> f32 {
        (self.u32() >> 8) as f32 / (1 << 24) as f32
    }

    /// In [-1, 0), every binary order of magnitude half as likely as the one above it.
    pub fn minus_uniform(&mut self) -> f32 {
        let u = -((0.5 + 0.5 * f64::from(self.f32())) as f32);
        let mut halvings = 0;
        let mut bits = self.u64();
        while bits == 0 {
            halvings += 64;
            bits = self.u64();
        }
        halvings += bits.leading_zeros() as i32;
        (f64::from(u) * 0.5f64.powi(halvings)) as f32
    }

    /// log2 of a number in (0, 1]: negative, possibly -inf. Single precision as the host's `log1pf` gives it.
    pub fn negative_exponential(&mut self) -> f32 {
        (f64::from(self.minus_uniform().ln_1p()) / std::f64::consts::LN_2) as f32
    }
}

/// How a neighbour of weight `weight` fares with its number of [`Pcg::minus_uniform`]: lower is taken first, of equals the
/// one that comes first among the neighbours. Keys, log2(1 - u) / weight, are at most 0, so the rank is the key's
/// magnitude; a key that is no number counts as the worst. Weights that are not above 0 come after all others.
pub fn weighted_rank(weight: f64, minus_u: f32) -> u32 {
    if weight.is_nan() || weight <= 0.0 {
        return u32::MAX;
    }
    let key = minus_u.ln_1p() / std::f32::consts::LN_2 * (1.0 / weight as f32);
    let magnitude = if key.is_nan() { f32::INFINITY } else { key.abs() };
    magnitude.to_bits()
}

/// Unweighted: up to so many items are drawn one by one; item x belongs to thread x mod T and is its draw x div T. Beyond,
/// neighbours take the places of others; neighbour y belongs to thread (y - most) mod T.
pub const MOST_ITEMS: u32 = 1024;

/// T of an unweighted sampling of `most`, at least 1. The stream of center i and thread t is subsequence i * T + t.
pub fn unweighted_threads(most: u32) -> u32 {
    match (most - 1) / 32 {
        _ if most > MOST_ITEMS => 32,
        0..=2 => 32,
        3..=5 => 64,
        6..=11 => 128,
        _ => 256,
    }
}

/// T of a weighted sampling; neighbour y belongs to thread y mod T and is its element y div T.
pub fn weighted_threads(most: u32) -> u32 {
    if most <= 256 { 128 } else { 256 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn hex(text: &Value) -> u64 {
        u64::from_str_radix(text.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
    }

    #[test]
    fn raw_streams_match_the_reference() {
        let vectors: Value = serde_json::from_str(include_str!("../../tests/data/vectors_rng.json")).unwrap();
        for case in vectors["model_pcg_raw_u32"].as_array().unwrap() {
            let seed = case["seed"]
                .as_i64()
                .map_or_else(|| case["seed"].as_u64().unwrap(), |s| s as u64);
            let mut pcg = Pcg::new(seed, case["subsequence"].as_u64().unwrap());
            assert_eq!(pcg.state, hex(&case["state_after_init_hex"]));
            assert_eq!(pcg.increment, hex(&case["inc_hex"]));
            for want in case["u32"].as_array().unwrap() {
                assert_eq!(u64::from(pcg.u32()), want.as_u64().unwrap());
            }
        }
    }

    #[test]
    fn skipping_equals_drawing() {
        for draws in [0u64, 1, 2, 3, 63, 64, 1000] {
            let (mut skipped, mut drawn) = (Pcg::new(9, 5), Pcg::new(9, 5));
            skipped.skip(draws);
            (0..draws).for_each(|_| {
                drawn.u32();
            });
            assert_eq!(skipped, drawn);
        }
    }

    #[test]
    fn jumps_add_up() {
        for (a, b) in [(0u64, 0u64), (1, 0), (0, 1), (5, 1), (1 << 40, 77), (u64::MAX, 3)] {
            assert_eq!(Jump::of(a).then(Jump::of(b)), Jump::of(a.wrapping_add(b)));
        }
        assert_eq!(Jump::of(1), Jump::ONE);
    }

    #[test]
    fn ranks_of_weights() {
        let at = |weight: f64| weighted_rank(weight, -0.5);
        let descending = [f64::MAX, 1e30, 2.0, 1.0, 0.5, 1e-30, 1e-300];
        assert!(descending.map(at).is_sorted(), "{:?}", descending.map(at));
        assert_eq!(at(1.0), 1f32.to_bits());
        for late in [0.0, -0.0, -1.0, f64::NEG_INFINITY, f64::NAN] {
            assert_eq!(at(late), u32::MAX);
        }
        // The key of a certain u is -inf, its product with an infinite weight no number: still before weights of 0.
        assert_eq!(weighted_rank(1.0, -1.0), f32::INFINITY.to_bits());
        assert_eq!(weighted_rank(f64::INFINITY, -1.0), f32::INFINITY.to_bits());
    }
}
