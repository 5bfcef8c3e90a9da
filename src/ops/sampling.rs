//! Sampling of neighbours: what it accepts. The sampling itself is not in this version.

use super::arrays::{as_array, id_dtype, one_dim};
use crate::error::{Result, ensure, fail};
use crate::kinds::{DType, MemoryType};
use crate::tensor::{Operand, Storage};

/// The operands of both samplers; `weights` for the weighted one.
pub struct Sampling {
    pub row_pointers: Operand,
    pub columns: Operand,
    pub weights: Option<Operand>,
    pub centers: Operand,
    pub offsets: Operand,
}

/// The memory type that matters for the engine; plain memory counts as mapped.
fn distributed(operand: &Operand) -> Option<MemoryType> {
    match &operand.storage {
        Storage::Memory(memory) => {
            Some(memory.memory_type()).filter(|t| !matches!(t, MemoryType::Continuous | MemoryType::Chunked))
        }
        Storage::Pointer(_) => None,
    }
}

impl Sampling {
    /// # Errors
    /// In the order of the contract: INVALID_INPUT for memory types, dims and dtypes, LOGIC_ERROR for strides and the fixed dtypes.
    pub fn check(&self) -> Result<()> {
        self.check_memory()?;
        one_dim("the row pointer tensor", &self.row_pointers.description)?;
        one_dim("the column tensor", &self.columns.description)?;
        if let Some(weights) = &self.weights {
            one_dim("the weight tensor", &weights.description)?;
        }
        let rows = as_array("the row pointer tensor", &self.row_pointers.description)?;
        let columns = as_array("the column tensor", &self.columns.description)?;
        let weights = match &self.weights {
            Some(weights) => Some(as_array("the weight tensor", &weights.description)?),
            None => None,
        };
        one_dim("the center tensor", &self.centers.description)?;
        let centers = as_array("the center tensor", &self.centers.description)?;
        one_dim("the offset tensor", &self.offsets.description)?;
        let offsets = as_array("the offset tensor", &self.offsets.description)?;
        id_dtype("the center tensor", centers.dtype)?;
        id_dtype("the column tensor", columns.dtype)?;
        if let Some(weights) = weights {
            ensure!(
                matches!(weights.dtype, DType::Float | DType::Double),
                InvalidInput,
                "the weight tensor has dtype {}, weights are FLOAT or DOUBLE",
                weights.dtype
            );
        }
        ensure!(
            rows.dtype == DType::Int64,
            Logic,
            "the row pointer tensor has dtype {}, it must be INT64",
            rows.dtype
        );
        ensure!(
            offsets.dtype == DType::Int,
            Logic,
            "the offset tensor has dtype {}, it must be INT",
            offsets.dtype
        );
        Ok(())
    }

    fn check_memory(&self) -> Result<()> {
        let rows = distributed(&self.row_pointers);
        let columns = distributed(&self.columns);
        let weights = self.weights.as_ref().map(distributed);
        let fits = match weights {
            None => rows == columns && rows != Some(MemoryType::Hierarchy),
            Some(weights) => rows.is_none() && columns.is_none() && weights.is_none(),
        };
        ensure!(
            fits,
            InvalidInput,
            "the graph lies on memory that the sampler cannot read: row pointers and columns must both be mapped (CONTINUOUS, \
             CHUNKED or plain), or, without weights, both DISTRIBUTED"
        );
        Ok(())
    }

    /// # Errors
    /// NOT_IMPLEMENTED, always.
    pub fn run(&self) -> Result<()> {
        fail!(NotImplemented, "sampling of neighbours is not in this version")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use crate::span::Address;
    use crate::tensor::Description;

    fn operand(dtype: DType) -> Operand {
        Operand {
            description: Description::array(4, 0, dtype.raw()),
            storage: Storage::Pointer(Address::NULL),
        }
    }

    fn good() -> Sampling {
        Sampling {
            row_pointers: operand(DType::Int64),
            columns: operand(DType::Int),
            weights: Some(operand(DType::Float)),
            centers: operand(DType::Int64),
            offsets: operand(DType::Int),
        }
    }

    #[test]
    fn codes_follow_the_order_of_the_checks() {
        type Change = fn(&mut Sampling);
        let cases: [(Change, Kind); 9] = [
            (|s| s.row_pointers.description.dim = 2, Kind::InvalidInput),
            (|s| s.columns.description.dim = 0, Kind::InvalidInput),
            (|s| s.columns.description.strides[0] = 2, Kind::Logic),
            (|s| s.centers.description.dim = 2, Kind::InvalidInput),
            (|s| s.offsets.description.dtype = 0, Kind::Logic),
            (|s| s.centers = operand(DType::Float), Kind::InvalidInput),
            (|s| s.weights = Some(operand(DType::Half)), Kind::InvalidInput),
            (|s| s.row_pointers = operand(DType::Int), Kind::Logic),
            (|s| s.offsets = operand(DType::Int64), Kind::Logic),
        ];
        assert!(good().check().is_ok());
        for (i, (change, kind)) in cases.into_iter().enumerate() {
            let mut sampling = good();
            change(&mut sampling);
            assert_eq!(sampling.check().unwrap_err().kind, kind, "case {i}");
        }
        assert_eq!(good().run().unwrap_err().kind, Kind::NotImplemented);
    }
}
