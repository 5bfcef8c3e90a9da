//! Memory that loops work in: what the caller has set aside for them, all ranks having agreed on it, and where that is too small
//! memory of their own.

use super::split::room;
use crate::error::Result;
use crate::platform::Workspace;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// What arrays in a workspace begin at multiples of.
const ALIGNMENT_BYTES: usize = 16;

/// Bytes of a workspace for arrays of these many bytes.
pub fn workspace_bytes(arrays: &[usize]) -> usize {
    let whole = |bytes: &usize| bytes.saturating_add(ALIGNMENT_BYTES - 1) / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
    // The workspace itself may begin anywhere.
    let used = arrays.iter().map(whole).fold(0, usize::saturating_add);
    match used {
        0 => 0,
        used => used.saturating_add(ALIGNMENT_BYTES),
    }
}

/// A workspace of which arrays are taken one after the other.
pub struct Working<'a> {
    at: usize,
    end: usize,
    _workspace: PhantomData<&'a mut [u8]>,
}

impl<'a> Working<'a> {
    /// # Safety
    /// The workspace is this call's for `'a`.
    pub unsafe fn new(workspace: Workspace) -> Working<'a> {
        let at = workspace.address.0;
        Working {
            at: at.next_multiple_of(ALIGNMENT_BYTES),
            end: at + workspace.bytes,
            _workspace: PhantomData,
        }
    }

    /// Room for `count` values.
    /// # Errors
    /// OUT_OF_MEMORY where the workspace does not suffice and the system has none.
    pub fn values<T: Copy>(&mut self, count: usize) -> Result<Values<'a, T>> {
        let bytes = count.saturating_mul(size_of::<T>());
        let fits = align_of::<T>() <= ALIGNMENT_BYTES && bytes <= self.end.saturating_sub(self.at);
        let mut own = room(if fits { 0 } else { count })?;
        let first = match fits {
            true => self.at as *mut T,
            false => own.as_mut_ptr(),
        };
        if fits {
            self.at = (self.at + bytes).next_multiple_of(ALIGNMENT_BYTES);
        }
        Ok(Values {
            first,
            most: count,
            count: 0,
            _own: own,
            _workspace: PhantomData,
        })
    }
}

/// Values in working memory: those that were pushed.
pub struct Values<'a, T> {
    first: *mut T,
    most: usize,
    count: usize,
    _own: Vec<T>,
    _workspace: PhantomData<&'a mut [T]>,
}

// SAFETY: nobody else has its place, as of a vector.
unsafe impl<T: Send> Send for Values<'_, T> {}

// SAFETY: shared, it is only read.
unsafe impl<T: Sync> Sync for Values<'_, T> {}

impl<T: Copy> Values<'_, T> {
    /// # Panics
    /// Where there is no room left.
    pub fn push(&mut self, value: T) {
        assert!(self.count < self.most, "more values than there is room for");
        // SAFETY: inside the room.
        unsafe { self.first.add(self.count).write(value) };
        self.count += 1;
    }

    /// Pushes `value` until all room is used.
    pub fn fill(&mut self, value: T) {
        while self.count < self.most {
            self.push(value);
        }
    }
}

impl<T> Deref for Values<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self.count {
            0 => &[],
            // SAFETY: so many were written.
            count => unsafe { std::slice::from_raw_parts(self.first, count) },
        }
    }
}

impl<T> DerefMut for Values<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self.count {
            0 => &mut [],
            // SAFETY: as above, and nobody else has them.
            count => unsafe { std::slice::from_raw_parts_mut(self.first, count) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::Address;

    #[test]
    fn arrays_lie_in_the_workspace_or_beside_it() {
        let bytes = workspace_bytes(&[3 * 8, 5, 0, 2 * 8]);
        assert_eq!(bytes, 32 + 16 + 16 + 16);
        assert_eq!(workspace_bytes(&[0, 0]), 0);
        for shift in 0..16 {
            let mut block = vec![0u128; bytes / 16 + 2];
            let address = Address(block.as_mut_ptr() as usize + shift);
            let inside = address.0..address.0 + bytes;
            // SAFETY: the block outlives the arrays.
            let mut working = unsafe { Working::new(Workspace { address, bytes }) };
            let mut words = working.values::<u64>(3).unwrap();
            let mut small = working.values::<u8>(5).unwrap();
            let mut more = working.values::<u64>(2).unwrap();
            let mut beside = working.values::<u64>(100).unwrap();
            assert!(words.is_empty());
            words.fill(7);
            small.fill(1);
            more.push(9);
            beside.fill(3);
            words[1] = 8;
            assert_eq!(
                (&words[..], &small[..], &more[..]),
                (&[7, 8, 7][..], &[1; 5][..], &[9][..])
            );
            assert_eq!(beside[..], [3; 100]);
            for (at, is_inside) in [
                (words.as_ptr() as usize, true),
                (small.as_ptr() as usize, true),
                (more.as_ptr() as usize, true),
                (beside.as_ptr() as usize, false),
            ] {
                assert_eq!(inside.contains(&at), is_inside);
            }
        }
        // SAFETY: no workspace at all.
        let mut none = unsafe { Working::new(Workspace::default()) };
        assert_eq!(none.values::<u32>(0).unwrap().len(), 0);
        assert!(none.values::<u64>(1 << 60).is_err());
    }
}
