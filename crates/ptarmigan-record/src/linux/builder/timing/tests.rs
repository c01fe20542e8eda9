//! Raw events of made-up tasks, and the times that they become.
use super::*;
use crate::linux::raw::{CLONE_VFORK, CLONE_VM, MmCall};

const THREAD: u64 = CLONE_VM | CLONE_THREAD;
const VFORK: u64 = CLONE_VM | CLONE_VFORK;
const SLEEPS: u32 = 1;
const WAITS_KILLABLE: u32 = 2;
const PREEMPTED: u32 = 0x100;
const ZOMBIE: u32 = 0x20;

/// Feeds raw events, each with its time and task; task 100 is the first. Returns what they become,
/// and how many times went backwards.
fn timed(events: &[(u64, i32, RawKind)]) -> (Vec<Timed>, u64) {
    let (mut timing, mut out) = (Timing::new(100), Vec::new());
    // The tracepoints of switches are there.
    timing.see(&Raw { time: 0, cpu: 0, pid: 0, what: switch(100, 0) }, &mut out);
    for (time, pid, what) in events {
        let from_stop = matches!(what, RawKind::Tables { .. } | RawKind::Counters(_));
        let cpu = if from_stop { NO_CPU } else { 0 };
        timing.see(&Raw { time: *time, cpu, pid: *pid, what: what.clone() }, &mut out);
    }
    (out, timing.backwards)
}

fn times(events: &[(u64, i32, RawKind)]) -> Vec<Timed> {
    let (out, backwards) = timed(events);
    assert_eq!(backwards, 0);
    out
}

fn switch(next: i32, state: u32) -> RawKind {
    RawKind::Switch { next, state }
}

fn begin(call: Call) -> RawKind {
    RawKind::Begin { call }
}

fn end(result: i64) -> RawKind {
    RawKind::End { result }
}

fn clone(child: i32, flags: u64) -> RawKind {
    RawKind::Clone { child, flags }
}

fn took(call: Call, nanos: u64, away: u64) -> RawKind {
    RawKind::Took { call, nanos, away, tracer: NO_CPU }
}

fn munmap() -> RawKind {
    RawKind::Enter { call: MmCall::Munmap, args: [0; 5] }
}

const TABLES: RawKind = RawKind::Tables { tables: 3, exit: false };

#[test]
fn time_without_a_cpu_is_away() {
    let out = times(&[
        (10, 100, begin(Call::Fork)),
        (20, 100, switch(7, PREEMPTED)),
        (50, 7, switch(100, SLEEPS)),
        (60, 100, clone(101, 0)),
        (70, 100, end(101)),
        (80, 100, munmap()),
        (95, 100, RawKind::Leave { result: -22 }),
    ]);
    assert_eq!(out, [(100, took(Call::Fork, 30, 30)), (100, took(Call::Munmap, 15, 0))]);
}

#[test]
fn a_call_that_is_made_again_after_a_signal_is_one_call() {
    let again = [
        (10, 100, begin(Call::Fork)),
        (15, 100, end(-513)),
        // The handler of the signal does not call anything that is timed.
        (40, 100, begin(Call::Fork)),
        (50, 100, clone(101, 0)),
        (60, 100, end(101)),
    ];
    assert_eq!(times(&again), [(100, took(Call::Fork, 25, 0))]);
    // A handler that makes a call of its own: the attempt is forgotten, and the call is timed.
    let nested = [
        (10, 100, begin(Call::Fork)),
        (15, 100, end(-513)),
        (20, 100, munmap()),
        (24, 100, RawKind::Leave { result: 0 }),
        (40, 100, begin(Call::Fork)),
        (60, 100, end(101)),
    ];
    assert_eq!(times(&nested), [(100, took(Call::Munmap, 4, 0)), (100, took(Call::Fork, 20, 0))]);
}

#[test]
fn calls_that_make_no_task_and_no_program_are_left_out() {
    let out = times(&[
        (10, 100, begin(Call::Exec)),
        (20, 100, end(-2)),
        (30, 100, begin(Call::Fork)),
        (40, 100, end(-11)),
        // The return of this call is lost.
        (50, 100, munmap()),
        (90, 100, begin(Call::Exec)),
        (95, 100, RawKind::ExecStart),
        (99, 100, RawKind::ExecDone { old: 100 }),
        (100, 100, end(0)),
        // A return without a call.
        (110, 100, end(0)),
    ]);
    assert_eq!(out, [(100, took(Call::Exec, 10, 0))]);
}

#[test]
fn a_vforks_parent_counts_its_child_without_recorder_or_waits() {
    let out = times(&[
        (10, 100, begin(Call::Fork)),
        (20, 100, clone(101, VFORK)),
        (25, 100, switch(7, WAITS_KILLABLE)),
        (30, 7, switch(101, 0)),
        // The child opens a file, and waits for it.
        (34, 101, switch(0, SLEEPS)),
        (36, 0, switch(101, 0)),
        // It asks before its execve, and is looked at for 40.
        (40, 101, switch(0, SLEEPS)),
        (60, 101, TABLES),
        (80, 0, switch(101, 0)),
        (85, 101, begin(Call::Exec)),
        (90, 101, RawKind::ExecStart),
        // The parent is released, and gets a CPU later. Then the child stops for its tracer.
        (95, 101, switch(100, 8)),
        (100, 100, end(101)),
        (130, 100, switch(101, PREEMPTED)),
        (140, 101, RawKind::ExecDone { old: 101 }),
        (150, 101, end(0)),
    ]);
    // The parent 15 and 5, the child 30 to 40 and 80 to 90.
    assert_eq!(out, [(100, took(Call::Vfork, 40, 50)), (101, took(Call::Exec, 30, 35))]);
    // A child that exits, and is gone before its parent returns.
    let out = times(&[
        (10, 100, begin(Call::Fork)),
        (20, 100, clone(101, VFORK)),
        (20, 100, switch(101, WAITS_KILLABLE)),
        (30, 101, begin(Call::Exit)),
        (40, 101, RawKind::Exit),
        (50, 101, switch(100, ZOMBIE)),
        (60, 100, end(101)),
    ]);
    assert_eq!(out, [(101, took(Call::Exit, 20, 0)), (100, took(Call::Vfork, 40, 10))]);
}

#[test]
fn an_exit_ends_when_the_task_leaves_its_cpu_for_the_last_time() {
    let counters = Counters { user: 0, system: 0, total: 40, minor: 5, major: 1, ..Counters::default() };
    let out = times(&[
        (10, 100, begin(Call::Exit)),
        (20, 100, RawKind::Counters(counters)),
        (30, 100, RawKind::Exit),
        (40, 100, switch(7, PREEMPTED)),
        (60, 7, switch(100, 0)),
        (1000, 100, switch(7, ZOMBIE)),
        // The number belongs to nobody now.
        (1010, 7, switch(100, 0)),
    ]);
    // A part of a microsecond is one.
    let usage = Usage { user: 0, system: 1, minor: 5, major: 1, waits: 0, preempted: 1 };
    assert_eq!(out, [(100, took(Call::Exit, 970, 20)), (100, RawKind::Used(usage))]);
    // By a signal: no call, and no counters.
    let killed = [(30, 100, munmap()), (40, 100, RawKind::Exit), (100, 100, switch(0, ZOMBIE))];
    assert_eq!(times(&killed), [(100, took(Call::Exit, 60, 0))]);
    // The last switch is lost: nothing is known.
    assert_eq!(times(&[(30, 100, begin(Call::Exit)), (40, 100, RawKind::Exit)]), []);
}

#[test]
fn a_process_is_used_up_when_its_last_thread_is_gone() {
    let ms = 1_000_000;
    let counters = Counters { user: 400 * ms, system: 400 * ms, total: 800 * ms, ..Counters::default() };
    let out = times(&[
        (0, 100, clone(101, THREAD)),
        (0, 0, switch(101, 0)),
        // The first task exits first.
        (200 * ms, 100, RawKind::Exit),
        (300 * ms, 100, switch(0, ZOMBIE)),
        (400 * ms, 101, switch(0, SLEEPS)),
        (450 * ms, 101, RawKind::Counters(counters)),
        (500 * ms, 0, switch(101, 0)),
        (600 * ms, 101, RawKind::Exit),
        (700 * ms, 101, switch(0, ZOMBIE)),
    ]);
    // 800 ms up to the last stop are half the kernel's. The 200 ms after it are the exit. The wait
    // was for the recorder.
    let usage = Usage { user: 400_000, system: 600_000, ..Usage::default() };
    assert_eq!(out[0].1, took(Call::Exit, 100 * ms, 0));
    assert_eq!(out[1..], [(101, took(Call::Exit, 100 * ms, 0)), (101, RawKind::Used(usage))]);
}

#[test]
fn a_kernel_may_not_tell_that_a_cpu_ends_to_be_idle() {
    let wake = |woken| RawKind::Wake { woken };
    let last = Counters { total: 100, ..Counters::default() };
    let out = times(&[
        (10, 100, munmap()),
        (20, 100, switch(0, SLEEPS)),
        // By an interrupt. Another task runs in between, and wakes it again.
        (50, 0, wake(100)),
        (52, 7, wake(8)),
        // The flush of the switch to the idle task.
        (55, 100, RawKind::TlbFlush { reason: 0, pages: 1 }),
        (60, 100, RawKind::Leave { result: 0 }),
        // A new task begins on an idle CPU.
        (70, 100, begin(Call::Fork)),
        (75, 100, clone(101, VFORK)),
        (76, 100, wake(101)),
        (80, 100, switch(0, WAITS_KILLABLE)),
        (95, 101, begin(Call::Exit)),
        (96, 101, RawKind::Counters(last)),
        (100, 101, RawKind::Exit),
        (110, 101, wake(100)),
        (120, 101, switch(0, ZOMBIE)),
        // A task that nothing woke, such as one that moves to another CPU: since its first event.
        (130, 100, end(101)),
        (140, 100, switch(0, PREEMPTED)),
        (160, 100, munmap()),
        (170, 100, RawKind::Leave { result: 0 }),
    ]);
    let usage = Usage { system: 1, ..Usage::default() };
    assert_eq!(
        out,
        [
            (100, took(Call::Munmap, 20, 30)),
            (101, took(Call::Exit, 25, 0)),
            (101, RawKind::Used(usage)),
            // 10 of its own, from 110 on, and the child's from 76 to 100.
            (100, took(Call::Vfork, 54, 6)),
            (100, took(Call::Munmap, 10, 0)),
        ]
    );
}

#[test]
fn the_clock_of_the_process_counts_up_to_its_last_stop() {
    let ms = 1_000_000;
    // A switch was lost: 300 ms on a CPU are not among the switches.
    let last = Counters { total: 500 * ms, system: 100 * ms, user: 400 * ms, ..Counters::default() };
    let out = times(&[
        (300 * ms, 100, switch(0, SLEEPS)),
        (700 * ms, 100, RawKind::Counters(last)),
        (750 * ms, 0, switch(100, 0)),
        (760 * ms, 100, RawKind::Exit),
        (790 * ms, 100, switch(0, ZOMBIE)),
    ]);
    // The last 40 ms are the exit.
    let usage = Usage { user: 400_000, system: 140_000, ..Usage::default() };
    assert_eq!(out[1], (100, RawKind::Used(usage)));
    // The same without the stops' own time.
    let (mut timing, mut out) = (Timing::new(100), Vec::new());
    let ended = Counters { when: When::Ended, total: 540 * ms, own: 30 * ms, ..Counters::default() };
    for what in [RawKind::Counters(last), RawKind::Exit, RawKind::Counters(ended)] {
        timing.see(&Raw { time: 0, cpu: NO_CPU, pid: 100, what }, &mut out);
    }
    let usage = Usage { user: 400_000, system: 110_000, ..Usage::default() };
    assert_eq!(out, [(100, RawKind::Used(usage))]);
}

#[test]
fn a_thread_that_calls_execve_takes_the_first_number() {
    let before = [
        (0, 100, clone(101, THREAD)),
        (0, 0, switch(101, 0)),
        (10, 101, begin(Call::Exec)),
        (20, 101, RawKind::ExecStart),
        (21, 101, switch(0, WAITS_KILLABLE)),
        (30, 100, RawKind::Exit),
    ];
    // The first task is gone before the thread has its number ...
    let gone_first = [
        (40, 100, switch(0, ZOMBIE)),
        (50, 0, switch(101, 0)),
        (60, 100, RawKind::ExecDone { old: 101 }),
        (70, 100, end(0)),
    ];
    // ... or after that, with the number that the thread had, ...
    let gone_last = [
        (40, 101, switch(7, ZOMBIE)),
        (50, 0, switch(100, 0)),
        (60, 100, RawKind::ExecDone { old: 101 }),
        (70, 100, end(0)),
    ];
    // ... or when the execve is nearly done.
    let gone_late = [
        (50, 0, switch(101, 0)),
        (60, 100, RawKind::ExecDone { old: 101 }),
        (62, 101, switch(0, ZOMBIE)),
        (70, 100, end(0)),
    ];
    let counters = Counters { total: 1000, ..Counters::default() };
    let at_end =
        [(80, 100, RawKind::Counters(counters)), (85, 100, RawKind::Exit), (90, 100, switch(0, ZOMBIE))];
    for (after, exit) in [(gone_first, 10), (gone_last, 10), (gone_late, 30)] {
        let out = times(&[&before[..], &after, &at_end].concat());
        let kinds: Vec<&RawKind> = out.iter().map(|(_, kind)| kind).collect();
        assert_eq!(*kinds[0], took(Call::Exit, exit, 0), "the first task");
        assert!(matches!(kinds[1], RawKind::Took { call: Call::Exec, .. }), "{out:?}");
        // The process ends once, with its last task.
        assert!(matches!(kinds[2..], [RawKind::Took { call: Call::Exit, .. }, RawKind::Used(_)]), "{out:?}");
    }
}

#[test]
fn times_that_end_before_they_begin_are_counted_and_left_out() {
    let (out, backwards) = timed(&[
        (50, 100, munmap()),
        (40, 100, RawKind::Leave { result: 0 }),
        (60, 100, switch(0, SLEEPS)),
        (55, 0, switch(100, 0)),
        (70, 100, munmap()),
        (80, 100, RawKind::Leave { result: 0 }),
        (54, 100, switch(0, SLEEPS)),
    ]);
    assert_eq!(out, [(100, took(Call::Munmap, 10, 0))]);
    assert_eq!(backwards, 3);
}

#[test]
fn without_switches_the_clock_of_the_process_counts() {
    let (mut timing, mut out) = (Timing::new(100), Vec::new());
    let read = |when, total, waits| {
        RawKind::Counters(Counters {
            when,
            total,
            waits,
            system: total / 2,
            user: total / 2,
            ..Counters::default()
        })
    };
    let ms = 1_000_000;
    for (pid, what) in [
        (100, read(When::Start, 2 * ms, 0)),
        (100, clone(101, THREAD)),
        (101, read(When::Last, 0, 3)),
        (101, RawKind::Exit),
        (100, read(When::Last, 402 * ms, 4)),
        (100, RawKind::Exit),
        (100, read(When::Ended, 502 * ms, 0)),
    ] {
        timing.see(&Raw { time: 0, cpu: NO_CPU, pid, what }, &mut out);
    }
    // The last 100 ms are the exit.
    let usage = Usage { user: 200_000, system: 300_000, waits: 7, ..Usage::default() };
    assert_eq!(out, [(100, RawKind::Used(usage))]);
    assert!(timing.tasks.is_empty() && timing.groups.is_empty());
}

/// Feeds raw events of a tracer, each with its time.
fn traced(events: &[(u64, i32, RawKind)]) -> Vec<Timed> {
    let (mut timing, mut out) = (Timing::new(100), Vec::new());
    for (time, pid, what) in events {
        timing.see(&Raw { time: *time, cpu: NO_CPU, pid: *pid, what: what.clone() }, &mut out);
    }
    out
}

#[test]
fn a_call_that_a_tracer_times_has_no_second_time() {
    let out = traced(&[
        (10, 100, munmap()),
        (500, 100, RawKind::Leave { result: 0 }),
        (500, 100, took(Call::Munmap, 20, 470)),
    ]);
    assert_eq!(out, []);
}

#[test]
fn the_kernel_had_at_least_the_time_of_the_calls() {
    let us = 1000;
    let read = |when, total| RawKind::Counters(Counters { when, total, ..Counters::default() });
    let out = traced(&[
        // The execve that starts the recording ends just after its counters are read.
        (2000 * us, 100, read(When::Start, 900 * us)),
        (2000 * us, 100, RawKind::StopCost(StopCost { together: 5 * us, apart: 25 * us })),
        (2001 * us, 100, took(Call::Exec, 305 * us, 100 * us)),
        (2500 * us, 100, took(Call::Munmap, 45 * us, 0)),
        (3000 * us, 100, read(When::Last, 1000 * us)),
        (3000 * us, 100, RawKind::Exit),
        (3100 * us, 100, took(Call::Exit, 65 * us, 0)),
        (3100 * us, 100, read(When::Ended, 1060 * us)),
    ]);
    // No tick has seen the kernel: 300 of the execve, 40 of the call and 60 of the exit.
    let usage = Usage { user: 60, system: 400, ..Usage::default() };
    assert_eq!(out, [(100, RawKind::Used(usage))]);
}

#[test]
fn a_tracer_on_another_cpu_costs_more() {
    let us = 1000;
    let mut timing = Timing::new(100);
    let mut took = |cpu, of, tracer| {
        let see = |timing: &mut Timing, what| {
            timing.see(&Raw { time: 0, cpu, pid: 100, what }, &mut Vec::new());
        };
        see(&mut timing, RawKind::StopCost(StopCost { together: 2 * us, apart: 15 * us }));
        let what = RawKind::Took { call: Call::Munmap, nanos: of, away: 0, tracer };
        let mut raw = Raw { time: 0, cpu: NO_CPU, pid: 100, what };
        timing.settle(&mut raw);
        match raw.what {
            RawKind::Took { nanos, .. } => nanos,
            other => panic!("{other:?}"),
        }
    };
    // The task's CPU is not known yet.
    assert_eq!(took(NO_CPU, 20 * us, 1), 20 * us);
    assert_eq!(took(0, 20 * us, 1), 7 * us);
    assert_eq!(took(0, 20 * us, 0), 20 * us);
    assert_eq!(took(0, 5 * us, 1), 0, "a delay in the measurement");
    assert_eq!(timing.groups[&100].apart, 2 * 2 * 13 * us, "two stops a call");
}

#[test]
fn a_process_running_throughout_has_the_recordings_time() {
    let ms = 1_000_000;
    let read = |when, total| {
        RawKind::Counters(Counters { when, total, system: total / 2, user: total / 2, ..Counters::default() })
    };
    let (mut timing, mut out) = (Timing::default(), Vec::new());
    let mut see = |timing: &mut Timing, pid, what| {
        timing.see(&Raw { time: 5 * ms, cpu: NO_CPU, pid, what }, &mut out);
    };
    timing.add_running(100, 100);
    timing.add_running(200, 200);
    see(&mut timing, 100, read(When::Start, 3000 * ms));
    // A second reading changes nothing.
    see(&mut timing, 100, read(When::Start, 3100 * ms));
    see(&mut timing, 100, clone(101, 0));
    see(&mut timing, 101, read(When::Start, 70 * ms));
    see(&mut timing, 100, read(When::GoingOn, 3400 * ms));
    see(&mut timing, 101, read(When::GoingOn, 200 * ms));
    // It was not read when the time began.
    see(&mut timing, 200, read(When::GoingOn, 9000 * ms));
    let used = |ms: u64| RawKind::Used(Usage { user: ms * 500, system: ms * 500, ..Usage::default() });
    assert_eq!(out, [(100, used(400)), (101, used(200))]);
}
