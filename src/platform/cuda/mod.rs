//! The CUDA platform in outline: the driver is probed, the gather kernel is compiled in; memory, transports and the other
//! kernels are not in this version, and every call says so.

pub mod driver;
pub mod kernels;
mod loader;
pub mod nccl;

pub use loader::Unusable;

use super::{
    Bootstrap, Indices, Kernels, Launch, Member, Platform, Reach, Rows, Segment, SegmentRequest, Segments,
    Stream, Table, Transport,
};
use crate::error::{Error, Kind, Result};
use crate::span::Address;
use std::sync::Arc;

/// GPUs through the CUDA driver.
pub struct CudaPlatform;

fn not_yet<T>(what: &str) -> Result<T> {
    let built = if cfg!(wholememory_kernels) {
        ""
    } else {
        " (and this library was built without nvcc)"
    };
    Err(Error::new(
        Kind::NotImplemented,
        format!(
            "{what} on GPUs is not in this version{built}; set WHOLEMEMORY_PLATFORM=cpu to keep the data in this host's memory"
        ),
    ))
}

impl Platform for CudaPlatform {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn segments(&self) -> &dyn Segments {
        self
    }

    fn kernels(&self) -> &dyn Kernels {
        self
    }

    fn local_transport(&self, _: &dyn Bootstrap) -> Result<Box<dyn Transport>> {
        not_yet("moving bytes between ranks")
    }

    fn can_reach(&self, address: Address) -> bool {
        !address.is_null()
    }

    fn copy(&self, _: Address, _: Address, _: usize, _: Stream) -> Result<()> {
        not_yet("copying")
    }

    fn synchronize(&self, _: Stream) -> Result<()> {
        not_yet("waiting for a stream")
    }
}

impl Member for CudaPlatform {
    fn identity(&self) -> String {
        self.name().into()
    }

    fn rebind(&self) -> Result<Arc<dyn Member>> {
        bind()
    }

    fn acquaint(&self, _: &dyn Bootstrap, _: &[usize]) -> Result<Reach> {
        not_yet("finding out who reaches whom")
    }
}

/// The platform bound to the caller's current device, for a rank of a new communicator.
pub fn bind() -> Result<Arc<dyn Member>> {
    Ok(Arc::new(CudaPlatform))
}

/// The platform on the caller's current device, for calls that belong to no communicator.
pub fn current() -> Result<&'static dyn Platform> {
    Ok(&CudaPlatform)
}

impl Segments for CudaPlatform {
    fn granularity_bytes(&self) -> usize {
        2 << 20
    }

    fn create(&self, _: &SegmentRequest<'_>, _: &dyn Bootstrap) -> Result<Box<dyn Segment>> {
        not_yet("allocating memory")
    }
}

impl Kernels for CudaPlatform {
    fn gather(&self, table: &Table<'_>, indices: &Indices, output: &Rows, launch: Launch) -> Result<()> {
        kernels::gather(table, indices, output, launch)
    }

    fn scatter(&self, _: &Rows, _: &Indices, _: &Table<'_>, _: Launch) -> Result<()> {
        not_yet("scatter")
    }

    fn bucket(
        &self,
        _: &Indices,
        _: &[u64],
        _: &[u32],
        _: usize,
        _: Address,
        _: Address,
        _: Launch,
    ) -> Result<Vec<u64>> {
        not_yet("sorting ids by owner")
    }

    fn unique(&self, _: &Indices, _: Address, _: Address, _: Launch) -> Result<u64> {
        not_yet("removing doubles")
    }
}
