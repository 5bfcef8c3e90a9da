//! WHERE BYTES ARE: partitions (pure), handles of the four memory types, files.

mod file;
mod handle;
mod mapping;
mod partition;
mod plan;

pub use file::{LoadRequest, StoreRequest, load_from_file, store_to_file};
pub use handle::{GlobalReference, Memory};
pub use mapping::MappedBases;
pub use partition::{Partition, equal_entry_partition_plan};
pub use plan::{MallocRequest, Route};
