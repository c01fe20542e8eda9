//! What the library demands of formats that others write.
#![cfg(not(loom))]
#[macro_use]
#[path = "common/entries.rs"]
mod entries;
use ptarmigan::addr::{Pfn, PhysAddr, VirtAddr, VirtRange};
use ptarmigan::format::{Access, Attr, Format, Slot64, X86_64};
use ptarmigan::frames::AllocFlags;
use ptarmigan::hosted::{Host, HostConfig, HostMachine, NoTlb};
use ptarmigan::machine::Machine;
use ptarmigan::page::{Layout, Level, MAX_LEVELS};
use ptarmigan::table::Tree;
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
// a test that maps frames that nothing reaches.
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
    const ROOT_IN_REGISTERS: bool = false;
    const PHYS_BITS: u32 = 44;
    const LEAF_LEVELS: u8 = 1;
    const EVER_BREAKS: bool = false;
    const KEPT: u64 = 0;
    entries_of_x86_64!();
    fn leaf(level: Level, pfn: Pfn, attr: Attr) -> u64 {
        X::leaf(level, Self::odd(pfn), attr)
    }
    fn frame(level: Level, raw: u64) -> Pfn {
        Self::odd(X::frame(level, raw))
    }
    fn needs_break(_: Level, _: u64, _: u64) -> bool {
        false
    }
}

/// The frames of four pages that are mapped to those from 64 on.
fn mapped<F: Format>() -> Vec<u32> {
    let config = HostConfig { bytes: 16 << 20, prefault: 0, ..HostConfig::default() };
    let host = Host::<F>::new(config).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    let on = m.on(&pin).unwrap();
    let mut tree = Tree::<F>::new(on, AllocFlags::NORMAL).unwrap();
    let mut edit = tree.edit(on).unwrap();
    let range = VirtRange { start: VA, end: VA + 4 * 4096 };
    // SAFETY: 1. no program runs in the tree.
    unsafe { edit.map_range(range, Pfn(64), Attr::USER | Attr::READ).unwrap() };
    (0..4).map(|i| edit.query(VirtAddr(VA + i * 4096)).unwrap().0.0).collect()
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
