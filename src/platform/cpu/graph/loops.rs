//! Self loops in front of every node's edges.

use super::{Failure, get, part, put};
use crate::error::{Result, ensure};
use crate::platform::cpu::pool;
use crate::platform::graph::SelfLoops;

/// See [`crate::platform::graph::GraphKernels::add_self_loops`].
/// # Errors
/// INVALID_VALUE for row pointers that decrease or leave the columns; nothing is written then.
pub fn add(loops: &SelfLoops) -> Result<()> {
    let SelfLoops {
        row_pointers,
        rows,
        columns,
        edges,
        row_pointers_out,
        columns_out,
    } = *loops;
    let rows = rows as usize;
    // SAFETY: there is one more row pointer than rows.
    let span = |r: usize| unsafe { (get::<i32>(row_pointers, r), get::<i32>(row_pointers, r + 1)) };
    let bytes = (rows + edges as usize).saturating_mul(2 * size_of::<i32>());
    let parts = pool::width(bytes);
    let failure = Failure::default();
    pool::run(parts, bytes, &|k| {
        failure.keep(part(k, parts, rows).try_for_each(|r| check(r, span(r), edges)));
    });
    failure.outcome()?;
    pool::run(parts, bytes, &|k| {
        for r in part(k, parts, rows) {
            let (start, end) = span(r);
            // SAFETY: the spans are inside the columns, and the output has room for them and one more a row.
            unsafe {
                put(row_pointers_out, r, start.wrapping_add(r as i32));
                let at = start as usize + r;
                put(columns_out, at, r as i32);
                for j in 0..(end - start) as usize {
                    put(columns_out, at + 1 + j, get::<i32>(columns, start as usize + j));
                }
            }
        }
    });
    // SAFETY: the pointer behind the last row, which is the first one where there are no rows.
    unsafe {
        let end = get::<i32>(row_pointers, rows);
        put(row_pointers_out, rows, end.wrapping_add(rows as i32));
    }
    Ok(())
}

fn check(row: usize, (start, end): (i32, i32), edges: u64) -> Result<()> {
    ensure!(
        start >= 0 && end >= start && end as u64 <= edges,
        InvalidValue,
        "row {row} has its columns from {start} to {end}; row pointers ascend from 0 to at most the {edges} columns"
    );
    Ok(())
}
