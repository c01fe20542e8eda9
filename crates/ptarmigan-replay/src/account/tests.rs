//! Accounts of made-up recordings.
use super::*;
use ptarmigan_trace::{Call, FaultFlags, Name};

/// Returns the account of events, each with its task.
fn account(events: &[(u32, Kind)]) -> Account {
    let mut account = Account::new();
    for (n, (task, kind)) in events.iter().enumerate() {
        account.add(
            &Event { task: *task, cpu: 0, kind: *kind },
            4_100_000 * (n as u64 + 1) / events.len() as u64,
        );
    }
    account
}

fn exec(task: u32, name: &str) -> [(u32, Kind); 2] {
    [(task, Kind::Exec { stack_end: 9, arg_pages: 1 }), (task, Kind::Name(Name::new(name)))]
}

fn took(task: u32, call: Call, millis: u64) -> (u32, Kind) {
    (task, Kind::Note(Note::Took { call, nanos: millis * 1_000_000, away: 1000 }))
}

fn used(task: u32, user: u64, system: u64) -> (u32, Kind) {
    let note = Note::Used { user, system, minor: 9, major: 1, waits: 2, preempted: 3 };
    (task, Kind::Note(note))
}

fn clone(task: u32, child: u32, kind: CloneKind) -> (u32, Kind) {
    (task, Kind::Clone { child, kind })
}

fn fault(task: u32) -> (u32, Kind) {
    (task, Kind::Fault { page: 1, flags: FaultFlags(6) })
}

#[test]
fn times_belong_to_the_program_that_the_task_ran() {
    let mut events = exec(0, "server").to_vec();
    events.push(clone(0, 1, CloneKind::Fork));
    events.push(took(0, Call::Fork, 300));
    events.extend([fault(0), fault(1)]);
    events.extend(exec(1, "helper"));
    events.push(took(1, Call::Exec, 20));
    events.extend([
        fault(1),
        clone(1, 2, CloneKind::Share),
        took(2, Call::Munmap, 5),
        took(1, Call::Mmap, 7),
    ]);
    events.extend([(1, Kind::Exit { last: true }), took(1, Call::Exit, 40), used(1, 100_000, 200_000)]);
    events.push(used(0, 200_000, 440_000));
    let account = account(&events);
    let programs: Vec<&ProgramTimes> = account.programs().collect();
    let names: Vec<Option<&str>> = programs.iter().map(|program| program.name.as_deref()).collect();
    assert_eq!(names, [Some("server"), Some("helper")]);
    let [server, helper] = [&programs[0].times, &programs[1].times];
    assert_eq!((server.faults, helper.faults), (2, 1));
    assert_eq!(
        server.call(Call::Fork),
        CallTime {
            calls: 1,
            nanos: 300_000_000,
            away: 1000,
            longest: 300_000_000,
            longest_by_clock: 300_001_000,
        }
    );
    assert_eq!((server.processes, helper.processes), (1, 0), "a thread is no process");
    assert_eq!(helper.family(Family::Mappings).nanos, 12_000_000);
    assert_eq!((helper.user, helper.kernel, helper.minor), (100_000, 200_000, 9));
    assert_eq!(helper.faults_about(), None, "too little time");
    let total = account.total();
    assert_eq!((total.processes, total.ended, total.cpu()), (2, 2, 940_000));
    // 640 ms in the kernel less 300, 20, 12 and 40 ms.
    assert_eq!(total.faults_about(), Some(268_000));
    // Three faults do not take that long.
    assert_eq!((total.faults_at_most(), total.page_tables_at_most()), (Some(30), 372_030));
    assert_eq!(
        account.line().as_deref(),
        Some(
            "4.1 s; 640 ms of 940 ms CPU time in the kernel; 1 fork took 300 ms, 1 exec 20 ms, 1 exit 40 ms, \
             2 calls on mappings 12 ms (1 mmap 7 ms), 3 faults and other calls about 268 ms"
        )
    );
    assert!(account.remarks().is_empty());
}

#[test]
fn the_wait_of_a_vfork_is_no_time_in_the_kernel() {
    let mut events = exec(0, "make").to_vec();
    events.extend([clone(0, 1, CloneKind::Vfork), took(0, Call::Vfork, 300), fault(0)]);
    events.push(used(0, 0, 500_000));
    let account = account(&events);
    assert_eq!(account.total().faults_about(), Some(500_000));
    let remarks = account.remarks();
    assert_eq!(remarks.len(), 2, "{remarks:?}");
    assert!(remarks[0].starts_with("The CPU time of 1 process is not known: ended by a signal"));
    assert!(remarks[1].contains("vfork includes its child's"));
}

#[test]
fn the_stops_of_the_recorder_are_taken_off() {
    let mut events = exec(0, "a").to_vec();
    events.push((0, Kind::Note(Note::StopCost { nanos: 1_000_000 })));
    events.extend([took(0, Call::Munmap, 3), took(0, Call::Munmap, 0)]);
    let account = account(&events);
    assert_eq!(
        account.total().call(Call::Munmap),
        CallTime { calls: 2, nanos: 2_000_000, away: 2000, longest: 2_000_000, longest_by_clock: 2_001_000 }
    );
    assert_eq!(account.line().as_deref(), Some("4.1 s; 2 munmap took 2 ms"));
    assert!(account.remarks().iter().any(|remark| remark.contains("about 1 ms for the stops")));
}

#[test]
fn the_line_has_no_share_of_cpu_time_of_few_processes() {
    // Two processes that go on, and one that has ended.
    let mut events = exec(0, "server").to_vec();
    events.extend([clone(0, 1, CloneKind::Fork), clone(0, 2, CloneKind::Fork)]);
    events.extend([took(0, Call::Mprotect, 900), took(2, Call::Munmap, 5), used(2, 0, 6_000)]);
    let one = account(&events);
    assert!(!one.total().is_measured());
    let expected = "4.1 s; 2 calls on mappings took 905 ms (1 mprotect 900 ms)";
    assert_eq!(one.line().as_deref(), Some(expected));
    // Two of three, but the third made the calls.
    events.push(used(1, 0, 6_000));
    assert_eq!(account(&events).line().as_deref(), Some(expected));
    events.push(used(0, 0, 1_000_000));
    let line = account(&events).line().unwrap_or_default();
    assert!(line.starts_with("4.1 s; 1.0 s of 1.0 s CPU time in the kernel; 2 calls on mappings"), "{line}");
}

#[test]
fn a_call_that_waits_in_a_server_is_told_by_the_clock() {
    let opening = [Kind::Exec { stack_end: 9, arg_pages: 0 }, Kind::StackLimit { pages: 2048 }];
    let mut events = opening.map(|kind| (0, kind)).to_vec();
    let fork = Note::Took { call: Call::Fork, nanos: 5_148_217, away: 44_498_855 };
    events.extend([(0, Kind::Note(fork)), took(0, Call::Munmap, 1)]);
    let line = account(&events).line();
    assert_eq!(line.as_deref(), Some("4.1 s; 1 fork took 5.1 ms; longest call by the clock: fork, 50 ms"));
    events.splice(0..2, exec(0, "redis"));
    assert_eq!(account(&events).line().as_deref(), Some("4.1 s; 1 fork took 5.1 ms"), "a command");
}

#[test]
fn a_recording_without_times_says_nothing_about_them() {
    let mut events = exec(0, "a").to_vec();
    events.extend([fault(0), clone(0, 1, CloneKind::Fork), (0, Kind::Exit { last: true })]);
    let account = account(&events);
    assert!(!account.is_timed() && account.line().is_none() && account.report().is_none());
    assert!(account.remarks().is_empty());
}
