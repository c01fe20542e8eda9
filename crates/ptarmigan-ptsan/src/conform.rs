//! Compares a format with its promises, and with the sanitizer's decoder of the same architecture.
use crate::Watchable;
use ptarmigan::addr::{FRAME_SHIFT, Pfn};
use ptarmigan::format::{Access, Attr, Entry, Format, KernelFetch, MemoryType, Slot};
use ptarmigan::page::Level;
use ptsan::{AccessKind, Arch};
use std::fmt;
use std::mem::MaybeUninit;

/// A format breaks its contract, or differs from the sanitizer's decoding: the message names the
/// format, the entry and the difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nonconforming(String);

impl fmt::Display for Nonconforming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Nonconforming {}

type Checked = Result<(), Nonconforming>;

/// Tests the format `F`, see [`conforms_to`].
///
/// ```
/// // In a test: the format is what the hardware decodes.
/// ptarmigan_ptsan::conform::<ptarmigan::format::X86_64>();
/// ```
///
/// # Panics
///
/// With the first difference.
pub fn conform<F: Watchable>() {
    if let Err(e) = conforms_to::<F>(&F::arch()) {
        panic!("{e}");
    }
}

/// Compares the format `F` with the contract of [`Format`], and with `arch`, which the sanitizer's
/// authors wrote from the architecture's manual: links of all levels, and leaves of all
/// [`LEAF_LEVELS`](Format::LEAF_LEVELS) with all attributes, those of the format's own among them,
/// of the first frames, the last one, and others between. Entries are compared as they lie in
/// memory.
///
/// Attributes that [`Format::RIGHTS`] can say must come back as they were given, also those of the
/// caller's own after write protection, at which the MMU must not look. It must see the memory
/// type that they name ([`Arch::memory`]), and allow that much to
/// the user, to the kernel in its own pages, and to the kernel that executes pages of the user.
/// Entries with others are leaves that allow no access that they do not name.
///
/// [`Format::allows`] is compared for pages of the user only. In a second stage
/// ([`GUEST`](Format::GUEST)) these are all pages, whatever attributes they were given. A tree that
/// no MMU walks (PowerPC with a hash table) has no accessed bits; there, the accesses that the
/// refill of the hash table would let through are compared.
///
/// Of leaves with the hint of a [group](Format::GROUP_BITS), promise 8 is tested, and the sanitizer
/// must see a run of as many entries ([`Arch::contiguous`]).
///
/// # Errors
///
/// [`Nonconforming`], with the first difference.
pub fn conforms_to<F: Format>(arch: &Arch) -> Checked {
    shape::<F>(arch)?;
    for level in F::LAYOUT.each_level() {
        if level > Level::PTE {
            links::<F>(arch, level)?;
        }
        if F::LEAF_LEVELS >> level.0 & 1 != 0 {
            leaves::<F>(arch, level)?;
            groups::<F>(arch, level)?;
        }
    }
    Ok(())
}

fn expect<F: Format>(met: bool, what: impl FnOnce() -> String) -> Checked {
    if met { Ok(()) } else { Err(Nonconforming(format!("{}: {}", F::NAME, what()))) }
}

/// Sizes of tables and entries.
fn shape<F: Format>(arch: &Arch) -> Checked {
    let (ours, theirs) = (usize::from(F::LAYOUT.levels), arch.levels.len());
    expect::<F>(ours == theirs, || format!("{ours} levels, and {} has {theirs}", arch.name))?;
    expect::<F>(F::GUEST != F::RIGHTS.can_say(Attr::READ), || "`GUEST` and `RIGHTS` differ".to_owned())?;
    for (level, theirs) in F::LAYOUT.each_level().zip(&arch.levels) {
        let of = |what, ours: u64, theirs: u64| {
            expect::<F>(ours == theirs, || {
                format!("{what} at level {}: {ours}, and {theirs} in {}", level.0, arch.name)
            })
        };
        of("bits of address below an entry", F::shift(level).into(), theirs.shift.into())?;
        of("entries of a table", F::entries(level) as u64, theirs.entries() as u64)?;
        of("bytes of a table", F::LAYOUT.table_bytes(level), theirs.table_bytes.into())?;
        of("bytes of an entry", size_of::<F::Slot>() as u64, theirs.entry_bytes.into())?;
    }
    Ok(())
}

/// The entry as a walker reads it: its bytes in memory, as a little-endian number.
fn in_memory<F: Format>(raw: u64) -> u64 {
    let slot = MaybeUninit::<F::Slot>::zeroed();
    // SAFETY: a slot accepts any bit pattern (contract of `Slot`), zero among them.
    unsafe { slot.assume_init_ref() }.store(raw);
    let mut bytes = [0u8; 8];
    let len = size_of::<F::Slot>().min(bytes.len());
    // SAFETY: both are valid for `len` bytes, all of which have a value, and do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(slot.as_ptr().cast::<u8>(), bytes.as_mut_ptr(), len) };
    u64::from_le_bytes(bytes)
}

/// Frames that an entry of `level` can begin with: multiples of its size, from the first to the
/// last one that has a number.
fn frames<F: Format>(level: Level) -> Vec<Pfn> {
    let size = F::shift(level) - FRAME_SHIFT;
    let bits = (F::PHYS_BITS - FRAME_SHIFT).min(u32::BITS);
    // `Pfn::NONE` is no frame.
    let last = ((1u64 << bits) - 1).min(u64::from(Pfn::NONE.0) - 1) >> size;
    let all = [0, 1, 2, 0x123, 0x12345, last / 3, last.saturating_sub(1), last];
    let mut all: Vec<_> = all.into_iter().filter(|n| *n <= last).map(|n| Pfn((n << size) as u32)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Links of a table of `level`.
fn links<F: Format>(arch: &Arch, level: Level) -> Checked {
    for pfn in frames::<F>(Level::PTE) {
        let at = pfn.addr();
        let raw = F::link(level, at);
        let what = || format!("the link {raw:#x} of level {} to {at}", level.0);
        let entry = F::entry(level, raw);
        expect::<F>(entry == Entry::Link(at), || format!("{} is {entry:?} to the format", what()))?;
        let decoded = (arch.decode)(level.0, in_memory::<F>(raw));
        let same = matches!(decoded, ptsan::Entry::Table { phys, .. } if phys == at.0);
        expect::<F>(same, || format!("{} is {decoded:?} to {}", what(), arch.name))?;
    }
    Ok(())
}

/// All combinations of the attributes that every format has, each alone and with each of the
/// others, and with each number that stands for a memory type or might.
fn attributes() -> impl Iterator<Item = Attr> {
    let others = others().chain(memory_numbers());
    std::iter::once(0).chain(others).flat_map(|other| (0..256).map(move |bits| Attr(other | bits)))
}

/// The attributes above the ones that every format has, but for the memory type.
fn others() -> impl Iterator<Item = u32> {
    (8..24).map(|bit| 1 << bit).filter(|bit| bit & Attr::MEMORY.0 == 0)
}

/// The numbers in the place of the memory type but for 0, whether a type has them or not.
fn memory_numbers() -> impl Iterator<Item = u32> {
    (1..8).map(|n| n << Attr::MEMORY.0.trailing_zeros())
}

/// Each memory type together with each other attribute, in all combinations of permissions.
fn types_of_memory() -> impl Iterator<Item = Attr> {
    let both = memory_numbers().flat_map(|memory| others().map(move |other| memory | other));
    both.flat_map(|both| (0..32).map(move |permissions| Attr(both | permissions)))
}

/// Leaves of a table of `level`.
fn leaves<F: Format>(arch: &Arch, level: Level) -> Checked {
    let frames = frames::<F>(level);
    for attr in attributes().chain(types_of_memory()) {
        for pfn in &frames {
            leaf::<F>(arch, level, *pfn, attr)?;
        }
        grows::<F>(level, attr)?;
    }
    // Special or not makes no difference, and the bits that the MMU sets come together.
    let noted = Attr::ACCESSED | Attr::DIRTY;
    let fewer = |attr: &Attr| !attr.has(Attr::SPECIAL) && (attr.has(noted) || attr.0 & noted.0 == 0);
    let all: Vec<_> = attributes().filter(fewer).filter(|attr| F::RIGHTS.can_say(*attr)).collect();
    let (first, last) = (frames[0], frames[frames.len() - 1]);
    for attr in &all {
        let old = F::leaf(level, first, *attr);
        breaks::<F>(arch, level, old, F::leaf(level, last, *attr))?;
        for other in &all {
            breaks::<F>(arch, level, old, F::leaf(level, first, *other))?;
        }
    }
    Ok(())
}

/// Leaves of a table of `level` with the hint (promise 8).
fn groups<F: Format>(arch: &Arch, level: Level) -> Checked {
    let bits = F::GROUP_BITS[level.at()];
    let Some(run_of) = arch.contiguous.filter(|_| bits > 0) else {
        return expect::<F>(bits == 0, || {
            format!("groups at level {}, and no run in {}", level.0, arch.name)
        });
    };
    let (n, step) = (1usize << bits, 1u32 << (F::shift(level) - FRAME_SHIFT));
    let firsts = frames::<F>(level).into_iter().filter(|pfn| pfn.0 / step % n as u32 == 0);
    let all: Vec<_> = attributes().filter(|attr| F::RIGHTS.can_say(*attr)).collect();
    for first in firsts {
        for (attr, place) in all.iter().flat_map(|attr| [0, 1, n / 2, n - 1].map(|place| (*attr, place))) {
            let plain = F::leaf(level, Pfn(first.0 + place as u32 * step), attr);
            let raw = F::hinted(level, plain);
            let what = || format!("the hinted leaf {raw:#x} of level {} and {plain:#x}", level.0);
            let is = |met: bool, wrong: &str| expect::<F>(met, || format!("{}: {wrong}", what()));
            is(
                F::is_hinted(level, raw) && !F::is_hinted(level, plain),
                "`is_hinted` does not tell them apart",
            )?;
            for index in [place, place + n, F::entries(level) - n + place] {
                let back = [raw, plain].map(|raw| F::unhinted(level, index, raw));
                is(back == [plain, plain], "`unhinted` makes another one")?;
            }
            let answers = |raw| {
                let allows = [Access::Read, Access::Write, Access::Exec].map(|a| F::allows(level, raw, a));
                (F::entry(level, raw), F::attr(level, raw), F::is_present(level, raw), allows)
            };
            is(answers(raw) == answers(plain), "the format answers otherwise")?;
            is(F::is_special(level, raw) == F::is_special(level, plain), "`is_special` differs")?;
            let protected = F::write_protected(level, raw);
            is(
                protected == F::hinted(level, F::write_protected(level, plain)),
                "write-protected, they differ",
            )?;
            if !F::is_present(level, plain) {
                continue;
            }
            let breaks = F::needs_break(level, plain, raw) && F::needs_break(level, raw, plain);
            is(breaks == arch.break_before_make, "the sanitizer wants a break, or none")?;
            let run = run_of(level.0, in_memory::<F>(raw));
            is(run.entries_log2 == bits, "the sanitizer sees another run")?;
            let decode = |raw| match (arch.decode)(level.0, in_memory::<F>(raw)) {
                ptsan::Entry::Leaf { phys, perms, global, accessed, memory_type } => {
                    Some((phys, (perms, global, accessed, memory_type)))
                }
                _ => None,
            };
            let (Some(hinted), Some(alone)) = (decode(raw), decode(plain)) else {
                return is(false, "the sanitizer sees no leaf");
            };
            let own = if run.one_output { first.addr().0 } else { alone.0 };
            is(hinted.0 == own && hinted.1 == alone.1, "the sanitizer sees another leaf")?;
        }
    }
    Ok(())
}

/// Mapping a run of frames adds the same amount for each (promise 5).
fn grows<F: Format>(level: Level, attr: Attr) -> Checked {
    let at = |pfn| F::leaf(level, Pfn(pfn), attr);
    // No second one has a number if the first is as large as all frames that have.
    let Some(page) = 1u32.checked_shl(F::shift(level) - FRAME_SHIFT) else { return Ok(()) };
    let step = at(page).wrapping_sub(at(0));
    for pfn in frames::<F>(level).into_iter().filter(|pfn| pfn.0 > 0) {
        expect::<F>(at(pfn.0).wrapping_sub(at(pfn.0 - page)) == step, || {
            format!("leaves of level {} with {attr} grow by {step:#x}, but not to {pfn}", level.0)
        })?;
    }
    Ok(())
}

/// Checks one leaf: the promises, then the accesses that the MMU allows with it.
fn leaf<F: Format>(arch: &Arch, level: Level, pfn: Pfn, given: Attr) -> Checked {
    let raw = F::leaf(level, pfn, given);
    let what = || format!("the leaf {raw:#x} of level {} of {pfn} with {given} ({:#x})", level.0, given.0);
    let is = |met: bool, wrong: &str| expect::<F>(met, || format!("{}: {wrong}", what()));
    is(F::entry(level, raw) == Entry::Leaf, "it is none or a link to the format")?;
    is(F::cleared(raw) == 0, "it has bits that are kept")?;
    let frame = F::frame(level, raw);
    expect::<F>(frame == pfn, || format!("{}: its frame is {frame}", what()))?;
    is(F::is_special(level, raw) == given.has(Attr::SPECIAL), "`is_special` and `SPECIAL` differ")?;
    let attr = F::attr(level, raw);
    let says = F::RIGHTS.can_say(given);
    let refused = F::expresses(given).is_err() && F::expresses_in_tree(given).is_err();
    is(says || refused, "it is refused, and is not")?;
    is(!F::GUEST || !attr.has(Attr::GLOBAL), "it is global, in a second stage")?;
    let used = given.has(Attr::READ) || given.has(Attr::EXEC);
    if says {
        is(F::is_present(level, raw) == used, "`is_present` and the permissions differ")?;
        expect::<F>(attr == given, || format!("{}: {attr} is read back", what()))?;
    }
    is(F::leaf(level, frame, attr) == raw, "what is read back makes another entry")?;
    let protected = F::write_protected(level, raw);
    let same =
        F::frame(level, protected) == pfn && F::is_special(level, protected) == given.has(Attr::SPECIAL);
    is(same, "write-protected, it has another frame or is counted otherwise")?;
    is(!F::allows(level, protected, Access::Write), "write-protected, it lets writes through")?;
    is(F::attr(level, protected) == attr.without(Attr::WRITE), "write-protection takes more than `WRITE`")?;

    let decoded = (arch.decode)(level.0, in_memory::<F>(raw));
    let unmarked = F::leaf(level, pfn, given.without(Attr::SOFT));
    let same = decoded == (arch.decode)(level.0, in_memory::<F>(unmarked));
    is(same || !says, "the MMU looks at a bit of the caller's own")?;
    let ptsan::Entry::Leaf { phys, perms, global, accessed, memory_type } = decoded else {
        let hidden = matches!(decoded, ptsan::Entry::Empty) && !(says && used);
        return expect::<F>(hidden, || format!("{} is {decoded:?} to {}", what(), arch.name));
    };
    is(used, "the MMU would use an entry without permissions")?;
    // A second stage cannot say that a page is not the user's.
    let given = if F::GUEST { given | Attr::USER } else { given };
    rights::<F>(given, says, perms, &is)?;
    expect::<F>(phys == pfn.addr().0, || format!("{}: the MMU finds {phys:#x}", what()))?;
    is(global == attr.has(Attr::GLOBAL), "the MMU and `GLOBAL` differ")?;
    let memory = (arch.memory)(memory_type);
    let cached = memory == ptsan_type(given.memory());
    expect::<F>(cached || !says, || format!("{}: to the MMU its memory is {memory:?}", what()))?;
    is(!F::GUEST || perms.contains(ptsan::Perms::USER), "the guest may not use it")?;
    if !given.has(Attr::USER) {
        return Ok(());
    }
    for (access, kind) in [
        (Access::Read, AccessKind::Read),
        (Access::Write, AccessKind::Write),
        (Access::Exec, AccessKind::Exec),
    ] {
        let lets = accessed && perms.allows(ptsan::Access { kind, user: true });
        let says = F::allows(level, raw, access);
        // Hardware that leaves the dirty bit to software faults at a write that would set it.
        let software = !says && lets && access == Access::Write && !given.has(Attr::DIRTY);
        let software = software || !says && lets && !given.has(Attr::ACCESSED);
        expect::<F>(says == lets || software, || {
            format!("{}: {access:?}: `allows` says {says}, and the MMU {lets}", what())
        })?;
    }
    Ok(())
}

/// The sanitizer's name of a memory type.
fn ptsan_type(memory: MemoryType) -> ptsan::MemoryType {
    match memory {
        MemoryType::WriteBack => ptsan::MemoryType::WriteBack,
        MemoryType::WriteThrough => ptsan::MemoryType::WriteThrough,
        MemoryType::WriteCombining => ptsan::MemoryType::WriteCombining,
        MemoryType::Uncached => ptsan::MemoryType::Uncached,
        MemoryType::Device => ptsan::MemoryType::Device,
        _ => ptsan::MemoryType::Other,
    }
}

/// Checks that the MMU allows just the accesses that attributes name (promise 7). Others allow no
/// access that they do not name. Whether writes are let through depends on more, see [`leaf`].
fn rights<F: Format>(
    given: Attr,
    says: bool,
    perms: ptsan::Perms,
    is: &impl Fn(bool, &str) -> Checked,
) -> Checked {
    let user = given.has(Attr::USER);
    let lets = |kind| perms.allows(ptsan::Access { kind, user });
    let executes = given.has(Attr::EXEC) || !F::RIGHTS.refuses_execution();
    let (reads, writes) = (lets(AccessKind::Read), lets(AccessKind::Write));
    is(given.has(Attr::READ) || !reads, "it may be read, against its attributes")?;
    is(given.has(Attr::WRITE) || !writes, "it may be written, against its attributes")?;
    is(executes || !lets(AccessKind::Exec), "it may be executed, against its attributes")?;
    if !says {
        return Ok(());
    }
    is(reads == given.has(Attr::READ), "it may not be read")?;
    is(lets(AccessKind::Exec) == executes, "it may not be executed")?;
    if !user {
        let by_user = |kind| perms.allows(ptsan::Access { kind, user: true });
        let any = [AccessKind::Read, AccessKind::Write, AccessKind::Exec].into_iter().any(by_user);
        return is(!any, "the user may use a page of the kernel");
    }
    let fetched = match F::RIGHTS.kernel_fetch() {
        KernelFetch::Never => false,
        KernelFetch::Marked => given.has(Attr::KERNEL_EXEC),
        KernelFetch::Executable => executes,
    };
    let kernel = ptsan::Access { kind: AccessKind::Exec, user: false };
    is(perms.allows(kernel) == fetched, "the kernel's execution of it is not what `RIGHTS` say")
}

/// Whether a change of one live leaf to another needs a break (promise 6).
fn breaks<F: Format>(arch: &Arch, level: Level, old: u64, new: u64) -> Checked {
    let says = F::needs_break(level, old, new);
    let what = || format!("the leaf {old:#x} of level {} becomes {new:#x}", level.0);
    expect::<F>(F::EVER_BREAKS || !says, || format!("{}: a break, against `EVER_BREAKS`", what()))?;
    let leaf = |raw| match (arch.decode)(level.0, in_memory::<F>(raw)) {
        ptsan::Entry::Leaf { phys, global, memory_type, .. } => Some((phys, global, memory_type)),
        _ => None,
    };
    let (Some(old), Some(new)) = (leaf(old), leaf(new)) else {
        return expect::<F>(!says, || format!("{}: a break where one is not valid", what()));
    };
    let other = old.0 != new.0 || old.2 != new.2;
    let must = arch.break_before_make && (other || !old.1 && new.1);
    expect::<F>(says || !must, || format!("{}: {} demands a break", what(), arch.name))?;
    // The same frame, type and reach: permissions alone.
    expect::<F>(!says || old != new, || format!("{}: a break for permissions alone", what()))
}
