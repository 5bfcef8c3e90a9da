//! Who reaches whose memory: every rank makes a small piece of device memory, and every other maps and reads it. What the
//! driver promises of peer access is no proof (containers, virtual machines, IOMMUs), the bytes are.

use super::functions::drive;
use super::gpu::Gpu;
use super::handover::{Handover, Ticket, exchange};
use super::vmm::{Physical, Range};
use crate::error::{Error, Kind, Result, ensure, fail};
use crate::platform::{Bootstrap, Fabric, Reach, agree, is_one_fabric};
use crate::span::Address;
use std::sync::Arc;

const MARK_BYTES: usize = 16;

/// What a rank tells the others before they look at each other's memory.
struct Card {
    identity: String,
    page_bytes: usize,
    /// Fills the rank's probe memory; nobody else's mark.
    mark: [u8; MARK_BYTES],
    fabric: Option<Fabric>,
    /// Other threads of the process work with it too.
    crowded: bool,
}

impl Card {
    fn of(gpu: &Gpu, fabric: Option<Fabric>, crowded: bool) -> Result<Card> {
        let mut mark = [0; MARK_BYTES];
        rustix::rand::getrandom(&mut mark, rustix::rand::GetRandomFlags::empty())
            .map_err(|e| Error::system("getrandom", e))?;
        Ok(Card {
            identity: gpu.facts.identity.clone(),
            page_bytes: gpu.facts.page_bytes,
            mark,
            fabric,
            crowded,
        })
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = self.mark.to_vec();
        bytes.extend((self.page_bytes as u64).to_le_bytes());
        bytes.extend(encode_fabric(self.fabric));
        bytes.push(self.crowded.into());
        bytes.extend(self.identity.as_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Card> {
        let card = || {
            let (mark, rest) = bytes.split_first_chunk::<MARK_BYTES>()?;
            let (page_bytes, rest) = rest.split_first_chunk::<8>()?;
            let (fabric, rest) = rest.split_first_chunk::<FABRIC_BYTES>()?;
            let (crowded, identity) = rest.split_first()?;
            Some(Card {
                identity: String::from_utf8_lossy(identity).into_owned(),
                page_bytes: u64::from_le_bytes(*page_bytes) as usize,
                mark: *mark,
                fabric: decode_fabric(fabric)?,
                crowded: *crowded != 0,
            })
        };
        card().ok_or_else(|| {
            Error::new(
                Kind::Communication,
                "a rank sent an unreadable account of its GPU",
            )
        })
    }

    fn pattern(&self, bytes: usize) -> Vec<u8> {
        self.mark.iter().copied().cycle().take(bytes).collect()
    }
}

/// What is known (0: nothing, 1: the place, 2: and it is ready), the clique, the cluster.
const FABRIC_BYTES: usize = 1 + 4 + 16;

fn encode_fabric(fabric: Option<Fabric>) -> [u8; FABRIC_BYTES] {
    let mut bytes = [0; FABRIC_BYTES];
    if let Some(fabric) = fabric {
        bytes[0] = 1 + u8::from(fabric.is_ready);
        bytes[1..5].copy_from_slice(&fabric.clique.to_le_bytes());
        bytes[5..].copy_from_slice(&fabric.cluster);
    }
    bytes
}

/// `None` for bytes that are no account of a fabric.
fn decode_fabric(bytes: &[u8; FABRIC_BYTES]) -> Option<Option<Fabric>> {
    let (known, rest) = bytes.split_first()?;
    let (clique, cluster) = rest.split_first_chunk::<4>()?;
    let fabric = Fabric {
        cluster: cluster.try_into().ok()?,
        clique: u32::from_le_bytes(*clique),
        is_ready: *known == 2,
    };
    match known {
        0 => Some(None),
        1 | 2 => Some(Some(fabric)),
        _ => None,
    }
}

/// A piece of this rank's device memory with its mark all over it.
struct Sample {
    _range: Range,
    /// A handle of the fabric stands for it.
    _memory: Physical,
    ticket: Ticket,
}

impl Sample {
    fn make(gpu: &Arc<Gpu>, card: &Card, bytes: usize, handover: Handover) -> Result<Sample> {
        let _entered = gpu.enter()?;
        let memory = Physical::create(gpu, bytes, handover)?;
        let mut range = Range::reserve(gpu, bytes, bytes)?;
        range.map(0, &memory)?;
        write(gpu, range.base(), &card.pattern(bytes))?;
        Ok(Sample {
            ticket: memory.export()?,
            _range: range,
            _memory: memory,
        })
    }
}

fn write(gpu: &Gpu, to: Address, bytes: &[u8]) -> Result<()> {
    // SAFETY: the range has as many bytes, and a context is current.
    unsafe {
        drive!(
            gpu.functions,
            cuMemcpyHtoD_v2(to.0 as u64, bytes.as_ptr().cast(), bytes.len())
        )
    }?;
    // The copy may return before the last bytes are on the GPU.
    gpu.synchronize()
}

/// Maps and reads the sample of another rank.
fn look(gpu: &Arc<Gpu>, ticket: &Ticket, peer: &Card, bytes: usize) -> Result<()> {
    let _entered = gpu.enter()?;
    let memory = Physical::import(gpu, ticket, bytes)?;
    let mut range = Range::reserve(gpu, bytes, bytes)?;
    range.map(0, &memory)?;
    let mut seen = vec![0u8; bytes];
    // SAFETY: both sides have `bytes` bytes, and a context is current.
    unsafe {
        drive!(
            gpu.functions,
            cuMemcpyDtoH_v2(seen.as_mut_ptr().cast(), range.base().0 as u64, bytes)
        )
    }?;
    match seen
        .iter()
        .zip(peer.pattern(bytes))
        .position(|(seen, meant)| *seen != meant)
    {
        None => Ok(()),
        Some(at) => fail!(
            Cuda,
            "its memory reads back wrong from byte {at} on (peer access does not work on this machine)"
        ),
    }
}

/// Collective. See [`crate::platform::Member::acquaint`]; `fabric` is what is known of the own GPU's place, `crowded` whether
/// other threads of the process work with it. Also how the ranks hand their memory to each other: on several hosts by handles
/// of the fabric, if that is proved to work.
pub fn acquaint(
    gpu: &Arc<Gpu>,
    fabric: Option<Fabric>,
    crowded: bool,
    boot: &dyn Bootstrap,
    host_of: &[usize],
) -> Result<(Reach, Handover)> {
    if boot.size() == 1 {
        let alone = Reach {
            unreachable: None,
            shares_device: false,
            crowded: false,
            fabrics: vec![fabric],
        };
        return Ok((alone, Handover::Descriptors));
    }
    let own = agree(boot, &[], Card::of(gpu, fabric, crowded))?;
    let cards = boot
        .all_gather(&own.encode())?
        .iter()
        .map(|bytes| Card::decode(bytes))
        .collect::<Result<Vec<Card>>>()?;
    let shares_device = (1..cards.len()).any(|rank| {
        cards[..rank]
            .iter()
            .any(|lower| lower.identity == cards[rank].identity)
    });
    let fabrics: Vec<_> = cards.iter().map(|card| card.fabric).collect();
    let stranger = host_of.iter().position(|host| *host != host_of[0]);
    let (unreachable, handover) = match stranger {
        None => (
            prove(gpu, boot, &own, &cards, Handover::Descriptors)?,
            Handover::Descriptors,
        ),
        Some(rank) => {
            let apart = format!("rank {rank} is on another host than rank 0");
            match is_one_fabric(&fabrics) {
                false => (Some(apart), Handover::Descriptors),
                true => match prove(gpu, boot, &own, &cards, Handover::Fabric)? {
                    None => (None, Handover::Fabric),
                    Some(why) => (
                        Some(format!("{apart}, and their NVLink fabric does not do: {why}")),
                        Handover::Descriptors,
                    ),
                },
            }
        }
    };
    let reach = Reach {
        unreachable,
        shares_device,
        crowded: cards.iter().any(|card| card.crowded),
        fabrics,
    };
    Ok((reach, handover))
}

/// Marks a rank's complaint about itself, which explains those of the others.
const OWN: char = '!';

/// A complaint that explains what does not work, the same on all ranks; `None` if everything does.
fn prove(
    gpu: &Arc<Gpu>,
    boot: &dyn Bootstrap,
    own: &Card,
    cards: &[Card],
    handover: Handover,
) -> Result<Option<String>> {
    let bytes = cards.iter().map(|card| card.page_bytes).max().unwrap_or(0);
    let sample = Sample::make(gpu, own, bytes, handover);
    let ticket = sample.as_ref().ok().map(|sample| &sample.ticket);
    let tickets = exchange(boot, handover, ticket)?;
    let look_at = |peer: usize| -> Result<()> {
        ensure!(
            peer < tickets.len() && tickets[peer].is_some(),
            Cuda,
            "it has no device memory to share"
        );
        let ticket = tickets[peer].as_ref().expect("checked");
        gpu.check_peer(&cards[peer].identity)?;
        look(gpu, ticket, &cards[peer], bytes)
    };
    let complaint = match &sample {
        Err(error) => Some(format!("{OWN}its own device memory cannot be shared: {error}")),
        Ok(_) => (0..boot.size())
            .filter(|peer| *peer != boot.rank())
            .find_map(|peer| {
                let error = look_at(peer).err()?;
                Some(format!(
                    "cannot reach the memory of rank {peer} ({}): {error}",
                    cards[peer].identity
                ))
            }),
    };
    // Everybody has looked when this returns; only then do the samples go.
    let all = boot.all_gather(complaint.unwrap_or_default().as_bytes())?;
    drop(sample);
    let words: Vec<_> = all.iter().map(|bytes| String::from_utf8_lossy(bytes)).collect();
    let rank = words
        .iter()
        .position(|words| words.starts_with(OWN))
        .or_else(|| words.iter().position(|words| !words.is_empty()));
    Ok(rank.map(|rank| {
        let words = words[rank].trim_start_matches(OWN);
        format!("rank {rank} ({}): {words}", cards[rank].identity)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_come_back_as_they_were_written() {
        let ready = Fabric {
            cluster: [7; 16],
            clique: 0x0102_0304,
            is_ready: true,
        };
        let waiting = Fabric {
            is_ready: false,
            ..ready
        };
        for (fabric, crowded) in [(None, true), (Some(ready), false), (Some(waiting), true)] {
            let card = Card {
                identity: "GPU-1".into(),
                page_bytes: 2 << 20,
                mark: [9; MARK_BYTES],
                fabric,
                crowded,
            };
            let read = Card::decode(&card.encode()).unwrap();
            assert_eq!(
                (read.identity.as_str(), read.page_bytes, read.fabric, read.crowded),
                ("GPU-1", 2 << 20, fabric, crowded)
            );
        }
        assert!(Card::decode(&[0; MARK_BYTES + 8 + FABRIC_BYTES]).is_err());
        let mut wrong = [0; MARK_BYTES + 8 + FABRIC_BYTES + 1];
        assert!(Card::decode(&wrong).is_ok());
        wrong[MARK_BYTES + 8] = 3;
        assert!(Card::decode(&wrong).is_err());
    }
}
