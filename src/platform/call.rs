//! A call of the C interface: in which process it began, and that its thread is not cancelled in it. A callback of the caller may fork,
//! and the child may go back into the call; the call is its parent's to finish, and what both of them write is shared.

use super::process::epoch;
use crate::error::{Result, ensure};
use std::cell::Cell;
use std::ffi::c_int;

/// Of `pthread.h` on Linux.
const PTHREAD_CANCEL_DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

thread_local! {
    static BEGAN_IN: Cell<Option<u32>> = const { Cell::new(None) };
}

/// A call of this thread, until it is dropped; calls that callbacks make lie inside of it. A deferred `pthread_cancel` waits for its end: it would
/// unwind the stack from inside a system call, which Rust answers by ending the process.
pub struct Call {
    outer: Option<u32>,
    cancel_state: c_int,
}

impl Call {
    pub fn begin() -> Call {
        Call {
            outer: BEGAN_IN.replace(Some(epoch())),
            cancel_state: set_cancel_state(PTHREAD_CANCEL_DISABLE),
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        BEGAN_IN.set(self.outer);
        set_cancel_state(self.cancel_state);
    }
}

/// The state before.
fn set_cancel_state(state: c_int) -> c_int {
    let mut before = PTHREAD_CANCEL_DISABLE;
    // SAFETY: writes one int to a place of this frame; concerns the calling thread alone.
    unsafe { pthread_setcancelstate(state, &mut before) };
    before
}

/// To be asked before shared memory is written (true of what runs outside of calls).
/// # Errors
/// COMMUNICATION_ERROR in a child that was forked inside of the call.
pub fn check_own() -> Result<()> {
    ensure!(
        BEGAN_IN.get().is_none_or(|began_in| began_in == epoch()),
        Communication,
        "this process was forked by a function of the caller inside of the call; the call is its parent's, which goes on with it"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::DType;
    use crate::platform::cpu::CpuPlatform;
    use crate::platform::learning::{LearningKernels, RoundRobin};
    use crate::platform::process::in_a_forked_child;
    use crate::platform::{Indices, Kernels, Launch, Places, Platform, Rows, Stream, Table};
    use crate::span::Address;

    #[test]
    fn a_call_is_its_process_s() {
        assert!(check_own().is_ok());
        let call = Call::begin();
        in_a_forked_child(|| {
            let outer = check_own().is_err();
            let inner = Call::begin();
            let own = check_own().is_ok();
            drop(inner);
            outer && own && check_own().is_err()
        });
        assert!(check_own().is_ok());
        drop(call);
        in_a_forked_child(|| check_own().is_ok());
    }

    #[test]
    fn kernels_of_another_process_s_call_write_nothing() {
        let (mut to, from) = ([7i64, 7], [1i64, 2]);
        let at = |place: *const i64| Address(place as usize);
        let (output, input) = (at(to.as_mut_ptr()), at(from.as_ptr()));
        let rows = |address: Address| Rows {
            address,
            row_stride_bytes: 8,
            dtype: DType::Int64,
        };
        let table = |address: Address| Table {
            places: Places::Flat(address),
            offset_bytes: 0,
            row_stride_bytes: 8,
            rows: 2,
            cols: 1,
            dtype: DType::Int64,
        };
        let ids = Indices {
            address: input,
            dtype: DType::Int64,
            count: 1,
        };
        let every_other = RoundRobin {
            block_rows: 1,
            ranks: 1,
            rank_rows: 2,
            rows: 2,
        };
        let (stream, launch, cpu) = (Stream::default(), Launch::default(), &CpuPlatform);
        let write_all = || {
            [
                Platform::copy(cpu, output, input, 8, stream),
                Kernels::gather(cpu, &table(input), &ids, &rows(output), launch),
                Kernels::scatter(cpu, &rows(input), &ids, &table(output), launch),
                Kernels::add_row_numbers(cpu, input, 1, 1, &rows(output), launch),
                LearningKernels::map_rows(cpu, &ids, &every_other, output, launch),
                LearningKernels::fill(cpu, output, 1, 0.0, stream),
            ]
        };
        let call = Call::begin();
        in_a_forked_child(|| write_all().iter().all(|written| written.is_err()) && to == [7, 7]);
        let written = write_all();
        drop(call);
        assert!(written.iter().all(|written| written.is_ok()), "{written:?}");
    }
}
