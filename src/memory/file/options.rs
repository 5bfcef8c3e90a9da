//! The environment's wishes for loading, read on each call.

use crate::log::say_rank;
use crate::settings;

const DEFAULT_BUFFER_MB: usize = 16;
const MOST_DEFAULT_THREADS: usize = 8;

/// How a rank reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadOptions {
    /// Staging memory a thread may take.
    pub buffer_bytes: usize,
    pub threads: usize,
    pub direct: bool,
}

impl LoadOptions {
    /// What the environment says now; values that make no sense are told at WARN and replaced.
    pub fn from_environment(rank: usize, local_ranks: usize) -> LoadOptions {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let (buffer_bytes, buffer_complaint) = buffer_bytes(settings::load_buffer_size_mb().as_deref());
        let (threads, threads_complaint) =
            thread_count(settings::load_threads_per_rank().as_deref(), cores, local_ranks);
        for complaint in buffer_complaint.into_iter().chain(threads_complaint) {
            say_rank!(Warn, rank, "{complaint}");
        }
        LoadOptions {
            buffer_bytes,
            threads,
            direct: settings::load_use_direct_io(),
        }
    }
}

/// The number a text begins with, as C's `strtol` reads it and if it fits an int; what follows it is ignored.
fn leading_number(text: &str) -> Option<i32> {
    let text = text.trim_start();
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = unsigned
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(unsigned.len());
    let sign_bytes = text.len() - unsigned.len();
    text[..sign_bytes + digits].parse().ok()
}

fn buffer_bytes(setting: Option<&str>) -> (usize, Option<String>) {
    let Some(text) = setting else {
        return (DEFAULT_BUFFER_MB << 20, None);
    };
    match leading_number(text)
        .and_then(|n| usize::try_from(n).ok())
        .filter(|n| *n >= 1)
    {
        Some(mb) => (mb << 20, None),
        None => {
            let complaint =
                format!("WG_LOAD_BUFFER_SIZE_MB={text} is no number of MiB, {DEFAULT_BUFFER_MB} are used");
            (DEFAULT_BUFFER_MB << 20, Some(complaint))
        }
    }
}

/// Unset: the cores of this rank, at most 8.
fn thread_count(setting: Option<&str>, cores: usize, local_ranks: usize) -> (usize, Option<String>) {
    let Some(text) = setting else {
        let own_cores = cores / local_ranks.max(1);
        return (own_cores.clamp(1, MOST_DEFAULT_THREADS), None);
    };
    match leading_number(text).and_then(|n| usize::try_from(n).ok()) {
        Some(threads) if (1..=cores).contains(&threads) => (threads, None),
        _ => {
            let complaint =
                format!("WG_LOAD_THREADS_PER_RANK={text} is not between 1 and {cores}, 1 thread is used");
            (1, Some(complaint))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffer_size_is_read_as_the_published_library_reads_it() {
        for (text, mb) in [("1", 1), ("64", 64), (" +7MB", 7), ("3.9", 3)] {
            assert_eq!(buffer_bytes(Some(text)), (mb << 20, None), "{text}");
        }
        for text in ["", "x", "0", "-4", "99999999999", "MB16"] {
            let (bytes, complaint) = buffer_bytes(Some(text));
            assert_eq!(bytes, 16 << 20);
            assert!(complaint.unwrap().contains(text));
        }
        assert_eq!(buffer_bytes(None), (16 << 20, None));
    }

    #[test]
    fn threads_share_the_cores_of_the_node() {
        assert_eq!(thread_count(None, 2, 4), (1, None));
        assert_eq!(thread_count(None, 8, 2), (4, None));
        assert_eq!(thread_count(None, 128, 1), (8, None));
        assert_eq!(thread_count(Some("3"), 4, 4), (3, None));
        for text in ["0", "-1", "5", "many", ""] {
            let (threads, complaint) = thread_count(Some(text), 4, 1);
            assert_eq!(threads, 1);
            assert!(complaint.unwrap().contains("between 1 and 4"));
        }
    }
}
