//! The operations of a worker.
use ptarmigan_trace::FaultFlags;

/// One operation. `space` numbers the address spaces of the trace in order of creation; `slot` is
/// the index of the CPU among the worker's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A fault on a page.
    Fault {
        /// Page number.
        page: u64,
        /// The space.
        space: u32,
        /// The CPU.
        slot: u16,
        /// Access bits.
        flags: FaultFlags,
    },
    /// A call on one space: entry `rare` of the trace.
    Call {
        /// Index of the call.
        rare: u32,
        /// The space.
        space: u32,
        /// The CPU.
        slot: u16,
    },
    /// Linux's count of the tables of a space, compared with the library's.
    Truth {
        /// Index of the event.
        event: u32,
        /// The space.
        space: u32,
        /// The CPU.
        slot: u16,
    },
    /// `child` becomes a copy of `space`.
    Fork {
        /// The parent's space.
        space: u32,
        /// The child's space.
        child: u32,
        /// The CPU.
        slot: u16,
    },
    /// A task moves from `space` to the new space `next`: entry `rare` of the trace.
    Exec {
        /// Index of the call.
        rare: u32,
        /// The old space.
        space: u32,
        /// The new space.
        next: u32,
        /// The CPU.
        slot: u16,
        /// Whether this ends the old space.
        last: bool,
    },
    /// A task exits.
    Exit {
        /// The task's space.
        space: u32,
        /// The CPU.
        slot: u16,
        /// Whether this ends the space.
        last: bool,
    },
    /// The CPU loads a space, or runs in it again.
    Enter {
        /// The space.
        space: u32,
        /// The CPU.
        slot: u16,
    },
    /// The CPU leaves a space for another one.
    Leave {
        /// The space.
        space: u32,
        /// The CPU.
        slot: u16,
    },
    /// The CPU becomes lazy: it runs no task of the space, but keeps it loaded.
    Rest {
        /// The space.
        space: u32,
        /// The CPU.
        slot: u16,
    },
    /// The CPU becomes idle.
    Idle {
        /// The CPU.
        slot: u16,
    },
    /// The worker claims a space, which stays its own until [`Release`](Op::Release).
    Claim {
        /// The space.
        space: u32,
    },
    /// The worker releases a space.
    Release {
        /// The space.
        space: u32,
    },
    /// The worker makes its space shared.
    Share {
        /// The space.
        space: u32,
    },
    /// The worker attaches to a shared space.
    Attach {
        /// The space.
        space: u32,
    },
    /// The worker detaches from a shared space.
    Detach {
        /// The space.
        space: u32,
    },
    /// The worker waits until `worker` has reached milestone number `milestone`, counted from 1.
    Wait {
        /// The other worker.
        worker: u16,
        /// The milestone.
        milestone: u32,
    },
    /// The worker reaches its next milestone.
    Milestone,
}

// A pass reads millions of operations.
const _: () = assert!(size_of::<Op>() <= 16);
