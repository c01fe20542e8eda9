//! Samples of where tasks cause faults and make calls: registers and the end of the stack.
//!
//! One fault of [`FAULTS`] is sampled, every call that makes a task or a program, and one call of
//! [`CALLS`] of the others. Under a storm of faults fewer are kept, and stand for more.
use super::members::Members;
use super::ring::{PerfRing, Strange, enable, filter, identifier, open_event, software};
use crate::linux::callers::CallerSample;
use crate::linux::raw::{MmCall, Raw, RawKind, clone_call};
use crate::linux::system::proc::PAGE_SHIFT;
use perf_event_open_sys::bindings as b;
use ptarmigan_term::{Context, Failure};
use ptarmigan_trace::{Call, Cause};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;

/// Of so many faults one is sampled. A prime: programs repeat in other periods.
pub(crate) const FAULTS: u64 = 61;
/// Of so many calls one is sampled, except those that make tasks and programs.
pub(crate) const CALLS: u64 = 13;
/// Bytes of a stack.
pub(crate) const STACK: u32 = 8 << 10;
/// The most samples of one look at a ring that are kept before there are fewer.
const MOST: u64 = 100;

/// Registers of a sample: the frame pointer, the stack pointer, the instruction pointer, in this
/// order.
const REGISTERS: u64 = 1 << b::PERF_REG_X86_BP | 1 << b::PERF_REG_X86_SP | 1 << b::PERF_REG_X86_IP;

const FORKS_TRACED: [i64; 6] = [
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_execve,
    libc::SYS_execveat,
];

const CALLS_TRACED: [i64; 10] = [
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_brk,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_pkey_mprotect,
    libc::SYS_madvise,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_shmat,
];

/// Returns the call that a system call is. For `clone3` the kind of clone is known later.
pub(crate) fn call_of(number: i64, flags: u64) -> Option<Call> {
    Some(match number {
        libc::SYS_clone => clone_call(flags),
        libc::SYS_clone3 => Call::Clone,
        libc::SYS_fork => Call::Fork,
        libc::SYS_vfork => Call::Vfork,
        libc::SYS_execve | libc::SYS_execveat => Call::Exec,
        libc::SYS_shmat => Call::Segment,
        number if CALLS_TRACED.contains(&number) => MmCall::of(number)?.timed_as(),
        _ => return None,
    })
}

/// Returns the first page of a call's range, 0 for calls without one.
pub(crate) fn page_of(call: Call, first: u64) -> u64 {
    match call {
        Call::Fork | Call::Vfork | Call::Clone | Call::Exec | Call::Exit | Call::Segment => 0,
        _ => (first >> PAGE_SHIFT).min((1 << 52) - 1),
    }
}

/// Bytes of a ring for samples of all tasks: as many as that of the tracepoints.
const ALL_TASKS: usize = 32 << 20;

/// The events of samples on one CPU, which share a ring.
pub(crate) struct Samplers {
    _events: Vec<OwnedFd>,
    /// Identifiers of events of faults.
    faults: Vec<u64>,
    /// Identifiers of events of calls, with their periods.
    calls: Vec<(u64, u64)>,
    thinning: Thinning,
    /// The recorded processes, if the events are of all tasks.
    pub(crate) members: Option<Members>,
}

fn sampled(attr: &mut b::perf_event_attr, period: u64, raw: bool) {
    let samples = b::PERF_SAMPLE_IDENTIFIER
        | b::PERF_SAMPLE_TID
        | b::PERF_SAMPLE_TIME
        | b::PERF_SAMPLE_ADDR
        | b::PERF_SAMPLE_CPU
        | b::PERF_SAMPLE_REGS_USER
        | b::PERF_SAMPLE_STACK_USER
        | if raw { b::PERF_SAMPLE_RAW } else { 0 };
    attr.sample_type = samples.into();
    attr.__bindgen_anon_1.sample_period = period;
    attr.sample_regs_user = REGISTERS;
    attr.sample_stack_user = STACK;
}

impl Samplers {
    /// Samples the faults of tasks and their descendants on one CPU, in a ring of `bytes`.
    pub(crate) fn of_tasks(pids: &[i32], cpu: u16, bytes: usize) -> Result<(Self, PerfRing), Failure> {
        let mut attr = software(b::PERF_COUNT_SW_PAGE_FAULTS, 0);
        sampled(&mut attr, FAULTS, false);
        attr.set_inherit(1);
        let (first, others) = pids.split_first().ok_or_else(Failure::quiet)?;
        let ring = PerfRing::open(&mut attr, *first, cpu, bytes)?;
        let (mut faults, mut events) = (vec![identifier(&ring).context("perf: an event")?], Vec::new());
        for pid in others {
            let event = open_event(&mut attr, *pid, cpu).context("perf: an event")?;
            ring.take_from(&event).context("perf: an event")?;
            faults.push(identifier(&event).context("perf: an event")?);
            events.push(event);
        }
        Ok((
            Self { _events: events, faults, calls: Vec::new(), thinning: Thinning::new(), members: None },
            ring,
        ))
    }

    /// Samples the faults and calls of all tasks on one CPU, and keeps the samples of `members`.
    /// `tracepoint` is the number of the tracepoint of all system calls.
    pub(crate) fn of_all(cpu: u16, tracepoint: u64, members: Members) -> Result<(Self, PerfRing), Failure> {
        let mut attr = software(b::PERF_COUNT_SW_PAGE_FAULTS, 0);
        sampled(&mut attr, FAULTS, false);
        // Faults of the kernel in a program's memory, too.
        attr.set_exclude_kernel(0);
        // Tells of forks.
        attr.set_task(1);
        let ring = PerfRing::open(&mut attr, -1, cpu, ALL_TASKS)?;
        let faults = vec![identifier(&ring).context("perf: an event")?];
        let (mut calls, mut events) = (Vec::new(), Vec::new());
        for (numbers, period) in [(&FORKS_TRACED[..], 1), (&CALLS_TRACED[..], CALLS)] {
            let mut attr = software(0, 0);
            (attr.type_, attr.config) = (b::PERF_TYPE_TRACEPOINT, tracepoint);
            attr.set_exclude_kernel(0);
            sampled(&mut attr, period, true);
            attr.set_disabled(1);
            let mut add = || {
                let event = open_event(&mut attr, -1, cpu)?;
                let wanted: Vec<String> = numbers.iter().map(|number| format!("id == {number}")).collect();
                filter(&event, &CString::new(wanted.join(" || "))?)?;
                ring.take_from(&event)?;
                calls.push((identifier(&event)?, period));
                enable(&event)?;
                events.push(event);
                io::Result::Ok(())
            };
            add().context("perf: an event of calls")?;
        }
        let (thinning, members) = (Thinning::new(), Some(members));
        Ok((Self { _events: events, faults, calls, thinning, members }, ring))
    }

    /// Begins one look at the ring.
    pub(crate) fn look(&mut self) {
        self.thinning.look();
    }

    /// Decodes a sample. `None` for one of other calls, of the kernel's own tasks or of another
    /// event. One that stands for no event is left out for others; its stack was copied all the
    /// same.
    pub(crate) fn decode(&mut self, r: &[u8]) -> Result<Option<Raw>, Strange> {
        let [word, long] = [4, 8].map(|bytes| move |at: usize| number(r, at, bytes).ok_or(Strange));
        let id = long(8)?;
        let call = self.calls.iter().find(|(of, _)| *of == id).map(|(_, period)| *period);
        if !self.faults.contains(&id) && call.is_none() {
            return Ok(None);
        }
        let (cause, page, events, at) = match call {
            None => (Cause::Fault, long(32)? >> PAGE_SHIFT, None, 48),
            Some(period) => {
                // Length, then the common fields of tracepoints, the number and the arguments.
                let len = word(48)? as usize;
                let Some(call) = call_of(long(60)? as i64, long(68)?) else { return Ok(None) };
                (Cause::Call(call), page_of(call, long(68)?), Some(period), 52 + len)
            }
        };
        // A task without registers is the kernel's own.
        if long(at)? == 0 || page >= 1 << 52 {
            return Ok(None);
        }
        let (bp, sp, mut ip) = (long(at + 8)?, long(at + 16)?, long(at + 24)?);
        if cause == Cause::Call(Call::Vfork) && long(60)? == libc::SYS_vfork as u64 {
            ip = after_vfork(long(68)?);
        }
        let size = usize::try_from(long(at + 32)?).map_err(|_| Strange)?;
        let end = (at + 40).checked_add(size).ok_or(Strange)?;
        let data = r.get(at + 40..end).ok_or(Strange)?;
        let used = if size == 0 { 0 } else { usize::try_from(long(end)?).map_err(|_| Strange)?.min(size) };
        let (time, cpu, pid) = (long(24)?, word(40)? as u16, word(20)? as i32);
        // Only a sample that is whole stands for others.
        let events = events.unwrap_or_else(|| FAULTS * self.thinning.keep());
        let (words, _) = data[..used].as_chunks::<8>();
        let kept = if events == 0 { &[] } else { words };
        let stack = kept.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let what = RawKind::Sampled(Box::new(CallerSample { cause, page, events, ip, sp, bp, stack }));
        Ok(Some(Raw { time, cpu, pid, what }))
    }
}

/// Keeps one sample of several, if there are too many.
struct Thinning {
    /// Of so many one is kept.
    stride: u64,
    /// Samples since one was kept.
    since: u64,
    /// Samples kept in this look.
    kept: u64,
}

impl Thinning {
    fn new() -> Self {
        Self { stride: 1, since: 0, kept: 0 }
    }

    fn look(&mut self) {
        if self.kept > MOST {
            self.stride = (self.stride * 2).min(1 << 10);
        } else if self.kept < MOST / 4 {
            self.stride = (self.stride / 2).max(1);
        }
        self.kept = 0;
    }

    /// Returns for how many the next sample stands; 0 if it is not kept.
    fn keep(&mut self) -> u64 {
        self.since += 1;
        if self.since < self.stride {
            return 0;
        }
        self.kept += 1;
        std::mem::take(&mut self.since)
    }
}

/// Returns the address at which the caller of the C library's `vfork` made the call. The function
/// keeps its return address in the register of the first argument: parent and child share a stack.
pub(crate) fn after_vfork(first: u64) -> u64 {
    first.wrapping_sub(1)
}

/// Returns the process of a sample, and its time.
pub(crate) fn process_of(r: &[u8]) -> Option<(i32, u64)> {
    Some((number(r, 16, 4)? as i32, number(r, 24, 8)?))
}

/// Returns the number of the tracepoint of all system calls.
pub(crate) fn tracepoint() -> io::Result<u64> {
    let id = fs::read_to_string("/sys/kernel/tracing/events/raw_syscalls/sys_enter/id")?;
    id.trim().parse().map_err(io::Error::other)
}

/// Returns the number of so many bytes, 8 at most, in a record.
fn number(r: &[u8], at: usize, bytes: usize) -> Option<u64> {
    let part = r.get(at..at.checked_add(bytes)?)?;
    Some(part.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samplers() -> Samplers {
        Samplers {
            _events: Vec::new(),
            faults: vec![7],
            calls: vec![(8, 1), (9, 13)],
            thinning: Thinning::new(),
            members: None,
        }
    }

    /// A record of a sample, as the kernel writes it.
    fn record(id: u64, raw: Option<(i64, u64)>) -> Vec<u8> {
        let mut r = vec![0; 8];
        let mut add = |numbers: &[u64]| r.extend(numbers.iter().flat_map(|n| n.to_le_bytes()));
        // Identifier, process and task, time, address, CPU.
        add(&[id, 5 << 32 | 4, 1234, 0x7_0000, 3]);
        if let Some((number, first)) = raw {
            // 68 bytes, in a word of 32 bits before them.
            let mut bytes = 68_u32.to_le_bytes().to_vec();
            bytes.extend([0; 8]);
            bytes.extend([number as u64, first].iter().flat_map(|n| n.to_le_bytes()));
            bytes.resize(4 + 68, 0);
            r.extend(bytes);
        }
        let mut add = |numbers: &[u64]| r.extend(numbers.iter().flat_map(|n| n.to_le_bytes()));
        // Kind of registers, registers; of the stack three words, of which two are there.
        add(&[2, 30, 20, 10, 24, 100, 200, 300, 16]);
        r
    }

    #[test]
    fn samples_become_raw_events() {
        let raw = samplers().decode(&record(7, None)).expect("known").expect("a sample");
        assert_eq!((raw.time, raw.cpu, raw.pid), (1234, 3, 5));
        assert_eq!(process_of(&record(7, None)), Some((4, 1234)));
        let RawKind::Sampled(sample) = raw.what else { panic!("{raw:?}") };
        assert_eq!((sample.cause, sample.page, sample.events), (Cause::Fault, 0x70, FAULTS));
        assert_eq!((sample.ip, sample.sp, sample.bp, &sample.stack[..]), (10, 20, 30, &[100, 200][..]));
        let raw = samplers()
            .decode(&record(9, Some((libc::SYS_munmap, 0x5000))))
            .expect("known")
            .expect("a sample");
        let RawKind::Sampled(sample) = raw.what else { panic!("{raw:?}") };
        assert_eq!((sample.cause, sample.page, sample.events), (Cause::Call(Call::Munmap), 5, 13));
        assert_eq!(sample.stack, [100, 200]);
    }

    #[test]
    fn samples_of_other_events_are_left_out_and_cut_ones_strange() {
        assert_eq!(samplers().decode(&record(6, None)), Ok(None));
        assert_eq!(samplers().decode(&record(8, Some((libc::SYS_read, 0)))), Ok(None));
        for whole in [record(7, None), record(8, Some((libc::SYS_fork, 0)))] {
            for len in 0..whole.len() {
                assert_eq!(samplers().decode(&whole[..len]), Err(Strange), "{len}");
            }
            // The kernel may have made it longer than it says.
            let longer = [&whole[..], &[0xee; 8280]].concat();
            assert_eq!(samplers().decode(&longer), samplers().decode(&whole));
        }
    }

    #[test]
    fn kinds_of_clone_are_told_by_their_flags() {
        let of = |flags: i32| call_of(libc::SYS_clone, flags as u64);
        assert_eq!(of(libc::SIGCHLD), Some(Call::Fork));
        assert_eq!(of(libc::CLONE_VM | libc::CLONE_VFORK), Some(Call::Vfork));
        assert_eq!(of(libc::CLONE_VM | libc::CLONE_THREAD), Some(Call::Clone));
        assert_eq!((page_of(Call::Fork, 1 << 20), page_of(Call::Mmap, 1 << 20)), (0, 1 << 8));
    }

    #[test]
    fn many_samples_are_thinned_out_and_stand_for_all() {
        let mut thinning = Thinning::new();
        let mut stood = 0;
        for _ in 0..20 {
            thinning.look();
            stood += (0..10_000).map(|_| thinning.keep()).sum::<u64>();
        }
        assert!(thinning.kept <= 200, "{}", thinning.kept);
        assert_eq!(stood + thinning.since, 200_000);
        (0..20).for_each(|_| thinning.look());
        assert_eq!(thinning.stride, 1);
    }
}
