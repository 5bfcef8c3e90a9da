//! Who shares a host and who a node. Pure but for [`Identity::here`].
//!
//! The host (really shared memory) decides transports; the node (`WHOLEMEMORY_BOOTID` overrides) decides capabilities and
//! the grouping of HIERARCHY. A node is never larger than a host.

use super::place::real_boot_id;
use super::wire::{Reader, Writer};
use crate::error::Result;
use crate::settings;
use std::os::unix::fs::MetadataExt;

/// What a rank tells the others of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub platform: String,
    pub boot_id: String,
    pub host_name: String,
    /// Host name, boot id (overridable) and device of /dev/shm: equal on one node.
    pub node: String,
    pub pid: u32,
    pub user: u32,
    pub route: String,
    pub transport: String,
}

impl Identity {
    /// # Errors
    /// SYSTEM_ERROR where the process has no descriptor left to learn the boot id with.
    pub fn here(platform: &str) -> Result<Identity> {
        let host_name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let boot_id = real_boot_id()?.to_owned();
        let node_boot = settings::boot_id_override().unwrap_or_else(|| boot_id.clone());
        let shm = std::fs::metadata("/dev/shm").map_or(0, |m| m.dev());
        Ok(Identity {
            platform: platform.to_owned(),
            node: format!("{host_name}/{node_boot}/{shm}"),
            boot_id,
            host_name,
            pid: std::process::id(),
            user: rustix::process::geteuid().as_raw(),
            route: settings::route(),
            transport: settings::transport(),
        })
    }

    pub fn encode(&self) -> Vec<u8> {
        [
            &self.platform,
            &self.boot_id,
            &self.host_name,
            &self.node,
            &self.route,
            &self.transport,
        ]
        .iter()
        .fold(Writer::default().u32(self.pid).u32(self.user), |w, t| w.text(t))
        .0
    }

    pub fn decode(bytes: &[u8]) -> Option<Identity> {
        let mut r = Reader(bytes);
        let (pid, user) = (r.u32()?, r.u32()?);
        let (platform, boot_id, host_name, node) = (r.text()?, r.text()?, r.text()?, r.text()?);
        Some(Identity {
            platform,
            boot_id,
            host_name,
            node,
            pid,
            user,
            route: r.text()?,
            transport: r.text()?,
        })
    }
}

/// The grouping of all ranks, the same on every rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Host of every rank, numbered by first appearance.
    pub host_of: Vec<usize>,
    /// Node of every rank, numbered by first appearance.
    pub node_of: Vec<usize>,
    /// Place of every rank among the ranks of its node.
    pub place_of: Vec<usize>,
}

fn number<T: PartialEq>(keys: &[T]) -> Vec<usize> {
    let mut seen: Vec<&T> = Vec::new();
    keys.iter()
        .map(|key| {
            seen.iter().position(|s| *s == key).unwrap_or_else(|| {
                seen.push(key);
                seen.len() - 1
            })
        })
        .collect()
}

/// Ranks that could share memory: the machine and the user are the same. A hand-shake proves it.
pub fn host_candidates(identities: &[Identity]) -> Vec<usize> {
    number(
        &identities
            .iter()
            .map(|i| (&i.boot_id, i.user))
            .collect::<Vec<_>>(),
    )
}

impl Topology {
    /// `host_of` as proved by the hand-shake.
    pub fn new(host_of: Vec<usize>, nodes: &[&str]) -> Topology {
        let host_of = number(&host_of);
        let node_of = number(&host_of.iter().zip(nodes).collect::<Vec<_>>());
        let place_of = (0..node_of.len())
            .map(|r| node_of[..r].iter().filter(|n| **n == node_of[r]).count())
            .collect();
        Topology {
            host_of,
            node_of,
            place_of,
        }
    }

    pub fn node_size(&self, rank: usize) -> usize {
        self.node_of.iter().filter(|n| **n == self.node_of[rank]).count()
    }

    pub fn is_single_host(&self) -> bool {
        self.host_of.iter().all(|h| *h == 0)
    }

    pub fn is_single_node(&self) -> bool {
        self.node_of.iter().all(|n| *n == 0)
    }

    /// The ranks of every node if all nodes are equal in size.
    pub fn equal_nodes(&self) -> Option<usize> {
        let size = self.node_size(0);
        (0..self.node_of.len())
            .all(|r| self.node_size(r) == size)
            .then_some(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_stay_within_hosts_and_count_in_rank_order() {
        let t = Topology::new(vec![5, 5, 9, 5, 9, 9], &["a", "b", "a", "a", "a", "b"]);
        assert_eq!(t.host_of, [0, 0, 1, 0, 1, 1]);
        assert_eq!(t.node_of, [0, 1, 2, 0, 2, 3]);
        assert_eq!(t.place_of, [0, 0, 0, 1, 1, 0]);
        assert_eq!((t.node_size(0), t.node_size(5)), (2, 1));
        assert!(!t.is_single_host() && t.equal_nodes().is_none());
        let t = Topology::new(vec![0; 4], &["x", "y", "x", "y"]);
        assert!(t.is_single_host() && !t.is_single_node());
        assert_eq!(t.equal_nodes(), Some(2));
    }

    #[test]
    fn identities_survive_the_wire() {
        let here = Identity::here("cpu").unwrap();
        assert_eq!(Identity::decode(&here.encode()), Some(here));
    }
}
