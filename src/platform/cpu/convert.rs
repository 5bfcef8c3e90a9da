//! One row from one element type to another: floating kinds through f32 (so DOUBLE to HALF and BF16 round
//! twice), nearest even; integers as C casts. Addresses need no alignment. A NaN stays a NaN: quiet, upper payload kept.

use crate::kinds::DType;
use half::{bf16, f16};

/// Converts `count` elements from `src` to `dst`; both are valid for their element size times `count`, and do not overlap.
pub type RowConverter = unsafe fn(dst: *mut u8, src: *const u8, count: usize);

/// The converter for two different types of one kind; `None` across kinds and for equal types (those move as bytes).
pub fn row_converter(from: DType, to: DType) -> Option<RowConverter> {
    if from == to || from.is_float() != to.is_float() {
        return None;
    }
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("f16c") {
        return x86::pick(from, to);
    }
    portable::pick(from, to)
}

/// Elements converted at a time: enough for the widest registers, few enough to stay in them.
const BLOCK: usize = 16;

/// A floating type as f32 values.
trait Float {
    /// An element as it lies in memory.
    type Raw: Copy + Default;
    /// True for types that are converted by instructions for blocks; the compiler makes its own vectors of the others, and
    /// better so when it sees single elements.
    const IN_BLOCKS: bool = false;
    fn widen(raw: Self::Raw) -> f32;
    fn narrow(value: f32) -> Self::Raw;

    #[inline(always)]
    unsafe fn load_block(from: *const [Self::Raw; BLOCK]) -> [f32; BLOCK] {
        // SAFETY: the caller vouches for the block.
        let raw = unsafe { from.read_unaligned() };
        let mut values = [0f32; BLOCK];
        for i in 0..BLOCK {
            values[i] = Self::widen(raw[i]);
        }
        values
    }

    #[inline(always)]
    unsafe fn store_block(to: *mut [Self::Raw; BLOCK], values: &[f32; BLOCK]) {
        let mut raw = [Self::Raw::default(); BLOCK];
        for i in 0..BLOCK {
            raw[i] = Self::narrow(values[i]);
        }
        // SAFETY: the caller vouches for the block.
        unsafe { to.write_unaligned(raw) };
    }
}

macro_rules! float {
    ($name:ident, $type:ty, |$x:ident| $widen:expr, |$v:ident| $narrow:expr) => {
        impl Float for $name {
            type Raw = $type;

            #[inline(always)]
            fn widen($x: $type) -> f32 {
                $widen
            }

            #[inline(always)]
            fn narrow($v: f32) -> $type {
                $narrow
            }
        }
    };
}

struct Single;
struct Double;
struct Half;
struct Bf16;
float!(Single, f32, |x| x, |v| v);
float!(Double, f64, |x| x as f32, |v| f64::from(v));
float!(Half, u16, |x| f16::from_bits(x).to_f32_const(), |v| {
    f16::from_f32_const(v).to_bits()
});
float!(Bf16, u16, |x| bf16::from_bits(x).to_f32_const(), |v| bf16_bits(v));

/// f32 to bf16, nearest even, without branches (so that it runs in vectors).
#[inline(always)]
fn bf16_bits(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let quiet = (bits >> 16) | 0x40;
    (if bits & 0x7fff_ffff > 0x7f80_0000 {
        quiet
    } else {
        rounded
    }) as u16
}

#[inline(always)]
unsafe fn floats<F: Float, T: Float>(dst: *mut u8, src: *const u8, count: usize) {
    let (dst, src) = (dst.cast::<T::Raw>(), src.cast::<F::Raw>());
    let whole = match F::IN_BLOCKS || T::IN_BLOCKS {
        true => count - count % BLOCK,
        false => 0,
    };
    // SAFETY: all offsets are below `count` elements, for which the caller vouches.
    unsafe {
        for i in (0..whole).step_by(BLOCK) {
            T::store_block(dst.add(i).cast(), &F::load_block(src.add(i).cast()));
        }
        for i in whole..count {
            dst.add(i)
                .write_unaligned(T::narrow(F::widen(src.add(i).read_unaligned())));
        }
    }
}

/// A cast of integers as C does it: the sign is extended, high bits are dropped.
trait CastTo<T> {
    fn cast(self) -> T;
}

macro_rules! casts {
    ($($from:ty => $($to:ty)+;)+) => {
        $($(impl CastTo<$to> for $from {
            #[inline(always)]
            fn cast(self) -> $to { self as $to }
        })+)+
    };
}

casts! {
    i8 => i16 i32 i64;
    i16 => i8 i32 i64;
    i32 => i8 i16 i64;
    i64 => i8 i16 i32;
}

#[inline(always)]
unsafe fn integers<F: CastTo<T>, T>(dst: *mut u8, src: *const u8, count: usize) {
    let (dst, src) = (dst.cast::<T>(), src.cast::<F>());
    for i in 0..count {
        // SAFETY: the caller vouches for `count` elements at both addresses.
        unsafe { dst.add(i).write_unaligned(src.add(i).read_unaligned().cast()) };
    }
}

/// The table of converters, each compiled with the features in `$attribute`.
macro_rules! converters {
    ($($attribute:meta)?, $half:ty) => {
        pub(super) fn pick(from: DType, to: DType) -> Option<RowConverter> {
            type H = $half;
            macro_rules! converter {
                ($loop:ident, $f:ty, $t:ty) => {{
                    $(#[$attribute])?
                    unsafe fn convert(dst: *mut u8, src: *const u8, count: usize) {
                        // SAFETY: the caller of a converter vouches for both addresses.
                        unsafe { $loop::<$f, $t>(dst, src, count) }
                    }
                    convert as RowConverter
                }};
            }
            Some(match (from, to) {
                (DType::Float, DType::Half) => converter!(floats, Single, H),
                (DType::Float, DType::Bf16) => converter!(floats, Single, Bf16),
                (DType::Float, DType::Double) => converter!(floats, Single, Double),
                (DType::Half, DType::Float) => converter!(floats, H, Single),
                (DType::Half, DType::Bf16) => converter!(floats, H, Bf16),
                (DType::Half, DType::Double) => converter!(floats, H, Double),
                (DType::Bf16, DType::Float) => converter!(floats, Bf16, Single),
                (DType::Bf16, DType::Half) => converter!(floats, Bf16, H),
                (DType::Bf16, DType::Double) => converter!(floats, Bf16, Double),
                (DType::Double, DType::Float) => converter!(floats, Double, Single),
                (DType::Double, DType::Half) => converter!(floats, Double, H),
                (DType::Double, DType::Bf16) => converter!(floats, Double, Bf16),
                (DType::Int8, DType::Int16) => converter!(integers, i8, i16),
                (DType::Int8, DType::Int) => converter!(integers, i8, i32),
                (DType::Int8, DType::Int64) => converter!(integers, i8, i64),
                (DType::Int16, DType::Int8) => converter!(integers, i16, i8),
                (DType::Int16, DType::Int) => converter!(integers, i16, i32),
                (DType::Int16, DType::Int64) => converter!(integers, i16, i64),
                (DType::Int, DType::Int8) => converter!(integers, i32, i8),
                (DType::Int, DType::Int16) => converter!(integers, i32, i16),
                (DType::Int, DType::Int64) => converter!(integers, i32, i64),
                (DType::Int64, DType::Int8) => converter!(integers, i64, i8),
                (DType::Int64, DType::Int16) => converter!(integers, i64, i16),
                (DType::Int64, DType::Int) => converter!(integers, i64, i32),
                _ => return None,
            })
        }
    };
}

mod portable {
    use super::*;

    converters!(, Half);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;
    use std::arch::x86_64::*;

    converters!(target_feature(enable = "avx2,f16c"), FastHalf);

    /// HALF by the processor's own instructions; used only inside the converters of this module.
    struct FastHalf;

    #[target_feature(enable = "avx2,f16c")]
    #[inline]
    unsafe fn widen(from: *const u8) -> [f32; BLOCK] {
        let mut values = [0f32; BLOCK];
        for i in [0, 8] {
            // SAFETY: unaligned accesses to 8 elements of a block the caller vouches for.
            unsafe {
                let bits = _mm_loadu_si128(from.add(2 * i).cast());
                _mm256_storeu_ps(values.as_mut_ptr().add(i), _mm256_cvtph_ps(bits));
            }
        }
        values
    }

    #[target_feature(enable = "avx2,f16c")]
    #[inline]
    unsafe fn narrow(to: *mut u8, values: &[f32; BLOCK]) {
        for i in [0, 8] {
            // SAFETY: unaligned accesses to 8 elements of a block the caller vouches for.
            unsafe {
                let block = _mm256_loadu_ps(values.as_ptr().add(i));
                _mm_storeu_si128(
                    to.add(2 * i).cast(),
                    _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(block),
                );
            }
        }
    }

    impl Float for FastHalf {
        type Raw = u16;
        const IN_BLOCKS: bool = true;

        #[inline(always)]
        fn widen(raw: u16) -> f32 {
            Half::widen(raw)
        }

        #[inline(always)]
        fn narrow(value: f32) -> u16 {
            Half::narrow(value)
        }

        #[inline(always)]
        unsafe fn load_block(from: *const [u16; BLOCK]) -> [f32; BLOCK] {
            // SAFETY: the converters that get here have the features.
            unsafe { widen(from.cast()) }
        }

        #[inline(always)]
        unsafe fn store_block(to: *mut [u16; BLOCK], values: &[f32; BLOCK]) {
            // SAFETY: the converters that get here have the features.
            unsafe { narrow(to.cast(), values) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(convert: RowConverter, from: &[u8], to_bytes: usize, count: usize) -> Vec<u8> {
        let mut to = vec![0xa5; to_bytes + 1];
        // SAFETY: both buffers hold `count` elements; the odd offset checks that no alignment is assumed.
        unsafe { convert(to.as_mut_ptr().add(1), from.as_ptr(), count) };
        assert_eq!(to[0], 0xa5);
        to.split_off(1)
    }

    /// Every converter of the fast table gives the bits of the portable one, for all 16-bit patterns and lengths.
    #[test]
    fn fast_and_portable_agree() {
        for from in DType::ALL {
            for to in DType::ALL {
                let (Some(fast), Some(plain)) = (row_converter(from, to), portable::pick(from, to)) else {
                    assert!(from == to || from.is_float() != to.is_float());
                    continue;
                };
                let mut state = 1u64;
                let bytes: Vec<u8> = (0..65536u32 * 8)
                    .flat_map(|i| {
                        state = state
                            .wrapping_mul(6364136223846793005)
                            .wrapping_add(1442695040888963407);
                        let wide = (state >> 16) as u32;
                        if i % 2 == 0 { (i / 8) as u16 } else { wide as u16 }.to_le_bytes()
                    })
                    .collect();
                for count in [0, 1, 15, 16, 17, 47, bytes.len() / from.size_bytes()] {
                    let room = count * to.size_bytes();
                    assert!(
                        run(fast, &bytes, room, count) == run(plain, &bytes, room, count),
                        "{from} to {to}, {count} elements"
                    );
                }
            }
        }
    }

    #[test]
    fn bf16_rounds_as_the_reference_does() {
        for high in 0..=0xffffu32 {
            for low in [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let value = f32::from_bits(high << 16 | low);
                assert_eq!(
                    bf16_bits(value),
                    bf16::from_f32_const(value).to_bits(),
                    "{:#x}",
                    value.to_bits()
                );
            }
        }
    }

    #[test]
    fn double_to_half_rounds_twice() {
        // Just above the midpoint of 1 and the next half, 1 + 2^-10, which one rounding would give: f32 rounds it onto the
        // midpoint, half then to even.
        let value = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
        let convert = row_converter(DType::Double, DType::Half).expect("a converter");
        let got = run(convert, &value.to_le_bytes(), 2, 1);
        assert_eq!(got, f16::from_f32_const(1.0).to_bits().to_le_bytes());
    }

    #[test]
    fn integers_extend_and_truncate() {
        let widen = row_converter(DType::Int8, DType::Int64).expect("a converter");
        assert_eq!(run(widen, &[0x80], 8, 1), (-128i64).to_le_bytes());
        let narrow = row_converter(DType::Int64, DType::Int16).expect("a converter");
        assert_eq!(
            run(narrow, &0x1234_5678_9abc_8001_u64.to_le_bytes(), 2, 1),
            [0x01, 0x80]
        );
    }
}
