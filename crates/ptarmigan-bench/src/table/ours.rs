//! The library with one of its policies, as a contender of the page-table benchmark.
//!
//! It does what a kernel would: every table has its record and its counts, and freed tables go
//! through a gather to the policy after the flush. No CPU loads the spaces, so no flush reaches any
//! hardware.
use std::hint::black_box;

use ptarmigan::addr::{PhysAddr, VirtAddr, VirtRange};
use ptarmigan::format::{Attr, Format, MemoryType, X86_64};
use ptarmigan::frames::AllocFlags;
use ptarmigan::machine::Machine;
use ptarmigan::page::Level;
use ptarmigan::quicklist::Policy;
use ptarmigan::table::{Free, Tree};
use ptarmigan_hosted::{CpuSlot, Host, HostError, HostMachine, NoTlb};

use super::contender::{CasePages, DEVICE, ForkShape, TableCase, TableContender};

fn attr() -> Attr {
    Attr::READ | Attr::WRITE | Attr::USER
}

fn device() -> Attr {
    attr().with_memory(MemoryType::Device)
}

/// The level of tables whose leaves map as much as a leaf table.
const LARGE: Level = Level(1);

/// A tree of the library in format `F`, with a policy.
pub struct LibraryTree<'h, P: Policy, F: Format = X86_64> {
    name: &'static str,
    machine: HostMachine<'h, F, P, NoTlb>,
    slots: Vec<CpuSlot>,
    tree: Option<Tree<F>>,
    /// Tables that a tree without pages has, as with PAE.
    own_tables: u32,
}

impl<'h, P: Policy, F: Format> LibraryTree<'h, P, F> {
    /// Creates a contender called `name`. No other contender uses `host`, for which `policy` is
    /// made.
    ///
    /// # Errors
    ///
    /// [`HostError`] for lack of memory.
    pub fn new(name: &'static str, host: &'h Host<F>, policy: P) -> Result<Self, HostError> {
        let machine = HostMachine::new(host, policy, NoTlb)?;
        Ok(LibraryTree { name, machine, slots: host.slots(), tree: None, own_tables: 0 })
    }

    fn everything() -> VirtRange {
        let CasePages { count, bytes, virt, .. } = CasePages::of::<F>();
        VirtRange::new(virt as u64, (virt + count * bytes) as u64).expect(ABOVE)
    }
}

#[inline]
fn virt(at: usize) -> VirtAddr {
    VirtAddr(at as u64)
}

#[inline]
fn phys(at: usize) -> PhysAddr {
    PhysAddr(at as u64)
}

const ABOVE: &str = "the end is computed from the start";
const OPEN: &str = "open comes first";
const OWN: &str = "the CPU and the tree are the machine's own";

impl<P: Policy, F: Format> TableContender for LibraryTree<'_, P, F> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn cases(&self) -> &'static [TableCase] {
        let has_large = F::LAYOUT.levels > LARGE.0 && F::LEAF_LEVELS >> LARGE.0 & 1 != 0;
        match (has_large, F::expresses_in_tree(device()).is_ok()) {
            (true, true) => &TableCase::ALL,
            (true, false) => TableCase::MEMORY,
            (false, _) => TableCase::PAGES,
        }
    }

    fn open(&mut self) {
        let pin = self.slots[0].pin();
        let tree = Tree::new(self.machine.on(&pin).expect(OWN), AllocFlags::NORMAL).expect("a root");
        self.own_tables = tree.tables_below_root();
        self.tree = Some(tree);
    }

    fn map(&mut self) {
        let pin = self.slots[0].pin();
        let mut tree = self.tree.as_mut().expect(OPEN).edit(self.machine.on(&pin).expect(OWN)).expect(OWN);
        for (at, frame) in CasePages::of::<F>().contiguous() {
            // SAFETY: 1. no program runs in the tree.
            unsafe { tree.map(virt(at), phys(frame).pfn(), attr(), AllocFlags::NORMAL).expect("map") };
        }
    }

    fn query(&mut self) -> usize {
        let pin = self.slots[0].pin();
        let on = self.machine.on(&pin).expect(OWN);
        let tree = self.tree.as_ref().expect(OPEN).view().on(on).expect(OWN);
        let mut sum = 0_usize;
        for (at, _) in CasePages::of::<F>().contiguous() {
            if let Some((pfn, _)) = tree.query(virt(at)) {
                sum = sum.wrapping_add(pfn.addr().0 as usize);
            }
        }
        sum
    }

    fn unmap(&mut self) {
        let pin = self.slots[0].pin();
        let mut tree = self.tree.as_mut().expect(OPEN).edit(self.machine.on(&pin).expect(OWN)).expect(OWN);
        for (at, _) in CasePages::of::<F>().contiguous() {
            let (pfn, _) = tree.unmap(virt(at)).expect("unmap");
            black_box(pfn);
        }
        tree.flush();
    }

    fn map_range(&mut self) {
        let first = phys(CasePages::of::<F>().phys).pfn();
        let pin = self.slots[0].pin();
        let mut tree = self.tree.as_mut().expect(OPEN).edit(self.machine.on(&pin).expect(OWN)).expect(OWN);
        // SAFETY: 1. no program runs in the tree.
        unsafe { tree.map_range(Self::everything(), first, attr()).expect("map a range") };
        tree.flush();
    }

    fn unmap_range(&mut self) {
        let pin = self.slots[0].pin();
        let tree = self.tree.as_mut().expect(OPEN);
        let own = self.own_tables;
        let mut edit = tree.edit(self.machine.on(&pin).expect(OWN)).expect(OWN);
        edit.unmap_range(Self::everything(), Free::Empty, |_, pfn, _| {
            black_box(pfn);
        });
        edit.flush();
        assert_eq!(tree.tables_below_root(), own, "empty tables are freed");
    }

    fn large_map(&mut self) {
        let first = phys(CasePages::of::<F>().phys).pfn();
        let pin = self.slots[0].pin();
        let mut tree = self.tree.as_mut().expect(OPEN).edit(self.machine.on(&pin).expect(OWN)).expect(OWN);
        // SAFETY: 1. no program runs in the tree.
        unsafe { tree.map_range_large(Self::everything(), first, attr(), LARGE).expect("map large pages") };
        tree.flush();
    }

    fn large_unmap(&mut self) {
        let pin = self.slots[0].pin();
        let tree = self.tree.as_mut().expect(OPEN);
        let own = self.own_tables;
        let mut edit = tree.edit(self.machine.on(&pin).expect(OWN)).expect(OWN);
        edit.unmap_leaves(Self::everything(), Free::Empty, |leaf| {
            black_box(leaf.frame);
        });
        edit.flush();
        assert_eq!(tree.tables_below_root(), own, "empty tables are freed");
    }

    fn large_split(&mut self) {
        let at = CasePages::of::<F>();
        let pin = self.slots[0].pin();
        let mut tree = self.tree.as_mut().expect(OPEN).edit(self.machine.on(&pin).expect(OWN)).expect(OWN);
        for (at, _) in at.large_pages().take(at.split()) {
            tree.split(virt(at), Level::PTE).expect("split");
        }
        tree.flush();
    }

    fn large_half(&mut self) {
        let at = CasePages::of::<F>();
        let pin = self.slots[0].pin();
        let mut tree = self.tree.as_mut().expect(OPEN).edit(self.machine.on(&pin).expect(OWN)).expect(OWN);
        for (start, _) in at.large_pages().take(at.split()) {
            let end = start + at.table;
            let half = VirtRange::new((start + at.table / 2) as u64, end as u64).expect(ABOVE);
            tree.unmap_range(half, Free::Empty, |_, pfn, _| {
                black_box(pfn);
            });
        }
        tree.flush();
    }

    fn device(&mut self) {
        let at = CasePages::of::<F>();
        let pin = self.slots[0].pin();
        let mut tree = self.tree.as_mut().expect(OPEN).edit(self.machine.on(&pin).expect(OWN)).expect(OWN);
        for (start, frame) in at.devices() {
            let range = VirtRange::new(start as u64, (start + DEVICE * at.bytes) as u64).expect(ABOVE);
            // SAFETY: 1. no program runs in the tree.
            unsafe { tree.map_range(range, phys(frame).pfn(), device()).expect("map a device") };
        }
        tree.flush();
    }

    fn close(&mut self) {
        let pin = self.slots[0].pin();
        if let Some(tree) = self.tree.take() {
            tree.end(self.machine.on(&pin).expect(OWN), |_, _, _| {}).expect(OWN);
        }
    }

    fn fork_shape(&mut self, _way: usize, shape: &ForkShape) {
        let pin = self.slots[0].pin();
        let on = self.machine.on(&pin).expect(OWN);
        for space in shape.spaces() {
            let mut tree = Tree::<F>::new(on, AllocFlags::NORMAL).expect("a root");
            {
                let mut edit = tree.edit(on).expect(OWN);
                for (at, frame) in space.pages_of(CasePages::of::<F>()) {
                    // SAFETY: 1. no program runs in the tree.
                    unsafe {
                        edit.map(virt(at), phys(frame).pfn(), attr(), AllocFlags::NORMAL).expect("map")
                    };
                }
                // It ends where it is, without a move.
            }
            let ended = tree.end(on, |_, pfn, _| {
                black_box(pfn);
            });
            ended.expect(OWN);
        }
    }

    fn tables_out(&self) -> usize {
        self.machine.policy().counts().live()
    }

    fn finish(&mut self) -> Result<(), String> {
        self.machine.drain(&self.slots);
        self.machine.host().audit().map_err(|e| e.to_string())
    }
}
