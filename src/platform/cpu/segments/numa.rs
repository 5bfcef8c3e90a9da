//! Which NUMA node the pages of a mapping come from.

use crate::log::say;
use crate::span::Address;

const MPOL_PREFERRED: libc::c_long = 1;
const MASK_WORDS: usize = 16;

/// Asks the system to take the pages of a range of shared memory, not touched yet, from `node` while it has any. Preferred
/// and not bound: a bound range whose node is full would wake the OOM killer. A refusal is a DEBUG line.
pub fn prefer(address: Address, bytes: usize, node: u32) {
    let mut mask = [0u64; MASK_WORDS];
    let (word, bit) = ((node / 64) as usize, node % 64);
    if bytes == 0 || word >= MASK_WORDS {
        return;
    }
    mask[word] = 1 << bit;
    let start = address.0 / rustix::param::page_size() * rustix::param::page_size();
    // SAFETY: mbind changes where pages come from, no content; the mask has the bits it is said to have.
    let code = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            start,
            address.0 + bytes - start,
            MPOL_PREFERRED,
            mask.as_ptr(),
            mask.len() * 64 + 1,
            0,
        )
    };
    if code != 0 {
        say!(
            Debug,
            "{bytes} bytes of host memory take pages from any NUMA node: mbind to node {node}: {}",
            std::io::Error::last_os_error()
        );
    }
}
