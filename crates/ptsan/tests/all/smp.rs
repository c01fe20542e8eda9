//! Threads that stand for CPUs: shootdowns, reused numbers of address spaces, a thread that panics.
use ptsan::{Access, Adversary, Arch, Config, Content, Flush, Kind, Rule, Shared};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

const PAGE: u64 = 4096;
const RW: u64 = 7;
const SPACE: u64 = 1;
const ROOT: u64 = PAGE;

/// Page tables of 32-bit x86 in words that threads share; one lock guards the tree.
struct Kernel {
    ram: Vec<AtomicU64>,
    san: Shared,
    tree: Mutex<Vec<u64>>,
    /// The CPU that the shootdown leaves out.
    forgotten: Option<usize>,
    cpus: usize,
}

impl Kernel {
    fn new(cpus: usize, forgotten: Option<usize>) -> Self {
        let adversary = Some(Adversary { seed: 3, rate: 1000 });
        let san = Shared::new(Config { cpus, adversary, ..Config::new(Arch::x86_2level()) });
        let ram: Vec<AtomicU64> = (0..64 * PAGE / 8).map(|_| AtomicU64::new(0)).collect();
        san.table_allocated(&ram, ROOT, PAGE, Some(1), Content::Zero);
        let free = (2..60).map(|n| n * PAGE).collect();
        Self { ram, san, tree: Mutex::new(free), forgotten, cpus }
    }

    fn store(&self, at: u64, entry: u64) {
        let (word, shift) = (&self.ram[(at / 8) as usize], 8 * (at % 8));
        let mask = 0xffff_ffff << shift;
        let _ = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |w| Some(w & !mask | entry << shift));
        self.san.entry_written(&self.ram, at);
    }

    fn load(&self, at: u64) -> u64 {
        self.ram[(at / 8) as usize].load(Ordering::Acquire) >> (8 * (at % 8)) & 0xffff_ffff
    }

    fn map(&self, va: u64, phys: u64) {
        let mut free = self.tree.lock().unwrap();
        let directory = ROOT + (va >> 22) * 4;
        if self.load(directory) == 0 {
            let table = free.pop().expect("tables enough");
            self.san.table_allocated(&self.ram, table, PAGE, Some(0), Content::Zero);
            self.store(directory, table | RW);
        }
        let table = self.load(directory) & !0xfff;
        self.store(table + (va >> 12) % 1024 * 4, phys | RW);
    }

    fn unmap(&self, va: u64) {
        let mut free = self.tree.lock().unwrap();
        let directory = ROOT + (va >> 22) * 4;
        let table = self.load(directory) & !0xfff;
        self.store(table + (va >> 12) % 1024 * 4, 0);
        self.store(directory, 0);
        for cpu in (0..self.cpus).filter(|&c| Some(c) != self.forgotten) {
            self.san.flush(&self.ram, cpu, Flush::page(SPACE, va));
        }
        self.san.table_freed(&self.ram, table, PAGE);
        free.push(table);
    }

    /// Lets every CPU map, use and unmap in its own part of the space. The last CPU is lazy.
    fn run(&self) {
        let start = Barrier::new(self.cpus);
        thread::scope(|scope| {
            for cpu in 0..self.cpus {
                let start = &start;
                scope.spawn(move || {
                    self.san.run_on(cpu);
                    let cpu = self.san.here();
                    self.san.switch(&self.ram, cpu, ROOT, SPACE);
                    start.wait();
                    if cpu + 1 == self.cpus {
                        self.san.lazy(cpu);
                        return;
                    }
                    for round in 0..200 {
                        let va = ((cpu as u64) << 28) + ((round % 4) << 22) + (round << 12);
                        self.map(va, 0x9_0000);
                        let t = self.san.translate(&self.ram, cpu, va + 4, Access::WRITE);
                        assert_eq!(t.map(|t| t.phys), Ok(0x9_0004));
                        self.unmap(va);
                    }
                });
            }
        });
    }
}

#[test]
fn threads_that_shoot_down_every_cpu_are_clean() {
    let kernel = Kernel::new(4, None);
    kernel.run();
    kernel.san.assert_clean();
    assert!(kernel.san.lock().stats().adversary_steps > 1000);
}

#[test]
fn a_lazy_cpu_left_out_by_every_thread_is_found() {
    let kernel = Kernel::new(4, Some(3));
    kernel.run();
    assert!(kernel.san.count(Kind::FreeBeforeFlush) > 0);
    let san = kernel.san.lock();
    let early: Vec<_> = san.findings().iter().filter(|f| f.kind == Kind::FreeBeforeFlush).collect();
    assert!(early.iter().all(|f| f.place.cpu == Some(3)), "{san}");
}

#[test]
fn threads_get_cpus_of_their_own() {
    let san = Shared::new(Config { cpus: 3, ..Config::new(Arch::x86_64()) });
    assert_eq!((san.here(), san.here()), (0, 0));
    let other = thread::spawn({
        let san = san.clone();
        move || san.here()
    });
    assert_eq!(other.join().unwrap(), 1);
    san.run_on(2);
    assert_eq!(san.here(), 2);
}

#[test]
fn a_shared_sanitizer_goes_to_other_threads_and_out_of_panics() {
    fn goes<T: Send + Sync + UnwindSafe + RefUnwindSafe>() {}
    goes::<Shared>();
}

/// A store and its hook must stay one step; everything else is one of its own, for each CPU.
#[test]
fn a_scheduler_may_switch_before_all_hooks_but_a_stores() {
    let points = Arc::new(AtomicU64::new(0));
    let counts = Arc::clone(&points);
    let san = Shared::scheduled(Config { cpus: 3, ..Config::new(Arch::x86_2level()) }, move || {
        counts.fetch_add(1, Ordering::Relaxed);
    });
    let ram = vec![0u8; 1 << 16];
    let expect = |more: u64, hook: &dyn Fn()| {
        let before = points.load(Ordering::Relaxed);
        hook();
        assert_eq!(points.load(Ordering::Relaxed) - before, more);
    };
    expect(1, &|| san.table_allocated(&ram, ROOT, PAGE, Some(1), Content::Zero));
    expect(1, &|| san.switch(&ram, 0, ROOT, SPACE));
    expect(0, &|| san.entry_written(&ram, ROOT));
    expect(0, &|| san.entry_exchanged(&ram, ROOT));
    expect(0, &|| san.table_linked(&ram, ROOT, 1, 0x2000));
    expect(1, &|| assert!(san.translate(&ram, 0, 0, Access::READ).is_err()));
    expect(3, &|| san.flush_everywhere(&ram, Flush::all()));
    expect(2, &|| san.operation(&ram, || ()));
    let _ = san.total();
}

#[test]
fn a_panic_while_the_sanitizer_is_locked_does_not_end_it() {
    let san = Shared::new(Config::new(Arch::x86_64()));
    let clone = san.clone();
    let panicked = thread::spawn(move || {
        let _guard = clone.lock();
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    san.table_allocated(&vec![0u8; 8192], PAGE, PAGE, None, Content::Zero);
    san.assert_clean();
}

/// Runs three spaces with two numbers: a space with a reused number must flush it on every CPU that
/// used it.
#[test]
fn an_asid_used_again_must_be_flushed_on_every_cpu_that_used_it() {
    for flushed in [[true, true], [true, false], [false, true]] {
        let config = Config { cpus: 2, asids: true, ..Config::new(Arch::aarch64_4k(39)) };
        let san = Shared::new(config);
        let mut ram = vec![0u8; 1 << 16];
        let (asid, va) = (2, 0x1000);
        // Two trees that map the same page to two frames.
        for (tree, frame) in [(0x1000u64, 0xa000u64), (0x4000, 0xb000)] {
            for (level, table) in [(2u8, tree), (1, tree + 0x1000), (0, tree + 0x2000)] {
                san.table_allocated(&ram, table, PAGE, Some(level), Content::Unchecked);
                let raw = if level > 0 { (table + 0x1000) | 3 } else { frame | 0xc43 };
                let at = table as usize + if level == 0 { 8 } else { 0 };
                ram[at..][..8].copy_from_slice(&raw.to_le_bytes());
            }
        }
        for cpu in 0..2 {
            san.switch(&ram, cpu, 0x1000, asid);
            assert_eq!(san.translate(&ram, cpu, va, Access::READ).unwrap().phys, 0xa000);
            san.leave(cpu);
        }
        for (cpu, flush) in flushed.into_iter().enumerate() {
            san.switch(&ram, cpu, 0x4000, asid);
            if flush {
                san.flush(&ram, cpu, Flush::space(asid));
            }
            let _ = san.translate(&ram, cpu, va, Access::READ);
        }
        let missed = flushed.iter().position(|f| !f);
        let san = san.lock();
        let found: Vec<_> = san.findings().iter().map(|f| (f.kind, f.rule, f.place.cpu)).collect();
        let expected = missed.map(|cpu| (Kind::FlushMissing, Rule::NumberReused, Some(cpu)));
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{san}");
    }
}
