//! The caller's memory functions as [`Buffers`] of the operations: the protocol of scratch blocks, exceptions
//! of the caller held back until the operation is over.

use super::convert::{address, pointer};
use super::env_func_ptrs::wholememory_env_func_t;
use super::guard;
use super::pool;
use super::tensor_description::wholememory_tensor_description_t;
use super::wholememory::library::wholememory_error_code_t;
use crate::error::{Error, Kind, Result, fail};
use crate::kinds::{AllocationType, DType};
use crate::ops::{Buffers, Scratch};
use crate::platform::{Stream, Words, current, forget_current};
use crate::span::Address;
use crate::tensor::{Description, memory_size_bytes};
use std::cell::{Cell, UnsafeCell};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

type Create = unsafe extern "C" fn(*mut *mut c_void, *mut c_void);
type GiveBack = unsafe extern "C" fn(*mut c_void, *mut c_void);

unsafe extern "C-unwind" {
    fn wholememory_shim_create(
        function: Create,
        context: *mut *mut c_void,
        global: *mut c_void,
        kept: *mut *mut c_void,
        text: *mut c_char,
        text_bytes: usize,
    ) -> c_int;
    fn wholememory_shim_give_back(
        function: GiveBack,
        context: *mut c_void,
        global: *mut c_void,
        kept: *mut *mut c_void,
        text: *mut c_char,
        text_bytes: usize,
    ) -> c_int;
    fn wholememory_shim_malloc(
        function: *const c_void,
        description: *mut wholememory_tensor_description_t,
        kind: c_uint,
        context: *mut c_void,
        global: *mut c_void,
        block: *mut *mut c_void,
        kept: *mut *mut c_void,
        text: *mut c_char,
        text_bytes: usize,
    ) -> c_int;
    fn wholememory_shim_rethrow(kept: *mut c_void) -> !;
}

const TEXT_BYTES: usize = 256;

/// The exceptions of one call of an operation: the first is kept.
#[derive(Default)]
struct Held {
    kept: Cell<*mut c_void>,
}

impl Held {
    /// Calls the shim with a place for the exception and its words.
    fn call(
        &self,
        function: &str,
        shim: impl FnOnce(*mut *mut c_void, *mut c_char, usize) -> c_int,
    ) -> Result<()> {
        let mut text: [c_char; TEXT_BYTES] = [0; TEXT_BYTES];
        forget_current();
        if shim(self.kept.as_ptr(), text.as_mut_ptr(), TEXT_BYTES) == 0 {
            return Ok(());
        }
        // SAFETY: the shim ends the text by NUL, and the buffer outlives its use.
        let words = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy();
        fail!(OutOfMemory, "{function} of p_env_fns threw: {words}")
    }
}

/// The memory functions of one call: the caller's, or the library's pool where the caller gave none.
pub(crate) struct Environment {
    functions: Option<wholememory_env_func_t>,
    stream: Option<Stream>,
    held: Held,
}

fn bytes_of(count: usize, dtype: DType) -> Option<usize> {
    let count = i64::try_from(count).ok()?;
    usize::try_from(memory_size_bytes(count, dtype.raw())).ok()
}

impl Environment {
    /// Copies the caller's functions.
    /// # Safety
    /// The pointer is NULL or valid for a read, and the functions in it may be called until the end of the call.
    pub(crate) unsafe fn new(functions: *const wholememory_env_func_t) -> Environment {
        Environment {
            // SAFETY: by the contract of this function.
            functions: (!functions.is_null()).then(|| unsafe { functions.read() }),
            stream: None,
            held: Held::default(),
        }
    }

    /// Names the stream of the call, in whose order scratch of the library's own is used again; with none named, giving a block
    /// back waits for the GPU.
    pub(crate) fn on(self, stream: Stream) -> Environment {
        Environment {
            stream: Some(stream),
            ..self
        }
    }

    /// # Errors
    /// INVALID_INPUT if the caller gave no functions, for operations with output contexts.
    pub(crate) fn required(&self) -> Result<()> {
        match self.functions {
            Some(_) => Ok(()),
            None => fail!(
                InvalidInput,
                "p_env_fns is NULL, the operation needs it for its outputs"
            ),
        }
    }

    /// Runs the body of an export that uses these functions. An exception that was held back is thrown on as the last act.
    pub(crate) fn run(self, body: impl FnOnce(&dyn Buffers) -> Result<()>) -> wholememory_error_code_t {
        let code = guard::code(|| body(&self));
        let kept = self.held.kept.get();
        if !kept.is_null() {
            // SAFETY: `kept` is what the shim left, it is thrown once, and no frame of the library with anything to
            // release or to catch is left on the way to the caller.
            unsafe { wholememory_shim_rethrow(kept) }
        }
        code
    }

    fn allocate(
        &self,
        which: &'static str,
        function: *const c_void,
        description: &Description,
        kind: AllocationType,
        context: *mut c_void,
        global: *mut c_void,
    ) -> Result<Address> {
        // The function gets a description of its own, which it may write to.
        let given = UnsafeCell::new(wholememory_tensor_description_t::from(*description));
        let mut block = std::ptr::null_mut();
        self.held.call(which, |kept, text, text_bytes| {
            // SAFETY: `function` is the caller's malloc_fn; all places outlive the call.
            unsafe {
                wholememory_shim_malloc(
                    function,
                    given.get(),
                    kind.raw(),
                    context,
                    global,
                    &mut block,
                    kept,
                    text,
                    text_bytes,
                )
            }
        })?;
        let elements = description.sizes[..description.dims().unwrap_or(0)]
            .iter()
            .product::<i64>();
        if block.is_null() && elements != 0 {
            fail!(
                OutOfMemory,
                "{which} of p_env_fns gave NULL for {elements} elements of dtype {} ({kind})",
                description.dtype
            );
        }
        Ok(address(block))
    }
}

fn missing(which: &str) -> Error {
    Error::new(Kind::InvalidInput, format!("{which} of p_env_fns is NULL"))
}

/// A block of scratch in its own context.
struct Block<'a> {
    environment: &'a Environment,
    context: *mut c_void,
    address: Address,
}

impl Scratch for Block<'_> {
    fn address(&self) -> Address {
        self.address
    }
}

impl Drop for Block<'_> {
    fn drop(&mut self) {
        let Some(functions) = &self.environment.functions else {
            return;
        };
        let temporary = &functions.temporary_fns;
        let give_back = |which: &str, function: Option<GiveBack>| {
            let Some(function) = function else { return };
            // A failure here has no place to go but the exception itself, which is kept.
            let _ = self.environment.held.call(which, |kept, text, text_bytes| {
                // SAFETY: `function` is the caller's and takes this context, which is given back once.
                unsafe {
                    wholememory_shim_give_back(
                        function,
                        self.context,
                        temporary.global_context,
                        kept,
                        text,
                        text_bytes,
                    )
                }
            });
        };
        if !self.address.is_null() {
            give_back("free_fn", temporary.free_fn);
        }
        if !self.context.is_null() {
            give_back("destroy_memory_context_fn", temporary.destroy_memory_context_fn);
        }
    }
}

/// Scratch of the platform.
struct OnDevice(Box<dyn Words>);

impl Scratch for OnDevice {
    fn address(&self) -> Address {
        self.0.address()
    }
}

impl Buffers for Environment {
    fn scratch(&self, count: usize, dtype: DType, kind: AllocationType) -> Result<Box<dyn Scratch + '_>> {
        let Some(bytes) = bytes_of(count, dtype) else {
            fail!(
                OutOfMemory,
                "scratch of {count} elements of {dtype} is more than 2^63 - 1 bytes"
            );
        };
        let Some(functions) = &self.functions else {
            if kind == AllocationType::Device
                && let Some(block) = current()?.scratch(bytes, self.stream)?
            {
                return Ok(Box::new(OnDevice(block)));
            }
            return Ok(Box::new(pool::take(bytes)?));
        };
        let temporary = &functions.temporary_fns;
        let create = temporary
            .create_memory_context_fn
            .ok_or_else(|| missing("create_memory_context_fn"))?;
        let malloc = temporary.malloc_fn.ok_or_else(|| missing("malloc_fn"))?;
        if temporary.free_fn.is_none() || temporary.destroy_memory_context_fn.is_none() {
            return Err(missing("free_fn or destroy_memory_context_fn"));
        }
        // From here on the drop of the block gives back what was taken.
        let mut block = Block {
            environment: self,
            context: std::ptr::null_mut(),
            address: Address::NULL,
        };
        let mut context = std::ptr::null_mut();
        let created = self
            .held
            .call("create_memory_context_fn", |kept, text, text_bytes| {
                // SAFETY: `create` is the caller's; all places outlive the call.
                unsafe {
                    wholememory_shim_create(
                        create,
                        &mut context,
                        temporary.global_context,
                        kept,
                        text,
                        text_bytes,
                    )
                }
            });
        block.context = context;
        created?;
        block.address = self.allocate(
            "temporary_fns.malloc_fn",
            malloc as *const c_void,
            &Description::array(count as i64, 0, dtype.raw()),
            kind,
            context,
            temporary.global_context,
        )?;
        Ok(Box::new(block))
    }

    fn outlasts_recording(&self) -> bool {
        self.functions.is_some()
    }

    fn output(&self, description: &Description, kind: AllocationType, context: Address) -> Result<Address> {
        self.required()?;
        let Some(functions) = &self.functions else {
            return Err(missing("output_fns"));
        };
        let outputs = &functions.output_fns;
        let malloc = outputs.malloc_fn.ok_or_else(|| missing("output_fns.malloc_fn"))?;
        self.allocate(
            "output_fns.malloc_fn",
            malloc as *const c_void,
            description,
            kind,
            pointer(context),
            outputs.global_context,
        )
    }
}
