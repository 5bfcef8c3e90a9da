//! What the ranks of a host may still take: file-size limits, free memory, the room of their control groups. Reading is
//! done here per rank, the verdict is pure and the same on all ranks.

use crate::error::{Error, Kind, Result, ensure};
use once_cell::race::OnceBox;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Limits this large mean "no limit" (cgroup v1 writes `i64::MAX` rounded down to a page).
const UNLIMITED_BYTES: u64 = 1 << 62;

/// Page tables take 8 bytes a page of 4 KiB in every rank that maps a segment.
const BYTES_PER_PAGE_TABLE_BYTE: u64 = 512;

/// What one rank sees of its limits. `None` where the system does not say.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Budget {
    /// `ulimit -f`; a file that grows past it raises SIGXFSZ.
    pub file_limit_bytes: Option<u64>,
    /// MemAvailable of the host; shared by its ranks.
    pub available_bytes: Option<u64>,
    /// Every limited control group the rank is in, ancestors included.
    pub groups: Vec<GroupRoom>,
}

/// A control group with a memory limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRoom {
    /// Device and inode of its directory: ranks that show the same pair share its room.
    pub id: (u64, u64),
    pub room_bytes: u64,
    pub path: String,
}

impl Budget {
    /// What the system says now.
    pub fn read() -> Budget {
        Budget {
            file_limit_bytes: rustix::process::getrlimit(rustix::process::Resource::Fsize).current,
            available_bytes: mem_available(&text_of("/proc/meminfo")),
            groups: own_groups().iter().filter_map(|dir| group_room(dir)).collect(),
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut number = |n: u64| out.extend(n.to_le_bytes());
        number(self.file_limit_bytes.unwrap_or(u64::MAX));
        number(self.available_bytes.unwrap_or(u64::MAX));
        for group in &self.groups {
            for n in [group.id.0, group.id.1, group.room_bytes, group.path.len() as u64] {
                number(n);
            }
        }
        for group in &self.groups {
            out.extend(group.path.as_bytes());
        }
        out.splice(0..0, (self.groups.len() as u64).to_le_bytes());
        out
    }

    /// # Errors
    /// COMMUNICATION_ERROR for bytes that [`Budget::encode`] did not write.
    pub fn decode(bytes: &[u8]) -> Result<Budget> {
        let unreadable = || {
            Error::new(
                Kind::Communication,
                "a rank sent unreadable memory limits: it is in another call, or was given another value of what all ranks pass alike (adjust_cache)",
            )
        };
        let mut rest = bytes;
        let mut number = || -> Result<u64> {
            let (head, tail) = rest.split_first_chunk::<8>().ok_or_else(unreadable)?;
            rest = tail;
            Ok(u64::from_le_bytes(*head))
        };
        let known = |n: u64| (n != u64::MAX).then_some(n);
        let group_count = number()?;
        let file_limit_bytes = known(number()?);
        let available_bytes = known(number()?);
        let mut groups = Vec::new();
        let mut path_lengths = Vec::new();
        for _ in 0..group_count {
            groups.push(GroupRoom {
                id: (number()?, number()?),
                room_bytes: number()?,
                path: String::new(),
            });
            path_lengths.push(number()? as usize);
        }
        for (group, length) in groups.iter_mut().zip(path_lengths) {
            let (path, tail) = rest.split_at_checked(length).ok_or_else(unreadable)?;
            group.path = String::from_utf8_lossy(path).into_owned();
            rest = tail;
        }
        Ok(Budget {
            file_limit_bytes,
            available_bytes,
            groups,
        })
    }
}

/// Whether the ranks may take `parts_bytes[r]` each of one file of `file_bytes` that all of them map.
/// # Errors
/// OUT_OF_MEMORY with what is wanted and what is there; the same text on all ranks.
pub fn verdict(budgets: &[Budget], parts_bytes: &[u64], file_bytes: u64) -> Result<()> {
    let tables_bytes = file_bytes / BYTES_PER_PAGE_TABLE_BYTE;
    let wanted = |rank: usize| parts_bytes[rank].saturating_add(tables_bytes);
    let all_bytes = (0..budgets.len()).fold(0u64, |sum, rank| sum.saturating_add(wanted(rank)));
    for (rank, budget) in budgets.iter().enumerate() {
        if let Some(limit) = budget.file_limit_bytes {
            ensure!(
                file_bytes <= limit,
                OutOfMemory,
                "a segment of {file_bytes} bytes is wanted, the file-size limit (ulimit -f) of rank {rank} is {limit} bytes"
            );
        }
        if let Some(available) = budget.available_bytes {
            ensure!(
                all_bytes <= available,
                OutOfMemory,
                "{all_bytes} bytes are wanted by {} ranks (page tables included), the host has {available} bytes available",
                budgets.len()
            );
        }
        for group in &budget.groups {
            let sharers: Vec<(usize, u64)> = budgets
                .iter()
                .enumerate()
                .filter_map(|(r, b)| {
                    let same = b.groups.iter().find(|g| g.id == group.id)?;
                    Some((r, same.room_bytes))
                })
                .collect();
            let sum_bytes = sharers
                .iter()
                .fold(0u64, |sum, (r, _)| sum.saturating_add(wanted(*r)));
            let room_bytes = sharers.iter().map(|(_, room)| *room).min().unwrap_or(0);
            ensure!(
                sum_bytes <= room_bytes,
                OutOfMemory,
                "{sum_bytes} bytes are wanted by the {} ranks in the control group {}, which has room for {room_bytes} bytes",
                sharers.len(),
                group.path
            );
        }
    }
    Ok(())
}

fn text_of(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The directories of this process's groups, found once: a list of mounts can be long, and processes stay where they are.
fn own_groups() -> &'static [PathBuf] {
    static FOUND: OnceBox<Vec<PathBuf>> = OnceBox::new();
    FOUND.get_or_init(|| {
        let groups = group_directories(&text_of("/proc/self/cgroup"), &text_of("/proc/self/mountinfo"));
        Box::new(groups)
    })
}

fn mem_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// The directories of the process's memory control groups, from its own up to the mount, of both versions.
fn group_directories(cgroup: &str, mountinfo: &str) -> Vec<PathBuf> {
    let mut directories = Vec::new();
    for line in cgroup.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let of_kind = |kind: &str, options: &str| {
            if controllers.is_empty() {
                kind == "cgroup2"
            } else {
                kind == "cgroup" && options.split(',').any(|o| o == "memory")
            }
        };
        if !controllers.is_empty() && !controllers.split(',').any(|c| c == "memory") {
            continue;
        }
        let mount = mountinfo
            .lines()
            .filter_map(parse_mount)
            .find(|m| of_kind(m.kind, m.options));
        let Some(mount) = mount else { continue };
        // In a container the mount may show a subtree only; a path outside it is the container's own group.
        let inside = Path::new(path).strip_prefix(mount.root).unwrap_or(Path::new(""));
        let mut directory = Path::new(mount.point).join(inside);
        loop {
            directories.push(directory.clone());
            if directory == Path::new(mount.point) || !directory.pop() {
                break;
            }
        }
    }
    directories
}

struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

fn parse_mount(line: &str) -> Option<Mount<'_>> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(3);
    let mut after = after.split(' ');
    Some(Mount {
        root: before.next()?,
        point: before.next()?,
        kind: after.next()?,
        options: after.nth(1)?,
    })
}

/// `None` for a group without a limit. Cached file pages are given back under pressure and count as room.
fn group_room(directory: &Path) -> Option<GroupRoom> {
    let number =
        |name: &str| -> Option<u64> { fs::read_to_string(directory.join(name)).ok()?.trim().parse().ok() };
    let limit = number("memory.max")
        .or_else(|| number("memory.limit_in_bytes"))
        .filter(|limit| *limit < UNLIMITED_BYTES)?;
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
    let stat = fs::read_to_string(directory.join("memory.stat")).unwrap_or_default();
    let meta = fs::metadata(directory).ok()?;
    Some(GroupRoom {
        id: (meta.dev(), meta.ino()),
        room_bytes: limit.saturating_sub(used.saturating_sub(reclaimable_bytes(&stat))),
        path: directory.display().to_string(),
    })
}

/// File pages of a group and its children: version 1 gives them as `total_*`, version 2 without the prefix.
fn reclaimable_bytes(stat: &str) -> u64 {
    let value = |name: &str| -> Option<u64> {
        stat.lines()
            .find_map(|l| l.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
    };
    ["inactive_file", "active_file"]
        .into_iter()
        .filter_map(|name| value(&format!("total_{name}")).or_else(|| value(name)))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn group(inode: u64, room_bytes: u64) -> GroupRoom {
        GroupRoom {
            id: (7, inode),
            room_bytes,
            path: format!("/sys/fs/cgroup/g{inode}"),
        }
    }

    #[test]
    fn budgets_survive_the_wire() {
        for budget in [
            Budget::default(),
            Budget::read(),
            Budget {
                file_limit_bytes: Some(12),
                available_bytes: None,
                groups: vec![group(1, 5), group(2, 0)],
            },
        ] {
            assert_eq!(Budget::decode(&budget.encode()).unwrap(), budget);
        }
        let bytes = Budget {
            groups: vec![group(1, 5)],
            ..Budget::default()
        }
        .encode();
        for cut in 0..bytes.len() {
            assert!(Budget::decode(&bytes[..cut]).is_err());
        }
    }

    #[test]
    fn one_small_file_size_limit_fails_all() {
        let mut budgets = vec![Budget::default(); 4];
        budgets[2].file_limit_bytes = Some(4 * MIB - 1);
        let error = verdict(&budgets, &[MIB; 4], 4 * MIB).unwrap_err();
        assert_eq!(error.kind, Kind::OutOfMemory);
        assert!(
            error.what.contains("rank 2") && error.what.contains("4194303"),
            "{error}"
        );
        budgets[2].file_limit_bytes = Some(4 * MIB);
        verdict(&budgets, &[MIB; 4], 4 * MIB).unwrap();
    }

    #[test]
    fn the_host_is_shared_by_all_ranks() {
        let budgets = vec![
            Budget {
                available_bytes: Some(4 * MIB),
                ..Budget::default()
            };
            4
        ];
        verdict(&budgets, &[MIB / 2; 4], 2 * MIB).unwrap();
        let error = verdict(&budgets, &[MIB; 4], 4 * MIB).unwrap_err();
        assert_eq!(error.kind, Kind::OutOfMemory);
        assert!(error.what.contains("4194304 bytes available"), "{error}");
    }

    #[test]
    fn ranks_of_one_control_group_sum_their_parts() {
        let of = |inodes: &[u64], room| Budget {
            groups: inodes.iter().map(|i| group(*i, room)).collect(),
            ..Budget::default()
        };
        let apart = [of(&[1], 2 * MIB), of(&[2], 2 * MIB)];
        verdict(&apart, &[MIB, MIB], 2 * MIB).unwrap();
        let together = [of(&[3, 1], 2 * MIB), of(&[4, 1], 2 * MIB)];
        let error = verdict(&together, &[MIB, MIB], 2 * MIB).unwrap_err();
        assert!(
            error.what.contains("2 ranks") && error.what.contains("g1"),
            "{error}"
        );
        let lopsided = [of(&[1], 2 * MIB), of(&[1], 3 * MIB)];
        assert!(verdict(&lopsided, &[MIB, MIB], 2 * MIB).is_err());
    }

    #[test]
    fn sums_do_not_wrap() {
        let budgets = vec![
            Budget {
                available_bytes: Some(u64::MAX - 1),
                ..Budget::default()
            };
            2
        ];
        assert!(verdict(&budgets, &[u64::MAX / 2 + 1; 2], 1 << 62).is_err());
    }

    #[test]
    fn both_versions_of_control_groups_are_found() {
        let v2 = group_directories(
            "0::/user.slice/job",
            "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
        );
        assert_eq!(
            v2,
            [
                "/sys/fs/cgroup/user.slice/job",
                "/sys/fs/cgroup/user.slice",
                "/sys/fs/cgroup"
            ]
            .map(PathBuf::from)
        );
        let v1 = group_directories(
            "4:cpu:/a\n3:memory:/docker/abc/inner\n0::/\n",
            "40 31 0:36 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
             41 31 0:37 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
        );
        assert_eq!(
            v1,
            ["/sys/fs/cgroup/memory/inner", "/sys/fs/cgroup/memory"].map(PathBuf::from)
        );
        let outside = group_directories(
            "3:memory:/elsewhere",
            "41 31 0:37 /docker/abc /m rw - cgroup cgroup rw,memory\n",
        );
        assert_eq!(outside, [PathBuf::from("/m")]);
        assert!(group_directories("", "").is_empty());
        assert!(group_directories("garbage", "more garbage").is_empty());
    }

    #[test]
    fn the_room_of_a_group_counts_cached_files_as_free() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        assert_eq!(group_room(dir.path()), None);
        write("memory.max", "max\n");
        write("memory.current", "900\n");
        assert_eq!(group_room(dir.path()), None);
        write("memory.max", "1000\n");
        assert_eq!(group_room(dir.path()).unwrap().room_bytes, 100);
        write(
            "memory.stat",
            "anon 5\nfile 400\nactive_file 100\ninactive_file 200\n",
        );
        assert_eq!(group_room(dir.path()).unwrap().room_bytes, 400);
        write(
            "memory.stat",
            "active_file 1\ntotal_inactive_file 50\ntotal_active_file 0\n",
        );
        assert_eq!(group_room(dir.path()).unwrap().room_bytes, 150);
        write("memory.current", "5000\n");
        assert_eq!(group_room(dir.path()).unwrap().room_bytes, 0);
        fs::remove_file(dir.path().join("memory.max")).unwrap();
        write("memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(group_room(dir.path()), None);
    }

    #[test]
    fn free_memory_is_read_in_bytes() {
        assert_eq!(
            mem_available("MemTotal: 9 kB\nMemAvailable:   12 kB\n"),
            Some(12288)
        );
        assert_eq!(mem_available("MemTotal: 9 kB\n"), None);
        assert!(Budget::read().available_bytes.unwrap() > 0);
    }
}
