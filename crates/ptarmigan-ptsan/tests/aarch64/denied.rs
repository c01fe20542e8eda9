//! A TLB that keeps entries which deny an access, as AArch64's may: only translation, address size
//! and access flag faults are never cached.
use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::cpu::Pinned;
use ptarmigan::format::{Aarch64, Format, Formats};
use ptarmigan::machine::Machine;
use ptarmigan::page::Level;
use ptarmigan::space::{Access, AreaFlags, Done, Space};
use ptarmigan::tlb::{Invalidation, Mmu, NewEntry, Root, Scope, SpaceId, Structures, TlbConfig};
use ptarmigan_hosted::{Delivery, Host, HostConfig, HostMachine};
use std::collections::HashMap;
use std::sync::Mutex;

/// A CPU's TLB: entries by address. `TOLD`: it is told of entries that allow more.
#[derive(Default)]
struct Keeps<const TOLD: bool>(Mutex<HashMap<u64, u64>>);

impl<const TOLD: bool> Keeps<TOLD> {
    /// An access; whether it is let through. The entry that the walk finds is kept if it is valid,
    /// whatever it allows.
    fn access(&self, at: u64, walked: u64, access: Access) -> bool {
        let mut tlb = self.0.lock().unwrap();
        let raw = *tlb.entry(at).or_insert(walked);
        if !Aarch64::is_present(Level::PTE, raw) {
            tlb.remove(&at);
        }
        Aarch64::allows(Level::PTE, raw, access)
    }
}

// SAFETY: 1. to 7. kept entries are dropped where they have to be; with `TOLD` false, the machine
// claims that it need not be told, which the test is about.
unsafe impl<const TOLD: bool> Mmu for &Keeps<TOLD> {
    const FORMATS: Formats = Formats::of::<Aarch64>();
    const STRUCTURES: Structures = Structures::Tagged;
    const NEEDS_ENTRY_VALID: bool = TOLD;
    fn invalidate(&self, _: &Pinned<'_>, what: &Invalidation) {
        self.0.lock().unwrap().retain(|at, _| !what.scope.covers(*at));
    }
    fn invalidate_kernel(&self, _: &Pinned<'_>, _: &Scope) {}
    fn load(&self, _: &Pinned<'_>, _: &Root) {
        self.0.lock().unwrap().clear();
    }
    fn unload(&self, _: &Pinned<'_>, _: SpaceId) {
        self.0.lock().unwrap().clear();
    }
    fn entry_became_valid(&self, _: &Pinned<'_>, entry: &NewEntry) {
        // An invalid entry is never cached.
        if entry.was == 0 || !Aarch64::is_present(Level::PTE, entry.was) {
            return;
        }
        assert_eq!((entry.asid, entry.pages), (Some(0), 1));
        self.0.lock().unwrap().remove(&entry.va);
    }
}

/// A parent forks, the child ends, the parent writes to a page that it has read meanwhile; how many
/// faults that takes.
fn write_after_fork<const TOLD: bool>() -> usize {
    let host = Host::<Aarch64>::new(HostConfig { bytes: 64 << 20, ..HostConfig::default() }).unwrap();
    let mmu = Keeps::<TOLD>::default();
    let machine =
        HostMachine::with_tlb(&host, host.quicklists().unwrap(), &mmu, TlbConfig::new(1), Delivery::AtOnce)
            .unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let on = machine.on(&pin).unwrap();
    let mut space = Space::<Aarch64>::new(on).unwrap();
    space.activate(on).unwrap();
    let at = 0x40_0000;
    space.edit(on).unwrap().mmap(VirtRange::new(at, at + 4096).unwrap(), AreaFlags(3), 0).unwrap();
    space.fault(on, VirtAddr(at), Access::Write).unwrap();
    let walked = |space: &Space<Aarch64>| {
        let (pfn, attr) = space.tree().query(on, VirtAddr(at)).unwrap();
        Aarch64::leaf(Level::PTE, pfn, attr)
    };
    space.edit(on).unwrap().fork().unwrap().end(on).unwrap();
    assert!(mmu.access(at, walked(&space), Access::Read)); // the read-only entry is in the TLB
    let mut faults = 0;
    while faults < 100 && !mmu.access(at, walked(&space), Access::Write) {
        let done = space.fault(on, VirtAddr(at), Access::Write).unwrap();
        assert_eq!(done, if faults == 0 { Done::Reused } else { Done::Spurious });
        faults += 1;
    }
    space.end(on).unwrap();
    machine.drain(&slots);
    drop(machine);
    host.audit().unwrap();
    faults
}

#[test]
fn a_tlb_that_is_not_told_faults_for_ever() {
    assert_eq!(write_after_fork::<true>(), 1);
    assert_eq!(write_after_fork::<false>(), 100);
}
