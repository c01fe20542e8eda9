//! Samples where calls are made, at the stops of a traced task.
use super::calls::Looked;
use crate::linux::callers::CallerSample;
use crate::linux::raw::RawKind;
use crate::linux::sources::samples::{CALLS, STACK, after_vfork, call_of, page_of};
use crate::linux::system::{proc, sys};
use ptarmigan_trace::{Call, Cause};

/// Samples calls, if callers are wanted.
pub(super) struct StopSampler {
    wanted: bool,
    /// Calls since the last one that was sampled, except those that make tasks and programs.
    since: u64,
}

impl StopSampler {
    pub(super) fn new(wanted: bool) -> Self {
        Self { wanted, since: 0 }
    }

    /// Samples a task that has made a task.
    pub(super) fn of_clone(&mut self, pid: i32) -> Looked {
        let Some(regs) = self.wanted.then(|| sys::registers(pid).ok()).flatten() else { return Vec::new() };
        vec![(pid, sample(pid, &regs, Call::Clone, 1))]
    }

    /// Samples a task that is about to make a call, or one of several such calls.
    pub(super) fn of_call(&mut self, pid: i32, regs: &libc::user_regs_struct) -> Looked {
        let call = call_of(regs.orig_rax as i64, regs.rdi).filter(|_| self.wanted);
        let events = match call {
            None => return Vec::new(),
            Some(Call::Exec) => 1,
            Some(_) => {
                self.since += 1;
                if self.since < CALLS {
                    return Vec::new();
                }
                std::mem::take(&mut self.since)
            }
        };
        call.map(|call| (pid, sample(pid, regs, call, events))).into_iter().collect()
    }
}

fn sample(pid: i32, regs: &libc::user_regs_struct, call: Call, events: u64) -> RawKind {
    RawKind::Sampled(Box::new(CallerSample {
        cause: Cause::Call(call),
        page: page_of(call, regs.rdi),
        events,
        ip: if regs.orig_rax as i64 == libc::SYS_vfork { after_vfork(regs.rdi) } else { regs.rip },
        sp: regs.rsp,
        bp: regs.rbp,
        stack: proc::stack(pid, regs.rsp, STACK as usize / 8),
    }))
}
