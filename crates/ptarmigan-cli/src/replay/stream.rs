//! The calls of a run, made again back to back on a fresh machine: the only way to know what 5 ns take.
use super::clock::thread_time;
use super::measure::Call;
use ptarmigan::addr::PhysAddr;
use ptarmigan::frames::{Ask, NoFrame};
use ptarmigan::hosted::CpuSlot;
use ptarmigan::quicklist::{Clean, Level, Policy};
use std::time::Duration;

/// Makes all `calls`; the processor time it took. `slots_used` is the number of pages ever out at once.
///
/// # Errors
/// [`NoFrame`] if there was no memory, as there was not in the run either; pages that were out then are lost.
pub fn run<P: Policy>(
    policy: &P,
    cpus: &[CpuSlot],
    calls: &[Call],
    slots_used: u32,
) -> Result<Duration, NoFrame> {
    let mut out = vec![PhysAddr(0); slots_used as usize];
    let start = thread_time();
    for call in calls {
        match *call {
            Call::Alloc { level, cpu, slot } => {
                let pin = cpus[usize::from(cpu)].pin();
                out[slot as usize] = policy.alloc(&pin, Level(level), Ask::NORMAL)?.into_raw();
            }
            Call::Free { level, cpu, slot } => {
                let pin = cpus[usize::from(cpu)].pin();
                // SAFETY: 1. the address came from `into_raw` at the call's `Alloc`, and a slot is freed once for
                // each time it was filled, as in the run it was written down from. 2. nobody wrote to the page.
                // 3. it never was linked.
                let page = unsafe { Clean::from_raw(out[slot as usize]) };
                policy.unused(&pin, Level(level), page);
            }
            Call::GatherEnd(cpu) => policy.gather_end(&cpus[usize::from(cpu)].pin()),
            Call::Idle(cpu) => policy.idle(&cpus[usize::from(cpu)].pin()),
        }
    }
    Ok(thread_time() - start)
}
