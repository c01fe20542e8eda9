//! A small page-table implementation with the sanitizer's hooks, with the flush in the right place
//! and in the wrong one.
//!
//! `cargo run -p ptsan --example unmap`
use ptsan::{Access, Arch, Config, Content, Flush, Kind, Sanitizer};

const PAGE: u64 = 4096;
const PRESENT_WRITABLE_USER: u64 = 7;
const SPACE: u64 = 1;

/// Page tables of x86-64, and a list of free frames.
struct Tables {
    ram: Vec<u8>,
    free: Vec<u64>,
    root: u64,
    san: Sanitizer,
}

impl Tables {
    fn new(cpus: usize) -> Self {
        let san = Sanitizer::new(Config { cpus, ..Config::new(Arch::x86_64()) });
        let free = (1..16).rev().map(|n| n * PAGE).collect();
        let mut new = Self { ram: vec![0; 16 * PAGE as usize], free, root: 0, san };
        new.root = new.allocate();
        for cpu in 0..cpus {
            new.san.switch(&new.ram, cpu, new.root, SPACE);
        }
        new
    }

    fn allocate(&mut self) -> u64 {
        let table = self.free.pop().expect("the example needs few tables");
        self.san.table_allocated(&self.ram, table, PAGE, None, Content::Zero);
        table
    }

    fn release(&mut self, table: u64) {
        self.san.table_freed(&self.ram, table, PAGE);
        self.free.push(table);
    }

    fn entry(&mut self, at: u64) -> &mut [u8] {
        &mut self.ram[at as usize..][..8]
    }

    fn load(&mut self, at: u64) -> u64 {
        self.entry(at).iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
    }

    fn store(&mut self, at: u64, entry: u64) {
        self.entry(at).copy_from_slice(&entry.to_le_bytes());
        self.san.entry_written(&self.ram, at);
    }

    /// Lists the entries for `va` from the root down, and makes missing tables.
    fn path(&mut self, va: u64) -> [u64; 4] {
        let mut table = self.root;
        [39, 30, 21, 12].map(|shift| {
            let at = table + (va >> shift) % 512 * 8;
            if shift > 12 {
                if self.load(at) == 0 {
                    let below = self.allocate();
                    self.store(at, below | PRESENT_WRITABLE_USER);
                }
                table = self.load(at) & !0xfff;
            }
            at
        })
    }

    fn map(&mut self, va: u64, phys: u64) {
        let leaf = self.path(va)[3];
        self.store(leaf, phys | PRESENT_WRITABLE_USER);
    }

    /// Unmaps the only page of a last-level table and frees the table.
    fn unmap(&mut self, va: u64, flush_first: bool) {
        let [.., directory, leaf] = self.path(va);
        let table = self.load(directory) & !0xfff;
        self.store(leaf, 0);
        self.store(directory, 0);
        if flush_first {
            self.san.flush_everywhere(&self.ram, Flush::page(SPACE, va));
            self.release(table);
        } else {
            self.release(table);
            self.san.flush_everywhere(&self.ram, Flush::page(SPACE, va));
        }
    }
}

fn run(flush_first: bool) -> Sanitizer {
    let mut tables = Tables::new(2);
    tables.map(0x7000, 0x12_3000);
    for cpu in 0..2 {
        let t = tables.san.translate(&tables.ram, cpu, 0x7008, Access::READ).expect("the page is mapped");
        assert_eq!(t.phys, 0x12_3008);
    }
    tables.unmap(0x7000, flush_first);
    assert!(tables.san.translate(&tables.ram, 1, 0x7008, Access::READ).is_err());
    tables.san
}

fn main() {
    println!("flush, then free:\n{}\n", run(true));
    let wrong = run(false);
    println!("free, then flush:\n{wrong}");
    assert_eq!(wrong.count(Kind::FreeBeforeFlush), 1);
}
