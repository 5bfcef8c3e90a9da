//! The samplers: from offsets to neighbours.

use super::choice::Chooser;
use super::spans::{BYTES_PER_CENTER, Spans};
use super::{Failure, get, part, put};
use crate::error::Result;
use crate::kinds::DType;
use crate::platform::cpu::address::Resolver;
use crate::platform::cpu::pool;
use crate::platform::graph::{Draw, Take, Weights};
use crate::span::Address;

/// What taking a neighbour costs, in bytes moved: a line of the columns and of each output.
const BYTES_PER_NEIGHBOUR: usize = 80;

/// Parts for every thread: centers differ in their degrees.
const PARTS_PER_THREAD: usize = 16;

struct Job<'a> {
    draw: &'a Draw<'a>,
    spans: Spans<'a>,
    columns: Option<(Resolver<'a>, bool)>,
    weights: Option<Weigher<'a>>,
}

/// See [`crate::platform::graph::GraphKernels::sample`].
/// # Errors
/// OUT_OF_MEMORY.
pub fn sample(draw: &Draw<'_>) -> Result<()> {
    let count = draw.neighbours.count();
    let job = Job {
        draw,
        spans: Spans::new(&draw.neighbours),
        columns: draw
            .columns
            .map(|table| (Resolver::new(table), table.dtype == DType::Int64)),
        weights: draw.weights.as_ref().map(Weigher::new),
    };
    let bytes = (draw.total as usize)
        .saturating_mul(BYTES_PER_NEIGHBOUR)
        .saturating_add(count.saturating_mul(BYTES_PER_CENTER));
    let width = pool::width(bytes);
    let parts = if width == 1 { 1 } else { width * PARTS_PER_THREAD };
    let failure = Failure::default();
    pool::run(parts, bytes, &|k| failure.keep(job.run(part(k, parts, count))));
    failure.outcome()
}

impl Job<'_> {
    fn run(&self, centers: std::ops::Range<usize>) -> Result<()> {
        let Draw {
            take,
            offsets,
            offsets_out,
            ..
        } = *self.draw;
        let mut chooser = match take {
            Take::AtMost(most) => Some(Chooser::new(self.draw.seed, most, self.weights.is_some())),
            Take::All | Take::AllAbove(_) => None,
        };
        let count = self.draw.neighbours.count();
        for i in centers {
            // SAFETY: there is one more offset than centers, also where they are copied to.
            let (begin, end, span) = unsafe {
                let (begin, end) = (get::<i32>(offsets, i), get::<i32>(offsets, i + 1));
                if !offsets_out.is_null() {
                    put(offsets_out, i, begin);
                    if i + 1 == count {
                        put(offsets_out, count, end);
                    }
                }
                (begin as usize, end as usize, self.spans.get(i))
            };
            let (start, degree) = (span.0 as u64, span.1.saturating_sub(span.0).max(0) as u64);
            let taken = (end - begin) as u64;
            let all = |x: u64| (x < degree).then_some(x);
            match &mut chooser {
                Some(chooser) if degree > u64::from(chooser.most()) => {
                    let chosen = match &self.weights {
                        Some(weights) => {
                            // SAFETY: the center is one of the draw, and neighbours are below its degree.
                            let weight = |y| unsafe { weights.get(i, start, y) };
                            chooser.weighted(i as u64, degree, weight)?
                        }
                        None => chooser.uniform(i as u64, degree)?,
                    };
                    self.write(i, begin, taken, |x| chosen.get(x as usize).map(|y| start + y));
                }
                _ => self.write(i, begin, taken, |x| all(x).map(|y| start + y)),
            }
        }
        Ok(())
    }

    /// Writes the outputs of center `i`: `taken` of them from number `begin` on, `edge(x)` the x-th edge.
    fn write(&self, i: usize, begin: usize, taken: u64, edge: impl Fn(u64) -> Option<u64>) {
        let draw = self.draw;
        for x in 0..taken {
            let Some(edge) = edge(x) else { return };
            let at = begin + x as usize;
            // SAFETY: the offsets end at the total that every output has room for, and the table says where its rows are.
            unsafe {
                if let Some((columns, wide)) = &self.columns {
                    let column = columns.row(edge);
                    if !column.is_null() && *wide {
                        put(draw.dest, at, column.cast::<i64>().read_unaligned());
                    } else if !column.is_null() {
                        put(draw.dest, at, column.cast::<i32>().read_unaligned());
                    }
                }
                if !draw.center_localid.is_null() {
                    put(draw.center_localid, at, i as i32);
                }
                if !draw.edge_gid.is_null() {
                    put(draw.edge_gid, at, edge as i64);
                }
            }
        }
    }
}

/// Finds weights.
enum Weigher<'a> {
    Mapped {
        table: Resolver<'a>,
        double: bool,
    },
    Fetched {
        values: Address,
        double: bool,
        offsets: Address,
    },
}

impl<'a> Weigher<'a> {
    fn new(weights: &Weights<'a>) -> Weigher<'a> {
        match *weights {
            Weights::Mapped(table) => Weigher::Mapped {
                table: Resolver::new(table),
                double: table.dtype == DType::Double,
            },
            Weights::Fetched {
                values,
                dtype,
                offsets,
            } => Weigher::Fetched {
                values,
                double: dtype == DType::Double,
                offsets,
            },
        }
    }

    /// The weight of neighbour `y` of center `i`, whose edges begin at `start`.
    /// # Safety
    /// The draw has this center, and the center this neighbour.
    #[inline(always)]
    unsafe fn get(&self, i: usize, start: u64, y: u64) -> f64 {
        // SAFETY: by the contracts of this function and of the draw.
        unsafe {
            match self {
                Weigher::Mapped { table, double } => {
                    let at = table.row(start + y);
                    if at.is_null() {
                        0.0
                    } else if *double {
                        at.cast::<f64>().read_unaligned()
                    } else {
                        f64::from(at.cast::<f32>().read_unaligned())
                    }
                }
                Weigher::Fetched {
                    values,
                    double,
                    offsets,
                } => {
                    let at = get::<i32>(*offsets, i) as usize + y as usize;
                    if *double {
                        get::<f64>(*values, at)
                    } else {
                        f64::from(get::<f32>(*values, at))
                    }
                }
            }
        }
    }
}
