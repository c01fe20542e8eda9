//! Frames that instructions may be fetched from, and frames of another memory type: the machine is
//! told before the entry is stored.
use ptarmigan::addr::{Pfn, PhysAddr, VirtAddr, VirtRange};
use ptarmigan::cpu::Pinned;
use ptarmigan::format::{Aarch64, Attr, Entry, Format, FormatExt, MemoryType};
use ptarmigan::frames::{AllocFlags, DataFrames, Frames, NoFrame};
use ptarmigan::machine::Machine;
use ptarmigan::page::Level;
use ptarmigan::parking::Parking;
use ptarmigan::quicklist::Policy;
use ptarmigan::space::{Access, AreaFlags, Space, SpaceMachine};
use ptarmigan::table::{Free, Tree};
use ptarmigan::tlb::Tlb;
use ptarmigan_hosted::{Host, HostConfig, HostMachine, NoTlb};
use std::sync::Mutex;

const PAGE: u64 = 4096;
const AT: u64 = 0x40_0000;

type Inner<'h, P> = HostMachine<'h, Aarch64, P, NoTlb>;

/// A machine that notes the frames that it is told of.
struct Told<'h, P: Policy> {
    host: &'h Host<Aarch64>,
    inner: Inner<'h, P>,
    told: Mutex<Vec<(Pfn, u64)>>,
    typed: Mutex<Vec<(Pfn, u64, MemoryType)>>,
    /// A root, and an address whose entry below it is not to be there before the machine is told.
    watched: Mutex<(PhysAddr, u64)>,
}

// SAFETY: 1. to 3. the parts are those of `inner`, which nobody else uses.
unsafe impl<'h, P: Policy> Machine for Told<'h, P> {
    type Window = <Inner<'h, P> as Machine>::Window;
    type Policy = <Inner<'h, P> as Machine>::Policy;
    type Shootdown = <Inner<'h, P> as Machine>::Shootdown;

    fn frames(&self) -> &Frames {
        self.inner.frames()
    }
    fn data(&self) -> &DataFrames {
        self.inner.data()
    }
    fn window(&self) -> &Self::Window {
        self.inner.window()
    }
    fn policy(&self) -> &Self::Policy {
        self.inner.policy()
    }
    fn tlb(&self) -> &Tlb<Self::Shootdown> {
        self.inner.tlb()
    }
    fn parking(&self) -> &Parking {
        self.inner.parking()
    }
    unsafe fn clear_data(&self, pin: &Pinned<'_>, frame: Pfn) -> Result<(), NoFrame> {
        // SAFETY: passed on.
        unsafe { self.inner.clear_data(pin, frame) }
    }
    unsafe fn copy_data(&self, pin: &Pinned<'_>, from: Pfn, to: Pfn) -> Result<(), NoFrame> {
        // SAFETY: passed on.
        unsafe { self.inner.copy_data(pin, from, to) }
    }
    fn before_executable(&self, _: &Pinned<'_>, first: Pfn, frames: u64) {
        let (root, va) = *self.watched.lock().unwrap();
        assert!(!is_executable(self.host, root, va), "told after the entry was stored");
        self.told.lock().unwrap().push((first, frames));
    }
    fn before_memory_type(&self, _: &Pinned<'_>, first: Pfn, frames: u64, memory: MemoryType) {
        let (root, va) = *self.watched.lock().unwrap();
        let found = leaf(self.host, root, va).map(|raw| Aarch64::attr(Level::PTE, raw).memory());
        assert_ne!(found, Some(memory), "told after the entry was stored");
        self.typed.lock().unwrap().push((first, frames, memory));
    }
}

/// Whether programs may fetch instructions from the page at `va`, by the tables below `root`.
fn is_executable(host: &Host<Aarch64>, root: PhysAddr, va: u64) -> bool {
    let executes =
        |raw| Aarch64::is_present(Level::PTE, raw) && Aarch64::attr(Level::PTE, raw).has(Attr::EXEC);
    leaf(host, root, va).is_some_and(executes)
}

/// The entry of the page at `va`, by the tables below `root`.
fn leaf(host: &Host<Aarch64>, root: PhysAddr, va: u64) -> Option<u64> {
    let mut at = root;
    for level in (0..Aarch64::LAYOUT.levels).map(Level).rev() {
        // SAFETY: 1. it is an entry of a table in use.
        let raw = unsafe { host.read(PhysAddr(at.0 + 8 * Aarch64::index(level, va) as u64), 8) }.unwrap();
        match Aarch64::entry(level, raw) {
            Entry::None => return None,
            Entry::Link(next) => at = next,
            Entry::Leaf => return Some(raw),
        }
    }
    unreachable!("a leaf table has no links")
}

// SAFETY: 1. and 2. the frames are those of the inner machine, and a block that no code reads.
unsafe impl<P: Policy> SpaceMachine for Told<'_, P> {
    fn zero_frame(&self) -> Pfn {
        self.inner.zero_frame()
    }
    fn backing_frame(&self, object: u32, page: u64) -> Option<Pfn> {
        self.inner.backing_frame(object, page)
    }
    fn backing_block(&self, _: u32, _: u64, pages: u32) -> Option<Pfn> {
        assert_eq!(u64::from(pages), BLOCK_PAGES);
        Some(BLOCK)
    }
}

/// A block of every object, beyond the host's memory.
const BLOCK: Pfn = Pfn(1 << 19);
const BLOCK_PAGES: u64 = 512;
const RX: AreaFlags = AreaFlags(5);
const RWX: AreaFlags = AreaFlags(7);
const RW: AreaFlags = AreaFlags(3);

#[test]
fn the_machine_is_told_before_an_entry_becomes_executable() {
    let host = Host::<Aarch64>::new(HostConfig { bytes: 64 << 20, ..HostConfig::default() }).unwrap();
    let inner = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    let watched = Mutex::new((PhysAddr(0), AT));
    let machine = Told { host: &host, inner, told: Mutex::default(), typed: Mutex::default(), watched };
    let slots = host.slots();
    let pin = slots[0].pin();
    let on = machine.on(&pin).unwrap();
    let told = || std::mem::take(&mut *machine.told.lock().unwrap());

    let mut space = Space::<Aarch64>::new(on).unwrap();
    *machine.watched.lock().unwrap() = (space.tree().root(), AT);
    let frame = |space: &Space<Aarch64>| space.tree().query(on, VirtAddr(AT)).unwrap().0;
    let page = VirtRange::new(AT, AT + PAGE).unwrap();
    let kernel_root = space.tree().root();
    // A page that is written may be executed from the beginning.
    space.edit(on).unwrap().mmap(page, RWX, 0).unwrap();
    space.fault(on, VirtAddr(AT), Access::Write).unwrap();
    assert_eq!(told(), [(frame(&space), 1)]);
    // Fork shares frames that are clean already; the copy that a write makes is another frame.
    let child = space.edit(on).unwrap().fork().unwrap();
    assert_eq!(told(), []);
    // The entry is still there, and leads to the old frame.
    *machine.watched.lock().unwrap() = (kernel_root, AT + PAGE);
    space.fault(on, VirtAddr(AT), Access::Write).unwrap();
    assert_eq!(told(), [(frame(&space), 1)]);
    *machine.watched.lock().unwrap() = (kernel_root, AT);
    child.end(on).unwrap();
    // Frames without execution are not told, until mprotect allows it.
    space.edit(on).unwrap().mmap(page, RW, 0).unwrap();
    space.fault(on, VirtAddr(AT), Access::Write).unwrap();
    assert_eq!(told(), []);
    space.edit(on).unwrap().mprotect(page, RX).unwrap();
    assert_eq!(told(), [(frame(&space), 1)]);
    // It loses another permission, and keeps this one.
    space.edit(on).unwrap().mprotect(page, AreaFlags(4)).unwrap();
    assert_eq!(told(), []);
    // A block of an object is told of as a whole.
    let large = VirtRange::new(AT, AT + BLOCK_PAGES * PAGE).unwrap();
    space.edit(on).unwrap().mmap(large, RX.with(AreaFlags::SHARED).with(AreaFlags::LARGE), 1).unwrap();
    space.fault(on, VirtAddr(AT + 5 * PAGE), Access::Exec).unwrap();
    assert_eq!(told(), [(BLOCK, BLOCK_PAGES)]);
    space.end(on).unwrap();

    // A tree: pages, runs of pages, attributes that change.
    let mut tree = Tree::<Aarch64>::new(on, AllocFlags::NORMAL).unwrap();
    *machine.watched.lock().unwrap() = (tree.root(), AT);
    let exec = Attr::READ | Attr::EXEC | Attr::USER;
    let range = VirtRange::new(AT, AT + 3 * PAGE).unwrap();
    let mut edit = tree.edit(on).unwrap();
    // SAFETY: no program runs in the space.
    unsafe {
        edit.map_range(range, Pfn(100), exec).unwrap();
        assert_eq!(told(), [(Pfn(100), 3)]);
        edit.map(VirtAddr(AT + 3 * PAGE), Pfn(200), exec.without(Attr::EXEC), AllocFlags::NORMAL).unwrap();
    }
    assert_eq!(told(), []);
    *machine.watched.lock().unwrap() = (kernel_root, AT + 3 * PAGE);
    edit.protect(VirtAddr(AT + 3 * PAGE), exec).unwrap().unwrap();
    assert_eq!(told(), [(Pfn(200), 1)]);
    edit.unmap_range(VirtRange::new(AT, AT + 4 * PAGE).unwrap(), Free::Empty, |_, _, _| {});
    edit.flush();
    tree.end(on, |_, _, _| {}).map_err(|refused| refused.error).unwrap();
    machine.inner.drain(&slots);
    drop(machine);
    host.audit().unwrap();
}

#[test]
fn the_machine_is_told_before_memory_changes_its_type() {
    let host = Host::<Aarch64>::new(HostConfig { bytes: 64 << 20, ..HostConfig::default() }).unwrap();
    let inner = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    let watched = Mutex::new((PhysAddr(0), AT));
    let machine = Told { host: &host, inner, told: Mutex::default(), typed: Mutex::default(), watched };
    let slots = host.slots();
    let pin = slots[0].pin();
    let on = machine.on(&pin).unwrap();
    let typed = || std::mem::take(&mut *machine.typed.lock().unwrap());
    let mut tree = Tree::<Aarch64>::new(on, AllocFlags::NORMAL).unwrap();
    let root = tree.root();
    *machine.watched.lock().unwrap() = (root, AT);
    let usual = Attr::READ | Attr::USER;
    let (device, combining) = (MemoryType::Device, MemoryType::WriteCombining);
    let at = |n: u64| VirtAddr(AT + n * PAGE);
    let range = |n: u64, pages: u64| VirtRange::new(at(n).0, at(n + pages).0).unwrap();
    let mut edit = tree.edit(on).unwrap();
    // SAFETY: no program runs in the space.
    unsafe {
        edit.map_range(range(0, 3), Pfn(100), usual.with_memory(device)).unwrap();
        assert_eq!(typed(), [(Pfn(100), 3, device)]);
        edit.map(at(3), Pfn(200), usual, AllocFlags::NORMAL).unwrap();
        assert_eq!(typed(), [], "usual memory");
        edit.cursor(range(4, 1)).map(Pfn(300), usual.with_memory(combining), AllocFlags::NORMAL).unwrap();
        assert_eq!(typed(), [(Pfn(300), 1, combining)]);
    }
    // Each change of a type, and no other change.
    edit.protect(at(0), Attr::USER.with_memory(device)).unwrap().unwrap();
    assert_eq!(typed(), []);
    edit.protect(at(0), usual.with_memory(combining)).unwrap().unwrap();
    assert_eq!(typed(), [(Pfn(100), 1, combining)]);
    edit.protect(at(0), usual).unwrap().unwrap();
    assert_eq!(typed(), [(Pfn(100), 1, MemoryType::WriteBack)]);
    *machine.watched.lock().unwrap() = (root, at(4).0);
    edit.change_range(range(0, 5), |attr| attr.with_memory(device)).unwrap();
    assert_eq!(typed(), [100, 200, 300].map(|pfn| (Pfn(pfn), 1, device)));
    edit.unmap_range(range(0, 5), Free::Empty, |_, _, _| {});
    edit.flush();
    tree.end(on, |_, _, _| {}).map_err(|refused| refused.error).unwrap();
    machine.inner.drain(&slots);
    drop(machine);
    host.audit().unwrap();
}
