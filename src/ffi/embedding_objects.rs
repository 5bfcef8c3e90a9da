//! What handles of embeddings stand for, and the tensors that an embedding lends to its callers.

use super::objects::{CommObject, MemoryObject, TensorObject, Tombstone, bury_memory, retire_tensor, table};
use crate::embedding::{Embedding, Part};
use crate::error::{Result, ensure};
use crate::platform::locks::ForkMutex;
use std::sync::Arc;

pub(crate) struct EmbeddingObject {
    pub(crate) embedding: Arc<Embedding>,
    /// The handle of the communicator as it was passed to create.
    comm: usize,
    lent: ForkMutex<Lent>,
}

/// Handles that go with the embedding.
#[derive(Default)]
struct Lent {
    /// Memory by its number.
    memories: Vec<(u64, usize)>,
    tensors: Vec<Tensor>,
}

#[derive(Clone)]
struct Tensor {
    /// The state it shows; `None` for the table.
    state: Option<String>,
    whole: usize,
    seen: usize,
}

impl EmbeddingObject {
    /// Puts a new embedding of communicator `comm` (its handle) into the table. One that cannot be put there is released.
    pub(crate) fn enter(embedding: Arc<Embedding>, comm: usize) -> Result<usize> {
        let entered = table().insert(Arc::new(EmbeddingObject {
            embedding: embedding.clone(),
            comm,
            lent: ForkMutex::default(),
        }));
        let value = entered.inspect_err(|_| drop(embedding.release()))?;
        let lent = table()
            .live::<EmbeddingObject>("the embedding", value)
            .and_then(|object| object.lend(value, None, &embedding.table()));
        match lent {
            Ok(_) => Ok(value),
            Err(error) => {
                let _ = destroy(value);
                Err(error)
            }
        }
    }

    /// Every lock of the embedding and its handles, held.
    #[cfg(test)]
    pub(crate) fn hold_locks(&self) -> impl Sized + '_ {
        (self.lent.lock(), self.embedding.hold_locks())
    }

    /// The handle of the tensor that shows the table.
    /// # Errors
    /// COMMUNICATION_ERROR as [`ForkMutex::lock`].
    pub(crate) fn table_tensor(&self) -> Result<usize> {
        Ok(self.lent.lock()?.tensors.first().map_or(0, |tensor| tensor.seen))
    }

    /// The handle of the tensor that shows a state, made at the first question. `own` is the embedding's handle.
    /// # Errors
    /// INVALID_INPUT for a state that the embedding does not have.
    pub(crate) fn state_tensor(&self, own: usize, name: &str) -> Result<usize> {
        let part = self.embedding.state(name)?;
        self.lend(own, Some(name), &part)
    }

    fn lend(&self, own: usize, state: Option<&str>, part: &Part) -> Result<usize> {
        let mut lent = self.lent.lock()?;
        if let Some(there) = lent.tensors.iter().find(|t| t.state.as_deref() == state) {
            return Ok(there.seen);
        }
        let comm = table().live::<CommObject>("comm", self.comm)?;
        let number = part.memory.number();
        let known = lent.memories.iter().find(|(other, _)| *other == number);
        let handle = match known {
            Some((_, handle)) => *handle,
            None => {
                let handle = MemoryObject::lend(part.memory.clone(), self.comm, &comm, own)?;
                lent.memories.push((number, handle));
                handle
            }
        };
        let (whole, seen) = TensorObject::lend(part, handle, own)?;
        lent.tensors.push(Tensor {
            state: state.map(str::to_owned),
            whole,
            seen,
        });
        Ok(seen)
    }
}

/// The embedding behind a handle, dead ones with the refusal: their rank takes part in what is collective with nothing, so
/// that the others do not wait.
pub(crate) fn embedding(value: usize) -> Result<(Arc<EmbeddingObject>, Result<()>)> {
    let name = "wholememory_embedding";
    let (object, dead) = table().live_or_tombstone::<EmbeddingObject>(name, value)?;
    let refusal = match dead {
        true => table().live::<EmbeddingObject>(name, value).map(drop),
        false => Ok(()),
    };
    Ok((object, refusal))
}

/// Destroys an embedding with all it lent. Local.
/// # Errors
/// INVALID_INPUT for values that are no live embedding; what the release of its memory says (it is gone all the same).
pub(crate) fn destroy(value: usize) -> Result<()> {
    let object = table().live::<EmbeddingObject>("wholememory_embedding", value)?;
    ensure!(
        table().entomb::<EmbeddingObject>(value),
        InvalidInput,
        "wholememory_embedding {value:#x} was destroyed by another thread at the same time"
    );
    let lent = object
        .lent
        .lock()
        .map(|mut lent| std::mem::take(&mut *lent))
        .unwrap_or_default();
    for tensor in lent.tensors {
        retire_tensor(tensor.seen, Some(object.comm));
        retire_tensor(tensor.whole, Some(object.comm));
    }
    for (_, memory) in lent.memories {
        bury_memory(memory, object.comm);
    }
    let outcome = object.embedding.release();
    match table().live::<CommObject>("comm", object.comm) {
        Ok(comm) => comm.bury(Tombstone::Embedding(value)),
        Err(_) => drop(table().remove::<EmbeddingObject>(value)),
    }
    outcome
}
