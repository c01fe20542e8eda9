//! `ptarmigan advise` on programs made for it, each also in a corrected form: its predictions are
//! compared with recordings of both. `../README.md` describes each program.
use crate::program::{Ran, Temporary, crate_file, fed, program, ptarmigan, reader_goes_away, text};
use ptarmigan_term::Time;
use ptarmigan_trace::{
    Arch, CloneKind, Event, FaultFlags, Header, Kind, MapFlags, Method, Note, Prot, Runtime, Sampled, Unseen,
    Writer,
};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A predicted saving may be this part of the recorded one off.
const WITHIN: f64 = 0.2;

fn folder() -> PathBuf {
    crate_file("tests/advise").into()
}

fn shipped(name: &str) -> PathBuf {
    folder().join(name).with_extension("ptrace")
}

/// Returns the document about one trace: advice by counts alone, whatever else the machine does
/// meanwhile, or by `more`.
pub fn advice(trace: &Path, more: &[&str]) -> Value {
    let trace = text(trace);
    let rounds: &[&str] = if more.contains(&"--rounds") { &[] } else { &["--rounds", "0"] };
    let document = ptarmigan(&[&["advise", "--json", trace], rounds, more].concat()).json();
    assert_eq!(document["schema"], 1);
    document["traces"][0].clone()
}

/// The kinds of advice to the program, the most valuable first.
pub fn kinds(report: &Value) -> Vec<&str> {
    let advice = report["advice"].as_array().expect("a list");
    let program = advice.iter().filter(|one| one["to"] == "program");
    program.map(|one| one["kind"].as_str().expect("a text")).collect()
}

pub fn piece<'v>(report: &'v Value, kind: &str) -> &'v Value {
    let advice = report["advice"].as_array().expect("a list");
    advice.iter().find(|one| one["kind"] == kind).unwrap_or_else(|| panic!("no {kind} in {report:#}"))
}

pub fn reason<'v>(report: &'v Value, kind: &str) -> &'v str {
    let rejected = report["rejected"].as_array().expect("a list");
    let one = rejected.iter().find(|one| one["kind"] == kind);
    one.and_then(|one| one["reason"].as_str()).unwrap_or_else(|| panic!("no {kind} in {report:#}"))
}

/// Linux's own count of tables when the program ended.
fn vm_pte(trace: &Path) -> f64 {
    let text = ptarmigan(&["inspect", "--events", "--kind", "truth", text(trace)]).out;
    let last = text.lines().last().unwrap_or_else(|| panic!("no sample: {text}"));
    let count = last.split_whitespace().find_map(|word| word.strip_prefix("tables=")?.parse().ok());
    count.unwrap_or_else(|| panic!("no count in {last}"))
}

fn near(predicted: f64, recorded: f64, what: &str) {
    let off = (predicted - recorded).abs() / recorded.abs().max(1.0);
    eprintln!("{what}: predicted {predicted}, recorded {recorded}");
    assert!(off <= WITHIN, "{what}: {predicted} predicted, {recorded} recorded");
}

/// Compares the prediction from the one recording with the other one.
fn compare(kind: &str, figure: &str, recorded: &Path, mended: &Path) {
    let before = advice(recorded, &["--for", "program"]);
    let after = advice(mended, &["--for", "program"]);
    assert_eq!(kinds(&before), [kind], "{before:#}");
    assert!(!kinds(&after).contains(&kind), "the mended program needs no advice: {after:#}");
    let saved = piece(&before, kind)["saved"][figure].as_f64().expect("a number");
    let whole = |report: &Value| report["whole"][figure].as_f64().expect("a number");
    near(saved, whole(&before) - whole(&after), &format!("{kind}, {figure}"));
    if figure == "tables_at_end" {
        near(saved, vm_pte(recorded) - vm_pte(mended), &format!("{kind}, VmPTE"));
    }
}

#[test]
fn a_program_that_fills_its_memory_is_told_of_huge_pages() {
    compare("huge-pages", "faults", &shipped("dense"), &shipped("dense_mended"));
}

#[test]
fn spread_pages_get_packing_advice_and_no_huge_pages() {
    compare("sparse-layout", "tables_at_end", &shipped("sparse"), &shipped("sparse_mended"));
    let report = advice(&shipped("sparse"), &["--for", "program"]);
    assert!(reason(&report, "huge-pages").contains("none is full"), "{report:#}");
}

#[test]
fn empty_tables_get_the_advice_to_free_whole_regions() {
    compare("empty-tables", "tables_at_end", &shipped("empty"), &shipped("empty_mended"));
}

/// Compiles a program that the shipped recordings are of. `None` without a compiler.
fn compiled(name: &str) -> Option<Temporary> {
    let program = Temporary::new(name);
    let source = folder().join(name).with_extension("c");
    let cc = Command::new("cc").arg("-O1").arg("-o").arg(&program.0).arg(source).output().ok()?;
    assert!(cc.status.success(), "{}", String::from_utf8_lossy(&cc.stderr));
    Some(program)
}

/// Records a program in both forms, and compares. Says why if that is not possible here.
fn record_and_compare(method: &str, name: &str, kind: &str, figure: &str) -> Result<(), String> {
    let program = compiled(name).ok_or("there is no compiler")?;
    let forms = ["", "mended"].map(|form| {
        let trace = Temporary::new(&format!("{method}-{name}{form}.ptrace"));
        let args = ["record", "--method", method, "-o", trace.path(), "--", program.path(), form];
        let ran = ptarmigan(&args);
        match ran.status {
            Some(0) => Ok(trace),
            Some(77) => Err("the kernel found no huge pages".to_owned()),
            _ => Err(ran.err.trim().to_owned()),
        }
    });
    let [recorded, mended] = forms;
    compare(kind, figure, &recorded?.0, &mended?.0);
    Ok(())
}

#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[ignore = "records programs for some seconds: cargo xtask ci tests-long"]
fn recordings_made_here_confirm_predicted_figures() {
    let cases = [
        ("dense", "huge-pages", "faults"),
        ("sparse", "sparse-layout", "tables_at_end"),
        ("empty", "empty-tables", "tables_at_end"),
    ];
    for method in ["tracefs", "perf"] {
        for (name, kind, figure) in cases {
            if let Err(why) = record_and_compare(method, name, kind, figure) {
                eprintln!("skipped: {name} with {method}: {why}");
            }
        }
    }
}

/// Writes a trace of one CPU with `lost` lost events.
pub fn made(name: &str, change: impl FnOnce(&mut Header), lost: u64, events: &[(u32, Kind)]) -> Temporary {
    made_with(name, change, lost, |_| events.to_vec())
}

/// The same with events that name texts of the trace.
pub fn made_with(
    name: &str,
    change: impl FnOnce(&mut Header),
    lost: u64,
    events: impl FnOnce(&mut Writer<Vec<u8>>) -> Vec<(u32, Kind)>,
) -> Temporary {
    let file = Temporary::new(name);
    let mut header = Header::new(name, 1, Method::Synthetic);
    change(&mut header);
    let mut writer = Writer::new(Vec::new(), &header, 3).expect("a header");
    for (task, kind) in &events(&mut writer) {
        writer.event(&Event { task: *task, cpu: 0, kind: *kind }).expect("an event");
    }
    let (bytes, _) = writer.finish(lost).expect("a trace");
    std::fs::write(&file.0, bytes).expect("a temporary file");
    file
}

pub fn map(start: u64, pages: u64) -> Kind {
    Kind::Mmap { start, pages, prot: Prot(3), flags: MapFlags(MapFlags::ANON) }
}

pub fn write(page: u64) -> Kind {
    Kind::Fault { page, flags: FaultFlags(FaultFlags::WRITE | FaultFlags::USER) }
}

pub const BASE: u64 = 1 << 27;
/// A task starts a program.
pub const EXEC: Kind = Kind::Exec { stack_end: (1 << 35) - 1, arg_pages: 1 };

/// A program that does hardly any work.
fn small() -> Vec<(u32, Kind)> {
    vec![(0, map(BASE, 3)), (0, write(BASE)), (0, write(BASE + 1)), (0, Kind::Exit { last: true })]
}

#[test]
fn children_that_only_start_a_program_are_told_to_share_tables() {
    let mut events = vec![(0, map(BASE, 64 * 512))];
    // Too many pages for a sparse layout, and too few for huge pages.
    let pages = (0..64).flat_map(|region| (0..100).map(move |page| BASE + region * 512 + page));
    events.extend(pages.map(|page| (0, write(page))));
    let present = |page| {
        let flags = FaultFlags::WRITE | FaultFlags::USER | FaultFlags::PRESENT;
        Kind::Fault { page, flags: FaultFlags(flags) }
    };
    for child in 1..=10 {
        events.push((0, Kind::Clone { child, kind: CloneKind::Fork }));
        events.extend([(child, present(BASE)), (0, present(BASE)), (0, present(BASE + 512))]);
        events.push((child, Kind::Exec { stack_end: (1 << 35) - 1, arg_pages: 1 }));
        events.push((child, Kind::Exit { last: true }));
    }
    let exit = Kind::Exit { last: true };
    let file = made("forks", |_| {}, 0, &[events.clone(), vec![(0, exit)]].concat());
    let report = advice(&file.0, &["--for", "program"]);
    assert_eq!(kinds(&report), ["vfork"], "{report:#}");
    let saved = &piece(&report, "vfork")["saved"];
    // Each fork copies 64 leaf tables, one of each level above, and makes a root.
    assert_eq!((saved["tables_made"].as_i64(), saved["faults"].as_i64()), (Some(670), Some(30)));
    // A child that maps something keeps its fork.
    events.push((0, Kind::Clone { child: 11, kind: CloneKind::Fork }));
    events.extend([(11, map(BASE << 1, 1)), (11, exit), (0, exit)]);
    let file = made("forks-more", |_| {}, 0, &events);
    let report = advice(&file.0, &["--for", "program"]);
    let found = piece(&report, "vfork");
    assert_eq!(found["saved"]["tables_made"], 670, "{found:#}");
    assert!(figure(found).starts_with("91 % of all forks "), "10 of 11: {found:#}");
}

#[test]
fn arenas_of_an_allocator_are_told_from_other_mappings() {
    const ARENA: u64 = 16384;
    let thread = [(0, Kind::Clone { child: 1, kind: CloneKind::Share }), (1, Kind::Exit { last: false })];
    let mut events = Vec::new();
    for arena in 0..16 {
        let start = (BASE / ARENA + 2 * arena) * ARENA;
        let flags = MapFlags(MapFlags::ANON | MapFlags::NORESERVE);
        events.push((0, Kind::Mmap { start: start - 100, pages: 2 * ARENA, prot: Prot(0), flags }));
        events.push((0, Kind::Munmap { start: start - 100, pages: 100 }));
        events.push((0, Kind::Munmap { start: start + ARENA, pages: ARENA - 100 }));
        events.push((0, Kind::Mprotect { start, pages: 33, prot: Prot(3) }));
        events.extend((0..33).map(|page| (0, write(start + page))));
    }
    events.push((0, Kind::Exit { last: true }));
    let report = advice(&made("reserves", |_| {}, 0, &events).0, &[]);
    assert!(!kinds(&report).contains(&"arenas"), "without threads there is one arena: {report:#}");
    events.splice(0..0, thread);
    let file = made("arenas", |_| {}, 0, &events);
    let report = advice(&file.0, &["--for", "program"]);
    assert_eq!(kinds(&report), ["arenas"], "{report:#}");
    // 16 leaf tables become two, as 528 pages need.
    let saved = piece(&report, "arenas")["saved"]["tables_at_end"].as_i64().expect("a number");
    assert!((14..=16).contains(&saved), "{saved}");
}

#[test]
fn a_program_without_advice_is_not_said_to_need_none() {
    let file = made("small", |_| {}, 0, &small());
    let out = ptarmigan(&["advise", "--for", "both", file.path()]);
    let text = out.good();
    assert!(text.contains("\nNo advice was found.\n\nThe largest causes:\n  2 faults of small"), "{text}");
    assert!(text.contains("caching does not pay"), "{text}");
}

#[test]
fn traces_that_are_lossy_foreign_or_of_perf_say_so() {
    let notes = |file: &Temporary| advice(&file.0, &["--for", "program"])["notes"].to_string();
    let lossy = made("lossy", |_| {}, 5, &small());
    assert!(notes(&lossy).contains("5 events were lost"), "{}", notes(&lossy));
    let foreign = made("foreign", |header| header.arch = Arch::Aarch64, 0, &small());
    assert!(notes(&foreign).contains("Recorded on aarch64"), "{}", notes(&foreign));
    let perf = |header: &mut Header| {
        header.method = Method::Perf;
        header.unseen = Unseen(Unseen::FAULT_ACCESS | Unseen::KERNEL_FAULTS | Unseen::END);
    };
    let perf = made("perf", perf, 0, &small());
    assert!(notes(&perf).contains("with perf, which does not see faults of the kernel"), "{}", notes(&perf));
    assert!(notes(&perf).contains("ended before the command did"), "{}", notes(&perf));
    assert!(notes(&lossy).contains("was made, not recorded"), "{}", notes(&lossy));
    assert!(notes(&lossy).contains("Linux's own count of tables is not in the trace"), "{}", notes(&lossy));
    let mut events = small();
    events.insert(3, (0, Kind::Truth { tables: 77, at: Sampled::Exit }));
    let unlike = made("unlike", |_| {}, 0, &events);
    assert!(notes(&unlike).contains("as many tables as Linux in 0 of 1 samples only"), "{}", notes(&unlike));
}

/// The figures of a piece of advice, as text.
pub fn figure(found: &Value) -> &str {
    found["figure"].as_str().expect("a text")
}

#[test]
fn huge_pages_save_faults_until_an_unmap_or_fork() {
    let pages = |region: u64, pages: std::ops::Range<u64>| {
        pages.map(move |page| (0, write(BASE + region * 512 + page)))
    };
    let read = |page| Kind::Fault { page, flags: FaultFlags(FaultFlags::USER) };
    let mut events = vec![(0, map(BASE, 6 * 512))];
    // Full: its first fault stays.
    events.extend(pages(0, 0..512));
    // Begun by a read: that stays, and so does the first write.
    events.push((0, read(BASE + 512)));
    events.extend(pages(1, 0..512));
    // Seven eighths are full, and one page fewer is not.
    events.extend(pages(2, 0..448));
    events.extend(pages(3, 0..447));
    // A page goes, and comes again by a fault of its own.
    events.extend(pages(4, 0..512));
    events.push((0, Kind::Madvise { start: BASE + 4 * 512 + 7, pages: 1, advice: 4 }));
    events.extend(pages(4, 7..8));
    // After a fork each page is copied by a fault of its own.
    events.extend(pages(5, 0..512));
    events.push((0, Kind::Clone { child: 1, kind: CloneKind::Fork }));
    let flags = FaultFlags(FaultFlags::WRITE | FaultFlags::USER | FaultFlags::PRESENT);
    events.extend((0..512).map(|page| (0, Kind::Fault { page: BASE + 5 * 512 + page, flags })));
    // Children that stay are another case (`advise_forks`).
    events.extend([(1, EXEC), (1, Kind::Exit { last: true }), (0, Kind::Exit { last: true })]);
    let trace = made("huge", |_| {}, 0, &events);
    let report = advice(&trace.0, &["--for", "program"]);
    let found = piece(&report, "huge-pages");
    assert_eq!(found["saved"]["faults"], 511 + 511 + 447 + 511 + 511, "{found:#}");
    assert!(found["title"].as_str().is_some_and(|title| title.contains("for 5 regions")), "{found:#}");
    assert!(figure(found).contains(" 1 further region was touched and not full."), "{found:#}");
    assert!(figure(found).contains(" Pages that were never touched take 256 KiB more."), "{found:#}");
    let made = |of: &Value| of["tables_made"].as_i64().expect("a count");
    assert_eq!(found["saved"]["tables_made"], 0, "Linux has them in reserve");
    let fewer = made(&found["without"]) - made(&found["variants"][0]);
    assert!(fewer >= 4, "all but the one with a hole: {found:#}");
    assert!(figure(found).contains(&format!("makes {fewer} tables fewer.")), "{found:#}");
    // The library, in the recording as it is: the first write to an empty region maps a large page,
    // whether the region gets full or not. Where a read came first it does not.
    let library = &found["variants"][2];
    assert_eq!(library["name"], "large pages of the library in all areas");
    let large = &library["large"];
    assert_eq!(large["mapped"], 5, "{found:#}");
    // One for the page that goes, one for the first write after the fork. The write to the hole and
    // the copies are faults as they were.
    assert_eq!(large["splits"], 2, "{found:#}");
    assert_eq!(large["faults_spared"], 511 + 447 + 446 + 511 + 511, "{found:#}");
    // Without large pages parent and child have six leaf tables each. With them, the parent has one
    // for the region that was read first and two of splits, the child one and a copy of the first.
    assert_eq!(made(&found["without"]) - made(library), 12 - 5, "{found:#}");
    // Four and four large pages after the fork, one fewer after the second split.
    let peak = library["tables_peak"].as_u64().expect("a count");
    assert_eq!(large["tables_peak_with_reserve"], peak + 7, "{found:#}");
    let said = " map 5 large pages, 2,426 faults find their page mapped, and 2 splits are made.";
    assert!(figure(found).contains(said), "{found:#}");
}

#[test]
fn large_pages_short_of_memory_are_uncounted_or_small() {
    // 24 regions: one is full, of the others one page each is touched.
    let mut events = vec![(0, map(BASE, 24 * 512))];
    events.extend((0..512).map(|page| (0, write(BASE + page))));
    events.extend((1..24).map(|region| (0, write(BASE + region * 512))));
    events.push((0, Kind::Exit { last: true }));
    let trace = made("short", |_| {}, 0, &events);
    let mapped = |memory: &str| {
        let report = advice(&trace.0, &["--for", "program", "--memory", memory]);
        let found = piece(&report, "huge-pages");
        found["variants"][1]["large"]["mapped"].as_u64().unwrap_or_else(|| panic!("{found:#}"))
    };
    assert_eq!(mapped("128M"), 24);
    let few = mapped("32M");
    assert!((1..16).contains(&few), "{few} blocks of 2 MiB in 32 MiB");
}

#[test]
fn a_write_splits_a_forked_huge_page_and_its_last_user_owns_it() {
    let flags = FaultFlags(FaultFlags::WRITE | FaultFlags::USER | FaultFlags::PRESENT);
    let copy = |task, page| (task, Kind::Fault { page: BASE + page, flags });
    let fork = |child| (0, Kind::Clone { child, kind: CloneKind::Fork });
    let exit = |task| (task, Kind::Exit { last: true });
    let exec = |task| (task, EXEC);
    // Many more than are split, so that the replay gets faster for certain.
    let mut events = vec![(0, map(BASE, 20 * 512))];
    events.extend((0..20 * 512).map(|page| (0, write(BASE + page))));
    events.push(fork(1));
    // While the child maps all of them, parent and child write to the first, and the child to the
    // second.
    events.extend([copy(0, 3), copy(0, 4), copy(1, 5), copy(1, 6), copy(1, 512)]);
    events.extend([exec(1), exit(1)]);
    // The third is the parent's alone again: of these faults, one stays.
    events.extend((0..100).map(|page| copy(0, 1024 + page)));
    // A second fork shares it again. The second region is no longer mapped by the first child.
    events.extend([
        fork(2),
        exec(2),
        exit(2),
        copy(0, 1024),
        copy(0, 1025),
        copy(0, 512),
        copy(0, 513),
        exit(0),
    ]);
    let trace = made("splits", |_| {}, 0, &events);
    let report = advice(&trace.0, &[]);
    let found = piece(&report, "huge-pages");
    assert!(figure(found).contains(" splits it: 3 splits, and "), "{found:#}");
    // Once with entries that are copied in batches, once as before Linux 6.9.
    let variants = found["variants"].as_array().expect("a list");
    assert!(
        variants.iter().any(|one| one["name"] == "entries of split pages copied one by one"),
        "{found:#}"
    );
    // 511 of each region, 99 after the first fork, and two after the second.
    assert_eq!(found["saved"]["faults"], 20 * 511 + 99 + 2, "{found:#}");
    // A split fills a table, which the copies of the second fork have, too: no fault is counted for
    // it.
    let faults = |of: &str| found[of]["faults"].as_i64().expect("a count");
    assert_eq!(faults("without") - faults("with"), 20 * 511 + 99 + 2);
}

#[test]
fn corrections_by_pages_found_at_stops_are_a_cause_of_their_own() {
    let mut events = vec![(0, map(BASE, 512)), (0, write(BASE))];
    let touched = |flags| (0, Kind::Touched { start: BASE, pages: 100, flags: FaultFlags(flags) });
    events.extend([touched(FaultFlags::WRITE), touched(FaultFlags::USER), (0, Kind::Exit { last: true })]);
    let report = advice(&made("found", |_| {}, 0, &events).0, &[]);
    let times = |cause: &str| report["whole"]["causes"][cause]["times"].as_u64().expect("a count");
    assert_eq!(["fault", "call", "found"].map(times), [1, 2, 1], "{report:#}");
}

#[test]
fn empty_tables_count_if_whole_and_not_used_again() {
    // 40 regions in one mapping, and one that has less than 2 MiB.
    let mut events = vec![(0, map(BASE, 40 * 512)), (0, map(BASE + 100 * 512, 300))];
    let gone = |start, pages| (0, Kind::Madvise { start, pages, advice: 4 });
    for region in (0..40).chain([100]) {
        let start = BASE + region * 512;
        events.extend((0..64).map(|page| (0, write(start + page))));
        // The last five keep a page.
        let left = u64::from((35..40).contains(&region));
        events.extend([gone(start, 32), gone(start + 32, 32 - left)]);
    }
    // Ten are used again.
    events.extend((0..10).map(|region| (0, write(BASE + region * 512 + 9))));
    events.push((0, Kind::Exit { last: true }));
    let trace = made("empty", |_| {}, 0, &events);
    let report = advice(&trace.0, &["--for", "program"]);
    let found = piece(&report, "empty-tables");
    assert!(found["title"].as_str().is_some_and(|title| title.contains(": 25 tables left")), "{found:#}");
    assert_eq!(found["saved"]["tables_at_end"], 25, "{found:#}");
    assert_eq!((&found["saved"]["tables_made"], &found["saved"]["faults"]), (&0.into(), &0.into()));
}

#[test]
fn with_no_rounds_no_times_are_compared() {
    let trace = made("times", |_| {}, 0, &small());
    let report = advice(&shipped("dense"), &["--for", "both"]);
    for one in report["advice"].as_array().expect("a list") {
        assert_eq!(one["saved"]["work_share"], 0.0, "{one:#}");
        assert_eq!(one["saved"]["cause_shares"], serde_json::json!({}), "{one:#}");
        assert!(one["linux"].is_null(), "prices of pages were measured: {one:#}");
    }
    assert!(kinds(&report).contains(&"huge-pages"), "{report:#}");
    for few in ["1", "2", "101", "-1"] {
        let out = ptarmigan(&["advise", "--rounds", few, trace.path()]);
        assert_eq!(out.status, Some(2), "{few}");
    }
}

#[test]
fn few_tables_are_no_sparse_layout_and_other_mappings_no_arenas() {
    let spread = |name: &str, regions: u64, prot: u8| {
        let flags = MapFlags(MapFlags::ANON);
        let mut events = vec![(0, Kind::Mmap { start: BASE, pages: regions * 512, prot: Prot(prot), flags })];
        if prot == 0 {
            events.push((0, Kind::Mprotect { start: BASE, pages: regions * 512, prot: Prot(3) }));
        }
        events.extend((0..regions).map(|region| (0, write(BASE + region * 512))));
        events.push((0, Kind::Exit { last: true }));
        advice(&made(name, |_| {}, 0, &events).0, &["--for", "program"])
    };
    let why = spread("few", 4, 3);
    assert!(reason(&why, "sparse-layout").starts_with("no program spreads few pages"), "{why:#}");
    // A reservation of 40 MiB is no arena.
    let report = spread("reserved", 20, 0);
    assert_eq!(kinds(&report), ["sparse-layout"], "{report:#}");
    assert_eq!(piece(&report, "sparse-layout")["saved"]["tables_at_end"], 19, "{report:#}");
    assert!(reason(&report, "arenas").starts_with("no allocator has arenas"), "{report:#}");
}

#[test]
fn memory_that_comes_and_goes_is_no_sparse_layout() {
    let mut events = vec![(0, EXEC), (0, map(BASE, 200 * 512))];
    events.extend((0..200 * 100).map(|n| (0, write(BASE + n / 100 * 512 + n % 100))));
    // 300 times the same ten places, of one page each.
    let at = |n: u64| BASE + (1 << 22) + n * 1024;
    for round in 0..300 {
        events.extend((0..10).flat_map(|n| [(0, map(at(n), 600)), (0, write(at(n) + round % 7))]));
        events.extend((0..10).map(|n| (0, Kind::Munmap { start: at(n), pages: 600 })));
    }
    events.push((0, Kind::Exit { last: true }));
    let report = advice(&made("comes-and-goes", |_| {}, 0, &events).0, &[]);
    assert!(!kinds(&report).contains(&"sparse-layout"), "{report:#}");
    let why = reason(&report, "sparse-layout");
    let places = "keep pages together: 10 pages are spread over 10 tables";
    assert!(why.starts_with(places) && why.contains("less than a tenth"), "{why}");
}

#[test]
fn stacks_and_memory_of_allocators_are_laid_out_by_others() {
    let spread = |name: &str, flags: u16, more: &[(u32, Kind)]| {
        let mut events = vec![(0, EXEC)];
        events.extend(more);
        for n in 0..40 {
            let flags = MapFlags(MapFlags::ANON | flags);
            let start = BASE + n * 2048;
            events.push((0, Kind::Mmap { start, pages: 1024, prot: Prot(3), flags }));
            events.push((0, write(start)));
        }
        events.push((0, Kind::Exit { last: true }));
        advice(&made(name, |_| {}, 0, &events).0, &[])
    };
    assert!(kinds(&spread("own", 0, &[])).contains(&"sparse-layout"));
    assert!(!kinds(&spread("stacks", MapFlags::NO_HUGE, &[])).contains(&"sparse-layout"));
    let shadow = map(0x7_fff7, 65_536);
    assert!(!kinds(&spread("sanitized", 0, &[(0, shadow)])).contains(&"sparse-layout"));
    let report = spread("jemalloc", 0, &[(0, Kind::Note(Note::Runtime(Runtime::Jemalloc)))]);
    assert!(reason(&report, "sparse-layout").contains("laid out by jemalloc"), "{report:#}");
}

#[test]
fn advice_is_sorted_by_savings_and_says_what_is_unmeasured() {
    let file = shipped("sparse");
    let report = advice(&file, &["--for", "both", "--arch", "i386-pae", "--model", "power3-2001"]);
    let advice = report["advice"].as_array().expect("a list");
    let values: Vec<f64> = advice.iter().filter_map(|one| one["value"].as_f64()).collect();
    assert!(advice.len() >= 2 && values.len() == advice.len(), "{report:#}");
    assert!(values[0] > values[values.len() - 1] && values.is_sorted_by(|a, b| a >= b), "{values:?}");
    let out = ptarmigan(&["advise", "--for", "both", "--arch", "i386-pae", text(&file)]);
    let text = out.out;
    let begins = |with: &str| text.lines().filter(|line| line.starts_with(with)).count();
    let numbered = begins("1. For the ") + begins("2. For the ") + begins("3. For the ");
    assert!(numbered >= 2, "{text}");
    assert_eq!((begins("   How: "), begins("   Not measured: ")), (numbered, numbered), "{text}");
}

/// The options for a machine of 32 bits.
const PAE: [&str; 4] = ["--for", "kernel", "--arch", "i386-pae"];

#[test]
fn many_low_tables_save_a_32_bit_machine_its_windows() {
    let mut events = vec![(0, map(BASE >> 12, 512))];
    events.extend((0..512).map(|page| (0, write((BASE >> 12) + page))));
    events.push((0, Kind::Exit { last: true }));
    let report = advice(&made("windows", |_| {}, 0, &events).0, &PAE);
    let found = piece(&report, "userpte");
    assert_eq!(found["title"], "on a 32-bit machine: userpte=nohigh");
    let text = figure(found);
    assert!(text.contains("Of 1 leaf tables 0 are in high memory, and with the default 1."), "{text}");
    assert!(text.contains(" windows on them are not opened (100 %, 1."), "{text}");
    let report = advice(&made("no-windows", |_| {}, 0, &small()).0, &PAE);
    let why = reason(&report, "userpte");
    assert!(why.starts_with("userpte=nohigh saves ") && why.ends_with(" windows on tables"), "{why}");
    // No other machine has it.
    let report = advice(&made("no-pae", |_| {}, 0, &small()).0, &["--for", "kernel"]);
    assert!(!report.to_string().contains("userpte"), "{report:#}");
}

#[test]
fn tables_made_repeatedly_get_the_savings_of_caching() {
    let mut events = Vec::new();
    for _ in 0..5000 {
        events.extend([(0, map(BASE, 1)), (0, write(BASE)), (0, Kind::Munmap { start: BASE, pages: 1 })]);
    }
    events.push((0, Kind::Exit { last: true }));
    let trace = made("churn", |_| {}, 0, &events);
    let report = advice(&trace.0, &["--for", "kernel", "--rounds", "3"]);
    // Whether that pays depends on times, which other work on the machine may hide: the verdict is
    // tested beside it (`advise::kernel::lists`).
    let rejected = report["rejected"].as_array().expect("a list");
    if let Some(caching) = rejected.iter().find(|one| one["kind"] == "caching") {
        let why = caching["reason"].as_str().expect("a text");
        assert!(why.contains("of 15,001 pages that the allocator clears, it spares 14,996 (100 %)"), "{why}");
        return;
    }
    let found = piece(&report, "caching");
    let count = |side: &str, what: &str| found[side][what].as_u64().expect("a count");
    // A leaf table and two above for each round, and the root, which stays.
    assert_eq!(count("without", "tables_made"), 15_001, "{found:#}");
    assert_eq!(count("without", "misses"), count("without", "tables_made"), "all come from the allocator");
    assert!(count("with", "misses") < 100, "{found:#}");
    assert_eq!(found["value"], found["saved"]["work_share"]);
    let figure = found["figure"].as_str().expect("a text");
    let spared = 15_001 - count("with", "misses");
    let says = format!(
        "of 15,001 pages that the allocator clears, it spares {},{:03} (",
        spared / 1000,
        spared % 1000
    );
    assert!(figure.contains(&says), "{figure}");
    // Three tables at a time need no more than the smallest magazine.
    assert!(found["title"].as_str().is_some_and(|title| title.contains("magazine=4")), "{found:#}");
}

#[test]
fn tables_made_once_get_the_advice_not_to_cache() {
    let mut events = vec![(0, map(BASE, 400 * 512))];
    events.extend((0..400).map(|region| (0, write(BASE + region * 512))));
    events.push((0, Kind::Exit { last: true }));
    let trace = made("once", |_| {}, 0, &events);
    let report = advice(&trace.0, &["--for", "kernel"]);
    let why = reason(&report, "caching");
    assert!(
        why.starts_with("caching does not pay: of 403 pages that the allocator clears, it spares 0"),
        "{why}"
    );
}

#[test]
fn flushes_are_priced_with_costs_that_are_given() {
    // 40 pages are more than Linux flushes one by one.
    let mut events = Vec::new();
    for _ in 0..50 {
        events.push((0, map(BASE, 40)));
        events.extend((0..40).map(|page| (0, write(BASE + page))));
        events.push((0, Kind::Munmap { start: BASE, pages: 40 }));
    }
    events.push((0, Kind::Exit { last: true }));
    let trace = made("flushes", |_| {}, 0, &events);
    let report = advice(&trace.0, &["--for", "kernel"]);
    assert!(reason(&report, "flush-model").contains("give --model FILE"), "{report:#}");
    let report = advice(&trace.0, &["--for", "kernel", "--model", "power3-2001"]);
    let found = piece(&report, "flush-model");
    let price = |n: usize| found["variants"][n]["flush_ns"].as_f64().expect("a number");
    // Everything is 262,144 entries there, at 8.393 ns each.
    let (linux, planner) = (price(0), price(3));
    assert!(linux >= 50.0 * 262_144.0 * 8.39 && planner < linux / 10.0, "{found:#}");
    let cheapest = (0..4).map(price).fold(f64::INFINITY, f64::min);
    let says = format!(
        "flushes take {} instead of {} ({:.0} % of what flushes cost",
        Time::from_nanos(cheapest),
        Time::from_nanos(linux),
        100.0 * (linux - cheapest) / linux
    );
    assert!(figure(found).contains(&says), "{says}: {found:#}");
    // Without flushes no flush can be saved.
    let trace = made("no-flushes", |_| {}, 0, &small()[..3]);
    let report = advice(&trace.0, &["--for", "kernel", "--model", "power3-2001"]);
    let why = reason(&report, "flush-model");
    assert!(why.starts_with("no other rule is cheaper than Linux's 33 pages by much"), "{why}");
}

#[test]
fn traces_and_standard_input_are_read_and_fit_80_columns() {
    let (dense, empty) = (shipped("dense"), shipped("empty"));
    let bytes = std::fs::read(&empty).expect("it is shipped");
    let text = fed(&mut program(&["advise", "--rounds", "0", text(&dense), "-"]), &bytes).good();
    assert!(text.starts_with("dense: ") && text.contains("\n\nempty: "), "{text}");
    assert!(text.contains("MADV_HUGEPAGE") && text.contains("MADV_DONTNEED"), "{text}");
    let long = text.lines().find(|line| line.chars().count() > 80);
    assert_eq!(long, None);
    assert!(!text.contains('\u{1b}'), "no colours in a pipe");
}

#[test]
fn what_cannot_be_used_is_one_line_and_a_failure() {
    let odd = Temporary::file("odd.ptrace", "no trace");
    let dense = shipped("dense");
    let dense = text(&dense);
    let lossless = shipped("empty");
    let bytes = std::fs::read(lossless).expect("it is shipped");
    let cut = Temporary::file("cut.ptrace", &bytes[..bytes.len() / 2]);
    let cut = cut.path();
    let cases: [(&[&str], &str); 15] = [
        (&["/nowhere/a.ptrace"], "No such file"),
        (&[odd.path()], "not a trace"),
        (&[cut], "truncated"),
        (&["compil"], "did you mean compile?"),
        (&[dense, "--for", "kernel", "--model", "linx-33"], "did you mean linux-33?"),
        (&[dense, "--model", "linux-33"], "it has no prices of pages, which a program needs"),
        (&[dense, "--arch", "i386-pae"], "--arch chooses the machine for a kernel; give --for kernel"),
        (&["-", "-"], "standard input has one trace"),
        (&[dense, "--for", "both", "--model", "linux-33"], "a rule without costs prices nothing"),
        (&[dense, "--memory", "1M"], "memory"),
        (&[dense, "--check", "/nowhere/b.ptrace"], "No such file"),
        (&[dense, "--check", odd.path()], "not a trace"),
        (&[dense, "--check", dense], "this is the recording that the advice is from"),
        (
            &[dense, dense, "--check", cut],
            "--check compares one recording with a second one, and 2 are given",
        ),
        (&[dense, "--check", cut, "--for", "kernel"], "--check compares recordings of a program"),
    ];
    for (args, why) in cases {
        let Ran { status, out: text, err: error } = ptarmigan(&[&["advise"], args].concat());
        assert!(status != Some(0) && text.is_empty(), "{args:?}: {text}");
        assert!(error.lines().count() == 1 && error.contains(why), "{args:?}: {error}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_a_failure_and_a_reader_may_go_away() {
    let dense = shipped("dense");
    for more in [&[][..], &["--json"]] {
        let command = || program(&[&["advise", "--rounds", "3", text(&dense)], more].concat());
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a device");
        let child = command().stdout(full).stderr(std::process::Stdio::piped()).spawn();
        let ran = Ran::from(child.expect("the program is there").wait_with_output().expect("it ends"));
        assert_eq!(ran.status, Some(1), "{}", ran.err);
        assert!(ran.err.lines().count() == 1 && ran.err.contains("No space left"), "{}", ran.err);
        reader_goes_away(&mut command(), 0);
    }
}

#[test]
fn every_program_has_its_recordings_and_a_line_in_the_readme() {
    let readme = std::fs::read_to_string(folder().join("../README.md")).expect("it is there");
    for name in ["dense", "sparse", "empty"] {
        assert!(folder().join(name).with_extension("c").exists());
        assert!(shipped(name).exists() && shipped(&format!("{name}_mended")).exists());
        assert!(readme.contains(&format!("| `{name}.c` |")), "{name}");
    }
}
