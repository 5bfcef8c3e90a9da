//! What the operations accept.

use super::*;
use crate::error::Kind;

fn array(dtype: DType) -> Operand {
    Operand {
        description: Description::array(4, 0, dtype.raw()),
        storage: Storage::Pointer(Address::NULL),
    }
}

#[test]
fn append_unique_codes() {
    let good = |dtype| AppendUnique {
        targets: array(dtype),
        neighbors: array(dtype),
        mapping: Operand::none(),
        context: Address(8),
    };
    assert!(good(DType::Int).check().is_ok());
    assert!(good(DType::Int64).check().is_ok());
    type Change = fn(&mut AppendUnique);
    let cases: [(Change, Kind); 6] = [
        (|a| a.targets.description.dim = 2, Kind::InvalidInput),
        (|a| a.neighbors.description.dim = 0, Kind::InvalidInput),
        (|a| a.mapping.description.dim = 2, Kind::InvalidInput),
        (|a| a.mapping = array(DType::Int64), Kind::InvalidInput),
        (|a| a.targets.description.strides[0] = 3, Kind::Logic),
        (|a| a.neighbors = array(DType::Int64), Kind::Logic),
    ];
    for (i, (change, kind)) in cases.into_iter().enumerate() {
        let mut append = good(DType::Int);
        change(&mut append);
        assert_eq!(append.check().unwrap_err().kind, kind, "case {i}");
    }
    assert_eq!(good(DType::Float).check().unwrap_err().kind, Kind::InvalidInput);
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
        (|s| s.output_columns.description.dim = 2, Kind::InvalidInput),
        (|s| s.columns = array(DType::Int64), Kind::InvalidInput),
        (|s| s.output_row_pointers.description.strides[0] = 2, Kind::Logic),
    ];
    for (i, (change, kind)) in cases.into_iter().enumerate() {
        let mut loops = good();
        change(&mut loops);
        assert_eq!(loops.check().unwrap_err().kind, kind, "case {i}");
    }
}
