//! Checks of one-dimensional operands that the graph operations share.

use crate::error::{Result, ensure, fail};
use crate::kinds::DType;
use crate::tensor::{Array, Description};

/// # Errors
/// INVALID_INPUT unless the operand has one dimension.
pub fn one_dim(name: &str, description: &Description) -> Result<()> {
    ensure!(
        description.dim == 1,
        InvalidInput,
        "{name} has dim {}, it must have 1",
        description.dim
    );
    Ok(())
}

/// # Errors
/// LOGIC_ERROR for a stride other than 1 or a dtype that is none.
pub fn as_array(name: &str, description: &Description) -> Result<Array> {
    match description.to_array() {
        Some(array) => Ok(array),
        None => fail!(
            Logic,
            "{name} has stride {} and dtype {}; it needs stride 1 and a known dtype",
            description.strides[0],
            DType::name_of(description.dtype)
        ),
    }
}

/// # Errors
/// INVALID_INPUT for ids that are not INT or INT64.
pub fn id_dtype(name: &str, dtype: DType) -> Result<()> {
    ensure!(
        dtype.is_index(),
        InvalidInput,
        "{name} has dtype {dtype}, ids are INT or INT64"
    );
    Ok(())
}
