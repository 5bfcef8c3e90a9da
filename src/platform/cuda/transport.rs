//! Which transport the exchanging routes take on GPUs, and the copies of the local one.

use super::CudaPlatform;
use super::collective::NcclTransport;
use super::gpu::Gpu;
use super::mark::EventMark;
use super::nccl;
use crate::error::{Result, ensure, fail};
use crate::kinds::Location;
use crate::log::say;
use crate::platform::staging::{Mover, StagedTransport};
use crate::platform::{Bootstrap, Mark, Stream, Transport, TransportChoice, agree, largest};
use crate::span::Address;
use std::sync::Arc;

/// What the staging parts of all ranks together may take, and one of them at the most: rounds are then long beside a meeting.
const STAGING_BYTES: usize = 512 << 20;
const MOST_PART_BYTES: usize = 64 << 20;
const LEAST_PART_BYTES: usize = 2 << 20;

/// What the ranks decide by; the same on all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Situation {
    ranks: usize,
    single_host: bool,
    shares_device: bool,
    /// A GPU has waiting ranks of another thread of its process, as [`tenants`](super::tenants) says.
    crowded: bool,
    /// Every rank maps the device memory of all others.
    maps_others: bool,
    /// Every rank found an NCCL that can be used.
    nccl_usable: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pick {
    Local,
    Nccl,
    /// NCCL, and if it does not come up, local copies.
    Either,
}

/// # Errors
/// NOT_SUPPORTED where the choice cannot be had.
fn pick(choice: TransportChoice, situation: Situation) -> Result<Pick> {
    if situation.ranks == 1 {
        return Ok(Pick::Local);
    }
    match choice {
        TransportChoice::Local => {
            ensure!(
                situation.single_host,
                NotSupported,
                "WHOLEMEMORY_TRANSPORT=local copies within one host, and the ranks are on several"
            );
            Ok(Pick::Local)
        }
        TransportChoice::Nccl | TransportChoice::Auto if situation.shares_device => {
            ensure!(
                choice == TransportChoice::Auto,
                NotSupported,
                "WHOLEMEMORY_TRANSPORT=nccl, but some ranks share one GPU, which NCCL refuses"
            );
            ensure!(
                situation.single_host,
                NotSupported,
                "some ranks share one GPU, which NCCL refuses, and the ranks are on several hosts, which local copies do not reach; \
                 give every rank a GPU of its own"
            );
            Ok(Pick::Local)
        }
        TransportChoice::Nccl => Ok(Pick::Nccl),
        TransportChoice::Auto if situation.crowded && situation.single_host => Ok(Pick::Local),
        // Copies between memories that are mapped need no start of NCCL's kernels, which takes longer than most exchanges.
        TransportChoice::Auto => Ok(match situation {
            Situation {
                single_host: false, ..
            } => Pick::Nccl,
            Situation {
                maps_others: true, ..
            } => Pick::Local,
            Situation {
                nccl_usable: true, ..
            } => Pick::Either,
            _ => Pick::Local,
        }),
    }
}

impl CudaPlatform {
    /// Collective. See [`crate::platform::Member::transport`].
    pub(super) fn make_transport(
        &self,
        choice: TransportChoice,
        boot: &dyn Bootstrap,
    ) -> Result<Box<dyn Transport>> {
        let mut situation = Situation {
            ranks: boot.size(),
            single_host: self.is_single_host(),
            shares_device: self.shares_device(),
            crowded: false,
            maps_others: self.maps_others(),
            nccl_usable: true,
        };
        // NCCL's kernels wait for each other as meetings do.
        let tenant = (boot.size() > 1).then(|| self.tenant());
        if let Some(tenant) = &tenant {
            situation.crowded = largest(boot, tenant.has_company().into())? != 0;
        }
        let mut picked = pick(choice, situation)?;
        if picked == Pick::Either {
            let missing = agree(boot, &[], nccl::usable().map(drop)).err();
            if let (Some(error), None) = (&missing, boot.failure()) {
                say!(
                    Info,
                    "rows are exchanged by copies within the host, not by NCCL: {error}"
                );
                situation.nccl_usable = false;
                picked = pick(choice, situation)?;
            }
        }
        if picked == Pick::Nccl && situation.crowded {
            say!(
                Warn,
                "these ranks exchange by NCCL, and another thread of a process has a communicator that waits on a GPU of theirs: use \
                 different streams for the two, or they may wait for each other for ever"
            );
        }
        // Copies wait for nobody on the GPU.
        let tenant = tenant.filter(|_| picked != Pick::Local);
        let over_nccl = || {
            let tenant = tenant;
            let made = self.make_nccl_transport(boot)?;
            if let Some(tenant) = tenant {
                let _ = self.exchanges.set(tenant);
            }
            Ok(made)
        };
        match picked {
            Pick::Local => self.make_local_transport(boot),
            Pick::Nccl => over_nccl(),
            Pick::Either => match over_nccl() {
                Err(error) if boot.failure().is_none() => {
                    say!(
                        Warn,
                        "rows are exchanged by copies within the host, not by NCCL: {error}"
                    );
                    self.make_local_transport(boot)
                }
                made => made,
            },
        }
    }

    fn make_nccl_transport(&self, boot: &dyn Bootstrap) -> Result<Box<dyn Transport>> {
        let transport = NcclTransport::create(&self.gpu, boot)?;
        self.watch_over(transport.abortable());
        Ok(Box::new(transport))
    }

    /// Staging on the GPUs where all ranks map each other's memory, else in the host's.
    pub(super) fn make_local_transport(&self, boot: &dyn Bootstrap) -> Result<Box<dyn Transport>> {
        if boot.size() > 1 && !self.is_single_host() {
            fail!(
                NotSupported,
                "local copies work within one host, and the ranks are on several"
            );
        }
        let location = if self.maps_others() {
            Location::Device
        } else {
            Location::Host
        };
        let movers = StreamCopies::new(&self.gpu).and_then(|mover| {
            let window = match location {
                Location::Device => Some(StreamCopies::new(&self.gpu)?),
                _ => None,
            };
            Ok((mover, window))
        });
        let (mover, window) = agree(boot, &[], movers)?;
        let part_bytes = (STAGING_BYTES / boot.size()).clamp(LEAST_PART_BYTES, MOST_PART_BYTES);
        Ok(Box::new(StagedTransport::create(
            mover, window, self, location, part_bytes, boot,
        )?))
    }
}

/// Copies in the order of a stream.
struct StreamCopies {
    gpu: Arc<Gpu>,
    /// Behind the last copies of the last call.
    last: EventMark,
}

impl StreamCopies {
    fn new(gpu: &Arc<Gpu>) -> Result<StreamCopies> {
        Ok(StreamCopies {
            gpu: gpu.clone(),
            last: EventMark::new(gpu)?,
        })
    }
}

impl Mover for StreamCopies {
    fn copy(&self, to: Address, from: Address, bytes: usize, stream: Stream) -> Result<()> {
        self.gpu.copy(to, from, bytes, stream)
    }

    fn settle(&self, stream: Stream) -> Result<()> {
        self.last.wait()?;
        self.gpu.synchronize_stream(stream)
    }

    fn finish(&self, stream: Stream) -> Result<()> {
        self.last.set(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn who_gets_which_transport() {
        use TransportChoice::{Auto, Local, Nccl};
        let situation = |ranks, single_host, shares_device, nccl_usable| Situation {
            ranks,
            single_host,
            shares_device,
            crowded: false,
            maps_others: false,
            nccl_usable,
        };
        let crowded = |it: Situation| Situation { crowded: true, ..it };
        let mapped = |it: Situation| Situation {
            maps_others: true,
            ..it
        };
        let table = [
            (Nccl, situation(1, true, false, false), Some(Pick::Local)),
            (Auto, situation(2, true, true, true), Some(Pick::Local)),
            (Nccl, situation(2, true, true, true), None),
            (Local, situation(2, true, false, true), Some(Pick::Local)),
            (Local, situation(2, false, false, true), None),
            (Auto, situation(2, true, false, true), Some(Pick::Either)),
            (Auto, situation(2, true, false, false), Some(Pick::Local)),
            (Auto, situation(2, false, false, false), Some(Pick::Nccl)),
            (Auto, situation(3, false, true, true), None),
            (Nccl, situation(2, true, false, true), Some(Pick::Nccl)),
            (Auto, mapped(situation(2, true, false, true)), Some(Pick::Local)),
            (Auto, mapped(situation(2, false, false, true)), Some(Pick::Nccl)),
            (Nccl, mapped(situation(2, true, false, true)), Some(Pick::Nccl)),
            (Auto, crowded(situation(2, true, false, true)), Some(Pick::Local)),
            (Auto, crowded(situation(2, false, false, true)), Some(Pick::Nccl)),
            (Nccl, crowded(situation(2, true, false, true)), Some(Pick::Nccl)),
        ];
        for (choice, situation, want) in table {
            let got = pick(choice, situation);
            assert_eq!(got.as_ref().ok(), want.as_ref(), "{choice:?} {situation:?}");
            if let Err(error) = got {
                assert_eq!(error.kind, Kind::NotSupported);
            }
        }
    }
}
