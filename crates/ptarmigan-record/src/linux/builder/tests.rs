//! Raw events of made-up programs, and the events that they become.
use super::*;
use crate::linux::exec_result::ExecResult;
use crate::linux::system::counters::Counters;
use crate::linux::system::pagemap::PresentPages;
use crate::linux::system::proc::Area;
use ptarmigan_trace::{AreaKind, Call, FailedCall, Header, Method, Note, Prot, Reader, UnreadReason};

const VFORK: u64 = CLONE_VM | CLONE_VFORK;
const THREAD: u64 = CLONE_VM | CLONE_THREAD;

/// Feeds raw events of task 100 and its children at consecutive times. Returns the events after
/// the start of the first program as pairs of task and kind.
fn run(what: &[(i32, RawKind)]) -> Vec<(u32, Kind)> {
    let (events, found) = run_found(what);
    assert_eq!(found, 0, "the recorder's own pages are left out");
    events
}

/// As [`run`]. Also returns the number of tables that were found at stops.
fn run_found(what: &[(i32, RawKind)]) -> (Vec<(u32, Kind)>, u64) {
    let header = Header::new("m", 4, Method::Synthetic);
    let writer = Writer::new(Vec::new(), &header, 1).expect("a good header");
    let mut made = |_: i32, _: u64| {
        let area =
            Area { start: 0x7_0000, pages: 4, prot: Prot(3), kind: AreaKind::Stack, ..Area::default() };
        Some(ExecResult { stack_end: 0x7_ffff, arg_pages: 1, areas: vec![area], ..ExecResult::default() })
    };
    let mut model = TraceBuilder::new(writer, 100, &mut made);
    let own = vec![PresentPages { start: 0, pages: 512, private: true, exclusive: true, huge: false }];
    let start = [
        (100, RawKind::Fault { address: 0x5000, code: 4 }),
        (100, RawKind::Present { still: false, found: own }),
        (100, RawKind::ExecStart),
    ];
    for (time, (pid, what)) in start.iter().chain(what).enumerate() {
        let raw = Raw { time: time as u64, cpu: 0, pid: *pid, what: what.clone() };
        model.feed(raw).expect("memory takes everything");
    }
    let (writer, seen) = model.finish().expect("memory takes everything");
    assert_eq!(seen.refused, 0);
    let (bytes, _) = writer.finish(0).expect("memory takes everything");
    let events: Vec<Event> =
        Reader::new(&bytes[..]).expect("a header").map(|e| e.expect("an event")).collect();
    assert!(
        matches!(events[0].kind, Kind::Exec { arg_pages: 1, .. }),
        "the recorder's own doing is left out"
    );
    assert!(matches!(events[1].kind, Kind::Area { .. }));
    (events[2..].iter().map(|e| (e.task, e.kind)).collect(), seen.found)
}

fn fault(pid: i32, page: u64) -> (i32, RawKind) {
    (pid, RawKind::Fault { address: page << PAGE_SHIFT, code: 6 })
}

fn clone(pid: i32, child: i32, flags: u64) -> (i32, RawKind) {
    (pid, RawKind::Clone { child, flags })
}

fn faulted(page: u64) -> Kind {
    Kind::Fault { page, flags: FaultFlags(6) }
}

/// Returns the task and page of each fault, and `None` as page for an exec or a fork.
fn order(events: &[(u32, Kind)]) -> Vec<(u32, Option<u64>)> {
    let pick = |&(task, kind): &(u32, Kind)| match kind {
        Kind::Fault { page, .. } => Some((task, Some(page))),
        Kind::Exec { .. } | Kind::Clone { kind: CloneKind::Fork, .. } => Some((task, None)),
        _ => None,
    };
    events.iter().filter_map(pick).collect()
}

#[test]
fn the_parent_of_a_vfork_waits() {
    let events = run(&[
        clone(100, 101, VFORK),
        fault(101, 1),
        fault(100, 2),
        (101, RawKind::ExecStart),
        fault(101, 3),
        fault(100, 4),
    ]);
    assert_eq!(events[0], (0, Kind::Clone { child: 1, kind: CloneKind::Vfork }));
    assert_eq!(order(&events), [(1, Some(1)), (1, None), (0, Some(2)), (1, Some(3)), (0, Some(4))]);
    let events = run(&[clone(100, 101, VFORK), fault(100, 2), (101, RawKind::Exit)]);
    assert_eq!(events[1..], [(1, Kind::Exit { last: true }), (0, faulted(2))]);
}

#[test]
fn a_new_space_has_the_pages_of_the_stop_after_execve() {
    let by_kernel = |page: u64, code| (100, RawKind::Fault { address: page << PAGE_SHIFT, code });
    let events = run(&[
        by_kernel(7, 0),
        (100, RawKind::ExecMade),
        by_kernel(1, 0),
        (100, RawKind::ExecStart),
        (100, RawKind::ExecDone { old: 100 }),
        by_kernel(1, 2),
        by_kernel(2, 0),
    ]);
    let faults = [(0, Some(7)), (0, None), (0, Some(1)), (0, Some(2))];
    assert_eq!(order(&events), faults, "{events:?}");
}

#[test]
fn failed_execves_under_another_tracer_are_no_programs() {
    let header = Header::new("m", 1, Method::Synthetic);
    let writer = Writer::new(Vec::new(), &header, 1).expect("a good header");
    let mut made = |pid: i32, _: u64| {
        let area = Area { start: 7, pages: 4, kind: AreaKind::Stack, ..Area::default() };
        (pid == 100).then(|| ExecResult {
            stack_end: 11,
            arg_pages: 1,
            areas: vec![area],
            ..ExecResult::default()
        })
    };
    let mut model = TraceBuilder::new(writer, 100, &mut made);
    let events = [
        (100, RawKind::ExecStart),
        clone(100, 101, 0),
        (101, RawKind::OtherTracer),
        (101, RawKind::OtherTracer),
        (101, RawKind::ExecStart),
        (101, RawKind::Exit),
        clone(100, 102, 0),
        (102, RawKind::OtherTracer),
        (102, RawKind::Exit),
        clone(100, 103, 0),
        (103, RawKind::ExecStart),
    ];
    for (time, (pid, what)) in events.into_iter().enumerate() {
        model.feed(Raw { time: time as u64, cpu: 0, pid, what }).expect("memory takes everything");
    }
    let (writer, seen) = model.finish().expect("memory takes everything");
    assert_eq!((seen.other_tracer, seen.blank, seen.narrow), (1, 1, 0));
    let (bytes, _) = writer.finish(0).expect("memory takes everything");
    let events = Reader::new(&bytes[..]).expect("a header").map(|e| e.expect("an event"));
    let unread = |e: Event| match e.kind {
        Kind::Note(Note::Unread { why, .. }) => Some((e.task, why)),
        _ => None,
    };
    let unread: Vec<_> = events.filter_map(unread).collect();
    assert_eq!(unread, [(1, UnreadReason::OtherTracer), (3, UnreadReason::Ended)]);
}

fn touched(events: &[(u32, Kind)]) -> Vec<(u64, u64)> {
    let pages = |(_, kind): &(u32, Kind)| match *kind {
        Kind::Touched { start, pages, .. } => Some((start, pages)),
        _ => None,
    };
    events.iter().filter_map(pages).collect()
}

#[test]
fn pages_found_at_a_stop_are_written_only_if_no_other_task_runs() {
    let found = |pid| {
        let found =
            vec![PresentPages { start: 0x1000, pages: 1, private: true, exclusive: true, huge: false }];
        (pid, RawKind::Present { still: false, found })
    };
    let exits = (100, RawKind::Tables { tables: 3, exit: true });
    // Another thread may have unmapped them since.
    assert_eq!(touched(&run(&[clone(100, 101, THREAD), found(100)])), []);
    let vfork = [clone(100, 101, THREAD), clone(101, 102, VFORK), found(102)];
    assert_eq!(touched(&run(&vfork)), []);
    // The only task, one whose parent waits, and the last that exits.
    for alone in
        [[clone(100, 102, VFORK), found(102)].to_vec(), vec![clone(100, 101, THREAD), exits, found(101)]]
    {
        let (events, tables) = run_found(&alone);
        assert_eq!((touched(&events), tables), (vec![(0x1000, 1)], 1));
    }
}

#[test]
fn pages_made_present_by_a_call_follow_it_alone() {
    let fill = |pid| {
        let what = RawKind::Enter { call: MmCall::Mlockall, args: [1, 0, 0, 0, 0] };
        [(pid, what), (pid, RawKind::Locked), (pid, RawKind::Leave { result: 0 })]
    };
    let touch = |pid, start| (pid, RawKind::Touched { start, pages: 10, write: false });
    let calls = |call, pid, start: u64| {
        let args = [start << PAGE_SHIFT, 4 << PAGE_SHIFT, 3, 0x32, 0];
        (pid, RawKind::Enter { call, args })
    };
    let (map, unmap) =
        (|pid, start| calls(MmCall::Mmap, pid, start), |pid, start| calls(MmCall::Munmap, pid, start));
    let left = |pid| (pid, RawKind::Leave { result: 0 });
    let shared = [clone(100, 101, THREAD)];
    let with = |between: &[(i32, RawKind)]| {
        let looked = [touch(100, 0x100), touch(100, 0x200)];
        run(&[&shared[..], &fill(100), between, &looked, &[fault(100, 7)]].concat())
    };
    let all = [(0x100, 10), (0x200, 10)];
    assert_eq!(touched(&with(&[])), all);
    // Another mapping of another thread meanwhile, or about to be.
    let rest = [(0x100, 2), (0x106, 4), (0x200, 10)];
    let mapped = (101, RawKind::Leave { result: 0x102 << PAGE_SHIFT });
    assert_eq!(touched(&with(&[map(101, 0x102), mapped])), rest);
    assert_eq!(touched(&with(&[map(101, 0x102)])), rest);
    // Pages that another thread has unmapped since were there: a fork between copied their tables.
    for between in [&[unmap(101, 0x102), left(101)][..], &[unmap(101, 0x102)]] {
        let events = with(between);
        let unmapped = events.iter().position(|(_, kind)| matches!(kind, Kind::Munmap { .. }));
        let pages = events.iter().rposition(|(_, kind)| matches!(kind, Kind::Touched { .. }));
        assert!(touched(&events) == all && unmapped.is_none_or(|at| pages < Some(at)), "{events:?}");
    }
    // A fork after the call copies the tables that the call has made.
    let events = with(&[clone(101, 102, 0)]);
    let fork = events.iter().position(|(_, kind)| matches!(kind, Kind::Clone { kind: CloneKind::Fork, .. }));
    let pages = events.iter().rposition(|(_, kind)| matches!(kind, Kind::Touched { .. }));
    assert!(touched(&events) == all && pages < fork, "{events:?}");
    // Before the call: it made them present again.
    let before = [&shared[..], &[unmap(101, 0x102), left(101)], &fill(100), &[touch(100, 0x100)]].concat();
    assert_eq!(touched(&run(&before)), [(0x100, 10)]);
}

#[test]
fn a_segment_is_attached_before_a_fork_that_precedes_the_stop() {
    let released = |pid| [(pid, RawKind::Locked), (pid, RawKind::Released)];
    let attached = RawKind::Attached { start: 0x100, pages: 4, prot: Prot(3), segment: true };
    let detached = RawKind::Detached { start: 0x100, pages: 4 };
    for told in [attached, detached] {
        let took = RawKind::Took { call: Call::Segment, nanos: 1, away: 0, tracer: 0 };
        let events = run(&[
            &[clone(100, 101, THREAD)][..],
            &released(100),
            &released(101),
            &released(101),
            &[clone(101, 102, 0), (100, took), (100, told), fault(100, 7)],
        ]
        .concat());
        let at = |wanted: fn(&Kind) -> bool| events.iter().position(|(_, kind)| wanted(kind));
        let changed = at(|kind| matches!(kind, Kind::Mmap { .. } | Kind::Munmap { .. }));
        let fork = at(|kind| matches!(kind, Kind::Clone { kind: CloneKind::Fork, .. }));
        assert!(changed.is_some() && changed < fork, "{events:?}");
    }
}

#[test]
fn pages_that_mmap_wrote_are_written_though_a_fork_shares_them() {
    let written = |prot, flags| {
        let args = [0x100 << PAGE_SHIFT, 4 << PAGE_SHIFT, prot, flags, 0];
        let events = run(&[
            clone(100, 101, THREAD),
            (100, RawKind::Enter { call: MmCall::Mmap, args }),
            (100, RawKind::Leave { result: 0x100 << PAGE_SHIFT }),
            clone(101, 102, 0),
            // The look comes after the fork: no page is the process's own.
            (100, RawKind::Touched { start: 0x100, pages: 4, write: false }),
            fault(100, 7),
        ]);
        let flags = events.iter().find_map(|(_, kind)| match kind {
            Kind::Touched { flags, .. } => Some(flags.0 & FaultFlags::WRITE != 0),
            _ => None,
        });
        flags.expect("the pages")
    };
    let locked = libc::MAP_LOCKED as u64;
    // Private and writable; private and read only; shared.
    assert_eq!(
        [(3, 2), (1, 2), (3, 1)].map(|(prot, kind)| written(prot, kind | locked)),
        [true, false, false]
    );
}

#[test]
fn a_thread_that_calls_execve_takes_the_first_number() {
    let events = run(&[
        clone(100, 101, THREAD),
        (101, RawKind::ExecStart),
        fault(100, 1),
        (100, RawKind::Exit),
        fault(100, 2),
        (100, RawKind::ExecDone { old: 101 }),
        fault(100, 3),
    ]);
    // Events with the first number after that task's exit belong to the thread, in its new
    // address space.
    assert_eq!(order(&events), [(0, Some(1)), (1, None), (1, Some(2)), (1, Some(3))]);
    // The exit of the first task is not always reported.
    let events = run(&[
        clone(100, 101, THREAD),
        (101, RawKind::ExecStart),
        (100, RawKind::ExecDone { old: 101 }),
        fault(100, 3),
        (100, RawKind::Exit),
    ]);
    assert!(events.contains(&(0, Kind::Exit { last: false })));
    assert_eq!(order(&events), [(1, None), (1, Some(3))]);
    assert_eq!(events.last(), Some(&(1, Kind::Exit { last: true })));
}

#[test]
fn children_may_be_reported_before_their_clone() {
    let events = run(&[fault(101, 7), clone(100, 101, 0), fault(999, 1), (998, RawKind::Idle)]);
    assert_eq!(events, [(0, Kind::Clone { child: 1, kind: CloneKind::Fork }), (1, faulted(7))]);
}

#[test]
fn calls_stand_where_they_took_effect() {
    let enter = |pid, call, args| (pid, RawKind::Enter { call, args });
    let events = run(&[
        clone(100, 101, THREAD),
        enter(100, MmCall::Munmap, [0x1000, 0x1001, 0, 0, 0]),
        (100, RawKind::Locked),
        enter(101, MmCall::Mmap, [0, 1, 3, 0x22, 0]),
        (101, RawKind::Locked),
        (101, RawKind::Leave { result: 0x1000 }),
        fault(101, 1),
        (100, RawKind::Leave { result: 0 }),
        enter(100, MmCall::Mprotect, [0x1000, 0x1000, 1, 0, 0]),
        (100, RawKind::Leave { result: -12 }),
    ]);
    let mmap = Kind::Mmap { start: 1, pages: 1, prot: Prot(3), flags: MapFlags(MapFlags::ANON) };
    let half_way = FailedCall::Mprotect { start: 1, pages: 1, prot: Prot(1) };
    let half_way = Kind::Failed { errno: 12, call: half_way };
    let unmapped = Kind::Munmap { start: 1, pages: 2 };
    let events: Vec<(u32, Kind)> =
        events.into_iter().filter(|(_, kind)| !matches!(kind, Kind::Note(_))).collect();
    assert_eq!(events[1..], [(0, unmapped), (1, mmap), (1, faulted(1)), (0, half_way)]);
}

#[test]
fn a_fault_that_waits_for_a_fork_comes_after_it() {
    let locked = |pid| (pid, RawKind::Locked);
    let released = |pid| (pid, RawKind::Released);
    let events = run(&[
        clone(100, 101, THREAD),
        fault(101, 10),
        // Before the fork has the lock, and still in its way to it.
        fault(101, 11),
        locked(100),
        locked(100),
        (101, RawKind::Idle),
        fault(101, 12),
        // The copy's lock, then the space's.
        released(100),
        released(100),
        (101, RawKind::LockedToRead),
        fault(101, 13),
        clone(100, 102, 0),
        (101, RawKind::LockedToRead),
    ]);
    // Page 11: the thread came to page 12 without a lock of the space.
    assert_eq!(
        order(&events),
        [(1, Some(10)), (1, Some(11)), (0, None), (1, Some(12)), (1, Some(13))],
        "{events:?}"
    );
    let events = run(&[
        clone(100, 101, THREAD),
        fault(101, 11),
        locked(100),
        locked(100),
        (101, RawKind::Idle),
        released(100),
        released(100),
        (101, RawKind::LockedToRead),
        clone(100, 102, 0),
    ]);
    assert_eq!(order(&events), [(0, None), (1, Some(11))], "{events:?}");
}

#[test]
fn a_fault_under_its_areas_lock_made_tables_before_waiting() {
    let present = (101, RawKind::Fault { address: 11 << PAGE_SHIFT, code: 7 });
    for (fault, refusals, waits) in
        [(fault(101, 11), 2, true), (fault(101, 11), 1, false), (present, 2, false)]
    {
        let tried = vec![(101, RawKind::NotLocked); refusals];
        let fork = [(100, RawKind::Locked), (100, RawKind::Released), (100, RawKind::Released)];
        let locked = [(101, RawKind::LockedToRead), clone(100, 102, 0)];
        let events = run(&[&[clone(100, 101, THREAD), fault][..], &tried, &fork, &locked].concat());
        let table = Kind::Touched { start: 11, pages: 1, flags: FaultFlags::WAITING };
        let at = |wanted: &dyn Fn(&Kind) -> bool| events.iter().position(|(_, kind)| wanted(kind));
        let fork = at(&|kind| matches!(kind, Kind::Clone { kind: CloneKind::Fork, .. }));
        let place = at(&|kind| *kind == table);
        assert_eq!(place.is_some() && place < fork, waits, "{events:?}");
        assert!(fork < at(&|kind| matches!(kind, Kind::Fault { page: 11, .. })), "{events:?}");
    }
}

#[test]
fn pages_of_mmap_come_where_it_takes_the_lock_again() {
    let args = |flags| [0x100 << PAGE_SHIFT, 4 << PAGE_SHIFT, 3, flags as u64, 0];
    let anon = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
    let file = libc::MAP_PRIVATE | libc::MAP_POPULATE;
    for (flags, forks, later) in [(anon, true, true), (anon, false, false), (file, true, false)] {
        let fork = [(101, RawKind::Released), (101, RawKind::Released), clone(101, 102, 0)];
        let fork = if forks { &fork[..] } else { &[] };
        let call = [(100, RawKind::Enter { call: MmCall::Mmap, args: args(flags) }), (100, RawKind::Locked)];
        let pages = [(100, RawKind::LockedToRead), (100, RawKind::Leave { result: 0x100 << PAGE_SHIFT })];
        let first = [clone(100, 101, THREAD)];
        let events = run(&[&first[..], &call, fork, &pages, &[fault(100, 7)]].concat());
        let mapped = events.iter().find_map(|(_, kind)| match kind {
            Kind::Mmap { flags, .. } => Some(flags.0 & MapFlags::LATER != 0),
            _ => None,
        });
        assert_eq!(mapped, Some(later), "{events:?}");
        let touched = Kind::Touched { start: 0x100, pages: 4, flags: FaultFlags::POPULATED };
        let place = events.iter().position(|(_, kind)| *kind == touched);
        let fork =
            events.iter().position(|(_, kind)| matches!(kind, Kind::Clone { kind: CloneKind::Fork, .. }));
        assert_eq!(place.is_some() && place > fork, later, "{events:?}");
    }
}

#[test]
fn advice_under_the_lock_comes_before_a_fork_that_waited_for_it() {
    let args = [0x100 << PAGE_SHIFT, 4 << PAGE_SHIFT, 102, 0, 0];
    let advice = Kind::Madvise { start: 0x100, pages: 4, advice: 102 };
    for locked in [true, false] {
        let lock = (100, RawKind::LockedToRead);
        let events = run(&[
            &[clone(100, 101, THREAD), (100, RawKind::Enter { call: MmCall::Madvise, args })][..],
            if locked { std::slice::from_ref(&lock) } else { &[] },
            &[(101, RawKind::Released), (101, RawKind::Released), clone(101, 102, 0)],
            &[(100, RawKind::Leave { result: 0 }), fault(100, 7)],
        ]
        .concat());
        let place = events.iter().position(|(_, kind)| *kind == advice);
        let fork =
            events.iter().position(|(_, kind)| matches!(kind, Kind::Clone { kind: CloneKind::Fork, .. }));
        assert_eq!(place < fork, locked, "{events:?}");
    }
}

#[test]
fn counts_of_tables_need_quiet() {
    let tables = |pid, tables, exit| (pid, RawKind::Tables { tables, exit });
    let truths = |what: &[(i32, RawKind)]| -> Vec<u32> {
        let pick =
            |(_, k): &(u32, Kind)| if let Kind::Truth { tables, .. } = k { Some(*tables) } else { None };
        run(what).iter().filter_map(pick).collect()
    };
    assert_eq!(truths(&[tables(100, 1, false)]), [1]);
    // Another thread runs; both threads are exiting; the child of a vfork has the space to
    // itself.
    assert_eq!(truths(&[clone(100, 101, THREAD), tables(100, 1, false)]), [0; 0]);
    assert_eq!(truths(&[clone(100, 101, THREAD), tables(100, 1, true), tables(101, 2, true)]), [2]);
    assert_eq!(truths(&[clone(100, 101, VFORK), tables(101, 3, false)]), [3]);
}

#[test]
fn times_stand_behind_the_events_that_they_are_for() {
    let switch = |pid, next, state| (pid, RawKind::Switch { next, state });
    let begin = |pid, call| (pid, RawKind::Begin { call });
    let counters = Counters { total: 1, ..Counters::default() };
    let events = run(&[
        switch(0, 100, 0),
        begin(100, Call::Fork),
        clone(100, 101, VFORK),
        switch(100, 101, 2),
        // The return of the parent, before the exit of its child by another clock.
        switch(101, 100, 0x100),
        (100, RawKind::End { result: 101 }),
        switch(100, 101, 0x100),
        (101, RawKind::Counters(counters)),
        (101, RawKind::Exit),
        switch(101, 100, 0x20),
        (100, RawKind::Exit),
        switch(100, 0, 0x20),
    ]);
    let kind = |kind: &Kind| match kind {
        Kind::Note(Note::Took { call, .. }) => format!("took {}", call.name()),
        Kind::Note(Note::Used { .. }) => "used".to_owned(),
        Kind::Clone { .. } => "clone".to_owned(),
        Kind::Exit { .. } => "exit".to_owned(),
        other => format!("{other:?}"),
    };
    let events: Vec<(u32, String)> = events.iter().map(|(task, k)| (*task, kind(k))).collect();
    let all = [
        (0, "clone"),
        (1, "exit"),
        (0, "took vfork"),
        (1, "took exit"),
        (1, "used"),
        (0, "exit"),
        (0, "took exit"),
    ];
    assert_eq!(events, all.map(|(task, what)| (task, what.to_owned())));
}

#[test]
fn a_task_may_end_before_its_clone_is_told() {
    let took = RawKind::Took { call: Call::Exit, nanos: 7, away: 0, tracer: NO_CPU };
    let events = run(&[
        fault(101, 3),
        (101, RawKind::Exit),
        (101, took.clone()),
        clone(100, 101, THREAD),
        fault(100, 4),
        clone(100, 102, THREAD),
        (102, RawKind::Exit),
        // The kernel's last words come behind the exit.
        (102, RawKind::Released),
        (102, took),
    ]);
    let of = |child| events.iter().filter(move |(task, _)| *task == child).map(|(_, kind)| kind);
    let [first, second]: [Vec<_>; 2] = [of(1).collect(), of(2).collect()];
    let ends =
        |kinds: &[&Kind]| matches!(kinds, [Kind::Exit { .. }, Kind::Note(Note::Took { nanos: 7, .. })]);
    assert!(matches!(first[0], Kind::Fault { .. }) && ends(&first[1..]) && ends(&second), "{events:?}");
}
