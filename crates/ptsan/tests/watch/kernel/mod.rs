//! Kernel code as it is: the privileged instructions of page-table code are carried out.

/// Executes instructions with their operands.
macro_rules! execute {
    ($($instruction:tt)*) => {
        // SAFETY: the instructions are privileged. They change emulated registers only, or end the
        // run.
        unsafe { std::arch::asm!($($instruction)*) }
    };
}

mod forms;
mod paging;
mod refused;
mod registers;
mod runs;

use crate::PAGE;
use ptsan::watch::Watch;
use ptsan::{Access, Arch, Config, Content, Kind, Sanitizer};

const WRITABLE: u64 = 7;
const GLOBAL: u64 = 1 << 8;

/// A watch whose memory is mapped one to one, and the tables of one address.
struct Machine {
    watch: Watch,
    root: u64,
    /// The entry of the page.
    entry: u64,
    va: u64,
}

impl Machine {
    /// Maps the pages at `va` and behind it, with extra bits in their entries. CPU 0 has loaded the
    /// root.
    fn new(config: Config, va: u64, bits: u64) -> Self {
        let tagged = config.asids;
        let watch = Watch::identity(16 * PAGE as usize, Sanitizer::new(config)).expect("a watch");
        let root = watch.memory().start();
        let tables: Vec<u64> = (0..4).map(|n| root + n * PAGE).collect();
        let entry_of = |level: usize| tables[level] + (va >> (39 - 9 * level) & 511) * 8;
        for (level, &table) in tables.iter().enumerate() {
            watch.with(|san, ram| san.table_allocated(ram, table, PAGE, None, Content::Zero));
            if level > 0 {
                store(entry_of(level - 1), table | WRITABLE);
            }
        }
        let entry = entry_of(3);
        store(entry, (root + 8 * PAGE) | WRITABLE | bits);
        store(entry + 8, (root + 9 * PAGE) | WRITABLE | bits);
        let machine = Self { watch, root, entry, va };
        machine.watch.with(|san, ram| san.switch(ram, 0, root, if tagged { 0 } else { root }));
        machine
    }

    fn plain(va: u64) -> Self {
        Self::new(config(), va, 0)
    }

    /// Runs `code` as kernel code of CPU 0, to its end.
    fn run<R>(&self, code: impl FnOnce() -> R) -> R {
        // SAFETY: 1. The code has no frames with something to drop. 2. It needs no more.
        let ended = unsafe { self.watch.run_on(0, code) };
        ended.expect("runs").returned().expect("returns")
    }

    /// Returns whether the CPU has an answer for the page `number` pages behind the first.
    fn reaches(&self, cpu: usize, number: u64) -> bool {
        let va = self.va + number * PAGE;
        self.watch.with(|san, ram| san.translate(ram, cpu, va, Access::READ.kernel()).is_ok())
    }

    /// Lets the CPU cache both pages.
    fn use_both(&self, cpu: usize) {
        assert!(self.reaches(cpu, 0) && self.reaches(cpu, 1));
    }

    /// Unmaps both pages, without a flush.
    fn unmap_both(&self) {
        self.run(|| {
            store(self.entry, 0);
            store(self.entry + 8, 0);
        });
    }

    /// Returns which of the two pages the CPU still holds, in the space that it runs, of two that
    /// were unmapped.
    fn held(&self, cpu: usize) -> [bool; 2] {
        [0, 1].map(|number| self.reaches(cpu, number))
    }

    fn total(&self) -> u64 {
        self.watch.with(|san, _| san.total())
    }

    fn stale(&self) -> u64 {
        self.watch.with(|san, _| san.count(Kind::StaleUse))
    }
}

fn config() -> Config {
    Config { cpus: 2, ..Config::new(Arch::x86_64()) }
}

/// Stores to a physical address, as code under an identity map does.
fn store(phys: u64, value: u64) {
    // SAFETY: the callers give addresses of words in the memory of a watch.
    unsafe { std::ptr::with_exposed_provenance_mut::<u64>(phys as usize).write_volatile(value) };
}
