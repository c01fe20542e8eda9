//! The state of one watch.
use super::control::Control;
use super::effect::{Effect, Load};
use super::lock;
use super::ram::Ram;
use crate::Sanitizer;
use crate::watch::error::Error;
use crate::watch::found::{Act, FoundAt};
use crate::watch::store::{Changed, Store};
use std::any::Any;
use std::backtrace::Backtrace;
use std::cell::{Cell, UnsafeCell};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Called after each store.
pub(super) type OnStore = Box<dyn FnMut(&mut Sanitizer, &Ram, &Store<'_>) + Send>;

/// One watch. All fields except `ram` belong to the thread that holds the lock.
pub(super) struct Region {
    pub(super) ram: Ram,
    /// Calls of `run` under way.
    pub(super) running: Cell<usize>,
    /// Pauses under way.
    pub(super) paused: Cell<usize>,
    /// Whether repeated stores are taken one repetition at a time.
    pub(super) each_repetition: Cell<bool>,
    pub(super) stores: Cell<u64>,
    /// For each CPU the thread that stands for it, and how often.
    runners: Box<[Cell<(usize, u32)>]>,
    /// Whether the subject is lent out. Stores wait in the log meanwhile.
    busy: Cell<bool>,
    log: UnsafeCell<Log>,
    subject: UnsafeCell<Subject>,
}

// SAFETY: `ram` may be shared. Every other field is only touched by the thread that holds the lock,
// and its content may move between threads.
unsafe impl Sync for Region {}
// SAFETY: as above.
unsafe impl Send for Region {}

/// The checker of the stores.
pub(super) struct Subject {
    pub(super) san: Sanitizer,
    pub(super) on_store: Option<OnStore>,
    pub(super) found: Vec<FoundAt>,
    pub(super) panic: Option<Box<dyn Any + Send>>,
    /// The control registers of each CPU.
    pub(super) controls: Vec<Control>,
}

/// Stores that the subject has not seen yet.
#[derive(Default)]
struct Log {
    seen: Vec<Seen>,
    words: Vec<Changed>,
}

/// The instruction of a store.
#[derive(Clone, Copy)]
pub(super) struct By {
    pub(super) rip: usize,
    /// Whether it reads and stores in one piece.
    pub(super) atomic: bool,
    /// The CPU that the thread stands for, if it is in a run of kernel code.
    pub(super) cpu: Option<usize>,
}

struct Seen {
    by: By,
    phys: u64,
    /// The bytes that it stored to, whether they changed or not.
    overwritten: Range<u64>,
    /// The number of changed words that belong to this store.
    words: usize,
}

impl Region {
    pub(super) fn new(ram: Ram, san: Sanitizer) -> Self {
        let cpus = san.config.cpus;
        let (tagged, five_levels) = (san.config.asids, san.config.arch.levels.len() == 5);
        let controls = (0..cpus).map(|_| Control::new(tagged, five_levels)).collect();
        let subject = Subject { san, on_store: None, found: Vec::new(), panic: None, controls };
        Self {
            ram,
            running: Cell::new(0),
            paused: Cell::new(0),
            each_repetition: Cell::new(false),
            stores: Cell::new(0),
            runners: vec![Cell::new((0, 0)); cpus].into(),
            busy: Cell::new(false),
            log: UnsafeCell::default(),
            subject: UnsafeCell::new(subject),
        }
    }

    /// Returns whether stores must fault now.
    pub(super) fn is_watched(&self) -> bool {
        self.running.get() > 0 && self.paused.get() == 0
    }

    /// Sets the protection that the counts call for.
    pub(super) fn protect(&self) -> Result<(), Error> {
        let failed = |e: rustix::io::Errno| Error::System { call: "mprotect", errno: e.raw_os_error() };
        self.ram.protect(0, self.ram.bytes(), !self.is_watched()).map_err(failed)
    }

    /// Makes this thread stand for the CPU. The caller holds the lock.
    pub(super) fn claim(&self, cpu: usize) -> Result<(), Error> {
        let no_such = Error::NoSuchCpu { cpu, cpus: self.runners.len() };
        let runner = self.runners.get(cpu).ok_or(no_such)?;
        let (thread, depth) = runner.get();
        if depth > 0 && thread != lock::this_thread() {
            return Err(Error::CpuTaken { cpu });
        }
        runner.set((lock::this_thread(), depth + 1));
        Ok(())
    }

    /// Undoes [`Region::claim`]. The caller holds the lock.
    pub(super) fn give_up(&self, cpu: usize) {
        if let Some(runner) = self.runners.get(cpu) {
            let (thread, depth) = runner.get();
            runner.set((thread, depth.saturating_sub(1)));
        }
    }

    pub(super) fn into_sanitizer(self) -> Sanitizer {
        self.subject.into_inner().san
    }

    /// Records a store and the words that it changed.
    ///
    /// # Safety
    /// The caller holds the lock.
    pub(super) unsafe fn note(
        &self,
        by: By,
        phys: u64,
        overwritten: Range<u64>,
        changed: impl Iterator<Item = Changed>,
    ) {
        self.stores.set(self.stores.get() + 1);
        // SAFETY: only the holder of the lock touches the log, and never across a store to watched
        // memory: the iterator compares copies with memory.
        let log = unsafe { &mut *self.log.get() };
        let before = log.words.len();
        log.words.extend(changed);
        let words = log.words.len() - before;
        log.seen.push(Seen { by, phys, overwritten, words });
    }

    /// Lends the subject out. Returns `None` if a caller further up in this thread has it.
    ///
    /// # Safety
    /// The caller holds the lock, for as long as `use_it` runs.
    pub(super) unsafe fn with<R>(&self, use_it: impl FnOnce(&mut Subject) -> R) -> Option<R> {
        struct NotBusy<'a>(&'a Cell<bool>);
        impl Drop for NotBusy<'_> {
            fn drop(&mut self) {
                self.0.set(false);
            }
        }
        if self.busy.replace(true) {
            return None;
        }
        let _end = NotBusy(&self.busy);
        // SAFETY: only the holder of the lock comes here, and because of `busy` only the outermost
        // of its calls.
        Some(use_it(unsafe { &mut *self.subject.get() }))
    }

    /// Delivers the recorded stores to the subject. If the subject is lent out, the lender does it
    /// later. `live` says that the stack above is that of the store.
    ///
    /// # Safety
    /// The caller holds the lock.
    pub(super) unsafe fn deliver(&self, live: bool) {
        // SAFETY: the caller holds the lock.
        let _ = unsafe {
            self.with(|subject| {
                // New stores meanwhile come from the callback. A callback that answers each store
                // with another gets no second round, so this ends.
                // SAFETY: only the holder of the lock touches the log, which is replaced at once.
                let mut log = std::mem::take(&mut *self.log.get());
                let mut words = log.words.as_slice();
                for seen in &log.seen {
                    let (changed, rest) = words.split_at(seen.words);
                    words = rest;
                    let store = Store { rip: seen.by.rip, phys: seen.phys, changed };
                    subject.look(&self.ram, &store, seen, live);
                }
                log.seen.clear();
                log.words.clear();
                // Keeps the memory for the next store.
                let new = &mut *self.log.get();
                if new.seen.is_empty() {
                    *new = log;
                }
            })
        };
    }
}

impl Subject {
    /// Tells the sanitizer the words that a store changed.
    fn look(&mut self, ram: &Ram, store: &Store<'_>, seen: &Seen, live: bool) {
        self.san.reports.told_late(!live);
        self.check(store.rip, store.phys, Act::Stored, live, |subject| {
            subject.san.running = seen.by.cpu.or(subject.san.running);
            subject.san.overwritten(seen.overwritten.clone());
            subject.tell(ram, store, seen.by.atomic);
            if let Some(on_store) = &mut subject.on_store {
                on_store(&mut subject.san, ram, store);
            }
        });
        self.san.reports.told_late(false);
    }

    /// Tells the sanitizer the effect of a privileged instruction.
    pub(super) fn carried_out(&mut self, ram: &Ram, cpu: usize, rip: usize, effect: Effect) {
        let (phys, act) = match effect {
            Effect::Load(Load { root, .. }) => (root, Act::Loaded),
            _ => (0, Act::Flushed),
        };
        self.check(rip, phys, act, true, |subject| subject.san.carried_out(ram, cpu, effect));
    }

    /// Calls hooks for the instruction at `rip`, and notes the findings. After a panic, which is on
    /// its way to the caller of `run`, it stops checking.
    fn check(&mut self, rip: usize, phys: u64, act: Act, live: bool, hooks: impl FnOnce(&mut Self)) {
        if self.panic.is_some() {
            return;
        }
        let known = self.san.reports.findings().len();
        self.panic = catch_unwind(AssertUnwindSafe(|| hooks(self))).err();
        for finding in known..self.san.reports.findings().len() {
            let backtrace = if live { Backtrace::force_capture() } else { Backtrace::disabled() };
            self.found.push(FoundAt { finding, rip, phys, backtrace, act });
        }
    }

    fn tell(&mut self, ram: &Ram, store: &Store<'_>, atomic: bool) {
        let bytes = self.san.config.arch.entry_bytes();
        if store.changed.is_empty() {
            // No word changed, but hardware may walk at this instant.
            self.san.adversary_step(ram);
        }
        for word in store.changed {
            if bytes == 8 {
                self.san.entry_changed(ram, word.phys, word.old, atomic);
                continue;
            }
            for (offset, shift) in [(0, 0), (4, 32)] {
                let half = |word: u64| word >> shift & 0xffff_ffff;
                if half(word.old) != half(word.new) {
                    self.san.entry_changed(ram, word.phys + offset, half(word.old), atomic);
                }
            }
        }
    }
}
