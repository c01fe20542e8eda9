//! The hooks of a shared sanitizer: each takes the lock for one call.
//!
//! ```text
//!  a CPU's own action       step: a scheduler may switch here ──> lock ──> the hook of Sanitizer
//!  a store, a link          lock ────────────────────────────────────────> the hook of Sanitizer
//! ```
//!
//! # Example
//!
//! `tests/schedules_shuttle.rs` has a scheduler that switches threads at these points.
//!
//! # Why
//!
//! A test that explores orders of threads wants another thread to run before a flush, a switch or a
//! walk of a CPU. There must be no such point between a store and its hook, because the code under
//! test holds the lock of its table there: a scheduler that switched would wait for that lock for
//! ever.
use super::shared::Shared;
use crate::arch::{Access, HashTable};
use crate::cpu::{Fault, Flush, Translation};
use crate::face::{Barrier, Content, Expected, Tree};
use crate::memory::Memory;
use crate::report::Kind;
#[cfg(doc)]
use crate::state::Sanitizer;

impl Shared {
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

    /// Calls [`Sanitizer::flush_everywhere`]; a [scheduled](Shared::scheduled) machine may switch
    /// tasks between two CPUs.
    pub fn flush_everywhere(&self, memory: &(impl Memory + ?Sized), flush: Flush) {
        if !self.is_scheduled() {
            return self.lock().flush_everywhere(memory, flush);
        }
        let cpus = self.lock().config.cpus;
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
    /// Returns the result of the walk, if no page is mapped there.
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
