//! For tests: a meeting place whose ranks are threads of this process, and processes of a test's own.

use crate::error::{Error, Kind, Result};
use crate::platform::Bootstrap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};

struct Place {
    barrier: Barrier,
    bytes: Mutex<Vec<Vec<u8>>>,
    descriptors: Mutex<Vec<Option<OwnedFd>>>,
}

/// One rank's side of the meeting place.
pub(crate) struct Threaded {
    place: Arc<Place>,
    rank: usize,
    size: usize,
    /// The exchange of descriptors fails on this rank, as when one is lost on its way.
    loses_descriptors: bool,
    broke_off: AtomicBool,
}

impl Threaded {
    /// This rank has broken the communicator.
    pub(crate) fn broke_off(&self) -> bool {
        self.broke_off.load(Ordering::Relaxed)
    }

    pub(crate) fn losing_descriptors(mut self, loses: bool) -> Threaded {
        self.loses_descriptors = loses;
        self
    }
}

/// Runs `body` as `size` ranks and returns their results in rank order.
pub(crate) fn ranks<T: Send>(size: usize, body: impl Fn(Threaded) -> T + Sync) -> Vec<T> {
    let place = Arc::new(Place {
        barrier: Barrier::new(size),
        bytes: Mutex::new(vec![Vec::new(); size]),
        descriptors: Mutex::new((0..size).map(|_| None).collect()),
    });
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..size)
            .map(|rank| {
                let boot = Threaded {
                    place: place.clone(),
                    rank,
                    size,
                    loses_descriptors: false,
                    broke_off: AtomicBool::new(false),
                };
                scope.spawn(|| body(boot))
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

impl Bootstrap for Threaded {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn all_gather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.place.bytes.lock().unwrap()[self.rank] = mine.to_vec();
        self.place.barrier.wait();
        let all = self.place.bytes.lock().unwrap().clone();
        self.place.barrier.wait();
        Ok(all)
    }

    fn barrier(&self) -> Result<()> {
        self.place.barrier.wait();
        Ok(())
    }

    fn exchange_descriptors(&self, mine: Option<BorrowedFd<'_>>) -> Result<Vec<Option<OwnedFd>>> {
        self.place.descriptors.lock().unwrap()[self.rank] = mine.map(|fd| fd.try_clone_to_owned().unwrap());
        self.place.barrier.wait();
        let all = self
            .place
            .descriptors
            .lock()
            .unwrap()
            .iter()
            .map(|fd| fd.as_ref().map(|fd| fd.try_clone().unwrap()))
            .collect();
        self.place.barrier.wait();
        self.place.descriptors.lock().unwrap()[self.rank] = None;
        if self.loses_descriptors {
            return Err(Error::new(Kind::System, "a descriptor was lost in transit"));
        }
        Ok(all)
    }

    fn break_off(&self, _: &Error) {
        self.broke_off.store(true, Ordering::Relaxed);
    }

    fn failure(&self) -> Option<Error> {
        None
    }
}

/// True in a process that runs the named test alone (module path and name); else starts one, with `variables` set on top,
/// and returns false once it passed. For tests that count what their process holds, or that set its environment.
pub(crate) fn in_own_process(test: &str, variables: &[(&str, &str)]) -> bool {
    const ALONE: &str = "WHOLEMEMORY_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let name = test.split_once("::").unwrap().1;
    let done = std::process::Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(ALONE, "1")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    let complained = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}\n{complained}");
    assert!(said.contains("1 passed"), "{said}");
    false
}

/// [`in_own_process`] with the name of the enclosing test.
macro_rules! alone {
    ($name:ident) => {
        if !crate::platform::cpu::segments::threaded::in_own_process(
            concat!(module_path!(), "::", stringify!($name)),
            &[],
        ) {
            return;
        }
    };
}

pub(crate) use alone;
