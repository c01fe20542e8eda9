//! One sanitizer for code on several threads.
use super::barriers::Barrier;
use super::expect::{Expected, Tree};
use super::tables::Content;
use crate::arch::{Access, HashTable};
use crate::cpu::{Fault, Flush, Translation};
use crate::memory::Memory;
use crate::report::Kind;
use crate::state::{Config, Sanitizer};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, ThreadId};

/// A handle on a sanitizer. Clones share the sanitizer, and every thread may call its hooks.
///
/// # Order of hooks
///
/// The sanitizer believes that things happened in the order in which hooks took its lock. So call a
/// hook before any other thread can act on what it tells:
///
/// * a store and its hook, under the lock that guards the table;
/// * the hook of an invalidation, on the CPU that carried it out and before it acknowledges;
/// * `table_freed`, before the frame can be allocated again.
///
/// Where the code under test leaves two things unordered, either order is right.
///
/// # Lock order
///
/// The sanitizer's lock is the innermost: a hook takes it, reads memory, and releases it. A
/// [`Memory`] may take a lock of its own only if no thread holds that lock while it calls a hook. A
/// [`Memory`] must not call hooks.
///
/// A thread that panics inside a hook leaves the sanitizer usable.
/// ```
/// use ptsan::{Arch, Config, Content, Kind, Shared};
///
/// let san = Shared::new(Config::new(Arch::x86_64()));
/// let memory = vec![0u8; 8192];
/// std::thread::scope(|threads| {
///     for _ in 0..2 {
///         threads.spawn(|| san.table_allocated(&memory, 0x1000, 4096, None, Content::Zero));
///     }
/// });
/// assert_eq!(san.count(Kind::DoubleAllocate), 1);
/// ```
#[derive(Clone, Debug)]
pub struct Shared {
    inner: Arc<Inner>,
}

struct Inner {
    sanitizer: Mutex<Sanitizer>,
    cpus: Mutex<HashMap<ThreadId, usize>>,
    /// Where a scheduler may run another task: before what a CPU does by itself.
    point: Option<Box<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Inner");
        fields.field("sanitizer", &self.sanitizer).field("scheduled", &self.point.is_some()).finish()
    }
}

impl Shared {
    /// Creates a machine whose CPUs have nothing loaded.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::from_parts(config, None)
    }

    /// Creates a machine for tasks of a scheduler that explores interleavings, such as `shuttle` or
    /// `loom`. All tasks run on one thread of the operating system.
    ///
    /// `point` lets the scheduler run another task. A relaxed increment of a counter that all tasks
    /// share will do, with an atomic of the scheduler. It is called before each hook, without the
    /// lock, except before hooks of stores: these and the store stay one step.
    ///
    /// A [`Memory`] must read without such a point, and a guard of [`Shared::lock`] must not live
    /// across one. [`Shared::here`] and [`Shared::run_on`] go by threads of the operating system, so
    /// give hooks the number of the CPU.
    #[must_use]
    pub fn scheduled(config: Config, point: impl Fn() + Send + Sync + 'static) -> Self {
        Self::from_parts(config, Some(Box::new(point)))
    }

    fn from_parts(config: Config, point: Option<Box<dyn Fn() + Send + Sync>>) -> Self {
        let sanitizer = Mutex::new(Sanitizer::new(config));
        Self { inner: Arc::new(Inner { sanitizer, cpus: Mutex::default(), point }) }
    }

    /// Locks the sanitizer, for what is not repeated here. Hooks of other threads wait while the
    /// guard lives.
    ///
    /// # Panics
    /// Panics if the machine is [scheduled](Shared::scheduled) and another task holds the lock: the
    /// thread would wait for itself.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, Sanitizer> {
        if self.inner.point.is_some() {
            return match self.inner.sanitizer.try_lock() {
                Ok(guard) => guard,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => panic!(
                    "ptsan: a task was switched while it held the sanitizer; keep no guard of \
                     Shared::lock, and let no Memory::read, reach the scheduler"
                ),
            };
        }
        self.inner.sanitizer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the sanitizer for a hook that is a step of its own.
    #[track_caller]
    fn step(&self) -> MutexGuard<'_, Sanitizer> {
        if let Some(point) = &self.inner.point {
            point();
        }
        self.lock()
    }

    /// Returns the CPU that stands for this thread: the one given to [`Shared::run_on`], else the
    /// lowest that no thread has.
    #[must_use]
    pub fn here(&self) -> usize {
        let mut cpus = self.inner.cpus.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&cpu) = cpus.get(&thread::current().id()) {
            return cpu;
        }
        let free = (0..=cpus.len()).find(|c| !cpus.values().any(|taken| taken == c)).unwrap_or_default();
        cpus.insert(thread::current().id(), free);
        free
    }

    /// Makes this thread stand for the CPU from now on, as when a thread migrates.
    pub fn run_on(&self, cpu: usize) {
        let mut cpus = self.inner.cpus.lock().unwrap_or_else(PoisonError::into_inner);
        cpus.insert(thread::current().id(), cpu);
    }

    /// Calls [`Sanitizer::table_allocated`].
    pub fn table_allocated(
        &self,
        memory: &(impl Memory + ?Sized),
        phys: u64,
        size: u64,
        level: Option<u8>,
        content: Content,
    ) {
        self.step().table_allocated(memory, phys, size, level, content);
    }

    /// Calls [`Sanitizer::table_freed`].
    pub fn table_freed(&self, memory: &(impl Memory + ?Sized), phys: u64, size: u64) {
        self.step().table_freed(memory, phys, size);
    }

    /// Calls [`Sanitizer::table_linked`].
    pub fn table_linked(&self, memory: &(impl Memory + ?Sized), parent: u64, index: u64, table: u64) {
        self.lock().table_linked(memory, parent, index, table);
    }

    /// Calls [`Sanitizer::entry_written`].
    pub fn entry_written(&self, memory: &(impl Memory + ?Sized), entry: u64) {
        self.lock().entry_written(memory, entry);
    }

    /// Calls [`Sanitizer::switch`].
    pub fn switch(&self, memory: &(impl Memory + ?Sized), cpu: usize, root: u64, space: u64) {
        self.step().switch(memory, cpu, root, space);
    }

    /// Calls [`Sanitizer::lazy`].
    pub fn lazy(&self, cpu: usize) {
        self.step().lazy(cpu);
    }

    /// Calls [`Sanitizer::resume`].
    pub fn resume(&self, cpu: usize) {
        self.step().resume(cpu);
    }

    /// Calls [`Sanitizer::leave`].
    pub fn leave(&self, cpu: usize) {
        self.step().leave(cpu);
    }

    /// Calls [`Sanitizer::flush`].
    pub fn flush(&self, memory: &(impl Memory + ?Sized), cpu: usize, flush: Flush) {
        self.step().flush(memory, cpu, flush);
    }

    /// Calls [`Sanitizer::flush_everywhere`]; a [scheduled](Shared::scheduled) machine may switch tasks
    /// between two CPUs.
    pub fn flush_everywhere(&self, memory: &(impl Memory + ?Sized), flush: Flush) {
        if self.inner.point.is_none() {
            return self.lock().flush_everywhere(memory, flush);
        }
        let cpus = self.lock().cpus.len();
        (0..cpus).for_each(|cpu| self.flush(memory, cpu, flush));
    }

    /// Calls [`Sanitizer::hash_table`].
    pub fn hash_table(&self, memory: &(impl Memory + ?Sized), table: HashTable) {
        self.step().hash_table(memory, table);
    }

    /// Calls [`Sanitizer::segments`].
    pub fn segments(&self, space: u64, root: u64, vsids: [u64; 16]) {
        self.step().segments(space, root, vsids);
    }

    /// Calls [`Sanitizer::hash_written`].
    pub fn hash_written(&self, memory: &(impl Memory + ?Sized), phys: u64) {
        self.lock().hash_written(memory, phys);
    }

    /// Calls [`Sanitizer::check_hash_table`].
    pub fn check_hash_table(&self, memory: &(impl Memory + ?Sized)) -> u64 {
        self.step().check_hash_table(memory)
    }

    /// Calls [`Sanitizer::space_created`].
    pub fn space_created(&self, space: u64) {
        self.step().space_created(space);
    }

    /// Calls [`Sanitizer::space_destroyed`].
    pub fn space_destroyed(&self, space: u64) {
        self.step().space_destroyed(space);
    }

    /// Runs `body` as one operation: see [`Sanitizer::operation_begins`].
    pub fn operation<R>(&self, memory: &(impl Memory + ?Sized), body: impl FnOnce() -> R) -> R {
        let operation = self.step().operation_begins();
        let result = body();
        self.step().operation_ends(memory, operation);
        result
    }

    /// Calls [`Sanitizer::translate`].
    ///
    /// # Errors
    /// Returns the fault that the access raises.
    pub fn translate(
        &self,
        memory: &(impl Memory + ?Sized),
        cpu: usize,
        va: u64,
        access: Access,
    ) -> Result<Translation, Fault> {
        self.step().translate(memory, cpu, va, access)
    }

    /// Calls [`Sanitizer::probe_walk`].
    pub fn probe_walk(&self, memory: &(impl Memory + ?Sized), cpu: usize, va: u64) {
        self.step().probe_walk(memory, cpu, va);
    }

    /// Calls [`Sanitizer::adversary_step`].
    pub fn adversary_step(&self, memory: &(impl Memory + ?Sized)) {
        self.step().adversary_step(memory);
    }

    /// Calls [`Sanitizer::expect`].
    ///
    /// # Errors
    /// Returns what the walk says, if nothing is mapped there.
    pub fn expect(
        &self,
        memory: &(impl Memory + ?Sized),
        tree: Tree,
        va: u64,
        says: Option<Expected>,
    ) -> Result<Translation, Fault> {
        self.step().expect(memory, tree, va, says)
    }

    /// Calls [`Sanitizer::finish`].
    pub fn finish(&self) {
        self.lock().finish();
    }

    /// Calls [`Sanitizer::finish_with`].
    pub fn finish_with(&self, memory: &(impl Memory + ?Sized)) {
        self.lock().finish_with(memory);
    }

    /// Calls [`Sanitizer::flushes_done`].
    pub fn flushes_done(&self, memory: &(impl Memory + ?Sized)) {
        self.step().flushes_done(memory);
    }

    /// Calls [`Sanitizer::barrier`].
    pub fn barrier(&self, cpu: usize, barrier: Barrier) {
        self.step().barrier(cpu, barrier);
    }

    /// Calls [`Sanitizer::frame_mapped`].
    pub fn frame_mapped(&self, memory: &(impl Memory + ?Sized), space: u64, va: u64) {
        self.step().frame_mapped(memory, space, va);
    }

    /// Calls [`Sanitizer::frame_freed`].
    pub fn frame_freed(&self, memory: &(impl Memory + ?Sized), phys: u64, size: u64) {
        self.step().frame_freed(memory, phys, size);
    }

    /// Calls [`Sanitizer::frame_reused`].
    pub fn frame_reused(&self, memory: &(impl Memory + ?Sized), phys: u64, size: u64) {
        self.step().frame_reused(memory, phys, size);
    }

    /// Calls [`Sanitizer::entry_exchanged`].
    pub fn entry_exchanged(&self, memory: &(impl Memory + ?Sized), entry: u64) {
        self.lock().entry_exchanged(memory, entry);
    }

    /// Calls [`Sanitizer::count`].
    #[must_use]
    pub fn count(&self, kind: Kind) -> u64 {
        self.lock().count(kind)
    }

    /// Calls [`Sanitizer::total`].
    #[must_use]
    pub fn total(&self) -> u64 {
        self.lock().total()
    }

    /// Calls [`Sanitizer::assert_clean`].
    ///
    /// # Panics
    /// Panics if there are findings, with the report as the message.
    #[track_caller]
    pub fn assert_clean(&self) {
        self.lock().assert_clean();
    }
}
