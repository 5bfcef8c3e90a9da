//! What a step over a table with a cache knows of its rows, between finding them in the cache and changing them.

use super::learning::SCRATCH_ALIGNMENT_BYTES;
use crate::platform::learning::Step;
use crate::span::Address;

/// Where the rows of a step are, if its table has a cache: arrays with one entry a gradient; NULL for those that are not needed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RowLists {
    pub places: Address,
    pub state_sources: Address,
    pub state_targets: Address,
    /// The rows without a line, of a table in the host's memory.
    pub home_heads: Address,
    pub home_count: Address,
    pub home_turns: Address,
    /// What [`GroupArgs::spare`](super::learning::GroupArgs) zeros the sort of the ids leaves.
    pub home_buckets: Address,
}

impl RowLists {
    /// Cut from `base` on, and the bytes they take.
    pub fn cut(base: Address, step: &Step<'_>, on_host: bool) -> (RowLists, usize) {
        let count = step.ids.count;
        let mut lists = RowLists::default();
        if step.cache.is_none() {
            return (lists, 0);
        }
        let mut end_bytes = 0;
        let mut take = |bytes: usize| {
            let at = base.offset_bytes(end_bytes);
            end_bytes = (end_bytes + bytes).next_multiple_of(SCRATCH_ALIGNMENT_BYTES);
            at
        };
        lists.places = take(count * size_of::<u64>());
        if !step.states.is_empty() {
            lists.state_sources = take(count * size_of::<u64>());
            lists.state_targets = take(count * size_of::<u64>());
        }
        if on_host {
            lists.home_heads = take(count * size_of::<u32>());
            lists.home_count = take(size_of::<u32>());
            lists.home_turns = take(count * size_of::<u64>());
        }
        (lists, end_bytes)
    }
}
