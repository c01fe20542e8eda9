//! The tracepoints that a recording uses.
use crate::linux::raw::MmCall;
use ptarmigan_trace::Call;

/// A group of tracepoints that make events of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Point {
    Fault,
    Clone,
    ExecStart,
    ExecDone,
    Exit,
    Enter(MmCall),
    Leave,
    Locked,
    Released,
    Refused,
    BadAddress,
    TlbFlush,
    Switch,
    Wake,
    Begin(Call),
    End,
}

/// Path of the event, its group, the kernel's filter, the required fields.
pub(super) type Wanted = (String, Point, Option<&'static str>, &'static [&'static str]);

/// Returns the tracepoints of a recording.
pub(super) fn wanted() -> Vec<Wanted> {
    let mut all: Vec<Wanted> = vec![
        ("exceptions/page_fault_user".into(), Point::Fault, None, &["address", "error_code"]),
        (
            "exceptions/page_fault_kernel".into(),
            Point::Fault,
            Some("address < 0x800000000000"),
            &["address", "error_code"],
        ),
        ("task/task_newtask".into(), Point::Clone, None, &["pid", "clone_flags"]),
        ("sched/sched_prepare_exec".into(), Point::ExecStart, None, &[]),
        ("sched/sched_process_exec".into(), Point::ExecDone, None, &["old_pid"]),
        ("sched/sched_process_exit".into(), Point::Exit, None, &[]),
        ("sched/sched_switch".into(), Point::Switch, None, &["next_pid", "prev_state"]),
        // Some kernels have no event where a CPU ends to be idle.
        ("sched/sched_wakeup".into(), Point::Wake, None, &["pid"]),
        ("sched/sched_wakeup_new".into(), Point::Wake, None, &["pid"]),
        // SIGBUS and SIGSEGV of the kernel's own: they follow the fault that they are for.
        (
            "signal/signal_generate".into(),
            Point::Refused,
            Some("(sig == 7 || sig == 11) && code > 0 && code < 128"),
            &[],
        ),
        // EFAULT: the kernel's faults on behalf of the call were refused.
        ("raw_syscalls/sys_exit".into(), Point::BadAddress, Some("ret == -14"), &[]),
        ("tlb/tlb_flush".into(), Point::TlbFlush, None, &["reason", "pages"]),
        // A fault tries for the lock before it waits.
        (
            "mmap_lock/mmap_lock_acquire_returned".into(),
            Point::Locked,
            Some("success == 1 || write == 0"),
            &["write", "success"],
        ),
        ("mmap_lock/mmap_lock_released".into(), Point::Released, Some("write == 1"), &[]),
    ];
    let calls: [(&str, MmCall, &'static [&'static str]); 12] = [
        ("mmap", MmCall::Mmap, &["addr", "len", "prot", "flags"]),
        ("munmap", MmCall::Munmap, &["addr", "len"]),
        ("brk", MmCall::Brk, &["brk"]),
        ("mremap", MmCall::Mremap, &["addr", "old_len", "new_len", "flags", "new_addr"]),
        ("mprotect", MmCall::Mprotect, &["start", "len", "prot"]),
        ("pkey_mprotect", MmCall::Mprotect, &["start", "len", "prot"]),
        ("madvise", MmCall::Madvise, &["start", "len_in", "behavior"]),
        ("mlock", MmCall::Mlock, &["start", "len"]),
        ("mlock2", MmCall::Mlock, &["start", "len", "flags"]),
        ("munlock", MmCall::Munlock, &["start", "len"]),
        ("mlockall", MmCall::Mlockall, &["flags"]),
        ("munlockall", MmCall::Munlockall, &[]),
    ];
    for (name, call, fields) in calls {
        all.push((format!("syscalls/sys_enter_{name}"), Point::Enter(call), None, fields));
        all.push((format!("syscalls/sys_exit_{name}"), Point::Leave, None, &["ret"]));
    }
    // Calls that are only timed. The child of a fork returns from it, too, with 0.
    let (all_results, of_parent) = (None, Some("ret != 0"));
    for (name, call, results) in [
        ("clone", Call::Fork, of_parent),
        ("clone3", Call::Fork, of_parent),
        ("fork", Call::Fork, of_parent),
        ("vfork", Call::Fork, of_parent),
        ("execve", Call::Exec, all_results),
        ("execveat", Call::Exec, all_results),
        ("shmat", Call::Segment, all_results),
        ("shmdt", Call::Segment, all_results),
    ] {
        all.push((format!("syscalls/sys_enter_{name}"), Point::Begin(call), None, &[]));
        all.push((format!("syscalls/sys_exit_{name}"), Point::End, results, &["ret"]));
    }
    for name in ["exit", "exit_group"] {
        all.push((format!("syscalls/sys_enter_{name}"), Point::Begin(Call::Exit), None, &[]));
    }
    all
}

/// Returns whether a recording needs the tracepoints of a group. Kernels may lack the others.
pub(super) fn required(p: Point) -> bool {
    !matches!(
        p,
        Point::Locked
            | Point::Released
            | Point::Refused
            | Point::BadAddress
            | Point::TlbFlush
            | Point::Wake
            | Point::Enter(
                MmCall::Mlock | MmCall::Munlock | MmCall::Mlockall | MmCall::Munlockall | MmCall::Mprotect
            )
            | Point::Leave
            | Point::Begin(_)
            | Point::End
    )
}
