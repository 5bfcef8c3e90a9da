//! How a rank hands its device memory to others: as file descriptors within a host, as handles of an NVLink fabric between
//! hosts.

use crate::error::{Error, Kind, Result};
use crate::platform::Bootstrap;
use cudarc::driver::sys::CUmemAllocationHandleType;
use std::os::fd::{AsFd, OwnedFd};

/// One for all memory of a communicator; the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handover {
    Descriptors,
    Fabric,
}

impl Handover {
    pub fn kind(self) -> CUmemAllocationHandleType {
        match self {
            Handover::Descriptors => CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            Handover::Fabric => CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_FABRIC,
        }
    }
}

/// `sizeof(CUmemFabricHandle)`.
pub const FABRIC_HANDLE_BYTES: usize = 64;

/// What stands for a piece of memory of one rank, here or there.
#[derive(Debug)]
pub enum Ticket {
    Descriptor(OwnedFd),
    /// Valid while the memory is.
    Fabric([u8; FABRIC_HANDLE_BYTES]),
}

/// Every rank's ticket to every rank; none of ranks that have none. Collective.
/// # Errors
/// COMMUNICATION_ERROR, SYSTEM_ERROR (no descriptors left); the same on all ranks.
pub fn exchange(
    boot: &dyn Bootstrap,
    handover: Handover,
    mine: Option<&Ticket>,
) -> Result<Vec<Option<Ticket>>> {
    match handover {
        Handover::Descriptors => {
            let mine = mine.and_then(|ticket| match ticket {
                Ticket::Descriptor(fd) => Some(fd.as_fd()),
                Ticket::Fabric(_) => None,
            });
            let all = boot.exchange_descriptors(mine)?;
            Ok(all.into_iter().map(|fd| fd.map(Ticket::Descriptor)).collect())
        }
        Handover::Fabric => {
            let mine: &[u8] = match mine {
                Some(Ticket::Fabric(bytes)) => bytes,
                Some(Ticket::Descriptor(_)) | None => &[],
            };
            let read = |bytes: &Vec<u8>| match bytes.len() {
                0 => Ok(None),
                _ => <[u8; FABRIC_HANDLE_BYTES]>::try_from(bytes.as_slice())
                    .map(|bytes| Some(Ticket::Fabric(bytes)))
                    .map_err(|_| {
                        let what = "a rank sent an unreadable handle of its memory";
                        Error::new(Kind::Communication, what)
                    }),
            };
            boot.all_gather(mine)?.iter().map(read).collect()
        }
    }
}
