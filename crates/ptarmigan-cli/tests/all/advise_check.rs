//! `advise BEFORE --check AFTER`: predictions compared with a second recording.
use crate::advise::{BASE, EXEC, made, map, write};
use crate::program::{Ran, Temporary, crate_file, ptarmigan};
use ptarmigan_trace::{Arch, CloneKind, Header, Kind, MapFlags, Name, Prot};
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
fn each_piece_holds_is_missed_or_is_not_carried_out() {
    // 4,096 faults, of which huge pages spare 4,088.
    let before = plain("before", "app", 1, 4096);
    for (faults, holds) in
        [(8, "held"), (700, "held"), (2000, "missed"), (4090, "not_carried_out"), (4096, "not_carried_out")]
    {
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

/// A program that fills 8 MiB and touches one page each of 64 regions.
fn two_needs(name: &str, huge: bool, packed: bool) -> Temporary {
    let mut events = vec![(0, EXEC), (0, Kind::Name(Name::new("app"))), (0, map(BASE, 4 * 512))];
    let step = if huge { 512 } else { 1 };
    events.extend((0..4 * 512).step_by(step).map(|page| (0, write(BASE + page))));
    let (far, apart) = (BASE + (1 << 20), if packed { 1 } else { 512 });
    events.push((0, map(far, 64 * apart)));
    events.extend((0..64).map(|n| (0, write(far + n * apart))));
    events.push((0, EXIT));
    made(name, |_| {}, 0, &events)
}

#[test]
fn one_second_recording_says_which_pieces_were_carried_out() {
    let before = two_needs("needs", false, false);
    for (huge, packed) in [(false, false), (true, false), (false, true), (true, true)] {
        let check = check(&before, &two_needs(&format!("needs-{huge}-{packed}"), huge, packed));
        let result = |kind: &str| {
            let all = check["advice"].as_array().expect("a list");
            let piece = all.iter().find(|one| one["kind"] == kind);
            piece.unwrap_or_else(|| panic!("no {kind} in {check:#}"))["result"].clone()
        };
        let says = |done| if done { "held" } else { "not_carried_out" };
        assert_eq!(result("huge-pages"), says(huge), "{check:#}");
        assert_eq!(result("sparse-layout"), says(packed), "{check:#}");
    }
    let after = two_needs("needs-text", true, false);
    let text = ptarmigan(&["advise", "--rounds", "0", before.path(), "--check", after.path()]).good();
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("sparse-layout: not carried out: the second recording gets the same advice"),
        "{text}"
    );
    assert!(words.contains("huge-pages: held"), "{text}");
}

#[test]
fn a_saving_that_is_too_small_or_too_large_says_by_how_much() {
    let before = plain("much-before", "app", 1, 4096);
    let after = plain("much-after", "app", 1, 1700);
    let check = check(&before, &after);
    // 2,396 of the 4,088 that huge pages would spare.
    let missed = check["advice"][0]["missed_by"].as_f64().expect("a part");
    assert!((missed - (2396.0 / 4088.0 - 1.0)).abs() < 1e-9, "{check:#}");
    let text = ptarmigan(&["advise", "--rounds", "0", before.path(), "--check", after.path()]).good();
    assert!(text.contains("\n  1. huge-pages: missed by 41 %\n"), "{text}");
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
    assert_eq!(
        why(&plain("other", "else", 2, 8)),
        "no program app is in it, but else; --as app=NAME compares one of them"
    );
    assert_eq!(why(&plain("more", "app", 5, 8)), "app was started 5 times in it, and 2 times before");
    let lossy = made("lossy", |_| {}, 3, &run("lossy", "app", 2, 8));
    assert_eq!(why(&lossy), "3 events of it were lost");
}

#[test]
fn programs_of_other_names_are_compared_if_they_are_given() {
    let (before, after) = (plain("as-before", "app", 1, 4096), plain("as-after", "app2", 1, 8));
    let args = ["advise", "--rounds", "0", before.path(), "--check", after.path()];
    let text = ptarmigan(&[&args[..], &["--as", "app=app2"]].concat()).good();
    assert!(text.contains("\n  1. huge-pages: held\n"), "{text}");
    // A program that was not changed is told under its new name, too.
    let same = plain("as-same", "app2", 1, 4096);
    let args_same = ["advise", "--rounds", "0", before.path(), "--check", same.path(), "--as", "app=app2"];
    assert!(ptarmigan(&args_same).good().contains("huge-pages: not carried out"));
    for (given, says) in [
        ("ap=app2", "--as ap=app2: the first recording has no program ap, but app"),
        ("app=ap", "--as app=ap: the second recording has no program ap, but app2"),
    ] {
        let Ran { status, out, err } = ptarmigan(&[&args[..], &["--as", given]].concat());
        assert_eq!((status, out.as_str()), (Some(1), ""));
        assert!(err.lines().count() == 1 && err.contains(says), "{err}");
    }
    for wrong in [&["--as", "app"][..], &["--as", "=app2"]] {
        assert_eq!(ptarmigan(&[&args[..], wrong].concat()).status, Some(2));
    }
    let alone = ptarmigan(&["advise", before.path(), "--as", "app=app2"]);
    assert_eq!(alone.status, Some(2), "without --check there is no other name: {}", alone.err);
}

/// A server with a heap of 16 MiB and arenas that forks, and children that start a program.
fn forks_with_arenas(name: &str, forks: u32, arenas: bool) -> Temporary {
    let mut events = vec![(0, EXEC), (0, Kind::Name(Name::new("app"))), (0, map(BASE, 400 * 512))];
    // Too many pages of each table for a sparse layout, and too few for huge pages.
    events.extend((0..400 * 100).map(|n| (0, write(BASE + n / 100 * 512 + n % 100))));
    let arena = |n: u64| BASE + (1 << 22) + n * (1 << 14);
    let thread = Kind::Clone { child: 1, kind: CloneKind::Share };
    events.extend([(0, thread), (1, Kind::Exit { last: false })]);
    if arenas {
        for n in 0..12 {
            let flags = MapFlags(MapFlags::ANON);
            let (start, pages) = (arena(n), 1 << 14);
            events.push((0, Kind::Mmap { start, pages, prot: Prot(0), flags }));
            events.push((0, Kind::Mprotect { start, pages, prot: Prot(3) }));
            events.push((0, write(start)));
        }
    }
    for child in 2..=21 {
        let kind = if child < forks + 2 { CloneKind::Fork } else { CloneKind::Vfork };
        events.push((0, Kind::Clone { child, kind }));
        events.extend([(child, EXEC), (child, Kind::Name(Name::new("ls"))), (child, EXIT)]);
    }
    events.push((0, EXIT));
    made(name, |_| {}, 0, &events)
}

#[test]
fn a_piece_beside_a_carried_out_one_is_not_said_to_hold() {
    let before = forks_with_arenas("arenas-before", 20, true);
    let results = |after: &Temporary| {
        let check = check(&before, after);
        let of = |kind: &str| {
            let all = check["advice"].as_array().expect("a list");
            let piece = all.iter().find(|one| one["kind"] == kind);
            piece.unwrap_or_else(|| panic!("no {kind} in {check:#}"))["result"].clone()
        };
        [of("vfork"), of("arenas")]
    };
    // All forks are vforks now: far fewer tables, although the arenas are as they were.
    assert_eq!(results(&forks_with_arenas("vforks", 0, true)), ["held", "not_carried_out"]);
    // Without arenas, too, the tables that went are explained by the forks.
    assert_eq!(results(&forks_with_arenas("both", 0, false)), ["held", "cannot_be_told"]);
    assert_eq!(results(&forks_with_arenas("neither", 20, true)), ["not_carried_out", "not_carried_out"]);
}

#[test]
fn memory_that_stays_is_no_huge_page() {
    // Four regions, filled and given up ten times, or kept.
    let fills = |name: &str, times: u64| {
        let mut events = vec![(0, EXEC), (0, Kind::Name(Name::new("app"))), (0, map(BASE, 4 * 512))];
        for n in 0..times {
            if n > 0 {
                let advice = libc::MADV_DONTNEED as u16;
                events.push((0, Kind::Madvise { start: BASE, pages: 4 * 512, advice }));
            }
            events.extend((0..4 * 512).map(|page| (0, write(BASE + page))));
        }
        events.push((0, EXIT));
        made(name, |_| {}, 0, &events)
    };
    let check = check(&fills("given-up", 10), &fills("kept", 1));
    let piece = check["advice"].as_array().expect("a list").iter().find(|one| one["kind"] == "huge-pages");
    let piece = piece.unwrap_or_else(|| panic!("{check:#}"));
    // 90 % of the faults went, nearly what huge pages were to save.
    assert_eq!(
        (&piece["result"], &piece["cases_left"]),
        (&"not_carried_out".into(), &1.0.into()),
        "{check:#}"
    );
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
fn shipped_recordings_of_corrected_programs_match_predictions() {
    for (name, kind) in [("dense", "huge-pages"), ("sparse", "sparse-layout"), ("empty", "empty-tables")] {
        let trace = |form: &str| crate_file(&format!("tests/advise/{name}{form}.ptrace"));
        let args = ["advise", "--rounds", "0", &trace(""), "--check", &trace("_mended")];
        let text = ptarmigan(&args).good();
        assert!(text.contains(&format!("\n  1. {kind}: held\n")), "{text}");
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(words.join(" ").contains(" of that: held."), "{text}");
    }
}
