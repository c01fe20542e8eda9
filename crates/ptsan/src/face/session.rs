//! The smallest interface: memory and sanitizer in one, with one call for each thing that
//! page-table code does.
use super::tables::Content;
use crate::arch::{Access, Arch};
use crate::cpu::{Fault, Flush};
use crate::memory::Memory;
use crate::state::{Config, Sanitizer};

/// A sanitizer together with the memory that it reads: five calls are enough to start.
///
/// The rest is in [`Session::sanitizer`]: address-space numbers, lazy CPUs, tables of several
/// sizes, stores.
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
        Self { memory, sanitizer: Sanitizer::new(config), cpu: 0 }
    }

    /// Selects the CPU that the next calls are about.
    pub fn on(&mut self, cpu: usize) -> &mut Self {
        self.cpu = cpu;
        self
    }

    /// Tells that a table of the format's usual size was allocated at `phys`, with any content. See
    /// [`Sanitizer::table_allocated`] for other sizes and contents.
    pub fn alloc(&mut self, phys: u64) {
        let size = self.sanitizer.config.arch.granule();
        self.sanitizer.table_allocated(&self.memory, phys, size, None, Content::Unknown);
    }

    /// Tells that the whole table at `phys` was freed: it may be allocated again.
    pub fn free(&mut self, phys: u64) {
        let known = self.sanitizer.frames.find(phys).and_then(|f| self.sanitizer.frames.get(f));
        let size = known.map_or(self.sanitizer.config.arch.granule(), |f| f.size);
        self.sanitizer.table_freed(&self.memory, phys, size);
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

    /// Reads at `va` in supervisor mode and returns the physical address. See
    /// [`Sanitizer::translate`] for other accesses.
    ///
    /// # Errors
    /// Returns the fault that the access raises.
    pub fn access(&mut self, va: u64) -> Result<u64, Fault> {
        let read = Access::READ.kernel();
        self.sanitizer.translate(&self.memory, self.cpu, va, read).map(|t| t.phys)
    }

    /// Tells that an entry was stored to. Optional: see [`Sanitizer::entry_written`].
    pub fn stored(&mut self, entry: u64) {
        self.sanitizer.entry_written(&self.memory, entry);
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
