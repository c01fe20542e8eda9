//! `replay --tables csv`: the events of tables, by which a program without the library comes to the
//! same hits as a policy of the replay.
use crate::program::{crate_file, fed, program, ptarmigan, reader_goes_away, shipped};
use ptarmigan_term::Count;
use std::collections::{HashMap, HashSet};
use std::path::Path;

#[expect(dead_code, reason = "the example's own main")]
#[path = "../../../ptarmigan-replay/examples/my_policy.rs"]
mod my_policy;

/// One line.
#[derive(Debug)]
struct TableEvent {
    event: u64,
    task: u32,
    cpu: u16,
    level: u8,
    is_alloc: bool,
    page: u32,
}

fn parsed(csv: &str) -> Vec<TableEvent> {
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("event,task,cpu,level,call,page"));
    let event = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        let [event, task, cpu, level, call, page] = cells[..] else { panic!("{line}") };
        assert!(["alloc", "free"].contains(&call), "{line}");
        Some(TableEvent {
            event: event.parse().ok()?,
            task: task.parse().ok()?,
            cpu: cpu.parse().ok()?,
            level: level.parse().ok()?,
            is_alloc: call == "alloc",
            page: page.parse().ok()?,
        })
    };
    lines.map(|line| event(line).unwrap_or_else(|| panic!("{line}"))).collect()
}

fn events(trace: &str) -> Vec<TableEvent> {
    parsed(&ptarmigan(&["replay", trace, "--tables", "csv"]).good())
}

/// Returns the hits of a stack of eight pages on each CPU, where roots stay roots.
fn lifo_hits(events: &[TableEvent]) -> usize {
    const ROOT: u8 = 3;
    let (mut stacks, mut hits) = (HashMap::<u16, Vec<bool>>::new(), 0);
    for event in events {
        let (stack, is_root) = (stacks.entry(event.cpu).or_default(), event.level == ROOT);
        if !event.is_alloc {
            if stack.len() < my_policy::PAGES {
                stack.push(is_root);
            }
        } else if let Some(last) = stack.iter().rposition(|kept| *kept == is_root) {
            stack.remove(last);
            hits += 1;
        }
    }
    hits
}

#[test]
fn the_example_counts_the_hits_that_the_events_give() {
    for name in ["fixture", "rustc"] {
        let events = events(name);
        let (hits, tables) = (lifo_hits(&events), events.iter().filter(|event| event.is_alloc).count());
        assert!(hits > 0 && hits < tables, "{name}: {hits} of {tables}");
        let line = my_policy::line(Path::new(name)).expect("a replay");
        assert!(line.contains(&format!(": {hits} hits, {tables} tables, at most ")), "{name}: {line}");
        if name == "rustc" {
            let page = std::fs::read_to_string(crate_file("../../book/src/researchers.md")).expect("a page");
            assert!(
                page.contains(&Count(hits as u64).to_string()),
                "the page has another number than {hits}"
            );
        }
    }
    assert!(my_policy::line(Path::new("no-such-file")).is_err_and(|e| e.message().contains("No such file")));
}

#[test]
fn every_event_of_a_table_names_the_event_that_it_belongs_to() {
    // The second one has thousands of events that are not replayed.
    for trace in ["fixture", &crate_file("tests/advise/empty.ptrace"), "rustc"] {
        let inspected = ptarmigan(&["inspect", trace, "--events", "--csv"]).good();
        let mut lines = inspected.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let head = lines.next().expect("a head");
        let [task, cpu, kind] =
            ["task", "cpu", "kind"].map(|name| head.iter().position(|cell| *cell == name).expect("a column"));
        let recorded: Vec<_> = lines.collect();
        let (mut live, mut before) = (HashSet::new(), 0);
        let events = events(trace);
        let [first, later @ ..] = &*events else { panic!("{trace} has no event") };
        assert_eq!((first.event, first.task, first.level, first.is_alloc), (0, 0, 3, true), "{trace}");
        for event in later {
            let of = &recorded[event.event as usize];
            assert_eq!((of[task], of[cpu]), (&*event.task.to_string(), &*event.cpu.to_string()), "{event:?}");
            let kinds = [
                "fault", "touched", "area", "clone", "exec", "exit", "mmap", "munmap", "mremap", "brk",
                "madvise",
            ];
            assert!(kinds.contains(&of[kind]), "{trace}: {event:?}: {of:?}");
            assert!(event.event >= before, "{trace}: {event:?} comes after event {before}");
            before = event.event;
        }
        for event in &events {
            let changes = if event.is_alloc { live.insert(event.page) } else { live.remove(&event.page) };
            assert!(changes, "{trace}: {event:?}: a page is one table at a time");
        }
    }
}

#[test]
fn a_pipe_gives_and_takes_the_events() {
    let whole = ptarmigan(&["replay", "fixture", "--tables", "csv"]).good();
    let bytes = std::fs::read(shipped("fixture.ptrace")).expect("a shipped recording");
    assert_eq!(fed(&mut program(&["replay", "-", "--tables", "csv"]), &bytes).good(), whole);
    for (trace, after) in [("fixture", 0), ("rustc", 0), ("rustc", 100_000)] {
        reader_goes_away(&mut program(&["replay", trace, "--tables", "csv"]), after);
    }
}

#[test]
fn one_trace_at_a_time_and_no_option_of_policies() {
    let two = ptarmigan(&["replay", "fixture", "rustc", "--tables", "csv"]);
    assert_eq!((two.status, two.out.as_str()), (Some(1), ""));
    assert_eq!(two.err.lines().count(), 1, "{}", two.err);
    assert!(two.err.contains("--tables takes one trace, and the line has 2"), "{}", two.err);
    let line = ["replay", "fixture", "--tables", "csv"];
    for more in
        [&["--json"][..], &["--policy", "plain"], &["--cpus", "2"], &["--save", "a"], &["--low", "1G"]]
    {
        let ran = ptarmigan(&[&line, more].concat());
        assert_eq!((ran.status, ran.out.as_str()), (Some(2), ""), "{more:?}");
        assert!(ran.err.contains("cannot be used with"), "{more:?}: {}", ran.err);
    }
    let small = ptarmigan(&["replay", "rustc", "--tables", "csv", "--memory", "1M"]);
    assert_eq!((small.status, small.err.lines().count()), (Some(1), 1), "{}", small.err);
    assert!(small.err.contains("got no memory at event "), "{}", small.err);
}
