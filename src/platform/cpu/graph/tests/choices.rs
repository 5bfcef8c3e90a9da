//! Sampling: the vectors, the reference, and what chance must look like.

use super::*;
use crate::platform::cpu::graph::choice::Chooser;
use crate::platform::graph::BadCenter;
use proptest::prelude::*;
use serde_json::Value;
use std::collections::HashSet;

fn vectors(section: &str) -> Vec<Value> {
    let all: Value =
        serde_json::from_str(include_str!("../../../../../tests/data/vectors_rng.json")).unwrap();
    all[section].as_array().unwrap().clone()
}

fn numbers(case: &Value, name: &str) -> Vec<u64> {
    let list = case[name].as_array().unwrap();
    list.iter().map(|v| v.as_u64().unwrap()).collect()
}

fn number(case: &Value, name: &str) -> u64 {
    let value = &case[name];
    value.as_u64().unwrap_or_else(|| value.as_i64().unwrap() as u64)
}

#[test]
fn unweighted_vectors() {
    let cases = vectors("model_unweighted_sample");
    assert!(cases.len() >= 11);
    for case in cases {
        let most = number(&case, "max_sample_count") as u32;
        let mut chooser = Chooser::new(number(&case, "seed"), most, false);
        let chosen = chooser
            .uniform(number(&case, "center_position"), number(&case, "neighbor_count"))
            .unwrap();
        let want = numbers(&case, "offsets");
        assert_eq!(chosen[..want.len()], want[..], "{case}");
        assert_eq!(chosen.iter().sum::<u64>(), number(&case, "offsets_sum"));
        assert_eq!(chosen.len(), most as usize);
    }
}

#[test]
fn unweighted_vectors_of_many() {
    for case in vectors("model_unweighted_large") {
        let most = number(&case, "max_sample_count") as u32;
        let mut chooser = Chooser::new(number(&case, "seed"), most, false);
        let chosen = chooser
            .uniform(number(&case, "center_position"), number(&case, "neighbor_count"))
            .unwrap();
        assert_eq!(chosen[..32], numbers(&case, "first_32_offsets")[..]);
        let changed = case["changed_slots"].as_array().unwrap();
        assert!(!changed.is_empty());
        for pair in changed {
            let (slot, value) = (pair[0].as_u64().unwrap(), pair[1].as_u64().unwrap());
            assert_eq!(chosen[slot as usize], value, "slot {slot}");
        }
    }
}

#[test]
fn weighted_vectors() {
    for case in vectors("model_weighted_sample") {
        let most = number(&case, "max_sample_count") as u32;
        let mut chooser = Chooser::new(number(&case, "seed"), most, true);
        let chosen = chooser
            .weighted(
                number(&case, "center_position"),
                number(&case, "neighbor_count"),
                |y| 1.0 + ((37 * y) % 101) as f64 / 8.0,
            )
            .unwrap();
        let want = numbers(&case, "offsets_desc_by_key");
        assert_eq!(chosen[..want.len()], want[..], "{case}");
        assert_eq!(chosen.iter().sum::<u64>(), number(&case, "offset_set_sum"));
    }
}

fn check(graph: &Graph, centers: &[i64], wide_centers: bool, take: Take, seed: u64, by: By) {
    let given = Integers::new(centers, wide_centers);
    let got = super::sample(graph, &given, take, seed, by);
    let want = reference::sample(graph, centers, take, seed, by);
    assert_eq!(got, want, "{take:?} {by:?} seed {seed}");
    for i in 0..centers.len() {
        let own = &got.edge_gid[got.offsets[i] as usize..got.offsets[i + 1] as usize];
        assert_eq!(
            own.iter().collect::<HashSet<_>>().len(),
            own.len(),
            "center {i} twice"
        );
    }
}

fn awkward_weight(edge: usize) -> f64 {
    match edge % 11 {
        0 => 0.0,
        1 => -2.5,
        2 => f64::NAN,
        3 => 1e-300,
        4 => 1e300,
        5 => f64::INFINITY,
        _ => 0.25 * (edge % 37) as f64,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn as_the_reference(
        degrees in prop::collection::vec(prop_oneof![4 => 0u64..50, 1 => 50u64..400], 1..20),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 1..60),
        most in prop_oneof![4 => 1u32..12, 2 => 12u32..70, 1 => 70u32..300],
        take in 0..4,
        seed in any::<u64>(),
        wide in any::<(bool, bool)>(),
        by in prop_oneof![Just(By::Chance), Just(By::Floats), Just(By::Doubles), Just(By::Fetched)],
    ) {
        let graph = Graph::new(&degrees, wide.0, awkward_weight);
        let centers: Vec<i64> = picks.iter().map(|pick| pick.index(degrees.len()) as i64).collect();
        let take = match take {
            0 => Take::All,
            _ => Take::AtMost(most),
        };
        check(&graph, &centers, wide.1, take, seed, by);
        check(&graph, &centers, wide.1, Take::AllAbove(most), seed, By::Chance);
    }
}

#[test]
fn every_layout() {
    let degrees: Vec<u64> = (0..12).map(|k| 1 + k * 153 % 1700).collect();
    let graph = Graph::new(&degrees, false, |e| 1.0 + (e % 17) as f64);
    let centers: Vec<i64> = (0..12).collect();
    // Either end of every layout.
    let counts = [
        1, 31, 32, 33, 64, 65, 96, 97, 128, 129, 192, 193, 256, 257, 384, 385, 512, 513, 768, 769, 1000,
        1024, 1025, 1500,
    ];
    for most in counts {
        check(
            &graph,
            &centers,
            true,
            Take::AtMost(most),
            u64::from(most),
            By::Chance,
        );
    }
    for most in [1, 2, 127, 128, 129, 255, 256, 257, 400, 1024, 1025, 1600] {
        check(
            &graph,
            &centers,
            false,
            Take::AtMost(most),
            u64::from(most),
            By::Floats,
        );
    }
}

#[test]
fn on_all_threads() {
    let degrees: Vec<u64> = (0..500).map(|k| (k * k * 31) % 97).collect();
    let graph = Graph::new(&degrees, true, |e| 0.5 + (e % 29) as f64);
    let centers: Vec<i64> = (0..20_000).map(|i| (i * 7919) % 500).collect();
    for by in [By::Chance, By::Doubles, By::Fetched] {
        let given = Integers::new(&centers, false);
        let got = super::sample(&graph, &given, Take::AtMost(9), 11, by);
        // The reference steps through its streams one number at a time: a few centers from either end.
        let head = reference::sample(&graph, &centers[..200], Take::AtMost(9), 11, by);
        assert_eq!(got.edge_gid[..head.edge_gid.len()], head.edge_gid[..]);
        for (i, center) in centers.iter().enumerate() {
            let own = &got.edge_gid[got.offsets[i] as usize..got.offsets[i + 1] as usize];
            let (start, end) = (
                graph.row_pointers[*center as usize],
                graph.row_pointers[*center as usize + 1],
            );
            assert_eq!(own.len() as i64, (end - start).min(9));
            assert!(own.iter().all(|e| (start..end).contains(e)));
            assert_eq!(own.iter().collect::<HashSet<_>>().len(), own.len());
        }
    }
}

/// The sum of (seen - expected)^2 / expected.
fn chi_square(seen: &[u64], expected: &[f64]) -> f64 {
    seen.iter()
        .zip(expected)
        .map(|(s, e)| (*s as f64 - e).powi(2) / e)
        .sum()
}

/// A million neighbours taken, ten of 100 at a time: no double, and every neighbour about equally often. Of a choice without
/// replacement the statistic is smaller than of independent draws, by (N - M) / (N - 1).
#[test]
fn a_million_draws_are_uniform() {
    let (degree, most) = (100u64, 10u32);
    let mut chooser = Chooser::new(20_26, most, false);
    let mut seen = vec![0u64; degree as usize];
    for position in 0..100_000 {
        let chosen = chooser.uniform(position, degree).unwrap();
        let mut of_this = [false; 100];
        for y in chosen {
            assert!(!std::mem::replace(&mut of_this[*y as usize], true));
            seen[*y as usize] += 1;
        }
    }
    assert_eq!(seen.iter().sum::<u64>(), 1_000_000);
    let scale = (degree - u64::from(most)) as f64 / (degree - 1) as f64;
    let statistic = chi_square(&seen, &vec![10_000.0; 100]) / scale;
    // 99 degrees of freedom; both ends of the two-sided level of 0.2 %.
    assert!((60.0..148.3).contains(&statistic), "chi-square {statistic}");
}

/// One neighbour of four by weight: its chance is its share.
#[test]
fn weights_are_chances() {
    let weights = [1.0, 2.0, 3.0, 4.0, 0.0];
    let mut chooser = Chooser::new(7, 1, true);
    let mut seen = [0u64; 5];
    for position in 0..250_000 {
        let chosen = chooser.weighted(position, 5, |y| weights[y as usize]).unwrap();
        seen[chosen[0] as usize] += 1;
    }
    assert_eq!(seen[4], 0);
    let expected = [25_000.0, 50_000.0, 75_000.0, 100_000.0];
    let statistic = chi_square(&seen[..4], &expected);
    // 3 degrees of freedom at 0.1 %.
    assert!(statistic < 16.27, "chi-square {statistic}");
}

#[test]
fn neighbours_without_weight_come_last_and_once() {
    let mut chooser = Chooser::new(3, 6, true);
    let weights = [0.0, 1.0, -4.0, 2.0, 0.0, f64::NAN, 3.0, 0.0];
    for position in 0..1000 {
        let chosen = chooser.weighted(position, 8, |y| weights[y as usize]).unwrap();
        let mut first = chosen[..3].to_vec();
        first.sort_unstable();
        assert_eq!(first, [1, 3, 6]);
        assert_eq!(chosen[3..], [0, 2, 4]);
    }
}

#[test]
fn what_cannot_be_sampled_is_told() {
    let columns = 9u64;
    let row_pointers = [0i64, 3, 5, 4, 9, 12, -2, 9];
    let table = flat(address_of(&row_pointers), DType::Int64, row_pointers.len());
    // center, start, end of what is bad
    let cases: [(i64, Option<(i64, i64)>); 9] = [
        (0, None),
        (3, None),
        (2, Some((5, 4))),
        (4, Some((9, 12))),
        (5, Some((12, -2))),
        (6, Some((-2, 9))),
        (7, Some((-1, -1))),
        (-1, Some((-1, -1))),
        (i64::MAX, Some((-1, -1))),
    ];
    for (center, bad) in cases {
        // Also far back in a list that threads share, with another bad one behind.
        for before in [0usize, 30_000] {
            let mut list = vec![0i64; before];
            list.push(center);
            list.extend([1; 10]);
            if bad.is_some() {
                list.push(2);
            }
            let indices = Integers::new(&list, true).indices();
            let kept = Integers::new(&list, true);
            let indices = Indices {
                address: kept.address(),
                ..indices
            };
            let neighbours = Neighbours::Graph {
                row_pointers: &table,
                centers: &indices,
            };
            let offsets = vec![0i32; list.len() + 1];
            let counted = CpuPlatform
                .sample_offsets(
                    &neighbours,
                    columns,
                    Take::AtMost(2),
                    address_of(&offsets),
                    Launch::default(),
                )
                .unwrap();
            let want = bad.map(|(start, end)| BadCenter {
                position: before as u64,
                start,
                end,
            });
            assert_eq!(counted.bad, want, "center {center}");
        }
    }
}

#[test]
fn totals_beyond_int_are_told() {
    let row_pointers = [0i64, 1 << 40];
    let table = flat(address_of(&row_pointers), DType::Int64, 2);
    let centers = Integers::new(&[0, 0, 0], false);
    let indices = centers.indices();
    let neighbours = Neighbours::Graph {
        row_pointers: &table,
        centers: &indices,
    };
    let offsets = vec![0i32; 4];
    let total = |take| {
        CpuPlatform
            .sample_offsets(
                &neighbours,
                1 << 40,
                take,
                address_of(&offsets),
                Launch::default(),
            )
            .unwrap()
            .total
    };
    assert_eq!(total(Take::All), 3 << 40);
    assert_eq!(total(Take::AtMost(1 << 30)), 3 << 30);
    assert_eq!(total(Take::AllAbove(5)), 3 << 40);
}

#[test]
fn row_pointers_are_named_for_the_fetch() {
    let centers = Integers::new(&[4, -1, 0, 5, i64::from(i32::MAX)], false);
    let (ids, spans) = (vec![0i64; 10], vec![0i64; 10]);
    CpuPlatform
        .span_ids(
            &centers.indices(),
            5,
            100,
            address_of(&ids),
            address_of(&spans),
            Launch::default(),
        )
        .unwrap();
    assert_eq!(
        *std::hint::black_box(&ids),
        [104, 105, -1, -1, 100, 101, -1, -1, -1, -1]
    );
    assert_eq!(*std::hint::black_box(&spans), [-1; 10]);
    let shifted = vec![0i64; 3];
    CpuPlatform
        .shift(address_of(&ids), 3, 7, address_of(&shifted), Launch::default())
        .unwrap();
    assert_eq!(*std::hint::black_box(&shifted), [111, 112, 6]);
}
