//! Programs whose requests to flush TLBs are in vain are told to stay on one CPU.
use crate::advise::{BASE, EXEC, advice, figure, made_with, map, piece, reason, write};
use crate::program::{Temporary, ptarmigan};
use ptarmigan_trace::{CloneKind, Header, Kind, Method, Name, Note, Unseen};
use serde_json::Value;

const EXIT: Kind = Kind::Exit { last: true };
/// A request to other CPUs, and the flush of a thread that it meets.
const REQUEST: Kind = Kind::TlbFlush { pages: 1, reason: 4 };
const MET: Kind = Kind::TlbFlush { pages: 1, reason: 1 };

/// Pages that the server fills: page tables take more than a hundredth of its CPU time.
const PAGES: u64 = 1000;

/// A server with one thread beside its first, and a child that it forks.
#[derive(Clone, Copy)]
struct Server {
    name: &'static str,
    /// Requests of the server, and of its child.
    requests: [usize; 2],
    /// Requests of the server that met its thread.
    met: usize,
    /// Milliseconds from the first event to the last.
    elapsed: u64,
    /// Milliseconds in user mode and in the kernel, of the server and of its child.
    used: [(u64, u64); 2],
    header: fn(&mut Header),
}

const SERVER: Server = Server {
    name: "server",
    requests: [1500, 500],
    met: 0,
    elapsed: 400,
    used: [(100, 60), (20, 20)],
    header: |_| {},
};

impl Server {
    fn record(self) -> Temporary {
        let Server { name, requests, met, elapsed, used, header } = self;
        let all = |task: u32, kind: Kind, n: usize| std::iter::repeat_n((task, kind), n);
        let used = used.map(|(user, system)| {
            let (user, system) = (user * 1000, system * 1000);
            Kind::Note(Note::Used { user, system, minor: 0, major: 0, waits: 0, preempted: 0 })
        });
        let mut events = vec![(0, EXEC), (0, Kind::Name(Name::new(name))), (0, map(BASE, PAGES))];
        events.extend((0..PAGES).map(|page| (0, write(BASE + page))));
        events.push((0, Kind::Clone { child: 1, kind: CloneKind::Share }));
        events.push((0, Kind::Clone { child: 2, kind: CloneKind::Fork }));
        events.extend(all(0, REQUEST, requests[0]).chain(all(1, MET, met)).chain(all(
            2,
            REQUEST,
            requests[1],
        )));
        events.extend([(2, used[1]), (2, EXIT), (1, Kind::Exit { last: false }), (0, used[0]), (0, EXIT)]);
        made_with("pin", header, 0, |writer| {
            writer.time(elapsed * 1000).expect("a time");
            events
        })
    }
}

fn blind(header: &mut Header) {
    header.method = Method::Perf;
    header.unseen = Unseen(Unseen::TLB_FLUSHES);
}

/// Returns the requests that `price` finds to be spared by pins.
fn priced(trace: &Temporary) -> Option<f64> {
    let document = ptarmigan(&["price", "--only", "requests", "--json", trace.path()]).json();
    let mut open = vec![&document];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(fields)
                if fields.get("name").is_some_and(|name| name == "requests spared by pins") =>
            {
                return fields["value"].as_f64();
            }
            Value::Object(fields) => open.extend(fields.values()),
            Value::Array(all) => open.extend(all),
            _ => {}
        }
    }
    None
}

#[test]
fn a_server_whose_requests_are_in_vain_is_told_to_stay_on_a_cpu() {
    let trace = SERVER.record();
    let report = advice(&trace.0, &[]);
    let found = piece(&report, "pin");
    assert_eq!((&found["to"], &found["programs"][0]["name"]), (&"machine".into(), &"server".into()));
    let title = "keep server on one CPU: 2,000 requests to other CPUs to flush their TLBs, of which 0 met one of \
                 its threads";
    assert_eq!(found["title"], title);
    assert_eq!(
        figure(found),
        "Saves 4 ms at a nominal price of 2 µs a request: 5.0 % of the time in the kernel. It and the programs \
         that it starts used 200 ms of CPU time in 400 ms: one CPU is enough on average."
    );
    assert!(found["uncertain"].is_null() && (found["seconds"].as_f64().unwrap() - 0.004).abs() < 1e-9);
    let expect = &found["expect"][0];
    assert_eq!((&expect["figure"], expect["with"].as_f64()), (&"requests".into(), Some(0.0)));
    assert_eq!(expect["without"].as_f64(), priced(&trace));
}

#[test]
fn a_program_that_needs_more_than_a_cpu_may_lose() {
    let busy = Server { used: [(300, 60), (30, 20)], ..SERVER };
    let report = advice(&busy.record().0, &[]);
    let found = piece(&report, "pin");
    assert_eq!(found["uncertain"], true);
    let ends = "On one CPU it would take at least 410 ms instead of 400 ms.";
    assert!(figure(found).ends_with(ends), "{found:#}");
}

#[test]
fn few_cheap_or_needed_requests_are_no_reason_to_pin() {
    let threads = Server { met: 16, requests: [1500, 999], ..SERVER };
    let few = Server { requests: [500, 499], ..SERVER };
    let cheap = Server { used: [(0, 400), (0, 1)], ..SERVER };
    for (server, why) in [
        (
            threads,
            "999 requests to other CPUs would be spared: 1,500 requests of 2,499 are of processes whose threads run \
             at once",
        ),
        (few, "999 requests to other CPUs would be spared"),
        (cheap, "2,000 requests of server to other CPUs take 1.0 % of the time in the kernel"),
    ] {
        let report = advice(&server.record().0, &[]);
        assert_eq!(reason(&report, "pin"), why);
    }
}

/// A wrapper and the program that it starts, each with requests and half of the CPU time.
fn wrapped(requests: [usize; 2]) -> Value {
    let used = Note::Used { user: 0, system: 90_000, minor: 0, major: 0, waits: 0, preempted: 0 };
    let mut events = Vec::new();
    for (task, name, n) in [(0, "env", requests[0]), (1, "server", requests[1])] {
        if task == 1 {
            events.push((0, Kind::Clone { child: 1, kind: CloneKind::Fork }));
        }
        events.extend([(task, EXEC), (task, Kind::Name(Name::new(name))), (task, map(BASE, PAGES))]);
        events.extend((0..PAGES).map(|page| (task, write(BASE + page))));
        events.extend(std::iter::repeat_n((task, REQUEST), n));
    }
    events.extend([1, 0].into_iter().flat_map(|task| [(task, Kind::Note(used)), (task, EXIT)]));
    let trace = made_with(
        "wrapped",
        |_| {},
        0,
        |writer| {
            writer.time(200_000).expect("a time");
            events
        },
    );
    advice(&trace.0, &[])
}

#[test]
fn a_wrapper_is_pinned_only_if_it_sends_most_requests() {
    let programs = |report: &Value| -> Vec<String> {
        let advice = report["advice"].as_array().expect("a list");
        let pins = advice.iter().filter(|one| one["kind"] == "pin");
        pins.map(|one| one["programs"][0]["name"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(programs(&wrapped([1500, 2000])), ["server"]);
    let caused = wrapped([2000, 1500]);
    assert_eq!(programs(&caused), ["env", "server"]);
    // Its CPU has the program that it starts, too.
    assert!(figure(piece(&caused, "pin")).contains("used 180 ms of CPU time in 200 ms"), "{caused:#}");
}

#[test]
fn requests_that_were_not_recorded_are_not_measured() {
    let report = advice(&Server { header: blind, ..SERVER }.record().0, &[]);
    assert_eq!(reason(&report, "pin"), "the recording has no flushes of TLBs");
    let rejected = report["rejected"].as_array().expect("a list");
    let pin = rejected.iter().find(|one| one["kind"] == "pin").expect("it is listed");
    assert_eq!((&pin["measured"], &pin["to"]), (&false.into(), &"machine".into()));
    let untimed = Server { used: [(0, 0); 2], ..SERVER };
    let why = "the time of the kernel that requests are a part of is not known";
    assert_eq!(reason(&advice(&untimed.record().0, &[]), "pin"), why);
}

#[test]
fn a_second_recording_shows_whether_the_program_was_pinned() {
    let before = SERVER.record();
    for (after, result) in [
        (Server { requests: [20, 0], ..SERVER }, "held"),
        (Server { requests: [700, 0], ..SERVER }, "missed"),
        (SERVER, "not_carried_out"),
        (Server { header: blind, requests: [0, 0], ..SERVER }, "cannot_be_told"),
    ] {
        let after = after.record();
        let args = ["advise", "--json", "--rounds", "0", before.path(), "--check", after.path()];
        let check = ptarmigan(&args).json()["traces"][0]["check"].clone();
        let all = check["advice"].as_array().expect("a list");
        let pin = all.iter().find(|one| one["kind"] == "pin").expect("it is compared");
        assert_eq!(pin["result"], result, "{check:#}");
    }
}
