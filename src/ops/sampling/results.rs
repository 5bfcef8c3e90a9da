//! From counts to outputs: what a count must not be, and where the results go.

use super::reading::Request;
use super::{SampleContexts, distributed};
use crate::error::{Error, Kind, Result, ensure};
use crate::kinds::{AllocationType, DType};
use crate::platform::Indices;
use crate::platform::graph::{BadCenter, Counted};
use crate::span::Address;
use crate::tensor::Description;

/// The blocks of a call's outputs; NULL where not wanted (or of no bytes).
#[derive(Clone, Copy, Debug, Default)]
pub struct Results {
    pub dest: Address,
    pub center_localid: Address,
    pub edge_gid: Address,
}

impl Request<'_> {
    /// What was counted, if it can be sampled.
    /// # Errors
    /// INVALID_VALUE for a center that is no node or whose span is none of the columns, and for totals beyond INT.
    pub fn accept(&self, counted: &Counted, centers: &Indices, nodes: u64, edges: u64) -> Result<u64> {
        if let Some(bad) = &counted.bad {
            return Err(self.refusal(bad, centers, nodes, edges));
        }
        ensure!(
            counted.total <= i32::MAX as u64,
            InvalidValue,
            "{} centers have {} neighbours to take, more than the {} that offsets of INT can count; pass fewer centers or a lower \
             max_sample_count",
            centers.count,
            counted.total,
            i32::MAX
        );
        Ok(counted.total)
    }

    fn refusal(&self, bad: &BadCenter, centers: &Indices, nodes: u64, edges: u64) -> Error {
        let at = bad.position as usize * centers.dtype.size_bytes();
        let id = match self.read_id(centers.address.offset_bytes(at), centers.dtype) {
            Ok(id) => id,
            Err(error) => return error,
        };
        let what = if id < 0 || id as u64 >= nodes {
            format!(
                "center_nodes[{}] is {id}, the graph has {nodes} nodes",
                bad.position
            )
        } else {
            format!(
                "center_nodes[{}] is {id}, and the row pointers say that its neighbours are columns {} to {}: they must ascend from \
                 0 to at most the {edges} columns",
                bad.position, bad.start, bad.end
            )
        };
        Error::new(Kind::InvalidValue, what)
    }

    /// Asks for the outputs of `total` neighbours, in the order of the contract: edges first where the graph lies apart.
    /// # Errors
    /// OUT_OF_MEMORY.
    pub fn outputs(&self, total: u64, columns: DType) -> Result<Results> {
        let SampleContexts {
            dest,
            center_localid,
            edge_gid,
        } = self.sampling.contexts;
        let apart = distributed(&self.sampling.row_pointers).is_some();
        let edges = || self.output(total, DType::Int64, edge_gid);
        let early = if apart { edges()? } else { Address::NULL };
        Ok(Results {
            dest: self.output(total, columns, dest)?,
            center_localid: self.output(total, DType::Int, center_localid)?,
            edge_gid: if apart { early } else { edges()? },
        })
    }

    fn output(&self, total: u64, dtype: DType, context: Address) -> Result<Address> {
        if context.is_null() {
            return Ok(Address::NULL);
        }
        let description = Description::array(total as i64, 0, dtype.raw());
        self.buffers.output(&description, AllocationType::Device, context)
    }

    /// The offsets of a call without centers.
    pub fn write_no_offsets(&self, offsets: Address) -> Result<()> {
        let zero = 0i32;
        let from = Address(std::ptr::from_ref(&zero) as usize);
        self.platform.copy(offsets, from, size_of::<i32>(), self.stream)?;
        self.platform.synchronize(self.stream)
    }

    /// An id of the caller, for the words of an error.
    fn read_id(&self, from: Address, dtype: DType) -> Result<i64> {
        let mut bytes = [0u8; 8];
        let to = Address(bytes.as_mut_ptr() as usize);
        self.platform.copy(to, from, dtype.size_bytes(), self.stream)?;
        self.platform.synchronize(self.stream)?;
        let word = i64::from_le_bytes(std::hint::black_box(bytes));
        Ok(match dtype {
            DType::Int64 => word,
            _ => i64::from(word as i32),
        })
    }
}
