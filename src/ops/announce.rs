//! What every rank tells all others before rows move through a transport: the shape of its request and how many rows it
//! wants from, or has for, whom.

use super::leg::{Arena, Field, bytes_of, decode_words, encode_words};
use super::plan::{Placement, Plan};
use crate::error::{Error, Kind, Result, ensure};
use crate::kinds::DType;
use crate::memory::Partition;
use crate::platform::{Bootstrap, Indices, Places, Rows, Table, Workspace};
use crate::span::Address;

/// The geometry of one rank's request; whoever serves it works by this, not by what it passed itself. Ranks of equal shape
/// are served together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub table_dtype: DType,
    /// What travels: the narrower of the two dtypes of the request, so that every row is converted once.
    pub wire_dtype: DType,
    pub index_dtype: DType,
    pub cols: usize,
    pub row_stride_bytes: usize,
    pub offset_bytes: usize,
}

impl Shape {
    /// `None` for a flat table, which needs no exchange.
    pub fn of(plan: &Plan) -> Option<Shape> {
        let Placement::Ranks { offset_bytes, .. } = &plan.placement else {
            return None;
        };
        let (table, rows) = (plan.table_dtype, plan.rows.dtype);
        Some(Shape {
            table_dtype: table,
            wire_dtype: if rows.size_bytes() < table.size_bytes() {
                rows
            } else {
                table
            },
            index_dtype: plan.indices.dtype,
            cols: plan.cols,
            row_stride_bytes: plan.table_row_stride_bytes,
            offset_bytes: *offset_bytes,
        })
    }

    /// A row as it travels.
    pub fn row_bytes(&self) -> usize {
        self.cols * self.wire_dtype.size_bytes()
    }

    pub fn id_bytes(&self) -> usize {
        self.index_dtype.size_bytes()
    }

    /// `count` ids as they travel.
    pub fn ids(&self, address: Address, count: u64) -> Indices {
        Indices {
            address,
            dtype: self.index_dtype,
            count: count as usize,
        }
    }

    /// Rows as they travel.
    pub fn rows(&self, address: Address) -> Rows {
        Rows {
            address,
            row_stride_bytes: self.row_bytes(),
            dtype: self.wire_dtype,
        }
    }

    /// The same rows where kernels pick some by number.
    pub fn rows_as_table(&self, address: Address, count: u64) -> Table<'static> {
        Table {
            places: Places::Flat(address),
            offset_bytes: 0,
            row_stride_bytes: self.row_bytes(),
            rows: count,
            cols: self.cols,
            dtype: self.wire_dtype,
        }
    }
}

/// Positions, as [`Kernels::bucket`](crate::platform::Kernels::bucket) and `unique` write them.
pub fn positions(address: Address, count: u64) -> Indices {
    Indices {
        address,
        dtype: DType::Int64,
        count: count as usize,
    }
}

/// A caller's plain rows where kernels pick some by position.
pub fn plain_rows(plan: &Plan) -> Table<'static> {
    Table {
        places: Places::Flat(plan.rows.address),
        offset_bytes: 0,
        row_stride_bytes: plan.rows.row_stride_bytes,
        rows: plan.indices.count as u64,
        cols: plan.cols,
        dtype: plan.rows.dtype,
    }
}

/// The part of a table that this rank holds for the others.
#[derive(Clone, Copy)]
pub struct Served<'a> {
    pub partition: &'a Partition,
    pub rank: usize,
    /// `None` if the handle was freed here.
    pub own: Option<Address>,
    /// Equal on ranks that pass the same handle.
    pub identity: u64,
    /// How a gather reads rows of the own partition, if not from there alone.
    pub through: Option<&'a dyn Reader>,
}

/// Reads rows of a table for all ranks: `rows[i] = table[ids[i]]`.
pub trait Reader {
    /// Bytes that it needs to work in; addresses are not to be used.
    fn needs_bytes(&self, table: &Table<'_>, ids: &Indices, rows: &Rows) -> Result<usize>;

    fn read(&self, table: &Table<'_>, ids: &Indices, rows: &Rows, workspace: Workspace) -> Result<()>;
}

impl Served<'_> {
    /// The rows at which the partitions begin, and an end beyond all ids.
    pub fn start_rows(&self, shape: &Shape) -> Vec<u64> {
        let ranks = self.partition.world_ranks();
        (0..ranks)
            .map(|rank| (self.partition.offset_bytes(rank) / shape.row_stride_bytes) as u64)
            .chain([i64::MAX as u64])
            .collect()
    }

    /// The rows of all partitions; ids are below.
    pub fn rows(&self, shape: &Shape) -> u64 {
        self.partition.total_bytes().div_ceil(shape.row_stride_bytes) as u64
    }

    /// The own partition, its rows named by their numbers in the whole.
    pub fn table(&self, shape: &Shape) -> Table<'static> {
        let base = self.own.unwrap_or(Address::NULL);
        let begin_bytes = self.partition.offset_bytes(self.rank);
        let end_bytes = begin_bytes + self.partition.size_bytes(self.rank);
        Table {
            places: Places::Flat(Address(base.0.wrapping_sub(begin_bytes))),
            offset_bytes: shape.offset_bytes,
            row_stride_bytes: shape.row_stride_bytes,
            rows: end_bytes.div_ceil(shape.row_stride_bytes) as u64,
            cols: shape.cols,
            dtype: shape.table_dtype,
        }
    }
}

/// How requests are sorted before they leave: by owner, or by the owner's place in its node.
#[derive(Clone, Copy)]
pub struct Sorting<'a> {
    pub bucket_of_owner: &'a [u32],
    pub buckets: usize,
}

/// The own request, its ids sorted into buckets.
pub struct Sorted<'a> {
    pub plan: &'a Plan,
    pub ids: Address,
    /// Of each sorted id, its position in the caller's indices.
    pub positions: Address,
    counts: Vec<u64>,
    shape: Shape,
    _scratch: Arena<'a>,
}

impl<'a> Sorted<'a> {
    fn new(field: &Field<'a>, plan: &'a Plan, sorting: &Sorting<'_>) -> Result<Option<Sorted<'a>>> {
        let (Some(shape), Placement::Ranks { start_rows, .. }) = (Shape::of(plan), &plan.placement) else {
            return Ok(None);
        };
        let count = plan.indices.count as u64;
        let (scratch, [ids, positions]) = field.arena([
            bytes_of(count, shape.id_bytes()),
            bytes_of(count, DType::Int64.size_bytes()),
        ])?;
        let counts = field.bucket(
            &plan.indices,
            start_rows,
            sorting.bucket_of_owner,
            sorting.buckets,
            ids,
            positions,
        )?;
        Ok(Some(Sorted {
            plan,
            ids,
            positions,
            counts,
            shape,
            _scratch: scratch,
        }))
    }
}

/// One rank's message to all others.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Announcement {
    /// The rank can serve its partition.
    serves: bool,
    identity: u64,
    shape: Option<Shape>,
    /// Rows per bucket; empty without a shape.
    counts: Vec<u64>,
}

const SERVES: u64 = 1;
const MOVES: u64 = 2;

impl Announcement {
    fn encode(&self) -> Vec<u8> {
        let flag = |set: bool, bit: u64| if set { bit } else { 0 };
        let mut words = vec![
            flag(self.serves, SERVES) | flag(self.shape.is_some(), MOVES),
            self.identity,
        ];
        if let Some(shape) = &self.shape {
            words.extend([
                u64::from(shape.table_dtype.raw()),
                u64::from(shape.wire_dtype.raw()),
                u64::from(shape.index_dtype.raw()),
                shape.cols as u64,
                shape.row_stride_bytes as u64,
                shape.offset_bytes as u64,
            ]);
            words.extend(&self.counts);
        }
        encode_words(&words)
    }

    fn decode(bytes: &[u8], buckets: usize) -> Option<Announcement> {
        let words = decode_words(bytes);
        let (&[flags, identity], rest) = words.split_first_chunk::<2>()?;
        let dtype = |word: u64| DType::from_raw(u32::try_from(word).ok()?);
        let (shape, counts) = if flags & MOVES == 0 {
            (None, Vec::new())
        } else {
            let (&[table, wire, index, cols, stride, offset], counts) = rest.split_first_chunk::<6>()?;
            let shape = Shape {
                table_dtype: dtype(table)?,
                wire_dtype: dtype(wire)?,
                index_dtype: dtype(index)?,
                cols: cols as usize,
                row_stride_bytes: stride as usize,
                offset_bytes: offset as usize,
            };
            (Some(shape), counts.to_vec())
        };
        (shape.is_none() || counts.len() == buckets).then_some(Announcement {
            serves: flags & SERVES != 0,
            identity,
            shape,
            counts,
        })
    }

    fn wants_rows(&self) -> bool {
        self.counts.iter().any(|count| *count > 0)
    }
}

/// Requests of one shape, over all ranks of the call.
pub struct Pass<'a> {
    pub shape: Shape,
    /// The own request, if it has this shape.
    pub mine: Option<&'a Sorted<'a>>,
    announcements: &'a [Announcement],
}

/// What came of a pass. The outer error is one that all ranks return, so the call is over; the inner one is this rank's
/// alone, which goes on taking part.
pub type Passed = Result<Result<()>>;

impl Pass<'_> {
    /// The sorted ids of the own request; NULL where it is of another shape.
    pub fn sorted_ids(&self) -> Address {
        self.mine.map_or(Address::NULL, |mine| mine.ids)
    }

    /// How many rows `rank` has in `bucket`.
    pub fn count(&self, rank: usize, bucket: usize) -> u64 {
        let announcement = &self.announcements[rank];
        if announcement.shape == Some(self.shape) {
            announcement.counts[bucket]
        } else {
            0
        }
    }
}

/// Every rank's announcement, or the refusal of the lowest rank that cannot take part: it stands in the place of the
/// announcement, with a leading byte of 1.
pub fn tell<T>(
    world: &dyn Bootstrap,
    mine: std::result::Result<Vec<u8>, &Error>,
    decode: impl Fn(&[u8]) -> Option<T>,
) -> Result<Vec<T>> {
    let message = match &mine {
        Ok(announcement) => [&[0], &announcement[..]].concat(),
        Err(refusal) => [
            vec![1, refusal.kind.code() as u8],
            refusal.what.as_bytes().to_vec(),
        ]
        .concat(),
    };
    let messages = world.all_gather(&message)?;
    for (rank, message) in messages.iter().enumerate() {
        if let [1, code, what @ ..] = &message[..] {
            return Err(match mine {
                Err(own) => own.clone(),
                Ok(_) => Error::new(
                    Kind::from_code(u32::from(*code)),
                    format!("rank {rank}: {}", String::from_utf8_lossy(what)),
                ),
            });
        }
    }
    messages
        .iter()
        .enumerate()
        .map(|(rank, message)| {
            message.get(1..).and_then(&decode).ok_or_else(|| {
                let what = format!("rank {rank} announced its request in an unreadable message");
                Error::new(Kind::Communication, what)
            })
        })
        .collect()
}

/// Sorts the own request, tells the others, and runs `pass` for every shape that any rank asks for, in the same order on
/// all ranks. A rank without a plan takes part with no rows; one that is not `ready` for rows of others fails the call for
/// all. Collective over the world of `field`.
/// # Errors
/// On all ranks: what `ready` says, OUT_OF_MEMORY if one could not sort its request, LOGIC_ERROR if they passed different
/// handles or one that a rank has freed, and what ends a pass. On the own rank alone: failures of its kernels. Where ranks
/// ask for different shapes, rows of an earlier shape have arrived when a later pass ends the call.
pub fn run_passes(
    field: &Field<'_>,
    served: &Served<'_>,
    sorting: &Sorting<'_>,
    ready: Result<()>,
    plan: Option<&Plan>,
    pass: &mut dyn FnMut(&Pass<'_>) -> Passed,
) -> Result<()> {
    let sorted = ready.map(|()| plan.map(|plan| Sorted::new(field, plan, sorting)).transpose());
    let (sorted, mut failure, refusal) = match sorted {
        Ok(Ok(sorted)) => (sorted.flatten(), None, None),
        Ok(Err(error)) if error.kind == Kind::OutOfMemory => (None, None, Some(error)),
        Ok(Err(error)) => (None, Some(error), None),
        Err(error) => (None, None, Some(error)),
    };
    let mine = match &refusal {
        Some(error) => Err(error),
        None => Ok(Announcement {
            serves: served.own.is_some(),
            identity: served.identity,
            shape: sorted.as_ref().map(|s| s.shape),
            counts: sorted.as_ref().map_or_else(Vec::new, |s| s.counts.clone()),
        }
        .encode()),
    };
    let decode = |message: &[u8]| Announcement::decode(message, sorting.buckets);
    let announcements = tell(field.world, mine, decode)?;
    check_handles(&announcements)?;
    for (rank, announcement) in announcements.iter().enumerate() {
        let Some(shape) = announcement.shape else { continue };
        let same = |a: &&Announcement| a.shape == Some(shape);
        let seen = announcements[..rank].iter().any(|a| same(&a));
        let moves = announcements.iter().filter(same).any(|a| a.wants_rows());
        if !seen && moves {
            let passed = pass(&Pass {
                shape,
                mine: sorted.as_ref().filter(|s| s.shape == shape),
                announcements: &announcements,
            })?;
            failure = failure.or(passed.err());
        }
    }
    failure.map_or(Ok(()), Err)
}

/// All ranks come to the same answer.
fn check_handles(announcements: &[Announcement]) -> Result<()> {
    let wanted = announcements
        .iter()
        .any(|a| a.counts.iter().any(|count| *count > 0));
    if !wanted {
        return Ok(());
    }
    for (rank, announcement) in announcements.iter().enumerate() {
        ensure!(
            announcement.serves,
            Logic,
            "rank {rank} passed a table whose memory it has freed, so its rows cannot be reached"
        );
        ensure!(
            announcement.identity == announcements[0].identity,
            Logic,
            "rank 0 and rank {rank} passed tables on different memory handles"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_survive_the_wire() {
        let shape = Shape {
            table_dtype: DType::Float,
            wire_dtype: DType::Half,
            index_dtype: DType::Int64,
            cols: 33,
            row_stride_bytes: 1 << 40,
            offset_bytes: 12,
        };
        let full = Announcement {
            serves: true,
            identity: 7,
            shape: Some(shape),
            counts: vec![0, u64::MAX, 3],
        };
        assert_eq!(Announcement::decode(&full.encode(), 3), Some(full.clone()));
        assert_eq!(Announcement::decode(&full.encode(), 4), None);
        assert_eq!(Announcement::decode(&full.encode()[..15], 3), None);
        let idle = Announcement {
            serves: false,
            identity: u64::MAX,
            shape: None,
            counts: vec![],
        };
        assert_eq!(Announcement::decode(&idle.encode(), 3), Some(idle.clone()));
    }

    #[test]
    fn handles_must_be_alive_and_the_same_only_where_rows_move() {
        let one = |serves, identity, counts: &[u64]| Announcement {
            serves,
            identity,
            shape: None,
            counts: counts.to_vec(),
        };
        assert!(check_handles(&[one(true, 1, &[0, 0]), one(false, 2, &[])]).is_ok());
        let freed = check_handles(&[one(true, 1, &[0, 2]), one(false, 1, &[])]).unwrap_err();
        assert!(freed.what.starts_with("rank 1"), "{freed}");
        let other = check_handles(&[one(true, 1, &[0, 2]), one(true, 2, &[])]).unwrap_err();
        assert_eq!(other.kind, Kind::Logic);
    }
}
