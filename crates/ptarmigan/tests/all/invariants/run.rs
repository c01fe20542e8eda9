//! A machine on which random calls are made.
use crate::common::{At, any_frame, poke, small};
use proptest::prelude::*;
use ptarmigan::addr::{Bounds, PhysAddr, VirtAddr, VirtRange};
use ptarmigan::cpu::NodeId;
use ptarmigan::format::{Attr, Format, FormatExt, X86_64};
use ptarmigan::frames::{AllocFlags, Dirty, Frame};
use ptarmigan::machine::Machine;
use ptarmigan::page::{Clean, Level};
use ptarmigan::quicklist::{ListsConfig, Policy, Quicklists};
use ptarmigan::table::{Free, KernelMap, Tree};
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::{CpuSlot, Host, HostMachine, NoTlb};
use ptarmigan_linux::Plain;

pub const ROOT: Level = X86_64::LAYOUT.root();
pub const LEVELS: usize = X86_64::LAYOUT.levels as usize;
const RW: Attr = Attr(Attr::READ.0 | Attr::WRITE.0 | Attr::USER.0 | Attr::SPECIAL.0);
pub const SPACES: usize = 3;
/// Why no call is refused.
const OURS: &str = "a tree of this machine";

pub type Kernel = KernelMap<X86_64, DirectMap>;
pub type Lists<'h> = Quicklists<'h, DirectMap, &'h Kernel>;

/// Policies that the same calls are made on.
pub trait Subject: Policy {
    fn lists(&self) -> Option<&Lists<'_>>;
}

impl Subject for Quicklists<'_, DirectMap, &Kernel> {
    fn lists(&self) -> Option<&Lists<'_>> {
        Some(self)
    }
}

impl Subject for Plain<'_, DirectMap, &Kernel> {
    fn lists(&self) -> Option<&Lists<'_>> {
        None
    }
}

/// An operation of a CPU. Numbers are reduced to the existing range.
#[derive(Clone, Debug)]
pub enum Op {
    Alloc(u8),
    Unused(u16),
    /// Pages of a space are mapped, from one on, far enough apart for tables of their own.
    Map(u8, u8, u8),
    /// Pages are unmapped, and tables that are left empty flushed and given back.
    Unmap(u8, u8, u8),
    End(u8),
    Idle,
    Age,
    Reclaim(u8, u8),
    Offline,
    Online,
    Kernel(u8, u16),
    Press(u16),
    Relieve,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (0u8..4).prop_map(Op::Alloc),
        10 => any::<u16>().prop_map(Op::Unused),
        8 => any::<(u8, u8, u8)>().prop_map(|(s, p, n)| Op::Map(s, p, n)),
        5 => any::<(u8, u8, u8)>().prop_map(|(s, p, n)| Op::Unmap(s, p, n)),
        2 => any::<u8>().prop_map(Op::End),
        4 => Just(Op::Idle),
        3 => Just(Op::Age),
        1 => any::<(u8, u8)>().prop_map(|(n, w)| Op::Reclaim(n, w)),
        1 => Just(Op::Offline),
        2 => Just(Op::Online),
        3 => any::<(u8, u16)>().prop_map(|(i, raw)| Op::Kernel(i, raw)),
        1 => (0u16..600).prop_map(Op::Press),
        2 => Just(Op::Relieve),
    ]
}

#[derive(Clone, Debug)]
pub struct Case {
    pub cpus: usize,
    pub nodes: usize,
    pub magazine: usize,
    pub share: u32,
    pub keep: Option<u32>,
    pub ops: Vec<(u8, Op)>,
}

impl Case {
    pub fn config(&self) -> ListsConfig {
        let Case { magazine, share, keep, .. } = *self;
        ListsConfig { magazine, budget_divisor: share, fixed_budget: keep, ..ListsConfig::new(self.cpus) }
    }

    pub fn host(&self) -> Host<X86_64> {
        Host::new(small(self.cpus, self.nodes, 8)).expect("host")
    }
}

pub fn case() -> impl Strategy<Value = Case> {
    let magazine = prop_oneof![Just(0usize), Just(1), Just(4), Just(64)];
    let keep = prop_oneof![3 => Just(None), 1 => Just(Some(0)), 3 => (1u32..150).prop_map(Some)];
    let ops = proptest::collection::vec((any::<u8>(), op()), 1..500);
    (1usize..9, 1usize..4, magazine, prop_oneof![Just(4u32), Just(16)], keep, ops).prop_map(
        |(cpus, nodes, magazine, share, keep, ops)| Case {
            cpus,
            nodes: nodes.min(cpus),
            magazine,
            share,
            keep,
            ops,
        },
    )
}

pub struct Run<'h, P> {
    pub host: &'h Host<X86_64>,
    pub m: HostMachine<'h, X86_64, P, NoTlb>,
    pub case: &'h Case,
    pub slots: Vec<CpuSlot>,
    pub online: Vec<bool>,
    /// Handed out and never linked.
    pub out: Vec<(Level, PhysAddr)>,
    pub spaces: [Option<Tree<X86_64>>; SPACES],
    /// Frames that somebody else uses.
    pub held: Vec<Frame<Dirty>>,
    /// Those are given back with something in them.
    pub dirty: bool,
}

impl<'h, P: Subject> Run<'h, P> {
    pub fn new(host: &'h Host<X86_64>, case: &'h Case, policy: P) -> Self {
        let m = HostMachine::new(host, policy, NoTlb).expect("machine");
        let slots = host.slots();
        let online = vec![true; slots.len()];
        let spaces = [const { None }; SPACES];
        Run { host, m, case, slots, online, out: Vec::new(), spaces, held: Vec::new(), dirty: false }
    }

    pub fn policy(&self) -> &P {
        self.m.policy()
    }

    pub fn lists(&self) -> &Lists<'_> {
        self.policy().lists().expect("this test is about lists")
    }

    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<P> {
        (0..self.case.nodes as u8).map(NodeId)
    }

    /// An online CPU.
    fn cpu(&self, which: u8) -> usize {
        let online: Vec<usize> = (0..self.slots.len()).filter(|cpu| self.online[*cpu]).collect();
        online[usize::from(which) % online.len()]
    }

    /// Addresses of leaf tables' own spans.
    fn range(page: u8, pages: u8) -> VirtRange {
        let start = u64::from(page % 64) << 21;
        VirtRange::new(start, start + (u64::from(pages % 48) << 21) + 4096).unwrap()
    }

    /// Runs `op` on a CPU, and returns whether it succeeded, where a caller can see that.
    pub fn step(&mut self, which: u8, op: &Op) -> Result<(), ()> {
        let cpu = self.cpu(which);
        let (m, host) = (&self.m, self.host);
        let pin = self.slots[cpu].pin();
        let on = m.on(&pin).expect("a CPU of this machine");
        let policy = on.policy();
        match *op {
            Op::Alloc(level) => {
                let level = Level(level);
                let page = policy.alloc(level, AllocFlags::NORMAL).map_err(|_| ())?;
                self.out.push((level, page.into_raw()));
            }
            Op::Unused(which) if !self.out.is_empty() => {
                let (level, at) = self.out.swap_remove(usize::from(which) % self.out.len());
                // SAFETY: 1. handed out, and forgotten here. 2. not written to. 3. never linked.
                let page = unsafe { Clean::from_raw(at, level) };
                // SAFETY: 1. this machine's policy handed it out.
                unsafe { policy.free_unlinked(page) };
            }
            Op::Map(which, page, pages) => {
                let space = &mut self.spaces[usize::from(which) % SPACES];
                if space.is_none() {
                    *space = Some(Tree::new(on, AllocFlags::NORMAL).map_err(|_| ())?);
                }
                let tree = space.as_mut().expect("made above");
                let mut edit = tree.edit(on).expect(OURS);
                let Bounds { start, end } = *Self::range(page, pages);
                for at in (start..end).step_by(1 << 21) {
                    if edit.query(VirtAddr(at)).is_none() {
                        // SAFETY: 1. no program runs in the tree.
                        unsafe { edit.map(VirtAddr(at), host.zero_frame(), RW, AllocFlags::NORMAL) }
                            .map_err(|_| ())?;
                    }
                }
            }
            Op::Unmap(which, page, pages) => {
                if let Some(tree) = &mut self.spaces[usize::from(which) % SPACES] {
                    let mut edit = tree.edit(on).expect(OURS);
                    edit.unmap_range(Self::range(page, pages), Free::Empty, |_, _, _| ());
                    edit.flush();
                }
            }
            Op::End(which) => {
                if let Some(tree) = self.spaces[usize::from(which) % SPACES].take() {
                    tree.end(on, |_, _, _| ()).expect(OURS);
                }
            }
            Op::Idle => policy.idle(),
            Op::Age => {
                policy.end_interval();
            }
            Op::Reclaim(node, want) => {
                let node = NodeId(node % self.case.nodes as u8);
                let given = policy.reclaim(node, u32::from(want));
                assert!(given <= u32::from(want));
            }
            Op::Offline if self.online.iter().filter(|on| **on).count() > 1 => {
                policy.drain();
                self.online[cpu] = false;
            }
            Op::Online => {
                if let Some(off) = self.online.iter().position(|on| !on) {
                    self.online[off] = true;
                }
            }
            Op::Kernel(index, raw) => {
                // SAFETY: 1. the entry is not present: it gives no access and links no table. 2.
                // there is no range. 3. the host's own.
                unsafe { host.kernel().set(host.frames(), 256 + usize::from(index), u64::from(raw) << 12) };
            }
            Op::Press(n) => {
                for _ in 0..n {
                    match host.frames().take(any_frame(pin.node().0)) {
                        Ok(frame) => self.held.push(frame.dirty()),
                        Err(_) => break,
                    }
                }
            }
            Op::Relieve => {
                for frame in self.held.drain(..) {
                    if self.dirty {
                        poke(host, frame.addr().0 + 2048, 0xdead_beef);
                    }
                    host.frames().give(frame);
                }
            }
            Op::Unused(_) | Op::Offline => {}
        }
        Ok(())
    }

    /// Every table page in use, and its level.
    pub fn used(&self) -> Vec<(Level, PhysAddr)> {
        let mut used = self.out.clone();
        for tree in self.spaces.iter().flatten() {
            let top = tree.root();
            used.push((ROOT, top));
            self.below(ROOT, top, &mut used);
        }
        used
    }

    fn below(&self, level: Level, at: PhysAddr, used: &mut Vec<(Level, PhysAddr)>) {
        if level == Level::PTE {
            return;
        }
        for index in 0..if level == ROOT { X86_64::USER_ROOT_ENTRIES } else { X86_64::entries(level) } {
            // SAFETY: 1. no other thread is at work on the host.
            let raw = unsafe { self.host.read(PhysAddr(at.0 + 8 * index as u64), 8) }.expect("memory");
            if raw != 0 {
                let next = X86_64::linked(level, raw).expect("a link");
                let level = Level(level.0 - 1);
                used.push((level, next));
                self.below(level, next, used);
            }
        }
    }

    pub fn on(&self, node: NodeId, pages: &[(Level, PhysAddr)]) -> usize {
        pages.iter().filter(|(_, at)| self.host.frames().node_of(at.pfn()) == node).count()
    }

    /// Frames of a node that the policy has taken: neither free, nor the host's, nor somebody
    /// else's.
    pub fn taken(&self, node: NodeId) -> usize {
        let frames = self.host.frames();
        let held = self.held.iter().filter(|frame| frames.node_of(frame.pfn()) == node).count();
        let hosts = if node == NodeId(0) { 3 } else { 0 };
        (frames.node_frames(node) - frames.node_free(node)) as usize - held - hosts
    }

    /// Takes everything out of a CPU's magazines.
    pub fn empty(&self, cpu: usize) -> Vec<(Level, PhysAddr)> {
        let pin = self.slots[cpu].pin();
        let mut found = Vec::new();
        for level in [ROOT, Level::PTE] {
            while let Some(page) = self.lists().at(&pin).at_hand(level) {
                found.push((level, page.into_raw()));
            }
        }
        found
    }

    /// Puts back the pages that [`empty`](Self::empty) took out.
    pub fn refill(&self, cpu: usize, found: Vec<(Level, PhysAddr)>) {
        for (level, at) in found.into_iter().rev() {
            // SAFETY: 1. taken out a moment ago. 2. not written to. 3. never linked.
            self.policy().at(&self.slots[cpu].pin()).free_unlinked(unsafe { Clean::from_raw(at, level) });
        }
    }

    pub fn returns(&self) -> usize {
        self.policy().counts().levels.iter().map(|level| level.returns).sum()
    }
}
