//! The one control thread of the process: it alone reads the sockets of all communicators, so that a death is seen when
//! no rank is inside a call. Started with the first user, joined with the last.

use crate::error::{Error, Result};
use crate::platform::process::{Descriptor, PerProcess, Watched, epoch, spare, spawn_quiet};
use rustix::event::epoll;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{JoinHandle, ThreadId};
use std::time::Duration;

/// Something the control thread watches. Calls come from the control thread and must not block.
pub trait Ready: Send + Sync {
    /// The descriptor may be read or written. May come once more after it was forgotten.
    fn ready(&self);

    /// Whether [`tick`](Ready::tick) is wanted at the moment.
    fn wants_ticks(&self) -> bool {
        false
    }

    /// About every 100 ms while wanted.
    fn tick(&self) {}
}

/// The loop's shared part.
pub struct Loop {
    epoll: Descriptor,
    bell: Descriptor,
    watched: Mutex<HashMap<u64, Arc<dyn Ready>>>,
    next_token: AtomicU64,
    stop: AtomicBool,
}

const BELL: u64 = 0;
const TICK: Duration = Duration::from_millis(100);

impl Loop {
    fn new() -> Result<Loop> {
        let epoll = Watched::open(|| epoll::create(epoll::CreateFlags::CLOEXEC))
            .map_err(|e| Error::system("epoll_create", e))?;
        let bell = Watched::open(|| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK))
            .map_err(|e| Error::system("eventfd", e))?;
        epoll::add(
            &*epoll,
            &*bell,
            epoll::EventData::new_u64(BELL),
            epoll::EventFlags::IN,
        )
        .map_err(|e| Error::system("epoll_ctl", e))?;
        Ok(Loop {
            epoll: epoll.into_descriptor(),
            bell: bell.into_descriptor(),
            watched: Mutex::new(HashMap::new()),
            next_token: AtomicU64::new(1),
            stop: AtomicBool::new(false),
        })
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<u64, Arc<dyn Ready>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A token for a thing that will be watched.
    pub fn new_token(&self) -> u64 {
        self.next_token.fetch_add(1, Ordering::Relaxed)
    }

    /// Watches `fd` for reading on behalf of `target`.
    pub fn watch(&self, token: u64, fd: BorrowedFd<'_>, target: Arc<dyn Ready>) -> Result<()> {
        self.watched().insert(token, target);
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token), flags).map_err(|e| {
            self.watched().remove(&token);
            Error::system("epoll_ctl", e)
        })
    }

    /// Also reports when `fd` can be written, or no longer does.
    pub fn watch_writing(&self, token: u64, fd: BorrowedFd<'_>, writing: bool) {
        let mut flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        flags.set(epoll::EventFlags::OUT, writing);
        let _ = epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(token), flags);
    }

    /// Stops or resumes reporting that `fd` can be read.
    pub fn watch_reading(&self, token: u64, fd: BorrowedFd<'_>, reading: bool) {
        let flags = if reading {
            epoll::EventFlags::IN
        } else {
            epoll::EventFlags::empty()
        };
        let _ = epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(token), flags);
    }

    /// Ends the watch. The target may be called once more by a pass in progress.
    pub fn forget(&self, token: u64, fd: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.epoll, fd);
        let gone = self.watched().remove(&token);
        drop(gone);
    }

    /// Makes the control thread look around: something wants ticks now.
    pub fn ring(&self) {
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    fn run(&self) {
        let mut events = Vec::with_capacity(64);
        while !self.stop.load(Ordering::Acquire) {
            let targets: Vec<_> = self.watched().values().cloned().collect();
            let ticking: Vec<_> = targets.into_iter().filter(|t| t.wants_ticks()).collect();
            let timeout = (!ticking.is_empty()).then(|| TICK.try_into().expect("100 ms fits"));
            events.clear();
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                timeout.as_ref(),
            ) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                // Nothing but a closed epoll descriptor gets here; without it there is nothing to watch.
                Err(_) => return,
            }
            for event in &events {
                let token = event.data.u64();
                if token == BELL {
                    let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
                    continue;
                }
                let target = self.watched().get(&token).cloned();
                if let Some(target) = target {
                    target.ready();
                }
            }
            ticking.iter().for_each(|t| t.tick());
        }
    }
}

struct Running {
    /// The thread and those who use it hold it: where it ends by itself, so do its descriptors.
    shared: Weak<Loop>,
    thread: JoinHandle<()>,
    id: ThreadId,
}

#[derive(Default)]
struct State {
    users: usize,
    running: Option<Running>,
}

static STATE: PerProcess<Mutex<State>> = PerProcess::new(
    Mutex::new(State {
        users: 0,
        running: None,
    }),
    Mutex::default,
);

fn state() -> MutexGuard<'static, State> {
    STATE.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// A use of the control thread; the thread ends with the last one.
pub struct Control {
    shared: Arc<Loop>,
    epoch: u32,
}

impl Control {
    /// Starts the control thread if it does not run.
    /// # Errors
    /// SYSTEM_ERROR if the system gives no thread or descriptor.
    pub fn acquire() -> Result<Control> {
        let mut state = state();
        let running = state.running.as_ref().and_then(|r| r.shared.upgrade());
        let shared = match running.filter(|shared| !shared.stop.load(Ordering::Acquire)) {
            Some(shared) => shared,
            None => {
                if let Some(old) = state.running.take() {
                    let _ = old.thread.join();
                }
                let shared = Arc::new(Loop::new()?);
                let body = shared.clone();
                let thread = spawn_quiet("wm-control", move || body.run())?;
                state.running = Some(Running {
                    shared: Arc::downgrade(&shared),
                    id: thread.thread().id(),
                    thread,
                });
                spare::begin();
                shared
            }
        };
        state.users += 1;
        Ok(Control {
            shared,
            epoch: epoch(),
        })
    }

    pub fn shared(&self) -> &Arc<Loop> {
        &self.shared
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if self.epoch != epoch() {
            return;
        }
        let mut state = state();
        state.users -= 1;
        if state.users > 0 {
            return;
        }
        super::rendezvous::close();
        spare::end();
        self.shared.stop.store(true, Ordering::Release);
        self.shared.ring();
        // The control thread drops the last use itself when an unused unique id expires; the next start joins it then.
        if state
            .running
            .as_ref()
            .is_some_and(|r| r.id != std::thread::current().id())
        {
            let running = state.running.take().expect("checked");
            let _ = running.thread.join();
        }
    }
}

/// Joins a control thread that ended by itself; part of finalize.
pub fn join_ended() {
    let mut state = state();
    if state.users == 0
        && state
            .running
            .as_ref()
            .is_some_and(|r| r.id != std::thread::current().id())
    {
        let running = state.running.take().expect("checked");
        let _ = running.thread.join();
    }
}
