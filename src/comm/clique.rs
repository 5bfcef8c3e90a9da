//! NVLink cliques: which ranks' GPUs are in one part of a fabric. Pure.

use crate::platform::Fabric;
use std::collections::BTreeSet;

/// What `clique_info_t` reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CliqueInfo {
    pub is_in_clique: bool,
    pub first_rank: i32,
    pub rank: i32,
    pub rank_count: i32,
    pub id: i32,
    pub count: i32,
}

/// Ranks are in one clique if cluster and clique are the same; those in no fabric count as one. `fabrics` holds what is known
/// of every rank's GPU. A rank of which nothing is known is in none, and there is one clique in all for it.
pub(super) fn clique_of(rank: usize, fabrics: &[Option<Fabric>]) -> CliqueInfo {
    let key = |fabric: &Fabric| (fabric.cluster, fabric.clique);
    let Some(own) = fabrics.get(rank).copied().flatten() else {
        return CliqueInfo {
            is_in_clique: false,
            first_rank: -1,
            rank: -1,
            rank_count: 0,
            id: 0,
            count: 1,
        };
    };
    let cliques: BTreeSet<_> = fabrics.iter().flatten().map(key).collect();
    let is_mine = |fabric: &Option<Fabric>| fabric.as_ref().map(key) == Some(key(&own));
    let mine: Vec<usize> = (0..fabrics.len()).filter(|r| is_mine(&fabrics[*r])).collect();
    CliqueInfo {
        is_in_clique: own.cluster != [0; 16],
        first_rank: mine[0] as i32,
        rank: mine.iter().position(|r| *r == rank).unwrap_or(0) as i32,
        rank_count: mine.len() as i32,
        id: cliques.iter().position(|k| *k == key(&own)).unwrap_or(0) as i32,
        count: cliques.len() as i32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::is_one_fabric;

    fn at(cluster: u8, clique: u32) -> Option<Fabric> {
        Some(Fabric {
            cluster: [cluster; 16],
            clique,
            is_ready: cluster != 0,
        })
    }

    fn info(is_in_clique: bool, numbers: [i32; 5]) -> CliqueInfo {
        let [first_rank, rank, rank_count, id, count] = numbers;
        CliqueInfo {
            is_in_clique,
            first_rank,
            rank,
            rank_count,
            id,
            count,
        }
    }

    #[test]
    fn cliques_are_clusters_with_their_cliques() {
        // Two cliques of one cluster, one of another; ordered by their names.
        let fabrics = [at(9, 1), at(2, 8), at(9, 1), at(9, 0), at(2, 8), at(9, 1)];
        let want = [
            info(true, [0, 0, 3, 2, 3]),
            info(true, [1, 0, 2, 0, 3]),
            info(true, [0, 1, 3, 2, 3]),
            info(true, [3, 0, 1, 1, 3]),
            info(true, [1, 1, 2, 0, 3]),
            info(true, [0, 2, 3, 2, 3]),
        ];
        for (rank, want) in want.into_iter().enumerate() {
            assert_eq!(clique_of(rank, &fabrics), want, "{rank}");
        }
        assert!(!is_one_fabric(&fabrics));
        assert!(is_one_fabric(&[at(9, 1), at(9, 1)]));
        assert!(!is_one_fabric(&[at(9, 1), at(9, 0)]));
    }

    #[test]
    fn ranks_without_a_fabric_are_in_one_clique_that_is_none() {
        let fabrics = [at(0, 0), at(0, 0), at(0, 0)];
        for rank in 0..3 {
            assert_eq!(clique_of(rank, &fabrics), info(false, [0, rank as i32, 3, 0, 1]));
        }
        assert!(!is_one_fabric(&fabrics));
    }

    #[test]
    fn of_ranks_without_nvml_nothing_is_known() {
        let nothing = info(false, [-1, -1, 0, 0, 1]);
        assert_eq!(clique_of(0, &[]), nothing);
        let fabrics = [at(4, 0), None, at(4, 0)];
        assert_eq!(clique_of(1, &fabrics), nothing);
        assert_eq!(clique_of(2, &fabrics), info(true, [0, 1, 2, 0, 1]));
        assert!(!is_one_fabric(&fabrics) && !is_one_fabric(&[]));
        let mut half_ready = [at(4, 0), at(4, 0)];
        half_ready[1].as_mut().unwrap().is_ready = false;
        assert!(!is_one_fabric(&half_ready));
    }
}
