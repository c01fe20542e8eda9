//! Repeats the allocator calls of a run back to back, on a fresh machine. Only so can calls of 5 ns
//! be measured.
//!
//! Consecutive calls of one kind on one CPU run in one loop. Decoding the stream still costs as
//! much as a call or two, mostly in unpredictable branches. So the same stream also runs over
//! [`Nothing`], and that time is subtracted.
use super::measured::PolicyCall;
use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::{MAX_CPUS, MachineId, NodeId};
use ptarmigan::frames::{AllocFlags, NoFrame};
use ptarmigan::page::{Clean, FlushProof, Flushed, FlushedLeaves, Level, Unhooked};
use ptarmigan::quicklist::{Here, Policy, PolicyCounts, PolicyOn, Returned, TakesUnhooked};
use ptarmigan_bench::clock::thread_time;
use ptarmigan_hosted::CpuSlot;
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
        Stream::of(calls.iter(), slots_used)
    }

    /// Groups the calls of each of `levels` levels by themselves: allocations, frees, and the ends
    /// of gathers and idle moments on a CPU that has called for the level since the last one.
    pub fn by_level(calls: &[PolicyCall], slots_used: u32, levels: usize) -> Vec<Self> {
        let of_level = |level: usize| {
            let mut called = [false; MAX_CPUS];
            let its = calls.iter().filter(move |call| match **call {
                PolicyCall::Alloc { level: of, cpu, .. } | PolicyCall::Free { level: of, cpu, .. } => {
                    let its = usize::from(of) == level;
                    called[usize::from(cpu)] |= its;
                    its
                }
                PolicyCall::GatherEnd(cpu) => called[usize::from(cpu)],
                PolicyCall::Idle(cpu) => std::mem::take(&mut called[usize::from(cpu)]),
            });
            Stream::of(its, slots_used)
        };
        (0..levels).map(of_level).collect()
    }

    fn of<'c>(calls: impl Iterator<Item = &'c PolicyCall>, slots_used: u32) -> Self {
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
    #[inline(never)] // so that profilers tell it from the surrounding code
    pub fn run<P: Policy>(&self, policy: &P, cpus: &[CpuSlot]) -> Result<Duration, NoFrame> {
        let mut out = vec![PhysAddr(0); self.slots_used as usize];
        let mut pages = self.pages.as_slice();
        // Policies that take tables before their flush get roots after it, as they do in a run:
        // they list them behind the trim.
        let flushed_root = policy.takes_unhooked().and_then(|_| policy.root());
        let start = thread_time();
        for &CallRun { kind, cpu, len } in &self.runs {
            let pin = cpus[usize::from(cpu)].pin();
            // SAFETY: 1. the CPUs are those of the machine that the policy was made for: a run has
            // one.
            let here = unsafe { PolicyOn::new_unchecked(policy, &pin) };
            match kind {
                CallKind::Alloc => {
                    let (these, rest) = pages.split_at(len as usize);
                    pages = rest;
                    for &(level, slot) in these {
                        let page = here.alloc(Level(level), AllocFlags::NORMAL)?;
                        out[slot as usize] = page.into_raw();
                    }
                }
                CallKind::Free => {
                    let (these, rest) = pages.split_at(len as usize);
                    pages = rest;
                    for &(level, slot) in these {
                        if flushed_root == Some(Level(level)) {
                            let mut root = Unhooked::new();
                            // SAFETY: 1. and 2. as below. 3. it is new.
                            unsafe { root.push_root(out[slot as usize], Level(level)) };
                            // SAFETY: 1. no CPU has ever loaded it.
                            let root = root.flushed(unsafe { FlushProof::claim() });
                            // SAFETY: 1. it came from this policy: the run has one.
                            unsafe { here.flushed(root) };
                            continue;
                        }
                        // SAFETY: 1. the address came from `into_raw` at the slot's allocation, and
                        // a slot is freed once for each time it was filled, as in the run it was
                        // written down from. 2. nobody wrote to the page. 3. it never was linked.
                        let page = unsafe { Clean::from_raw(out[slot as usize], Level(level)) };
                        // SAFETY: 1. it came from this policy: the run has one.
                        unsafe { here.free_unlinked(page) };
                    }
                }
                CallKind::GatherEnd => (0..len).for_each(|_| here.gather_end()),
                CallKind::Idle => (0..len).for_each(|_| here.idle()),
            }
        }
        Ok(thread_time() - start)
    }
}

/// A policy without effect, for the CPUs of the machine that it names: the time of a stream over it
/// is the stream's own.
pub struct Nothing(pub MachineId);

// SAFETY: 1. the machine is a field, the number of CPUs a constant; pages are no frames, but no
// code links them. 2. they are of the level that is asked for. 3. no code ever looks at them. 4.
// proofs go to no other policy.
unsafe impl Policy for Nothing {
    fn machine(&self) -> MachineId {
        self.0
    }

    fn cpus(&self) -> usize {
        MAX_CPUS
    }

    #[inline]
    fn takes_unhooked(&self) -> Option<&dyn TakesUnhooked> {
        None
    }

    #[inline]
    fn alloc(&self, here: Here<'_>, level: Level, _: AllocFlags) -> Result<Clean, NoFrame> {
        let at = PhysAddr(u64::from(level.0) << 12 | u64::from(here.cpu().0) << 20);
        // SAFETY: 1. to 3. hold for nobody, but pages of this policy are never looked at, only
        // handed back to it.
        Ok(unsafe { Clean::from_raw(std::hint::black_box(at), level) })
    }

    fn alloc_at_hand(&self, _: Here<'_>, _: Level, _: AllocFlags) -> Option<Clean> {
        None
    }

    fn adopt(&self, _: Here<'_>, _: &Clean) {}

    #[inline]
    fn free_unlinked(&self, _: Here<'_>, page: Returned<Clean>) {
        std::hint::black_box((page.level(), page.into_inner().into_raw()));
    }

    fn flushed(&self, _: Here<'_>, _: Returned<Flushed>) {}

    fn flushed_leaves<'t>(
        &self,
        _: Here<'_>,
        pages: Returned<FlushedLeaves<'t>>,
    ) -> Result<(), Returned<FlushedLeaves<'t>>> {
        Err(pages)
    }

    #[inline]
    fn gather_end(&self, here: Here<'_>) {
        std::hint::black_box(here.cpu());
    }

    #[inline]
    fn idle(&self, here: Here<'_>) {
        std::hint::black_box(here.cpu());
    }

    fn end_interval(&self, _: Here<'_>) -> u32 {
        0
    }

    fn reclaim(&self, _: Here<'_>, _: NodeId, _: u32) -> u32 {
        0
    }

    fn drain(&self, _: Here<'_>) {}

    fn counts(&self) -> PolicyCounts {
        PolicyCounts::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_of_a_level_has_the_calls_of_the_level_alone() {
        let (alloc, free) = (
            |level, cpu, slot| PolicyCall::Alloc { level, cpu, slot },
            |level, cpu, slot| PolicyCall::Free { level, cpu, slot },
        );
        let calls = [
            alloc(0, 0, 0),
            alloc(1, 0, 1),
            PolicyCall::GatherEnd(0),
            free(0, 1, 0),
            PolicyCall::GatherEnd(1),
            PolicyCall::Idle(1),
            PolicyCall::GatherEnd(1),
            PolicyCall::Idle(1),
            free(1, 0, 1),
        ];
        let [low, high] =
            Stream::by_level(&calls, 2, 2).try_into().unwrap_or_else(|_| unreachable!("two levels"));
        assert_eq!((low.pages, high.pages), (vec![(0, 0), (0, 0)], vec![(1, 1), (1, 1)]));
        let kinds =
            |stream: &[CallRun]| stream.iter().map(|run| (run.kind as u8, run.cpu)).collect::<Vec<_>>();
        let [alloc, free, end, idle] =
            [CallKind::Alloc, CallKind::Free, CallKind::GatherEnd, CallKind::Idle].map(|kind| kind as u8);
        assert_eq!(kinds(&low.runs), [(alloc, 0), (end, 0), (free, 1), (end, 1), (idle, 1)]);
        assert_eq!(kinds(&high.runs), [(alloc, 0), (end, 0), (free, 0)]);
    }
}
