//! Vocabulary: an address with the room behind it.

/// An address in some memory (host or device). The library never reads it outside `platform/` and `ffi/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Address(pub usize);

impl Address {
    pub const NULL: Address = Address(0);

    pub fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The address `bytes` further on. NULL stays NULL.
    pub fn offset_bytes(self, bytes: usize) -> Address {
        if self.is_null() {
            self
        } else {
            Address(self.0.wrapping_add(bytes))
        }
    }
}

/// A partition of a handle: where it can be reached, its size and its offset in the whole, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Span {
    pub address: Address,
    pub size_bytes: usize,
    pub offset_bytes: usize,
}
