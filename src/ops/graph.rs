//! Operations on graphs: what they accept. The operations themselves are not in this version.

use super::arrays::{as_array, id_dtype, one_dim};
use crate::error::{Result, ensure, fail};
use crate::kinds::DType;
use crate::tensor::Description;

/// The operands of `graph_append_unique`.
pub struct AppendUnique {
    pub targets: Description,
    pub neighbors: Description,
    /// Dim 0 if not wanted.
    pub mapping: Description,
}

impl AppendUnique {
    /// # Errors
    /// In the order of the contract: INVALID_INPUT for dims and dtypes, LOGIC_ERROR for strides and dtypes that differ.
    pub fn check(&self) -> Result<()> {
        one_dim("the target tensor", &self.targets)?;
        one_dim("the neighbor tensor", &self.neighbors)?;
        ensure!(
            self.mapping.dim == 0 || self.mapping.dim == 1,
            InvalidInput,
            "the mapping tensor has dim {}, it must have 1, or 0 if it is not wanted",
            self.mapping.dim
        );
        ensure!(
            self.mapping.dim == 0 || self.mapping.dtype == DType::Int.raw(),
            InvalidInput,
            "the mapping tensor has dtype {}, it must be INT",
            self.mapping.dtype as i32
        );
        let targets = as_array("the target tensor", &self.targets)?;
        let neighbors = as_array("the neighbor tensor", &self.neighbors)?;
        if self.mapping.dim == 1 {
            as_array("the mapping tensor", &self.mapping)?;
        }
        ensure!(
            targets.dtype == neighbors.dtype,
            Logic,
            "the targets have dtype {}, the neighbors {}; they must be the same",
            targets.dtype,
            neighbors.dtype
        );
        id_dtype("the target tensor", targets.dtype)
    }

    /// # Errors
    /// NOT_IMPLEMENTED, always.
    pub fn run(&self) -> Result<()> {
        fail!(NotImplemented, "graph_append_unique is not in this version")
    }
}

/// The operands of `csr_add_self_loop`.
pub struct SelfLoop {
    pub row_pointers: Description,
    pub columns: Description,
    pub output_row_pointers: Description,
    pub output_columns: Description,
}

impl SelfLoop {
    /// # Errors
    /// In the order of the contract: INVALID_INPUT for dims and dtypes, LOGIC_ERROR for strides.
    pub fn check(&self) -> Result<()> {
        let operands = [
            ("the row pointer tensor", &self.row_pointers),
            ("the column tensor", &self.columns),
            ("the output row pointer tensor", &self.output_row_pointers),
            ("the output column tensor", &self.output_columns),
        ];
        for (name, description) in operands {
            one_dim(name, description)?;
            ensure!(
                description.dtype == DType::Int.raw(),
                InvalidInput,
                "{name} has dtype {}, it must be INT",
                description.dtype as i32
            );
        }
        for (name, description) in operands {
            as_array(name, description)?;
        }
        Ok(())
    }

    /// # Errors
    /// NOT_IMPLEMENTED, always.
    pub fn run(&self) -> Result<()> {
        fail!(NotImplemented, "csr_add_self_loop is not in this version")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    fn array(dtype: DType) -> Description {
        Description::array(4, 0, dtype.raw())
    }

    #[test]
    fn append_unique_codes() {
        let good = |dtype| AppendUnique {
            targets: array(dtype),
            neighbors: array(dtype),
            mapping: Description::EMPTY,
        };
        assert!(good(DType::Int).check().is_ok());
        assert!(good(DType::Int64).check().is_ok());
        type Change = fn(&mut AppendUnique);
        let cases: [(Change, Kind); 6] = [
            (|a| a.targets.dim = 2, Kind::InvalidInput),
            (|a| a.neighbors.dim = 0, Kind::InvalidInput),
            (|a| a.mapping.dim = 2, Kind::InvalidInput),
            (|a| a.mapping = array(DType::Int64), Kind::InvalidInput),
            (|a| a.targets.strides[0] = 3, Kind::Logic),
            (|a| a.neighbors = array(DType::Int64), Kind::Logic),
        ];
        for (i, (change, kind)) in cases.into_iter().enumerate() {
            let mut append = good(DType::Int);
            change(&mut append);
            assert_eq!(append.check().unwrap_err().kind, kind, "case {i}");
        }
        assert_eq!(good(DType::Float).check().unwrap_err().kind, Kind::InvalidInput);
        assert_eq!(good(DType::Int).run().unwrap_err().kind, Kind::NotImplemented);
    }

    #[test]
    fn self_loop_codes() {
        let good = || SelfLoop {
            row_pointers: array(DType::Int),
            columns: array(DType::Int),
            output_row_pointers: array(DType::Int),
            output_columns: array(DType::Int),
        };
        assert!(good().check().is_ok());
        type Change = fn(&mut SelfLoop);
        let cases: [(Change, Kind); 3] = [
            (|s| s.output_columns.dim = 2, Kind::InvalidInput),
            (|s| s.columns = array(DType::Int64), Kind::InvalidInput),
            (|s| s.output_row_pointers.strides[0] = 2, Kind::Logic),
        ];
        for (i, (change, kind)) in cases.into_iter().enumerate() {
            let mut loops = good();
            change(&mut loops);
            assert_eq!(loops.check().unwrap_err().kind, kind, "case {i}");
        }
    }
}
