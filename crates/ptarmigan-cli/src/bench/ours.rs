//! The library itself, with one of its policies, as a contender of the page-table benchmark.
//!
//! It does what a kernel would have it do: every table has its record and its counts, tables go through a gather
//! and back to the policy after the flush. No CPU ever loads the spaces, so no flush reaches any hardware.
use std::hint::black_box;

use ptarmigan::addr::{PhysAddr, VirtAddr, VirtRange};
use ptarmigan::format::{Attr, X86_64};
use ptarmigan::frames::AllocFlags;
use ptarmigan::hosted::{CpuSlot, Host, HostConfig, HostError, HostMachine, NoTlb};
use ptarmigan::quicklist::Policy;
use ptarmigan::table::{Free, Machine, Tree, parts};
use ptarmigan::tlb::{Gather, SpaceTlb};

use super::contender::{Contender, PAGE, PAGES, PHYS, Shape, VIRT, contiguous};

type F = X86_64;

fn attr() -> Attr {
    Attr::READ | Attr::WRITE | Attr::USER
}

/// The machine that a contender runs on: 256 MiB, one CPU.
///
/// # Errors
///
/// [`HostError`] for lack of memory.
pub fn host() -> Result<Host<F>, HostError> {
    Host::new(HostConfig { bytes: 256 << 20, prefault: 32 << 20, ..HostConfig::default() })
}

/// A tree of the library, and a policy.
pub struct Ours<'h, P: Policy> {
    name: &'static str,
    machine: HostMachine<'h, F, P, NoTlb>,
    slots: Vec<CpuSlot>,
    tlb: SpaceTlb,
    tree: Option<Tree<F>>,
}

impl<'h, P: Policy> Ours<'h, P> {
    /// A contender called `name` with a policy made for `host`, which nobody else uses.
    ///
    /// # Errors
    ///
    /// [`HostError`] for lack of memory.
    pub fn new(name: &'static str, host: &'h Host<F>, policy: P) -> Result<Self, HostError> {
        let machine = HostMachine::new(host, policy, NoTlb)?;
        let tlb = machine.tlb().new_space();
        Ok(Ours { name, machine, slots: host.slots(), tlb, tree: None })
    }

    fn everything() -> VirtRange {
        VirtRange { start: VIRT as u64, end: (VIRT + PAGES * PAGE) as u64 }
    }
}

#[inline(always)]
fn virt(at: usize) -> VirtAddr {
    VirtAddr(at as u64)
}

#[inline(always)]
fn phys(at: usize) -> PhysAddr {
    PhysAddr(at as u64)
}

const OPEN: &str = "open comes first";

impl<P: Policy> Contender for Ours<'_, P> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn open(&mut self) {
        self.tree = Some(Tree::new(&self.machine, &self.slots[0].pin(), AllocFlags::NORMAL).expect("a top"));
    }

    fn map(&mut self) {
        let (m, pin) = (&self.machine, self.slots[0].pin());
        let tree = self.tree.as_mut().expect(OPEN);
        for (at, frame) in contiguous() {
            tree.map(m, &pin, virt(at), phys(frame).pfn(), attr(), AllocFlags::NORMAL).expect("map");
        }
    }

    fn query(&mut self) -> usize {
        let m = &self.machine;
        let tree = self.tree.as_ref().expect(OPEN);
        let mut sum = 0_usize;
        for (at, _) in contiguous() {
            if let Some((pfn, _)) = tree.query(m, virt(at)) {
                sum = sum.wrapping_add(pfn.addr().0 as usize);
            }
        }
        sum
    }

    fn unmap(&mut self) {
        let (m, pin) = (&self.machine, self.slots[0].pin());
        let tree = self.tree.as_mut().expect(OPEN);
        let mut gather = Gather::new(parts(m, &pin), &self.tlb, 12);
        for (at, _) in contiguous() {
            let (pfn, _) = tree.unmap(m, virt(at), &mut gather).expect("unmap");
            black_box(pfn);
        }
        gather.finish();
    }

    fn map_range(&mut self) {
        let (m, pin) = (&self.machine, self.slots[0].pin());
        let tree = self.tree.as_mut().expect(OPEN);
        let mut gather = Gather::new(parts(m, &pin), &self.tlb, 12);
        tree.map_range(m, Self::everything(), phys(PHYS).pfn(), attr(), &mut gather).expect("map a range");
        gather.finish();
    }

    fn unmap_range(&mut self) {
        let (m, pin) = (&self.machine, self.slots[0].pin());
        let tree = self.tree.as_mut().expect(OPEN);
        let mut gather = Gather::new(parts(m, &pin), &self.tlb, 12);
        tree.unmap_range(m, Self::everything(), Free::Empty, &mut gather, |_, pfn, _| {
            black_box(pfn);
        });
        gather.finish();
        assert_eq!(tree.tables_below_top(), 0, "empty tables are freed");
    }

    fn close(&mut self) {
        let (m, pin) = (&self.machine, self.slots[0].pin());
        if let Some(tree) = self.tree.take() {
            let mut gather = Gather::ending(parts(m, &pin), &self.tlb, 12);
            tree.end(m, &mut gather, |_, _, _| {});
            gather.finish();
        }
    }

    fn fork_shape(&mut self, _way: usize, shape: &Shape) {
        let (m, pin) = (&self.machine, self.slots[0].pin());
        for space in shape.spaces() {
            let tlb = m.tlb().new_space();
            let mut tree = Tree::<F>::new(m, &pin, AllocFlags::NORMAL).expect("a top");
            for (at, frame) in space.pages() {
                tree.map(m, &pin, virt(at), phys(frame).pfn(), attr(), AllocFlags::NORMAL).expect("map");
            }
            let mut gather = Gather::ending(parts(m, &pin), &tlb, 12);
            tree.end(m, &mut gather, |_, pfn, _| {
                black_box(pfn);
            });
            gather.finish();
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
