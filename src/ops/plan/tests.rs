mod placing;

use super::*;
use crate::kinds::DType::*;

/// A description over 8-element arrays of sizes and strides.
fn describe(sizes: &[i64], strides: &[i64], storage_offset: i64, dtype: u32) -> Description {
    let mut description = Description {
        sizes: [1; 8],
        strides: [1; 8],
        storage_offset,
        dim: sizes.len() as i32,
        dtype,
    };
    description.sizes[..sizes.len()].copy_from_slice(sizes);
    description.strides[..strides.len()].copy_from_slice(strides);
    description
}

/// A gather of 3 rows of 4 FLOAT from 10 rows of stride 8; each case changes what it is about.
struct Case {
    operation: Operation,
    table: Description,
    indices: Description,
    rows: Description,
    memory_type: Option<MemoryType>,
    flat: bool,
    alone: bool,
    table_pointer: usize,
    indices_data: Data,
    rows_data: Data,
    starts_bytes: Vec<usize>,
    sms: i32,
    reach: fn(Address) -> bool,
}

fn case() -> Case {
    Case {
        operation: Operation::Gather,
        table: describe(&[10, 4], &[8, 1], 0, Float.raw()),
        indices: describe(&[3], &[1], 0, Int.raw()),
        rows: describe(&[3, 4], &[4, 1], 0, Float.raw()),
        memory_type: None,
        flat: false,
        alone: false,
        table_pointer: 0x10000,
        indices_data: Data::Pointer(Address(0x20000)),
        rows_data: Data::Pointer(Address(0x30000)),
        starts_bytes: vec![0, 96, 192, 288, 320],
        sms: -1,
        reach: |_| true,
    }
}

impl Case {
    fn on(memory_type: MemoryType) -> Case {
        Case {
            memory_type: Some(memory_type),
            flat: memory_type == MemoryType::Continuous,
            ..case()
        }
    }

    fn run(&self) -> Result<Option<Plan>> {
        let partition = Partition {
            granule_bytes: 1,
            starts_bytes: self.starts_bytes.clone().into(),
            stride_bytes: 1,
            same_chunk: false,
        };
        let holder = match self.memory_type {
            None => Holder::Pointer(Address(self.table_pointer)),
            Some(memory_type) => Holder::Handle {
                memory_type,
                partition: &partition,
                flat: self.flat.then_some(Address(self.table_pointer)),
                alone: self.alone.then_some(Address(self.table_pointer)),
            },
        };
        plan(&Request {
            operation: self.operation,
            table: &self.table,
            holder,
            indices: &self.indices,
            indices_data: self.indices_data,
            rows: &self.rows,
            rows_data: self.rows_data,
            sms: self.sms,
            can_reach: &self.reach,
        })
    }

    fn planned(&self) -> Plan {
        self.run().unwrap().unwrap()
    }
}

/// What a case must give: a code and a piece of its sentence, success with nothing to move, or a plan.
enum Want {
    Fails(Kind, &'static str),
    Nothing,
    Moves,
}
use Want::*;

fn check(name: &str, change: impl Fn(&mut Case), want: Want) {
    for operation in [Operation::Gather, Operation::Scatter] {
        let mut case = case();
        case.operation = operation;
        change(&mut case);
        if case.operation == operation {
            check_one(name, &case, &want);
        }
    }
}

fn check_one(name: &str, case: &Case, want: &Want) {
    match (case.run(), want) {
        (Err(error), Fails(kind, words)) => {
            assert_eq!(error.kind, *kind, "{name}: {error}");
            assert!(
                error.what.contains(words),
                "{name}: {error:?} does not say {words:?}"
            );
        }
        (Ok(None), Nothing) | (Ok(Some(_)), Moves) => {}
        (got, _) => panic!("{name}: {got:?}"),
    }
}

#[test]
fn a_plain_call_is_planned() {
    let plan = case().planned();
    assert_eq!(
        plan.to_string(),
        "gather of 3 INT ids x 4 columns from a FLOAT table of 10 rows, stride 32 bytes to FLOAT rows, stride 16 bytes"
    );
    assert_eq!(plan.placement, Placement::Flat(Address(0x10000)));
    assert_eq!(plan.sms, None);
}

#[test]
fn checks_both_operations_share() {
    let invalid = |words| Fails(Kind::InvalidInput, words);
    let logic = |words| Fails(Kind::Logic, words);
    let value = |words| Fails(Kind::InvalidValue, words);

    check(
        "table dim 0",
        |c| c.table.dim = 0,
        invalid("table has 0 dimensions"),
    );
    check(
        "table dim 3",
        |c| c.table.dim = 3,
        invalid("table has 3 dimensions"),
    );
    check(
        "table dim -1",
        |c| c.table.dim = -1,
        invalid("table has -1 dimensions"),
    );
    check(
        "indices dim 2",
        |c| c.indices.dim = 2,
        invalid("indices has 2 dimensions"),
    );
    check(
        "rows dim 1 of a 2-D table",
        |c| c.rows.dim = 1,
        invalid("has 1 dimensions"),
    );
    check("rows dim 3", |c| c.rows.dim = 3, invalid("has 3 dimensions"));
    check(
        "indices stride 2",
        |c| c.indices.strides[0] = 2,
        invalid("indices has last stride 2"),
    );
    check("indices dtype 0", |c| c.indices.dtype = 0, invalid("dtype 0"));
    check("indices dtype 9", |c| c.indices.dtype = 9, invalid("dtype 9"));
    check("rows stride", |c| c.rows.strides[1] = 3, invalid("last stride 3"));
    check("rows dtype 77", |c| c.rows.dtype = 77, invalid("dtype 77"));
    check("kinds", |c| c.rows.dtype = Int.raw(), logic("table is FLOAT and"));
    check(
        "kinds also for no ids",
        |c| (c.rows.dtype, c.indices.sizes[0]) = (Int.raw(), 0),
        logic("table is FLOAT"),
    );
    check("no ids", |c| c.indices.sizes[0] = 0, Nothing);
    check(
        "no ids, rows not looked at",
        |c| (c.indices.sizes[0], c.rows.sizes) = (0, [-4; 8]),
        Nothing,
    );
    check(
        "no ids, NULL data",
        |c| {
            (c.indices.sizes[0], c.indices_data, c.rows_data) =
                (0, Data::Pointer(Address::NULL), Data::Pointer(Address::NULL))
        },
        Nothing,
    );
    check(
        "no ids, any dtype of ids",
        |c| (c.indices.sizes[0], c.indices.dtype) = (0, Half.raw()),
        Nothing,
    );
    check(
        "negative ids",
        |c| c.indices.sizes[0] = -3,
        invalid("indices has size -3"),
    );
    check(
        "negative table rows",
        |c| c.table.sizes[0] = -3,
        invalid("table has -3 rows"),
    );
    check(
        "negative table columns",
        |c| c.table.sizes[1] = -3,
        invalid("-3 columns"),
    );
    check(
        "negative table stride",
        |c| c.table.strides[0] = -8,
        invalid("row stride -8"),
    );
    check(
        "index dtype",
        |c| c.indices.dtype = Int16.raw(),
        logic("indices is INT16"),
    );
    check(
        "float ids",
        |c| c.indices.dtype = Double.raw(),
        logic("indices is DOUBLE"),
    );
    check(
        "rows count",
        |c| c.rows.sizes[0] = 4,
        logic("has 4 rows for 3 indices"),
    );
    check("no columns", |c| c.table.sizes[1] = 0, Nothing);
    check(
        "columns",
        |c| c.rows.sizes[1] = 5,
        invalid("has 5 columns, table has 4"),
    );
    check(
        "negative rows stride",
        |c| c.rows.strides[0] = -4,
        invalid("row stride -4"),
    );
    check(
        "NULL rows",
        |c| c.rows_data = Data::Pointer(Address::NULL),
        invalid("is NULL"),
    );
    check(
        "NULL indices",
        |c| c.indices_data = Data::Pointer(Address::NULL),
        invalid("indices is NULL"),
    );
    check("NULL table", |c| c.table_pointer = 0, invalid("table is NULL"));
    check(
        "NULL table without rows",
        |c| (c.table_pointer, c.table.sizes[0]) = (0, 0),
        Moves,
    );
    check(
        "misaligned rows",
        |c| c.rows_data = Data::Pointer(Address(0x30002)),
        logic("0x30002"),
    );
    check(
        "misaligned indices",
        |c| c.indices_data = Data::Pointer(Address(0x20001)),
        logic("0x20001"),
    );
    check(
        "misaligned table",
        |c| c.table_pointer = 0x10003,
        logic("0x10003"),
    );
    check(
        "scattered indices",
        |c| c.indices_data = Data::Scattered(MemoryType::Chunked),
        invalid("CHUNKED"),
    );
    check(
        "scattered rows",
        |c| c.rows_data = Data::Scattered(MemoryType::Distributed),
        invalid("DISTRIBUTED"),
    );
    check(
        "rows in a handle",
        |c| {
            c.rows_data = Data::Range {
                base: Address(0x30000),
                size_bytes: 48,
            }
        },
        Moves,
    );
    check(
        "rows beyond a handle",
        |c| {
            c.rows_data = Data::Range {
                base: Address(0x30000),
                size_bytes: 47,
            }
        },
        invalid("handle of 47 bytes"),
    );
    check(
        "rows before a handle",
        |c| {
            (c.rows.storage_offset, c.rows_data) = (
                -1,
                Data::Range {
                    base: Address(0x30000),
                    size_bytes: 480,
                },
            )
        },
        invalid("from byte -4"),
    );
    check(
        "unreachable",
        |c| c.reach = |a| a.0 != 0x20000,
        invalid("0x20000 cannot be reached"),
    );
    check(
        "rows beyond the address space",
        |c| c.rows.strides[0] = i64::MAX,
        value("address space"),
    );
    check(
        "a wild stride of a single row",
        |c| (c.indices.sizes[0], c.rows.sizes[0], c.rows.strides[0]) = (1, 1, i64::MAX),
        Moves,
    );
    check(
        "a wild offset",
        |c| c.rows.storage_offset = i64::MAX,
        value("address space"),
    );
    check(
        "a wild offset back",
        |c| c.rows.storage_offset = i64::MIN,
        value("address space"),
    );
    check(
        "a wild table",
        |c| (c.table.sizes[0], c.table.strides[0]) = (i64::MAX, i64::MAX),
        value("address space"),
    );
    check(
        "ids beyond the address space",
        |c| (c.indices.sizes[0], c.rows.sizes[0], c.rows.strides[0]) = (i64::MAX, i64::MAX, 0),
        value("address space"),
    );
    check("sms 0", |c| c.sms = 0, logic("sms is 0"));
    check("sms -2", |c| c.sms = -2, logic("sms is -2"));
    check(
        "sms after shapes",
        |c| (c.sms, c.rows.sizes[0]) = (0, 5),
        logic("has 5 rows"),
    );
    check(
        "sms without ids",
        |c| (c.sms, c.indices.sizes[0]) = (0, 0),
        Nothing,
    );
    check("sms 7", |c| c.sms = 7, Moves);
}

#[test]
fn checks_that_differ_between_the_operations() {
    let both = |name: &str, change: fn(&mut Case), gather: Want, scatter: Want| {
        for (operation, want) in [(Operation::Gather, gather), (Operation::Scatter, scatter)] {
            let mut case = case();
            case.operation = operation;
            change(&mut case);
            check_one(name, &case, &want);
        }
    };
    both(
        "table last stride",
        |c| c.table.strides[1] = 2,
        Fails(Kind::Logic, "table has last stride 2"),
        Fails(Kind::InvalidInput, "table has last stride 2"),
    );
    both(
        "table dtype",
        |c| c.table.dtype = 9,
        Fails(Kind::Logic, "dtype 9"),
        Fails(Kind::InvalidInput, "dtype 9"),
    );
    both(
        "1-D table of stride 2",
        |c| (c.table.dim, c.table.strides[0]) = (1, 2),
        Fails(Kind::Logic, "last stride 2"),
        Fails(Kind::InvalidInput, "last stride 2"),
    );
    both(
        "1-D table, 1-D rows",
        |c| {
            c.table = describe(&[10], &[1], 0, Float.raw());
            c.rows = describe(&[3], &[1], 0, Float.raw());
        },
        Moves,
        Fails(Kind::InvalidInput, "input has 1 dimensions"),
    );
    both(
        "1-D table, [n, 1] rows",
        |c| {
            c.table = describe(&[10], &[1], 0, Float.raw());
            c.rows = describe(&[3, 1], &[1, 1], 0, Float.raw());
        },
        Moves,
        Moves,
    );
}

#[test]
fn checks_come_in_the_order_of_the_spec() {
    // Each step repairs what the step before complains about; the complaints must come in this order.
    let mut case = Case::on(MemoryType::Distributed);
    case.table = describe(&[10, 4], &[8, 2], 6, 9);
    case.table.dim = 5;
    case.indices = describe(&[3, 1], &[2, 1], 0, Half.raw());
    case.rows = describe(&[4, 5, 1], &[5, 2, 1], 0, Int.raw());
    case.rows_data = Data::Pointer(Address(0x30001));
    case.starts_bytes = vec![0, 100, 200, 300, 320];
    case.sms = 0;
    type Step = (Kind, &'static str, fn(&mut Case));
    let steps: [Step; 12] = [
        (Kind::InvalidInput, "table has 5", |c| c.table.dim = 2),
        (Kind::Logic, "last stride 2", |c| {
            (c.table.strides[1], c.table.dtype) = (1, Float.raw())
        }),
        (Kind::InvalidInput, "indices has 2", |c| c.indices.dim = 1),
        (Kind::InvalidInput, "output has 3", |c| c.rows.dim = 2),
        (Kind::InvalidInput, "indices has last", |c| {
            c.indices.strides[0] = 1
        }),
        (Kind::InvalidInput, "output has last", |c| c.rows.strides[1] = 1),
        (Kind::InvalidInput, "columns 6 to 10", |c| {
            c.table.storage_offset = 4
        }),
        (Kind::Logic, "table is FLOAT and output is INT", |c| {
            c.rows.dtype = Half.raw()
        }),
        (Kind::Logic, "indices is HALF", |c| c.indices.dtype = Int64.raw()),
        (Kind::Logic, "4 rows for 3", |c| c.rows.sizes[0] = 3),
        (Kind::InvalidInput, "5 columns", |c| c.rows.sizes[1] = 4),
        (Kind::Logic, "0x30001", |c| {
            c.rows_data = Data::Pointer(Address(0x30002))
        }),
    ];
    for (kind, words, repair) in steps {
        check_one("order", &case, &Fails(kind, words));
        repair(&mut case);
    }
    check_one("order", &case, &Fails(Kind::InvalidValue, "byte 100"));
    case.starts_bytes = vec![0, 96, 192, 288, 320];
    check_one("order", &case, &Fails(Kind::Logic, "sms is 0"));
    case.sms = -1;
    check_one("order", &case, &Moves);
}

#[test]
fn offsets_are_applied_once() {
    let mut case = case();
    case.table.storage_offset = 3;
    case.indices.storage_offset = 5;
    case.rows.storage_offset = 7;
    let plan = case.planned();
    assert_eq!(plan.placement, Placement::Flat(Address(0x10000 + 12)));
    assert_eq!(plan.indices.address, Address(0x20000 + 20));
    assert_eq!(plan.rows.address, Address(0x30000 + 28));
    case.indices.storage_offset = -5;
    assert_eq!(case.planned().indices.address, Address(0x20000 - 20));
}

#[test]
fn ids_may_name_what_description_and_handle_both_hold() {
    let mut case = Case::on(MemoryType::Continuous);
    let rows = |case: &Case| case.planned().table_rows;
    assert_eq!(rows(&case), 10);
    case.table.sizes[0] = 7;
    assert_eq!(rows(&case), 7);
    case.table.sizes[0] = 1000;
    assert_eq!(rows(&case), 10);
    case.table.storage_offset = 4;
    assert_eq!(rows(&case), 10);
    case.table.storage_offset = 5;
    assert_eq!(rows(&case), 9);
    case.table.storage_offset = 8 * 9 + 4;
    assert_eq!(rows(&case), 1);
    case.table.storage_offset = 8 * 9 + 5;
    assert_eq!(rows(&case), 0);
    case.table.storage_offset = i64::MAX;
    assert_eq!(rows(&case), 0);
    case.table.storage_offset = -1;
    check_one("before the handle", &case, &Fails(Kind::InvalidInput, "-1"));
    case.table.storage_offset = 0;
    case.table.strides[0] = 0;
    assert_eq!(rows(&case), 1000);
    case.starts_bytes = vec![0, 8, 15];
    assert_eq!(rows(&case), 0);
}
