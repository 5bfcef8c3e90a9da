//! The CPU platform: shared memory between the processes and threads of one host, loops on a thread pool.

pub mod segments;
