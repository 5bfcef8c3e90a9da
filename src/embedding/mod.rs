//! TABLES THAT LEARN: rows, cache and optimizer.

mod cache;
mod geometry;
mod optimizer;
mod policy;
mod step;
mod table;
mod training;

pub use optimizer::{Optimizer, state_name_sets};
pub use policy::{Access, CachePolicy};
pub use table::{CacheState, Embedding, Part, Request};
