//! CPUs that tasks run on, and how they share them: one run queue, in turns of a tick each, those
//! with a rank first. A CPU leaves out tasks that may not run on it.

use super::layout::Layout;
use super::time::Width;
use super::{Stop, Sys};
use crate::arch::Arch;
use crate::counts::Count;
use crate::errno::Errno;
use crate::task::{CpuSet, Doing, TICK, Turns, Usage};

/// Policies that Linux knows, as a set: `SCHED_OTHER`, `FIFO`, `RR`, `BATCH`, `IDLE`, `DEADLINE`.
const POLICIES: u64 = 0b110_1111;
/// Those with priorities: `SCHED_FIFO` and `SCHED_RR`.
const REAL_TIME: u64 = 0b110;

impl<A: Arch> Sys<'_, A> {
    /// Returns the slot of a task by number; 0 is the caller's.
    fn task_with(&self, tid: u64) -> Result<usize, Errno> {
        match tid as i32 {
            0 => Ok(self.me),
            tid => self.state.tasks.find_task(tid).ok_or(Errno::ESRCH),
        }
    }

    /// `sched_getaffinity`. Returns the bytes of the set, a word.
    pub(super) fn affinity(&mut self, tid: u64, len: u64, at: u64) -> Result<u64, Errno> {
        let word = A::ABI.word();
        // No machine of the kernel's has more CPUs than a word has bits.
        Errno::EINVAL.when(len < word as u64 || !len.is_multiple_of(word as u64))?;
        let slot = self.task_with(tid)?;
        let set = self.state.tasks.get(slot).cpus.bits(self.kernel.cpu_count());
        self.write_bytes(at, &set.to_le_bytes()[..word])?;
        Ok(word as u64)
    }

    /// `sched_setaffinity`: CPUs that are not there are left out. A task that runs on another CPU
    /// leaves that at once: the caller before the call ends, others as soon as their CPU is
    /// interrupted.
    pub(super) fn set_affinity(&mut self, tid: u64, len: u64, at: u64) -> Result<u64, Stop> {
        let mut set = [0; 8];
        self.read_bytes(at, &mut set[..len.min(8) as usize])?;
        let slot = self.task_with(tid)?;
        let cpus = CpuSet::of(u64::from_le_bytes(set), self.kernel.cpu_count()).ok_or(Errno::EINVAL)?;
        self.state.tasks.set_cpus(slot, cpus);
        match self.state.tasks.get(slot).doing {
            Doing::Running(cpu) if cpus.has(cpu) => {}
            Doing::Running(_) if slot == self.me => return Err(Stop::GiveWay),
            Doing::Running(cpu) => {
                self.kernel.count(Count::Ipis);
                A::interrupt(cpu);
            }
            _ => self.kernel.wake_idle(self.state),
        }
        Ok(0)
    }

    /// `getcpu`.
    pub(super) fn current_cpu(&mut self, cpu_at: u64, node_at: u64) -> Result<u64, Errno> {
        let (cpu, node) = (A::cpu() as u32, u32::from(self.pin.node().0));
        for (at, number) in [(cpu_at, cpu), (node_at, node)] {
            if at != 0 {
                self.write_bytes(at, &number.to_le_bytes())?;
            }
        }
        Ok(0)
    }

    /// Returns how a task takes turns, by number as the calls of `sched_` have it.
    fn turns_of(&self, tid: u64) -> Result<Turns, Errno> {
        Errno::EINVAL.when((tid as i32) < 0)?;
        self.task_with(tid).map(|slot| self.state.tasks.get(slot).turns)
    }

    /// `sched_getscheduler`.
    pub(super) fn policy(&self, tid: u64) -> Result<u64, Errno> {
        self.turns_of(tid).map(|turns| turns.policy().into())
    }

    /// `sched_getparam`.
    pub(super) fn rank(&mut self, tid: u64, at: u64) -> Result<u64, Errno> {
        Errno::EINVAL.when(at == 0)?;
        let rank = self.turns_of(tid)?.rank;
        self.answer(at, &u32::from(rank).to_le_bytes())
    }

    /// `sched_setscheduler`, and without a policy `sched_setparam`.
    pub(super) fn set_policy(&mut self, tid: u64, policy: Option<u64>, at: u64) -> Result<u64, Errno> {
        Errno::EINVAL
            .when(at == 0 || (tid as i32) < 0 || policy.is_some_and(|policy| (policy as i32) < 0))?;
        let rank = self.read_u32(at)?;
        let slot = self.task_with(tid)?;
        let policy = policy.map_or(self.state.tasks.get(slot).turns.policy(), |policy| policy as u32);
        self.state.tasks.set_turns(slot, Turns::new(policy, rank)?);
        Ok(0)
    }

    /// `sched_rr_get_interval`: turns are of a tick; 0 for tasks without turns.
    pub(super) fn turn_length(&mut self, tid: u64, at: u64, width: Width) -> Result<u64, Errno> {
        let turns = self.turns_of(tid)?;
        self.put_time(at, width, 0, if turns.takes_turns() { TICK } else { 0 })
    }

    /// `sched_get_priority_max` and, with `least`, `sched_get_priority_min`.
    pub(super) fn priority_range(policy: u64, least: bool) -> Result<u64, Errno> {
        let is = |set: u64| policy < 8 && set & 1 << policy != 0;
        Errno::EINVAL.when(!is(POLICIES))?;
        Ok(if !is(REAL_TIME) {
            0
        } else if least {
            1
        } else {
            99
        })
    }

    /// Returns the processes that `getpriority` and `setpriority` mean, each for which `f` returns
    /// a number; the least of these.
    ///
    /// # Errors
    ///
    /// [`Errno::EINVAL`] for another kind of name, [`Errno::ESRCH`] if no process has it.
    fn each_named(&mut self, kind: u64, name: u64, mut f: impl FnMut(&mut i8)) -> Result<i8, Errno> {
        let (own, group, name) = (self.process_slot(), self.process().group, name as i32);
        let tasks = &mut self.state.tasks;
        let mut least = None;
        for slot in tasks.slots() {
            if !tasks.is_process(slot) {
                continue;
            }
            let process = tasks.process(slot);
            let is_meant = match kind {
                0 => {
                    if name == 0 {
                        slot == own
                    } else {
                        process.pid == name
                    }
                }
                1 => process.group == if name == 0 { group } else { name },
                // There is one user.
                2 => name == 0,
                _ => return Err(Errno::EINVAL),
            };
            if is_meant {
                let nice = &mut tasks.process_mut(slot).nice;
                f(nice);
                least = Some(least.map_or(*nice, |least: i8| least.min(*nice)));
            }
        }
        least.ok_or(Errno::ESRCH)
    }

    /// `getpriority`: 20 minus the lowest number of those that are meant.
    pub(super) fn priority(&mut self, kind: u64, name: u64) -> Result<u64, Errno> {
        self.each_named(kind, name, |_| {}).map(|nice| (20 - i64::from(nice)) as u64)
    }

    /// `setpriority`: the number is kept and told, and tasks take turns as before.
    pub(super) fn set_priority(&mut self, kind: u64, name: u64, nice: u64) -> Result<u64, Errno> {
        let nice = (nice as i32).clamp(-20, 19) as i8;
        self.each_named(kind, name, |place| *place = nice).map(|_| 0)
    }

    /// `set_robust_list`.
    pub(super) fn set_robust_list(&mut self, head: u64, len: u64) -> Result<u64, Errno> {
        Errno::EINVAL.when(len != 3 * A::ABI.word() as u64)?;
        self.task().robust = head;
        Ok(0)
    }

    /// `get_robust_list`.
    pub(super) fn robust_list(&mut self, tid: u64, head_at: u64, len_at: u64) -> Result<u64, Errno> {
        let slot = self.task_with(tid)?;
        let head = self.state.tasks.get(slot).robust;
        let word = A::ABI.word();
        self.write_bytes(len_at, &(3 * word as u64).to_le_bytes()[..word])?;
        self.answer(head_at, &head.to_le_bytes()[..word])
    }

    /// `getrusage`: the time in user mode, to a tick, and the faults. Time in the kernel is not
    /// charged to programs.
    pub(super) fn usage(&mut self, which: u64, at: u64) -> Result<u64, Errno> {
        const SELF: i32 = 0;
        const CHILDREN: i32 = -1;
        const THREAD: i32 = 1;
        let faults = self.kernel.take_faults(self.body);
        self.task().usage.faults += faults;
        let tasks = &self.state.tasks;
        let usage = match which as i32 {
            SELF => tasks.usage_of(self.process_slot()),
            CHILDREN => tasks.process_of(self.me).children,
            THREAD => tasks.get(self.me).usage,
            _ => return Err(Errno::EINVAL),
        };
        self.write_usage(at, usage)
    }

    /// Writes a `struct rusage`: two times in seconds and microseconds, then 14 words, of which the
    /// fifth counts faults that needed no device.
    pub(super) fn write_usage(&mut self, at: u64, usage: Usage) -> Result<u64, Errno> {
        let micros = usage.micros();
        let mut out = Layout::<144>::new(A::ABI);
        out.word(micros / 1_000_000).word(micros % 1_000_000).word(0).word(0);
        for place in 0..14 {
            out.word(if place == 4 { usage.faults } else { 0 });
        }
        self.answer(at, out.bytes())
    }
}
