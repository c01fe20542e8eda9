//! `advise BEFORE --check AFTER`: predictions compared with a second recording.
use crate::advise::{BASE, EXEC, made, map, write};
use crate::program::{Ran, Temporary, crate_file, ptarmigan};
use ptarmigan_trace::{Arch, Header, Kind, Name};
use serde_json::Value;

const EXIT: Kind = Kind::Exit { last: true };

/// A program that is started `starts` times and has `faults` faults each time.
fn run(name: &str, program: &str, starts: u32, faults: u64) -> Vec<(u32, Kind)> {
    let _ = name;
    let mut events = Vec::new();
    for _ in 0..starts {
        events.extend([(0, EXEC), (0, Kind::Name(Name::new(program))), (0, map(BASE, 8 * 512))]);
        events.extend((0..faults).map(|page| (0, write(BASE + page))));
    }
    events.push((0, EXIT));
    events
}

fn plain(name: &str, program: &str, starts: u32, faults: u64) -> Temporary {
    made(name, |_| {}, 0, &run(name, program, starts, faults))
}

fn check(before: &Temporary, after: &Temporary) -> Value {
    let args = ["advise", "--json", "--rounds", "0", before.path(), "--check", after.path()];
    ptarmigan(&args).json()["traces"][0]["check"].clone()
}

#[test]
fn each_piece_holds_holds_partly_or_does_not() {
    // 4,096 faults, of which huge pages spare 4,088.
    let before = plain("before", "app", 1, 4096);
    for (faults, holds) in [(8, "held"), (700, "held"), (2000, "partly"), (4090, "not"), (4096, "not")] {
        let after = plain(&format!("after{faults}"), "app", 1, faults);
        let check = check(&before, &after);
        let piece = &check["advice"][0];
        assert_eq!((&piece["kind"], &piece["result"]), (&"huge-pages".into(), &holds.into()), "{check:#}");
        let figure = &piece["figures"][0];
        assert_eq!(figure["figure"], "faults");
        assert_eq!(figure["recorded"].as_f64(), Some(faults as f64), "{check:#}");
        assert_eq!((figure["without"].as_f64(), figure["with"].as_f64()), (Some(4096.0), Some(8.0)));
    }
}

#[test]
fn recordings_that_do_not_tell_say_why() {
    let before = plain("told-before", "app", 2, 4096);
    let why = |after: &Temporary| {
        let check = check(&before, after);
        let piece = check["advice"][0].clone();
        assert_eq!(piece["result"], "cannot_be_told", "{check:#}");
        piece["figures"][0]["why"].as_str().expect("a reason").to_owned()
    };
    assert_eq!(why(&plain("other", "else", 2, 8)), "no program app is in it, but else");
    assert_eq!(why(&plain("more", "app", 5, 8)), "app was started 5 times in it, and 2 times before");
    let lossy = made("lossy", |_| {}, 3, &run("lossy", "app", 2, 8));
    assert_eq!(why(&lossy), "3 events of it were lost");
}

#[test]
fn recordings_of_other_machines_cannot_be_compared() {
    let before = plain("here", "app", 1, 4096);
    let foreign = |header: &mut Header| header.arch = Arch::Aarch64;
    let after = made("there", foreign, 0, &run("there", "app", 1, 8));
    let Ran { status, out, err } =
        ptarmigan(&["advise", "--rounds", "0", before.path(), "--check", after.path()]);
    assert_eq!((status, out.as_str()), (Some(1), ""));
    assert!(err.lines().count() == 1 && err.contains("they cannot be compared"), "{err}");
}

#[test]
fn shipped_recordings_of_corrected_programs_hold_what_was_predicted() {
    for (name, kind) in [("dense", "huge-pages"), ("sparse", "sparse-layout"), ("empty", "empty-tables")] {
        let trace = |form: &str| crate_file(&format!("tests/advise/{name}{form}.ptrace"));
        let args = ["advise", "--rounds", "0", &trace(""), "--check", &trace("_mended")];
        let text = ptarmigan(&args).good();
        assert!(text.contains(&format!("\n  1. {kind}: held\n")), "{text}");
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(words.join(" ").contains(" of that: held."), "{text}");
    }
}
