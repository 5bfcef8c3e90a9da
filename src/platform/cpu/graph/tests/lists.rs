//! Lists without doubles and self loops.

use super::*;
use crate::error::Kind;
use crate::platform::Workspace;
use proptest::prelude::*;
use std::collections::HashMap;

/// The list and the map, by the definition.
fn reference(targets: &[i64], neighbours: &[i64]) -> (Vec<i64>, Vec<i32>) {
    let mut unique = targets.to_vec();
    let mut first: HashMap<i64, i32> = HashMap::new();
    for (i, id) in targets.iter().enumerate() {
        first.entry(*id).or_insert(i as i32);
    }
    let map = neighbours
        .iter()
        .map(|id| {
            *first.entry(*id).or_insert_with(|| {
                unique.push(*id);
                unique.len() as i32 - 1
            })
        })
        .collect();
    (unique, map)
}

fn check(targets: &[i64], neighbours: &[i64], wide: bool) {
    let (given, also) = (Integers::new(targets, wide), Integers::new(neighbours, wide));
    let (lists, more) = (given.indices(), also.indices());
    let bytes = CpuPlatform.append_unique_workspace_bytes(&lists, &more).unwrap();
    let room = vec![0xa5u8; bytes];
    let launch = Launch {
        workspace: Workspace {
            address: address_of(&room),
            bytes,
        },
        ..Launch::default()
    };
    let (want, want_map) = reference(&given.values(), &also.values());
    let new_ids = CpuPlatform.append_unique_count(&lists, &more, launch).unwrap();
    assert_eq!(new_ids as usize, want.len() - targets.len());
    let unique = Integers::new(&vec![-7; want.len() + 1], wide);
    let map = vec![-7i32; neighbours.len() + 1];
    for to in [address_of(&map), Address::NULL] {
        CpuPlatform
            .append_unique_write(&lists, &more, new_ids, unique.address(), to, launch)
            .unwrap();
        let got = unique.values();
        assert_eq!(got[..want.len()], want[..]);
        assert_eq!(got[want.len()], -7);
    }
    let map = std::hint::black_box(map);
    assert_eq!(map[..neighbours.len()], want_map[..]);
    assert_eq!(map[neighbours.len()], -7);
}

proptest! {
    #[test]
    fn as_the_reference(
        targets in prop::collection::vec(prop_oneof![-3i64..20, any::<i64>()], 0..60),
        neighbours in prop::collection::vec(prop_oneof![-3i64..40, any::<i64>()], 0..200),
        wide in any::<bool>(),
    ) {
        if !targets.is_empty() || !neighbours.is_empty() {
            check(&targets, &neighbours, wide);
        }
    }
}

#[test]
fn on_all_threads() {
    let targets: Vec<i64> = (0..3000).map(|i| i * 40_503 % 2000).collect();
    let neighbours: Vec<i64> = (0..100_000i64).map(|i| i * 7919 % 30_011 - 1).collect();
    check(&targets, &neighbours, true);
    check(&targets, &neighbours, false);
    check(&[], &neighbours, false);
    check(&targets, &[], true);
}

/// Ids that agree in their low bits, in their high bits, or in both halves xored.
#[test]
fn ids_that_a_careless_hash_confuses() {
    let ids: Vec<i64> = (0..2000i64)
        .flat_map(|i| [i << 32, i << 48, i | i << 32, -i, i64::MIN + i])
        .collect();
    check(&ids[..50], &ids, true);
    // Their products with the golden ratio are 0, 1, 2 and so on: they end in few slots where that is all of the hash.
    let inverse = (0..6).fold(0x9e37_79b9_7f4a_7c15u64, |x, _| {
        x.wrapping_mul(2u64.wrapping_sub(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(x)))
    });
    let ids: Vec<i64> = (0..20_000u64)
        .map(|i| i.wrapping_mul(inverse))
        .map(|y| (y ^ (y >> 32)) as i64)
        .collect();
    let begun = std::time::Instant::now();
    check(&[], &ids, true);
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
}

#[test]
fn a_workspace_that_is_too_small_is_refused() {
    let ids = Integers::new(&[1, 2, 3], true);
    let launch = Launch::default();
    let refused = CpuPlatform.append_unique_count(&ids.indices(), &ids.indices(), launch);
    assert_eq!(refused.unwrap_err().kind, Kind::Logic);
}

fn loops_of(row_pointers: &[i32], columns: &[i32]) -> Result<(Vec<i32>, Vec<i32>)> {
    let rows = row_pointers.len() - 1;
    let out_pointers = vec![-7i32; rows + 1];
    let out_columns = vec![-7i32; columns.len() + rows];
    CpuPlatform.add_self_loops(
        &SelfLoops {
            row_pointers: address_of(row_pointers),
            rows: rows as u64,
            columns: address_of(columns),
            edges: columns.len() as u64,
            row_pointers_out: address_of(&out_pointers),
            columns_out: address_of(&out_columns),
        },
        Launch::default(),
    )?;
    Ok((
        std::hint::black_box(out_pointers),
        std::hint::black_box(out_columns),
    ))
}

proptest! {
    #[test]
    fn self_loops_come_first(degrees in prop::collection::vec(0usize..9, 0..50)) {
        let mut row_pointers = vec![0i32];
        let (mut columns, mut want_pointers, mut want) = (vec![], vec![0i32], vec![]);
        for (r, degree) in degrees.iter().enumerate() {
            let own: Vec<i32> = (0..*degree).map(|j| ((r + j * j) % degrees.len()) as i32).collect();
            columns.extend(&own);
            row_pointers.push(columns.len() as i32);
            want.push(r as i32);
            want.extend(&own);
            want_pointers.push(want.len() as i32);
        }
        prop_assert_eq!(loops_of(&row_pointers, &columns).unwrap(), (want_pointers, want));
    }
}

#[test]
fn self_loops_of_many_rows() {
    let row_pointers: Vec<i32> = (0..=30_000).map(|r| r * 3).collect();
    let columns: Vec<i32> = (0..90_000).collect();
    let (pointers, out) = loops_of(&row_pointers, &columns).unwrap();
    assert!((0..=30_000).all(|r| pointers[r as usize] == r * 4));
    assert!(
        (0..30_000)
            .all(|r| out[r * 4..r * 4 + 4] == [r as i32, 3 * r as i32, 3 * r as i32 + 1, 3 * r as i32 + 2])
    );
}

#[test]
fn row_pointers_that_lie_are_refused() {
    for bad in [[0, 2, 1, 3], [0, 1, 2, 4], [-1, 1, 2, 3], [0, i32::MIN, 2, 3]] {
        let refused = loops_of(&bad, &[5, 6, 7]).unwrap_err();
        assert_eq!(refused.kind, Kind::InvalidValue, "{bad:?}");
    }
    assert_eq!(loops_of(&[4], &[]).unwrap(), (vec![4], vec![]));
}
