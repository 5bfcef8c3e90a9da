//! The record slots of a rank's own memory, as files see them.

use crate::error::Result;
use crate::kinds::Location;
use crate::platform::cpu::bytes::{self, Rows};
use crate::platform::{Platform, Stream};
use crate::span::Address;
use std::ops::Range;

/// Where the records of a rank lie. Slots are local: slot 0 is the first of the own partition.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    rows: Rows,
    /// Whether the CPU may touch the memory; else bytes go through the platform's copies.
    reachable: bool,
    platform: &'a dyn Platform,
}

impl<'a> Target<'a> {
    pub fn new(platform: &'a dyn Platform, location: Location, rows: Rows) -> Target<'a> {
        Target {
            rows,
            reachable: location == Location::Host || platform.name() == "cpu",
            platform,
        }
    }

    /// Bytes of one record.
    pub fn row_bytes(&self) -> usize {
        self.rows.row_bytes
    }

    fn place(&self, slot: u64) -> Address {
        self.rows
            .first
            .offset_bytes(slot as usize * self.rows.stride_bytes)
    }

    /// Prepares slots that are about to be written for the first time.
    pub fn populate(&self, slots: Range<u64>) {
        if self.reachable && !slots.is_empty() {
            let last = self.place(slots.end - 1).0 + self.rows.row_bytes;
            let first = self.place(slots.start);
            bytes::populate(first, last - first.0);
        }
    }

    /// The address of a slot, if the records lie there without gaps and the CPU may touch them.
    pub fn place_of_dense(&self, slot: u64) -> Option<Address> {
        (self.reachable && self.rows.row_bytes == self.rows.stride_bytes).then(|| self.place(slot))
    }

    fn rows_from(&self, slot: u64) -> Rows {
        Rows {
            first: self.place(slot),
            ..self.rows
        }
    }

    /// Stores packed record bytes, the first of which is byte `position` of the records from `slot` on.
    pub fn put(&self, slot: u64, position: usize, packed: &[u8]) -> Result<()> {
        let rows = self.rows_from(slot);
        if self.reachable {
            rows.put(position, packed);
            return Ok(());
        }
        let stream = Stream::default();
        for part in rows.parts(position, packed.len()) {
            let from = Address(packed[part.at..].as_ptr() as usize);
            self.platform.copy(part.address, from, part.bytes, stream)?;
        }
        self.platform.synchronize(stream)
    }

    /// The reverse of [`Target::put`].
    pub fn take(&self, slot: u64, position: usize, packed: &mut [u8]) -> Result<()> {
        let rows = self.rows_from(slot);
        if self.reachable {
            rows.take(position, packed);
            return Ok(());
        }
        let stream = Stream::default();
        for part in rows.parts(position, packed.len()) {
            let to = Address(packed[part.at..].as_mut_ptr() as usize);
            self.platform.copy(to, part.address, part.bytes, stream)?;
        }
        self.platform.synchronize(stream)
    }
}
