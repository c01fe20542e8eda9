//! Changes of groups of which an MMU has set bits in one entry.
use ptarmigan::addr::{Pfn, PhysAddr, VirtAddr, VirtRange};
use ptarmigan::format::{Aarch64, Aarch64K16, Attr, Format, Sv39Napot};
use ptarmigan::frames::AllocFlags;
use ptarmigan::machine::Machine;
use ptarmigan::page::Level;
use ptarmigan::table::Tree;
use ptarmigan::window::{OpenWindow, WindowGuard};
use ptarmigan_hosted::{Host, HostConfig, HostMachine, NoTlb};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// An MMU notes a write in one entry of a group, for each of them. A walker that notes nothing
/// needs the bits in the entry that it uses.
fn bits_of_one_entry_become_those_of_all<F: Format>() {
    let host = Host::<F>::new(HostConfig { bytes: 32 << 20, ..HostConfig::default() }).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let machine = HostMachine::new(&host, host.plain().unwrap(), NoTlb).unwrap();
    let on = machine.on(&pin).unwrap();
    let (n, page) = (1usize << F::GROUP_BITS[0], 1u64 << F::PAGE_SHIFT);
    let group = VirtRange::new(n as u64 * page, 2 * n as u64 * page).unwrap();
    let attr = Attr::READ | Attr::WRITE | Attr::USER;
    let (set, both) = (Attr::ACCESSED | Attr::DIRTY, attr | Attr::ACCESSED | Attr::DIRTY);
    for written in 0..n {
        for how in 0..3 {
            let mut tree = Tree::<F>::new(on, AllocFlags::NORMAL).unwrap();
            // MMUs may use it: no plain stores.
            tree.activate(on).unwrap();
            let (at, first) = (VirtAddr(group.start), Pfn((n << F::PAGE_SHIFT >> 12) as u32));
            // SAFETY: 1. no program runs in this space.
            let mapped =
                unsafe { tree.edit(on).unwrap().map_group(at, Level::PTE, first, attr, AllocFlags::NORMAL) };
            mapped.unwrap();
            let mut table = PhysAddr(0);
            tree.view().on(on).unwrap().leaf_tables(group, |_, at, _| table = at);
            let entries = host.window().open(table).base().cast::<AtomicU64>();
            // SAFETY: the table is there until the tree ends, and all its users use atomics.
            let entry = |i: usize| unsafe { &*entries.wrapping_add(n + i) };
            let raw = entry(written).load(SeqCst);
            let pfn = F::frame(Level::PTE, raw);
            let hint = |i: usize, raw| F::unhinted(Level::PTE, n + i, raw);
            // As the MMU does it: the hint stays.
            let noted = F::leaf(Level::PTE, F::frame(Level::PTE, hint(written, raw)), both);
            let noted = if F::is_hinted(Level::PTE, raw) { F::hinted(Level::PTE, noted) } else { noted };
            entry(written).store(noted, SeqCst);
            assert_eq!(F::frame(Level::PTE, noted), pfn);
            let mut edit = tree.edit(on).unwrap();
            let last = VirtAddr(group.end - page);
            match how {
                0 => edit.change_range(group, |attr| attr | set).unwrap(),
                1 => drop(edit.protect(last, both).unwrap()),
                _ => drop(edit.cursor(VirtRange::new(last.0, group.end).unwrap()).protect(both).unwrap()),
            }
            edit.flush();
            let attrs: Vec<Attr> = (0..n).map(|i| F::attr(Level::PTE, entry(i).load(SeqCst))).collect();
            assert_eq!(attrs[n - 1], both, "{}, entry {written}, call {how}", F::NAME);
            assert!(how > 0 || attrs.iter().all(|attr| *attr == both), "{}: {attrs:?}", F::NAME);
            tree.deactivate(on).unwrap();
            tree.end(on, |_, _, _| {}).map_err(|refused| refused.error).unwrap();
        }
    }
}

#[test]
fn bits_in_one_entry_do_not_hide_a_change_of_its_group() {
    bits_of_one_entry_become_those_of_all::<Aarch64>();
    bits_of_one_entry_become_those_of_all::<Aarch64K16>();
    bits_of_one_entry_become_those_of_all::<Sv39Napot>();
}
