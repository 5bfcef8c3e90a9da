//! Row ids sorted out: by owner, and without doubles.

use super::address::{Ids, Owners};
use super::pool;
use crate::error::{Error, Kind, Result};
use crate::kinds::DType;
use crate::platform::Indices;
use crate::span::Address;
use rayon::slice::ParallelSliceMut;
use std::sync::Mutex;

/// An empty vector with room for `count` values.
/// # Errors
/// OUT_OF_MEMORY.
pub(super) fn room<T>(count: usize) -> Result<Vec<T>> {
    let mut vec = Vec::new();
    vec.try_reserve_exact(count).map_err(|_| {
        Error::new(
            Kind::OutOfMemory,
            format!("no room for {count} working values of {} bytes", size_of::<T>()),
        )
    })?;
    Ok(vec)
}

/// Where ids and positions are written.
#[derive(Clone, Copy)]
struct Output {
    ids: Address,
    positions: Address,
    wide: bool,
}

impl Output {
    /// # Safety
    /// `slot` is below the count both addresses have room for.
    unsafe fn put_id(&self, slot: usize, id: u64) {
        // SAFETY: passed on.
        unsafe {
            if self.wide {
                (self.ids.0 as *mut u64).add(slot).write_unaligned(id);
            } else {
                (self.ids.0 as *mut u32).add(slot).write_unaligned(id as u32);
            }
        }
    }

    /// # Safety
    /// As for `put_id`.
    unsafe fn put_position(&self, slot: usize, position: usize) {
        // SAFETY: passed on.
        unsafe {
            (self.positions.0 as *mut i64)
                .add(slot)
                .write_unaligned(position as i64)
        };
    }
}

/// See [`crate::platform::Kernels::bucket`]. Two passes over parts of the input: count, then place, each part behind
/// those before it, so the order inside a bucket is that of the input.
/// # Errors
/// OUT_OF_MEMORY.
pub fn bucket(
    indices: &Indices,
    start_rows: &[u64],
    bucket_of_owner: &[u32],
    bucket_count: usize,
    ids: Address,
    positions: Address,
) -> Result<Vec<u64>> {
    let rows = start_rows.last().copied().unwrap_or(0);
    let owners = Owners::new(start_rows);
    let input = Ids::new(indices);
    let output = Output {
        ids,
        positions,
        wide: indices.dtype == DType::Int64,
    };
    let bytes = indices
        .count
        .saturating_mul(indices.dtype.size_bytes() + size_of::<i64>());
    let parts = pool::width(bytes);
    let part_ids = indices.count.div_ceil(parts);
    let each = |part: usize, act: &mut dyn FnMut(usize, u64, usize)| {
        for i in part * part_ids..((part + 1) * part_ids).min(indices.count) {
            // SAFETY: `i` is below the count.
            let id = unsafe { input.get(i) };
            if id < rows {
                act(i, id, bucket_of_owner[owners.of(id)] as usize);
            }
        }
    };

    let mut cursors: Vec<Mutex<Vec<usize>>> = room(parts)?;
    for _ in 0..parts {
        let mut counts = room(bucket_count)?;
        counts.resize(bucket_count, 0);
        cursors.push(Mutex::new(counts));
    }
    let alone = "no part panics while it counts";
    pool::run(parts, bytes, &|part| {
        let mut counts = cursors[part].lock().expect(alone);
        each(part, &mut |_, _, bucket| counts[bucket] += 1);
    });

    let mut totals = room(bucket_count)?;
    let mut slot = 0;
    for bucket in 0..bucket_count {
        let begin = slot;
        for part in &mut cursors {
            let cursor = &mut part.get_mut().expect(alone)[bucket];
            slot += std::mem::replace(cursor, slot);
        }
        totals.push((slot - begin) as u64);
    }

    pool::run(parts, bytes, &|part| {
        let mut cursors = cursors[part].lock().expect(alone);
        each(part, &mut |i, id, bucket| {
            let slot = cursors[bucket];
            cursors[bucket] += 1;
            // SAFETY: all slots are below the number of ids in range.
            unsafe {
                output.put_id(slot, id);
                output.put_position(slot, i);
            }
        });
    });
    Ok(totals)
}

/// See [`crate::platform::Kernels::unique`].
/// # Errors
/// OUT_OF_MEMORY.
pub fn unique(indices: &Indices, unique: Address, slots: Address) -> Result<u64> {
    let input = Ids::new(indices);
    let output = Output {
        ids: unique,
        positions: slots,
        wide: indices.dtype == DType::Int64,
    };
    let mut sorted: Vec<(i64, usize)> = room(indices.count)?;
    // SAFETY: `i` is below the count.
    sorted.extend((0..indices.count).map(|i| (unsafe { input.get(i) } as i64, i)));
    let bytes = indices.count.saturating_mul(size_of::<(i64, usize)>());
    pool::on_helpers(bytes, || sorted.par_sort_unstable()).unwrap_or_else(|| sorted.sort_unstable());
    let mut count = 0;
    let mut last = None;
    for &(id, position) in &sorted {
        // SAFETY: there are no more distinct ids than ids, and positions are below the count.
        unsafe {
            if last != Some(id) {
                output.put_id(count, id as u64);
                count += 1;
                last = Some(id);
            }
            output.put_position(position, count - 1);
        }
    }
    Ok(count as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    enum Input {
        Wide(Vec<i64>),
        Narrow(Vec<i32>),
    }

    impl Input {
        fn new(ids: &[i64], wide: bool) -> Input {
            match wide {
                true => Input::Wide(ids.to_vec()),
                false => Input::Narrow(ids.iter().map(|id| *id as i32).collect()),
            }
        }

        fn indices(&self) -> Indices {
            let (address, dtype, count) = match self {
                Input::Wide(v) => (v.as_ptr() as usize, DType::Int64, v.len()),
                Input::Narrow(v) => (v.as_ptr() as usize, DType::Int, v.len()),
            };
            Indices {
                address: Address(address),
                dtype,
                count,
            }
        }

        fn ids(&self) -> Vec<i64> {
            match self {
                Input::Wide(v) => v.clone(),
                Input::Narrow(v) => v.iter().map(|id| i64::from(*id)).collect(),
            }
        }
    }

    const UNTOUCHED: i64 = 0x5a5a_5a5a;

    fn check_bucket(ids: &[i64], wide: bool, starts: &[u64], buckets: &[u32], bucket_count: usize) {
        let input = Input::new(ids, wide);
        let mut out = Input::new(&vec![UNTOUCHED; ids.len()], wide);
        let mut positions = vec![UNTOUCHED; ids.len()];
        let out_address = match &mut out {
            Input::Wide(v) => v.as_mut_ptr() as usize,
            Input::Narrow(v) => v.as_mut_ptr() as usize,
        };
        let position_address = Address(positions.as_mut_ptr() as usize);
        let counts = bucket(
            &input.indices(),
            starts,
            buckets,
            bucket_count,
            Address(out_address),
            position_address,
        )
        .expect("room");

        let mut want: Vec<Vec<(i64, i64)>> = vec![Vec::new(); bucket_count];
        for (i, id) in input.ids().into_iter().enumerate() {
            if let Some(owner) = starts
                .windows(2)
                .position(|w| id >= 0 && w[0] <= id as u64 && (id as u64) < w[1])
            {
                want[buckets[owner] as usize].push((id, i as i64));
            }
        }
        assert_eq!(counts, want.iter().map(|b| b.len() as u64).collect::<Vec<_>>());
        let mut want: Vec<(i64, i64)> = want.concat();
        want.resize(ids.len(), (UNTOUCHED, UNTOUCHED));
        assert!(out.ids().into_iter().zip(positions).eq(want));
    }

    fn check_unique(ids: &[i64], wide: bool) {
        let input = Input::new(ids, wide);
        let out = Input::new(&vec![UNTOUCHED; ids.len()], wide);
        let slots = vec![UNTOUCHED; ids.len()];
        let count = unique(
            &input.indices(),
            out.indices().address,
            Address(slots.as_ptr() as usize),
        )
        .expect("room") as usize;
        let mut want = input.ids();
        want.sort();
        want.dedup();
        assert_eq!(out.ids()[..count], want[..]);
        assert!(out.ids()[count..].iter().all(|id| *id == UNTOUCHED));
        assert!(
            slots
                .iter()
                .zip(input.ids())
                .all(|(slot, id)| want[*slot as usize] == id)
        );
    }

    proptest! {
        #[test]
        fn buckets(
            sizes in prop::collection::vec(0u64..9, 1..12),
            bucket_count in 1usize..5,
            ids in prop::collection::vec(-5i64..70, 0..200),
            wide in any::<bool>(),
            seed in any::<u32>(),
        ) {
            let mut starts = vec![0];
            starts.extend(sizes.iter().scan(0, |sum, n| { *sum += n; Some(*sum) }));
            let buckets: Vec<u32> = (0..sizes.len() as u32).map(|k| k.wrapping_mul(seed | 1) % bucket_count as u32).collect();
            check_bucket(&ids, wide, &starts, &buckets, bucket_count);
        }

        #[test]
        fn doubles_go(ids in prop::collection::vec(prop_oneof![-9i64..40, Just(i64::MIN), Just(i64::MAX)], 0..200), wide in any::<bool>()) {
            check_unique(&ids, wide);
        }
    }

    #[test]
    fn on_the_pool() {
        let ids: Vec<i64> = (0..100_000i64).map(|i| i * 7919 % 5003 - 1).collect();
        for wide in [true, false] {
            check_bucket(&ids, wide, &[0, 1250, 2500, 3750, 5000], &[1, 0, 1, 2], 3);
            check_unique(&ids, wide);
        }
    }
}
