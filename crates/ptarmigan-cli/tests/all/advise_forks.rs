//! Advice on forks: with seconds, by program, and never that of huge pages for memory that a
//! program forks and writes.
use crate::advise::{BASE, EXEC, advice, figure, kinds, made, map, piece, reason, write};
use ptarmigan_trace::{Call, CloneKind, FaultFlags, Header, Kind, Name, Note, Runtime, Unseen};
use serde_json::Value;

const EXIT: Kind = Kind::Exit { last: true };

fn fork(child: u32) -> Kind {
    Kind::Clone { child, kind: CloneKind::Fork }
}

fn named(task: u32, name: &str) -> [(u32, Kind); 2] {
    [(task, EXEC), (task, Kind::Name(Name::new(name)))]
}

fn took(call: Call, nanos: u64) -> Kind {
    Kind::Note(Note::Took { call, nanos, away: 0 })
}

fn copy(page: u64) -> Kind {
    let flags = FaultFlags::WRITE | FaultFlags::USER | FaultFlags::PRESENT;
    Kind::Fault { page, flags: FaultFlags(flags) }
}

fn used(user: u64, system: u64) -> Kind {
    Kind::Note(Note::Used { user, system, minor: 0, major: 0, waits: 0, preempted: 0 })
}

/// A parent of 40 MiB whose forks take 60 ms each, in a program that a wrapper may have started.
fn starts_programs(wrapper: bool) -> Vec<(u32, Kind)> {
    let mut events = Vec::from(named(0, if wrapper { "bash" } else { "server" }));
    events.push((0, map(BASE, 20 * 512)));
    events.extend((0..20 * 100).map(|n| (0, write(BASE + n / 100 * 512 + n % 100))));
    for child in 1..=10 {
        events.extend([(0, fork(child)), (0, took(Call::Fork, 60_000_000))]);
        events.extend(named(child, "ls"));
        events.extend([(child, took(Call::Exec, 1_000_000)), (child, EXIT)]);
    }
    events.extend([(0, used(500_000, 500_000)), (0, EXIT)]);
    events
}

fn seconds(found: &Value) -> (f64, f64) {
    let expect = found["expect"].as_array().expect("a list");
    let forks = expect.iter().find(|one| one["figure"] == "fork_seconds");
    let forks = forks.unwrap_or_else(|| panic!("no seconds in {found:#}"));
    (forks["without"].as_f64().expect("a number"), forks["with"].as_f64().expect("a number"))
}

#[test]
fn forks_that_only_exec_have_their_seconds_and_program() {
    let report = advice(&made("starts", |_| {}, 0, &starts_programs(false)).0, &[]);
    let found = piece(&report, "vfork");
    assert_eq!(found["programs"][0]["name"], "server", "{found:#}");
    assert_eq!(found["programs"][0]["count"], 10);
    let seconds_of = found["programs"][0]["seconds"].as_f64().expect("a number");
    assert!((seconds_of - 0.6).abs() < 1e-9, "{found:#}");
    assert!(figure(found).contains("the largest parent has 7.8 MiB in 21 leaf tables"), "{found:#}");
    // No fork of the recording is short, and without rounds no price was measured: nothing is known
    // of a small fork, and no seconds are predicted.
    assert!(!figure(found).contains("as vfork, execve included"), "{found:#}");
    let expect = found["expect"].as_array().expect("a list");
    assert!(expect.iter().all(|one| one["figure"] != "fork_seconds"), "{found:#}");
    assert!(expect.iter().any(|one| one["figure"] == "tables_at_end"), "{found:#}");
}

#[test]
fn forks_that_scatter_are_all_large() {
    let mut events = starts_programs(false);
    // One of ten took 45 ms instead of 60.
    let first = events.iter_mut().find_map(|(_, kind)| match kind {
        Kind::Note(Note::Took { call: Call::Fork, nanos, .. }) => Some(nanos),
        _ => None,
    });
    *first.expect("a fork") = 45_000_000;
    let report = advice(&made("scatter", |_| {}, 0, &events).0, &[]);
    let found = piece(&report, "vfork");
    let expect = found["expect"].as_array().expect("a list");
    assert!(expect.iter().all(|one| one["figure"] != "fork_seconds"), "{found:#}");
    assert!(figure(found).contains("They took 585 ms. "), "{found:#}");
}

#[test]
fn a_small_fork_takes_the_shortest_time_and_a_vfork_to_execve() {
    let mut events = starts_programs(false);
    let end = events.len() - 2;
    let short = [(0, fork(11)), (0, took(Call::Fork, 100_000)), (11, map(1 << 20, 1)), (11, EXIT)];
    events.splice(end..end, short);
    let report = advice(&made("short", |_| {}, 0, &events).0, &[]);
    let found = piece(&report, "vfork");
    let (without, with) = seconds(found);
    // 0.6 s of these forks and 0.1 ms of the other one; then ten of 0.1 ms and 1 ms.
    assert!((without - 0.6001).abs() < 1e-9, "{found:#}");
    assert!((with - (0.0001 + 10.0 * 0.0011)).abs() < 1e-9, "{found:#}");
    assert!(figure(found).contains("They took 600 ms; as vfork, execve included, about 11 ms."), "{found:#}");
    // Most of the programs' time.
    assert!(found["value"].as_f64().is_some_and(|value| value > 0.55), "{found:#}");
}

#[test]
fn forks_of_a_wrapper_are_told_as_the_wrappers() {
    let report = advice(&made("wrapper", |_| {}, 0, &starts_programs(true)).0, &[]);
    assert!(!kinds(&report).contains(&"vfork"), "{report:#}");
    let why = reason(&report, "vfork");
    assert!(why.contains("of programs that start others are theirs"), "{why}");
    assert!(why.contains(": bash 10 (600 ms);"), "{why}");
}

/// A parent of 48 MiB with children that live on. Then it writes, or they do.
fn lives_on(name: &str, parent: u64, child: u64) -> Vec<(u32, Kind)> {
    let mut events = Vec::from(named(0, name));
    events.push((0, map(BASE, 24 * 512)));
    events.extend((0..24 * 512).map(|page| (0, write(BASE + page))));
    for task in 1..=8 {
        events.extend([(0, fork(task)), (0, took(Call::Fork, if task == 1 { 100_000 } else { 20_000_000 }))]);
        events.push((task, map(BASE << 1, 1)));
        events.extend((0..child).map(|n| (task, copy(BASE + n * 37 % (24 * 512)))));
        events.extend((0..parent).map(|n| (0, copy(BASE + n * 37 % (24 * 512)))));
        events.push((task, EXIT));
    }
    events.extend([(0, used(500_000, 500_000)), (0, EXIT)]);
    events
}

#[test]
fn forked_and_written_memory_gets_no_huge_page_advice() {
    let report = advice(&made("snapshot", |_| {}, 0, &lives_on("redis-server", 300, 10)).0, &[]);
    assert!(!kinds(&report).contains(&"huge-pages"), "{report:#}");
    let why = reason(&report, "huge-pages");
    assert!(why.starts_with("24 regions were full, but the program forks and goes on writing"), "{why}");
    // The same program without writes while children live, and one without forks.
    let report = advice(&made("quiet", |_| {}, 0, &lives_on("server", 0, 0)).0, &[]);
    assert!(kinds(&report).contains(&"huge-pages"), "{report:#}");
}

#[test]
fn a_snapshot_is_told_from_workers() {
    let report = advice(&made("snapshot", |_| {}, 0, &lives_on("redis-server", 300, 10)).0, &[]);
    assert!(!kinds(&report).contains(&"fork-memory"), "{report:#}");
    let why = reason(&report, "fork-memory");
    assert!(why.contains("8 forks of redis-server copied up to 48 MiB in 200 leaf tables"), "{why}");
    assert!(why.contains("the parent copies what it writes meanwhile (2,400 pages)"), "{why}");
}

#[test]
fn without_the_access_of_faults_large_forks_are_not_judged() {
    let blind: Vec<(u32, Kind)> = lives_on("redis-server", 300, 10)
        .into_iter()
        .map(|(task, kind)| match kind {
            Kind::Fault { page, .. } => (task, Kind::Fault { page, flags: FaultFlags(FaultFlags::USER) }),
            kind => (task, kind),
        })
        .collect();
    let unseen = |header: &mut Header| header.unseen = Unseen(Unseen::FAULT_ACCESS);
    let report = advice(&made("blind", unseen, 0, &blind).0, &[]);
    for kind in ["fork-memory", "sharing-lost"] {
        assert!(!kinds(&report).contains(&kind), "{report:#}");
        let why = reason(&report, kind);
        assert!(
            why.contains("does not tell writes from reads, which one by tracefs does (as root)"),
            "{why}"
        );
    }
}

#[test]
fn runtimes_are_told_in_their_language_how_to_start_programs() {
    let how = |runtime| {
        let mut events = starts_programs(false);
        events.insert(2, (0, Kind::Note(Note::Runtime(runtime))));
        let report = advice(&made("language", |_| {}, 0, &events).0, &[]);
        piece(&report, "vfork")["how"].as_str().expect("a text").to_owned()
    };
    assert!(how(Runtime::Jvm).starts_with("Java: -Djdk.lang.Process.launchMechanism=VFORK"));
    assert!(how(Runtime::V8).contains("helper process"));
    assert!(how(Runtime::Python).contains("preexec_fn"));
    assert!(how(Runtime::Glibc).starts_with("posix_spawn, vfork"));
}

#[test]
fn workers_of_a_large_parent_should_fork_from_a_smaller_one() {
    let report = advice(&made("workers", |_| {}, 0, &lives_on("python3", 0, 300)).0, &[]);
    let found = piece(&report, "fork-memory");
    assert_eq!(found["title"], "fork from a smaller process: python3");
    assert!(found["how"].as_str().is_some_and(|how| how.contains("forkserver")), "{found:#}");
    let (without, with) = seconds(found);
    assert!((without - 0.1401).abs() < 1e-9 && (with - 0.0008).abs() < 1e-9, "{found:#}");
}

#[test]
fn mappings_unused_by_children_are_replayed_without_them() {
    let mut events = lives_on("server", 0, 300);
    // A second mapping of the parent, away from the first, which children leave alone.
    let other = BASE << 2;
    let at = events.iter().position(|(_, kind)| matches!(kind, Kind::Clone { .. })).expect("a fork");
    let second = [(0, map(other, 24 * 512))].into_iter().chain((0..24).map(|r| (0, write(other + r * 512))));
    events.splice(at..at, second);
    let report = advice(&made("dontfork", |_| {}, 0, &events).0, &[]);
    let found = piece(&report, "fork-memory");
    assert!(figure(found).contains("They had no fault in 384 MiB of its mappings"), "{found:#}");
    // Of each fork 24 leaf tables and one above.
    let made = found["saved"]["tables_made"].as_i64().expect("a count");
    assert!((8 * 24..=8 * 26).contains(&made), "{found:#}");
}

#[test]
fn small_parents_are_not_told_to_fork_from_smaller_ones() {
    let mut events = Vec::from(named(0, "server"));
    events.push((0, map(BASE, 512)));
    events.extend((0..512).map(|page| (0, write(BASE + page))));
    for task in 1..=8 {
        events.extend([(0, fork(task)), (task, map(BASE << 1, 1)), (task, copy(BASE)), (task, EXIT)]);
    }
    events.push((0, EXIT));
    let report = advice(&made("small-parent", |_| {}, 0, &events).0, &[]);
    assert!(reason(&report, "fork-memory").starts_with("no process of 16 MiB"), "{report:#}");
}
