//! Ranks as threads of this process, and as processes of their own with their own environment.

use std::io::Write;
use std::panic::AssertUnwindSafe;
use std::process::{Command, Stdio};
use std::sync::Arc;
use wholegraph::comm::{Communicator, UniqueId};

/// Runs `body` as `size` ranks of one communicator and destroys it.
pub fn ranks<T: Send>(size: usize, body: impl Fn(&Arc<Communicator>) -> T + Sync) -> Vec<T> {
    let id = UniqueId::create().unwrap();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..size)
            .map(|rank| {
                let body = &body;
                scope.spawn(move || {
                    or_end_the_process(rank, || {
                        let comm = Communicator::create(&id, rank as i32, size as i32, Ok(())).unwrap();
                        let result = body(&comm);
                        comm.destroy().unwrap();
                        result
                    })
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

/// A rank that panics would leave the others waiting for it, and the test with them.
pub fn or_end_the_process<T>(rank: usize, body: impl FnOnce() -> T) -> T {
    std::panic::catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let words = words.or(panic.downcast_ref::<&str>().copied()).unwrap_or("");
        let _ = writeln!(std::io::stderr(), "rank {rank} panicked: {words}");
        std::process::abort();
    })
}

const RANK: &str = "TEST_RANK";
const SIZE: &str = "TEST_SIZE";
const ID: &str = "TEST_ID";

/// Runs the ignored test `name` of this program as one process a node identity, each one rank; all must succeed.
pub fn processes(name: &str, boot_ids: &[&str], variables: &[(&str, &str)]) {
    let id = UniqueId::create().unwrap();
    let hex: String = id.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let children: Vec<_> = boot_ids
        .iter()
        .enumerate()
        .map(|(rank, boot_id)| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", name, "--ignored", "--nocapture"])
                .env(RANK, rank.to_string())
                .env(SIZE, boot_ids.len().to_string())
                .env(ID, &hex)
                .env("WHOLEMEMORY_BOOTID", boot_id)
                .envs(variables.iter().copied())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for (rank, child) in children.into_iter().enumerate() {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "rank {rank} of {boot_ids:?}: {text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// Runs the `count` ignored tests of this program whose names begin with `prefix` in a process of their own, one at a time.
pub fn one_after_the_other(prefix: &str, count: usize) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([prefix, "--ignored", "--test-threads=1"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains(&format!(" {count} passed; 0 failed; 0 ignored")),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The body of a test that [`processes`] runs. Started by hand it does nothing.
pub fn as_process(body: impl Fn(&Arc<Communicator>)) {
    let (Ok(rank), Ok(size), Ok(hex)) = (std::env::var(RANK), std::env::var(SIZE), std::env::var(ID)) else {
        return;
    };
    let mut id = UniqueId([0; 128]);
    for (i, byte) in id.0.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap();
    }
    let comm = Communicator::create(&id, rank.parse().unwrap(), size.parse().unwrap(), Ok(())).unwrap();
    body(&comm);
    comm.destroy().unwrap();
}

/// Runs the tests of this program again with other environment variables, but for the tests named in `skipped`.
pub fn again_with(variables: &[(&str, &str)], skipped: &[&str]) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(skipped.iter().flat_map(|name| ["--skip", name]))
        .arg("--test-threads=2")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "with {variables:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
