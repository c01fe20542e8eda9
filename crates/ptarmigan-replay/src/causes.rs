//! Names the operations that make and take tables, and that flush TLBs.
use crate::input::schedule::Op;
use crate::input::trace::Trace;
use crate::linux::is_found;
use ptarmigan_trace::{CloneKind, FailedCall, FaultFlags, Kind};
use serde::Serialize;

/// The operation to which the tables of the first space belong, which is there before any.
pub const START: u32 = u32::MAX;

/// The operation that made a table or took it, or that a flush is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// A page fault.
    Fault,
    /// The copy of an address space.
    Fork,
    /// A new program: its arguments and its stack; of tables that went, those of the program
    /// before.
    Exec,
    /// The end of the last task of a space.
    Exit,
    /// `mmap`: pages made present at once, or the earlier mapping that it replaced.
    Mmap,
    /// `munmap`.
    Munmap,
    /// A heap that shrinks.
    Brk,
    /// `mremap`.
    Mremap,
    /// `mprotect`.
    Mprotect,
    /// `madvise`.
    Madvise,
    /// `mlock` and its like.
    Mlock,
    /// Pages that were found present, and which no event explains.
    Found,
    /// There before the recording began.
    Start,
    /// Left when the recording ended.
    End,
    /// Any other operation.
    Other,
}

impl Cause {
    /// All causes.
    pub const ALL: [Cause; 15] = [
        Cause::Fault,
        Cause::Fork,
        Cause::Exec,
        Cause::Exit,
        Cause::Mmap,
        Cause::Munmap,
        Cause::Brk,
        Cause::Mremap,
        Cause::Mprotect,
        Cause::Madvise,
        Cause::Mlock,
        Cause::Found,
        Cause::Start,
        Cause::End,
        Cause::Other,
    ];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Fault => "fault",
            Cause::Fork => "fork",
            Cause::Exec => "exec",
            Cause::Exit => "exit",
            Cause::Mmap => "mmap",
            Cause::Munmap => "munmap",
            Cause::Brk => "brk",
            Cause::Mremap => "mremap",
            Cause::Mprotect => "mprotect",
            Cause::Madvise => "madvise",
            Cause::Mlock => "mlock",
            Cause::Found => "found",
            Cause::Start => "start",
            Cause::End => "end",
            Cause::Other => "other",
        }
    }

    /// Returns the cause that an operation is, by its index in `ops`.
    pub fn of(trace: &Trace, ops: &[Op], at: u32) -> Cause {
        if at == START {
            return Cause::Start;
        }
        let rare = match ops.get(at as usize) {
            None => return Cause::End,
            Some(Op::Fault { .. }) => return Cause::Fault,
            Some(Op::Fork { .. }) => return Cause::Fork,
            Some(Op::Exec { .. }) => return Cause::Exec,
            Some(Op::Exit { .. }) => return Cause::Exit,
            Some(Op::Call { rare, .. }) => *rare,
            Some(_) => return Cause::Other,
        };
        trace.rare.get(rare as usize).and_then(Self::of_event).unwrap_or(Cause::Other)
    }

    /// Returns the cause that an event is. `None` for one that changes neither areas nor pages.
    pub fn of_event(kind: &Kind) -> Option<Cause> {
        Some(match kind {
            Kind::Fault { .. } => Cause::Fault,
            Kind::Clone { kind: CloneKind::Fork, .. } => Cause::Fork,
            Kind::Exec { .. } | Kind::Area { .. } => Cause::Exec,
            Kind::Exit { .. } => Cause::Exit,
            Kind::Mmap { .. } => Cause::Mmap,
            Kind::Munmap { .. } => Cause::Munmap,
            Kind::Brk { .. } => Cause::Brk,
            Kind::Mremap { .. } | Kind::Failed { call: FailedCall::Mremap { .. }, .. } => Cause::Mremap,
            Kind::Mprotect { .. } | Kind::Failed { call: FailedCall::Mprotect { .. }, .. } => Cause::Mprotect,
            Kind::Madvise { .. } | Kind::Failed { call: FailedCall::Madvise { .. }, .. } => Cause::Madvise,
            Kind::Lock { .. } | Kind::LockAll { .. } => Cause::Mlock,
            Kind::Failed { call: FailedCall::Lock { .. }, .. } => Cause::Mlock,
            Kind::Touched { flags, .. } if is_found(*flags) => Cause::Found,
            Kind::Touched { flags: FaultFlags::WAITING, .. } => Cause::Fault,
            Kind::Touched { .. } => Cause::Mmap,
            _ => return None,
        })
    }

    /// Returns whether it is a call on mappings.
    pub fn is_call(self) -> bool {
        match self {
            Cause::Mmap
            | Cause::Munmap
            | Cause::Brk
            | Cause::Mremap
            | Cause::Mprotect
            | Cause::Madvise
            | Cause::Mlock => true,
            Cause::Fault
            | Cause::Fork
            | Cause::Exec
            | Cause::Exit
            | Cause::Found
            | Cause::Start
            | Cause::End
            | Cause::Other => false,
        }
    }
}

/// Returns the space for which an operation makes tables; 0 before the first one.
pub(crate) fn space_of(ops: &[Op], at: u32) -> u32 {
    match ops.get(at as usize) {
        Some(&Op::Fork { child, .. }) => child,
        Some(&Op::Exec { next, .. }) => next,
        Some(
            &Op::Fault { space, .. }
            | &Op::Call { space, .. }
            | &Op::Truth { space, .. }
            | &Op::Exit { space, .. }
            | &Op::Enter { space, .. }
            | &Op::Leave { space, .. }
            | &Op::Rest { space, .. },
        ) => space,
        _ => 0,
    }
}
