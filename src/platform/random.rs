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
    pub fn negative_uniform(&mut self) -> f32 {
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
        (f64::from(self.negative_uniform().ln_1p()) / std::f64::consts::LN_2) as f32
    }

    /// The key of a neighbour of this weight (a DOUBLE rounded to float) in weighted sampling; larger keys come first.
    pub fn weight_key(&mut self, weight: f32) -> f32 {
        (self.negative_uniform().ln_1p() / std::f32::consts::LN_2) * (1.0 / weight)
    }
}

/// Keys as integers that compare like them; 0 for neighbours that come behind all others because their weight is not above
/// 0. A key that is not a number counts as the lowest. Of equal ones the lower neighbour comes first.
pub fn key_order(key: f32, positive: bool) -> u32 {
    if !positive {
        return 0;
    }
    let bits = if key.is_nan() { f32::NEG_INFINITY } else { key }.to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

/// Which numbers a center draws: thread t of `threads` draws `items` of them from the subsequence position * threads + t; draw
/// j of thread t is number j * threads + t.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawLayout {
    pub threads: u32,
    pub items: u32,
}

/// The most that the first rule of unweighted sampling takes; above it the reservoir.
pub const MOST_SHUFFLED: u32 = 1024;

/// Unweighted above [`MOST_SHUFFLED`]: thread t draws for neighbours most + t, most + t + threads and so on.
pub const RESERVOIR_THREADS: u32 = 32;

impl DrawLayout {
    /// Unweighted, `most` in [1, [`MOST_SHUFFLED`]].
    pub fn shuffle(most: u32) -> DrawLayout {
        let (threads, items) = match (most - 1) / 32 {
            0 => (32, 1),
            1 => (32, 2),
            2 => (32, 3),
            3 => (64, 2),
            4..=5 => (64, 3),
            6..=7 => (128, 2),
            8..=11 => (128, 3),
            12..=15 => (256, 2),
            16..=23 => (256, 3),
            _ => (256, 4),
        };
        DrawLayout { threads, items }
    }
}

/// Weighted: thread t draws keys for neighbours t, t + threads and so on.
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
        let vectors: Value =
            serde_json::from_str(include_str!("../../tests/data/vectors_rng.json")).unwrap();
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
    fn keys_are_ordered() {
        let ascending = [
            f32::NEG_INFINITY,
            -f32::MAX,
            -1.0,
            -f32::MIN_POSITIVE,
            -1e-45,
            -0.0,
            0.0,
            1.0,
            f32::INFINITY,
        ];
        let orders = ascending.map(|key| key_order(key, true));
        assert!(orders.is_sorted_by(|a, b| a < b), "{orders:?}");
        assert!(orders[0] > key_order(5.0, false));
        assert_eq!(key_order(f32::NAN, true), orders[0]);
        assert_eq!(key_order(-f32::NAN, true), orders[0]);
    }

    #[test]
    fn layouts_have_a_number_for_everything_taken() {
        for most in 1..=MOST_SHUFFLED {
            let DrawLayout { threads, items } = DrawLayout::shuffle(most);
            assert!(threads * items >= most && threads.is_multiple_of(32), "{most}");
        }
    }
}
