//! The cost of a hook, for each format, with and without an adversary.
//!
//! `cargo run --release -p ptsan --example cost`
use ptsan::{Access, Adversary, Arch, Config, Content, Flush, Granule, Sanitizer};
use std::time::Instant;

const TABLE: u64 = 0x10_0000;
const ROUNDS: u64 = 1_000_000;

/// How a format writes an entry for a table at a level, and for a page.
type Entries = (fn(usize, u64) -> u64, fn(u64) -> u64);

/// Builds one path of tables whose last one maps 64 pages.
struct Machine {
    ram: Vec<u8>,
    san: Sanitizer,
    page: u64,
    last: u64,
    entry_bytes: usize,
    spare: u64,
    table_bytes: u64,
}

fn machine(arch: &Arch, (table, page): Entries, adversary: Option<Adversary>) -> Machine {
    let mut ram = vec![0u8; 8 << 20];
    let mut san = Sanitizer::new(Config { adversary, ..Config::new(arch.clone()) });
    let bytes = arch.levels[0].entry_bytes as usize;
    let granule = u64::from(arch.levels[0].table_bytes);
    let page_bytes = 1u64 << arch.levels[0].shift;
    let mut at = TABLE;
    let mut next = TABLE.max(u64::from(arch.levels[arch.levels.len() - 1].table_bytes) * 2);
    for (level, l) in arch.levels.iter().enumerate().rev() {
        san.table_allocated(&ram, at, u64::from(l.table_bytes), Some(level as u8), Content::Zero);
        next = (next + u64::from(l.table_bytes)).next_multiple_of(granule);
        for i in 0..if level == 0 { 64 } else { 1 } {
            let raw = if level > 0 { table(level, next) } else { page(0x40_0000 + i * page_bytes) };
            ram[at as usize + i as usize * bytes..][..bytes].copy_from_slice(&raw.to_le_bytes()[..bytes]);
        }
        if level > 0 {
            at = next;
        }
    }
    san.switch(&ram, 0, TABLE, 1);
    Machine {
        ram,
        san,
        page: page_bytes,
        last: at,
        entry_bytes: bytes,
        spare: 0x20_0000,
        table_bytes: granule,
    }
}

impl Machine {
    /// Returns nanoseconds for each, the best of three rounds.
    fn time(&mut self, rounds: u64, mut each: impl FnMut(&mut Self, u64)) -> f64 {
        let mut best = f64::INFINITY;
        for _ in 0..3 {
            let start = Instant::now();
            for i in 0..rounds {
                each(self, i);
            }
            best = best.min(start.elapsed().as_nanos() as f64 / rounds as f64);
        }
        best
    }

    fn access(&mut self, page: u64) {
        let va = page % 64 * self.page;
        std::hint::black_box(self.san.translate(&self.ram, 0, va, Access::READ).is_ok());
    }
}

fn main() {
    let x86: Entries = (|_, p| p | 7, |p| p | 7);
    let riscv: Entries = (|_, p| p >> 2 | 1, |p| p >> 2 | 0b1_0111);
    let pae: Entries = (|l, p| if l == 2 { p | 1 } else { p | 7 }, |p| p | 7);
    let stage2: Entries = (|_, p| p | 3, |p| p | 0x4c3);
    let arm: Entries = (|_, p| p | 3, |p| p | 0xc43);
    let formats = [
        (Arch::x86_2level(), x86),
        (Arch::x86_pae(), pae),
        (Arch::x86_64(), x86),
        (Arch::x86_64_la57(), x86),
        (Arch::riscv_sv32(), riscv),
        (Arch::riscv_sv39(), riscv),
        (Arch::riscv_sv57(), riscv),
        (Arch::aarch64_4k(48), arm),
        (Arch::aarch64_16k(47), arm),
        (Arch::aarch64_64k(48), arm),
        (Arch::aarch64_stage2(Granule::K4, 40, 1), stage2),
    ];
    println!("nanoseconds a hook            hit   flush+walk   store    alloc+free   adversary: hit");
    for (arch, entries) in formats {
        let mut m = machine(&arch, entries, None);
        let hit = m.time(ROUNDS, Machine::access);
        let flush = m.time(ROUNDS / 4, |m, i| {
            m.san.flush(&m.ram, 0, Flush::page(1, i % 64 * m.page));
            m.access(i);
        });
        let store = m.time(ROUNDS / 4, |m, i| {
            let at = m.last + i % 64 * m.entry_bytes as u64;
            m.san.entry_written(&m.ram, at);
        });
        let table = m.time(ROUNDS / 40, |m, _| {
            m.san.table_allocated(&m.ram, m.spare, m.table_bytes, Some(0), Content::Zero);
            m.san.table_freed(&m.ram, m.spare, m.table_bytes);
        });
        let mut hostile = machine(&arch, entries, Some(Adversary::new(1)));
        let watched = hostile.time(ROUNDS, Machine::access);
        m.san.assert_clean();
        hostile.san.assert_clean();
        println!("{:28}{hit:6.0}{flush:13.0}{store:8.0}{table:14.0}{watched:17.0}", arch.name);
    }
}
