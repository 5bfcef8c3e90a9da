//! Every environment variable the library reads, in one place. Values are read when asked for, so tests and
//! callers may set them between calls; which call reads which variable stands in the README's table.

use std::time::Duration;

fn text(name: &str) -> Option<String> {
    std::env::var_os(name).map(|v| v.to_string_lossy().into_owned())
}

/// Without blanks around it, in small letters; empty counts as unset.
fn word(name: &str) -> Option<String> {
    let word = text(name)?.trim().to_ascii_lowercase();
    (!word.is_empty()).then_some(word)
}

fn number(name: &str) -> Option<u64> {
    word(name)?.parse().ok()
}

/// `WHOLEMEMORY_PLATFORM`: `auto`, `cuda` or `cpu`; unset is `auto`.
pub fn platform() -> String {
    word("WHOLEMEMORY_PLATFORM").unwrap_or_else(|| "auto".into())
}

/// `WHOLEMEMORY_LOG`: overrides the level given to init.
pub fn log_level() -> Option<String> {
    word("WHOLEMEMORY_LOG")
}

/// No wait is longer than a year: sums of times stay within the system's clocks.
const LONGEST_WAIT_S: u64 = 365 * 24 * 3600;

/// `WHOLEMEMORY_TIMEOUT_S`: how long ranks are awaited at rendezvous; default 300 s.
pub fn rendezvous_timeout() -> Duration {
    wait_of(number("WHOLEMEMORY_TIMEOUT_S"))
}

fn wait_of(wanted_s: Option<u64>) -> Duration {
    Duration::from_secs(wanted_s.unwrap_or(300).clamp(1, LONGEST_WAIT_S))
}

/// `WHOLEMEMORY_NUM_THREADS`: threads of the CPU platform's pool; unset: cores / local processes.
pub fn num_threads() -> Option<usize> {
    number("WHOLEMEMORY_NUM_THREADS").map(|n| n.clamp(1, 1024) as usize)
}

/// `WHOLEMEMORY_BOOTID`: overrides the boot id in the node's identity (also when empty).
pub fn boot_id_override() -> Option<String> {
    text("WHOLEMEMORY_BOOTID")
}

/// `WHOLEMEMORY_SOCKET_IFNAME`, else `NCCL_SOCKET_IFNAME`: the interfaces ranks of other hosts may be reached at.
pub fn socket_interface() -> Option<String> {
    let list = |name| text(name).filter(|list| !list.trim().is_empty());
    list("WHOLEMEMORY_SOCKET_IFNAME").or_else(|| list("NCCL_SOCKET_IFNAME"))
}

/// `WHOLEMEMORY_ROUTE`: `auto`, `direct` or `exchange`.
pub fn route() -> String {
    word("WHOLEMEMORY_ROUTE").unwrap_or_else(|| "auto".into())
}

/// `WHOLEMEMORY_TRANSPORT`: `auto`, `nccl` or `local`.
pub fn transport() -> String {
    word("WHOLEMEMORY_TRANSPORT").unwrap_or_else(|| "auto".into())
}

/// `WG_LOAD_BUFFER_SIZE_MB`, `WG_LOAD_THREADS_PER_RANK`, `WG_LOAD_USE_DIRECTIO`, as written by the caller.
pub fn load_buffer_size_mb() -> Option<String> {
    text("WG_LOAD_BUFFER_SIZE_MB")
}

pub fn load_threads_per_rank() -> Option<String> {
    text("WG_LOAD_THREADS_PER_RANK")
}

pub fn load_use_direct_io() -> bool {
    text("WG_LOAD_USE_DIRECTIO").as_deref() == Some("1")
}

const YES: [&str; 3] = ["1", "on", "true"];
const NO: [&str; 3] = ["0", "off", "false"];

/// `WM_DEBUG_SYNC`: `1`, `on` or `true` in any case: synchronise after kernels and report their errors.
pub fn debug_sync() -> bool {
    word("WM_DEBUG_SYNC").is_some_and(|v| YES.contains(&v.as_str()))
}

/// Variables of the published library that have no effect here; init says so once at INFO.
pub fn ignored_but_set() -> Vec<&'static str> {
    ["WHOLEMEMORY_TMPPREFIX", "WG_USE_POSIX_SHM"]
        .into_iter()
        .filter(|n| std::env::var_os(n).is_some())
        .collect()
}

/// Variables whose value cannot be read and counts as unset, each with what is wrong; init says so at WARN.
pub fn misread() -> Vec<String> {
    // This one is compared as it is.
    let exact = |name: &str| text(name).filter(|value| !value.is_empty());
    misread_among(|name| match name {
        "WG_LOAD_USE_DIRECTIO" => exact(name),
        _ => word(name),
    })
}

fn misread_among(value_of: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let wrong = |name: &str, must_be: &str, is_good: &dyn Fn(&str) -> bool| {
        let value = value_of(name).filter(|value| !is_good(value))?;
        Some(format!("{name} is \"{value}\", it must be {must_be}"))
    };
    let is_number = |value: &str| value.parse::<u64>().is_ok();
    let is_level = |value: &str| crate::log::level_of(value).is_some();
    [
        wrong("WHOLEMEMORY_TIMEOUT_S", "a number of seconds", &is_number),
        wrong("WHOLEMEMORY_NUM_THREADS", "a number of threads", &is_number),
        wrong(
            "WHOLEMEMORY_LOG",
            "fatal, error, warn, info, debug or trace (or 0 to 5, or more for trace)",
            &is_level,
        ),
        wrong("WG_LOAD_USE_DIRECTIO", "1 (or 0)", &|value| {
            ["0", "1"].contains(&value)
        }),
        wrong("WM_DEBUG_SYNC", "1, on or true (or 0, off or false)", &|value| {
            YES.contains(&value) || NO.contains(&value)
        }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn what_cannot_be_read_is_told() {
        let told = |pairs: &[(&str, &str)]| {
            misread_among(|name| {
                pairs
                    .iter()
                    .find(|(n, _)| *n == name)
                    .map(|(_, value)| (*value).into())
            })
        };
        assert!(told(&[]).is_empty());
        let good = [
            ("WHOLEMEMORY_LOG", "debug"),
            ("WHOLEMEMORY_TIMEOUT_S", "7"),
            ("WHOLEMEMORY_NUM_THREADS", "2"),
            ("WG_LOAD_USE_DIRECTIO", "1"),
            ("WM_DEBUG_SYNC", "off"),
        ];
        assert!(told(&good).is_empty());
        let bad = [
            ("WHOLEMEMORY_LOG", "loud"),
            ("WHOLEMEMORY_TIMEOUT_S", "5s"),
            ("WHOLEMEMORY_NUM_THREADS", "-1"),
            ("WG_LOAD_USE_DIRECTIO", "yes"),
            ("WM_DEBUG_SYNC", "maybe"),
        ];
        let lines = told(&bad);
        assert_eq!(lines.len(), bad.len());
        for (name, value) in bad {
            assert!(
                lines.iter().any(|l| l.contains(name) && l.contains(value)),
                "{lines:?}"
            );
        }
    }

    #[test]
    fn any_wait_can_be_added_to_the_clock() {
        assert_eq!(wait_of(None), Duration::from_secs(300));
        assert_eq!(wait_of(Some(0)), Duration::from_secs(1));
        for wanted_s in [u64::MAX, i64::MAX as u64, 1 << 40] {
            let wait = wait_of(Some(wanted_s));
            assert!(
                Instant::now()
                    .checked_add(wait + Duration::from_secs(10))
                    .is_some()
            );
        }
    }
}
