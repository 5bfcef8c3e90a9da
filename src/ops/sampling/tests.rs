//! What the samplers accept.

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
        most: 3,
        seed: 0,
        contexts: SampleContexts::default(),
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
}
