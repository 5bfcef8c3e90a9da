//! In which process a call of the C interface began. A callback of the caller may fork, and the child may go back into the call; the
//! call is its parent's to finish, and what both of them write is shared.

use super::process::epoch;
use crate::error::{Result, ensure};
use std::cell::Cell;

thread_local! {
    static BEGAN_IN: Cell<Option<u32>> = const { Cell::new(None) };
}

/// A call of this thread, until it is dropped; calls that callbacks make lie inside of it.
pub struct Call(Option<u32>);

impl Call {
    pub fn begin() -> Call {
        Call(BEGAN_IN.replace(Some(epoch())))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        BEGAN_IN.set(self.0);
    }
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
    use crate::platform::process::in_a_forked_child;

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
}
