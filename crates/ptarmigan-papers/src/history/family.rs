//! A parent whose children are forked on one CPU, fill their tables there, and exit on another.
//!
//! A server that forks workers does this, and so does the program in the report of 2008. The CPU
//! that forks needs table pages all the time; the CPUs on which children exit receive them. Only
//! counts matter here, so there are no clocks, and no CPU loads a space.
use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::cpu::NodeId;
use ptarmigan::format::X86_64;
use ptarmigan::frames::{AllocFlags, Dirty, End, Frame, Frames, ORDERS, Request, ZoneClass};
use ptarmigan::machine::Machine;
use ptarmigan::quicklist::Policy;
use ptarmigan::space::{Access, AreaFlags, Done, Space};
use ptarmigan_hosted::{CpuSlot, Host};
use ptarmigan_replay::{EitherMachine, ReplayHost, WalkingMmu};

/// The format of all tables here.
pub type F = X86_64;

/// Start of the area, aligned to a table.
const AREA: u64 = 0x40_0000_0000;
/// Bytes mapped by a PTE table.
const SPAN: u64 = 2 << 20;

/// A parent with its machine and policy.
pub struct Family<'h> {
    machine: ReplayHost<'h, F>,
    slots: Vec<CpuSlot>,
    parent: Space<F>,
    pages: u32,
    /// Frames that were free before all this.
    free: u32,
}

impl<'h> Family<'h> {
    /// Creates a parent on CPU 0 of `host`. Its children read `pages` pages, each in its own PTE
    /// table, so a child has `pages` + 3 tables.
    ///
    /// # Errors
    ///
    /// If something cannot be set up.
    pub fn new(host: &'h Host<F>, policy: &'h dyn Policy, pages: u32) -> Result<Self, String> {
        let free = host.frames().counts().free;
        let machine = ReplayHost::new(host, policy, WalkingMmu::NONE).map_err(|e| e.to_string())?;
        let slots = host.slots();
        let parent = {
            let machine = EitherMachine::low(&machine);
            let pin = slots.first().ok_or("the machine has no CPU")?.pin();
            let on = machine.on(&pin).map_err(|e| e.to_string())?;
            let mut parent = Space::new(on).map_err(|e| e.to_string())?;
            let area = VirtRange::new(AREA, AREA + u64::from(pages) * SPAN).map_err(|e| e.to_string())?;
            let mut edit = parent.edit(on).map_err(|e| e.to_string())?;
            edit.mmap(area, AreaFlags::READ, 0).map_err(|e| e.to_string())?;
            parent
        };
        Ok(Family { machine, slots, parent, pages, free })
    }

    /// Returns the number of pages that the policy caches.
    pub fn kept(&self) -> usize {
        self.machine.policy().counts().cached()
    }

    /// Returns the number of free frames on the whole machine.
    pub fn free(&self) -> usize {
        self.machine.frames().counts().free as usize
    }

    /// Returns the number of tables of a child.
    pub fn tables(&self) -> u32 {
        self.pages + 3
    }

    /// Forks one child and ends it. Calls `look` when the child has all its tables, and after its
    /// end.
    ///
    /// # Errors
    ///
    /// If memory runs out, a fault is not served with the zero page, or `look` fails.
    pub fn child(
        &mut self,
        fork: usize,
        exit: usize,
        look: &mut dyn FnMut() -> Result<(), String>,
    ) -> Result<(), String> {
        let (m, pin) = (EitherMachine::low(&self.machine), self.slots[fork].pin());
        let on = m.on(&pin).map_err(|e| e.to_string())?;
        let mut child = self.parent.edit(on).map_err(|e| e.to_string())?.fork().map_err(|e| e.to_string())?;
        let mut served = Ok(());
        for page in 0..u64::from(self.pages) {
            match child.fault(on, VirtAddr(AREA + page * SPAN), Access::Read) {
                Ok(Done::Zero) => {}
                other => served = Err(format!("a first read was served with {other:?}")),
            }
        }
        let tables = child.tree().tables_below_root() + 1;
        let looked = look();
        let pin = self.slots[exit].pin();
        child.end(m.on(&pin).map_err(|e| e.to_string())?).map_err(|e| e.to_string())?;
        served.and(looked)?;
        if tables != self.tables() {
            return Err(format!("a child had {tables} tables, not {}", self.tables()));
        }
        look()
    }

    /// Makes every CPU idle until the policy gives back no more pages.
    pub fn quiesce(&self) {
        let m = EitherMachine::low(&self.machine);
        loop {
            let before = self.kept();
            for slot in &self.slots {
                let pin = slot.pin();
                if let Ok(on) = m.on(&pin) {
                    on.policy().idle();
                }
            }
            if self.kept() == before {
                return;
            }
        }
    }

    /// Ends everything, CPU by CPU and then node by node. Returns how many pages were cached on a
    /// foreign node, judged by where memory becomes free.
    ///
    /// # Errors
    ///
    /// If a frame is lost.
    pub fn finish(self) -> Result<usize, String> {
        let Family { machine, slots, parent, free, .. } = self;
        let m = EitherMachine::low(&machine);
        let frames = m.frames();
        let mut foreign = 0;
        for slot in &slots {
            let before = free_elsewhere(frames, slot.node());
            let pin = slot.pin();
            m.on(&pin).map_err(|e| e.to_string())?.policy().drain();
            foreign += free_elsewhere(frames, slot.node()) - before;
        }
        let pin = slots.first().ok_or("the machine has no CPU")?.pin();
        let on = m.on(&pin).map_err(|e| e.to_string())?;
        for node in (0..frames.nodes()).map(NodeId) {
            let before = free_elsewhere(frames, node);
            on.policy().reclaim(node, u32::MAX);
            foreign += free_elsewhere(frames, node) - before;
        }
        parent.end(on).map_err(|e| e.to_string())?;
        machine.drain(&slots);
        match machine.frames().counts().free {
            after if after == free => Ok(foreign as usize),
            after => Err(format!("{free} frames were free at the start, {after} are free at the end")),
        }
    }
}

/// Returns the number of free frames on all nodes but one.
fn free_elsewhere(frames: &Frames, node: NodeId) -> u32 {
    (0..frames.nodes()).map(NodeId).filter(|n| *n != node).map(|n| frames.node_free(n)).sum()
}

/// Allocates frames of a node, as other users of memory do, until `leave` are free there.
///
/// # Errors
///
/// If fewer are free at the start.
pub fn occupy(frames: &Frames, node: NodeId, leave: u32) -> Result<Vec<Frame<Dirty>>, String> {
    let mut held = Vec::new();
    let mut order = ORDERS as u8 - 1;
    loop {
        let free = frames.node_free(node);
        let Some(excess) = free.checked_sub(leave) else {
            held.into_iter().for_each(|frame| frames.give(frame));
            return Err(format!("node {} has {free} frames free, not {leave}", node.0));
        };
        if excess == 0 {
            return Ok(held);
        }
        order = order.min(excess.ilog2() as u8);
        let (class, end, flags) = (ZoneClass::Low, End::High, AllocFlags::NORMAL);
        match frames.take(Request { node, order, zero: false, class, end, flags }).map(|taken| taken.dirty())
        {
            Ok(frame) if frames.node_of(frame.pfn()) == node => held.push(frame),
            // No block of this order is left; a smaller order follows.
            other => {
                other.into_iter().for_each(|frame| frames.give(frame));
                order = order.checked_sub(1).ok_or_else(|| format!("node {} has no block left", node.0))?;
            }
        }
    }
}
