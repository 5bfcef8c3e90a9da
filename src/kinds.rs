//! Vocabulary of the C API without logic: memory types, locations, backends.

macro_rules! coded {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $value:literal : $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum $name { $($variant = $value),+ }

        impl $name {
            /// The value behind a C enumerator; `None` for every other integer.
            pub fn from_raw(raw: u32) -> Option<$name> {
                match raw { $($value => Some($name::$variant),)+ _ => None }
            }

            pub fn raw(self) -> u32 {
                self as u32
            }

            /// For messages: the name of a C enumerator, and the number of what is none.
            pub fn name_of(raw: u32) -> String {
                $name::from_raw(raw).map_or_else(|| (raw as i32).to_string(), |known| known.to_string())
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $($name::$variant => $word),+ })
            }
        }
    };
}

coded! {
    /// How the partitions of a handle can be reached (`wholememory_memory_type_t` without NONE).
    MemoryType { Continuous = 1: "CONTINUOUS", Chunked = 2: "CHUNKED", Distributed = 3: "DISTRIBUTED", Hierarchy = 4: "HIERARCHY" }
}

coded! {
    /// Where the bytes are (`wholememory_memory_location_t` without NONE).
    Location { Device = 1: "DEVICE", Host = 2: "HOST" }
}

coded! {
    /// Who moves rows between ranks that cannot map each other (`wholememory_distributed_backend_t` without NONE).
    Backend { Nccl = 1: "NCCL", Nvshmem = 2: "NVSHMEM" }
}

coded! {
    /// What a caller's allocation function is asked for (`wholememory_memory_allocation_type_t` without NONE).
    AllocationType { Device = 1: "DEVICE", Host = 2: "HOST", Pinned = 3: "PINNED" }
}

coded! {
    /// Element types (`wholememory_dtype_t` without UNKNOWN and COUNT).
    DType {
        Float = 1: "FLOAT", Half = 2: "HALF", Double = 3: "DOUBLE", Bf16 = 4: "BF16",
        Int = 5: "INT", Int64 = 6: "INT64", Int16 = 7: "INT16", Int8 = 8: "INT8",
    }
}

impl DType {
    pub const ALL: [DType; 8] = [
        DType::Float,
        DType::Half,
        DType::Double,
        DType::Bf16,
        DType::Int,
        DType::Int64,
        DType::Int16,
        DType::Int8,
    ];

    pub fn size_bytes(self) -> usize {
        match self {
            DType::Int8 => 1,
            DType::Half | DType::Bf16 | DType::Int16 => 2,
            DType::Float | DType::Int => 4,
            DType::Double | DType::Int64 => 8,
        }
    }

    /// FLOAT, HALF, DOUBLE, BF16; the others are integers.
    pub fn is_float(self) -> bool {
        matches!(self, DType::Float | DType::Half | DType::Double | DType::Bf16)
    }

    /// The two types that index operands may have.
    pub fn is_index(self) -> bool {
        matches!(self, DType::Int | DType::Int64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_what_has_a_name() {
        assert_eq!(DType::name_of(6), "INT64");
        assert_eq!(DType::name_of(0), "0");
        assert_eq!(MemoryType::name_of(-3i32 as u32), "-3");
    }
}
