//! Set-up walks the root that maps the kernel: one of another mode, and a window that it maps
//! elsewhere, are refused before any write.
use ptarmigan::addr::{Pfn, PhysAddr};
use ptarmigan::arch::aarch64::{self, Tlbi};
use ptarmigan::arch::riscv64::{self, SfenceVma};
use ptarmigan::arch::x86_64::{self, X86Mmu};
use ptarmigan::arch::{NoIpi, aarch64::Granule};
use ptarmigan::cpu::{CpuSet, NodeId, Pinned};
use ptarmigan::format::{
    Aarch64, Attr, Format, Formats, I386, Keyed, Sev, Slot, Sv32, Sv39, Sv39Napot, Sv48, Sv57, Tdx, X86_64,
    X86_64La57, X86Pae,
};
use ptarmigan::frames::{MemoryRun, ZoneClass};
use ptarmigan::page::Level;
use ptarmigan::setup::{Place, Setup, SetupError};
use ptarmigan::tlb::{Invalidation, Ipi, Mmu, Root, Scope, Shootdown, SpaceId, Structures};
use ptarmigan::window::{Window, WindowGuard};
use std::cell::Cell;
use std::convert::Infallible;
use std::marker::PhantomData;
use std::rc::Rc;

/// MMUs that walk tables of `F`: never, as set-up is refused before.
struct Walks<F>(PhantomData<fn() -> F>);

// SAFETY: no CPU translates by them.
unsafe impl<F: Format> Mmu for Walks<F> {
    const FORMATS: Formats = Formats::of::<F>();
    const STRUCTURES: Structures = Structures::AnyInvalidation;
    const NEEDS_ENTRY_VALID: bool = false;
    fn invalidate(&self, _: &Pinned<'_>, _: &Invalidation) {}
    fn invalidate_kernel(&self, _: &Pinned<'_>, _: &Scope) {}
    fn load(&self, _: &Pinned<'_>, _: &Root) {}
    fn unload(&self, _: &Pinned<'_>, _: SpaceId) {}
}

impl<F: Format> Ipi for Walks<F> {
    fn send(&self, _: &Pinned<'_>, _: &CpuSet, _: &dyn Fn(&Pinned<'_>)) {}
}

/// Frames of tables, from frame 0 on.
const TABLES: usize = 64;
/// The memory: two frames that a page of 4 MiB does not hold. They are too few for a machine, so
/// that set-up ends behind the walk, without a write.
const MEMORY: Pfn = Pfn(0x0_0bff);
const FRAMES: u32 = 2;

/// Aligned, so that an address in it does not depend on where the allocator puts the tables.
#[repr(C, align(4096))]
struct TablePage([Cell<u64>; 512]);

/// A kernel that has booted: tables, and memory at `map` in the kernel's half.
struct Boot {
    tables: Rc<[TablePage]>,
    used: Cell<u64>,
    map: u64,
}

/// Tables are read where they are. The memory, which is never read, is at its address of the
/// kernel's.
#[derive(Clone, Copy)]
struct Shown<'b>(&'b Boot);

struct At(*mut u8);

// SAFETY: 1. to 3. of the tables; of the memory, no pointer is used.
unsafe impl Window for Shown<'_> {
    type Guard<'a>
        = At
    where
        Self: 'a;
    type Error = Infallible;
    fn map(&self, at: PhysAddr) -> Result<At, Infallible> {
        Ok(At(match at.0 < (TABLES << 12) as u64 {
            true => self.0.table(at.0).cast(),
            false => std::ptr::without_provenance_mut(self.0.map.wrapping_add(at.0) as usize),
        }))
    }
    fn limit(&self) -> PhysAddr {
        PhysAddr(1 << 31)
    }
}
// SAFETY: a test has one thread.
unsafe impl Sync for Shown<'_> {}
// SAFETY: as above.
unsafe impl WindowGuard for At {
    fn base(&self) -> *mut u8 {
        self.0
    }
}

impl Boot {
    /// Maps the memory of two frames at `map` by leaves of tables of `level`.
    fn new<F: Format>(map: u64, level: Level, attr: Attr) -> Self {
        let tables = (0..TABLES).map(|_| TablePage([const { Cell::new(0) }; 512])).collect();
        let boot = Boot { tables, used: Cell::new(1), map };
        for frame in MEMORY.0..MEMORY.0 + FRAMES {
            boot.map::<F>(Pfn(frame), level, attr);
        }
        boot
    }

    /// The root is at 0x1000.
    fn root(&self) -> u64 {
        0x1000
    }

    fn table(&self, at: u64) -> *mut u64 {
        self.tables.as_ptr().wrapping_byte_add(at as usize).cast::<u64>().cast_mut()
    }

    fn map<F: Format>(&self, pfn: Pfn, to: Level, attr: Attr) {
        let va = self.map.wrapping_add(pfn.addr().0);
        let (mut table, mut level) = (self.root(), F::LAYOUT.root());
        loop {
            let slot = self.table(table).cast::<F::Slot>().wrapping_add(F::index(level, va));
            // SAFETY: an entry of a table.
            let slot = unsafe { &*slot };
            if level == to {
                let first = (u64::from(pfn.0) & !((1 << (F::shift(level) - 12)) - 1)) as u32;
                return slot.store(F::leaf(level, Pfn(first), attr));
            }
            let next = F::linked(level, slot.load()).map_or_else(
                || {
                    self.used.set(self.used.get() + 1);
                    let at = self.used.get() << 12;
                    slot.store(F::link(level, PhysAddr(at)));
                    at
                },
                |at| at.0,
            );
            (table, level) = (next, Level(level.0 - 1));
        }
    }

    fn set_up<F: Format, S: Shootdown>(&self, hardware: S) -> SetupError {
        let run = MemoryRun { start: MEMORY, frames: FRAMES, node: NodeId(0), class: ZoneClass::Low };
        let runs = [run];
        let place = Place::<F, _>::new();
        let setup = Setup::new(&runs, Shown(self), hardware).kernel_root(self.root());
        // SAFETY: 1. to 3. it is refused: nothing is written.
        unsafe { setup.build_in(&place) }.err().expect("so few frames are no machine")
    }

    fn walked<F: Format>(&self) -> SetupError {
        self.set_up::<F, _>(Walks::<F>(PhantomData))
    }

    /// Whether the walk finds the memory.
    fn is_taken<F: Format>(&self) -> bool {
        match self.walked::<F>() {
            SetupError::TooSmall { .. } => true,
            SetupError::WindowShows { .. } | SetupError::BadKernelEntry { .. } => false,
            e => panic!("{}: {e}", F::NAME),
        }
    }
}

/// Pages of the kernel's.
const KERNEL: Attr = Attr(Attr::READ.0 | Attr::WRITE.0 | Attr::ACCESSED.0 | Attr::DIRTY.0);
/// Where kernels have the memory: at the start of their half.
fn start<F: Format>() -> u64 {
    F::KERNEL_START
}

#[test]
fn a_root_that_does_not_map_the_window_is_refused() {
    fn of<F: Format>() {
        let top = F::LAYOUT.root();
        for level in (0..=top.0).map(Level).filter(|level| F::LEAF_LEVELS >> level.0 & 1 == 1) {
            let good = Boot::new::<F>(start::<F>(), level, KERNEL);
            assert!(good.is_taken::<F>(), "{} {level:?}: {}", F::NAME, good.walked::<F>());
            // The window is 256 MiB off, either way: other frames, or none.
            for off in [0x1000_0000u64, 0x1000_0000u64.wrapping_neg()] {
                let lies =
                    Boot { map: good.map.wrapping_add(off), tables: good.tables.clone(), used: Cell::new(0) };
                let said = lies.walked::<F>().to_string();
                assert!(said.starts_with("set-up: window: it has 0xbff000 at 0x"), "{}: {said}", F::NAME);
                assert!(!said.contains('\n'));
            }
            // One page of two is that of another frame.
            if level.0 == 0 {
                let booted = Boot::new::<F>(start::<F>(), level, KERNEL);
                let wrong = Boot { map: booted.map.wrapping_add(0x1000), ..booted };
                wrong.map::<F>(Pfn(MEMORY.0), level, KERNEL);
                let wrong = Boot { map: booted.map, ..wrong };
                let shows = Some(u64::from(MEMORY.0) << 12);
                let expected = SetupError::WindowShows { at: 0xc0_0000, va: start::<F>() + 0xc0_0000, shows };
                assert_eq!(wrong.walked::<F>(), expected, "{}", F::NAME);
            }
            for bad in [KERNEL.without(Attr::WRITE), KERNEL | Attr::USER] {
                let boot = Boot::new::<F>(start::<F>(), level, bad);
                assert!(!boot.is_taken::<F>(), "{} {level:?} {bad}", F::NAME);
            }
        }
        // The user's half is not the kernel's in every space.
        let low = Boot { map: 0, ..Boot::new::<F>(start::<F>(), Level(0), KERNEL) };
        assert!(!low.is_taken::<F>(), "{}", F::NAME);
    }
    of::<X86_64>();
    of::<X86_64La57>();
    of::<X86Pae>();
    of::<I386>();
    of::<Sv32>();
    of::<Sv39>();
    of::<Sv39Napot>();
    of::<Sv48>();
    of::<Sv57>();
    of::<Keyed<X86_64>>();
    of::<Sev<X86_64, 47>>();
    of::<Tdx<X86_64La57, 51>>();
}

#[test]
fn a_root_of_another_mode_is_refused() {
    /// A kernel booted with tables of `Is`, and sets up `Said`.
    fn booted<Is: Format, Said: Format>() -> bool {
        let levels = (0..Is::LAYOUT.levels).map(Level).filter(|level| Is::LEAF_LEVELS >> level.0 & 1 == 1);
        let taken = levels.map(|level| {
            // Where both have the kernel's half.
            let at = start::<Is>().max(start::<Said>());
            Boot::new::<Is>(at, level, KERNEL).is_taken::<Said>()
        });
        taken.fold(false, |any, taken| any | taken)
    }
    assert!(booted::<Sv39, Sv39>() && booted::<X86_64, X86_64>());
    assert!(!booted::<Sv39, Sv48>() && !booted::<Sv48, Sv39>());
    assert!(!booted::<Sv39, Sv57>() && !booted::<Sv57, Sv39>());
    assert!(!booted::<Sv48, Sv57>() && !booted::<Sv57, Sv48>());
    assert!(!booted::<X86_64La57, X86_64>() && !booted::<X86_64, X86_64La57>());
    assert!(!booted::<I386, X86Pae>() && !booted::<X86Pae, I386>());
    assert!(!booted::<Sv39, X86_64>() && !booted::<X86_64, Sv39>());
    // The bit of encryption.
    assert!(!booted::<Sev<X86_64, 47>, X86_64>() && !booted::<X86_64, Sev<X86_64, 47>>());
    assert!(!booted::<Sev<X86_64, 47>, Sev<X86_64, 51>>() && !booted::<Sev<X86_64, 51>, Sev<X86_64, 47>>());
    assert!(!booted::<Sev<X86_64, 47>, Tdx<X86_64, 47>>() && !booted::<Tdx<X86_64, 47>, Sev<X86_64, 47>>());
}

/// A hart in a mode, whose loads fail at an address.
struct Hart {
    mode: u64,
    fails: Option<u64>,
}

// SAFETY: no hart translates by it.
unsafe impl riscv64::Instructions for Hart {
    fn sfence_vma(&self, _: &Pinned<'_>, _: Option<u64>, _: Option<u16>) {}
    fn satp(&self, _: &Pinned<'_>) -> u64 {
        self.mode << 60 | 0x80_001
    }
    unsafe fn load_satp(&self, _: &Pinned<'_>, _: u64) {}
    fn can_load(&self, _: &Pinned<'_>, at: *const u8) -> bool {
        self.fails.is_none_or(|fails| at.addr() as u64 != fails)
    }
    fn fence_i_everywhere(&self, _: &Pinned<'_>) {}
}

fn harts<F: riscv64::Tables>(hart: Hart) -> SfenceVma<F, NoIpi, Hart> {
    // SAFETY: 1. 0 are none.
    unsafe { SfenceVma::with_asids(NoIpi, hart, 0) }
}

#[test]
fn a_mode_of_another_format_is_refused() {
    let boot = Boot::new::<Sv48>(start::<Sv39>(), Level(0), KERNEL);
    let in_mode = |mode| boot.set_up::<Sv48, _>(harts::<Sv48>(Hart { mode, fails: None }));
    assert!(matches!(in_mode(9), SetupError::TooSmall { .. }), "{}", in_mode(9));
    let said = in_mode(8).to_string();
    assert!(said.contains("satp.MODE is 8, and the MMUs' format goes with 9"), "{said}");
    assert!(matches!(in_mode(0), SetupError::Mode(_)));
    let as_39 = boot.set_up::<Sv39, _>(harts::<Sv39>(Hart { mode: 9, fails: None }));
    assert!(matches!(as_39, SetupError::Mode(_)), "{as_39}");
    let as_57 = boot.set_up::<Sv57, _>(harts::<Sv57>(Hart { mode: 9, fails: None }));
    assert!(matches!(as_57, SetupError::Mode(_)), "{as_57}");
}

/// A CPU with a value of CR4, whose instructions have no effect.
struct Cr4(u64);

// SAFETY: no CPU translates by it.
unsafe impl x86_64::Instructions for Cr4 {
    fn invlpg(&self, _: &Pinned<'_>, _: u64) {}
    fn invpcid(&self, _: &Pinned<'_>, _: x86_64::Invpcid) {}
    fn cr3(&self, _: &Pinned<'_>) -> u64 {
        0x1000
    }
    unsafe fn load_cr3(&self, _: &Pinned<'_>, _: u64) {}
    fn cr4(&self, _: &Pinned<'_>) -> u64 {
        self.0
    }
    fn toggle_pge(&self, _: &Pinned<'_>) {}
}

/// The root and the window are right: the register alone says that CPUs walk more levels, or fewer.
#[test]
fn cr4_of_another_format_is_refused() {
    const PAE: u64 = 1 << 5;
    const LA57: u64 = 1 << 12;
    // PSE, PGE and PCIDE.
    const OTHERS: u64 = 1 << 4 | 1 << 7 | 1 << 17;
    fn said<F: x86_64::Tables>(cr4: u64) -> Option<String> {
        let boot = Boot::new::<F>(start::<F>(), Level(0), KERNEL);
        // SAFETY: 1. and 2. no CPU translates.
        let mmus = unsafe { X86Mmu::<F, _, _>::with_features(NoIpi, Cr4(cr4), x86_64::Features::NONE) };
        match boot.set_up::<F, _>(mmus) {
            SetupError::TooSmall { .. } => None,
            e => Some(e.to_string()),
        }
    }
    let refused = |said: Option<String>, by: &str| {
        assert_eq!(
            said.as_deref().and_then(|said| said.strip_prefix("set-up: the CPU's mode: ")),
            Some(format!("{by}; set it so, or name another format").as_str())
        );
    };
    for others in [0, OTHERS] {
        assert_eq!(said::<I386>(others), None);
        assert_eq!(said::<X86Pae>(PAE | others), None);
        assert_eq!(said::<X86_64>(PAE | others), None);
        assert_eq!(said::<Sev<X86_64, 47>>(PAE | others), None);
        assert_eq!(said::<Keyed<X86_64>>(PAE | others), None);
        assert_eq!(said::<X86_64La57>(PAE | LA57 | others), None);
        let five = "CR4.LA57 is 1, and the MMUs' format goes with 0";
        refused(said::<X86_64>(PAE | LA57 | others), five);
        refused(said::<Sev<X86_64, 47>>(PAE | LA57 | others), five);
        let four = "CR4.LA57 is 0, and the MMUs' format goes with 1";
        refused(said::<X86_64La57>(PAE | others), four);
        refused(said::<Tdx<X86_64La57, 51>>(PAE | others), four);
        refused(said::<I386>(PAE | others), "CR4.PAE is 1, and the MMUs' format goes with 0");
        refused(said::<X86Pae>(others), "CR4.PAE is 0, and the MMUs' format goes with 1");
        // Outside long mode the bit has no effect.
        assert_eq!(said::<X86Pae>(PAE | LA57 | others), None);
    }
}

/// A load by the window that is no memory: the hart says so, and the window is named.
#[test]
fn a_window_that_shows_no_memory_is_refused_before_it_is_read() {
    let boot = Boot::new::<Sv48>(start::<Sv48>(), Level(0), KERNEL);
    let root = boot.table(boot.root()).addr() as u64;
    let hart = |fails| harts::<Sv48>(Hart { mode: 9, fails: Some(fails) });
    let refused = boot.set_up::<Sv48, _>(hart(root));
    assert_eq!(refused, SetupError::WindowShows { at: boot.root(), va: root, shows: None });
    let table = boot.table(2 << 12).addr() as u64;
    let refused = boot.set_up::<Sv48, _>(hart(table));
    assert_eq!(refused, SetupError::WindowShows { at: 2 << 12, va: table, shows: None });
}

/// A CPU whose instructions have no effect.
struct Arm;

// SAFETY: no CPU translates by it.
unsafe impl aarch64::Instructions for Arm {
    fn tlbi(&self, _: &Pinned<'_>, _: aarch64::Op, _: u64) {}
    fn barrier(&self, _: &Pinned<'_>, _: aarch64::Barrier) {}
    fn ttbr0(&self, _: &Pinned<'_>) -> u64 {
        0
    }
    unsafe fn load_ttbr0(&self, _: &Pinned<'_>, _: u64) {}
    fn ctr(&self, _: &Pinned<'_>) -> u64 {
        0
    }
    unsafe fn dc_cvau(&self, _: &Pinned<'_>, _: *const u8) {}
    fn ic_ialluis(&self, _: &Pinned<'_>) {}
}

#[test]
fn a_granule_of_another_format_is_refused() {
    let boot = Boot::new::<Sv48>(0, Level(0), KERNEL);
    let of = |granule| {
        let features = aarch64::Features { granule, asids: 0xff, ranges: true, ttl: true };
        // SAFETY: 1. no CPU translates.
        let mmus = unsafe { Tlbi::<Aarch64, _, _>::with_features(NoIpi, Arm, features) };
        boot.set_up::<Aarch64, _>(mmus)
    };
    assert!(matches!(of(Granule::K4), SetupError::TooSmall { .. }));
    let said = of(Granule::K16).to_string();
    assert!(said.contains("TCR_EL1 is 14, and the MMUs' format goes with 12"), "{said}");
}
