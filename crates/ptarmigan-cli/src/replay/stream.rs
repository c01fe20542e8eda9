//! The calls of a run, made again back to back on a fresh machine: the only way to know what 5 ns take.
//!
//! Calls of one kind on one CPU that follow each other are made in one loop. Telling apart what comes next still costs
//! as much as a call or two, most of it in branches that no processor can predict; so the same stream is run over
//! [`Nothing`] as well, and what that took is taken off.
use super::clock::thread_time;
use super::measure::Call;
use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::Pinned;
use ptarmigan::frames::{AllocFlags, NoFrame};
use ptarmigan::hosted::CpuSlot;
use ptarmigan::page::{Clean, Flushed, Level};
use ptarmigan::quicklist::{Policy, PolicyCounts};
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Alloc,
    Free,
    GatherEnd,
    Idle,
}

struct Run {
    kind: Kind,
    cpu: u16,
    len: u32,
}

/// Calls in runs of one kind and CPU.
pub struct Stream {
    runs: Vec<Run>,
    /// Level and number of the page, for each allocation and free.
    pages: Vec<(u8, u32)>,
    slots_used: u32,
}

impl Stream {
    /// Puts `calls` together; `slots_used` is the number of pages ever out at once.
    pub fn new(calls: &[Call], slots_used: u32) -> Self {
        let mut stream = Stream { runs: Vec::new(), pages: Vec::new(), slots_used };
        for call in calls {
            let (kind, cpu) = match *call {
                Call::Alloc { level, cpu, slot } => {
                    stream.pages.push((level, slot));
                    (Kind::Alloc, cpu)
                }
                Call::Free { level, cpu, slot } => {
                    stream.pages.push((level, slot));
                    (Kind::Free, cpu)
                }
                Call::GatherEnd(cpu) => (Kind::GatherEnd, cpu),
                Call::Idle(cpu) => (Kind::Idle, cpu),
            };
            match stream.runs.last_mut() {
                Some(run) if run.kind == kind && run.cpu == cpu => run.len += 1,
                _ => stream.runs.push(Run { kind, cpu, len: 1 }),
            }
        }
        stream
    }

    /// Makes all calls; the processor time it took.
    ///
    /// # Errors
    /// [`NoFrame`] if there was no memory, as there was not in the run either; pages that were out then are lost.
    #[inline(never)] // so that profilers tell it from what surrounds it
    pub fn run<P: Policy>(&self, policy: &P, cpus: &[CpuSlot]) -> Result<Duration, NoFrame> {
        let mut out = vec![PhysAddr(0); self.slots_used as usize];
        let mut pages = self.pages.as_slice();
        let start = thread_time();
        for &Run { kind, cpu, len } in &self.runs {
            let pin = cpus[usize::from(cpu)].pin();
            match kind {
                Kind::Alloc => {
                    let (these, rest) = pages.split_at(len as usize);
                    pages = rest;
                    for &(level, slot) in these {
                        out[slot as usize] = policy.alloc(&pin, Level(level), AllocFlags::NORMAL)?.into_raw();
                    }
                }
                Kind::Free => {
                    let (these, rest) = pages.split_at(len as usize);
                    pages = rest;
                    for &(level, slot) in these {
                        // SAFETY: 1. the address came from `into_raw` at the slot's allocation, and a slot is freed
                        // once for each time it was filled, as in the run it was written down from. 2. nobody wrote
                        // to the page. 3. it never was linked.
                        let page = unsafe { Clean::from_raw(out[slot as usize]) };
                        policy.unused(&pin, Level(level), page);
                    }
                }
                Kind::GatherEnd => (0..len).for_each(|_| policy.gather_end(&pin)),
                Kind::Idle => (0..len).for_each(|_| policy.idle(&pin)),
            }
        }
        Ok(thread_time() - start)
    }
}

/// A policy that does nothing: what a stream takes over it is the stream's own.
pub struct Nothing;

impl Policy for Nothing {
    #[inline(always)]
    fn alloc(&self, pin: &Pinned<'_>, level: Level, _: AllocFlags) -> Result<Clean, NoFrame> {
        let at = PhysAddr(u64::from(level.0) << 12 | u64::from(pin.cpu().0) << 20);
        // SAFETY: 1. to 3. hold for nobody, but pages of this policy are never looked at, only handed back to it.
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
