//! Ids, perhaps each with a row of values, on their way to the ranks that own them.

use super::announce::tell;
use super::in_place::{Layout, Reading, Spot, leave};
use super::leg::{Arena, Circle, Field, Leg, bytes_of, decode_words, encode_words};
use crate::error::{Error, Kind, Result, ensure};
use crate::kinds::DType;
use crate::platform::learning::Lot;
use crate::platform::{Indices, Places, Rows, Table, Workspace};
use crate::span::Address;

/// What one rank sends.
#[derive(Clone, Copy, Debug)]
pub struct Parcel {
    pub ids: Indices,
    /// Of floating-point types; one row an id.
    pub rows: Option<Rows>,
    /// Columns of `rows`.
    pub cols: usize,
}

/// What one rank has of others: in the order of the ranks, and of each rank in its order. It stays as long as this value.
pub struct Delivery<'a> {
    pub parcel: Parcel,
    /// Which of the parcel's rows belongs to which id, as in [`Step::lots`](crate::platform::learning::Step::lots).
    pub lots: Vec<Lot>,
    /// To work on it in.
    pub workspace: Workspace,
    _scratch: Arena<'a>,
    _reading: Option<Reading>,
}

impl<'a> Delivery<'a> {
    /// Of rows that lie one behind the other.
    fn at_hand(parcel: Parcel, workspace: Workspace, scratch: Arena<'a>) -> Delivery<'a> {
        Delivery {
            parcel,
            lots: Vec::new(),
            workspace,
            _scratch: scratch,
            _reading: None,
        }
    }

    /// Of rows that lie where their ranks left them.
    pub fn in_place(
        parcel: Parcel,
        lots: Vec<Lot>,
        workspace: Workspace,
        scratch: Arena<'a>,
        reading: Reading,
    ) -> Delivery<'a> {
        Delivery {
            parcel,
            lots,
            workspace,
            _scratch: scratch,
            _reading: Some(reading),
        }
    }
}

/// Bytes that a rank needs to work on what it is given; addresses in it are not to be used.
pub type Needs<'a> = &'a dyn Fn(&Parcel) -> Result<usize>;

/// A parcel that stays where it is, because its rank owns all rows.
/// # Errors
/// OUT_OF_MEMORY; those of `needs`.
pub fn keep<'a>(field: &Field<'a>, parcel: Parcel, needs: Needs<'_>) -> Result<Delivery<'a>> {
    let bytes = needs(&parcel)?;
    let (scratch, [address]) = field.arena([bytes as u128])?;
    Ok(Delivery::at_hand(parcel, Workspace { address, bytes }, scratch))
}

/// Who owns what, and which call this is.
#[derive(Clone, Copy)]
pub struct Owners<'a> {
    /// The first row of every rank and the end of all rows; ids outside are left out.
    pub start_rows: &'a [u64],
    /// Equal on ranks that pass the same object.
    pub identity: u64,
    /// This rank can take what is its own.
    pub serves: bool,
}

/// The own parcel sorted by owner.
struct Packed<'a> {
    parcel: Parcel,
    ids: Address,
    positions: Address,
    counts: Vec<u64>,
    _scratch: Arena<'a>,
}

impl<'a> Packed<'a> {
    fn new(field: &Field<'a>, owners: &Owners<'_>, parcel: Parcel) -> Result<Packed<'a>> {
        let count = parcel.ids.count as u64;
        let ranks = owners.start_rows.len() - 1;
        let (scratch, [ids, positions]) = field.arena([
            bytes_of(count, parcel.ids.dtype.size_bytes()),
            bytes_of(count, DType::Int64.size_bytes()),
        ])?;
        let by_owner: Vec<u32> = (0..ranks as u32).collect();
        let counts = field.bucket(&parcel.ids, owners.start_rows, &by_owner, ranks, ids, positions)?;
        Ok(Packed {
            parcel,
            ids,
            positions,
            counts,
            _scratch: scratch,
        })
    }
}

/// One rank's message to all others.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Announcement {
    serves: bool,
    identity: u64,
    id_dtype: DType,
    /// `None` for ids without rows.
    row_dtype: Option<DType>,
    cols: u64,
    /// What it holds of a window (`Window::held_bytes`).
    window_bytes: u64,
    /// Ids for each rank.
    counts: Vec<u64>,
}

impl Announcement {
    fn encode(&self) -> Vec<u8> {
        let row_dtype = self.row_dtype.map_or(0, DType::raw);
        let mut words = vec![
            u64::from(self.serves),
            self.identity,
            self.id_dtype.raw().into(),
            row_dtype.into(),
            self.cols,
            self.window_bytes,
        ];
        words.extend(&self.counts);
        encode_words(&words)
    }

    fn decode(bytes: &[u8], ranks: usize) -> Option<Announcement> {
        let words = decode_words(bytes);
        let (&[serves, identity, id, row, cols, window_bytes], counts) = words.split_first_chunk::<6>()?;
        (counts.len() == ranks).then_some(Announcement {
            serves: serves != 0,
            identity,
            id_dtype: DType::from_raw(id as u32)?,
            row_dtype: DType::from_raw(row as u32),
            cols,
            window_bytes,
            counts: counts.to_vec(),
        })
    }

    fn moves(&self) -> bool {
        self.counts.iter().any(|count| *count > 0)
    }
}

/// How everything travels; the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wire {
    id_dtype: DType,
    row_dtype: Option<DType>,
    cols: u64,
    /// The rank whose columns count.
    leader: usize,
}

impl Wire {
    /// Types that all ranks with something to send agree in travel as they are, else they are widened. The columns are those
    /// of the lowest such rank. `None` if nothing moves.
    fn of(announcements: &[Announcement]) -> Option<Wire> {
        let moving = || announcements.iter().enumerate().filter(|(_, a)| a.moves());
        let (leader, first) = moving().next()?;
        let same_ids = moving().all(|(_, a)| a.id_dtype == first.id_dtype);
        let same_rows = moving().all(|(_, a)| a.row_dtype == first.row_dtype);
        Some(Wire {
            id_dtype: if same_ids { first.id_dtype } else { DType::Int64 },
            row_dtype: if same_rows {
                first.row_dtype
            } else {
                Some(DType::Float)
            },
            cols: first.cols,
            leader,
        })
    }

    /// What a rank sends to another: nothing if its rows have other columns than the leader's.
    fn count(&self, from: &Announcement, to: usize) -> u64 {
        if from.cols == self.cols {
            from.counts[to]
        } else {
            0
        }
    }

    fn row_bytes(&self) -> usize {
        self.row_dtype
            .map_or(0, |dtype| self.cols as usize * dtype.size_bytes())
    }
}

/// Brings every parcel's ids and rows to their owners; `None` if no rank has any. A rank without a parcel takes part; one that
/// had no room for its own brings that error. Collective over the circle, which is the world of `field`. All parcels have rows, or
/// none has.
/// # Errors
/// Outer ones are those of all ranks, or the communicator is broken: OUT_OF_MEMORY if one has no room, LOGIC_ERROR for different objects or one that a
/// rank has destroyed, COMMUNICATION_ERROR, and where ranks read each other's rows in place, failures of one's kernels. The inner
/// one is this rank's alone, which has what the others sent all the same: INVALID_INPUT if its rows have other columns than those
/// of the first rank that sends some; failures of its kernels.
pub fn deliver<'a>(
    field: &Field<'a>,
    circle: Circle<'_>,
    owners: &Owners<'_>,
    mine: Result<Option<Parcel>>,
    needs: Needs<'_>,
) -> Result<(Option<Delivery<'a>>, Result<()>)> {
    let ranks = circle.boot.size();
    let packed = mine.and_then(|mine| {
        mine.filter(|parcel| parcel.ids.count > 0)
            .map(|parcel| Packed::new(field, owners, parcel))
            .transpose()
    });
    let (packed, mut failure, refusal) = match packed {
        Ok(packed) => (packed, Ok(()), None),
        Err(error) if error.kind == Kind::OutOfMemory => (None, Ok(()), Some(error)),
        Err(error) => (None, Err(error), None),
    };
    let message = match (&refusal, &packed) {
        (Some(error), _) => Err(error),
        (None, packed) => Ok(Announcement {
            serves: owners.serves,
            identity: owners.identity,
            id_dtype: packed.as_ref().map_or(DType::Int64, |p| p.parcel.ids.dtype),
            row_dtype: packed.as_ref().and_then(|p| Some(p.parcel.rows?.dtype)),
            cols: packed.as_ref().map_or(0, |p| p.parcel.cols as u64),
            window_bytes: circle.transport.window().map_or(0, |w| w.held_bytes() as u64),
            counts: packed
                .as_ref()
                .map_or_else(|| vec![0; ranks], |p| p.counts.clone()),
        }
        .encode()),
    };
    let announcements: Vec<Announcement> = tell(field.world, message, |m| Announcement::decode(m, ranks))?;
    let Some(wire) = Wire::of(&announcements) else {
        return Ok((None, failure));
    };
    check(&announcements)?;

    let me = circle.boot.rank();
    let leg = Leg {
        circle,
        sent: (0..ranks).map(|to| wire.count(&announcements[me], to)).collect(),
        received: announcements.iter().map(|from| wire.count(from, me)).collect(),
    };
    let packed = packed.filter(|packed| {
        let fits = packed.parcel.cols as u64 == wire.cols || !announcements[me].moves();
        if !fits {
            failure = Err(Error::new(
                Kind::InvalidInput,
                format!(
                    "the gradients have {} columns here and {} on rank {}",
                    packed.parcel.cols, wire.cols, wire.leader
                ),
            ));
        }
        fits
    });
    let (sent, received) = (leg.sent_count(), leg.received_count());
    let id_bytes = wire.id_dtype.size_bytes();
    let wire_rows = |address| {
        wire.row_dtype.map(|dtype| Rows {
            address,
            row_stride_bytes: wire.row_bytes(),
            dtype,
        })
    };
    let given = |ids, rows| Parcel {
        ids: Indices {
            address: ids,
            dtype: wire.id_dtype,
            count: received as usize,
        },
        rows: wire_rows(rows),
        cols: wire.cols as usize,
    };
    let unplaced = given(Address::NULL, Address::NULL);
    if wire.row_dtype.is_some() {
        let layout = Layout {
            counts: announcements
                .iter()
                .map(|from| (0..ranks).map(|to| wire.count(from, to)).collect())
                .collect(),
            row_bytes: wire.row_bytes() as u64,
            id_bytes: id_bytes as u64,
        };
        let mut put = |spot: Spot| {
            let Some(packed) = packed.as_ref().filter(|_| sent > 0) else {
                return Ok(());
            };
            if let (Some(rows), Some(out)) = (&packed.parcel.rows, wire_rows(spot.rows)) {
                sort(field, packed, rows, packed.parcel.cols, &out)?;
            }
            if packed.parcel.ids.dtype != wire.id_dtype {
                return sort_ids(field, packed, spot.ids, wire.id_dtype);
            }
            field.platform.copy(
                spot.ids,
                packed.ids,
                sent as usize * id_bytes,
                field.launch.stream,
            )
        };
        let held_by_all = announcements.iter().map(|a| a.window_bytes).min();
        let held_by_all_bytes = held_by_all.unwrap_or(0) as usize;
        let left = leave(
            field,
            circle,
            &layout,
            held_by_all_bytes,
            unplaced,
            needs,
            &mut put,
        )?;
        if let Some((delivery, read)) = left {
            return Ok((delivery, failure.and(read)));
        }
    }
    let room = needs(&unplaced).and_then(|bytes| {
        let (scratch, places) = field.arena([
            bytes_of(sent, id_bytes),
            bytes_of(received, id_bytes),
            bytes_of(sent, wire.row_bytes()),
            bytes_of(received, wire.row_bytes()),
            bytes as u128,
        ])?;
        Ok((scratch, places, bytes))
    });
    let (scratch, [ids_out, ids_in, rows_out, rows_in, address], bytes) = field.agree_room(room)?;
    let ids = match &packed {
        Some(packed) if packed.parcel.ids.dtype == wire.id_dtype => Ok(packed.ids),
        Some(packed) => sort_ids(field, packed, ids_out, wire.id_dtype).map(|()| ids_out),
        None => Ok(Address::NULL),
    };
    // A rank whose kernels fail has announced its ids, so it sends what is there.
    let ids_from = *ids.as_ref().unwrap_or(&ids_out);
    failure = failure.and(ids.map(drop));
    if let (Some(packed), Some(out)) = (&packed, wire_rows(rows_out))
        && let Some(rows) = &packed.parcel.rows
    {
        failure = failure.and(sort(field, packed, rows, packed.parcel.cols, &out));
    }
    let things = [
        (ids_from, ids_in, id_bytes),
        (rows_out, rows_in, wire.row_bytes()),
    ];
    leg.forward_all(field, &things[..1 + usize::from(wire.row_dtype.is_some())])?;
    let delivery = Delivery::at_hand(given(ids_in, rows_in), Workspace { address, bytes }, scratch);
    Ok((Some(delivery), failure))
}

/// The parcel's ids as [`sort`] puts its values.
fn sort_ids(field: &Field<'_>, packed: &Packed<'_>, to: Address, dtype: DType) -> Result<()> {
    let plain = |address, dtype: DType| Rows {
        address,
        row_stride_bytes: dtype.size_bytes(),
        dtype,
    };
    let given = plain(packed.parcel.ids.address, packed.parcel.ids.dtype);
    sort(field, packed, &given, 1, &plain(to, dtype))
}

/// Values of the parcel, `cols` of each, in the order in which they leave and in the type in which they travel.
fn sort(field: &Field<'_>, packed: &Packed<'_>, from: &Rows, cols: usize, out: &Rows) -> Result<()> {
    let count = packed.counts.iter().sum::<u64>();
    let table = Table {
        places: Places::Flat(from.address),
        offset_bytes: 0,
        row_stride_bytes: from.row_stride_bytes,
        rows: packed.parcel.ids.count as u64,
        cols,
        dtype: from.dtype,
    };
    let positions = Indices {
        address: packed.positions,
        dtype: DType::Int64,
        count: count as usize,
    };
    field.gather(&table, &positions, out, field.plain_launch())
}

/// All ranks come to the same answer.
fn check(announcements: &[Announcement]) -> Result<()> {
    for (rank, announcement) in announcements.iter().enumerate() {
        ensure!(
            announcement.serves,
            Logic,
            "rank {rank} passed an embedding that it has destroyed, so its rows cannot be reached"
        );
        ensure!(
            announcement.identity == announcements[0].identity,
            Logic,
            "rank 0 and rank {rank} passed different embeddings"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(id_dtype: DType, row_dtype: DType, cols: u64, counts: &[u64]) -> Announcement {
        Announcement {
            serves: true,
            identity: 3,
            id_dtype,
            row_dtype: Some(row_dtype),
            cols,
            window_bytes: 1 << 40,
            counts: counts.to_vec(),
        }
    }

    #[test]
    fn announcements_survive_the_wire() {
        let full = one(DType::Int, DType::Bf16, 1 << 33, &[1, 0, u64::MAX]);
        assert_eq!(Announcement::decode(&full.encode(), 3), Some(full.clone()));
        assert_eq!(Announcement::decode(&full.encode(), 2), None);
        assert_eq!(Announcement::decode(&full.encode()[..47], 3), None);
        let bare = Announcement {
            serves: false,
            row_dtype: None,
            ..full
        };
        assert_eq!(Announcement::decode(&bare.encode(), 3), Some(bare));
    }

    #[test]
    fn what_travels_is_what_the_senders_agree_in() {
        use DType::*;
        let idle = one(Int64, Double, 9, &[0, 0]);
        assert_eq!(Wire::of(&[idle.clone(), idle.clone()]), None);
        let half = one(Int, Half, 7, &[1, 0]);
        let wire = Wire::of(&[idle.clone(), half.clone()]).unwrap();
        assert_eq!(
            (wire.id_dtype, wire.row_dtype, wire.cols, wire.leader),
            (Int, Some(Half), 7, 1)
        );
        let mixed = Wire::of(&[half.clone(), one(Int64, Bf16, 7, &[0, 2])]).unwrap();
        assert_eq!((mixed.id_dtype, mixed.row_dtype), (Int64, Some(Float)));
        let narrow = one(Int, Half, 6, &[4, 4]);
        let wire = Wire::of(&[half.clone(), narrow.clone()]).unwrap();
        assert_eq!((wire.count(&half, 0), wire.count(&narrow, 0)), (1, 0));
    }

    #[test]
    fn embeddings_must_be_the_same_and_alive() {
        let good = one(DType::Int, DType::Half, 7, &[1, 0]);
        assert!(check(&[good.clone(), good.clone()]).is_ok());
        let gone = Announcement {
            serves: false,
            ..good.clone()
        };
        let error = check(&[good.clone(), gone]).unwrap_err();
        assert!(error.what.starts_with("rank 1 passed"), "{error}");
        let other = Announcement {
            identity: 4,
            ..good.clone()
        };
        assert_eq!(check(&[good, other]).unwrap_err().kind, Kind::Logic);
    }
}
