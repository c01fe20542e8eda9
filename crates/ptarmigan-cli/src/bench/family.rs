//! A parent whose children are forked on one CPU, fill their tables there, and end on another.
//!
//! This is what a server does that forks workers, and what the program does that came with the report of 2008: the CPU
//! that forks needs pages for tables all the time, the CPUs on which children end get them. Counts are all that
//! matters here, so there are no clocks, and no CPU ever loads a space.
use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::cpu::NodeId;
use ptarmigan::format::X86_64;
use ptarmigan::frames::{AllocFlags, Dirty, End, Frame, Frames, ORDERS, Request, ZoneClass};
use ptarmigan::hosted::{CpuSlot, Host, HostMachine, NoTlb};
use ptarmigan::quicklist::Policy;
use ptarmigan::space::{Access, AreaFlags, Done, Space};
use ptarmigan::table::Machine;

/// The format of all tables here.
pub type F = X86_64;

/// Where the area lies: on the border of a table.
const AREA: u64 = 0x40_0000_0000;
/// Bytes that a PTE table maps.
const SPAN: u64 = 2 << 20;

/// A parent, its machine and its policy.
pub struct Family<'h, P: Policy> {
    machine: HostMachine<'h, F, P, NoTlb>,
    slots: Vec<CpuSlot>,
    parent: Space<F>,
    pages: u32,
    /// Frames that were free before all this.
    free: u32,
}

impl<'h, P: Policy> Family<'h, P> {
    /// A parent on CPU 0 of `host` whose children read `pages` pages, each in a PTE table of its own: `pages` + 3
    /// tables for a child.
    ///
    /// # Errors
    ///
    /// What could not be set up.
    pub fn new(host: &'h Host<F>, policy: P, pages: u32) -> Result<Self, String> {
        let free = host.frames().counts().free;
        let machine = HostMachine::new(host, policy, NoTlb).map_err(|e| e.to_string())?;
        let slots = host.slots();
        let parent = {
            let pin = slots.first().ok_or("the machine has no CPU")?.pin();
            let mut parent = Space::new(&machine, &pin).map_err(|e| e.to_string())?;
            let area = VirtRange { start: AREA, end: AREA + u64::from(pages) * SPAN };
            parent.mmap(&machine, &pin, area, AreaFlags::READ, 0).map_err(|e| e.to_string())?;
            parent
        };
        Ok(Family { machine, slots, parent, pages, free })
    }

    /// The policy.
    pub fn policy(&self) -> &P {
        self.machine.policy()
    }

    /// Pages that the policy keeps.
    pub fn kept(&self) -> usize {
        self.policy().counts().cached()
    }

    /// Frames of the whole machine that are free.
    pub fn free(&self) -> usize {
        self.machine.frames().counts().free as usize
    }

    /// How many tables a child has.
    pub fn tables(&self) -> u32 {
        self.pages + 3
    }

    /// One child. `look` is called when it has all its tables, and when it is gone.
    ///
    /// # Errors
    ///
    /// Lack of memory, a fault that was not served with the zero page, or what `look` says.
    pub fn child(
        &mut self,
        fork: usize,
        exit: usize,
        mut look: impl FnMut(&P) -> Result<(), String>,
    ) -> Result<(), String> {
        let (m, pin) = (&self.machine, self.slots[fork].pin());
        let mut child = self.parent.fork(m, &pin).map_err(|e| e.to_string())?;
        let mut served = Ok(());
        for page in 0..u64::from(self.pages) {
            match child.fault(m, &pin, VirtAddr(AREA + page * SPAN), Access::Read) {
                Ok(Done::Zero) => {}
                other => served = Err(format!("a first read was served with {other:?}")),
            }
        }
        let tables = child.tree().tables_below_top() + 1;
        let looked = look(m.policy());
        child.end(m, &self.slots[exit].pin());
        served.and(looked)?;
        if tables != self.tables() {
            return Err(format!("a child had {tables} tables, not {}", self.tables()));
        }
        look(m.policy())
    }

    /// Lets every CPU be idle until no policy gives anything back any more.
    pub fn quiesce(&self) {
        loop {
            let before = self.kept();
            for slot in &self.slots {
                self.policy().idle(&slot.pin());
            }
            if self.kept() == before {
                return;
            }
        }
    }

    /// Ends everything, CPU by CPU and then node by node; how many pages had rested on a node that was not theirs,
    /// told by where memory becomes free.
    ///
    /// # Errors
    ///
    /// If a frame did not come back.
    pub fn finish(self) -> Result<usize, String> {
        let Family { machine, slots, parent, free, .. } = self;
        let frames = machine.frames();
        let mut foreign = 0;
        for slot in &slots {
            let before = free_elsewhere(frames, slot.node());
            machine.policy().drain(&slot.pin());
            foreign += free_elsewhere(frames, slot.node()) - before;
        }
        let first = slots.first().ok_or("the machine has no CPU")?;
        for node in (0..frames.nodes()).map(NodeId) {
            let before = free_elsewhere(frames, node);
            machine.policy().reclaim(&first.pin(), node, u32::MAX);
            foreign += free_elsewhere(frames, node) - before;
        }
        parent.end(&machine, &first.pin());
        machine.drain(&slots);
        match machine.frames().counts().free {
            after if after == free => Ok(foreign as usize),
            after => Err(format!("{free} frames were free before, {after} are now")),
        }
    }
}

/// Frames that are free on all nodes but one.
fn free_elsewhere(frames: &Frames, node: NodeId) -> u32 {
    (0..frames.nodes()).map(NodeId).filter(|n| *n != node).map(|n| frames.node_free(n)).sum()
}

/// Takes frames of a node, as other users of memory do, until `leave` are free there.
///
/// # Errors
///
/// If fewer are free to begin with.
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
            // No such block here: smaller ones.
            other => {
                other.into_iter().for_each(|frame| frames.give(frame));
                order = order.checked_sub(1).ok_or_else(|| format!("node {} gives no frame", node.0))?;
            }
        }
    }
}
