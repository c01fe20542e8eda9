//! The code under test: page tables of two levels that several CPUs change at the same time.
//!
//! # The protocol
//!
//! 1. A table is linked by a compare-exchange, without a lock. The CPU that loses gives its table
//!    back.
//! 2. Entries of a table are stored under the lock of its link. The link is read again under the
//!    lock, because the table may have been freed before.
//! 3. A CPU announces itself in the mask before it loads the root, and a shootdown reads the mask
//!    after the entries are cleared. A fence on both sides keeps that order.
//! 4. A table is freed after a shootdown of all its pages. Another CPU may have cleared its own
//!    entry in the table and not have come to its shootdown.
use crate::format::{PAGE, TABLE};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering, fence};
use ptsan::{Access, Config, Content, Expected, Flush, Shared, Tree};
use std::sync::Arc;

const SPACE: u64 = 1;
const ROOT: u64 = TABLE;
/// Enough also for mistakes that lose some.
const TABLES: u64 = 16;
const DATA: u64 = 0x10_0000;
/// The addresses that a table translates.
const TABLE_SPAN: u64 = 4 * PAGE;

/// The mistake of the code under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    Nothing,
    /// Two CPUs link a table at the same place, and one link is lost.
    LinkOverwritten,
    /// A table is freed while another CPU installs an entry in it.
    LinkNotReadAgain,
    /// A shootdown reads which CPUs to interrupt before the entry is cleared.
    MaskReadFirst,
    /// As before, but it is the processor that changes the order.
    NoFence,
    /// A table is freed after a flush of one of its pages.
    OnePageFlushed,
}

pub struct Kernel {
    /// The words of the tables, each use of which is a step for the scheduler.
    words: Vec<AtomicU64>,
    /// The same for the sanitizer to read, which the scheduler does not see.
    mmu: Vec<std::sync::atomic::AtomicU64>,
    free: Mutex<Vec<u64>>,
    locks: Vec<Mutex<()>>,
    /// The CPUs that have the root loaded.
    loaded: AtomicU64,
    cpus: usize,
    mistake: Mistake,
    pub san: Shared,
}

impl Kernel {
    pub fn new(config: Config, mistake: Mistake) -> Self {
        let steps = AtomicU64::new(0);
        let cpus = config.cpus;
        let san = Shared::scheduled(config, move || {
            steps.fetch_add(1, Ordering::Relaxed);
        });
        let words = 0..(TABLES + 1) * TABLE / 8;
        let new = Self {
            words: words.clone().map(|_| AtomicU64::new(0)).collect(),
            mmu: words.map(|_| 0.into()).collect(),
            free: Mutex::new((2..=TABLES).map(|n| n * TABLE).collect()),
            locks: (0..TABLE / 8).map(|_| Mutex::new(())).collect(),
            loaded: AtomicU64::new(0),
            cpus,
            mistake,
            san,
        };
        new.san.table_allocated(&new.mmu, ROOT, TABLE, Some(1), Content::Zero);
        new
    }

    fn load(&self, at: u64) -> u64 {
        self.words[(at / 8) as usize].load(Ordering::Acquire)
    }

    fn store(&self, at: u64, entry: u64) {
        self.words[(at / 8) as usize].store(entry, Ordering::Release);
        self.tell(at, entry);
    }

    /// Tells of a store, in the same step.
    fn tell(&self, at: u64, entry: u64) {
        self.mmu[(at / 8) as usize].store(entry, Ordering::Relaxed);
        self.san.entry_written(&self.mmu, at);
    }

    /// Links a table unless one is linked, or returns the link that is there.
    fn link_new(&self, at: u64, entry: u64) -> Result<u64, u64> {
        if self.mistake == Mistake::LinkOverwritten {
            self.store(at, entry);
            return Ok(entry);
        }
        let word = &self.words[(at / 8) as usize];
        word.compare_exchange(0, entry, Ordering::AcqRel, Ordering::Acquire)?;
        self.tell(at, entry);
        Ok(entry)
    }

    fn give_back(&self, table: u64) {
        self.san.table_freed(&self.mmu, table, TABLE);
        self.free.lock().unwrap().push(table);
    }

    /// Returns the link to the table for `va`, and makes the table if it is missing.
    fn link(&self, at: u64) -> u64 {
        let link = self.load(at);
        if link != 0 {
            return link;
        }
        let table = self.free.lock().unwrap().pop().expect("tables enough");
        self.san.table_allocated(&self.mmu, table, TABLE, Some(0), Content::Zero);
        self.link_new(at, table | 1).unwrap_or_else(|other| {
            self.give_back(table);
            other
        })
    }

    pub fn map(&self, va: u64, phys: u64) {
        let (at, lock, index) = place(va);
        loop {
            let link = self.link(at);
            let _guard = self.locks[lock].lock().unwrap();
            if self.mistake != Mistake::LinkNotReadAgain && self.load(at) != link {
                continue;
            }
            return self.store((link & !1) + index, phys | 1);
        }
    }

    /// Unmaps a page, and frees the table if it is empty then.
    pub fn unmap(&self, va: u64) {
        let (at, lock, index) = place(va);
        let before = self.loaded.load(Ordering::Acquire);
        let guard = self.locks[lock].lock().unwrap();
        let table = self.load(at) & !1;
        self.store(table + index, 0);
        let empty = (table..table + TABLE).step_by(8).all(|at| self.load(at) == 0);
        if empty {
            self.store(at, 0);
        }
        drop(guard);
        if self.mistake != Mistake::NoFence {
            fence(Ordering::SeqCst);
        }
        let late = self.loaded.load(Ordering::Acquire);
        let mask = if self.mistake == Mistake::MaskReadFirst { before } else { late };
        for cpu in (0..self.cpus).filter(|cpu| mask >> cpu & 1 == 1) {
            let flush = match va & !(TABLE_SPAN - 1) {
                start if empty && self.mistake != Mistake::OnePageFlushed => {
                    Flush::range(SPACE, start, start + TABLE_SPAN, PAGE)
                }
                _ => Flush::page(SPACE, va),
            };
            self.san.flush(&self.mmu, cpu, flush);
        }
        if empty {
            self.give_back(table);
        }
    }

    fn switch_to(&self, cpu: usize) {
        self.loaded.fetch_or(1 << cpu, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        self.san.switch(&self.mmu, cpu, ROOT, SPACE);
    }

    fn leave(&self, cpu: usize) {
        self.san.leave(cpu);
        self.loaded.fetch_and(!(1 << cpu), Ordering::AcqRel);
    }

    /// Runs one CPU: maps a page, uses it and the next CPU's, and unmaps it.
    fn run(&self, cpu: usize) {
        let (va, phys) = (cpu as u64 * PAGE, DATA + cpu as u64 * PAGE);
        self.switch_to(cpu);
        self.map(va, phys);
        let _ = self.san.expect(&self.mmu, Tree::Root(ROOT), va, Some(Expected::at(phys)));
        let _ = self.san.translate(&self.mmu, cpu, va, Access::WRITE);
        let _ = self.san.translate(&self.mmu, cpu, (va + PAGE) % (self.cpus as u64 * PAGE), Access::READ);
        self.san.operation(&self.mmu, || self.unmap(va));
        self.leave(cpu);
    }
}

/// Returns where the link for `va` is, the number of its lock, and the offset in the table.
fn place(va: u64) -> (u64, usize, u64) {
    let (outer, inner) = (va >> 14 & 3, va >> 12 & 3);
    (ROOT + outer * 8, outer as usize, inner * 8)
}

/// Lets all CPUs run at the same time, each some rounds, and ends the run when all have ended. Call
/// it inside a model of the scheduler.
pub fn run_all(config: Config, mistake: Mistake, rounds: usize) -> Shared {
    let cpus = config.cpus;
    let kernel = Arc::new(Kernel::new(config, mistake));
    let start = |cpu| {
        let kernel = Arc::clone(&kernel);
        crate::thread::spawn(move || (0..rounds).for_each(|_| kernel.run(cpu)))
    };
    let others: Vec<_> = (1..cpus).map(start).collect();
    (0..rounds).for_each(|_| kernel.run(0));
    for cpu in others {
        cpu.join().unwrap();
    }
    kernel.san.table_freed(&kernel.mmu, ROOT, TABLE);
    kernel.san.finish_with(&kernel.mmu);
    kernel.san.clone()
}
