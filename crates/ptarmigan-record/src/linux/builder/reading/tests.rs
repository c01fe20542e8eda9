//! Readings of made-up processes, and the events that they become.
use super::*;
use crate::linux::builder::state::SideCounts;
use crate::linux::raw::{CLONE_VFORK, MmCall};
use crate::linux::system::pagemap::PresentPages;
use crate::linux::system::proc::Area;
use ptarmigan_trace::{Event, Header, Method, Reader};

const THREAD: u64 = CLONE_VM | CLONE_THREAD;
const VFORK: u64 = CLONE_VM | CLONE_VFORK;

/// A space with a stack, an area of 16 pages of which two are present, and a page elsewhere.
fn state(areas_at: u64) -> SpaceState {
    let area = |start, pages, kind| StateArea {
        area: Area { start, pages, prot: Prot(3), kind, ..Area::default() },
        ..StateArea::default()
    };
    let found = |start, pages| PresentPages { start, pages, private: true, exclusive: true, huge: false };
    SpaceState {
        parent: 1,
        areas_at,
        name: "server".to_owned(),
        tables: 7,
        areas: vec![area(0x100, 16, AreaKind::Anon), area(0x7_0000, 4, AreaKind::Stack)],
        present: vec![found(0x104, 2), found(0x4000, 1)],
        ..SpaceState::default()
    }
}

fn done(pid: i32, areas_at: u64) -> (i32, RawKind) {
    (pid, RawKind::ReadDone(Box::new(state(areas_at))))
}

fn start(pid: i32, threads: &[i32]) -> (i32, RawKind) {
    (pid, RawKind::ReadStart { threads: threads.to_vec() })
}

fn fault(pid: i32, page: u64) -> (i32, RawKind) {
    (pid, RawKind::Fault { address: page << PAGE_SHIFT, code: 6 })
}

fn enter(pid: i32, call: MmCall) -> (i32, RawKind) {
    (pid, RawKind::Enter { call, args: [0x100 << PAGE_SHIFT, 4 << PAGE_SHIFT, 0, 0, 0] })
}

fn leave(pid: i32) -> (i32, RawKind) {
    (pid, RawKind::Leave { result: 0 })
}

fn fork(pid: i32, child: i32) -> (i32, RawKind) {
    (pid, RawKind::Clone { child, flags: 0 })
}

fn vfork(pid: i32, child: i32) -> (i32, RawKind) {
    (pid, RawKind::Clone { child, flags: VFORK })
}

fn started(pid: i32) -> [(i32, RawKind); 2] {
    [(pid, RawKind::ExecStart), (pid, RawKind::ExecDone { old: pid })]
}

/// Feeds events at the times 10, 20 and so on. Returns the events of the trace.
fn run(what: &[(i32, RawKind)]) -> (Vec<(u32, Kind)>, SideCounts) {
    let (events, seen, _) = run_named(what);
    (events, seen)
}

/// Feeds events. Returns the events of the trace, and why process 100 is not in it.
fn run_named(what: &[(i32, RawKind)]) -> (Vec<(u32, Kind)>, SideCounts, Option<String>) {
    let (seen, why, events, _) = run_unread(what);
    (events, seen, why)
}

/// A program that is not in the recording: its task, its name, and the reason.
type NotRead = (u32, Option<String>, UnreadReason);

/// The counts, why process 100 is not in the trace, its events, and the programs that it lacks.
type RunOfAll = (SideCounts, Option<String>, Vec<(u32, Kind)>, Vec<NotRead>);

/// As [`run_named`]. Also returns the programs that are not in the trace.
fn run_unread(what: &[(i32, RawKind)]) -> RunOfAll {
    let header = Header::new("m", 1, Method::Synthetic);
    let writer = Writer::new(Vec::new(), &header, 1).expect("a good header");
    let mut made = |_: i32, _: u64| None;
    let mut model = TraceBuilder::attached(writer, &[100], &mut made);
    for (n, (pid, what)) in what.iter().enumerate() {
        let raw = Raw { time: 10 * (n as u64 + 1), cpu: 0, pid: *pid, what: what.clone() };
        model.feed(raw).expect("memory takes everything");
    }
    let why = model.unread_named().map(|(pid, why)| {
        assert_eq!(pid, 100);
        why
    });
    let (writer, seen) = model.finish().expect("memory takes everything");
    assert_eq!(seen.refused, 0);
    let (bytes, _) = writer.finish(0).expect("memory takes everything");
    let mut reader = Reader::new(&bytes[..]).expect("a header");
    let (mut events, mut unread) = (Vec::new(), Vec::new());
    while let Some(event) = reader.next() {
        let Event { task, kind, .. } = event.expect("an event");
        match kind {
            Kind::Note(Note::Unread { name, why }) => {
                unread.push((task, name.map(|name| reader.symbols().text(name).to_owned()), why));
            }
            kind => events.push((task, kind)),
        }
    }
    assert_eq!(unread.len() as u64, seen.unrecorded(), "each has a note");
    (seen, why, events, unread)
}

#[test]
fn programs_that_are_not_read_are_noted_with_the_reason() {
    let unread = |what: &[(i32, RawKind)]| run_unread(what).3;
    let spoiled = [start(100, &[100]), fork(100, 200), done(100, 15)];
    // The child has no name, and no reading.
    let child = (0, None, UnreadReason::RecordingEnded);
    let server = |why| (0, Some("server".to_owned()), why);
    assert_eq!(unread(&spoiled), [server(UnreadReason::Changed), child.clone()]);
    let ends = [&spoiled[..], &[(100, RawKind::Exit)]].concat();
    assert_eq!(unread(&ends), [server(UnreadReason::Ended), child.clone()]);
    // The name is that of the program before.
    let starts = [&spoiled[..], &started(100), &[(100, RawKind::Exit)]].concat();
    let next = (0, None, UnreadReason::Ended);
    assert_eq!(unread(&starts), [server(UnreadReason::Changed), next, child]);
    // A program that has a task in the trace has its note there.
    let first = [start(100, &[100]), done(100, 15), fork(100, 200)];
    let missed = [&first[..], &started(200), &[(200, RawKind::Exit)]].concat();
    assert_eq!(unread(&missed), [(1, None, UnreadReason::Ended)]);
}

fn count(events: &[(u32, Kind)], is: impl Fn(&Kind) -> bool) -> usize {
    events.iter().filter(|(_, kind)| is(kind)).count()
}

fn execs(events: &[(u32, Kind)]) -> usize {
    count(events, |kind| matches!(kind, Kind::Exec { arg_pages: 0, .. }))
}

#[test]
fn a_process_begins_with_the_state_that_was_read() {
    let (events, seen) = run(&[fault(100, 1), start(100, &[100, 101]), done(100, 15), fault(101, 0x105)]);
    let kinds: Vec<Kind> = events.iter().map(|(_, kind)| *kind).collect();
    assert!(matches!(kinds[0], Kind::Exec { arg_pages: 0, .. }), "{kinds:?}");
    assert_eq!(count(&events, |kind| matches!(kind, Kind::Area { .. })), 2);
    // Pages outside of the areas came by calls that follow.
    let flags = FaultFlags(FaultFlags::WRITE | FaultFlags::USER);
    assert_eq!(count(&events, |kind| *kind == Kind::Touched { start: 0x104, pages: 2, flags }), 1);
    assert_eq!(count(&events, |kind| matches!(kind, Kind::Touched { .. })), 1);
    assert!(kinds.contains(&Kind::Truth { tables: 7, at: Sampled::Exec }));
    assert!(kinds.contains(&Kind::Clone { child: 1, kind: CloneKind::Share }));
    // The fault before the reading is in the state; the one after it is the thread's.
    let faults: Vec<u32> =
        events.iter().filter(|(_, kind)| matches!(kind, Kind::Fault { .. })).map(|(task, _)| *task).collect();
    assert_eq!((faults, seen.unread), (vec![1], 0));
    let of = seen.openings;
    assert_eq!((of.processes, of.threads, of.samples, of.programs), (1, 1, 1, 0));
    assert_eq!(of.events, events.len() as u64 - 1, "all but the fault: {events:?}");
}

#[test]
fn a_reading_counts_only_if_it_is_of_one_moment() {
    // The areas are known at 45: a call before that spoils them, one after it does not.
    let with = |what: &[(i32, RawKind)]| {
        let all = [&[fault(100, 1), start(100, &[100])], what, &[done(100, 45)]].concat();
        execs(&run(&all).0) == 1
    };
    assert!(with(&[fault(100, 5), fault(100, 6)]));
    assert!(!with(&[enter(100, MmCall::Munmap), (100, RawKind::Locked), leave(100)]));
    assert!(with(&[
        fault(100, 5),
        fault(100, 6),
        enter(100, MmCall::Munmap),
        (100, RawKind::Locked),
        leave(100)
    ]));
    assert!(!with(&[fault(100, 5), fault(100, 6), enter(100, MmCall::Mremap), (100, RawKind::Locked)]));
    assert!(!with(&[fault(100, 5), fault(100, 6), fork(100, 200)]), "the child copies other tables");
    assert!(!with(&[(100, RawKind::ExecStart)]));
    assert!(!with(&[leave(100)]), "a call that began before all events");
    assert!(with(&[(100, RawKind::Clone { child: 101, flags: THREAD })]));
}

#[test]
fn a_reading_in_the_middle_of_an_execve_does_not_hold() {
    // The kernel maps the program between both events, and tells nothing of what it maps.
    let first = [start(100, &[100]), fork(100, 300), done(100, 25)];
    let in_the_middle = [start(100, &[100]), done(100, 500)];
    let later = [start(100, &[100]), done(100, 5000)];
    let with = |begins: &[(i32, RawKind)], ends: &[(i32, RawKind)]| {
        let all = [begins, &in_the_middle, ends].concat();
        execs(&run(&all).0)
    };
    let [begin, end] = started(100);
    // A process that has never been read, one that was, and one with other threads.
    let unread = [&first[..], std::slice::from_ref(&begin)].concat();
    let read = [start(100, &[100]), done(100, 15), begin.clone()];
    let threads = [start(100, &[100, 101]), done(100, 15), begin, (101, RawKind::Exit)];
    let ends_it = std::slice::from_ref(&end);
    let and_read = [ends_it, &later].concat();
    assert_eq!((with(&unread, ends_it), with(&unread, &and_read)), (0, 1));
    assert_eq!((with(&read, ends_it), with(&read, &and_read)), (1, 2));
    assert_eq!((with(&threads, ends_it), with(&threads, &and_read)), (1, 2));
}

#[test]
fn only_a_call_of_a_vforks_child_spoils_a_reading() {
    let with = |what: &[(i32, RawKind)]| {
        let all = [&[fault(100, 1), start(100, &[100])], what, &[done(100, 500)]].concat();
        run(&all)
    };
    let holds = |what: &[(i32, RawKind)]| count(&with(what).0, |k| matches!(k, Kind::Area { .. })) == 2;
    let locked = |pid| (pid, RawKind::Locked);
    assert!(holds(&[vfork(100, 200)]));
    // The child starts a program, which takes locks of its own space and maps in it.
    let starts = [&[vfork(100, 200), fault(200, 0x104), locked(200)][..], &started(200)].concat();
    let then = [enter(200, MmCall::Munmap), locked(200), leave(200), fork(200, 201), fault(201, 3)];
    assert!(holds(&[&starts[..], &then].concat()));
    assert!(!holds(&[vfork(100, 200), enter(200, MmCall::Munmap), locked(200)]));
    assert!(!holds(&[vfork(100, 200), fork(200, 201)]), "the child copies other tables");
    assert!(!holds(&[vfork(100, 200), vfork(200, 201), enter(201, MmCall::Munmap), leave(201)]));
    // Its events follow the state in which it began.
    let (events, seen) = with(&starts);
    let at = |is: &dyn Fn(&Kind) -> bool| events.iter().position(|(_, kind)| is(kind));
    let area = at(&|kind| matches!(kind, Kind::Area { .. }));
    let vfork_at = at(&|kind| *kind == Kind::Clone { child: 1, kind: CloneKind::Vfork });
    let exec = at(&|kind| matches!(kind, Kind::Exec { arg_pages: 1, .. }));
    assert!(area.is_some() && area < vfork_at && vfork_at < exec, "{events:?}");
    assert_eq!(seen.unread, 1, "the program that was not read");
    // The child of a vfork from before the reading.
    let before = |what: &[(i32, RawKind)]| {
        let first = [start(100, &[100]), fork(100, 300), done(100, 25), vfork(100, 200)];
        let all = [&first[..], &[start(100, &[100])], what, &[done(100, 500)]].concat();
        count(&run(&all).0, |kind| matches!(kind, Kind::Area { .. })) == 2
    };
    assert!(before(&[fault(200, 1), locked(200)]));
    assert!(!before(&[enter(200, MmCall::Munmap), locked(200)]));
    assert!(before(&[&started(200)[..], &[enter(200, MmCall::Munmap), locked(200), leave(200)]].concat()));
}

#[test]
fn pages_given_up_while_the_areas_are_read_do_not_spoil_them() {
    let with = |advice: i32| {
        let args = [0x104 << PAGE_SHIFT, 2 << PAGE_SHIFT, advice as u64, 0, 0];
        let call = [(100, RawKind::Enter { call: MmCall::Madvise, args }), leave(100)];
        execs(&run(&[&[start(100, &[100])], &call[..], &[done(100, 45)]].concat()).0) == 1
    };
    assert!(with(libc::MADV_DONTNEED) && with(libc::MADV_FREE));
    assert!(!with(libc::MADV_DONTFORK), "it divides areas");
}

#[test]
fn a_named_process_that_is_not_read_has_a_reason() {
    let why = |what: &[(i32, RawKind)]| run_named(what).2.unwrap_or_default();
    assert_eq!(why(&[start(100, &[100]), done(100, 15)]), "");
    let forks = [start(100, &[100]), fork(100, 200), done(100, 25)];
    assert_eq!(why(&forks), "it forked while it was read");
    let maps = [start(100, &[100]), enter(100, MmCall::Mmap), leave(100), done(100, 500)];
    let both = [&forks[..], &maps[..]].concat();
    assert_eq!(why(&both), "at the last of 2 readings it changed its mappings meanwhile");
    assert_eq!(why(&[start(100, &[100]), (100, RawKind::Exit)]), "no reading of it was complete");
    let ended = [&forks[..], &[(100, RawKind::Exit)]].concat();
    assert_eq!(why(&ended), "it has ended before it was read");
    // Only strays were read.
    let stray = [&forks[..], &[start(200, &[200]), done(200, 55)]].concat();
    assert_eq!((execs(&run(&stray).0), why(&stray).is_empty()), (1, false));
}

#[test]
fn the_next_reading_counts_if_one_does_not() {
    let (events, seen) = run(&[
        start(100, &[100]),
        fork(100, 200),
        done(100, 15),
        start(100, &[100]),
        done(100, 45),
        start(100, &[100]),
        done(100, 65),
        start(200, &[200]),
        done(200, 85),
        fault(200, 0x105),
    ]);
    // Two processes, one each, and a third reading that is not needed.
    assert_eq!((execs(&events), seen.unread), (2, 0), "{events:?}");
    assert_eq!(count(&events, |kind| *kind == Kind::Clone { child: 1, kind: CloneKind::Vfork }), 1);
    assert!(events.ends_with(&[(1, Kind::Fault { page: 0x105, flags: FaultFlags(6) })]));
}

#[test]
fn a_call_in_progress_takes_effect_after_the_reading() {
    let (events, _) = run(&[
        (100, RawKind::Idle),
        start(100, &[100]),
        (100, RawKind::Idle),
        done(100, 25),
        start(200, &[200]),
        done(200, 55),
        enter(200, MmCall::Munmap),
        start(300, &[300]),
        done(300, 85),
        (200, RawKind::Locked),
        leave(200),
    ]);
    assert_eq!(count(&events, |kind| *kind == Kind::Munmap { start: 0x100, pages: 4 }), 1);
    // Entered before the reading, locked after it.
    let (events, _) = run(&[
        start(100, &[100]),
        fork(100, 200),
        done(100, 15),
        enter(100, MmCall::Munmap),
        start(100, &[100]),
        done(100, 55),
        (100, RawKind::Locked),
        leave(100),
    ]);
    assert_eq!(events.last(), Some(&(0, Kind::Munmap { start: 0x100, pages: 4 })));
    // Locked before it, and still at work: the list may have been read in between.
    let (events, seen) = run(&[
        start(100, &[100]),
        fork(100, 200),
        done(100, 15),
        enter(100, MmCall::Munmap),
        (100, RawKind::Locked),
        start(100, &[100]),
        done(100, 65),
        leave(100),
    ]);
    assert_eq!((events.len(), seen.unread), (0, 2), "the process and its child");
}

#[test]
fn a_program_started_without_a_stop_is_empty_until_read() {
    let (events, seen) = run(&[
        start(100, &[100]),
        done(100, 15),
        fork(100, 200),
        (200, RawKind::ExecStart),
        (200, RawKind::ExecDone { old: 200 }),
        fault(200, 3),
        start(200, &[200]),
        done(200, 75),
        fork(100, 300),
        (300, RawKind::ExecStart),
        (300, RawKind::ExecDone { old: 300 }),
        fault(300, 3),
        (300, RawKind::Exit),
    ]);
    let of = |task| events.iter().filter(|(t, _)| *t == task).map(|(_, kind)| *kind).collect::<Vec<_>>();
    assert_eq!(execs(&events), 2, "the process, and the program that was read");
    let started = |kind: &Kind| matches!(kind, Kind::Exec { arg_pages: 1, .. });
    assert!(started(&of(1)[0]) && matches!(of(1)[1], Kind::Exec { arg_pages: 0, .. }), "{:?}", of(1));
    assert!(started(&of(2)[0]) && matches!(of(2)[1..], [Kind::Exit { last: true }]), "{:?}", of(2));
    assert_eq!((seen.openings.processes, seen.openings.programs), (1, 1));
    assert_eq!(count(&events, |kind| matches!(kind, Kind::Fault { .. })), 0);
    assert_eq!(seen.unread, 1);
}

#[test]
fn a_process_that_ends_before_it_is_read_leaves_nothing() {
    let (events, seen) = run(&[start(100, &[100]), (100, RawKind::Exit), done(100, 15), fault(100, 1)]);
    // It begins with the state that was read, and ends.
    assert_eq!(events.last(), Some(&(0, Kind::Exit { last: true })));
    assert_eq!(seen.unread, 0);
    let (events, seen) = run(&[fault(100, 1), start(100, &[100]), (100, RawKind::Exit)]);
    assert_eq!((events.len(), seen.unread), (0, 1));
}

#[test]
fn the_heap_has_its_holes_and_its_permissions() {
    let piece = |start, pages, prot| StateArea {
        area: Area { start, pages, prot: Prot(prot), ..Area::default() },
        heap: true,
        ..StateArea::default()
    };
    let areas = vec![piece(0x1ff, 3, 3), piece(0x202, 2, 1), piece(0x206, 4, 3)];
    let read = SpaceState { heap: 0x200, areas, present: Vec::new(), ..state(15) };
    let (events, _) = run(&[start(100, &[100]), (100, RawKind::ReadDone(Box::new(read)))]);
    let kinds: Vec<Kind> = events.iter().map(|(_, kind)| *kind).collect();
    let expected = [
        Kind::Brk { end: 0x200 },
        Kind::Brk { end: 0x20a },
        Kind::Munmap { start: 0x204, pages: 2 },
        Kind::Area { start: 0x1ff, pages: 1, prot: Prot(3), kind: AreaKind::Anon },
    ];
    assert_eq!(kinds[1..5], expected, "{kinds:?}");
    assert!(kinds.contains(&Kind::Mprotect { start: 0x202, pages: 2, prot: Prot(1) }), "{kinds:?}");
}

#[test]
fn pages_that_may_not_be_accessed_any_more_have_tables() {
    let mut read = state(15);
    read.areas[0].area.prot = Prot(0);
    let (events, _) = run(&[start(100, &[100]), (100, RawKind::ReadDone(Box::new(read)))]);
    let at = |is: &dyn Fn(&Kind) -> bool| events.iter().position(|(_, kind)| is(kind));
    let open = at(&|kind| matches!(kind, Kind::Area { start: 0x100, prot: Prot(3), .. }));
    let touched = at(&|kind| matches!(kind, Kind::Touched { start: 0x104, .. }));
    let closed = at(&|kind| *kind == Kind::Mprotect { start: 0x100, pages: 16, prot: Prot(0) });
    assert!(open.is_some() && open < touched && touched < closed, "{events:?}");
}
