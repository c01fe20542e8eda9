//! The hooks of a shared sanitizer for hypervisors, devices, readers without a lock, and locks.
use super::shared::Shared;
use crate::cpu::Flush;
use crate::memory::Memory;
#[cfg(doc)]
use crate::state::Sanitizer;
use crate::state::{DeviceEntry, Guard, Hold, Reader};

impl Shared {
    /// Calls [`Sanitizer::stage1_flushed`].
    pub fn stage1_flushed(&self, cpu: usize) {
        self.step().stage1_flushed(cpu);
    }

    /// Calls [`Sanitizer::stage1_part_flushed`].
    pub fn stage1_part_flushed(&self, cpu: usize, number: Option<u64>, va: Option<u64>) {
        self.step().stage1_part_flushed(cpu, number, va);
    }

    /// Calls [`Sanitizer::number_given`].
    pub fn number_given(&self, root: u64, space: u64) {
        self.step().number_given(root, space);
    }

    /// Calls [`Sanitizer::numbers_taken_back`].
    pub fn numbers_taken_back(&self) {
        self.step().numbers_taken_back();
    }

    /// Calls [`Sanitizer::device`].
    #[must_use]
    pub fn device(&self, device: usize) -> usize {
        self.lock().device(device)
    }

    /// Calls [`Sanitizer::flush_queued`].
    pub fn flush_queued(&self, device: usize, flush: Flush) {
        self.step().flush_queued(device, flush);
    }

    /// Calls [`Sanitizer::queue_completed`].
    pub fn queue_completed(&self, memory: &(impl Memory + ?Sized), device: usize) {
        self.step().queue_completed(memory, device);
    }

    /// Calls [`Sanitizer::device_entry`].
    pub fn device_entry(
        &self,
        memory: &(impl Memory + ?Sized),
        device: usize,
        phys: u64,
        shape: DeviceEntry,
    ) {
        self.step().device_entry(memory, device, phys, shape);
    }

    /// Calls [`Sanitizer::device_entry_written`].
    pub fn device_entry_written(&self, memory: &(impl Memory + ?Sized), phys: u64) {
        self.lock().device_entry_written(memory, phys);
    }

    /// Calls [`Sanitizer::device_entries_flushed`].
    pub fn device_entries_flushed(&self, device: usize, phys: Option<u64>) {
        self.step().device_entries_flushed(device, phys);
    }

    /// Calls [`Sanitizer::reader_begins`].
    pub fn reader_begins(&self, memory: &(impl Memory + ?Sized), root: u64) -> Reader {
        self.step().reader_begins(memory, root)
    }

    /// Calls [`Sanitizer::reader_reads`].
    pub fn reader_reads(&self, memory: &(impl Memory + ?Sized), reader: Reader, table: u64) {
        self.step().reader_reads(memory, reader, table);
    }

    /// Calls [`Sanitizer::reader_ends`].
    pub fn reader_ends(&self, reader: Reader) {
        self.step().reader_ends(reader);
    }

    /// Calls [`Sanitizer::lock_guards`].
    pub fn lock_guards(&self, table: u64, guard: Guard) {
        self.step().lock_guards(table, guard);
    }

    /// Calls [`Sanitizer::lock_taken`].
    pub fn lock_taken(&self, cpu: usize, lock: u64, hold: Hold) {
        self.step().lock_taken(cpu, lock, hold);
    }

    /// Calls [`Sanitizer::lock_released`].
    pub fn lock_released(&self, memory: &(impl Memory + ?Sized), cpu: usize, lock: u64) {
        self.step().lock_released(memory, cpu, lock);
    }
}
