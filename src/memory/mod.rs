//! WHERE BYTES ARE: partitions (pure), handles of the four memory types, files.

mod file;
mod handle;
mod partition;

pub use file::{LoadRequest, StoreRequest, load_from_file, store_to_file};
pub use handle::{GlobalReference, MallocRequest, Memory, Route};
pub use partition::{Partition, equal_entry_partition_plan};
