//! Tables announced without a level and built before their root is loaded, as at every boot and
//! every fork: levels come from the stores that were told, and no step depends on a walk.
use ptsan::{Arch, Config, Kind, Session, Test};

const FRAMES: u64 = 64;
const DATA: u64 = 0x20_0000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    None,
    /// A page is unmapped without a flush, and its frame is freed.
    Unmap,
    /// A page is made read-only without a flush.
    Downgrade,
    /// A table is unlinked and freed without a flush.
    Table,
    /// A table is mapped writable to user mode.
    Mapped,
    /// A table is linked with entries of before.
    Old,
}

/// How a format writes an entry for a table, and for a page.
#[derive(Clone, Copy)]
struct Entries {
    arch: fn() -> Arch,
    table: fn(u64) -> u64,
    page: fn(u64, bool) -> u64,
}

const FORMATS: [Entries; 3] = [
    Entries {
        arch: Arch::x86_64,
        table: |phys| phys | 7,
        page: |phys, write| phys | 5 | u64::from(write) << 1,
    },
    Entries {
        arch: || Arch::aarch64_4k(48),
        table: |phys| phys | 3,
        page: |phys, write| phys | 0xc43 | u64::from(!write) << 7,
    },
    Entries {
        arch: Arch::riscv_sv39,
        table: |phys| phys >> 2 | 1,
        page: |phys, write| phys >> 2 | 0x53 | u64::from(write) << 2,
    },
];

/// A page: its address, its frame, and the tables on the way to it, from the root, with the entry
/// in each.
type PageAt = (u64, u64, Vec<(u64, u64)>);

struct Tree {
    format: Entries,
    root: u64,
    pages: Vec<PageAt>,
}

impl Tree {
    /// Builds a tree of a few pages whose root is not loaded.
    fn build(s: &mut Session<Vec<u8>>, format: Entries, defect: Defect) -> Self {
        let levels = (format.arch)().levels;
        let table = |s: &mut Session<Vec<u8>>| {
            let phys = s.table().unwrap();
            if s.memory[phys as usize..][..4096].iter().any(|b| *b != 0) && defect != Defect::Old {
                s.memory[phys as usize..][..4096].fill(0);
            }
            phys
        };
        // A table that nobody clears.
        if defect == Defect::Old {
            s.memory[0x1000..0x1000 * FRAMES as usize].chunks_mut(4096).for_each(|frame| {
                frame[8 * 500..8 * 500 + 8].copy_from_slice(&(format.table)(0x9000).to_le_bytes());
            });
        }
        let root = table(s);
        let mut tree = Self { format, root, pages: Vec::new() };
        for n in 0..4 {
            let va = (s.below(3) << 30 | s.below(4) << 21 | (n + 8 * s.below(40)) << 12) & 0x3f_ffff_ffff;
            let (mut at, mut path) = (root, Vec::new());
            for (level, l) in levels.iter().enumerate().rev() {
                let entry = at + l.index(va) * 8;
                path.push((at, entry));
                if level == 0 {
                    let frame = DATA + n * 4096;
                    s.put(entry, (format.page)(frame, true));
                    tree.pages.push((va, frame, path));
                    break;
                }
                at = match tree.below(s, level as u8, entry) {
                    Some(below) => below,
                    None => {
                        let below = table(s);
                        s.put(entry, (format.table)(below));
                        below
                    }
                };
            }
        }
        tree
    }

    fn below(&self, s: &Session<Vec<u8>>, level: u8, entry: u64) -> Option<u64> {
        match ((self.format.arch)().decode)(level, s.get(entry)) {
            ptsan::Entry::Table { phys, .. } => Some(phys),
            _ => None,
        }
    }
}

/// Returns the kinds that are found with a seed.
fn run(format: Entries, defect: Defect, adversary: bool, seed: u64) -> Vec<Kind> {
    let config = Config { cpus: 2, ..Config::new((format.arch)()) };
    let found = std::sync::Mutex::new(Vec::new());
    Test::with(Config { adversary: adversary.then(|| ptsan::Adversary::new(seed)), ..config })
        .frames(FRAMES)
        .seeds(seed..seed + 1)
        .each(|seed, config| {
            let frame = 4096;
            let memory = vec![0; (2 * DATA) as usize];
            let mut s = Session::with(config, memory).with_frames(frame..FRAMES * frame);
            (0..seed % 7).for_each(|_| _ = s.below(9));
            let tree = Tree::build(&mut s, format, defect);
            s.each_cpu(|s| s.load(tree.root));
            let (va, frame, path) = tree.pages[seed as usize % tree.pages.len()].clone();
            let &(table, entry) = path.last().unwrap();
            let flush = |s: &mut Session<Vec<u8>>, yes: bool| {
                if yes {
                    s.each_cpu(|s| s.flush(None));
                }
            };
            s.operation(|s| match defect {
                Defect::Downgrade => s.put(entry, (format.page)(frame, false)),
                Defect::Table => {
                    s.put(path[path.len() - 2].1, 0);
                    s.free(table);
                }
                Defect::Mapped => {
                    let free = table + ((entry - table + 8) & 0xfff);
                    s.put(free, (format.page)(table, true));
                }
                Defect::Unmap | Defect::None | Defect::Old => {
                    s.put(entry, 0);
                    flush(s, defect != Defect::Unmap);
                    s.frame_freed(frame);
                }
            });
            if defect == Defect::None {
                let _ = s.on(0).access(va);
                s.each_cpu(|s| s.leave());
            }
            let mut kinds: Vec<_> = s.sanitizer.findings().iter().map(|f| f.kind).collect();
            kinds.dedup();
            found.lock().unwrap().extend(kinds);
        });
    found.into_inner().unwrap()
}

#[track_caller]
fn always(defect: Defect, kind: Kind) {
    for format in FORMATS {
        for adversary in [false, true] {
            let found = (1..=20).filter(|&seed| run(format, defect, adversary, seed).contains(&kind)).count();
            assert_eq!(found, 20, "{defect:?}, {}, adversary {adversary}", (format.arch)().name);
        }
    }
}

#[test]
fn a_page_unmapped_without_a_flush_is_found() {
    always(Defect::Unmap, Kind::DataFreedBeforeFlush);
}

#[test]
fn a_right_taken_away_without_a_flush_is_found() {
    always(Defect::Downgrade, Kind::FlushMissing);
}

#[test]
fn a_table_freed_without_a_flush_is_found() {
    always(Defect::Table, Kind::FreeBeforeFlush);
}

#[test]
fn a_table_mapped_to_user_mode_is_found() {
    always(Defect::Mapped, Kind::TableMapped);
}

#[test]
fn a_table_with_old_entries_is_found_when_the_root_is_loaded() {
    always(Defect::Old, Kind::LinkedBeforeCleared);
}

#[test]
fn correct_code_is_silent() {
    for format in FORMATS {
        for seed in 1..=50 {
            assert_eq!(run(format, Defect::None, seed % 2 == 0, seed), [], "{} {seed}", (format.arch)().name);
        }
    }
}

#[test]
fn a_table_linked_into_a_loaded_tree_gives_lower_levels() {
    let mut s = Session::with(Config::new(Arch::x86_64()), vec![0u8; 1 << 22]).with_frames(0x1000..0x8000);
    let [root, high, middle, last] = [(); 4].map(|()| s.table().unwrap());
    s.load(root);
    // The part is built from below, and linked last.
    s.put(last, 0x9007);
    s.put(middle, last | 7);
    s.put(high, middle | 7);
    s.put(root, high | 7);
    s.put(last, 0);
    s.frame_freed(0x9000);
    assert_eq!(s.sanitizer.count(Kind::DataFreedBeforeFlush), 1, "{}", s.sanitizer);
}

#[test]
fn a_table_built_before_told_stores_gives_levels_too() {
    let mut s = Session::with(Config::new(Arch::x86_64()), vec![0u8; 1 << 22]);
    let put = |s: &mut Session<Vec<u8>>, at: usize, raw: u64| {
        s.memory[at..at + 8].copy_from_slice(&raw.to_le_bytes())
    };
    for (at, raw) in [(0x1000, 0x2007), (0x2000, 0x3007), (0x3000, 0x4007)] {
        put(&mut s, at, raw);
    }
    for table in [0x1000, 0x2000, 0x3000, 0x4000] {
        s.sanitizer.table_allocated(&s.memory, table, 4096, None, ptsan::Content::Unchecked);
    }
    s.put(0x4000, 0x9007);
    s.load(0x1000);
    s.put(0x4000, 0);
    s.frame_freed(0x9000);
    assert_eq!(s.sanitizer.count(Kind::DataFreedBeforeFlush), 1, "{}", s.sanitizer);
}
