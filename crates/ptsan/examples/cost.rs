//! The cost of a hook, for each format, with and without an adversary; and of an operation: map a
//! page, access it on two CPUs, unmap it, and flush it on four.
//!
//! Times are CPU time of this thread, so that other processes on the machine count little: Linux
//! says it in `/proc/thread-self/schedstat`, in steps of some milliseconds. Elsewhere it is the
//! time that passed. A figure is the median of five runs.
//!
//! `cargo run --profile dist -p ptsan --example cost`; with `hooks` or `operations` after `--`,
//! that table alone.
use ptsan::{Access, Adversary, Arch, Config, Content, Flush, Granule, Sanitizer};
use std::process::Command;
use std::time::Instant;

const TABLE: u64 = 0x10_0000;
const ROUNDS: u64 = 1_000_000;
const OPERATIONS: u64 = 200_000;
const RUNS: usize = 5;
/// The stores are told, and the sanitizer remembers the event of each, or none: `Config::told`.
const EXACT: Option<usize> = Some(usize::MAX);
const COMPACT: Option<usize> = Some(0);

/// Measures CPU time.
struct Clock {
    wall: Instant,
    cpu: Option<u64>,
}

impl Clock {
    fn start() -> Self {
        Self { wall: Instant::now(), cpu: cpu_time() }
    }

    fn nanoseconds(&self) -> f64 {
        match (self.cpu, cpu_time()) {
            (Some(start), Some(end)) => (end - start) as f64,
            _ => self.wall.elapsed().as_nanos() as f64,
        }
    }
}

/// Returns the CPU time of this thread in nanoseconds, where the system says.
fn cpu_time() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok()
}

/// Returns the median of the nanoseconds that `rounds` calls take, for one call.
fn median(rounds: u64, mut each: impl FnMut(u64)) -> f64 {
    let mut runs: Vec<f64> = (0..RUNS)
        .map(|_| {
            let clock = Clock::start();
            (0..rounds).for_each(&mut each);
            clock.nanoseconds() / rounds as f64
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    runs[RUNS / 2]
}

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
    /// Returns nanoseconds for each.
    fn time(&mut self, rounds: u64, mut each: impl FnMut(&mut Self, u64)) -> f64 {
        median(rounds, |i| each(self, i))
    }

    fn access(&mut self, page: u64) {
        let va = page % 64 * self.page;
        std::hint::black_box(self.san.translate(&self.ram, 0, va, Access::READ).is_ok());
    }
}

/// A tree of x86-64 with many last tables, on four CPUs.
struct Tree {
    ram: Vec<u8>,
    san: Sanitizer,
    first: u64,
    tables: u64,
    tells: bool,
    random: u64,
}

impl Tree {
    const CPUS: usize = 4;

    fn new(tables: u64, tells: Option<usize>, adversary: Option<Adversary>) -> Self {
        let (page, root) = (4096, 0x1000);
        let directories = tables.div_ceil(512);
        let first = root + (2 + directories) * page;
        let told = tells.unwrap_or_default();
        let config = Config { cpus: Self::CPUS, adversary, told, ..Config::new(Arch::x86_64()) };
        let mut ram = vec![0; (first + tables * page) as usize];
        // The system gives memory when it is written. The measurement leaves that out.
        ram.iter_mut().step_by(page as usize).for_each(|byte| *std::hint::black_box(byte) = 0);
        let mut tree =
            Self { ram, san: Sanitizer::new(config), first, tables, tells: tells.is_some(), random: 1 };
        let all = (0..2 + directories + tables).map(|n| root + n * page);
        for (n, table) in all.enumerate() {
            let level = match n as u64 {
                0 => 3,
                1 => 2,
                n if n < 2 + directories => 1,
                _ => 0,
            };
            tree.san.table_allocated(&tree.ram, table, page, Some(level), Content::Zero);
        }
        tree.put(root, (root + page) | 7);
        for cpu in 0..Self::CPUS {
            tree.san.switch(&tree.ram, cpu, root, 1);
        }
        // The tables of a level lie one behind the other, and so do the entries for them.
        (0..directories).for_each(|n| tree.put(root + page + n * 8, (root + (2 + n) * page) | 7));
        (0..tables).for_each(|n| tree.put(root + 2 * page + n * 8, (first + n * page) | 7));
        tree
    }

    fn put(&mut self, at: u64, raw: u64) {
        self.ram[at as usize..][..8].copy_from_slice(&raw.to_le_bytes());
        if self.tells {
            self.san.entry_written(&self.ram, at);
        }
    }

    fn operation(&mut self) {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (table, page) = ((self.random >> 33) % self.tables, self.random >> 20 & 511);
        let (va, entry) = (table << 21 | page << 12, self.first + table * 4096 + page * 8);
        self.put(entry, 0x1_0000_0000 | 7);
        for (n, access) in [Access::READ, Access::WRITE].into_iter().enumerate() {
            let cpu = ((self.random >> 50) as usize + n) % Self::CPUS;
            assert!(self.san.translate(&self.ram, cpu, va, access).is_ok());
        }
        self.put(entry, 0);
        for cpu in 0..Self::CPUS {
            self.san.flush(&self.ram, cpu, Flush::page(1, va));
        }
        if self.tells {
            self.san.flushes_done(&self.ram);
        }
    }

    /// Returns nanoseconds for an operation.
    fn time(&mut self) -> f64 {
        median(OPERATIONS, |_| self.operation())
    }
}

/// The memory of this process in MiB, where the system says.
fn resident() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|n| n.parse::<f64>().ok());
    pages.map_or(f64::NAN, |n| n * 4096.0 / f64::from(1 << 20))
}

/// A name; which stores are told; whether there is an adversary.
const ROWS: [(&str, Option<usize>, bool); 6] = [
    ("no store told", None, false),
    ("each store told", EXACT, false),
    ("each store told, compact", COMPACT, false),
    ("no store told, adversary", None, true),
    ("each store told, adversary", EXACT, true),
    ("the same, compact", COMPACT, true),
];

/// Measures each row in a process of its own: memory that one has freed would serve the next.
fn operations() {
    println!("\nCPU ns an operation, 4 CPUs           64 tables   32768 tables   grew by MiB");
    let program = std::env::current_exe().expect("the system knows the program");
    for row in 0..ROWS.len() {
        let ended = Command::new(&program).args(["row", &row.to_string()]).status();
        assert!(ended.is_ok_and(|status| status.success()), "row {row} failed");
    }
}

fn operation(row: usize) {
    let (name, tells, hostile) = ROWS[row];
    let adversary = hostile.then(|| Adversary::new(1));
    let few = Tree::new(64, tells, adversary).time();
    let mut many = Tree::new(32_768, tells, adversary);
    let before = resident();
    let time = many.time();
    let grown = resident() - before;
    many.san.assert_clean();
    println!("{name:32}{few:15.0}{time:15.0}{grown:14.0}");
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let part = arguments.next();
    if part.as_deref() == Some("row") {
        return operation(arguments.next().and_then(|row| row.parse().ok()).expect("the number of a row"));
    }
    if part.as_deref() != Some("operations") {
        hooks();
    }
    if part.as_deref() != Some("hooks") {
        operations();
    }
}

fn hooks() {
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
    println!("CPU ns a hook                 hit   flush+walk   store    alloc+free   adversary: hit");
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
