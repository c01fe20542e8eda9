//! Measures the time that the stops add to a call.
//!
//! ```text
//!  child     33 pages without stops: median ── Release ──> wait: alone
//!  tracer on CPU 0    stop ─ resume ─ stop: median - alone ──> together
//!  tracer on CPU 1    stop ─ resume ─ stop: median - alone ──> apart
//! ```
//!
//! # Why
//!
//! At the end of a call a task wakes its tracer, and its clock still runs. A tracer that sleeps on
//! the task's CPU is put into a queue. One on another CPU is sent an interrupt, which takes several
//! times as long, under a hypervisor most of all. So there are two costs, and they must be measured
//! on the machine at hand: a table of costs would be wrong by more than the calls take.
//!
//! A call after a stop finds its caches cold, which is the stops' doing, too. So a cost is the time
//! that mapping and unmapping a page takes longer with stops than without.
use super::sys;
use ptarmigan_bench::affinity::AffinityGuard;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::sync::atomic::{AtomicU64, Ordering};

/// Pages that are mapped and unmapped for the median of each cost.
const PAGES: usize = 33;
/// The size of a page, at least.
const PAGE: usize = 4096;

/// About how many nanoseconds of a call's time are its stops'.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StopCost {
    /// The tracer was woken on the task's CPU.
    pub(crate) together: u64,
    /// It was woken on another.
    pub(crate) apart: u64,
}

impl StopCost {
    /// Measures calls of a process of its own, which stops at the calls that `filter` names, or at
    /// all. The costs are 0 if it cannot be traced.
    pub(crate) fn measure(filter: Option<&[libc::sock_filter]>) -> Self {
        measure(filter).unwrap_or_default()
    }
}

fn measure(filter: Option<&[libc::sock_filter]>) -> Option<StopCost> {
    let program = filter
        .map(|filter| libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() });
    let alone = SharedWord::new()?;
    let pid = {
        // The child stays on this CPU.
        let _first = AffinityGuard::on(0).ok()?;
        // SAFETY: the child runs `calls` alone.
        match unsafe { libc::fork() } {
            0 => calls(alone.word(), program.as_ref()),
            pid => pid,
        }
    };
    sys::ok(pid.into()).ok()?;
    let cost = alone.wait(pid).and_then(|alone| {
        sys::seize(pid).and_then(|()| sys::interrupt(pid)).ok()?;
        let cost = |cpu| {
            let _tracer = AffinityGuard::on(cpu).ok()?;
            Some(median(pid, filter.is_some())?.saturating_sub(alone) / 2)
        };
        let (together, apart) = (cost(0)?, cost(1)?);
        // One that another program delayed is no cost of the interrupt.
        Some(StopCost { together, apart: apart.max(together) })
    });
    sys::kill(pid, libc::SIGKILL);
    while let Ok(Some(status)) = sys::next_stop(pid)
        && libc::WIFSTOPPED(status)
    {
        let _ = sys::resume(pid, 0);
    }
    cost
}

/// A word that the child shares with this process: the nanoseconds of a page without stops.
struct SharedWord(*mut AtomicU64);

impl SharedWord {
    fn new() -> Option<Self> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps no other.
        let at = unsafe { mmap_anonymous(std::ptr::null_mut(), PAGE, prot, MapFlags::SHARED) };
        Some(Self(at.ok()?.cast()))
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: the mapping is aligned to pages, zero at first, and lives as long as `self`. Both
        // processes access it as an atomic alone.
        unsafe { &*self.0 }
    }

    /// Waits for the child to write it. `None` if that has ended.
    fn wait(&self, child: i32) -> Option<u64> {
        let child = WaitId::Pid(Pid::from_raw(child)?);
        let ended =
            || waitid(child.clone(), WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT);
        loop {
            match self.word().load(Ordering::Acquire) {
                0 if !matches!(ended(), Ok(None)) => return None,
                0 => std::thread::yield_now(),
                nanos => return Some(nanos),
            }
        }
    }
}

impl Drop for SharedWord {
    fn drop(&mut self) {
        // SAFETY: the mapping has this length, and `word` cannot be borrowed any more. A failure
        // leaks it.
        let _ = unsafe { munmap(self.0.cast(), PAGE) };
    }
}

/// Maps and unmaps pages until it is killed, in the child of a fork. Touches no lock and no memory
/// that another thread may have left half changed.
fn calls(alone: &AtomicU64, filter: Option<&libc::sock_fprog>) -> ! {
    let page = || {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the kernel's choice overlaps no other, and no
        // reference to it is left when it goes. A refused one is at an address that cannot be
        // unmapped.
        unsafe { libc::munmap(libc::mmap(std::ptr::null_mut(), PAGE, prot, flags, -1, 0), PAGE) };
    };
    let mut times = [0; PAGES];
    for time in &mut times {
        let begun = sys::now();
        page();
        *time = sys::now() - begun;
    }
    times.sort_unstable();
    // SAFETY: the calls are async-signal-safe. The filter is a valid program that lives until the
    // call returns, for the child has a copy of its parent's memory.
    unsafe {
        // The tracer may be killed before it traces.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if let Some(filter) = filter {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            let set = libc::SECCOMP_SET_MODE_FILTER;
            // Calls fail until it is traced, and stop from then on.
            if libc::syscall(libc::SYS_seccomp, set, 0, std::ptr::from_ref(filter)) != 0 {
                libc::_exit(1);
            }
        }
    }
    alone.store(times[PAGES / 2].max(1), Ordering::Release);
    loop {
        page();
    }
}

/// Returns the median of the times of pages with stops, in nanoseconds.
fn median(pid: i32, filtered: bool) -> Option<u64> {
    let mut times = Vec::with_capacity(PAGES);
    let mut first = None;
    while times.len() < PAGES {
        let status = sys::next_stop(pid).ok()??;
        libc::WIFSTOPPED(status).then_some(())?;
        let begins = match filtered {
            true => status >> 16 == libc::PTRACE_EVENT_SECCOMP,
            false => sys::is_at_beginning(pid).ok()?,
        };
        if begins {
            let before = sys::scheduled_time(pid)?;
            sys::resume_to_syscall(pid, 0).ok()?;
            libc::WIFSTOPPED(sys::next_stop(pid).ok()??).then_some(())?;
            let took = sys::scheduled_time(pid)?.saturating_sub(before);
            match first.take() {
                None => first = Some(took),
                Some(first) => times.push(first + took),
            }
        }
        if filtered { sys::resume(pid, 0) } else { sys::resume_to_syscall(pid, 0) }.ok()?;
    }
    times.sort_unstable();
    Some(times[PAGES / 2])
}

#[cfg(test)]
mod tests {
    use super::StopCost;

    #[test]
    fn stops_have_a_cost_on_the_same_cpu_and_no_less_on_another() {
        let cost = StopCost::measure(None);
        if cost == StopCost::default() {
            eprintln!("skipped: no process can be traced here");
            return;
        }
        assert!(cost.together > 0 && cost.apart >= cost.together, "{cost:?}");
    }
}
