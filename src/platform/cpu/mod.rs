//! The CPU platform: shared memory between the processes and threads of one host, loops on a thread pool.

pub mod bytes;
pub mod fill;
pub mod segments;
mod transport;

use super::{Bootstrap, Kernels, Platform, Segments, Stream, Transport};
use crate::error::{Result, fail};
use crate::span::Address;

/// This host's memory and cores. Streams are ignored: work is done on return.
pub struct CpuPlatform;

impl Platform for CpuPlatform {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn segments(&self) -> &dyn Segments {
        &segments::MemfdSegments
    }

    fn kernels(&self) -> &dyn Kernels {
        self
    }

    fn local_transport(&self, boot: &dyn Bootstrap) -> Result<Box<dyn Transport>> {
        Ok(Box::new(transport::LocalTransport::create(
            self.segments(),
            boot,
        )?))
    }

    fn can_reach(&self, address: Address) -> bool {
        !address.is_null()
    }

    fn copy(&self, to: Address, from: Address, bytes: usize, _stream: Stream) -> Result<()> {
        // SAFETY: the caller vouches for `bytes` at both addresses.
        unsafe { std::ptr::copy(from.0 as *const u8, to.0 as *mut u8, bytes) };
        Ok(())
    }

    fn synchronize(&self, _stream: Stream) -> Result<()> {
        Ok(())
    }
}

impl Kernels for CpuPlatform {
    fn gather(
        &self,
        _: &super::Table<'_>,
        _: &super::Indices,
        _: &super::Rows,
        _: super::Launch,
    ) -> Result<()> {
        fail!(NotImplemented, "gather is not in this version")
    }

    fn scatter(
        &self,
        _: &super::Rows,
        _: &super::Indices,
        _: &super::Table<'_>,
        _: super::Launch,
    ) -> Result<()> {
        fail!(NotImplemented, "scatter is not in this version")
    }

    fn bucket(
        &self,
        _: &super::Indices,
        _: &[u64],
        _: &[u32],
        _: usize,
        _: Address,
        _: Address,
        _: super::Launch,
    ) -> Result<Vec<u64>> {
        fail!(NotImplemented, "bucketing is not in this version")
    }

    fn unique(&self, _: &super::Indices, _: Address, _: Address, _: super::Launch) -> Result<u64> {
        fail!(NotImplemented, "removing doubles is not in this version")
    }
}
