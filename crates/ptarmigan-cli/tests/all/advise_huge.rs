//! Huge pages are not advised where they cannot help, or where another cause takes the time.
use crate::advise::{BASE, EXEC, advice, kinds, made, map, piece, reason, write};
use crate::program::{Temporary, ptarmigan, text};
use ptarmigan_trace::{Call, CloneKind, FaultFlags, Kind, Locking, MapFlags, Name, Note, Prot, Runtime};
use serde_json::{Value, json};

const EXIT: Kind = Kind::Exit { last: true };
const HUGE: u64 = 512;

fn trace(name: &str, kinds: impl IntoIterator<Item = Kind>) -> Temporary {
    let named = [EXEC, Kind::Name(Name::new("app"))];
    let events: Vec<(u32, Kind)> =
        named.into_iter().chain(kinds).chain([EXIT]).map(|kind| (0, kind)).collect();
    made(name, |_| {}, 0, &events)
}

fn protect(start: u64, pages: u64, prot: u8) -> Kind {
    Kind::Mprotect { start, pages, prot: Prot(prot) }
}

fn took(call: Call, nanos: u64) -> Kind {
    Kind::Note(Note::Took { call, nanos, away: 0 })
}

fn used(user: u64, system: u64) -> Kind {
    Kind::Note(Note::Used { user, system, minor: 0, major: 0, waits: 0, preempted: 0 })
}

#[test]
fn a_write_barrier_by_mprotect_gets_no_huge_pages() {
    // A collector write-protects the heap. A handler makes each page writable that is written.
    let mut kinds_of = vec![map(BASE, 4 * HUGE)];
    kinds_of.extend((0..4 * HUGE).map(|page| write(BASE + page)));
    kinds_of.push(protect(BASE, 4 * HUGE, 1));
    let refused = FaultFlags::WRITE | FaultFlags::USER | FaultFlags::PRESENT | FaultFlags::REFUSED;
    for page in (0..4 * HUGE).step_by(64) {
        kinds_of.push(Kind::Fault { page: BASE + page, flags: FaultFlags(refused) });
        kinds_of.push(protect(BASE + page, 1, 3));
    }
    let report = advice(&trace("barrier", kinds_of.clone()).0, &[]);
    assert!(kinds(&report).is_empty(), "{report:#}");
    let why = reason(&report, "huge-pages");
    assert!(why.starts_with("4 regions were full, but mprotect changes parts of 2 MiB"), "{why}");
    // Whole 2 MiB are changed: no huge page is split.
    let whole = kinds_of.into_iter().take(4 * HUGE as usize + 2);
    let report = advice(&trace("whole", whole).0, &[]);
    assert_eq!(piece(&report, "huge-pages")["saved"]["faults"], 4 * 511, "{report:#}");
}

#[test]
fn a_write_that_a_signal_answers_is_not_spared() {
    let mut kinds_of = vec![map(BASE, 2 * HUGE)];
    kinds_of.extend((0..2 * HUGE).map(|page| write(BASE + page)));
    kinds_of.push(protect(BASE, 2 * HUGE, 1));
    // A recording that does not know of the signal.
    let flags = FaultFlags(FaultFlags::WRITE | FaultFlags::USER | FaultFlags::PRESENT);
    kinds_of.extend((0..100).map(|page| Kind::Fault { page: BASE + page, flags }));
    let report = advice(&trace("signal", kinds_of).0, &[]);
    assert_eq!(piece(&report, "huge-pages")["saved"]["faults"], 2 * 511, "{report:#}");
}

#[test]
fn pages_that_came_without_faults_get_no_huge_pages() {
    // Another thread answers each fault: UFFDIO_COPY.
    let found = |start, pages| Kind::Touched { start, pages, flags: FaultFlags(FaultFlags::WRITE) };
    let mut kinds_of = vec![map(BASE, 4 * HUGE)];
    kinds_of.extend((0..4 * HUGE).flat_map(|page| [write(BASE + page), found(BASE + page, 1)]));
    let report = advice(&trace("copied", kinds_of).0, &[]);
    assert!(kinds(&report).is_empty(), "{report:#}");
    let why = reason(&report, "huge-pages");
    assert!(why.starts_with("4 regions were full, but the pages came without faults"), "{why}");
    // A recording that knows of the waits alone.
    let awaited = |waits, preempted| {
        let used = Note::Used { user: 0, system: 0, minor: 0, major: 0, waits, preempted };
        let kinds_of = [map(BASE, 4 * HUGE)].into_iter().chain((0..4 * HUGE).map(|page| write(BASE + page)));
        let mut events: Vec<(u32, Kind)> = [EXEC, Kind::Name(Name::new("app"))]
            .into_iter()
            .chain(kinds_of.chain([Kind::Note(used)]))
            .map(|kind| (0, kind))
            .collect();
        let handler = Kind::Clone { child: 1, kind: CloneKind::Share };
        events.extend([(0, handler), (1, Kind::Exit { last: false }), (0, EXIT)]);
        advice(&made(&format!("awaited{waits}"), |_| {}, 0, &events).0, &[])
    };
    for (waits, preempted) in [(4 * 512, 0), (3 * 480, 512)] {
        let report = awaited(waits, preempted);
        assert_eq!(kinds(&report), ["userfault"], "{report:#}");
        // One fault for each 16 pages.
        assert_eq!(piece(&report, "userfault")["saved"]["faults"], 4 * 512 / 16 * 15, "{report:#}");
        let why = reason(&report, "huge-pages");
        assert!(why.starts_with("4 regions were full, but the program waited about once for each"), "{why}");
    }
    assert_eq!(kinds(&awaited(512, 1536)), ["huge-pages"], "a busy machine is no other thread");
    // Populated memory has no faults to save.
    let flags = MapFlags(MapFlags::ANON | MapFlags::POPULATE);
    let populated = Kind::Mmap { start: BASE, pages: 4 * HUGE, prot: Prot(3), flags };
    let report = advice(&trace("populated", [populated]).0, &[]);
    assert_eq!(reason(&report, "huge-pages"), "no faults fill aligned 2 MiB of private memory");
}

/// A heap that grows and is filled in steps of 33 pages.
fn heap(name: &str, runtimes: &[Runtime], trimmed: bool) -> Temporary {
    let mut kinds_of: Vec<Kind> = runtimes.iter().map(|one| Kind::Note(Note::Runtime(*one))).collect();
    // It begins in the middle of 2 MiB.
    let start = BASE + 100;
    kinds_of.push(Kind::Brk { end: start });
    let grow = |from: u64, to: u64| {
        let steps = (from..to).step_by(33).map(move |step| (step, (step + 33).min(to)));
        steps.flat_map(move |(first, last)| {
            [Kind::Brk { end: start + last }]
                .into_iter()
                .chain((first..last).map(move |page| write(start + page)))
        })
    };
    kinds_of.extend(grow(0, 4 * HUGE));
    if trimmed {
        kinds_of.extend((1..=8).map(|step| Kind::Brk { end: start + 4 * HUGE - 33 * step }));
        kinds_of.extend(grow(4 * HUGE - 33 * 8, 4 * HUGE));
    }
    trace(name, kinds_of)
}

#[test]
fn a_heap_of_glibc_is_judged_as_if_grown_in_whole_huge_pages() {
    let report = advice(&heap("brk", &[Runtime::Glibc], false).0, &[]);
    let found = piece(&report, "huge-pages");
    // The first 2 MiB begin before the heap, the last ones are touched by a fifth.
    assert_eq!(found["saved"]["faults"], 3 * 511, "{found:#}");
    assert_eq!(found["places"][0]["mapping"], "heap");
    let how = found["how"].as_str().expect("a text");
    assert!(how.contains("app: glibc's malloc: GLIBC_TUNABLES=glibc.malloc.hugetlb=1"), "{how}");
    let report = advice(&heap("unknown", &[], false).0, &[]);
    let how = piece(&report, "huge-pages")["how"].as_str().expect("a text");
    assert!(how.contains("if the heap is glibc's: GLIBC_TUNABLES"), "{how}");
    let report = advice(&heap("musl", &[Runtime::Musl], false).0, &[]);
    assert_eq!(reason(&report, "huge-pages"), "no faults fill aligned 2 MiB of private memory");
}

#[test]
fn a_heap_that_is_trimmed_keeps_its_huge_pages() {
    let report = advice(&heap("trimmed", &[Runtime::Glibc], true).0, &[]);
    let saved = piece(&report, "huge-pages")["saved"]["faults"].as_u64().expect("a count");
    // Trimmed to the middle of the third 2 MiB and filled again.
    let again = 3 * HUGE + 412 - (4 * HUGE - 33 * 8);
    assert_eq!(saved, 3 * 511 + again, "{report:#}");
}

#[test]
fn advice_about_a_small_cause_is_not_given_beside_a_large_one() {
    // Pages locked one by one: 98 % of the time.
    let locks = |nanos: u64| {
        let mut kinds_of = vec![map(BASE, 8 * HUGE)];
        kinds_of.extend((0..8 * HUGE).map(|page| write(BASE + page)));
        for page in 0..400 {
            kinds_of.push(Kind::Lock { how: Locking(1), start: BASE + page, pages: 1 });
            kinds_of.push(took(Call::Lock, nanos));
        }
        kinds_of.push(used(400_000, 20_000 + 400 * nanos / 1000));
        trace(&format!("locks{nanos}"), kinds_of)
    };
    let file = locks(2_500_000);
    let report = advice(&file.0, &[]);
    assert!(kinds(&report).is_empty(), "{report:#}");
    let why = reason(&report, "huge-pages");
    assert!(why.contains("about 20 ms, while 400 mlock take 1 s and no advice is about them"), "{why}");
    let text = crate::program::ptarmigan(&["advise", "--rounds", "0", file.path()]).good();
    assert!(
        text.contains("\nNo advice was found.\n\nThe largest causes:\n  400 mlock of app, 1 s"),
        "{text}"
    );
    // They take less than the faults.
    assert_eq!(kinds(&advice(&locks(10_000).0, &[])), ["huge-pages"]);
}

#[test]
fn protections_of_a_whole_region_for_one_block_are_told() {
    // A compiler that writes a block at a time, and its whole region changes twice.
    let flips = |pages: u64| {
        let mut kinds_of = vec![map(BASE, 8 * HUGE)];
        kinds_of.extend((0..8 * HUGE).map(|page| write(BASE + page)));
        for flip in 0..400 {
            kinds_of.push(protect(BASE, pages, if flip % 2 == 0 { 5 } else { 3 }));
            kinds_of.push(took(Call::Mprotect, 2_500_000));
        }
        kinds_of.push(used(400_000, 1_020_000));
        advice(&trace(&format!("flips{pages}"), kinds_of).0, &[])
    };
    let found = flips(8 * HUGE);
    assert_eq!(kinds(&found)[0], "protect", "{found:#}");
    let one = piece(&found, "protect");
    assert_eq!(one["title"], "change the protection of fewer pages: 400 mprotect, by app");
    let figure = one["figure"].as_str().expect("a text");
    assert!(figure.starts_with("Each call changes and flushes all present pages of its range, 4,096 on"));
    assert!(figure.contains(" They took 1 s, "), "{figure}");
    let few = flips(2);
    assert_eq!(piece(&few, "protect")["title"], "change protections less often: 400 mprotect, by app");
}

#[test]
fn a_few_pages_are_advice_if_their_calls_take_much_of_the_time() {
    let changes = |name: &str, prot: u8, user: u64| {
        let mut kinds_of = vec![map(BASE, 64), write(BASE)];
        for change in 0..400 {
            kinds_of.push(protect(BASE, 2, if change % 2 == 0 { prot } else { 3 }));
            kinds_of.push(took(Call::Mprotect, 100_000));
        }
        kinds_of.push(used(user, 60_000));
        advice(&trace(name, kinds_of).0, &[])
    };
    let how = |report: &Value| piece(report, "protect")["how"].as_str().expect("a text").to_owned();
    let code = how(&changes("code", 5, 100_000));
    assert!(code.starts_with("a second mapping that stays writable"), "{code}");
    let barrier = how(&changes("barrier", 1, 100_000));
    assert!(barrier.contains("UFFDIO_WRITEPROTECT"), "{barrier}");
    assert!(!kinds(&changes("busy", 5, 900_000)).contains(&"protect"), "a small part of the time");
}

/// Returns a cost model with prices of pages: a first write to a huge page takes as long as `huge`
/// of those to small ones.
pub fn model(huge: f64, changed: impl FnOnce(&mut Value)) -> Temporary {
    let unit =
        |fresh: f64| json!({ "fresh": fresh, "forked": 1.0, "dropped": 1.0, "freed": 1.0, "protected": 1.0 });
    let round = |fresh: f64| {
        json!({ "small": unit(fresh), "split": unit(fresh), "huge": unit(fresh * huge), "copied": 1.0,
                "reused": 1.0, "splits": 1.0, "cuts": 1.0, "call": 1.0, "fork": 1.0, "exit": 1.0 })
    };
    let mut file = json!({
        "schema": 1, "name": "stored", "rule": "always-full",
        "page_prices": {
            "unix_time": 1_764_590_000, "load": 0.25, "new": { "small": 500.0, "huge": huge * 500.0 },
            "rounds": [round(500.0), round(510.0), round(490.0), round(505.0), round(495.0)],
        },
    });
    changed(&mut file);
    let model = Temporary::new("json");
    std::fs::write(&model.0, file.to_string()).expect("a file");
    model
}

#[test]
fn stored_prices_give_the_same_answer_each_time() {
    let mut filled = vec![map(BASE, 4 * HUGE)];
    filled.extend((0..4 * HUGE).map(|page| write(BASE + page)));
    let trace = trace("filled", filled);
    let stored = |huge: f64, rounds: &str| {
        let model = model(huge, |_| ());
        advice(&trace.0, &["--rounds", rounds, "--model", text(&model.0)])
    };
    let figure = |rounds: &str| {
        let report = stored(100.0, rounds);
        let found = piece(&report, "huge-pages");
        assert_eq!(found["linux"]["prices"]["stored"]["load"], 0.25, "{report:#}");
        found["figure"].as_str().expect("a text").to_owned()
    };
    let once = figure("0");
    assert!(once.contains("by the stored prices of pages (from 810 µs less to 843 µs less)"), "{once}");
    let priced = |figure: String| figure.split_once(" It takes").map(|(_, prices)| prices.to_owned());
    assert_eq!(priced(figure("3")), priced(once));
    let worse = stored(1000.0, "0");
    assert!(reason(&worse, "huge-pages").contains("by the stored prices"), "{worse:#}");
}

#[test]
fn a_model_without_usable_prices_of_pages_is_refused() {
    let trace = trace("small", [map(BASE, 1), write(BASE)]);
    let refused = |changed: fn(&mut Value), why: &str| {
        let model = model(100.0, changed);
        let out = ptarmigan(&["advise", "--model", text(&model.0), text(&trace.0)]);
        assert!(out.status == Some(1) && out.err.contains(why), "{}", out.err);
    };
    refused(|file| drop(file["page_prices"].take()), "it has no prices of pages");
    refused(|file| drop(file["page_prices"]["rounds"][0].take()), "cost model ");
    refused(|file| file["page_prices"]["loud"] = json!(1), "unknown field `loud`");
    refused(|file| file["page_prices"]["rounds"] = json!([]), "length");
}
