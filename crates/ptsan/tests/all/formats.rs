//! Every format from its root to its pages: walks, tables freed too early, and the reach of an
//! invalidation.
use ptsan::{
    Access, Arch, ByGuestAddress, Config, Content, Fault, Flush, Granule, Kind, Sanitizer, StructureScope,
};

/// The entries that a format writes for a table and for a page of user memory.
struct Format {
    arch: Arch,
    /// At a level.
    table: fn(usize, u64) -> u64,
    page: fn(u64) -> u64,
}

type Entries = (fn(usize, u64) -> u64, fn(u64) -> u64);

fn formats() -> Vec<Format> {
    let x86: Entries = (|_, p| p | 7, |p| p | 7);
    let riscv: Entries = (|_, p| p >> 2 | 1, |p| p >> 2 | 0b1_0111);
    let arm: Entries = (|_, p| p | 3, |p| p | 3 | 1 << 6 | 1 << 10 | 1 << 11);
    let stage2: Entries = (|_, p| p | 3, |p| p | 3 | 3 << 6 | 1 << 10);
    let with = |(table, page): Entries, archs: Vec<Arch>| {
        archs.into_iter().map(move |arch| Format { arch, table, page }).collect::<Vec<_>>()
    };
    let mut all =
        with(x86, vec![Arch::x86_2level(), Arch::x86_64(), Arch::x86_64_la57(), Arch::ept(), Arch::npt()]);
    all.extend(with((|l, p| if l == 2 { p | 1 } else { p | 7 }, x86.1), vec![Arch::x86_pae()]));
    all.extend(with(
        riscv,
        vec![
            Arch::riscv_sv32(),
            Arch::riscv_sv39(),
            Arch::riscv_sv48(),
            Arch::riscv_sv57(),
            Arch::riscv_sv39x4(),
            Arch::riscv_sv48x4(),
        ],
    ));
    all.extend(with(
        arm,
        vec![
            Arch::aarch64_4k(48),
            Arch::aarch64_4k(39),
            Arch::aarch64_4k(36),
            Arch::aarch64_4k(48).upper(),
            Arch::aarch64_16k(48),
            Arch::aarch64_16k(36),
            Arch::aarch64_64k(52),
            Arch::aarch64_64k(42),
        ],
    ));
    let loongarch: Entries = (|_, p| p, |p| p | 0xf);
    let sparc: Entries = (|_, p| (p | 1 << 62).swap_bytes(), |p| (p | 1 << 63 | 1 << 6).swap_bytes());
    let itanium: Entries = (|_, p| p | 1 << 63, |p| p | 2 << 9 | 0xf << 5 | 1);
    all.extend(with(loongarch, vec![Arch::loongarch64()]));
    all.extend(with(sparc, vec![Arch::sparc64()]));
    all.extend(with(itanium, vec![Arch::ia64()]));
    all.extend(with(
        stage2,
        vec![
            Arch::aarch64_stage2(Granule::K4, 40, 1),
            Arch::aarch64_stage2(Granule::K4, 43, 1),
            Arch::aarch64_stage2(Granule::K16, 40, 2),
            Arch::aarch64_stage2(Granule::K64, 46, 2),
        ],
    ));
    all
}

/// One page mapped in a tree of its own.
struct One {
    ram: Vec<u8>,
    san: Sanitizer,
    /// The tables from the top down, each with the address of its entry for the page.
    path: Vec<(u64, u64)>,
    entry_bytes: usize,
    va: u64,
    data: u64,
}

impl One {
    fn new(format: &Format) -> Self {
        let arch = &format.arch;
        let granule = arch.levels[0].table_bytes as u64;
        let top = arch.levels.last().unwrap().table_bytes as u64;
        let mut ram = vec![0u8; (4 << 20) + 16 * granule as usize];
        let mut san = Sanitizer::new(Config::new(arch.clone()));
        // The last page but one, so that every index is large.
        let page = 1u64 << arch.levels[0].shift;
        let mut va = (u64::MAX >> (64 - u32::from(arch.va_bits))) & !(2 * page - 1);
        if !arch.is_canonical(va) {
            va |= u64::MAX << arch.va_bits;
        }
        assert!(arch.is_canonical(va), "{}", arch.name);
        let mut tables = vec![top.next_multiple_of(granule)];
        // The root lies at a multiple of its size, and the others behind it.
        let mut next = 2 * tables[0];
        for _ in 1..arch.levels.len() {
            tables.push(next);
            next += granule;
        }
        let data = next.next_multiple_of(granule);
        let mut path = Vec::new();
        for ((i, level), &at) in arch.levels.iter().enumerate().rev().zip(&tables) {
            let size = if i + 1 == arch.levels.len() { top } else { granule };
            san.table_allocated(&ram, at, size, None, Content::Zero);
            let entry = at + level.index(va) * u64::from(level.entry_bytes);
            path.push((at, entry));
            let depth = arch.levels.len() - 1 - i;
            let raw = if i == 0 { (format.page)(data) } else { (format.table)(i, tables[depth + 1]) };
            let bytes = level.entry_bytes as usize;
            ram[entry as usize..][..bytes].copy_from_slice(&raw.to_le_bytes()[..bytes]);
        }
        san.switch(&ram, 0, tables[0], 1);
        Self { ram, san, path, entry_bytes: arch.levels[0].entry_bytes.into(), va, data }
    }

    fn clear(&mut self) {
        for &(_, entry) in &self.path {
            self.ram[entry as usize..][..self.entry_bytes].fill(0);
        }
    }
}

#[test]
fn a_walk_reaches_the_page_and_nothing_else() {
    for format in formats() {
        let name = format.arch.name;
        let mut one = One::new(&format);
        let t = one.san.translate(&one.ram, 0, one.va + 0x123, Access::WRITE).expect(name);
        assert_eq!((t.phys, t.level, t.global), (one.data + 0x123, 0, false), "{name}");
        let page = 1 << format.arch.levels[0].shift;
        let next = one.san.translate(&one.ram, 0, one.va + page, Access::READ);
        assert_eq!(next, Err(Fault::NotPresent { level: 0 }), "{name}");
        let beyond = one.san.translate(&one.ram, 0, one.va ^ 1 << 63, Access::READ);
        assert_eq!(beyond, Err(Fault::NonCanonical), "{name}");
        one.san.assert_clean();
    }
}

#[test]
fn a_flush_lets_go_of_tables_as_the_architecture_says() {
    for format in formats() {
        let arch = &format.arch;
        let tables = arch.levels.len() as u64 - 1;
        // The number of tables below the root that a CPU still holds.
        let after = |flush: fn(u64) -> Flush| {
            let mut one = One::new(&format);
            one.san.translate(&one.ram, 0, one.va, Access::READ).expect(arch.name);
            one.clear();
            one.san.flush(&one.ram, 0, flush(one.va));
            for &(table, _) in &one.path[1..] {
                one.san.table_freed(&one.ram, table, arch.levels[0].table_bytes.into());
            }
            assert_eq!(one.san.total(), one.san.count(Kind::FreeBeforeFlush), "{}", one.san);
            one.san.total()
        };
        assert_eq!(after(|_| Flush::space(1)), 0, "{}", arch.name);
        assert_eq!(after(|_| Flush::all()), 0, "{}", arch.name);
        if arch.second_stage.is_some_and(|second| second.by_address == ByGuestAddress::Never) {
            continue;
        }
        let (page, last_level) = match arch.structures {
            StructureScope::AnyInvalidation | StructureScope::None => (0, 0),
            StructureScope::Tagged => (0, tables),
            StructureScope::WholeSpace => (tables, tables),
        };
        // The directory below a PAE top is held by a register.
        let registers = u64::from(arch.top_registers);
        assert_eq!(after(|va| Flush::page(1, va)), page + registers, "{}", arch.name);
        assert_eq!(after(Flush::page_in_every_space), page + registers, "{}", arch.name);
        assert_eq!(after(|va| Flush::page(1, va).leaf_only()), last_level + registers, "{}", arch.name);
        // An address that shares only the root. The translation stays, and tells of the last table.
        let half = |va: u64, bits: u8| va ^ 1 << (bits - 1);
        let mut one = One::new(&format);
        one.san.translate(&one.ram, 0, one.va, Access::READ).expect(arch.name);
        one.clear();
        one.san.flush(&one.ram, 0, Flush::page(1, half(one.va, arch.va_bits)));
        for &(table, _) in &one.path[1..] {
            one.san.table_freed(&one.ram, table, arch.levels[0].table_bytes.into());
        }
        let drops = matches!(arch.structures, StructureScope::AnyInvalidation | StructureScope::None);
        let held = if drops { 1 } else { tables };
        assert_eq!(one.san.total(), held + registers, "{}: {}", arch.name, one.san);
    }
}

#[test]
fn small_entries_are_written_and_compared_as_such() {
    // The neighbour of a 4-byte entry is no part of it.
    for format in formats().into_iter().filter(|f| f.arch.levels[0].entry_bytes == 4) {
        let mut one = One::new(&format);
        let (table, _) = one.path[1];
        let dirty = 0x10_0000;
        one.ram[dirty + 4..][..4].copy_from_slice(&((format.page)(0x5000) as u32).to_le_bytes());
        one.san.table_allocated(&one.ram, dirty as u64, 4096, Some(0), Content::Unknown);
        one.san.table_linked(&one.ram, one.path[0].0, 1, dirty as u64);
        assert_eq!(one.san.count(Kind::LinkedBeforeCleared), 1, "{}", one.san);
        assert!(one.san.to_string().contains("entry 1 is still"), "{}", one.san);
        assert!(!one.san.to_string().contains(&format!("{table:#x}")));
    }
}

#[test]
fn a_clear_access_flag_faults_and_is_not_cached() {
    let format = Format { ..formats().into_iter().find(|f| f.arch.break_before_make).unwrap() };
    let mut one = One::new(&format);
    let leaf = one.path.last().unwrap().1 as usize;
    let raw = u64::from_le_bytes(one.ram[leaf..][..8].try_into().unwrap());
    one.ram[leaf..][..8].copy_from_slice(&(raw & !(1 << 10)).to_le_bytes());
    let fault = one.san.translate(&one.ram, 0, one.va, Access::READ);
    assert_eq!(fault, Err(Fault::NotAccessed { level: 0 }));
    one.san.probe_walk(&one.ram, 0, one.va);
    one.ram[leaf..][..8].copy_from_slice(&raw.to_le_bytes());
    assert!(!one.san.translate(&one.ram, 0, one.va, Access::READ).unwrap().from_tlb);
    // Aging: the flag is cleared without a flush. The cached translation may be used.
    one.ram[leaf..][..8].copy_from_slice(&(raw & !(1 << 10)).to_le_bytes());
    assert!(one.san.translate(&one.ram, 0, one.va, Access::READ).unwrap().from_tlb);
    one.san.assert_clean();
}

#[test]
fn formats_that_there_are_not_are_misuse_and_nothing_more() {
    for arch in [
        Arch::aarch64_4k(49),
        Arch::aarch64_4k(12),
        Arch::aarch64_16k(0),
        Arch::aarch64_64k(255),
        Arch::aarch64_stage2(Granule::K4, 48, 3),
        Arch::aarch64_stage2(Granule::K64, 40, 9),
    ] {
        let ram = vec![0u8; 1 << 16];
        let mut san = Sanitizer::new(Config::new(arch));
        assert_eq!(san.findings()[0].rule, ptsan::Rule::BadArch);
        san.table_allocated(&ram, 0x1000, 4096, None, Content::Unknown);
        san.switch(&ram, 0, 0x1000, 1);
        san.entry_written(&ram, 0x1000);
        assert!(san.translate(&ram, 0, 0, Access::READ).is_err());
        assert!(san.expect(&ram, ptsan::Tree::Root(0x1000), 0, None).is_err());
        san.table_freed(&ram, 0x1000, 4096);
        san.finish();
        assert_eq!(san.total(), san.count(Kind::Misuse));
    }
}
