//! What a worker does, one thing after the other.
use ptarmigan_trace::FaultFlags;

/// One thing to do. `space` numbers the address spaces that the trace ever has, in order of their birth; `slot` is the
/// CPU, counted among the worker's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A fault on a page.
    Fault {
        /// Page number.
        page: u64,
        /// Where.
        space: u32,
        /// On which CPU.
        slot: u16,
        /// How.
        flags: FaultFlags,
    },
    /// A call that concerns one space: entry `rare` of the trace.
    Call {
        /// Number of the call.
        rare: u32,
        /// Where.
        space: u32,
        /// On which CPU.
        slot: u16,
    },
    /// Linux's count of the tables of a space is compared with ours.
    Truth {
        /// Number of the event.
        event: u32,
        /// Where.
        space: u32,
        /// On which CPU.
        slot: u16,
    },
    /// `space` is copied: `child` is born.
    Fork {
        /// The parent's.
        space: u32,
        /// The new one.
        child: u32,
        /// On which CPU.
        slot: u16,
    },
    /// Entry `rare` of the trace: the task leaves `space` for `next`, which is born.
    Exec {
        /// Number of the call.
        rare: u32,
        /// The old one.
        space: u32,
        /// The new one.
        next: u32,
        /// On which CPU.
        slot: u16,
        /// Nobody uses the old one any more: it ends.
        last: bool,
    },
    /// A task ends; so does the space if it was the `last` to use it.
    Exit {
        /// The task's.
        space: u32,
        /// On which CPU.
        slot: u16,
        /// Nobody uses it any more.
        last: bool,
    },
    /// The CPU loads a space, or runs in it again.
    Enter {
        /// Which.
        space: u32,
        /// The CPU.
        slot: u16,
    },
    /// The CPU is about to load another one.
    Leave {
        /// Which.
        space: u32,
        /// The CPU.
        slot: u16,
    },
    /// The CPU runs nothing of the space for now, but keeps it loaded.
    Rest {
        /// Which.
        space: u32,
        /// The CPU.
        slot: u16,
    },
    /// The CPU has nothing to run.
    Idle {
        /// The CPU.
        slot: u16,
    },
    /// From here to the next [`Release`](Op::Release) the space is this worker's alone.
    Claim {
        /// Which.
        space: u32,
    },
    /// Somebody else may have the space.
    Release {
        /// Which.
        space: u32,
    },
    /// From here on the space, this worker's alone so far, is for all who join it.
    Share {
        /// Which.
        space: u32,
    },
    /// The worker comes to a shared space.
    Attach {
        /// Which.
        space: u32,
    },
    /// It is done with it.
    Detach {
        /// Which.
        space: u32,
    },
    /// Go on when `worker` has reached its post number `posts`, counted from 1.
    Wait {
        /// Whom to wait for.
        worker: u16,
        /// How far it must have come.
        milestone: u32,
    },
    /// Others wait for what came before this.
    Milestone,
}

// Passes read millions of them.
const _: () = assert!(size_of::<Op>() <= 16);
