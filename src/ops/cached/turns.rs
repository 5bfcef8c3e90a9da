//! Who may use a cache when: gathers run side by side, on any threads and streams of a rank; what changes lines runs alone.

use crate::error::{Result, ensure};
use crate::platform::process::epoch;
use crate::platform::{Mark, Platform, Stream, StreamName};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

/// Orders threads by a lock, and streams by marks where work goes on after a call. Users of one stream pay for no waiting. A forked
/// child has no turn: nothing orders it and the threads of its parent, and it would see lines that they are changing.
pub struct Turns {
    /// The process that made it.
    epoch: u32,
    order: RwLock<()>,
    marks: Mutex<Marks>,
}

#[derive(Default)]
struct Marks {
    /// The last change; several where one was not behind those before it.
    changed: Vec<Marked>,
    /// The last gather of each stream since then.
    read: Vec<Marked>,
    spare: Vec<Box<dyn Mark>>,
}

/// From so many readers on those that are done are forgotten: who makes a stream for every gather must not leave as many marks.
/// Nobody is held back for that: streams that have nothing to do with each other may wait for other ranks in any order.
const MANY_READERS: usize = 32;

struct Marked {
    /// Where it was set.
    stream: StreamName,
    mark: Box<dyn Mark>,
}

impl Marks {
    fn mark(&mut self, platform: &dyn Platform, user: User) -> Result<Option<Marked>> {
        let mark = match self.spare.pop() {
            Some(mark) => Some(mark),
            None => platform.mark()?,
        };
        let Some(mark) = mark else { return Ok(None) };
        mark.set(user.stream)?;
        Ok(Some(Marked {
            stream: user.name,
            mark,
        }))
    }

    fn after_change(&self, user: User) -> Result<()> {
        let mut others = self.changed.iter().filter(|changed| changed.stream != user.name);
        others.try_for_each(|changed| changed.mark.hold_back(user.stream))
    }

    fn after_all(&self, user: User) -> Result<()> {
        self.after_change(user)?;
        let mut others = self.read.iter().filter(|read| read.stream != user.name);
        others.try_for_each(|read| read.mark.hold_back(user.stream))
    }

    fn has_read(&mut self, platform: &dyn Platform, user: User) -> Result<()> {
        if let Some(read) = self.read.iter().find(|read| read.stream == user.name) {
            return read.mark.set(user.stream);
        }
        if self.read.len() >= MANY_READERS {
            let (passed, at_work) = self.read.drain(..).partition(|read| read.mark.is_passed());
            self.read = at_work;
            self.keep(passed);
        }
        let read = self.mark(platform, user)?;
        self.read.extend(read);
        Ok(())
    }

    /// Whom a change did not wait for (`ordered` false), those behind it do.
    fn has_changed(&mut self, platform: &dyn Platform, user: User, ordered: bool) -> Result<()> {
        let mark = self.mark(platform, user)?;
        if ordered {
            let done = self.read.drain(..).chain(self.changed.drain(..)).collect();
            self.keep(done);
        }
        self.changed.extend(mark);
        Ok(())
    }

    /// Marks that nobody needs to wait for any more.
    fn keep(&mut self, marked: Vec<Marked>) {
        self.spare.extend(marked.into_iter().map(|marked| marked.mark));
        self.spare.truncate(MANY_READERS);
    }
}

/// The stream of who uses the cache.
#[derive(Clone, Copy)]
struct User {
    stream: Stream,
    name: StreamName,
}

impl User {
    fn of(platform: &dyn Platform, stream: Stream) -> User {
        User {
            stream,
            name: platform.name_of(stream),
        }
    }
}

/// Work that could not be marked is waited for here, so that nobody has to.
fn marked_or_done(platform: &dyn Platform, stream: Stream, marked: Result<()>) -> Result<()> {
    marked.or_else(|error| platform.synchronize(stream).map_err(|_| error))
}

impl Default for Turns {
    fn default() -> Turns {
        Turns {
            epoch: epoch(),
            order: RwLock::default(),
            marks: Mutex::default(),
        }
    }
}

impl Turns {
    fn check_ours(&self) -> Result<()> {
        ensure!(
            self.epoch == epoch(),
            Communication,
            "this process was forked from the one that made the cache, which alone can use it"
        );
        Ok(())
    }

    /// Its locks, held.
    #[cfg(test)]
    pub fn hold_locks(&self) -> impl Sized + '_ {
        (self.order.write(), self.marks.lock())
    }

    fn marks(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enqueues `work`, which reads lines, on the stream. It may not wait for other ranks, and may not take a turn itself.
    /// # Errors
    /// COMMUNICATION_ERROR in a forked child, CUDA_ERROR, and those of `work`.
    pub fn read<T>(
        &self,
        platform: &dyn Platform,
        stream: Stream,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.check_ours()?;
        let _turn = self.order.read().unwrap_or_else(PoisonError::into_inner);
        let user = User::of(platform, stream);
        self.marks().after_change(user)?;
        let outcome = work();
        let marked = self.marks().has_read(platform, user);
        marked_or_done(platform, stream, marked)?;
        outcome
    }

    /// Enqueues `work`, which changes lines, on the stream. It may not take a turn itself. It is called also where its streams
    /// could not be ordered, with that failure, since other ranks may count on it.
    /// # Errors
    /// Those of `work`, COMMUNICATION_ERROR in a forked child, CUDA_ERROR.
    pub fn change<T>(
        &self,
        platform: &dyn Platform,
        stream: Stream,
        work: impl FnOnce(Result<()>) -> Result<T>,
    ) -> Result<T> {
        self.check_ours()?;
        let _turn = self.order.write().unwrap_or_else(PoisonError::into_inner);
        let user = User::of(platform, stream);
        let ordered = self.marks().after_all(user);
        let in_order = ordered.is_ok();
        let outcome = work(ordered);
        let marked = self.marks().has_changed(platform, user, in_order);
        let marked = marked_or_done(platform, stream, marked);
        outcome.and_then(|value| marked.map(|()| value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::cpu::CpuPlatform;
    use crate::platform::{Bootstrap, Kernels, Segments, Transport};
    use crate::span::Address;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// The CPU platform, were its work still going on after a call; it writes down which streams wait for whom.
    #[derive(Default)]
    struct Later {
        made: AtomicUsize,
        asked: AtomicUsize,
        /// Streams below are done, but for every hundredth.
        passed: Arc<AtomicUsize>,
        /// What fails, a bit each: setting marks, holding streams back, waiting.
        fails: Arc<AtomicUsize>,
        log: Arc<Mutex<Vec<String>>>,
    }

    const SET: usize = 1;
    const HOLD: usize = 2;
    const WAIT: usize = 4;

    fn may(fails: &AtomicUsize, what: usize) -> Result<()> {
        ensure!(fails.load(Ordering::Relaxed) & what == 0, Cuda, "{what} fails");
        Ok(())
    }

    struct Written {
        /// Where it was set last.
        stream: Mutex<usize>,
        passed: Arc<AtomicUsize>,
        fails: Arc<AtomicUsize>,
        log: Arc<Mutex<Vec<String>>>,
    }

    impl Mark for Written {
        fn set(&self, stream: Stream) -> Result<()> {
            may(&self.fails, SET)?;
            *self.stream.lock().unwrap() = stream.0;
            Ok(())
        }

        fn hold_back(&self, stream: Stream) -> Result<()> {
            may(&self.fails, HOLD)?;
            let line = format!("{} after {}", stream.0, self.stream.lock().unwrap());
            self.log.lock().unwrap().push(line);
            Ok(())
        }

        fn is_passed(&self) -> bool {
            let stream = *self.stream.lock().unwrap();
            !stream.is_multiple_of(100) && stream < self.passed.load(Ordering::Relaxed)
        }
    }

    impl Platform for Later {
        fn name(&self) -> &'static str {
            "later"
        }

        fn segments(&self) -> &dyn Segments {
            CpuPlatform.segments()
        }

        fn kernels(&self) -> &dyn Kernels {
            &CpuPlatform
        }

        fn local_transport(&self, boot: &dyn Bootstrap) -> Result<Box<dyn Transport>> {
            CpuPlatform.local_transport(boot)
        }

        fn can_reach(&self, address: Address) -> bool {
            CpuPlatform.can_reach(address)
        }

        fn copy(&self, to: Address, from: Address, bytes: usize, stream: Stream) -> Result<()> {
            CpuPlatform.copy(to, from, bytes, stream)
        }

        fn synchronize(&self, stream: Stream) -> Result<()> {
            self.log.lock().unwrap().push(format!("{} done", stream.0));
            may(&self.fails, WAIT)
        }

        /// Handle 2 means another stream in every thread; 7 is used again for a new one every time.
        fn name_of(&self, stream: Stream) -> StreamName {
            match stream.0 {
                2 => StreamName::Handle(stream, std::thread::current().id()),
                7 => StreamName::Number(1000 + self.asked.fetch_add(1, Ordering::Relaxed) as u64),
                handle => StreamName::Number(handle as u64),
            }
        }

        fn mark(&self) -> Result<Option<Box<dyn Mark>>> {
            self.made.fetch_add(1, Ordering::Relaxed);
            Ok(Some(Box::new(Written {
                stream: Mutex::default(),
                passed: self.passed.clone(),
                fails: self.fails.clone(),
                log: self.log.clone(),
            })))
        }
    }

    /// A change waits for the last change and for what was read since, a reader for the last change; nobody for its own stream.
    #[test]
    fn streams_wait_for_those_before_them() {
        let (turns, later) = (Turns::default(), Later::default());
        let read = |stream| turns.read(&later, Stream(stream), || Ok(())).unwrap();
        let change = |stream| turns.change(&later, Stream(stream), |ordered| ordered).unwrap();
        let waits = || std::mem::take(&mut *later.log.lock().unwrap());
        read(1);
        read(2);
        read(1);
        assert!(waits().is_empty());
        change(3);
        assert_eq!(waits(), ["3 after 1", "3 after 2"]);
        read(3);
        assert!(waits().is_empty());
        read(1);
        assert_eq!(waits(), ["1 after 3"]);
        change(1);
        assert_eq!(waits(), ["1 after 3", "1 after 3"]);
        change(1);
        assert!(waits().is_empty());
        change(2);
        assert_eq!(waits(), ["2 after 1"]);
        // Of two readers, a change, and the next change, which has its own before those go.
        assert!(later.made.load(Ordering::Relaxed) <= 4, "marks are used again");
    }

    /// A handle does not always mean the stream that it meant before.
    #[test]
    fn equal_handles_of_different_streams_wait_for_each_other() {
        let (turns, later) = (Turns::default(), Later::default());
        let read = |stream| turns.read(&later, Stream(stream), || Ok(())).unwrap();
        let change = |stream| turns.change(&later, Stream(stream), |ordered| ordered).unwrap();
        let waits = || std::mem::take(&mut *later.log.lock().unwrap());
        let elsewhere =
            |work: &(dyn Fn() + Sync)| std::thread::scope(|scope| scope.spawn(work).join().unwrap());
        read(2);
        elsewhere(&|| read(2));
        change(2);
        assert_eq!(waits(), ["2 after 2"]);
        elsewhere(&|| read(2));
        assert_eq!(waits(), ["2 after 2"]);
        read(2);
        assert!(waits().is_empty());
        read(7);
        assert_eq!(waits(), ["7 after 2"]);
        change(7);
        // The change of handle 2, its two readers since then, and the former stream of handle 7.
        assert_eq!(waits(), ["7 after 2", "7 after 2", "7 after 2", "7 after 7"]);
    }

    /// A stream for every gather: those that are done leave nothing, and the next change is behind the others.
    #[test]
    fn readers_that_are_done_leave_no_marks() {
        let (turns, later) = (Turns::default(), Later::default());
        for stream in 100..1100 {
            // One of a hundred is at work for long.
            later.passed.store(stream, Ordering::Relaxed);
            turns.read(&later, Stream(stream), || Ok(())).unwrap();
        }
        let waits = || std::mem::take(&mut *later.log.lock().unwrap());
        assert!(waits().is_empty(), "readers wait for nobody");
        assert!(later.made.load(Ordering::Relaxed) <= MANY_READERS + 11);
        turns.change(&later, Stream(5), |ordered| ordered).unwrap();
        let now = waits();
        assert!(now.len() <= MANY_READERS + 11);
        for stream in (100..1100).step_by(100) {
            assert!(now.contains(&format!("5 after {stream}")), "{stream}");
        }
        // None of them is done: all are waited for.
        later.passed.store(0, Ordering::Relaxed);
        for stream in 100..200 {
            turns.read(&later, Stream(stream), || Ok(())).unwrap();
        }
        waits();
        turns.change(&later, Stream(5), |ordered| ordered).unwrap();
        assert_eq!(waits().len(), 100);
    }

    /// Whom a change could not wait for, the next one does; who leaves no mark is waited for at once.
    #[test]
    fn what_could_not_be_ordered_is_waited_for_later() {
        let (turns, later) = (Turns::default(), Later::default());
        let fails = |what: usize| later.fails.store(what, Ordering::Relaxed);
        let change = |stream| turns.change(&later, Stream(stream), |ordered| ordered);
        let waits = || std::mem::take(&mut *later.log.lock().unwrap());
        change(1).unwrap();
        turns.read(&later, Stream(2), || Ok(())).unwrap();
        assert_eq!(waits(), ["2 after 1"]);
        fails(HOLD);
        change(3).unwrap_err();
        fails(0);
        turns.read(&later, Stream(9), || Ok(())).unwrap();
        assert_eq!(waits(), ["9 after 1", "9 after 3"]);
        change(4).unwrap();
        assert_eq!(waits(), ["4 after 1", "4 after 3", "4 after 2", "4 after 9"]);
        turns.read(&later, Stream(2), || Ok(())).unwrap();
        waits();
        for what in [SET, SET | WAIT] {
            fails(what);
            // What is done needs no mark.
            assert_eq!(change(5).is_ok(), what == SET);
            assert_eq!(turns.read(&later, Stream(7), || Ok(())).is_ok(), what == SET);
            fails(0);
            assert_eq!(
                waits(),
                ["5 after 4", "5 after 2", "5 done", "7 after 4", "7 done"]
            );
        }
        change(6).unwrap();
        assert_eq!(waits(), ["6 after 4", "6 after 2"]);
    }

    /// Readers of several threads meet inside; a change is alone.
    #[test]
    fn readers_run_side_by_side_and_changes_alone() {
        let turns = Turns::default();
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let enter = |readers: usize| {
            let now = inside.fetch_add(readers, Ordering::SeqCst) + readers;
            most.fetch_max(now % 1000, Ordering::SeqCst);
            assert!(now <= 1000, "{now}");
            std::thread::sleep(std::time::Duration::from_millis(1));
            inside.fetch_sub(readers, Ordering::SeqCst);
            Ok(())
        };
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (turns, enter) = (&turns, &enter);
                scope.spawn(move || {
                    for round in 0..20 {
                        let stream = Stream(thread);
                        if (thread + round) % 4 == 0 {
                            turns
                                .change(&CpuPlatform, stream, |ordered| ordered.and(enter(1000)))
                                .unwrap();
                        } else {
                            turns.read(&CpuPlatform, stream, || enter(1)).unwrap();
                        }
                    }
                });
            }
        });
        assert!(most.into_inner() > 1, "readers never met");
    }
}
