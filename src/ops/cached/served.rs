//! Gathers through a cache whose ranks cannot read each other's lines: ids go to the owners, who look them up and send rows back.

use super::Leases;
use super::gather::{CachedCall, NAME};
use crate::error::Result;
use crate::ops::announce::{Reader, Served};
use crate::ops::exchange;
use crate::ops::leg::Circle;
use crate::ops::plan::{Operation, Plan};
use crate::platform::caching::{CachedGather, Misses};
use crate::platform::meeting::Called;
use crate::platform::{Indices, Launch, Rows, Table, Workspace};

impl CachedCall<'_> {
    /// Ids go to the owners, who look them up and send rows back.
    pub(super) fn exchanged(&self, leases: Option<&Leases>, plan: Option<&Plan>, adjust: bool) -> Result<()> {
        let (cache, stream) = (self.cache, self.launch.stream);
        let session = cache.comm.enter_as(Called {
            operation: NAME,
            way: "lines exchanged",
        })?;
        let transport = cache.comm.transport(&session)?;
        let circle = Circle {
            boot: &session,
            transport: &*transport,
        };
        let field = self.field(&session);
        let rank = cache.comm.rank();
        let reader = CachedReader {
            call: self,
            leases,
            adjust,
        };
        let served = Served {
            partition: cache.table.partition(),
            rank,
            own: leases.and_then(|leases| leases.table.get(rank).copied()),
            identity: cache.lines.number(),
            through: Some(&reader),
        };
        cache.turns.change(self.platform, stream, |ordered| {
            let moved = exchange::run(Operation::Gather, &field, circle, &served, plan);
            ordered.and(moved)
        })
    }
}

/// Serves other ranks from lines and rows of this one.
struct CachedReader<'a> {
    call: &'a CachedCall<'a>,
    leases: Option<&'a Leases>,
    adjust: bool,
}

impl CachedReader<'_> {
    fn gather<'t>(&self, table: &'t Table<'t>, ids: &Indices, rows: &Rows) -> CachedGather<'t> {
        CachedGather {
            ids: *ids,
            output: *rows,
            cols: table.cols,
            dtype: self.call.cache.dtype,
            misses: Misses::Table(table),
            counts: !self.adjust,
        }
    }
}

impl Reader for CachedReader<'_> {
    fn needs_bytes(&self, table: &Table<'_>, ids: &Indices, rows: &Rows) -> Result<usize> {
        let Some(leases) = self.leases.filter(|_| ids.count > 0) else {
            return Ok(0);
        };
        let (kernels, view) = (self.call.platform.caching(), self.call.cache.view(leases));
        let reading = kernels.gather_cached_workspace_bytes(&view, &self.gather(table, ids, rows))?;
        let adjusting = match self.adjust {
            true => kernels.adjust_workspace_bytes(&view, ids.count)?,
            false => 0,
        };
        Ok(reading.max(adjusting))
    }

    fn read(&self, table: &Table<'_>, ids: &Indices, rows: &Rows, workspace: Workspace) -> Result<()> {
        let Some(leases) = self.leases.filter(|_| ids.count > 0) else {
            return Ok(());
        };
        let (cache, kernels) = (self.call.cache, self.call.platform.caching());
        let view = cache.view(leases);
        let launch = Launch {
            workspace,
            ..self.call.launch
        };
        let adjusted = match self.adjust {
            true => kernels.adjust(&view, ids, cache.tick(ids.count), launch),
            false => Ok(()),
        };
        // Others wait for these rows, adjusted or not.
        let read = kernels.gather_cached(&view, &self.gather(table, ids, rows), launch);
        adjusted.and(read)
    }
}
