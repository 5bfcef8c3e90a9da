//! The operations on rows, in the context of the bound GPU and as wide as it is.

use super::{CudaPlatform, kernels};
use crate::error::{Error, Kind, Result};
use crate::platform::{Indices, Kernels, Launch, Rows, Table};
use crate::span::Address;

fn not_yet<T>(what: &str) -> Result<T> {
    Err(Error::new(
        Kind::NotImplemented,
        format!(
            "{what} on GPUs is not in this version; set WHOLEMEMORY_PLATFORM=cpu to keep the data in this host's memory"
        ),
    ))
}

impl CudaPlatform {
    /// As wide as the caller asked, else as the GPU.
    fn width(&self, launch: Launch) -> Launch {
        Launch {
            sms: launch.sms.or(Some(self.multiprocessors())),
            ..launch
        }
    }
}

impl Kernels for CudaPlatform {
    fn gather(&self, table: &Table<'_>, indices: &Indices, output: &Rows, launch: Launch) -> Result<()> {
        let _entered = self.gpu.enter()?;
        kernels::gather(table, indices, output, self.width(launch))
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
