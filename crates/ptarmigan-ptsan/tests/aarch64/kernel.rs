//! Tables of the kernel's half that go: the invalidations that the MMU is told.
use ptarmigan::addr::{Pfn, VirtAddr};
use ptarmigan::format::{Attr, X86_64};
use ptarmigan::frames::AllocFlags;
use ptarmigan::machine::Machine;
use ptarmigan::tlb::{Structures, TlbConfig};
use ptarmigan_hosted::test::{Call, MmuTraits, TestMmu};
use ptarmigan_hosted::{Delivery, Host, HostConfig, HostMachine};

const PAGE: u64 = 4096;
/// The range that a leaf table maps.
const TABLE: u64 = 2 << 20;

/// MMUs that broadcast and are told of new entries.
enum Mmus<const TAGGED: bool> {}

impl<const TAGGED: bool> MmuTraits for Mmus<TAGGED> {
    const BROADCASTS: bool = true;
    const STRUCTURES: Structures = if TAGGED { Structures::Tagged } else { Structures::AnyInvalidation };
    const NEEDS_ENTRY_VALID: bool = true;
}

/// Pages from the start of a range.
type Pages = Vec<u64>;

/// Maps a page in the second of three leaf tables, and 512 from the third on, and releases the
/// range. Returns the pages that the MMU is told to forget, from the start of the range; and which
/// entries have become valid.
fn release<const TAGGED: bool>() -> (Vec<Option<Pages>>, Vec<(u64, u64)>) {
    let host = Host::<X86_64>::new(HostConfig { bytes: 64 << 20, ..HostConfig::default() }).unwrap();
    let mmu = TestMmu::<Mmus<TAGGED>>::default();
    let tlb = TlbConfig { asids: 8, costs: crate::driver::COSTS, ..TlbConfig::new(1) };
    let machine =
        HostMachine::with_tlb(&host, host.quicklists().unwrap(), &mmu, tlb, Delivery::AtOnce).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let on = machine.on(&pin).unwrap();
    let start = 0xffff_c000_0000_0000;
    let mut range = host.kernel().claim(on, VirtAddr(start), 3 * TABLE).unwrap();
    for (at, pages) in [(start + TABLE + PAGE, 1), (start + 2 * TABLE, 512)] {
        // SAFETY: 1. no code reads or writes through the mapping.
        unsafe { range.map(on, VirtAddr(at), Pfn(100), pages, Attr::READ, AllocFlags::NORMAL) }.unwrap();
    }
    range.release(on, |_, _| {}).map_err(|(e, _)| e).unwrap();
    let page = |at: u64| (at - start) / PAGE;
    let (mut scopes, mut entries) = (Vec::new(), Vec::new());
    for call in mmu.calls() {
        match call {
            Call::InvalidateKernel(_, scope) => {
                scopes.push(scope.pages().map(|pages| pages.map(page).collect()));
            }
            Call::EntryBecameValid(_, entry) => entries.push((page(entry.va), entry.pages)),
            _ => {}
        }
    }
    (scopes, entries)
}

#[test]
fn a_release_names_an_address_of_each_table_or_everything() {
    // More pages than are forgotten one by one.
    let pages = None;
    // Leaf tables, and the one above them, which ends below the root's entry.
    let (tagged, entries) = release::<true>();
    let tables = tagged[1].as_ref().expect("by address");
    assert!(tables.contains(&512) && tables.contains(&1024), "{tables:?}");
    assert!(tables.len() < 33, "{tables:?}");
    assert_eq!((&tagged[0], tagged.len()), (&pages, 2));
    assert_eq!(release::<false>().0, [pages, None]);
    // One call for each run, not for each page.
    assert_eq!(entries, [(513, 1), (1024, 512)]);
}
