//! Scratch and outputs from the heap, counted, failing on demand.

use std::cell::{Cell, RefCell};
use wholegraph::error::{Error, Kind, Result};
use wholegraph::kinds::{AllocationType, DType};
use wholegraph::ops::{Buffers, Scratch};
use wholegraph::span::Address;
use wholegraph::tensor::Description;

#[derive(Default)]
pub struct Heap {
    live: Cell<i64>,
    pub calls: Cell<usize>,
    /// The number of the call that fails, from 0.
    pub fail_at: Option<usize>,
    /// Scratch goes to somebody else once it is given back, as the library's own does.
    is_passing: bool,
    /// Every output block with its description, kind and context.
    pub outputs: RefCell<Vec<Output>>,
}

pub struct Output {
    pub description: Description,
    pub kind: AllocationType,
    pub context: Address,
    pub words: Vec<u64>,
}

struct Block<'a> {
    heap: &'a Heap,
    words: Vec<u64>,
}

impl Scratch for Block<'_> {
    fn address(&self) -> Address {
        Address(self.words.as_ptr() as usize)
    }
}

impl Drop for Block<'_> {
    fn drop(&mut self) {
        self.heap.live.set(self.heap.live.get() - 1);
    }
}

impl Heap {
    pub fn failing_at(call: usize) -> Heap {
        let mut heap = Heap::default();
        heap.fail_at = Some(call);
        heap
    }

    pub fn passing() -> Heap {
        let mut heap = Heap::default();
        heap.is_passing = true;
        heap
    }

    fn call(&self, bytes: usize) -> Result<Vec<u64>> {
        let call = self.calls.replace(self.calls.get() + 1);
        if self.fail_at == Some(call) {
            return Err(Error::new(
                Kind::OutOfMemory,
                format!("call {call} for {bytes} bytes fails"),
            ));
        }
        Ok(vec![u64::from_ne_bytes([0xA5; 8]); bytes.div_ceil(8)])
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        assert_eq!(self.live.get(), 0, "scratch blocks leak");
    }
}

impl Buffers for Heap {
    fn scratch(&self, count: usize, dtype: DType, _: AllocationType) -> Result<Box<dyn Scratch + '_>> {
        let words = self.call(count * dtype.size_bytes())?;
        self.live.set(self.live.get() + 1);
        Ok(Box::new(Block { heap: self, words }))
    }

    fn outlasts_recording(&self) -> bool {
        !self.is_passing
    }

    fn output(&self, description: &Description, kind: AllocationType, context: Address) -> Result<Address> {
        let count: i64 = description.sizes[..description.dim as usize].iter().product();
        let dtype = DType::from_raw(description.dtype).unwrap();
        let words = self.call(count as usize * dtype.size_bytes())?;
        let address = Address(words.as_ptr() as usize);
        self.outputs.borrow_mut().push(Output {
            description: *description,
            kind,
            context,
            words,
        });
        Ok(address)
    }
}
