//! Operations on lists of nodes and on graphs in plain memory: `graph_append_unique`, `csr_add_self_loop`.

use super::Buffers;
use super::arrays::{as_array, id_dtype, one_dim};
use super::leg::with_workspace;
use super::operand::Data;
use super::route::lease;
use crate::error::{Result, ensure};
use crate::kinds::{AllocationType, DType};
use crate::platform::graph::SelfLoops;
use crate::platform::{self, Indices, Launch, Platform, Stream};
use crate::span::Address;
use crate::tensor::{Array, Description, Operand, Storage};

/// The operands of `graph_append_unique`.
pub struct AppendUnique {
    pub targets: Operand,
    pub neighbors: Operand,
    /// Dim 0 or NULL data if not wanted.
    pub mapping: Operand,
    /// The context of the output.
    pub context: Address,
}

const TARGETS: &str = "the target tensor";
const NEIGHBORS: &str = "the neighbor tensor";
const MAPPING: &str = "the mapping tensor";

/// The address of a checked array; NULL for an empty one.
fn array_at(
    name: &str,
    operand: &Operand,
    array: &Array,
    count: i64,
    platform: &dyn Platform,
) -> Result<Address> {
    if count == 0 {
        return Ok(Address::NULL);
    }
    let bytes = i128::from(count) * array.dtype.size_bytes() as i128;
    Data::of(operand, name)?.first(name, array.dtype, array.storage_offset, bytes, &|address| {
        platform.can_reach(address)
    })
}

/// # Errors
/// INVALID_INPUT for sizes and offsets below 0.
fn sized(name: &str, description: &Description) -> Result<Array> {
    let array = as_array(name, description)?;
    ensure!(
        array.size >= 0 && array.storage_offset >= 0,
        InvalidInput,
        "{name} has size {} and storage offset {}; neither may be negative",
        array.size,
        array.storage_offset
    );
    Ok(array)
}

impl AppendUnique {
    /// # Errors
    /// In the order of the contract: INVALID_INPUT for dims and dtypes, LOGIC_ERROR for strides and dtypes that differ.
    pub fn check(&self) -> Result<()> {
        let mapping = &self.mapping.description;
        one_dim(TARGETS, &self.targets.description)?;
        one_dim(NEIGHBORS, &self.neighbors.description)?;
        ensure!(
            mapping.dim == 0 || mapping.dim == 1,
            InvalidInput,
            "{MAPPING} has dim {}, it must have 1, or 0 if it is not wanted",
            mapping.dim
        );
        ensure!(
            mapping.dim == 0 || mapping.dtype == DType::Int.raw(),
            InvalidInput,
            "{MAPPING} has dtype {}, it must be INT",
            DType::name_of(mapping.dtype)
        );
        let targets = as_array(TARGETS, &self.targets.description)?;
        let neighbors = as_array(NEIGHBORS, &self.neighbors.description)?;
        if mapping.dim == 1 {
            as_array(MAPPING, mapping)?;
        }
        ensure!(
            targets.dtype == neighbors.dtype,
            Logic,
            "the targets have dtype {}, the neighbors {}; they must be the same",
            targets.dtype,
            neighbors.dtype
        );
        id_dtype(TARGETS, targets.dtype)
    }

    fn wants_mapping(&self) -> bool {
        let no_data = matches!(self.mapping.storage, Storage::Pointer(address) if address.is_null());
        self.mapping.description.dim == 1 && !no_data
    }

    /// Writes to an array of the caller's context (of the dtype of both lists) the targets as they are, then every neighbor
    /// that is not among them, once, in the order of first occurrence; and to the mapping, if wanted, where in that array each
    /// neighbor is (its first place). Either list may be empty, any value is an id. Work may go on in `stream` after the return.
    /// # Errors
    /// Those of [`check`](AppendUnique::check), then: INVALID_INPUT for data that cannot be reached, a mapping shorter than the
    /// neighbors, a missing context; INVALID_VALUE for 2^31 ids or more; NOT_SUPPORTED while the stream records a graph;
    /// OUT_OF_MEMORY. Nothing is written then.
    pub fn run(&self, outputs: Result<()>, buffers: &dyn Buffers, stream: Stream) -> Result<()> {
        let _leases = [&self.targets, &self.neighbors, &self.mapping].map(lease);
        self.check()?;
        ensure!(
            !self.context.is_null(),
            InvalidInput,
            "output_unique_node_memory_context is NULL, the operation needs it for its output"
        );
        outputs?;
        let platform = platform::current()?;
        platform.within(&mut || self.run_on(platform, buffers, stream))
    }

    fn run_on(&self, platform: &dyn Platform, buffers: &dyn Buffers, stream: Stream) -> Result<()> {
        platform.check_stream(stream)?;
        ensure!(
            !platform.is_capturing(stream)?,
            NotSupported,
            "graph_append_unique waits for the size of its output, which a recording stream (graph capture) cannot do"
        );
        let indices = |name: &str, operand: &Operand| -> Result<Indices> {
            let array = sized(name, &operand.description)?;
            Ok(Indices {
                address: array_at(name, operand, &array, array.size, platform)?,
                dtype: array.dtype,
                count: array.size as usize,
            })
        };
        let targets = indices(TARGETS, &self.targets)?;
        let neighbors = indices(NEIGHBORS, &self.neighbors)?;
        let ids = targets.count as u128 + neighbors.count as u128;
        ensure!(
            ids <= i32::MAX as u128,
            InvalidValue,
            "{} targets and {} neighbors are more ids than a mapping of INT can number",
            targets.count,
            neighbors.count
        );
        let map = match self.wants_mapping() {
            true => self.mapping_at(neighbors.count as i64, platform)?,
            false => Address::NULL,
        };
        let output = |count: u64| {
            let description = Description::array(count as i64, 0, targets.dtype.raw());
            buffers.output(&description, AllocationType::Device, self.context)
        };
        if ids == 0 {
            return output(0).map(drop);
        }
        let kernels = platform.graph();
        let bytes = kernels.append_unique_workspace_bytes(&targets, &neighbors)?;
        let launch = Launch {
            stream,
            ..Launch::default()
        };
        with_workspace(buffers, bytes, launch, |launch| {
            let new_ids = kernels.append_unique_count(&targets, &neighbors, launch)?;
            let unique = output(targets.count as u64 + new_ids)?;
            kernels.append_unique_write(&targets, &neighbors, new_ids, unique, map, launch)
        })
    }

    fn mapping_at(&self, neighbors: i64, platform: &dyn Platform) -> Result<Address> {
        let array = sized(MAPPING, &self.mapping.description)?;
        ensure!(
            array.size >= neighbors,
            InvalidInput,
            "{MAPPING} has {} elements for {neighbors} neighbors; every neighbor needs one",
            array.size
        );
        Data::written(&self.mapping, MAPPING)?;
        array_at(MAPPING, &self.mapping, &array, neighbors, platform)
    }
}

/// The operands of `csr_add_self_loop`.
pub struct SelfLoop {
    pub row_pointers: Operand,
    pub columns: Operand,
    pub output_row_pointers: Operand,
    pub output_columns: Operand,
}

impl SelfLoop {
    fn operands(&self) -> [(&'static str, &Operand); 4] {
        [
            ("the row pointer tensor", &self.row_pointers),
            ("the column tensor", &self.columns),
            ("the output row pointer tensor", &self.output_row_pointers),
            ("the output column tensor", &self.output_columns),
        ]
    }

    /// # Errors
    /// In the order of the contract: INVALID_INPUT for dims and dtypes, LOGIC_ERROR for strides.
    pub fn check(&self) -> Result<()> {
        for (name, operand) in self.operands() {
            one_dim(name, &operand.description)?;
            ensure!(
                operand.description.dtype == DType::Int.raw(),
                InvalidInput,
                "{name} has dtype {}, it must be INT",
                DType::name_of(operand.description.dtype)
            );
        }
        for (name, operand) in self.operands() {
            as_array(name, &operand.description)?;
        }
        Ok(())
    }

    /// Puts an edge from every node to itself in front of its edges: `out_row[r] = row[r] + r`, row r of the output is r, then
    /// its columns in their order (self loops among them stay). Work may go on in `stream` after the return.
    /// # Errors
    /// Those of [`check`](SelfLoop::check), then: INVALID_INPUT for data that cannot be reached, no row pointer at all, outputs
    /// that are too short; INVALID_VALUE for results that INT cannot number and, on platforms that are done on return, for
    /// row pointers that decrease or leave the columns (others leave the columns of such rows unwritten).
    pub fn run(&self, stream: Stream) -> Result<()> {
        let _leases = self.operands().map(|(_, operand)| lease(operand));
        self.check()?;
        for (name, output) in &self.operands()[2..] {
            Data::written(output, name)?;
        }
        let platform = platform::current()?;
        platform.within(&mut || self.run_on(platform, stream))
    }

    fn run_on(&self, platform: &dyn Platform, stream: Stream) -> Result<()> {
        platform.check_stream(stream)?;
        let [pointers, columns, out_pointers, out_columns] = self.operands();
        let size = |(name, operand): (&str, &Operand)| sized(name, &operand.description);
        let pointer_array = size(pointers)?;
        ensure!(
            pointer_array.size >= 1,
            InvalidInput,
            "the row pointer tensor is empty; it needs one element more than there are rows"
        );
        let (rows, edges) = (pointer_array.size - 1, size(columns)?.size);
        ensure!(
            rows.saturating_add(edges) <= i64::from(i32::MAX),
            InvalidValue,
            "{rows} rows and {edges} columns are more edges than row pointers of INT can number"
        );
        let at = |which: (&str, &Operand), needed: i64| -> Result<Address> {
            let array = size(which)?;
            ensure!(
                array.size >= needed,
                InvalidInput,
                "{} has {} elements, the result has {needed}",
                which.0,
                array.size
            );
            array_at(which.0, which.1, &array, needed, platform)
        };
        let loops = SelfLoops {
            row_pointers: at(pointers, rows + 1)?,
            rows: rows as u64,
            columns: at(columns, edges)?,
            edges: edges as u64,
            row_pointers_out: at(out_pointers, rows + 1)?,
            columns_out: at(out_columns, rows + edges)?,
        };
        let launch = Launch {
            stream,
            ..Launch::default()
        };
        platform.graph().add_self_loops(&loops, launch)
    }
}

#[cfg(test)]
mod tests;
