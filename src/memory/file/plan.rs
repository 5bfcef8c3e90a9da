//! Which record of the files goes into which slot of a rank's memory. Pure.

use std::ops::Range;

/// The order in which the records of the logical array are dealt to the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Record e goes to slot e of the whole; this rank's slots begin with this record.
    Sequential { first_record: u64 },
    /// Blocks of records go round the ranks.
    RoundRobin {
        block_records: u64,
        world_ranks: u64,
        rank: u64,
    },
}

/// The records of one rank. Its local slots `[0, count)` are filled in ascending order of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    order: Order,
    count: u64,
}

/// Consecutive records for consecutive local slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub record: u64,
    pub slot: u64,
    pub count: u64,
}

impl Placement {
    /// The records of the slots `[first_slot, first_slot + slots)` of the whole, of `total_records` there are.
    pub fn sequential(first_slot: u64, slots: u64, total_records: u64) -> Placement {
        Placement {
            order: Order::Sequential {
                first_record: first_slot,
            },
            count: total_records.saturating_sub(first_slot).min(slots),
        }
    }

    /// Block b of `block_records` records (not 0) belongs to rank `b % world_ranks`.
    pub fn round_robin(block_records: u64, world_ranks: u64, rank: u64, total_records: u64) -> Placement {
        let round_records = world_ranks.saturating_mul(block_records);
        let whole_rounds = total_records / round_records;
        let rest = (total_records % round_records).saturating_sub(rank.saturating_mul(block_records));
        Placement {
            order: Order::RoundRobin {
                block_records,
                world_ranks,
                rank,
            },
            count: whole_rounds * block_records + rest.min(block_records),
        }
    }

    /// Slots that this rank fills.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The run that begins at `slot` and ends before `end`.
    fn run_at(&self, slot: u64, end: u64) -> Run {
        match self.order {
            Order::Sequential { first_record } => Run {
                record: first_record + slot,
                slot,
                count: end - slot,
            },
            Order::RoundRobin {
                block_records,
                world_ranks,
                rank,
            } => {
                let (round, within) = (slot / block_records, slot % block_records);
                Run {
                    record: (round * world_ranks + rank) * block_records + within,
                    slot,
                    count: (block_records - within).min(end - slot),
                }
            }
        }
    }

    /// The runs that fill the given slots (a part of `[0, count)`), ascending.
    pub fn runs(&self, slots: Range<u64>) -> impl Iterator<Item = Run> {
        let placement = *self;
        let end = slots.end.min(placement.count);
        let mut slot = slots.start;
        std::iter::from_fn(move || {
            if slot >= end {
                return None;
            }
            let run = placement.run_at(slot, end);
            slot += run.count;
            Some(run)
        })
    }
}

/// The files in list order, as one array of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileList {
    /// The first record of every file, and the total.
    starts_records: Vec<u64>,
}

/// A part of a run that lies in one file; `record` counts from the begin of that file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub file: usize,
    pub record: u64,
    pub slot: u64,
    pub count: u64,
}

impl FileList {
    /// `None` if the total does not fit.
    pub fn new(counts_records: impl Iterator<Item = u64>) -> Option<FileList> {
        let mut starts_records = vec![0u64];
        let mut sum = 0u64;
        for count in counts_records {
            sum = sum.checked_add(count)?;
            starts_records.push(sum);
        }
        Some(FileList { starts_records })
    }

    pub fn total_records(&self) -> u64 {
        self.starts_records.last().copied().unwrap_or(0)
    }

    /// Cuts a run at file borders. Its records must exist.
    pub fn pieces(&self, run: Run) -> impl Iterator<Item = Piece> {
        let mut file = self
            .starts_records
            .partition_point(|start| *start <= run.record)
            .saturating_sub(1);
        let mut done = 0;
        std::iter::from_fn(move || {
            if done == run.count {
                return None;
            }
            let record = run.record + done;
            while self.starts_records[file + 1] <= record {
                file += 1;
            }
            let piece = Piece {
                file,
                record: record - self.starts_records[file],
                slot: run.slot + done,
                count: (self.starts_records[file + 1] - record).min(run.count - done),
            };
            done += piece.count;
            Some(piece)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// (file, record in file) of every slot, by walking the plan.
    fn walked(placement: &Placement, files: &FileList, chunk: u64) -> Vec<(usize, u64)> {
        let mut slots = Vec::new();
        let mut at = 0;
        while at < placement.count() {
            for run in placement.runs(at..at + chunk) {
                for piece in files.pieces(run) {
                    assert_eq!(piece.slot, slots.len() as u64);
                    assert!(piece.count > 0);
                    slots.extend((0..piece.count).map(|i| (piece.file, piece.record + i)));
                }
            }
            at = slots.len() as u64;
        }
        slots
    }

    /// Every record of the list in order.
    fn naive(counts: &[u64]) -> Vec<(usize, u64)> {
        counts
            .iter()
            .enumerate()
            .flat_map(|(file, count)| (0..*count).map(move |record| (file, record)))
            .collect()
    }

    proptest! {
        #[test]
        fn sequential_fills_exactly_the_own_partition(
            counts in prop::collection::vec(0u64..7, 0..6),
            per_rank in 0u64..9,
            world in 1u64..6,
            chunk in 1u64..9,
        ) {
            let records = naive(&counts);
            let files = FileList::new(counts.iter().copied()).unwrap();
            prop_assert_eq!(files.total_records(), records.len() as u64);
            let mut all = Vec::new();
            for rank in 0..world {
                let placement = Placement::sequential(rank * per_rank, per_rank, files.total_records());
                let mine = walked(&placement, &files, chunk);
                prop_assert!(mine.len() as u64 <= per_rank);
                all.extend(mine);
            }
            let covered = records.len().min((world * per_rank) as usize);
            prop_assert_eq!(&all[..], &records[..covered]);
        }

        #[test]
        fn round_robin_deals_blocks(
            counts in prop::collection::vec(0u64..11, 0..6),
            block in 1u64..5,
            world in 1u64..6,
            chunk in 1u64..9,
        ) {
            let records = naive(&counts);
            let files = FileList::new(counts.iter().copied()).unwrap();
            let mut hands = vec![Vec::new(); world as usize];
            for (e, record) in records.iter().enumerate() {
                let b = e as u64 / block;
                let hand = &mut hands[(b % world) as usize];
                prop_assert_eq!(hand.len() as u64, (b / world) * block + e as u64 % block);
                hand.push(*record);
            }
            for (rank, hand) in hands.iter().enumerate() {
                let placement = Placement::round_robin(block, world, rank as u64, files.total_records());
                prop_assert_eq!(&walked(&placement, &files, chunk), hand);
            }
        }
    }

    #[test]
    fn counts_are_64_bit() {
        let block = i32::MAX as u64;
        let placement = Placement::round_robin(block, 1 << 20, 3, 5 * block);
        assert_eq!(placement.count(), block);
        let run = placement.runs(block - 1..u64::MAX).next().unwrap();
        assert_eq!((run.record, run.count), (4 * block - 1, 1));
        assert_eq!(Placement::sequential(1 << 40, 1 << 40, 5).count(), 0);
        assert_eq!(FileList::new([u64::MAX, 1].into_iter()), None);
    }
}
