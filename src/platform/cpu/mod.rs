//! The CPU platform: shared memory between the processes and threads of one host, loops on a thread pool.

pub mod address;
pub mod bytes;
pub mod caching;
pub mod convert;
pub mod fill;
mod graph;
pub mod learning;
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
mod movers;
mod pool;
mod rows;
#[cfg(test)]
mod rows_tests;
pub mod segments;
mod split;
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
mod stores;
mod working;

use super::caching::CacheKernels;
use super::graph::GraphKernels;
use super::learning::{LearningKernels, RoundRobin, Step};
use super::staging::{Mover, StagedTransport};
use super::{
    Bootstrap, Indices, Kernels, Launch, Member, Platform, Reach, Rows, Segments, Selected, Stream, Table,
    Transport,
};
use crate::error::Result;
use crate::kinds::Location;
use crate::platform::call;
use crate::span::Address;
use std::sync::Arc;

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

    fn caching(&self) -> &dyn CacheKernels {
        self
    }

    fn graph(&self) -> &dyn GraphKernels {
        self
    }

    fn learning(&self) -> &dyn LearningKernels {
        self
    }

    fn local_transport(&self, boot: &dyn Bootstrap) -> Result<Box<dyn Transport>> {
        let part_bytes = (STAGING_BYTES / boot.size()).clamp(LEAST_PART_BYTES, MOST_PART_BYTES);
        Ok(Box::new(StagedTransport::create(
            Copies,
            Some(Copies),
            self.segments(),
            Location::Host,
            part_bytes,
            boot,
        )?))
    }

    fn can_reach(&self, address: Address) -> bool {
        !address.is_null()
    }

    fn copy(&self, to: Address, from: Address, bytes: usize, _stream: Stream) -> Result<()> {
        call::check_own()?;
        // SAFETY: the caller vouches for `bytes` at both addresses.
        unsafe { std::ptr::copy(from.0 as *const u8, to.0 as *mut u8, bytes) };
        Ok(())
    }

    fn set_local_processes(&self, processes: usize) {
        pool::set_local_processes(processes);
    }

    fn synchronize(&self, _stream: Stream) -> Result<()> {
        Ok(())
    }
}

/// What the staging parts of all ranks together may take.
const STAGING_BYTES: usize = 64 << 20;
const MOST_PART_BYTES: usize = 4 << 20;
const LEAST_PART_BYTES: usize = 64 << 10;

/// Copies that are done on return.
pub(super) struct Copies;

impl Mover for Copies {
    fn copy(&self, to: Address, from: Address, bytes: usize, _stream: Stream) -> Result<()> {
        call::check_own()?;
        // SAFETY: what `Mover` promises of its addresses.
        unsafe { std::ptr::copy_nonoverlapping(from.0 as *const u8, to.0 as *mut u8, bytes) };
        Ok(())
    }

    fn settle(&self, _stream: Stream) -> Result<()> {
        Ok(())
    }

    fn finish(&self, _stream: Stream) -> Result<()> {
        Ok(())
    }
}

impl Member for CpuPlatform {
    fn identity(&self) -> String {
        self.name().into()
    }

    fn rebind(&self) -> Result<Arc<dyn Member>> {
        Ok(Arc::new(CpuPlatform))
    }

    fn acquaint(&self, boot: &dyn Bootstrap, _host_of: &[usize]) -> Result<Reach> {
        Ok(Reach {
            unreachable: None,
            shares_device: boot.size() > 1,
            crowded: false,
            fabrics: Vec::new(),
        })
    }
}

impl Kernels for CpuPlatform {
    fn gather(&self, table: &Table<'_>, indices: &Indices, output: &Rows, _: Launch) -> Result<()> {
        call::check_own()?;
        rows::gather(table, indices, output)
    }

    fn scatter(&self, input: &Rows, indices: &Indices, table: &Table<'_>, _: Launch) -> Result<()> {
        call::check_own()?;
        rows::scatter(input, indices, table)
    }

    fn gather_selected(
        &self,
        table: &Table<'_>,
        selected: &Selected,
        output: &Rows,
        _: Launch,
    ) -> Result<()> {
        call::check_own()?;
        rows::gather_selected(table, selected, output)
    }

    fn scatter_selected(
        &self,
        input: &Rows,
        selected: &Selected,
        table: &Table<'_>,
        _: Launch,
    ) -> Result<()> {
        call::check_own()?;
        rows::scatter_selected(input, selected, table)
    }

    fn bucket(
        &self,
        indices: &Indices,
        start_rows: &[u64],
        bucket_of_owner: &[u32],
        bucket_count: usize,
        ids: Address,
        positions: Address,
        _: Launch,
    ) -> Result<Vec<u64>> {
        split::bucket(indices, start_rows, bucket_of_owner, bucket_count, ids, positions)
    }

    fn unique(
        &self,
        indices: &Indices,
        _rows: u64,
        unique: Address,
        slots: Address,
        _: Launch,
    ) -> Result<u64> {
        split::unique(indices, unique, slots)
    }

    fn add_row_numbers(
        &self,
        input: Address,
        rows: usize,
        cols: usize,
        output: &Rows,
        _: Launch,
    ) -> Result<()> {
        call::check_own()?;
        fill::add_row_numbers(input, rows, cols, output);
        Ok(())
    }
}

impl LearningKernels for CpuPlatform {
    fn step_workspace_bytes(&self, step: &Step<'_>) -> Result<usize> {
        Ok(learning::step_workspace(step))
    }

    fn step(&self, step: &Step<'_>, launch: Launch) -> Result<()> {
        call::check_own()?;
        // SAFETY: the caller has set the workspace aside.
        unsafe { learning::step(step, launch.workspace) }
    }

    fn map_rows(&self, indices: &Indices, map: &RoundRobin, mapped: Address, _: Launch) -> Result<()> {
        call::check_own()?;
        learning::map_rows(indices, map, mapped);
        Ok(())
    }

    fn fill(&self, address: Address, count: usize, value: f32, _: Stream) -> Result<()> {
        call::check_own()?;
        learning::fill(address, count, value);
        Ok(())
    }
}
