//! Advice on memory that comes back: what the kept program saves, and what stays a fault.
use crate::advise::{BASE, EXEC, advice, figure, kinds, made, made_with, map, piece, reason, write};
use ptarmigan_trace::{Call, CloneKind, FaultFlags, Kind, MapFlags, Name, Note, Object, Prot, Runtime};
use serde_json::Value;

type Events = Vec<(u32, Kind)>;

const EXIT: Kind = Kind::Exit { last: true };
const PAGES: u64 = 100;

fn unmap(start: u64, pages: u64) -> Kind {
    Kind::Munmap { start, pages }
}

fn read(page: u64) -> Kind {
    Kind::Fault { page, flags: FaultFlags(FaultFlags::USER) }
}

fn touches(start: u64, pages: u64) -> impl Iterator<Item = (u32, Kind)> {
    (start..start + pages).map(|page| (0, write(page)))
}

/// Begins a program.
fn begin(name: &str, runtime: Option<Runtime>) -> Events {
    let mut events = vec![(0, EXEC), (0, Kind::Name(Name::new(name)))];
    events.extend(runtime.map(|runtime| (0, Kind::Note(Note::Runtime(runtime)))));
    events
}

/// Maps, fills and unmaps memory ten times, each time somewhere else.
fn comes_back(mut events: Events) -> Events {
    for round in 0..10 {
        let start = BASE + round * 3 * PAGES;
        events.push((0, map(start, PAGES)));
        events.extend(touches(start, PAGES));
        events.push((0, unmap(start, PAGES)));
    }
    events
}

fn report(name: &str, mut events: Events) -> Value {
    events.push((0, EXIT));
    advice(&made(name, |_| {}, 0, &events).0, &["--for", "program"])
}

fn saved(report: &Value) -> i64 {
    piece(report, "churn")["saved"]["faults"].as_i64().expect("a number")
}

#[test]
fn memory_that_comes_back_elsewhere_is_kept() {
    let found = report("comes", comes_back(begin("server", Some(Runtime::Glibc))));
    assert_eq!(kinds(&found), ["churn"], "{found:#}");
    assert_eq!(saved(&found), 900, "{found:#}");
    let churn = piece(&found, "churn");
    assert!(figure(churn).starts_with("900 of 1,000 faults are on pages "), "{churn:#}");
    assert!(figure(churn).contains("9 mmap, 10 munmap"), "{churn:#}");
    assert!(figure(churn).contains("at most 400 KiB instead of 400 KiB"), "{churn:#}");
    let how = churn["how"].as_str().expect("a text");
    assert!(how.contains("glibc.malloc.mmap_threshold=33554432:"), "{how}");
    assert_eq!(churn["expect"][0]["with"], 100.0, "{churn:#}");
}

#[test]
fn switches_to_keep_memory_are_those_of_its_owner() {
    let how = |runtime| {
        let found = report("owner", comes_back(begin("server", runtime)));
        piece(&found, "churn")["how"].as_str().expect("a text").to_owned()
    };
    assert!(how(Some(Runtime::V8)).contains("--max-semi-space-size"), "it starts no workers");
    assert!(how(Some(Runtime::Jemalloc)).contains("dirty_decay_ms"));
    assert!(how(Some(Runtime::Go)).contains("GOMEMLIMIT"));
    for owner in [Some(Runtime::Jemalloc), Some(Runtime::Go), Some(Runtime::Musl), None] {
        assert!(!how(owner).contains("GLIBC"), "{owner:?}");
    }
    // Reserves without permissions are the program's, and stacks have a cache of their own.
    let slots = |flags: u16| {
        let mut events = begin("server", Some(Runtime::Glibc));
        events.push((0, Kind::Clone { child: 1, kind: CloneKind::Share }));
        events.push((1, Kind::Exit { last: false }));
        for _ in 0..10 {
            let flags = MapFlags(MapFlags::ANON | flags);
            events.push((0, Kind::Mmap { start: BASE, pages: 1024, prot: Prot(0), flags }));
            events.push((0, Kind::Mprotect { start: BASE, pages: PAGES, prot: Prot(3) }));
            events.extend(touches(BASE, PAGES));
            events.push((0, unmap(BASE, 1024)));
        }
        let found = report("slots", events);
        assert_eq!(saved(&found), 900, "{found:#}");
        piece(&found, "churn")["how"].as_str().expect("a text").to_owned()
    };
    assert!(slots(0).starts_with("keep mappings in a pool"));
    assert!(slots(MapFlags::NO_HUGE).contains("glibc.pthread.stack_cache_size=67108864 "));
}

#[test]
fn what_was_only_read_or_never_came_back_is_no_saving() {
    let mut events = begin("reader", None);
    for _ in 0..5 {
        events.push((0, map(BASE, PAGES)));
        events.extend((BASE..BASE + PAGES).map(|page| (0, read(page))));
        events.push((0, unmap(BASE, PAGES)));
    }
    // The pages of zeroes are there, and a write copies each.
    events.push((0, map(BASE, PAGES)));
    events.extend(touches(BASE, PAGES));
    let found = report("reader", events);
    assert_eq!(saved(&found), 400, "four times reads, no write: {found:#}");
    let mut events = begin("once", None);
    for round in 0..8 {
        // All that was kept before is shorter.
        let (start, pages) = (BASE + round * 2000, 10 << round);
        events.push((0, map(start, pages)));
        events.extend(touches(start, pages));
        events.push((0, unmap(start, pages)));
    }
    let found = report("grows", events);
    assert!(reason(&found, "churn").starts_with("no program faults memory in again"), "{found:#}");
}

#[test]
fn a_second_fault_in_one_life_stays() {
    let mut events = begin("twice", None);
    for _ in 0..10 {
        events.push((0, map(BASE, PAGES)));
        events.extend((BASE..BASE + PAGES).map(|page| (0, read(page))));
        events.extend(touches(BASE, PAGES));
        // Others on the same page, of copies or permissions.
        events.extend(touches(BASE, PAGES));
        events.push((0, unmap(BASE, PAGES)));
    }
    let found = report("twice", events);
    assert_eq!(saved(&found), 9 * 200, "{found:#}");
}

#[test]
fn calls_that_keep_the_mapping_and_heaps_count_too() {
    let mut events = begin("decays", None);
    events.push((0, map(BASE, PAGES)));
    for _ in 0..10 {
        events.extend(touches(BASE, PAGES));
        events.push((0, Kind::Madvise { start: BASE, pages: PAGES, advice: 4 }));
    }
    assert_eq!(saved(&report("decays", events)), 900);
    let mut events = begin("heap", Some(Runtime::Glibc));
    events.push((0, Kind::Brk { end: BASE }));
    for _ in 0..10 {
        events.push((0, Kind::Brk { end: BASE + PAGES }));
        events.extend(touches(BASE, PAGES));
        events.push((0, Kind::Brk { end: BASE + 1 }));
    }
    let found = report("heap", events);
    assert_eq!(saved(&found), 9 * 99, "a page stays: {found:#}");
    let how = piece(&found, "churn")["how"].as_str().expect("a text");
    assert!(how.starts_with("glibc's malloc: GLIBC_TUNABLES="), "{how}");
    // A fixed mapping over the memory empties it.
    let mut events = begin("resets", None);
    events.push((0, map(BASE, PAGES)));
    for _ in 0..10 {
        events.extend(touches(BASE, PAGES));
        let flags = MapFlags(MapFlags::ANON | MapFlags::FIXED);
        events.push((0, Kind::Mmap { start: BASE, pages: PAGES, prot: Prot(3), flags }));
    }
    assert_eq!(saved(&report("resets", events)), 900);
}

#[test]
fn a_fork_takes_kept_pages_away_from_both() {
    let mut events = begin("forks", None);
    let life = |task: u32| {
        let mut life = vec![(task, map(BASE, PAGES))];
        life.extend(touches(BASE, PAGES).map(|(_, kind)| (task, kind)));
        life.push((task, unmap(BASE, PAGES)));
        life
    };
    for _ in 0..5 {
        events.extend(life(0));
    }
    events.push((0, Kind::Clone { child: 1, kind: CloneKind::Fork }));
    events.extend([life(1), life(0), vec![(1, EXIT)]].concat());
    assert_eq!(saved(&report("forks", events)), 400, "neither of the last two");
}

#[test]
fn other_mappings_where_memory_was_freed_lie_elsewhere() {
    let mut events = begin("moves", None);
    let file = Kind::Mmap { start: BASE, pages: PAGES, prot: Prot(1), flags: MapFlags(0) };
    for _ in 0..5 {
        events.push((0, map(BASE, PAGES)));
        events.extend(touches(BASE, PAGES));
        events.push((0, unmap(BASE, PAGES)));
        events.push((0, file));
        events.extend((BASE..BASE + PAGES).map(|page| (0, read(page))));
        events.push((0, unmap(BASE, PAGES)));
    }
    let found = report("moves", events);
    assert_eq!(saved(&found), 400, "faults on the file stay: {found:#}");
    assert_eq!(piece(&found, "churn")["with"]["faults"], 600);
}

#[test]
fn memory_that_moves_takes_its_pages_along() {
    let mut events = begin("reallocates", None);
    for _ in 0..10 {
        events.push((0, map(BASE, PAGES)));
        events.extend(touches(BASE, PAGES));
        let to = BASE + 5000;
        events
            .push((0, Kind::Mremap { from: BASE, old_pages: PAGES, keep: false, to, new_pages: 2 * PAGES }));
        events.extend(touches(to + PAGES, PAGES));
        events.push((0, unmap(to, 2 * PAGES)));
    }
    let found = report("reallocates", events);
    // The 200 pages are kept. The next 100 lie in them and grow: into the rest, which the kernel
    // cannot give, so they move and fault.
    let saved = saved(&found);
    assert!((900..=1800).contains(&saved), "{saved}: {found:#}");
}

#[test]
fn many_calls_are_told_where_no_page_comes_back() {
    let mut events = begin("frees", Some(Runtime::Glibc));
    events.push((0, Kind::Brk { end: BASE }));
    events.push((0, Kind::Brk { end: BASE + 1000 }));
    events.extend(touches(BASE, 1000));
    for n in 1..=1000 {
        events.push((0, Kind::Brk { end: BASE + 1000 - n }));
        events.push((0, Kind::Note(Note::Took { call: Call::Brk, nanos: 20_000, away: 0 })));
    }
    let found = report("frees", events);
    let churn = piece(&found, "churn");
    let title = churn["title"].as_str().expect("a text");
    assert_eq!(title, "give memory back less often: 1,000 brk, by frees", "{churn:#}");
    assert!(figure(churn).contains("which took 20 ms"), "{churn:#}");
}

#[test]
fn programs_that_start_others_are_not_told_to_keep() {
    let found = report("wrapped", comes_back(begin("bash", None)));
    assert!(reason(&found, "churn").contains("900 faults"), "{found:#}");
}

#[test]
fn shared_memory_that_is_mapped_again_costs_its_calls() {
    let aliases = |lengths: u64| {
        let mut events = begin("jit", None);
        for round in 0..1000 {
            let (start, pages) = (BASE + round * 8, 2 + round % lengths);
            let flags = MapFlags(MapFlags::SHARED);
            events.push((0, Kind::Mmap { start, pages, prot: Prot(3), flags }));
            events.push((0, Kind::Note(Note::Took { call: Call::Mmap, nanos: 4_000, away: 0 })));
            events.push((0, write(start)));
            events.push((0, unmap(start, pages)));
            events.push((0, Kind::Note(Note::Took { call: Call::Munmap, nanos: 6_000, away: 0 })));
        }
        report("jit", events)
    };
    let found = aliases(1);
    let churn = piece(&found, "churn");
    assert_eq!(churn["title"], "keep mappings of files or shared memory: 999 times, by jit", "{churn:#}");
    assert!(figure(churn).contains("which took 10 ms"), "{churn:#}");
    assert_eq!(churn["saved"]["faults"], 999, "as if it is the same part: {churn:#}");
    assert!(figure(churn).contains("does not say whether it is the same part"), "{churn:#}");
    // Each length comes once.
    assert!(kinds(&aliases(1000)).is_empty());
}

#[test]
fn memory_of_many_sizes_is_kept_in_pieces() {
    let mut events = begin("sizes", None);
    for at in 0..10 {
        events.push((0, map(BASE + at * 1000, PAGES)));
        events.extend(touches(BASE + at * 1000, PAGES));
    }
    events.extend((0..10).map(|at| (0, unmap(BASE + at * 1000, PAGES))));
    let long = BASE + 100_000;
    events.push((0, map(long, 6 * PAGES)));
    events.extend(touches(long, 6 * PAGES));
    let found = report("sizes", events);
    assert_eq!(saved(&found), 600, "{found:#}");
    assert!(figure(piece(&found, "churn")).contains("at most 3.9 MiB instead of 3.9 MiB"), "{found:#}");
}

#[test]
fn memory_that_is_unmapped_in_parts_is_not_of_malloc() {
    let trimmed = |name: &str| {
        let mut events = begin(name, Some(Runtime::Glibc));
        for round in 0..10 {
            let start = BASE + round * 5000;
            events.push((0, map(start, 3 * PAGES)));
            events.push((0, unmap(start, PAGES)));
            events.push((0, unmap(start + 2 * PAGES, PAGES)));
            events.extend(touches(start + PAGES, PAGES));
            events.push((0, unmap(start + PAGES, PAGES)));
        }
        let found = report(name, events);
        assert_eq!(saved(&found), 900, "a mapping has its length when it is used: {found:#}");
        piece(&found, "churn")["how"].as_str().expect("a text").to_owned()
    };
    assert!(trimmed("aligned").starts_with("keep mappings in a pool"));
    assert!(trimmed("mono").starts_with("Mono maps objects"));
}

#[test]
fn memory_that_is_given_back_by_two_mappings_is_kept() {
    let mut events = begin("java", Some(Runtime::Jvm));
    let over =
        |prot| Kind::Mmap { start: BASE, pages: PAGES, prot: Prot(prot), flags: MapFlags(MapFlags::ANON) };
    for _ in 0..5 {
        events.push((0, over(3)));
        events.extend(touches(BASE, PAGES));
        events.push((0, over(0)));
    }
    let found = report("twice-mapped", events);
    assert_eq!(saved(&found), 400, "{found:#}");
    assert!(piece(&found, "churn")["how"].as_str().expect("a text").contains("-Xms"), "{found:#}");
}

#[test]
fn files_that_are_mapped_again_are_counted_and_named() {
    let file = made_with(
        "reader",
        |_| {},
        0,
        |writer| {
            let names = ["data.mdb", "lock.mdb", "once.mdb"].map(|name| writer.text(name).expect("a text"));
            let mut events = begin("reader", None);
            for round in 0..100 {
                for (name, file) in names.iter().zip(0..if round == 0 { 3 } else { 2 }) {
                    let (start, pages) = (BASE + (round * 4 + file) * 64, 4 + file);
                    let (flags, name) = (MapFlags(MapFlags::SHARED), Some(*name));
                    let took = |call| (0, Kind::Note(Note::Took { call, nanos: 50_000, away: 0 }));
                    let mapped = Note::Mapped { start, pages, object: Object::File, name };
                    events.push((0, Kind::Mmap { start, pages, prot: Prot(1), flags }));
                    events.extend([took(Call::Mmap), (0, Kind::Note(mapped))]);
                    events.extend((0..4).map(|page| (0, read(start + page))));
                    events.extend([(0, unmap(start, pages)), took(Call::Munmap)]);
                }
            }
            events.push((0, EXIT));
            events
        },
    );
    let found = advice(&file.0, &[]);
    let churn = piece(&found, "churn");
    assert_eq!(churn["title"], "keep mappings of 2 files, such as data.mdb: 198 times, by reader");
    assert_eq!(churn["saved"]["faults"], 198 * 4, "{churn:#}");
}

/// A program that fills 100 pages of something twenty times, and gives them back by `madvise`.
fn emptied(name: &str, flags: u16, threads: bool) -> String {
    let mut events = begin(name, Some(Runtime::Glibc));
    if threads {
        events.push((0, Kind::Clone { child: 1, kind: CloneKind::Share }));
        events.push((1, EXIT));
    }
    let flags = MapFlags(MapFlags::ANON | flags);
    events.push((0, Kind::Mmap { start: BASE, pages: PAGES, prot: Prot(3), flags }));
    for _ in 0..20 {
        events.extend(touches(BASE, PAGES));
        events.push((0, Kind::Madvise { start: BASE, pages: PAGES, advice: libc::MADV_DONTNEED as u16 }));
    }
    let found = report(name, events);
    piece(&found, "churn")["how"].as_str().expect("a text").to_owned()
}

#[test]
fn memory_that_malloc_does_not_empty_gets_none_of_its_switches() {
    let own = emptied("slots", 0, false);
    assert!(own.starts_with("the program gives it back itself"), "{own}");
    assert_eq!(emptied("stacks", MapFlags::NO_HUGE, true), "stacks of threads: a pool of threads.");
    let arenas = emptied("threads", 0, true);
    assert!(arenas.starts_with("if glibc's malloc maps it: GLIBC_TUNABLES"), "an arena's end: {arenas}");
}

#[test]
fn memory_that_mremap_shrinks_and_grows_is_kept() {
    let mut events = begin("vector", Some(Runtime::Glibc));
    events.push((0, map(BASE, 4 * PAGES)));
    events.extend(touches(BASE, 4 * PAGES));
    let to = |old_pages, new_pages| Kind::Mremap { from: BASE, old_pages, to: BASE, new_pages, keep: false };
    for _ in 0..10 {
        events.push((0, to(4 * PAGES, PAGES)));
        events.push((0, to(PAGES, 4 * PAGES)));
        events.extend(touches(BASE + PAGES, 3 * PAGES));
    }
    events.push((0, unmap(BASE, 4 * PAGES)));
    let found = report("vector", events);
    assert_eq!(saved(&found), 10 * 3 * PAGES as i64, "{found:#}");
    let churn = piece(&found, "churn");
    assert!(figure(churn).contains("20 mremap"), "{churn:#}");
    let how = churn["how"].as_str().expect("a text");
    assert!(how.contains("glibc.malloc.mmap_threshold"), "{how}");
}
