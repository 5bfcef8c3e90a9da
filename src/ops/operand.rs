//! Plain operands (indices, outputs, inputs): from a description and a storage to an address that kernels may use.

use crate::error::{Result, ensure, fail};
use crate::kinds::{DType, MemoryType};
use crate::span::Address;
use crate::tensor::{Operand, Storage};

/// Where the elements of an operand lie, before its `storage_offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// A storage pointer of the caller; how much is behind it, only the caller knows.
    Pointer(Address),
    /// One range of a handle.
    Range { base: Address, size_bytes: usize },
    /// A handle whose partitions are no single range.
    Scattered(MemoryType),
}

impl Data {
    /// # Errors
    /// INVALID_INPUT for a handle that was freed.
    pub fn of(operand: &Operand, name: &str) -> Result<Data> {
        match &operand.storage {
            Storage::Pointer(address) => Ok(Data::Pointer(*address)),
            Storage::Memory(memory) => {
                ensure!(
                    memory.is_live(),
                    InvalidInput,
                    "{name} lies on a memory handle that was freed"
                );
                match memory.memory_type() {
                    MemoryType::Continuous => Ok(Data::Range {
                        base: memory.global_pointer()?,
                        size_bytes: memory.total_bytes(),
                    }),
                    other => Ok(Data::Scattered(other)),
                }
            }
        }
    }

    /// [`of`](Data::of) an operand that the call writes.
    /// # Errors
    /// Besides, COMMUNICATION_ERROR for memory of which this process is a forked child.
    pub fn written(operand: &Operand, name: &str) -> Result<Data> {
        if let Storage::Memory(memory) = &operand.storage {
            memory.communicator().check_ours(name)?;
        }
        Data::of(operand, name)
    }

    /// The address of the first element, checked to be usable for elements of `dtype` that end `span_bytes` further on.
    /// # Errors
    /// INVALID_INPUT where the data cannot be reached or exceeds its handle, LOGIC_ERROR where it is not aligned to its
    /// elements, INVALID_VALUE where offset and size do not fit the address space.
    pub fn first(
        &self,
        name: &str,
        dtype: DType,
        storage_offset: i64,
        span_bytes: i128,
        can_reach: &dyn Fn(Address) -> bool,
    ) -> Result<Address> {
        let offset_bytes = i128::from(storage_offset) * dtype.size_bytes() as i128;
        let (base, room_bytes) = match *self {
            Data::Pointer(address) => (address, None),
            Data::Range { base, size_bytes } => (base, Some(size_bytes)),
            Data::Scattered(memory_type) => fail!(
                InvalidInput,
                "{name} lies on a {memory_type} handle, which is no single range of memory here: only CONTINUOUS handles \
                 and plain pointers can be used"
            ),
        };
        ensure!(
            !base.is_null(),
            InvalidInput,
            "the data pointer of {name} is NULL"
        );
        let first = base.0 as i128 + offset_bytes;
        let end = first.saturating_add(span_bytes);
        ensure!(
            first > 0 && end <= isize::MAX as i128,
            InvalidValue,
            "{name} spans {span_bytes} bytes from storage offset {storage_offset}, which leaves the address space"
        );
        if let Some(room_bytes) = room_bytes {
            ensure!(
                offset_bytes >= 0 && offset_bytes + span_bytes <= room_bytes as i128,
                InvalidInput,
                "{name} spans {span_bytes} bytes from byte {offset_bytes} of a handle of {room_bytes} bytes"
            );
        }
        let first = Address(first as usize);
        ensure!(
            can_reach(first),
            InvalidInput,
            "the memory of {name} at {:#x} cannot be reached by this platform's kernels",
            first.0
        );
        ensure!(
            first.0.is_multiple_of(dtype.size_bytes()),
            Logic,
            "the data of {name} begins at {:#x}, which is not a multiple of the {} bytes of a {dtype}",
            first.0,
            dtype.size_bytes()
        );
        Ok(first)
    }
}
