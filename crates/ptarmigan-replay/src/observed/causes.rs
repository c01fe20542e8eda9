//! Finds the operation that made a table, and the one that took it.
use crate::input::schedule::Op;
use crate::input::trace::Trace;
use crate::instruments::lives::START;
use ptarmigan_trace::{FailedCall, Kind};
use serde::Serialize;

/// The operation that made a table or took it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
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
    pub const ALL: [Cause; 14] = [
        Cause::Fault,
        Cause::Fork,
        Cause::Exec,
        Cause::Exit,
        Cause::Mmap,
        Cause::Munmap,
        Cause::Brk,
        Cause::Mremap,
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
        match trace.rare.get(rare as usize) {
            Some(Kind::Area { .. }) => Cause::Exec,
            Some(Kind::Mmap { .. }) => Cause::Mmap,
            Some(Kind::Munmap { .. }) => Cause::Munmap,
            Some(Kind::Brk { .. }) => Cause::Brk,
            Some(Kind::Mremap { .. } | Kind::Failed { call: FailedCall::Mremap { .. }, .. }) => Cause::Mremap,
            Some(Kind::Madvise { .. } | Kind::Failed { call: FailedCall::Madvise { .. }, .. }) => {
                Cause::Madvise
            }
            Some(Kind::Lock { .. } | Kind::LockAll { .. }) => Cause::Mlock,
            Some(Kind::Failed { call: FailedCall::Lock { .. }, .. }) => Cause::Mlock,
            Some(Kind::Touched { .. }) => Cause::Found,
            _ => Cause::Other,
        }
    }
}

/// Returns the space for which an operation makes tables; 0 before the first one.
pub(super) fn space_of(ops: &[Op], at: u32) -> u32 {
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
