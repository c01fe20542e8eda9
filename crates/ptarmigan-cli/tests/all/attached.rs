//! Recordings of processes that ran already: their state is not counted as work.
use crate::program::{Temporary, ptarmigan};
use ptarmigan_trace::{
    AreaKind, Call, CloneKind, Event, FaultFlags, Header, Kind, MapFlags, Method, Name, Note, Prot, Sampled,
    Writer,
};

const WRITE: FaultFlags = FaultFlags(FaultFlags::USER | FaultFlags::WRITE);
const RUNNING: Kind = Kind::Exec { stack_end: 0x7_ffff_ffff, arg_pages: 0 };

/// Returns the state of a process with 4 MiB of its own, and one further thread if `thread` is its
/// number.
fn state(task: u32, name: &str, thread: Option<u32>) -> Vec<(u32, Kind)> {
    let prot = Prot(Prot::READ | Prot::WRITE);
    let stack = Kind::Area { start: 0x7_ffff_f000, pages: 16, prot, kind: AreaKind::Stack };
    let flags = MapFlags(MapFlags::ANON | MapFlags::FIXED);
    let mut kinds = vec![
        RUNNING,
        stack,
        Kind::Mmap { start: 1 << 20, pages: 1024, prot, flags },
        Kind::Madvise { start: 1 << 20, pages: 1024, advice: 15 },
        Kind::Name(Name::new(name)),
        Kind::Touched { start: 1 << 20, pages: 1024, flags: WRITE },
        Kind::Truth { tables: 4, at: Sampled::Exec },
    ];
    kinds.extend(thread.map(|child| Kind::Clone { child, kind: CloneKind::Share }));
    kinds.push(Kind::StackLimit { pages: 2048 });
    kinds.into_iter().map(|kind| (task, kind)).collect()
}

/// A server with a thread and a worker ran already. The worker forks, and its child runs a program
/// that is read later.
fn trace() -> Temporary {
    let took = |call| Kind::Note(Note::Took { call, nanos: 500_000, away: 0 });
    let mut events = state(0, "server", Some(1));
    events.push((0, Kind::Clone { child: 2, kind: CloneKind::Vfork }));
    events.extend(state(2, "worker", None));
    events.extend([
        (2, Kind::Clone { child: 3, kind: CloneKind::Fork }),
        (2, took(Call::Fork)),
        (3, Kind::Exec { stack_end: 0x7_ffff_ffff, arg_pages: 1 }),
        (3, took(Call::Exec)),
    ]);
    events.extend(state(3, "tool", None));
    events.extend([
        (3, Kind::Fault { page: 1 << 20, flags: WRITE }),
        (3, Kind::Truth { tables: 4, at: Sampled::Exit }),
        (3, Kind::Exit { last: true }),
    ]);
    let mut writer =
        Writer::new(Vec::new(), &Header::new("server", 1, Method::Synthetic), 1).expect("a good header");
    for (task, kind) in events {
        writer.event(&Event { task, cpu: 0, kind }).unwrap_or_else(|e| panic!("{kind:?}: {e}"));
    }
    Temporary::file("attached", &writer.finish(0).expect("memory takes everything").0)
}

#[test]
fn inspect_counts_the_state_of_running_processes_apart() {
    let file = trace();
    let json = ptarmigan(&["inspect", file.path(), "--json"]).json();
    let counts = ["processes", "threads", "forks", "vforks", "execs", "tasks"].map(|name| &json[name]);
    assert_eq!(counts, [3, 1, 1, 0, 1, 4]);
    let running = ["processes", "threads", "read_later", "samples"].map(|name| &json["running"][name]);
    assert_eq!(running, [2, 1, 1, 3]);
    let kinds = ["mmap", "madvise", "touched", "area", "name", "stack-limit", "clone", "exec", "truth"];
    assert_eq!(kinds.map(|kind| &json["by_kind"][kind]), [0, 0, 0, 0, 0, 0, 1, 1, 1], "{json}");
    let all: u64 = json["by_kind"].as_object().expect("kinds").values().filter_map(|n| n.as_u64()).sum();
    assert_eq!(json["events"], all + json["running"]["events"].as_u64().expect("a number"));
    assert_eq!((&json["samples"]["exit"], &json["samples"]["exec"]), (&1.into(), &0.into()));
    assert!(json["advice"].as_object().is_some_and(serde_json::Map::is_empty));
    let text = ptarmigan(&["inspect", file.path()]).out;
    assert!(text.contains("attached     2 processes were running already with 1 further thread;"), "{text}");
    assert!(text.contains("3 of processes that were running already"), "{text}");
}

#[test]
fn times_and_advice_leave_out_the_state_of_running_processes() {
    let file = trace();
    let times = &ptarmigan(&["inspect", file.path(), "--json"]).json()["times"];
    assert_eq!(times["processes"], 3);
    let program = |name: &str| {
        let all = times["programs"].as_array().expect("programs").clone();
        all.into_iter().find(|program| program["name"] == name).unwrap_or_default()
    };
    assert_eq!(program("worker")["processes"], 1, "{times}");
    // The server has made no process while it was recorded.
    assert_eq!(program("server"), serde_json::Value::Null, "{times}");
    let advice = ptarmigan(&["advise", file.path(), "--rounds", "0", "--json"]).json();
    let report = &advice["traces"][0];
    assert_eq!((&report["processes"], &report["running"]), (&3.into(), &2.into()));
    let times = |cause: &str| report["whole"]["causes"][cause]["times"].as_u64().unwrap_or_default();
    assert_eq!(["fork", "exec", "call", "found"].map(times), [1, 1, 0, 0], "{report}");
    assert!(times("opening") > 10, "{report}");
    let text = ptarmigan(&["advise", file.path(), "--rounds", "0"]).out;
    assert!(text.contains("server: 3 processes (2 running already), "), "{text}");
}

#[test]
fn a_report_has_no_median_of_lives_that_the_recording_cuts_off() {
    let file = trace();
    let dir = crate::report::Dir::new("attached-report");
    ptarmigan(&["report", file.path(), "-o", &dir.path("page.html"), "--data", &dir.path("data")]);
    let lives = &dir.json("data/report.json")["traces"][0]["tables"]["lifetimes"];
    assert_eq!(lives["median"][0], serde_json::Value::Null, "{lives}");
    let page = dir.read("page.html");
    assert!(page.contains("Most leaf tables live longer than the recording"), "no such title");
    assert!(!page.contains("median life of a leaf table"), "a median");
    let calls = page.split("<section id=\"calls\">").nth(1).expect("a part about calls");
    assert!(calls.starts_with("\n<h2>Calls: 1 fork in 500 µs"), "{}", &calls[..200]);
}

#[test]
fn a_report_says_that_processes_were_running() {
    let file = trace();
    let text = ptarmigan(&["report", file.path(), "--markdown"]).out;
    assert!(text.contains("3 processes (2 were running already), "), "{text}");
}
