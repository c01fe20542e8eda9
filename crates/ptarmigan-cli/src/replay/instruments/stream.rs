//! Repeats the allocator calls of a run back to back, on a fresh machine. Only so can calls of 5 ns
//! be measured.
//!
//! Consecutive calls of one kind on one CPU run in one loop. Decoding the stream still costs as
//! much as a call or two, mostly in unpredictable branches. So the same stream also runs over
//! [`Nothing`], and that time is subtracted.
use super::measured::PolicyCall;
use crate::measure::clock::thread_time;
use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::Pinned;
use ptarmigan::frames::{Ask, NoFrame};
use ptarmigan::hosted::CpuSlot;
use ptarmigan::quicklist::{Clean, Flushed, Level, Policy, PolicyCounts};
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq)]
enum CallKind {
    Alloc,
    Free,
    GatherEnd,
    Idle,
}

struct CallRun {
    kind: CallKind,
    cpu: u16,
    len: u32,
}

/// The calls of a run, grouped by kind and CPU.
pub struct Stream {
    runs: Vec<CallRun>,
    /// Level and number of the page, for each allocation and free.
    pages: Vec<(u8, u32)>,
    slots_used: u32,
}

impl Stream {
    /// Groups `calls`; `slots_used` is the most pages allocated at once.
    pub fn new(calls: &[PolicyCall], slots_used: u32) -> Self {
        let mut stream = Stream { runs: Vec::new(), pages: Vec::new(), slots_used };
        for call in calls {
            let (kind, cpu) = match *call {
                PolicyCall::Alloc { level, cpu, slot } => {
                    stream.pages.push((level, slot));
                    (CallKind::Alloc, cpu)
                }
                PolicyCall::Free { level, cpu, slot } => {
                    stream.pages.push((level, slot));
                    (CallKind::Free, cpu)
                }
                PolicyCall::GatherEnd(cpu) => (CallKind::GatherEnd, cpu),
                PolicyCall::Idle(cpu) => (CallKind::Idle, cpu),
            };
            match stream.runs.last_mut() {
                Some(run) if run.kind == kind && run.cpu == cpu => run.len += 1,
                _ => stream.runs.push(CallRun { kind, cpu, len: 1 }),
            }
        }
        stream
    }

    /// Makes all calls and returns the processor time.
    ///
    /// # Errors
    /// [`NoFrame`] if memory ran out, as it did in the run. Pages that are allocated at that point
    /// are lost.
    #[inline(never)] // so that profilers tell it from what surrounds it
    pub fn run<P: Policy>(&self, policy: &P, cpus: &[CpuSlot]) -> Result<Duration, NoFrame> {
        let mut out = vec![PhysAddr(0); self.slots_used as usize];
        let mut pages = self.pages.as_slice();
        let start = thread_time();
        for &CallRun { kind, cpu, len } in &self.runs {
            let pin = cpus[usize::from(cpu)].pin();
            match kind {
                CallKind::Alloc => {
                    let (these, rest) = pages.split_at(len as usize);
                    pages = rest;
                    for &(level, slot) in these {
                        out[slot as usize] = policy.alloc(&pin, Level(level), Ask::NORMAL)?.into_raw();
                    }
                }
                CallKind::Free => {
                    let (these, rest) = pages.split_at(len as usize);
                    pages = rest;
                    for &(level, slot) in these {
                        // SAFETY: 1. `into_raw` returned the address when the slot was allocated,
                        // and a slot is freed once per allocation, as in the logged run. 2. nothing
                        // has written to the page. 3. the page was never linked.
                        let page = unsafe { Clean::from_raw(out[slot as usize]) };
                        policy.unused(&pin, Level(level), page);
                    }
                }
                CallKind::GatherEnd => (0..len).for_each(|_| policy.gather_end(&pin)),
                CallKind::Idle => (0..len).for_each(|_| policy.idle(&pin)),
            }
        }
        Ok(thread_time() - start)
    }
}

/// A policy that does nothing: its time is that of the stream itself.
pub struct Nothing;

impl Policy for Nothing {
    #[inline(always)]
    fn alloc(&self, pin: &Pinned<'_>, level: Level, _: Ask) -> Result<Clean, NoFrame> {
        let at = PhysAddr(u64::from(level.0) << 12 | u64::from(pin.cpu().0) << 20);
        // SAFETY: 1. to 3. do not hold, but no caller reads a page of this policy: pages are only
        // given back to it.
        Ok(unsafe { Clean::from_raw(std::hint::black_box(at)) })
    }

    #[inline(always)]
    fn unused(&self, _: &Pinned<'_>, level: Level, page: Clean) {
        std::hint::black_box((level, page.into_raw()));
    }

    fn flushed(&self, _: &Pinned<'_>, _: Flushed) {}

    #[inline(always)]
    fn gather_end(&self, pin: &Pinned<'_>) {
        std::hint::black_box(pin.cpu());
    }

    #[inline(always)]
    fn idle(&self, pin: &Pinned<'_>) {
        std::hint::black_box(pin.cpu());
    }

    fn counts(&self) -> PolicyCounts {
        PolicyCounts::default()
    }
}
