//! A small page-table implementation with the sanitizer's hooks, with the flush in the right place
//! and in the wrong one.
//!
//! `cargo run -p ptsan --example unmap`
use ptsan::{Access, Arch, Config, Kind, Session, Test};

const PAGE: usize = 4096;
const PRESENT_WRITABLE_USER: u64 = 7;

type Machine = Session<Vec<u8>>;

/// Allocates a table and clears it.
fn allocate(m: &mut Machine) -> u64 {
    let table = m.table().expect("the example needs few tables");
    m.memory[table as usize..][..PAGE].fill(0);
    table
}

/// Lists the entries for `va` from the root down, and makes missing tables.
fn path(m: &mut Machine, root: u64, va: u64) -> [u64; 4] {
    let mut table = root;
    [39, 30, 21, 12].map(|shift| {
        let at = table + (va >> shift) % 512 * 8;
        if shift > 12 {
            if m.get(at) == 0 {
                let below = allocate(m);
                m.put(at, below | PRESENT_WRITABLE_USER);
            }
            table = m.get(at) & !0xfff;
        }
        at
    })
}

fn map(m: &mut Machine, root: u64, va: u64, phys: u64) {
    let [.., leaf] = path(m, root, va);
    m.put(leaf, phys | PRESENT_WRITABLE_USER);
}

/// Unmaps the only page of a last-level table and frees the table.
fn unmap(m: &mut Machine, root: u64, va: u64, flush_first: bool) {
    let [.., directory, leaf] = path(m, root, va);
    let table = m.get(directory) & !0xfff;
    m.put(leaf, 0);
    m.put(directory, 0);
    if flush_first {
        m.each_cpu(|m| m.flush(va));
        m.free(table);
    } else {
        m.free(table);
        m.each_cpu(|m| m.flush(va));
    }
}

/// Maps a page, uses it on each CPU, and unmaps it. Returns the root.
fn run(m: &mut Machine, flush_first: bool) -> u64 {
    let root = allocate(m);
    m.each_cpu(|m| m.load(root));
    let va = 0x7000 + (m.below(512) << 21);
    map(m, root, va, 0x12_3000);
    m.each_cpu(|m| assert_eq!(m.translate(va + 8, Access::READ).map(|t| t.phys), Ok(0x12_3008)));
    unmap(m, root, va, flush_first);
    assert!(m.on(1).translate(va + 8, Access::READ).is_err());
    root
}

/// Frees a tree: the tables below this one, and it.
fn destroy(m: &mut Machine, table: u64, level: u8) {
    for at in (table..table + PAGE as u64).step_by(8) {
        let entry = m.get(at);
        if level > 0 && entry != 0 {
            destroy(m, entry & !0xfff, level - 1);
        }
    }
    m.free(table);
}

fn main() {
    Test::new(Arch::x86_64()).cpus(2).run(|m| {
        let root = run(m, true);
        m.each_cpu(Session::leave);
        destroy(m, root, 3);
    });
    println!("flush, then free: silent with 100 seeds\n");

    let config = Config { cpus: 2, ..Config::new(Arch::x86_64()) };
    let mut wrong = Session::with(config, vec![0; 16 * PAGE]).with_frames(0x1000..0x1_0000);
    run(&mut wrong, false);
    println!("free, then flush:\n{}", wrong.sanitizer);
    assert_eq!(wrong.sanitizer.count(Kind::FreeBeforeFlush), 1);
}
