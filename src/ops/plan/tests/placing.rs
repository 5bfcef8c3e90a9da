//! Where the rows of tables on handles are.

use super::*;

#[test]
fn tables_that_are_apart_have_rows_inside_partitions() {
    for memory_type in [
        MemoryType::Chunked,
        MemoryType::Distributed,
        MemoryType::Hierarchy,
    ] {
        let mut case = Case::on(memory_type);
        case.table.storage_offset = 4;
        let plan = case.planned();
        assert_eq!(
            plan.placement,
            Placement::Ranks {
                start_rows: vec![0, 3, 6, 9, 10],
                first_row: 0,
                partition_rows: vec![0, 3, 6, 9],
                offset_bytes: 16,
            }
        );
        case.table.sizes[0] = 7;
        let plan = case.planned();
        let Placement::Ranks { start_rows, .. } = &plan.placement else {
            panic!()
        };
        assert_eq!(*start_rows, [0, 3, 6, 7, 7]);
        assert_eq!(plan.table_rows, 7);

        case.starts_bytes = vec![0, 96, 200, 288, 320];
        check_one(
            "cut row",
            &case,
            &Fails(Kind::InvalidValue, "rank 2 begins at byte 200"),
        );
        case.starts_bytes = vec![0, 96, 192, 288, 313];
        assert_eq!(case.planned().table_rows, 7);
        case.table.storage_offset = 5;
        check_one(
            "window leaves the row",
            &case,
            &Fails(Kind::InvalidInput, "columns 5 to 9"),
        );
        (case.table.storage_offset, case.table.strides[0]) = (0, 0);
        check_one("stride 0", &case, &Fails(Kind::InvalidInput, "row stride 0"));
        (case.table.sizes[0], case.table.strides[0]) = (1, i64::MAX);
        check_one("wild stride", &case, &Fails(Kind::InvalidInput, "row stride 9"));
    }
}

#[test]
fn a_row_window_is_placed_in_chunks_and_refused_elsewhere() {
    let mut case = Case::on(MemoryType::Chunked);
    case.table = describe(&[5, 4], &[8, 1], 8 * 4 + 2, Float.raw());
    let plan = case.planned();
    let Placement::Ranks { start_rows, .. } = &plan.placement else {
        panic!()
    };
    assert_eq!(*start_rows, [0, 0, 2, 5, 5]);
    let bases: Vec<Address> = [0x1000, 0x2000, 0x3000, 0x4000].map(Address).into();
    let bases = plan.bases(&bases);
    // Row 0 of the window is row 4 of the handle: the second row of rank 1.
    assert_eq!(bases[1], Address(0x2000 + 32));
    assert_eq!(bases[2], Address(0x3000));
    let table = plan.table(&bases);
    assert_eq!(
        (table.rows, table.offset_bytes, table.row_stride_bytes, table.cols),
        (5, 8, 32, 4)
    );

    case.memory_type = Some(MemoryType::Distributed);
    check_one(
        "rows refused",
        &case,
        &Fails(Kind::InvalidInput, "must lie inside its rows"),
    );
}

#[test]
fn empty_handles_have_no_rows() {
    for memory_type in [
        MemoryType::Continuous,
        MemoryType::Chunked,
        MemoryType::Distributed,
    ] {
        let mut case = Case::on(memory_type);
        case.starts_bytes = vec![0; 5];
        assert_eq!(case.planned().table_rows, 0);
    }
}

/// One rank's rows lie in one range, whatever the type of the handle, and the window is checked all the same.
#[test]
fn a_rank_alone_has_a_flat_table() {
    for memory_type in [
        MemoryType::Distributed,
        MemoryType::Hierarchy,
        MemoryType::Chunked,
    ] {
        let alone = |sizes: &[i64], strides: &[i64], offset: i64| Case {
            alone: true,
            starts_bytes: vec![0, 320],
            table: describe(sizes, strides, offset, Float.raw()),
            ..Case::on(memory_type)
        };
        let plan = alone(&[10, 4], &[8, 1], 2).planned();
        assert_eq!(plan.placement, Placement::Flat(Address(0x10008)));
        assert_eq!((plan.table_rows, plan.table_row_stride_bytes), (10, 32));
        let many = Case {
            alone: false,
            ..alone(&[10, 4], &[8, 1], 2)
        };
        assert!(matches!(many.planned().placement, Placement::Ranks { .. }));
        assert_eq!(
            alone(&[10, 4], &[8, 1], 6).run().unwrap_err().kind,
            Kind::InvalidInput
        );
        assert_eq!(
            alone(&[10, 4], &[0, 1], 0).run().unwrap_err().kind,
            Kind::InvalidInput
        );
    }
    let beyond = Case {
        alone: true,
        starts_bytes: vec![0, 320],
        table: describe(&[10, 4], &[8, 1], 800, Float.raw()),
        ..Case::on(MemoryType::Chunked)
    };
    let plan = beyond.planned();
    assert_eq!(
        (plan.placement, plan.table_rows),
        (Placement::Flat(Address(0x10000)), 0)
    );
}
