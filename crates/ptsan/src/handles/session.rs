//! The smallest interface: memory and sanitizer in one, with one call for each thing that
//! page-table code does.
use super::pool::Pool;
use crate::arch::{Access, Arch};
use crate::cpu::{Fault, Flush, Translation};
use crate::face::{Barrier, Content, Expected, Tree};
use crate::memory::Memory;
use crate::state::{Config, Sanitizer};

/// A sanitizer together with the memory that it reads: five calls are enough to start.
///
/// The rest is in [`Session::sanitizer`]: address-space numbers, tables of several sizes. [`Test`]
/// makes a session for each of many seeds.
///
/// [`Test`]: crate::Test
/// ```
/// use ptsan::{Arch, Kind, Session};
///
/// let mut s = Session::new(Arch::x86_2level(), vec![0u8; 1 << 16]);
/// s.alloc(0x1000);                                               // the allocator hands out two tables
/// s.alloc(0x2000);
/// s.memory[0x1000..0x1004].copy_from_slice(&[7, 0x20, 0, 0]);    // the code under test maps page 0 to 0x5000
/// s.memory[0x2000..0x2004].copy_from_slice(&[7, 0x50, 0, 0]);
/// s.load(0x1000);
/// assert_eq!(s.access(0x123), Ok(0x5123));
/// s.memory[0x2000..0x2004].fill(0);                              // unmaps it, and forgets the flush
/// assert_eq!(s.access(0x123), Ok(0x5123));
/// assert_eq!(s.sanitizer.count(Kind::StaleUse), 1);
/// ```
#[derive(Debug)]
pub struct Session<M> {
    /// The memory that holds the tables. A closure or another handle will do: see [`Memory`].
    pub memory: M,
    /// The sanitizer.
    pub sanitizer: Sanitizer,
    /// The CPU that the calls are about.
    pub cpu: usize,
    /// The frames that it hands out, and its random numbers.
    pub(super) pool: Pool,
}

impl<M: Memory> Session<M> {
    /// Creates a session with one CPU and without ASIDs.
    #[must_use]
    pub fn new(arch: Arch, memory: M) -> Self {
        Self::with(Config::new(arch), memory)
    }

    /// Creates a session from a configuration.
    #[must_use]
    pub fn with(config: Config, memory: M) -> Self {
        Self { memory, sanitizer: Sanitizer::new(config), cpu: 0, pool: Pool::default() }
    }

    /// Selects the CPU that the next calls are about.
    pub fn on(&mut self, cpu: usize) -> &mut Self {
        self.cpu = cpu;
        self
    }

    /// Calls `body` for each CPU, which the calls in it are about.
    pub fn each_cpu(&mut self, mut body: impl FnMut(&mut Self)) {
        let before = self.cpu;
        for cpu in 0..self.sanitizer.config.cpus {
            body(self.on(cpu));
        }
        self.cpu = before;
    }

    /// Tells that a table of the format's usual size was allocated at `phys`, with any content. See
    /// [`Sanitizer::table_allocated`] for other sizes and contents.
    pub fn alloc(&mut self, phys: u64) {
        let size = self.sanitizer.config.arch.granule();
        self.sanitizer.table_allocated(&self.memory, phys, size, None, Content::Unknown);
    }

    /// Tells that the whole table at `phys` was freed: it may be allocated again. A frame that
    /// [`Session::table`] handed out is handed out again.
    pub fn free(&mut self, phys: u64) {
        let known = self.sanitizer.frames.find(phys).and_then(|f| self.sanitizer.frames.get(f));
        let size = known.map_or(self.sanitizer.config.arch.granule(), |f| f.size);
        let before = self.sanitizer.live_tables();
        self.sanitizer.table_freed(&self.memory, phys, size);
        if self.sanitizer.live_tables() < before {
            self.pool.put(phys);
        }
    }

    /// Tells that the CPU invalidates the translations of `va` (`Some`, or the number alone) or
    /// everything (`None`).
    pub fn flush(&mut self, va: impl Into<Option<u64>>) {
        let flush = va.into().map_or(Flush::all(), Flush::page_in_every_space);
        self.sanitizer.flush(&self.memory, self.cpu, flush);
    }

    /// Tells that the CPU loads a root. Its address is the number of the address space.
    pub fn load(&mut self, root: u64) {
        self.sanitizer.switch(&self.memory, self.cpu, root, root);
    }

    /// Tells that the CPU runs kernel code and keeps the root loaded. See [`Sanitizer::lazy`].
    pub fn lazy(&mut self) {
        self.sanitizer.lazy(self.cpu);
    }

    /// Tells that the CPU is no longer lazy. See [`Sanitizer::resume`].
    pub fn resume(&mut self) {
        self.sanitizer.resume(self.cpu);
    }

    /// Tells that the CPU loads a root of the kernel alone. See [`Sanitizer::leave`].
    pub fn leave(&mut self) {
        self.sanitizer.leave(self.cpu);
    }

    /// Reads at `va` in supervisor mode and returns the physical address.
    ///
    /// # Errors
    /// Returns the fault that the access raises.
    pub fn access(&mut self, va: u64) -> Result<u64, Fault> {
        self.translate(va, Access::READ.kernel()).map(|t| t.phys)
    }

    /// Makes any access. See [`Sanitizer::translate`].
    ///
    /// # Errors
    /// Returns the fault that the access raises.
    pub fn translate(&mut self, va: u64, access: Access) -> Result<Translation, Fault> {
        self.sanitizer.translate(&self.memory, self.cpu, va, access)
    }

    /// Compares the code's answer about `va` with the tables that the CPU has loaded. See
    /// [`Sanitizer::expect`].
    ///
    /// # Errors
    /// Returns the result of the walk, if no page is mapped there.
    pub fn expect(&mut self, va: u64, says: Option<Expected>) -> Result<Translation, Fault> {
        self.sanitizer.expect(&self.memory, Tree::Cpu(self.cpu), va, says)
    }

    /// Tells that the CPU stored to an entry. Optional: see [`Sanitizer::entry_written`].
    pub fn stored(&mut self, entry: u64) {
        self.tell_who_stores();
        self.sanitizer.entry_written(&self.memory, entry);
    }

    /// Tells that the CPU exchanged an entry by an atomic instruction. See
    /// [`Sanitizer::entry_exchanged`].
    pub fn exchanged(&mut self, entry: u64) {
        self.tell_who_stores();
        self.sanitizer.entry_exchanged(&self.memory, entry);
    }

    fn tell_who_stores(&mut self) {
        let config = &self.sanitizer.config;
        if (config.barriers || config.accessed_dirty) && self.sanitizer.running != Some(self.cpu) {
            self.sanitizer.running_on(self.cpu);
        }
    }

    /// Tells that the CPU carries out a barrier. See [`Sanitizer::barrier`].
    pub fn barrier(&mut self, barrier: Barrier) {
        self.sanitizer.barrier(self.cpu, barrier);
    }

    /// Tells that the data in the frame at `phys`, of the size of a table, was freed. See
    /// [`Sanitizer::frame_freed`].
    pub fn frame_freed(&mut self, phys: u64) {
        let size = self.sanitizer.config.arch.granule();
        self.sanitizer.frame_freed(&self.memory, phys, size);
    }

    /// Tells that the frame at `phys`, of the size of a table, is handed out for data again. See
    /// [`Sanitizer::frame_reused`].
    pub fn frame_reused(&mut self, phys: u64) {
        let size = self.sanitizer.config.arch.granule();
        self.sanitizer.frame_reused(&self.memory, phys, size);
    }

    /// Tells that everything that was unmapped so far has been flushed. See
    /// [`Sanitizer::flushes_done`].
    pub fn flushes_done(&mut self) {
        self.sanitizer.flushes_done(&self.memory);
    }

    /// Runs `body` as one operation, in the middle of which other CPUs may use old translations.
    /// See [`Sanitizer::operation_begins`].
    pub fn operation<R>(&mut self, body: impl FnOnce(&mut Self) -> R) -> R {
        let operation = self.sanitizer.operation_begins();
        let result = body(self);
        self.sanitizer.operation_ends(&self.memory, operation);
        result
    }

    /// Ends the run: tables that were not freed are leaks, and any finding fails the test.
    ///
    /// # Panics
    /// Panics if there are findings, with the report as the message.
    #[track_caller]
    pub fn finish(mut self) {
        self.sanitizer.finish_with(&self.memory);
        self.sanitizer.assert_clean();
    }
}
