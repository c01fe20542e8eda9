//! Measures what the stops add to the time of a call.
//!
//! At the end of a call a task wakes its tracer, and its clock still runs. A tracer that sleeps on
//! the task's CPU is put into a queue. One on another CPU is sent an interrupt, which takes several
//! times as long, under a hypervisor most of all. So there are two costs.
use super::sys;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The number of calls of which each cost is the median.
const CALLS: usize = 33;

/// About how many nanoseconds of a call's time are its stops'.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StopCost {
    /// The tracer was woken on the task's CPU.
    pub(crate) together: u64,
    /// It was woken on another.
    pub(crate) apart: u64,
}

impl StopCost {
    /// Measures calls of a process of its own, in a thread of its own, which may be moved. It stops
    /// at the calls that `filter` names, or at all. Nothing is taken off if it cannot be traced.
    pub(crate) fn measure(filter: Option<&[libc::sock_filter]>) -> Self {
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("stops".into());
            let thread = thread.spawn_scoped(scope, || measure(filter));
            thread.ok().and_then(|thread| thread.join().ok()?).unwrap_or_default()
        })
    }
}

fn measure(filter: Option<&[libc::sock_filter]>) -> Option<StopCost> {
    let allowed = sched_getaffinity(None).ok()?;
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
    let first = cpus.next()?;
    let program = filter
        .map(|filter| libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() });
    // SAFETY: the child runs `calls` alone.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        calls(program.as_ref());
    }
    sys::ok(pid.into()).ok()?;
    let cost = sys::seize(pid).and_then(|()| sys::interrupt(pid)).ok().and_then(|()| {
        let median = |tracer| median(pid, filter.is_some(), first, tracer);
        let together = median(first)?;
        let apart = cpus.next().and_then(median).unwrap_or(together);
        // One that another program delayed is no cost of the interrupt.
        Some(StopCost { together, apart: apart.max(together) })
    });
    sys::kill(pid, libc::SIGKILL);
    while let Some(status) = next_stop(pid)
        && libc::WIFSTOPPED(status)
    {
        let _ = sys::resume(pid, 0);
    }
    cost
}

/// Makes calls until it is killed, in the child of a fork: calls of `brk` that change nothing. Touches
/// no lock and no memory that another thread may have left half changed.
fn calls(filter: Option<&libc::sock_fprog>) -> ! {
    // SAFETY: the calls are async-signal-safe. The filter is a valid program that lives until the
    // call returns, for the child has a copy of its parent's memory; `brk` of 0 is refused.
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
        loop {
            libc::syscall(libc::SYS_brk, 0);
        }
    }
}

/// Returns the median of the times of calls, in nanoseconds, with the task and this thread on these
/// CPUs.
fn median(pid: i32, filtered: bool, task: usize, tracer: usize) -> Option<u64> {
    for (of, cpu) in [(Pid::from_raw(pid), task), (None, tracer)] {
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(of, &set).ok()?;
    }
    let mut times = Vec::with_capacity(CALLS);
    while times.len() < CALLS {
        let status = next_stop(pid)?;
        libc::WIFSTOPPED(status).then_some(())?;
        let begins = match filtered {
            true => status >> 16 == libc::PTRACE_EVENT_SECCOMP,
            false => sys::is_at_beginning(pid).ok()?,
        };
        if begins {
            let before = sys::scheduled_time(pid)?;
            sys::resume_to_syscall(pid, 0).ok()?;
            libc::WIFSTOPPED(next_stop(pid)?).then_some(())?;
            times.push(sys::scheduled_time(pid)?.saturating_sub(before));
        }
        if filtered { sys::resume(pid, 0) } else { sys::resume_to_syscall(pid, 0) }.ok()?;
    }
    times.sort_unstable();
    Some(times[CALLS / 2])
}

/// Waits for the next stop or the end of a task, and returns its status.
fn next_stop(pid: i32) -> Option<i32> {
    loop {
        match sys::wait_for(pid) {
            Ok(stop) => return stop.map(|(_, status)| status),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
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
