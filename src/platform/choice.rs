//! Which platform this process runs on, chosen once; and how many devices there are, asked in a child process.

use super::cpu::CpuPlatform;
use super::cuda::driver::{self, Devices, Driver};
use super::process::{BlockedSignals, PerProcess};
use super::{Member, Platform, cuda};
use crate::error::{Error, Result, fail};
use crate::log::say;
use crate::settings;
use crate::span::Address;
use once_cell::race::OnceBox;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The two platforms there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Cpu,
    Cuda,
}

/// The platform on the caller's current device, for calls that belong to no communicator.
/// # Errors
/// Those of [`at_init`] and [`bind`].
pub fn current() -> Result<&'static dyn Platform> {
    match chosen()? {
        Which::Cpu => Ok(&CpuPlatform),
        Which::Cuda => cuda::current(),
    }
}

/// The platform bound to the caller's current device, for a rank of a new communicator.
/// # Errors
/// Those of [`at_init`]; NOT_SUPPORTED for a device or driver that is too old, CUDA_ERROR with the driver's words.
pub fn bind() -> Result<Arc<dyn Member>> {
    match chosen()? {
        Which::Cpu => Ok(Arc::new(CpuPlatform)),
        Which::Cuda => cuda::bind(),
    }
}

/// Gives back what the library keeps of scratch that no call uses.
pub fn trim_scratch() {
    cuda::trim_scratch();
}

/// Where the runtime's `cudaDeviceProp` of a device lies, for the life of the process; -1 is the caller's current device.
/// `None` for a device that is not there, on the CPU platform, and in a library built without nvcc. Makes no context.
pub fn device_properties(ordinal: i32) -> Option<Address> {
    match chosen() {
        Ok(Which::Cuda) => cuda::device_properties(ordinal),
        Ok(Which::Cpu) | Err(_) => None,
    }
}

/// The platform of this process; the first call that succeeds chooses it by `WHOLEMEMORY_PLATFORM`.
fn chosen() -> Result<Which> {
    static CHOSEN: OnceBox<Which> = OnceBox::new();
    static CHOOSING: PerProcess<Mutex<()>> = PerProcess::new(Mutex::new(()), Mutex::default);
    if let Some(platform) = CHOSEN.get() {
        return Ok(*platform);
    }
    let _alone = CHOOSING.get().lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(platform) = CHOSEN.get() {
        return Ok(*platform);
    }
    let (platform, reason) = choose(&settings::platform(), driver::probe)?;
    if let Some(reason) = reason {
        say!(
            Warn,
            "{reason}; using the CPU platform: tables lie in this host's shared memory, calls run on its cores"
        );
    }
    Ok(*CHOSEN.get_or_init(|| Box::new(platform)))
}

/// What `wholememory_init` needs to know: SUCCESS where a platform can be chosen. Makes no CUDA context.
/// # Errors
/// CUDA_ERROR if a driver is there and fails, or if `cuda` is asked for and there is no driver or device;
/// INVALID_VALUE for a value that is none of `auto`, `cuda`, `cpu`. A failure is not kept: the next call looks again.
pub fn at_init() -> Result<()> {
    chosen().map(|_| ())
}

/// The platform for a value of `WHOLEMEMORY_PLATFORM`, and why it is the CPU if nobody asked for that.
fn choose(wish: &str, probe: impl FnOnce() -> Result<Devices>) -> Result<(Which, Option<String>)> {
    match wish.trim().to_ascii_lowercase().as_str() {
        "cpu" => Ok((Which::Cpu, None)),
        "cuda" => match probe()? {
            Devices::Count(_) => Ok((Which::Cuda, None)),
            Devices::None(reason) => fail!(Cuda, "WHOLEMEMORY_PLATFORM=cuda, but {reason}"),
        },
        "auto" | "" => match probe() {
            Ok(Devices::Count(_)) => Ok((Which::Cuda, None)),
            Ok(Devices::None(reason)) => Ok((Which::Cpu, Some(reason))),
            Err(error) => Err(Error::new(
                error.kind,
                format!("{}; set WHOLEMEMORY_PLATFORM=cpu to do without GPUs", error.what),
            )),
        },
        _ => fail!(
            InvalidValue,
            "WHOLEMEMORY_PLATFORM is \"{wish}\", it must be auto, cuda or cpu"
        ),
    }
}

/// How long the child may take to count the devices; many GPUs without persistence mode need tens of seconds.
const CHILD_LIMIT: Duration = Duration::from_secs(120);

/// How many devices the driver reports, found out in a child process so that this one stays free to fork ranks that use
/// CUDA. 0 without driver or device, -1 when fork or pipe fails or the driver fails in another way (said at ERROR). A count
/// above 0 is kept for the process. Starts no thread.
pub fn fork_device_count() -> i32 {
    static KNOWN: AtomicI32 = AtomicI32::new(0);
    let known = KNOWN.load(Ordering::Relaxed);
    if known > 0 {
        return known;
    }
    match count_in_child() {
        Ok(count) => {
            KNOWN.store(count, Ordering::Relaxed);
            count
        }
        Err(error) => {
            say!(Error, "cannot count the CUDA devices: {}", error.what);
            -1
        }
    }
}

fn count_in_child() -> Result<i32> {
    // The library is loaded here: it is the child's initialisation, not the loading, that this process must be spared.
    let driver = match Driver::get() {
        Ok(driver) => driver,
        Err(super::cuda::Unusable::Absent(_)) => return Ok(0),
        Err(super::cuda::Unusable::Broken(words)) => fail!(Cuda, "the CUDA driver cannot be used: {words}"),
    };
    if let Ok(count) = driver.initialised_count() {
        return Ok(count.max(0));
    }
    let report = in_child(|| match driver.raw_count() {
        Ok(count) => [0, count.max(0)],
        Err((_, code)) if driver::means_no_device(code) => [0, 0],
        Err((_, code)) => [code, 0],
    })?;
    match report {
        [0, count] => Ok(count),
        [code, _] => fail!(Cuda, "the CUDA driver failed: {}", driver.words(code)),
    }
}

/// Runs `work` in a forked child and returns its answer. The child runs nothing but `work`, a write and `_exit`, with all
/// signals blocked, since other threads of the caller may hold any lock.
fn in_child(work: impl FnOnce() -> [i32; 2]) -> Result<[i32; 2]> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| Error::system("pipe", e))?;
    let target = writer.as_raw_fd();
    let signals = BlockedSignals::block();
    // SAFETY: the child calls `work`, `write` and `_exit` only, and never returns from here.
    let child = unsafe { libc::fork() };
    if child == 0 {
        leave(target, work());
    }
    let failure = std::io::Error::last_os_error();
    drop(signals);
    if child < 0 {
        return Err(Error::system("fork", failure));
    }
    drop(writer);
    let answer = await_report(&reader, child);
    if answer.is_err() {
        // SAFETY: `child` is our own child; it may be gone, which is no harm.
        unsafe { libc::kill(child, libc::SIGKILL) };
    }
    reap(child, 0);
    answer
}

/// In the child: hands the report over and ends the process without running anything of the caller's.
fn leave(target: RawFd, report: [i32; 2]) -> ! {
    // SAFETY: `report` is 8 bytes, no more than the pipe takes at once; nothing is done after `_exit`.
    unsafe {
        let sent = libc::write(target, report.as_ptr().cast(), 8);
        libc::_exit(i32::from(sent != 8))
    }
}

fn await_report(reader: &OwnedFd, child: libc::pid_t) -> Result<[i32; 2]> {
    let begin = Instant::now();
    let tick = Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    let mut gone = false;
    loop {
        let mut fds = [PollFd::new(reader, PollFlags::IN)];
        match poll(&mut fds, Some(&tick)) {
            Ok(0) if gone => fail!(
                System,
                "the child that counts the devices ended without an answer"
            ),
            // A fork by another thread may hold the pipe's other end open, so its end alone does not tell.
            Ok(0) => gone = reap(child, libc::WNOHANG),
            Ok(_) => return read_report(reader),
            Err(Errno::INTR) => {}
            Err(error) => return Err(Error::system("poll", error)),
        }
        if begin.elapsed() > CHILD_LIMIT {
            fail!(
                Cuda,
                "the CUDA driver did not answer within {} s",
                CHILD_LIMIT.as_secs()
            );
        }
    }
}

fn read_report(reader: &OwnedFd) -> Result<[i32; 2]> {
    let mut bytes = [0u8; 8];
    loop {
        match rustix::io::read(reader.as_fd(), &mut bytes) {
            Ok(8) => break,
            Ok(_) => fail!(
                Cuda,
                "the child that counts the devices died inside the CUDA driver"
            ),
            Err(Errno::INTR) => {}
            Err(error) => return Err(Error::system("read", error)),
        }
    }
    let value = |at: usize| i32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    Ok([value(0), value(4)])
}

/// True once the child has ended.
fn reap(child: libc::pid_t, flags: i32) -> bool {
    loop {
        let mut status = 0;
        // SAFETY: `child` is our own child and `status` outlives the call.
        let result = unsafe { libc::waitpid(child, &mut status, flags) };
        if result >= 0 {
            return result == child;
        }
        if std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            // ECHILD: the caller's own handler has reaped it.
            return true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    fn none() -> Result<Devices> {
        Ok(Devices::None("nobody home".into()))
    }

    #[test]
    fn the_wish_decides() {
        let name = |wish: &str, devices: fn() -> Result<Devices>| {
            choose(wish, devices).map(|(which, reason)| (which, reason.is_some()))
        };
        let two = || Ok(Devices::Count(2));
        let broken = || {
            Err(Error::new(
                Kind::Cuda,
                "cuInit of the CUDA driver failed: because",
            ))
        };
        assert_eq!(name("auto", two).expect("a platform"), (Which::Cuda, false));
        assert_eq!(name(" CUDA ", two).expect("a platform"), (Which::Cuda, false));
        assert_eq!(name("auto", none).expect("a platform"), (Which::Cpu, true));
        assert_eq!(name("cpu", broken).expect("a platform"), (Which::Cpu, false));
        for (wish, devices, kind, word) in [
            ("cuda", none as fn() -> Result<Devices>, Kind::Cuda, "nobody home"),
            ("auto", broken, Kind::Cuda, "because"),
            ("cuda", broken, Kind::Cuda, "because"),
            ("gpu", two, Kind::InvalidValue, "\"gpu\""),
        ] {
            let error = name(wish, devices).expect_err(wish);
            assert_eq!(error.kind, kind);
            assert!(error.what.contains(word), "{}", error.what);
        }
    }

    #[test]
    fn a_child_answers() {
        assert_eq!(in_child(|| [3, 4]).expect("an answer"), [3, 4]);
    }

    #[test]
    fn a_child_that_dies_is_an_error_and_leaves_no_zombie() {
        // SAFETY: the child ends itself.
        let error = in_child(|| unsafe { libc::_exit(7) }).expect_err("no answer");
        assert_eq!(error.kind, Kind::Cuda);
    }
}
