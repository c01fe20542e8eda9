//! Checks the library's demands on formats of other crates.
use crate::common::FailAt;
use ptarmigan::addr::{Pfn, PhysAddr, VirtAddr, VirtRange};
use ptarmigan::format::{
    Aarch64K16, Aarch64K16Upper, Aarch64K64, Aarch64K64Upper, Aarch64Upper, Access, Attr, Format, I386, Slot,
    Slot64, X86_64,
};
use ptarmigan::frames::{AllocFlags, DataFrames};
use ptarmigan::machine::{Machine, On};
use ptarmigan::page::{Layout, Level, MAX_LEVELS};
use ptarmigan::quicklist::{Layered, Quicklists};
use ptarmigan::space::{AreaFlags, Space};
use ptarmigan::table::{KernelMap, MapError, Tree};
use ptarmigan::vmalloc::Vmalloc;
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::{Host, HostConfig, HostError, HostMachine, NoTlb};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

type X = X86_64;
const VA: u64 = 0x40_0000;

/// Frame numbers are written backwards if `SCATTERED`, and upside down otherwise.
#[derive(Clone, Copy, Debug, Default)]
struct Odd<const SCATTERED: bool>;

impl<const SCATTERED: bool> Odd<SCATTERED> {
    fn odd(pfn: Pfn) -> Pfn {
        Pfn(if SCATTERED { pfn.0.reverse_bits() } else { !pfn.0 })
    }
}

// SAFETY: 1. to 4. the entries are those of `X86_64`, with other bits for the frame. 5. if they are
// upside down, the entry shrinks by the same amount each time; `SCATTERED` breaks it on purpose, in
// a test that maps frames without accesses.
unsafe impl<const SCATTERED: bool> Format for Odd<SCATTERED> {
    type Slot = Slot64;
    const NAME: &'static str = "odd";
    const LAYOUT: Layout = X::LAYOUT;
    const LEVEL_NAMES: &'static [&'static str] = X::LEVEL_NAMES;
    const PAGE_SHIFT: u32 = X::PAGE_SHIFT;
    const INDEX_BITS: [u8; MAX_LEVELS] = X::INDEX_BITS;
    const USER_END: u64 = X::USER_END;
    const KERNEL_START: u64 = X::KERNEL_START;
    const USER_ROOT_ENTRIES: usize = X::USER_ROOT_ENTRIES;
    const PHYS_BITS: u32 = 44;
    entries_of_x86_64!();
    fn leaf(level: Level, pfn: Pfn, attr: Attr) -> u64 {
        X::leaf(level, Self::odd(pfn), attr)
    }
    fn frame(level: Level, raw: u64) -> Pfn {
        Self::odd(X::frame(level, raw))
    }
}

/// A host of 16 MiB.
pub fn small() -> HostConfig {
    HostConfig { bytes: 16 << 20, prefault: 0, ..HostConfig::default() }
}

pub type Quick<'h, F> = Quicklists<'h, DirectMap, &'h KernelMap<F, DirectMap>>;

/// Calls `f` on a machine of x86-64 with 64 MiB, and with the layer that refuses its tables. Every
/// frame must be back then.
pub fn on_failing_machine(
    f: impl for<'h> FnOnce(&'h Host<X>, On<'_, HostMachine<'h, X, Layered<FailAt, Quick<'h, X>>, NoTlb>>, &FailAt),
) {
    let host = Host::<X>::new(HostConfig { bytes: 64 << 20, zero_block: true, ..small() }).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let policy =
        Layered::new(FailAt::new(), host.quicklists().unwrap()).map_err(|refused| refused.error).unwrap();
    let m = HostMachine::new(&host, policy, NoTlb).unwrap();
    f(&host, m.on(&pin).unwrap(), m.policy().layer());
    m.drain(&slots);
    drop(m);
    host.audit().unwrap();
}

/// Calls `f` on a machine of a format. Every frame must be back then.
pub fn on_machine<F: Format, R>(
    config: HostConfig,
    f: impl for<'h> FnOnce(&'h Host<F>, On<'_, HostMachine<'h, F, Quick<'h, F>, NoTlb>>) -> R,
) -> R {
    let host = Host::<F>::new(config).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    let result = f(&host, m.on(&pin).unwrap());
    m.drain(&slots);
    drop(m);
    host.audit().unwrap();
    result
}

/// The frames of four pages that are mapped to those from 64 on.
fn mapped<F: Format>() -> Vec<u32> {
    on_machine::<F, _>(small(), |_, on| {
        let mut tree = Tree::<F>::new(on, AllocFlags::NORMAL).unwrap();
        let mut edit = tree.edit(on).unwrap();
        let range = VirtRange::new(VA, VA + 4 * 4096).unwrap();
        // SAFETY: 1. no program runs in the tree.
        unsafe { edit.map_range(range, Pfn(64), Attr::USER | Attr::READ).unwrap() };
        let mapped = (0..4).map(|i| edit.query(VirtAddr(VA + i * 4096)).unwrap().0.0).collect();
        drop(edit);
        tree.end(on, |_, _, _| {}).map_err(|refused| refused.error).unwrap();
        mapped
    })
}

#[test]
fn a_run_of_frames_is_mapped_in_order() {
    assert_eq!(mapped::<X>(), [64, 65, 66, 67]);
    assert_eq!(mapped::<Odd<false>>(), [64, 65, 66, 67]);
}

#[test]
#[cfg(debug_assertions)]
fn a_format_whose_leaves_do_not_grow_evenly_is_noticed() {
    let mapped = catch_unwind(AssertUnwindSafe(mapped::<Odd<true>>));
    let message = *mapped.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("entries of odd do not grow evenly"), "{message}");
}

/// x86-64 whose entries have room for 22 bits of address.
#[derive(Clone, Copy, Debug, Default)]
struct Narrow;

/// As stage 2 of AArch64 for 40 bits and three levels: a root of two tables.
#[derive(Clone, Copy, Debug, Default)]
struct Wide;

macro_rules! like_x86_64 {
    ($format:ty, $slot:ty, $name:literal, $phys:expr, $layout:expr, $names:expr, $index:expr, $end:expr, $root:expr) => {
        // SAFETY: 1. to 6. the entries are those of `X86_64`; memory that is too high is refused.
        unsafe impl Format for $format {
            type Slot = $slot;
            const NAME: &'static str = $name;
            const LAYOUT: Layout = $layout;
            const LEVEL_NAMES: &'static [&'static str] = $names;
            const PAGE_SHIFT: u32 = X::PAGE_SHIFT;
            const INDEX_BITS: [u8; MAX_LEVELS] = $index;
            const USER_END: u64 = $end;
            const KERNEL_START: u64 = X::KERNEL_START;
            const USER_ROOT_ENTRIES: usize = $root;
            const PHYS_BITS: u32 = $phys;
            entries_of_x86_64!();
            fn leaf(level: Level, pfn: Pfn, attr: Attr) -> u64 {
                X::leaf(level, pfn, attr)
            }
            fn frame(level: Level, raw: u64) -> Pfn {
                X::frame(level, raw)
            }
        }
    };
}

like_x86_64!(Narrow, Slot64, "narrow", 22, X::LAYOUT, X::LEVEL_NAMES, X::INDEX_BITS, X::USER_END, 256);
like_x86_64!(
    Wide,
    Slot64,
    "wide",
    44,
    Layout { levels: 3, table_shift: [12, 12, 13, 0, 0] },
    &["pte", "pmd", "root"],
    [9, 9, 10, 0, 0],
    1 << 40,
    1024
);

/// Maps a page of the kernel's, and pages of an area over scattered memory; returns the frames.
fn kernel_pages<F: Format>() -> Vec<Pfn> {
    on_machine::<F, _>(small(), |host, on| {
        let page = 1u64 << F::PAGE_SHIFT;
        let rw = Attr::READ | Attr::WRITE;
        let table = 1u64 << F::shift(Level(1));
        // The first entries of the kernel's half are the host's.
        let start = F::KERNEL_START + (16 << F::shift(F::LAYOUT.root()));
        let mut range = host.kernel().claim(on, VirtAddr(start), table).unwrap();
        let first = Pfn(3 << F::PAGE_ORDER);
        // SAFETY: 1. nobody uses the addresses.
        unsafe { range.map(on, VirtAddr(start), first, 2, rw, AllocFlags::NORMAL).unwrap() };
        let mut frames: Vec<Pfn> =
            (0..2).map(|i| range.query(on, VirtAddr(start + i * page)).unwrap().0).collect();
        range.unmap(on, VirtAddr(start), 2, |_, _| {}).unwrap();
        let mut boot = host.boot(Vmalloc::<F, DirectMap>::bytes(table)).unwrap();
        let mut areas = Vmalloc::new(&mut boot, range).unwrap();
        let area = areas.alloc(on, 3, rw, AllocFlags::NORMAL).unwrap();
        let first = area.start().0;
        frames.extend((0..3).map(|i| areas.range().query(on, VirtAddr(first + i * page)).unwrap().0));
        areas.free(on, area).unwrap();
        areas.finish(on).unwrap();
        let range = areas.into_range().map_err(|refused| refused.error).unwrap();
        range.release(on, |_, _| panic!("a page is left")).unwrap_or_else(|(e, _)| panic!("{e}"));
        frames
    })
}

#[test]
fn pages_of_the_kernel_are_blocks_of_frames() {
    fn of<F: Format>() {
        let frames = kernel_pages::<F>();
        assert_eq!(frames[..2], [Pfn(3 << F::PAGE_ORDER), Pfn(4 << F::PAGE_ORDER)]);
        let mut of_area = frames[2..].to_vec();
        assert!(of_area.iter().all(|pfn| pfn.0 % (1 << F::PAGE_ORDER) == 0), "{of_area:?}");
        of_area.sort_unstable();
        let apart = of_area.windows(2).all(|two| two[1].0 - two[0].0 >= 1 << F::PAGE_ORDER);
        assert!(apart, "pages share frames: {of_area:?}");
    }
    of::<Aarch64Upper>();
    of::<Aarch64K16Upper>();
    of::<Aarch64K64Upper>();
}

#[test]
fn pages_of_several_frames_are_cleared_ahead_whole() {
    let touched = HostConfig { bytes: 64 << 20, touch_data: true, use_lines: 1024, ..HostConfig::default() };
    on_machine::<Aarch64K64, _>(touched, |_, on| {
        let mut space = Space::<Aarch64K64>::new(on).unwrap();
        let heap = VirtRange::fixed::<0x100_0000, 0x140_0000>();
        let rw = AreaFlags::READ.with(AreaFlags::WRITE);
        let mut cleared = 0;
        for _ in 0..4 {
            space.edit(on).unwrap().mmap(heap, rw, 0).unwrap();
            for at in (heap.start..heap.end).step_by(1 << 16) {
                // The host looks at each page that is handed out as zero, and writes to it.
                space.fault(on, VirtAddr(at), Access::Write).unwrap();
            }
            space.edit(on).unwrap().munmap(heap).unwrap();
            cleared += on.data().zero_counts().ahead;
            let made = on.clear_ahead(40);
            assert!(made <= 40 + 16, "{made} frames are cleared, of 40");
        }
        let counts = on.data().zero_counts();
        assert!(cleared > 0 && counts.found > 0, "{counts:?}");
        space.end(on).unwrap();
    })
}

#[test]
fn there_are_no_data_frames_of_an_order_that_memory_has_not() {
    let host = Host::<X>::new(small()).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    for order in [11, 64, u8::MAX] {
        let mut boot = host.boot(DataFrames::bytes(1, 1)).unwrap();
        let data = DataFrames::of_order(&mut boot, host.frames(), 1, order).unwrap();
        assert!(data.take(host.frames(), &pin, AllocFlags::NORMAL).is_err());
        assert_eq!((data.resting(), data.drain(host.frames(), &pin)), (0, 0));
    }
}

/// Maps a page to frame `pfn`, and two pages from it on.
fn maps<F: Format>(pfn: Pfn) -> [Result<(), MapError>; 2] {
    on_machine::<F, _>(small(), |_, on| {
        let mut tree = Tree::<F>::new(on, AllocFlags::NORMAL).unwrap();
        let mut edit = tree.edit(on).unwrap();
        let range = VirtRange::new(VA, VA + (2 << F::PAGE_SHIFT)).unwrap();
        let attr = Attr::USER | Attr::READ;
        // SAFETY: 1. no program runs in the tree.
        let one = unsafe { edit.map(VirtAddr(VA - (1 << F::PAGE_SHIFT)), pfn, attr, AllocFlags::NORMAL) };
        // SAFETY: as above.
        let two = unsafe { edit.map_range(range, pfn, attr) };
        drop(edit);
        let tables = tree.count(Level::PTE);
        assert_eq!(tables > 0, one.is_ok() || two.is_ok(), "a refused call has made a table");
        tree.end(on, |_, _, _| {}).map_err(|refused| refused.error).unwrap();
        [one, two]
    })
}

#[test]
fn frames_that_no_entry_can_name_are_refused_and_change_nothing() {
    let bad = |first, format| Err(MapError::BadFrame { first, format });
    assert_eq!(maps::<X>(Pfn(0xffff_0003)), [Ok(()); 2]);
    // In the middle of a page.
    assert_eq!(maps::<Aarch64K16>(Pfn(0x1001)), [bad(Pfn(0x1001), "AArch64 16K"); 2]);
    assert_eq!(maps::<Aarch64K64>(Pfn(0x1008)), [bad(Pfn(0x1008), "AArch64 64K"); 2]);
    assert_eq!(maps::<Aarch64K64>(Pfn(0x1010)), [Ok(()); 2]);
    // Beyond the last physical address.
    assert_eq!(maps::<I386>(Pfn(0x10_0000)), [bad(Pfn(0x10_0000), "i386"); 2]);
    let last = Pfn(0xf_ffff);
    assert_eq!(maps::<I386>(last), [Ok(()), bad(last, "i386")]);
    // The last number, too.
    let last = Pfn(u32::MAX - 1);
    assert_eq!(maps::<X>(last)[0], Ok(()));
    assert_eq!(maps::<X>(Pfn(u32::MAX)), [Ok(()), bad(Pfn(u32::MAX), "x86-64")]);
    let last = Pfn(0xf_ffff);
    let message = maps::<I386>(last)[1].unwrap_err().to_string();
    assert!(message.contains("i386") && message.contains("0xfffff"), "{message}");
}

#[test]
fn memory_beyond_the_entries_is_refused_with_the_formats_name() {
    let small = HostConfig { bytes: 4 << 20, prefault: 0, ..HostConfig::default() };
    assert!(Host::<Narrow>::new(small).is_ok());
    let large = HostConfig { bytes: 16 << 20, prefault: 0, ..HostConfig::default() };
    let Err(HostError::TooHigh(error)) = Host::<Narrow>::new(large) else { panic!("it is not refused") };
    assert_eq!((error.format, error.bits, error.highest), ("narrow", 22, Pfn(0xfff)));
    assert!(error.to_string().starts_with("entries of narrow have 22 bits of address"), "{error}");
}

#[test]
fn a_root_of_several_frames_is_mapped_forked_and_given_back() {
    on_machine::<Wide, _>(small(), |host, on| {
        let mut space = Space::<Wide>::new(on).unwrap();
        let rw = AreaFlags::READ.with(AreaFlags::WRITE);
        // In the first and in the last entry of the root: the latter is in the second frame.
        let places = [VA, (1 << 40) - (1 << 30) + VA];
        for at in places {
            space.edit(on).unwrap().mmap(VirtRange::new(at, at + 4096).unwrap(), rw, 0).unwrap();
            space.fault(on, VirtAddr(at), Access::Write).unwrap();
        }
        let root = space.tree().root();
        assert_eq!(root.0 % (1 << 13), 0, "aligned to its size");
        // SAFETY: 1. it is an entry of a table in use.
        let last = unsafe { host.read(PhysAddr(root.0 + 8 * 1023), 8) };
        assert_ne!(last, Some(0));
        let child = space.edit(on).unwrap().fork().unwrap();
        for at in places {
            assert_eq!(
                child.tree().query(on, VirtAddr(at)).unwrap().0,
                space.tree().query(on, VirtAddr(at)).unwrap().0
            );
        }
        child.end(on).unwrap();
        space.end(on).unwrap();
    })
}

thread_local! {
    /// The entry through which an MMU writes as soon as it has been read.
    static WRITTEN: Cell<Option<u64>> = const { Cell::new(None) };
}

/// A slot in which an MMU may set bits after a read.
#[repr(transparent)]
struct Racing(Slot64);

// SAFETY: as `Slot64`, which does the work.
unsafe impl Slot for Racing {
    const FILLS_AT_ONCE: bool = Slot64::FILLS_AT_ONCE;

    fn load(&self) -> u64 {
        let raw = self.0.load();
        if WRITTEN.get() == Some(raw) {
            WRITTEN.set(None);
            self.0.store(raw | X::leaf(Level::PTE, Pfn(0), Attr::DIRTY));
        }
        raw
    }
    fn store(&self, raw: u64) {
        self.0.store(raw);
    }
    fn fill(&self, raw: u64) -> bool {
        self.0.fill(raw)
    }
    fn swap(&self, raw: u64) -> u64 {
        self.0.swap(raw)
    }
    fn exchange(&self, old: u64, new: u64) -> Result<(), u64> {
        self.0.exchange(old, new)
    }
}

/// x86-64 with such slots.
#[derive(Clone, Copy, Debug, Default)]
struct Raced;

like_x86_64!(Raced, Racing, "raced", 44, X::LAYOUT, X::LEVEL_NAMES, X::INDEX_BITS, X::USER_END, 256);

#[test]
fn an_unmapped_page_is_dirty_if_the_mmu_wrote_to_it_meanwhile() {
    on_machine::<Raced, _>(small(), |_, on| {
        let mut tree = Tree::<Raced>::new(on, AllocFlags::NORMAL).unwrap();
        tree.activate(on).unwrap();
        let attr = Attr::USER | Attr::READ | Attr::WRITE;
        let mut edit = tree.edit(on).unwrap();
        // SAFETY: 1. no program runs in the tree.
        unsafe { edit.map(VirtAddr(VA), Pfn(64), attr, AllocFlags::NORMAL).unwrap() };
        edit.flush();
        let mut edit = tree.edit(on).unwrap();
        WRITTEN.set(Some(X::leaf(Level::PTE, Pfn(64), attr)));
        let unmapped = edit.unmap(VirtAddr(VA)).map(|(pfn, attr)| (pfn, attr.has(Attr::DIRTY)));
        assert_eq!((unmapped, WRITTEN.get()), (Some((Pfn(64), true)), None));
        drop(edit);
        tree.deactivate(on).unwrap();
        tree.end(on, |_, _, _| {}).map_err(|refused| refused.error).unwrap();
    });
}
