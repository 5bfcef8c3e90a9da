//! The kernels compiled by nvcc, as Rust calls them. The caller's current context is the one they run in.

use crate::error::{Result, ensure, fail};
use crate::platform::{Indices, Launch, Places, Rows, Stream, Table};

/// `wmk_gather_args` of kernels/gather.h.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatherArgs {
    pub base: u64,
    pub bases: u64,
    pub start_rows: u64,
    pub ranks: u32,
    pub table_dtype: u32,
    pub offset_bytes: u64,
    pub table_stride_bytes: u64,
    pub rows: u64,
    pub cols: u64,
    pub base_alignment_bits: u64,
    pub ids: u64,
    pub count: u64,
    pub ids_dtype: u32,
    pub output_dtype: u32,
    pub output: u64,
    pub output_stride_bytes: u64,
    pub most_blocks: u32,
    pub reserved: u32,
}

/// Blocks of 256 threads that fill a multiprocessor for kernels that wait for memory.
const BLOCKS_PER_SM: u32 = 4;

/// The arguments for a table in one range. Pure. `sms`: multiprocessors to use.
/// # Errors
/// NOT_IMPLEMENTED for tables of several ranges.
pub fn gather_args(table: &Table<'_>, indices: &Indices, output: &Rows, sms: u32) -> Result<GatherArgs> {
    let Places::Flat(base) = table.places else {
        fail!(
            NotImplemented,
            "gather from a table of several ranges is not in this version on GPUs"
        );
    };
    Ok(GatherArgs {
        base: base.0 as u64,
        table_dtype: table.dtype.raw(),
        offset_bytes: table.offset_bytes as u64,
        table_stride_bytes: table.row_stride_bytes as u64,
        rows: table.rows,
        cols: table.cols as u64,
        base_alignment_bits: base.0 as u64,
        ids: indices.address.0 as u64,
        count: indices.count as u64,
        ids_dtype: indices.dtype.raw(),
        output_dtype: output.dtype.raw(),
        output: output.address.0 as u64,
        output_stride_bytes: output.row_stride_bytes as u64,
        most_blocks: sms.saturating_mul(BLOCKS_PER_SM).max(1),
        ..GatherArgs::default()
    })
}

/// Enqueues a gather on the stream.
/// # Errors
/// LOGIC_ERROR for a float and an integer type, CUDA_ERROR where the launch fails.
pub fn gather(table: &Table<'_>, indices: &Indices, output: &Rows, launch: Launch) -> Result<()> {
    ensure!(
        table.dtype.is_float() == output.dtype.is_float(),
        Logic,
        "cannot convert {} to {}: one is a floating type, the other an integer",
        table.dtype,
        output.dtype
    );
    let sms = match launch.sms {
        Some(sms) => sms,
        None => linked::multiprocessors()?,
    };
    linked::gather(&gather_args(table, indices, output, sms)?, launch.stream)
}

#[cfg(wholememory_kernels)]
mod linked {
    use super::*;
    use crate::error::{Error, Kind};
    use std::ffi::{CStr, c_char, c_int, c_void};

    unsafe extern "C" {
        fn wmk_gather(args: *const GatherArgs, stream: *mut c_void) -> c_int;
        fn cudaGetDevice(device: *mut c_int) -> c_int;
        fn cudaDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> c_int;
        fn cudaGetErrorString(code: c_int) -> *const c_char;
    }

    const MULTIPROCESSOR_COUNT: c_int = 16;

    fn check(call: &str, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the runtime has a constant string for every code, also for unknown ones.
        let words = unsafe { CStr::from_ptr(cudaGetErrorString(code)) }.to_string_lossy();
        Err(Error::new(
            Kind::Cuda,
            format!("{call} failed: CUDA error {code}: {words}"),
        ))
    }

    pub fn multiprocessors() -> Result<u32> {
        let (mut device, mut count) = (0, 0);
        // SAFETY: the runtime stores an int at each address.
        check("cudaGetDevice", unsafe { cudaGetDevice(&mut device) })?;
        check("cudaDeviceGetAttribute", unsafe {
            // SAFETY: as above.
            cudaDeviceGetAttribute(&mut count, MULTIPROCESSOR_COUNT, device)
        })?;
        Ok(count.unsigned_abs())
    }

    pub fn gather(args: &GatherArgs, stream: Stream) -> Result<()> {
        // SAFETY: the struct is the kernel's; addresses are the caller's responsibility.
        check("starting the gather kernel", unsafe {
            wmk_gather(args, stream.0 as *mut c_void)
        })
    }
}

#[cfg(not(wholememory_kernels))]
mod linked {
    use super::*;

    fn absent<T>() -> Result<T> {
        fail!(
            NotSupported,
            "this library was built without nvcc, it has no kernels for GPUs"
        )
    }

    pub fn multiprocessors() -> Result<u32> {
        absent()
    }

    pub fn gather(_: &GatherArgs, _: Stream) -> Result<()> {
        absent()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use crate::kinds::DType;
    use crate::span::Address;

    fn table(places: Places<'_>) -> Table<'_> {
        Table {
            places,
            offset_bytes: 8,
            row_stride_bytes: 512,
            rows: 10,
            cols: 100,
            dtype: DType::Float,
        }
    }

    const IDS: Indices = Indices {
        address: Address(0x3000),
        dtype: DType::Int64,
        count: 7,
    };
    const OUTPUT: Rows = Rows {
        address: Address(0x2000),
        row_stride_bytes: 200,
        dtype: DType::Half,
    };

    #[test]
    fn arguments_are_those_of_the_call() {
        let args =
            gather_args(&table(Places::Flat(Address(0x1000))), &IDS, &OUTPUT, 132).expect("a flat table");
        let want = GatherArgs {
            base: 0x1000,
            base_alignment_bits: 0x1000,
            ranks: 0,
            table_dtype: 1,
            output_dtype: 2,
            ids_dtype: 6,
            offset_bytes: 8,
            table_stride_bytes: 512,
            rows: 10,
            cols: 100,
            ids: 0x3000,
            count: 7,
            output: 0x2000,
            output_stride_bytes: 200,
            most_blocks: 528,
            ..GatherArgs::default()
        };
        assert_eq!(args, want);
    }

    #[test]
    fn several_ranges_are_refused() {
        let places = Places::Ranks {
            bases: &[Address(0x1000)],
            start_rows: &[0, 10],
        };
        let error = gather_args(&table(places), &IDS, &OUTPUT, 1).expect_err("not yet");
        assert_eq!(error.kind, Kind::NotImplemented);
    }

    #[test]
    fn kinds_do_not_mix() {
        let output = Rows {
            dtype: DType::Int,
            ..OUTPUT
        };
        let places = Places::Flat(Address(0x1000));
        assert_eq!(
            gather(&table(places), &IDS, &output, Launch::default())
                .expect_err("mixed")
                .kind,
            Kind::Logic
        );
    }
}
