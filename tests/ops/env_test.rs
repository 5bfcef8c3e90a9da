//! `env_test`: every dtype, strides, contexts, refusals.

use crate::grid::{Grid, describe, encode, pointer};
use crate::heap::Heap;
use wholegraph::error::{Kind, Result};
use wholegraph::kinds::{AllocationType, DType};
use wholegraph::ops::{self, EnvTestContexts};
use wholegraph::platform::Stream;
use wholegraph::span::Address;

const NONE: EnvTestContexts = EnvTestContexts {
    device: Address::NULL,
    pinned: Address::NULL,
    host: Address::NULL,
};

fn call(
    heap: &Heap,
    input: &mut Grid,
    output: &mut Grid,
    contexts: EnvTestContexts,
    entries: i64,
) -> Result<()> {
    let mut array = input.operand();
    array.description.dim = 1;
    array.description.sizes[0] = input.cols as i64;
    array.description.strides[0] = 1;
    ops::env_test(&array, &output.operand(), contexts, entries, heap, Stream(0))
}

#[test]
fn every_dtype_to_every_context() {
    let contexts = EnvTestContexts {
        device: Address(8),
        pinned: Address(16),
        host: Address(24),
    };
    for dtype in DType::ALL {
        for stride in [5, 8] {
            let mut input = Grid::new(dtype, 1, 5, 5, 2);
            input.set(0, |col| col * 3);
            let mut output = Grid::new(dtype, 7, 5, stride, 1);
            let mut want = output.clone();
            (0..7).for_each(|row| want.set(row, |col| col * 3 + row as i64));
            let heap = Heap::default();
            call(&heap, &mut input, &mut output, contexts, 7).unwrap();
            output.assert_same(&want, "fixed output");
            let dense: Vec<u8> = (0..35).flat_map(|i| encode(dtype, i % 5 * 3 + i / 5)).collect();
            let outputs = heap.outputs.borrow();
            let kinds = [
                AllocationType::Device,
                AllocationType::Pinned,
                AllocationType::Host,
            ];
            assert_eq!(outputs.len(), 3);
            for (output, (kind, context)) in outputs.iter().zip(kinds.into_iter().zip([8, 16, 24])) {
                assert_eq!((output.kind, output.context.0), (kind, context));
                let description = &output.description;
                assert_eq!((description.dim, &description.sizes[..2]), (2, &[7, 5][..]));
                assert_eq!(
                    (&description.strides[..2], description.storage_offset),
                    (&[5, 1][..], 0)
                );
                let bytes: Vec<u8> = output.words.iter().flat_map(|word| word.to_ne_bytes()).collect();
                assert_eq!(bytes[..dense.len()], dense);
            }
        }
    }
}

#[test]
fn empty_results_still_reach_their_contexts() {
    for (rows, cols) in [(0, 5), (3, 0)] {
        let mut input = Grid::new(DType::Int, 1, cols, cols, 0);
        let mut output = Grid::new(DType::Int, rows, cols, cols, 0);
        let heap = Heap::default();
        let contexts = EnvTestContexts {
            host: Address(8),
            ..NONE
        };
        call(&heap, &mut input, &mut output, contexts, rows as i64).unwrap();
        assert_eq!(heap.outputs.borrow().len(), 1);
        assert_eq!(heap.calls.get(), 1);
    }
}

#[test]
fn shapes_that_do_not_fit_are_refused_and_nothing_is_written() {
    let untouched = Grid::new(DType::Float, 4, 3, 3, 0);
    let mut input = Grid::new(DType::Float, 1, 3, 3, 0);
    input.set(0, |col| col);
    let refused = |array: &dyn Fn(&mut wholegraph::tensor::Operand), entries: i64, dtype: DType| {
        let mut input = input.clone();
        let mut output = untouched.clone();
        let mut operand = input.operand();
        operand.description.dim = 1;
        (operand.description.sizes[0], operand.description.strides[0]) = (3, 1);
        array(&mut operand);
        let mut fixed = output.operand();
        fixed.description.dtype = dtype.raw();
        let heap = Heap::default();
        let error = ops::env_test(&operand, &fixed, NONE, entries, &heap, Stream(0)).unwrap_err();
        assert_eq!(error.kind, Kind::InvalidInput, "{error}");
        output.assert_same(&untouched, "untouched");
    };
    refused(&|_| {}, 5, DType::Float);
    refused(&|_| {}, -4, DType::Float);
    refused(&|_| {}, 4, DType::Int);
    refused(&|input| input.description.dim = 2, 4, DType::Float);
    refused(&|input| input.description.sizes[0] = 2, 4, DType::Float);
    refused(&|input| input.description.dtype = 99, 4, DType::Float);
    refused(
        &|input| *input = pointer(describe(&[3], &[1], 0, DType::Float), 0),
        4,
        DType::Float,
    );
}

#[test]
fn a_missing_block_writes_nothing_and_leaks_nothing() {
    let contexts = EnvTestContexts {
        device: Address(8),
        pinned: Address(16),
        host: Address(24),
    };
    for failing in 0..4 {
        let mut input = Grid::new(DType::Half, 1, 3, 3, 0);
        input.set(0, |col| col);
        let mut output = Grid::new(DType::Half, 4, 3, 3, 0);
        let untouched = output.clone();
        let heap = Heap::failing_at(failing);
        let error = call(&heap, &mut input, &mut output, contexts, 4).unwrap_err();
        assert_eq!(error.kind, Kind::OutOfMemory);
        output.assert_same(&untouched, "untouched");
    }
}
