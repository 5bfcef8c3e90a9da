//! Logging: one line a message, one write a line, to stderr. WARN until init sets the level; `WHOLEMEMORY_LOG` overrides.

use crate::settings;
use once_cell::race::OnceBox;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

/// The levels of `LogLevel`, from silent to chatty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Level {
    Fatal = 0,
    Error = 1,
    Warn = 2,
    Info = 3,
    Debug = 4,
    Trace = 5,
}

const NAMES: [&str; 6] = ["FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"];

static LEVEL: AtomicU32 = AtomicU32::new(Level::Warn as u32);

/// A level by name (in any case) or number; numbers above TRACE are TRACE.
pub fn level_of(word: &str) -> Option<u32> {
    let word = word.trim().to_ascii_uppercase();
    NAMES
        .iter()
        .position(|n| *n == word)
        .map(|i| i as u32)
        .or_else(|| word.parse().ok().map(|n: u32| n.min(5)))
}

fn override_level() -> Option<u32> {
    static OVERRIDE: OnceBox<Option<u32>> = OnceBox::new();
    *OVERRIDE.get_or_init(|| Box::new(settings::log_level().and_then(|word| level_of(&word))))
}

/// Sets the level of the process; values above TRACE mean TRACE. Gives the level that was.
pub fn set_level(raw: u32) -> u32 {
    LEVEL.swap(raw.min(Level::Trace as u32), Ordering::Relaxed)
}

pub fn enabled(level: Level) -> bool {
    level as u32 <= override_level().unwrap_or_else(|| LEVEL.load(Ordering::Relaxed))
}

/// Writes one line, if the level is wanted. `rank` is the speaker's rank where there is one.
pub fn write(level: Level, rank: Option<usize>, words: fmt::Arguments<'_>) {
    if !enabled(level) {
        return;
    }
    let who = rank.map_or(String::new(), |r| format!(" r{r}"));
    let line = format!("[wholememory{who}] {} {words}\n", NAMES[level as usize]);
    // Not by the stream of the standard library: its lock may be held in a forked child by a thread that only the parent has.
    let mut rest = line.as_bytes();
    while !rest.is_empty() {
        match rustix::io::retry_on_intr(|| rustix::io::write(std::io::stderr(), rest)) {
            Ok(written) if written > 0 => rest = &rest[written..],
            _ => return,
        }
    }
}

macro_rules! say {
    ($level:ident, $($words:tt)+) => {
        $crate::log::write($crate::log::Level::$level, None, format_args!($($words)+))
    };
}

macro_rules! say_rank {
    ($level:ident, $rank:expr, $($words:tt)+) => {
        $crate::log::write($crate::log::Level::$level, Some($rank), format_args!($($words)+))
    };
}

pub(crate) use say;
pub(crate) use say_rank;
