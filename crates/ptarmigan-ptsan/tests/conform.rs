//! Formats against their promises and the sanitizer's decoders, and formats with mistakes.
use ptarmigan::addr::{Pfn, PhysAddr};
use ptarmigan::format::{
    Aarch64, Aarch64K16, Aarch64K16Upper, Aarch64K64, Aarch64K64Upper, Aarch64Stage2, Aarch64Upper, Access,
    Attr, Ept, Format, FormatExt, Formats, I386, Ia64, KernelFetch, Keyed, LoongArch64, MemoryType, Npt,
    Ppc32, Rights, Sev, Slot64, Sparc64, Sv, Sv32, Sv39, Sv39Napot, Sv39Pbmt, Sv39x4, Sv39x4Napot,
    Sv39x4Pbmt, Sv48, Sv48Napot, Sv48Pbmt, Sv48x4, Sv48x4Napot, Sv48x4Pbmt, Sv57, Sv57Napot, Sv57Pbmt, Tdx,
    X86_64, X86_64La57, X86Pae,
};
use ptarmigan::page::{Layout, Level, MAX_LEVELS};
use ptarmigan_ptsan::{Told, Watchable, conform, conforms_to};
use ptsan::{Arch, Perms};

#[test]
fn the_formats_of_the_library_are_what_the_sanitizer_decodes() {
    conform::<X86_64>();
    conform::<X86_64La57>();
    conform::<Keyed<X86_64>>();
    conform::<Keyed<X86_64La57>>();
    conform::<Sev<X86_64, 47>>();
    conform::<Sev<X86_64, 51>>();
    conform::<Tdx<X86_64, 47>>();
    conform::<Tdx<X86_64, 51>>();
    conform::<X86Pae>();
    conform::<I386>();
    conform::<Ppc32>();
    conform::<Sv32>();
    conform::<Sv39>();
    conform::<Sv48>();
    conform::<Sv57>();
    conform::<Sv39Pbmt>();
    conform::<Sv48Pbmt>();
    conform::<Sv57Pbmt>();
    conform::<Aarch64>();
    conform::<Aarch64Upper>();
    conform::<Aarch64K16>();
    conform::<Aarch64K16Upper>();
    conform::<Aarch64K64>();
    conform::<Aarch64K64Upper>();
    conform::<LoongArch64>();
    conform::<Sparc64>();
    conform::<Ia64>();
    conform::<Aarch64Stage2>();
    conform::<Ept>();
    conform::<Npt>();
    conform::<Sv39x4>();
    conform::<Sv48x4>();
    conform::<Sv39x4Pbmt>();
    conform::<Sv48x4Pbmt>();
    conform::<Sv<3, false, true>>();
    conform::<Sv39Napot>();
    conform::<Sv48Napot>();
    conform::<Sv57Napot>();
    conform::<Sv39x4Napot>();
    conform::<Sv48x4Napot>();
}

type X = X86_64;

/// x86-64 with a mistake.
#[derive(Clone, Copy, Default)]
struct Wrong<const MISTAKE: u8>;

impl<const MISTAKE: u8> Wrong<MISTAKE> {
    /// The bit of a third attribute of the caller's.
    fn third(level: Level) -> u32 {
        match level {
            _ if MISTAKE == 24 => 52,
            Level::PTE => 7,
            _ => 12,
        }
    }
}

// SAFETY: no promise is kept on purpose; no tree is made of it.
unsafe impl<const MISTAKE: u8> Format for Wrong<MISTAKE> {
    type Slot = Slot64;
    const NAME: &'static str = "wrong";
    const LAYOUT: Layout = X::LAYOUT;
    const LEVEL_NAMES: &'static [&'static str] = X::LEVEL_NAMES;
    const PAGE_SHIFT: u32 = X::PAGE_SHIFT;
    const INDEX_BITS: [u8; MAX_LEVELS] = if MISTAKE == 1 { [9, 9, 9, 8, 0] } else { X::INDEX_BITS };
    const USER_END: u64 = X::USER_END;
    const KERNEL_START: u64 = X::KERNEL_START;
    const USER_ROOT_ENTRIES: usize = X::USER_ROOT_ENTRIES;
    const PHYS_BITS: u32 = X::PHYS_BITS;
    const LEAF_LEVELS: u8 = X::LEAF_LEVELS;
    const EVER_BREAKS: bool = MISTAKE == 12;
    const RIGHTS: Rights = match MISTAKE {
        15 => X::RIGHTS.with_execute_only(false),
        16 => X::RIGHTS.with_kernel_exec(),
        17 => X::RIGHTS.without_kernel_fetch(),
        18 => X::RIGHTS.with_attributes(Attr(1 << 15)),
        19 => X::RIGHTS.without_refusing_execution(),
        20 => X::RIGHTS.users_only(),
        22..=24 => X::RIGHTS.with_soft(3),
        _ => X::RIGHTS,
    };
    const KEPT: u64 = if MISTAKE == 2 { 1 << 5 } else { 0 };

    fn link(level: Level, at: PhysAddr) -> u64 {
        if MISTAKE == 3 { at.0 & 0xffff_ffff | 7 } else { X::link(level, at) }
    }
    fn linked(level: Level, raw: u64) -> Option<PhysAddr> {
        if MISTAKE == 4 && raw & 1 != 0 { Some(PhysAddr(raw & !0xfff)) } else { X::linked(level, raw) }
    }
    fn leaf(level: Level, pfn: Pfn, attr: Attr) -> u64 {
        let raw = X::leaf(level, pfn, attr);
        match MISTAKE {
            5 if level > Level::PTE => raw & !(1 << 7),
            6 if !attr.has(Attr::READ) => 0,
            7 => raw & !(1 << 63),
            13 => raw | 1 << 8,
            21 if attr.has(Attr::WRITE) => raw | 1,
            // Another index of the PAT for the same type.
            23 if attr.has(Attr::SOFT2) => raw | 1 << Self::third(level),
            24 if attr.has(Attr::SOFT2) => raw | 1 << 52,
            _ => raw,
        }
    }
    fn frame(level: Level, raw: u64) -> Pfn {
        if MISTAKE == 8 { Pfn((raw >> 12) as u32 & 0xff_ffff) } else { X::frame(level, raw) }
    }
    fn attr(level: Level, raw: u64) -> Attr {
        let has = matches!(MISTAKE, 23 | 24) && raw >> Self::third(level) & 1 != 0;
        if has { X::attr(level, raw & !(1 << Self::third(level))) | Attr::SOFT2 } else { X::attr(level, raw) }
    }
    fn is_present(level: Level, raw: u64) -> bool {
        if MISTAKE == 9 { !Self::is_none(raw) } else { X::is_present(level, raw) }
    }
    fn allows(level: Level, raw: u64, access: Access) -> bool {
        if MISTAKE == 10 && access == Access::Exec { raw & 1 != 0 } else { X::allows(level, raw, access) }
    }
    fn write_protected(level: Level, raw: u64) -> u64 {
        let lost = match MISTAKE {
            11 => 1 << 6,
            24 => 1 << 52,
            _ => 0,
        };
        X::write_protected(level, raw & !lost)
    }
    fn is_special(level: Level, raw: u64) -> bool {
        X::is_special(level, raw)
    }
    fn needs_break(_: Level, old: u64, new: u64) -> bool {
        MISTAKE == 12 && old & new & 1 != 0 && old != new || MISTAKE == 14
    }
}

/// Returns the message about a format with a mistake.
fn found<const MISTAKE: u8>() -> String {
    let found = conforms_to::<Wrong<MISTAKE>>(&Arch::x86_64());
    found.expect_err(&format!("mistake {MISTAKE} is not noticed")).to_string()
}

#[test]
fn a_mistake_in_a_format_is_found_and_named() {
    for (found, says) in [
        (found::<1>(), "entries of a table at level 3: 256, and 512 in x86-64"),
        (found::<2>(), "it has bits that are kept"),
        (found::<3>(), "the format"),
        (found::<4>(), "it is none or a link to the format"),
        (found::<5>(), "it is none or a link to the format"),
        (found::<6>(), "it is none or a link to the format"),
        (found::<7>(), "is read back"),
        (found::<8>(), "its frame is"),
        (found::<9>(), "`is_present` and the permissions differ"),
        (found::<10>(), "`allows` says true, and the MMU false"),
        (found::<11>(), "write-protection takes more than `WRITE`"),
        (found::<12>(), "a break for permissions alone"),
        (found::<13>(), "is read back"),
        (found::<14>(), "a break, against `EVER_BREAKS`"),
        (found::<15>(), "`is_present` and the permissions differ"),
        (found::<16>(), "the kernel's execution of it is not what `RIGHTS` say"),
        (found::<17>(), "the kernel's execution of it is not what `RIGHTS` say"),
        (found::<18>(), "is read back"),
        (found::<19>(), "it may not be executed"),
        (found::<20>(), "`GUEST` and `RIGHTS` differ"),
        (found::<22>(), "is read back"),
        (found::<23>(), "the MMU looks at a bit of the caller's own"),
        (found::<24>(), "write-protection takes more than `WRITE`"),
        (found::<21>(), "the MMU would use an entry without permissions"),
    ] {
        assert!(found.starts_with("wrong: ") && found.contains(says), "{found}: not {says:?}");
    }
}

/// Defines the parts that a format has in common with `$like`: all but its slot, `EVER_BREAKS` and
/// `needs_break`. Leaves have `$always` too; `$change` changes them. `$as_told` is done to
/// attributes both ways.
macro_rules! entries_of {
    ($like:ty) => {
        entries_of!($like, Attr(0), <$like>::RIGHTS);
    };
    ($like:ty, $always:expr, $rights:expr) => {
        entries_of!($like, $always, $rights, |raw, _: Attr| raw);
    };
    ($like:ty, $always:expr, $rights:expr, $change:expr) => {
        entries_of!($like, $always, $rights, $change, std::convert::identity);
    };
    ($like:ty, $always:expr, $rights:expr, $change:expr, $as_told:expr) => {
        const NAME: &'static str = <$like>::NAME;
        const LAYOUT: Layout = <$like>::LAYOUT;
        const LEVEL_NAMES: &'static [&'static str] = <$like>::LEVEL_NAMES;
        const PAGE_SHIFT: u32 = <$like>::PAGE_SHIFT;
        const INDEX_BITS: [u8; MAX_LEVELS] = <$like>::INDEX_BITS;
        const USER_END: u64 = <$like>::USER_END;
        const KERNEL_START: u64 = <$like>::KERNEL_START;
        const USER_ROOT_ENTRIES: usize = <$like>::USER_ROOT_ENTRIES;
        const ROOT_IN_REGISTERS: bool = <$like>::ROOT_IN_REGISTERS;
        const PHYS_BITS: u32 = <$like>::PHYS_BITS;
        const LEAF_LEVELS: u8 = <$like>::LEAF_LEVELS;
        const KEPT: u64 = <$like>::KEPT;
        const RIGHTS: Rights = $rights;
        fn link(level: Level, at: PhysAddr) -> u64 {
            <$like>::link(level, at)
        }
        fn linked(level: Level, raw: u64) -> Option<PhysAddr> {
            <$like>::linked(level, raw)
        }
        fn leaf(level: Level, pfn: Pfn, attr: Attr) -> u64 {
            $change(<$like>::leaf(level, pfn, $as_told(attr) | $always), attr)
        }
        fn frame(level: Level, raw: u64) -> Pfn {
            <$like>::frame(level, raw)
        }
        fn attr(level: Level, raw: u64) -> Attr {
            $as_told(<$like>::attr(level, raw))
        }
        fn is_present(level: Level, raw: u64) -> bool {
            <$like>::is_present(level, raw)
        }
        fn allows(level: Level, raw: u64, access: Access) -> bool {
            <$like>::allows(level, raw, access)
        }
        fn write_protected(level: Level, raw: u64) -> u64 {
            <$like>::write_protected(level, raw)
        }
        fn is_special(level: Level, raw: u64) -> bool {
            <$like>::is_special(level, raw)
        }
    };
}

/// AArch64 that never breaks, or that does so for other frames only.
#[derive(Clone, Copy, Default)]
struct Seldom<const FRAMES: bool>;

// SAFETY: 1. to 5. as `Aarch64`. 6. is not kept on purpose; no tree is made of it.
unsafe impl<const FRAMES: bool> Format for Seldom<FRAMES> {
    const EVER_BREAKS: bool = FRAMES;
    fn needs_break(level: Level, old: u64, new: u64) -> bool {
        FRAMES
            && Aarch64::frame(level, old) != Aarch64::frame(level, new)
            && Aarch64::needs_break(level, old, new)
    }
    type Slot = Slot64;
    entries_of!(Aarch64);
}

#[test]
fn a_format_that_breaks_too_seldom_is_found() {
    let arch = Arch::aarch64_4k(48);
    let never = conforms_to::<Seldom<false>>(&arch).unwrap_err().to_string();
    assert!(never.contains("demands a break"), "{never}");
    let frames_only = conforms_to::<Seldom<true>>(&arch).unwrap_err().to_string();
    assert!(frames_only.contains("demands a break"), "{frames_only}");
}

/// A format with two of its memory types in each other's place, both ways.
#[derive(Clone, Copy, Default)]
struct Swapped<F>(F);

impl<F> Swapped<F> {
    fn swap(attr: Attr) -> Attr {
        match attr.memory() {
            MemoryType::WriteCombining => attr.with_memory(MemoryType::Device),
            MemoryType::Device => attr.with_memory(MemoryType::WriteCombining),
            _ => attr,
        }
    }
}

// SAFETY: as `F`, but for promise 7, on purpose; no tree is made of it.
unsafe impl<F: Format> Format for Swapped<F> {
    type Slot = F::Slot;
    const GUEST: bool = F::GUEST;
    const EVER_BREAKS: bool = F::EVER_BREAKS;
    fn needs_break(level: Level, old: u64, new: u64) -> bool {
        F::needs_break(level, old, new)
    }
    entries_of!(F, Attr(0), F::RIGHTS, |raw, _: Attr| raw, Self::swap);
}

#[test]
fn a_format_whose_memory_types_are_others_to_the_mmu_is_found() {
    fn swapped<F: Watchable>() {
        assert!(F::RIGHTS.has_memory(MemoryType::Device), "{}", F::NAME);
        let found = conforms_to::<Swapped<F>>(&F::arch()).unwrap_err().to_string();
        assert!(found.contains("to the MMU its memory is "), "{}: {found}", F::NAME);
    }
    swapped::<X86_64>();
    swapped::<X86_64La57>();
    swapped::<Keyed<X86_64>>();
    swapped::<Sev<X86_64, 47>>();
    swapped::<X86Pae>();
    swapped::<I386>();
    swapped::<Ppc32>();
    swapped::<Sv39Pbmt>();
    swapped::<Sv48Pbmt>();
    swapped::<Sv57Pbmt>();
    swapped::<Aarch64>();
    swapped::<Aarch64K16Upper>();
    swapped::<Aarch64K64>();
    swapped::<LoongArch64>();
    swapped::<Sparc64>();
    swapped::<Ia64>();
    swapped::<Aarch64Stage2>();
    swapped::<Ept>();
    swapped::<Npt>();
    swapped::<Sv39x4Pbmt>();
    swapped::<Sv48x4Pbmt>();
}

/// A format that says that it has the memory of devices, or that it does not.
#[derive(Clone, Copy, Default)]
struct Says<const DEVICE: bool>;

// SAFETY: as `Sv39`, but for promise 7, on purpose; no tree is made of it.
unsafe impl Format for Says<true> {
    type Slot = Slot64;
    entries_of!(Sv39, Attr(0), Sv39::RIGHTS.with_memory(&[MemoryType::Device]));
}

// SAFETY: as `Sv39Pbmt`; no tree is made of it.
unsafe impl Format for Says<false> {
    type Slot = Slot64;
    entries_of!(Sv39Pbmt, Attr(0), Sv39::RIGHTS);
}

#[test]
fn a_format_that_says_a_memory_type_which_it_loses_is_found() {
    let boasts = conforms_to::<Says<true>>(&Arch::riscv_sv39()).unwrap_err().to_string();
    assert!(boasts.contains("is read back"), "{boasts}");
    // To refuse more than must be refused breaks no promise.
    conforms_to::<Says<false>>(&Arch::riscv_sv39()).unwrap();
}

/// Nested tables that do not say so, or x86-64 that says that it is a second stage, with the user's
/// bit in every leaf.
#[derive(Clone, Copy, Default)]
struct Stage<const SAYS: bool>;

// SAFETY: as `Npt`; `GUEST` is wrong on purpose, and no tree is made of it.
unsafe impl Format for Stage<false> {
    type Slot = Slot64;
    entries_of!(Npt, Attr(0), Rights::PLAIN);
}

// SAFETY: as `X86_64`; `GUEST` is wrong on purpose, and no tree is made of it.
unsafe impl Format for Stage<true> {
    type Slot = Slot64;
    const GUEST: bool = true;
    entries_of!(X86_64, Attr::USER, Rights::PLAIN.users_only());
}

/// Sv39 whose pages for execution alone have one bit more: R, or U.
#[derive(Clone, Copy, Default)]
struct OneBitMore<const BIT: u64>;

// SAFETY: as `Sv39`, but for promise 7, on purpose; no tree is made of it.
unsafe impl<const BIT: u64> Format for OneBitMore<BIT> {
    type Slot = Slot64;
    entries_of!(Sv39, Attr(0), Sv39::RIGHTS, |raw, attr: Attr| if attr.0 & 7 == 4 { raw | BIT } else { raw });
}

#[test]
fn a_page_for_execution_alone_that_allows_more_is_found() {
    let readable = conforms_to::<OneBitMore<2>>(&Arch::riscv_sv39()).unwrap_err().to_string();
    assert!(readable.contains("r-x----- is read back"), "{readable}");
    let users = conforms_to::<OneBitMore<16>>(&Arch::riscv_sv39()).unwrap_err().to_string();
    assert!(users.contains("--xu---- is read back"), "{users}");
    // The decoder says so too.
    fn readable_too(level: u8, raw: u64) -> ptsan::Entry {
        match (Arch::riscv_sv39().decode)(level, raw) {
            ptsan::Entry::Leaf { phys, perms, global, accessed, memory_type } => {
                let perms = perms.with_if(Perms::READ, true);
                ptsan::Entry::Leaf { phys, perms, global, accessed, memory_type }
            }
            other => other,
        }
    }
    let arch = Arch { decode: readable_too, ..Arch::riscv_sv39() };
    let found = conforms_to::<Sv39>(&arch).unwrap_err().to_string();
    assert!(found.contains("it may be read, against its attributes"), "{found}");
}

#[test]
fn a_format_whose_stage_is_another_than_it_says_is_found() {
    let silent = conforms_to::<Stage<false>>(&Arch::npt()).unwrap_err().to_string();
    assert!(silent.contains("is read back"), "{silent}");
    let boasts = conforms_to::<Stage<true>>(&Arch::x86_64()).unwrap_err().to_string();
    assert!(boasts.contains("it is global, in a second stage"), "{boasts}");
    fn private(level: u8, raw: u64) -> ptsan::Entry {
        match (Arch::npt().decode)(level, raw) {
            ptsan::Entry::Leaf { phys, perms, global, accessed, memory_type } => {
                let perms = perms.without_if(Perms::USER, true);
                ptsan::Entry::Leaf { phys, perms, global, accessed, memory_type }
            }
            other => other,
        }
    }
    let hides = conforms_to::<Npt>(&Arch { decode: private, ..Arch::npt() }).unwrap_err().to_string();
    assert!(hides.contains("the guest may not use it"), "{hides}");
}

/// Writes a size as the table of formats does.
fn size(shift: u32) -> String {
    match shift {
        0..10 => format!("{} B", 1 << shift),
        10..20 => format!("{} KiB", 1 << (shift - 10)),
        20..30 => format!("{} MiB", 1 << (shift - 20)),
        30..40 => format!("{} GiB", 1 << (shift - 30)),
        _ => format!("{} TiB", 1 << (shift - 40)),
    }
}

/// Writes a number with a comma after thousands.
fn number(n: usize) -> String {
    if n < 1000 { n.to_string() } else { format!("{},{:03}", n / 1000, n % 1000) }
}

/// Returns the cells of a format's row in the table of formats, without its name.
fn row<F: Watchable>() -> String {
    let (root, levels) = (F::LAYOUT.root(), F::LAYOUT.levels);
    let table = |level: Level| size(F::LAYOUT.table_bytes(level).trailing_zeros());
    let users = match (F::USER_ROOT_ENTRIES, F::entries(root)) {
        (0, _) => "none".to_owned(),
        (users, all) if users == all => "all".to_owned(),
        (users, all) => format!("{users} of {}", number(all)),
    };
    let leaves: Vec<Level> =
        F::LAYOUT.each_level().skip(1).filter(|level| F::LEAF_LEVELS >> level.0 & 1 != 0).collect();
    let large: Vec<String> = leaves.iter().map(|level| size(F::shift(*level))).collect();
    let large = if large.is_empty() { "no".to_owned() } else { large.join(", ") };
    let (page, bits) = (size(F::PAGE_SHIFT), F::arch().va_bits);
    let tables = format!("{} | {}", table(Level::PTE), table(root));
    format!("{levels} | {page} | {tables} | {bits} | {} | {users} | {large} |", F::PHYS_BITS)
}

#[test]
fn the_table_of_formats_says_what_the_formats_say() {
    const TABLE: &str = include_str!("../../../docs/formats.md");
    let table = TABLE.lines().skip_while(|line| !line.starts_with("| format | levels |")).skip(2);
    let mut rows: Vec<&str> = table.take_while(|line| line.starts_with("| `")).collect();
    macro_rules! has {
        ($($format:ident $(, $upper:ident)?;)*) => { $({
            #[allow(unused_mut)]
            let (mut name, mut cells) = (format!("`{}`", stringify!($format)), row::<$format>());
            $(
                name = format!("{name}, `{}`", stringify!($upper));
                assert_eq!(row::<$upper>(), cells.replace("| all |", "| none |"));
                cells = cells.replace("| all |", "| all, none |");
            )?
            let expected = format!("| {name} | {cells}");
            let at = rows.iter().position(|row| *row == expected);
            rows.remove(at.unwrap_or_else(|| panic!("docs/formats.md has no row {expected}")));
        })* };
    }
    has! {
        I386; X86Pae; X86_64; X86_64La57; Sv32; Sv39; Sv48; Sv57; Ppc32;
        Aarch64, Aarch64Upper; Aarch64K16, Aarch64K16Upper; Aarch64K64, Aarch64K64Upper;
        LoongArch64; Sparc64; Ia64; Aarch64Stage2; Ept; Npt; Sv39x4; Sv48x4;
    }
    assert_eq!(rows, [""; 0], "rows of no format");
}

/// Returns the cells of a format's row in the table of rights, without its name.
fn rights_row<F: Format>() -> String {
    let yes = |yes| if yes { "yes" } else { "no" };
    let only = match [Attr::EXEC | Attr::USER, Attr::EXEC].map(|attr| F::RIGHTS.can_say(attr)) {
        [false, _] => "no",
        [true, false] => "the user's",
        [true, true] => "the user's, the kernel's",
    };
    let fetched = match F::RIGHTS.kernel_fetch() {
        KernelFetch::Never => "never",
        KernelFetch::Marked => "if marked",
        KernelFetch::Executable => "if executable",
    };
    let user = Attr::READ | Attr::USER | Attr::GLOBAL;
    let (global, refused) = (yes(F::RIGHTS.can_say(user)), yes(F::RIGHTS.refuses_execution()));
    format!("{only} | {fetched} | {global} | {refused} | {} |", F::RIGHTS.soft_bits())
}

#[test]
fn the_table_of_rights_says_what_the_formats_say() {
    const TABLE: &str = include_str!("../../../docs/formats.md");
    let table = TABLE.lines().skip_while(|line| !line.starts_with("| format | execution alone |")).skip(2);
    let rows: Vec<&str> = table.take_while(|line| line.starts_with("| `")).collect();
    let mut named = 0;
    macro_rules! has {
        ($($format:ident)*) => { $({
            let name = format!("`{}`", stringify!($format));
            let row = rows.iter().find(|row| row.contains(&name)).unwrap_or_else(|| panic!("no {name}"));
            assert!(row.ends_with(&format!("| {}", rights_row::<$format>())), "{row}: {}", rights_row::<$format>());
            named += 1;
        })* };
    }
    has! {
        I386 X86Pae X86_64 X86_64La57 Sv32 Sv39 Sv48 Sv57 Ppc32 Aarch64 Aarch64Upper Aarch64K16
        Aarch64K16Upper Aarch64K64 Aarch64K64Upper LoongArch64 Sparc64 Ia64 Aarch64Stage2 Ept Npt Sv39x4
        Sv48x4
    }
    let names: usize = rows.iter().map(|row| row.split(" | ").next().unwrap().matches('`').count() / 2).sum();
    assert_eq!(named, names, "rows of no format");
}

#[test]
fn the_table_of_memory_types_says_what_the_formats_say() {
    const TABLE: &str = include_str!("../../../docs/formats.md");
    let table = TABLE.lines().skip_while(|line| !line.starts_with("| format | `WriteBack` |")).skip(2);
    let rows: Vec<&str> = table.take_while(|line| line.starts_with("| `")).collect();
    let types = [
        MemoryType::WriteBack,
        MemoryType::WriteThrough,
        MemoryType::WriteCombining,
        MemoryType::Uncached,
        MemoryType::Device,
    ];
    let mut named = 0;
    macro_rules! has {
        ($($format:ident)*) => { $({
            let name = format!("`{}`", stringify!($format));
            let row = rows.iter().find(|row| row.contains(&name)).unwrap_or_else(|| panic!("no {name}"));
            let cells: Vec<&str> = row.trim_matches('|').split('|').skip(1).map(str::trim).collect();
            let says: Vec<bool> = cells.iter().map(|cell| *cell != "no").collect();
            assert_eq!(says, types.map(|memory| $format::RIGHTS.has_memory(memory)), "{row}");
            named += 1;
        })* };
    }
    has! {
        I386 X86Pae X86_64 X86_64La57 Npt Ept Aarch64 Aarch64K16 Aarch64K64 Aarch64Stage2 Sv39Pbmt Sv48Pbmt
        Sv57Pbmt Sv39x4Pbmt Sv48x4Pbmt Sv32 Sv39 Sv48 Sv57 Sv39x4 Sv48x4 LoongArch64 Ppc32 Sparc64 Ia64
    }
    let names: usize = rows.iter().map(|row| row.split(" | ").next().unwrap().matches('`').count() / 2).sum();
    assert_eq!(named, names, "rows of no format");
}

/// Whether the MMU denies data of pages with the key `key`, and of no others, if the register says
/// so: `leaf` makes the pages.
fn denies<const PKRU: u32>(key: u8, leaf: impl Fn(Attr) -> u64) -> bool {
    let decode = Arch::x86_64_keys::<PKRU>().decode;
    (0..16).all(|n| {
        let attr = Attr::READ | Attr::WRITE | Attr::EXEC | Attr::USER | Attr::key(n).unwrap();
        let ptsan::Entry::Leaf { perms, .. } = decode(0, leaf(attr)) else { return false };
        let data = perms.allows(ptsan::Access::READ) || perms.allows(ptsan::Access::WRITE);
        data == (n != key) && perms.allows(ptsan::Access::EXEC)
    })
}

#[test]
fn the_key_of_a_page_is_where_the_mmu_looks_for_it() {
    let right = |attr| Keyed::<X86_64>::leaf(Level::PTE, Pfn(5), attr);
    let wrong = |attr| {
        let raw = right(attr);
        raw & !(0xf << 59) | (raw >> 59 & 7) << 60
    };
    macro_rules! keys {
        ($($key:literal)*) => { $(
            assert!(denies::<{ 1 << (2 * $key) }>($key, right), "key {}", $key);
            assert!($key == 0 || !denies::<{ 1 << (2 * $key) }>($key, wrong), "key {}", $key);
        )* };
    }
    keys!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    assert_eq!((Attr::key(15).unwrap().key_number(), Attr::key(16)), (15, None));
}

#[test]
fn a_page_is_encrypted_unless_the_bit_of_the_cpu_shares_it() {
    fn shared<F: Watchable>(attr: Attr) -> bool {
        match (F::arch().decode)(0, F::leaf(Level::PTE, Pfn(5), attr | Attr::READ)) {
            ptsan::Entry::Leaf { memory_type, phys: 0x5000, .. } => memory_type & 8 != 0,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!([Attr(0), Attr::SHARED].map(shared::<Sev<X86_64, 47>>), [false, true]);
    assert_eq!([Attr(0), Attr::SHARED].map(shared::<Tdx<X86_64, 51>>), [false, true]);
    // Another bit, the opposite meaning, and a format that knows none.
    let sev = Arch::x86_64_encrypted::<47, false>();
    let other = conforms_to::<Sev<X86_64, 46>>(&sev).unwrap_err().to_string();
    assert!(other.contains("x86-64 with SEV: the leaf") && other.contains("the MMU finds"), "{other}");
    let opposite = conforms_to::<Tdx<X86_64, 47>>(&sev).unwrap_err().to_string();
    assert!(opposite.contains("the link") && opposite.contains("is Malformed"), "{opposite}");
    let none = conforms_to::<X86_64>(&sev).unwrap_err().to_string();
    assert!(none.contains("the link") && none.contains("is Malformed"), "{none}");
}

/// A machine of one format takes its trees and no others; `Told` is the same format to an MMU.
#[test]
fn formats_are_told_apart() {
    type Check = fn(Formats);
    let mut all: Vec<(String, Formats, Check)> = vec![];
    macro_rules! has {
        ($($format:ty),* $(,)?) => { $(
            all.push((stringify!($format).to_owned(), Formats::of::<$format>(), Formats::demand_tree::<$format>));
        )* };
    }
    has!(
        I386, X86Pae, X86_64, X86_64La57, Sv32, Sv39, Sv39Napot, Sv39Pbmt, Sv48, Sv48Napot, Sv48Pbmt, Sv57, Ppc32,
        Aarch64, Aarch64Upper, Aarch64K16, Aarch64K16Upper, Aarch64K64, Aarch64K64Upper, LoongArch64, Sparc64, Ia64,
        Aarch64Stage2, Ept, Npt, Sv39x4, Sv48x4, Keyed<X86_64>, Keyed<X86_64La57>, Sev<X86_64, 47>,
        Sev<X86_64, 51>, Tdx<X86_64, 47>, Sev<X86_64La57, 51>, Sev<Keyed<X86_64>, 51>, Tdx<Keyed<X86_64>, 51>,
    );
    let takes = |formats: Formats, check: Check| std::panic::catch_unwind(|| check(formats)).is_ok();
    for (name, formats, _) in &all {
        for (other, _, check) in &all {
            assert_eq!(takes(*formats, *check), name == other, "{other} on a machine of {name}");
        }
        assert!(all.iter().all(|(_, _, check)| takes(Formats::ANY, *check)));
    }
    assert!(takes(Formats::of::<Sv39>(), Formats::demand_tree::<Told<Sv39>>));
    let arm = Formats::of_halves::<Aarch64, Aarch64Upper>();
    assert!(
        takes(arm, Formats::demand_tree::<Aarch64>) && takes(arm, Formats::demand_kernel::<Aarch64Upper>)
    );
    assert!(
        !takes(arm, Formats::demand_tree::<Aarch64Upper>) && !takes(arm, Formats::demand_kernel::<Aarch64>)
    );
    let laid_out = arm.only::<Aarch64Upper>();
    assert!(!takes(laid_out, Formats::demand_tree::<Aarch64>));
    assert!(takes(laid_out, Formats::demand_kernel::<Aarch64Upper>));
}
