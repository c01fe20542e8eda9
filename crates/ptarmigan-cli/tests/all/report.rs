//! `report`, with the built program: its figures against those of `replay`, its page, its files.
use crate::program::{self, Ran, Temporary, ptarmigan, reader_goes_away, run, shipped};
use ptarmigan_trace::{
    Arch, AreaKind, CloneKind, Event, FaultFlags, Header, HugePages, Kind, MapFlags, Method, Name, Prot,
    Sampled, Unseen, Writer,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// A directory of a test.
pub struct Dir(Temporary);

impl Dir {
    pub fn new(name: &str) -> Self {
        let dir = Temporary::new(name);
        std::fs::create_dir_all(&dir.0).expect("a temporary directory");
        Dir(dir)
    }

    pub fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.0.path())
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    pub fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.read(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0.0).expect("the directory");
        let name = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("an entry").file_name();
        let mut names: Vec<String> =
            entries.map(|entry| name(entry).to_str().expect("a name in UTF-8").to_owned()).collect();
        names.sort();
        names
    }
}

pub fn report(args: &[&str]) -> Ran {
    ptarmigan(&[&["report"], args].concat())
}

pub fn one_line(ran: &Ran, status: i32, says: &str) {
    assert_eq!(ran.status, Some(status), "{}", ran.err);
    assert!(ran.err.contains(says), "{says:?} is not in {:?}", ran.err);
    assert!(!ran.err.contains("panicked"), "{}", ran.err);
    if status == 1 {
        assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    }
}

pub const RW: Prot = Prot(Prot::READ | Prot::WRITE);

pub fn write(page: u64) -> Kind {
    Kind::Fault { page, flags: FaultFlags(FaultFlags::USER | FaultFlags::WRITE) }
}

pub fn anon(start: u64, pages: u64) -> Kind {
    Kind::Mmap { start, pages, prot: RW, flags: MapFlags(MapFlags::ANON) }
}

/// A program that makes tables in every way: by faults, `fork`, `exec` and `mremap`.
pub fn program() -> Vec<(u32, Kind)> {
    let mut kinds = vec![
        (0, Kind::Exec { stack_end: 0x7_ffff_ffff, arg_pages: 1 }),
        (0, Kind::Area { start: 0x400, pages: 16, prot: RW, kind: AreaKind::File }),
        (0, Kind::Area { start: 0x7_fff0_0000, pages: 33, prot: RW, kind: AreaKind::Stack }),
        (0, Kind::Name(Name::new("first"))),
        // One page, seven, 64 and all 512, each in a leaf table of its own.
        (0, anon(0x10_0000, 4096)),
        (0, write(0x10_0000)),
    ];
    kinds.extend((0..7).map(|n| (0, write(0x10_0200 + n))));
    kinds.extend((0..64).map(|n| (0, write(0x10_0400 + n))));
    kinds.extend((0..512).map(|n| (0, write(0x10_0600 + n))));
    kinds.extend([
        (0, Kind::Clone { child: 1, kind: CloneKind::Fork }),
        (1, Kind::Exec { stack_end: 0x7_ffff_ffff, arg_pages: 1 }),
        (1, Kind::Area { start: 0x400, pages: 99, prot: RW, kind: AreaKind::File }),
        (1, Kind::Name(Name::new("<second>"))),
        (1, anon(0x20_0000, 512)),
        (1, write(0x20_0000)),
        (1, write(0x20_0001)),
        // Half of a table's pages go to another place, the others to the system. The table stays.
        (1, Kind::Mremap { from: 0x20_0001, old_pages: 1, to: 0x30_0001, new_pages: 1, keep: false }),
        (1, Kind::Madvise { start: 0x20_0000, pages: 1, advice: 4 }),
        (1, Kind::Truth { tables: 0, at: Sampled::Exit }),
        (1, Kind::Exit { last: true }),
        (0, Kind::Munmap { start: 0x10_0000, pages: 4096 }),
        (0, Kind::TlbFlush { pages: 0, reason: 3 }),
        (0, Kind::Exit { last: true }),
    ]);
    kinds
}

/// Writes a trace with an event every millisecond if `timed`.
pub fn trace(
    dir: &Dir,
    name: &str,
    header: &Header,
    kinds: &[(u32, Kind)],
    timed: bool,
    lost: u64,
) -> String {
    let mut w = Writer::new(Vec::new(), header, 3).expect("a good header");
    for (n, &(task, kind)) in kinds.iter().enumerate() {
        if timed {
            w.time(1000 * n as u64).expect("a time");
        }
        w.event(&Event { task, cpu: 0, kind }).unwrap_or_else(|e| panic!("{kind:?}: {e}"));
    }
    let path = dir.path(name);
    std::fs::write(&path, w.finish(lost).expect("memory takes everything").0).expect("a temporary file");
    path
}

pub fn header(name: &str) -> Header {
    Header::new(name, 1, Method::Synthetic)
}

/// Formats a number as the page does.
fn count(n: &Value) -> String {
    let digits = n.as_u64().expect("a count").to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|g| std::str::from_utf8(g).expect("digits")).collect();
    groups.join(",")
}

#[test]
#[ignore = "replays whole traces: cargo xtask ci tests-long"]
fn counts_are_those_of_whole_replays_on_each_policy() {
    let dir = Dir::new("counts");
    let policies = "plain,v5,v2008,ptarmigan";
    for name in ["fixture", "rustc"] {
        let file = shipped(&format!("{name}.ptrace"));
        let (page, data) = (dir.path("page.html"), dir.path(name));
        let ran = report(&[&file, "-o", &page, "--data", &data, "--policy", policies]);
        assert_eq!(ran.status, Some(0), "{}", ran.err);
        let replay = ptarmigan(&["replay", &file, "--json", "--policy", policies]);
        let replay: Value = serde_json::from_str(&replay.out).expect("one JSON document");
        let html = dir.read("page.html");
        let figures = &dir.json(&format!("{name}/report.json"))["traces"][0];
        let facts = &figures["facts"];
        for key in ["name", "processes", "events", "faults", "lost"] {
            assert_eq!(facts[key], replay["trace"][key], "{name} {key}");
        }
        assert_eq!(figures["flushes"]["linux"], replay["trace"]["flushes"], "{name}");
        let runs = replay["runs"].as_array().expect("runs");
        assert_eq!(figures["policies"].as_array().map(Vec::len), Some(runs.len()));
        for (run, policy) in runs.iter().zip(figures["policies"].as_array().expect("policies")) {
            let what = format!("{name} on {}", run["policy"]);
            assert_eq!(policy["policy"], run["policy"], "{what}");
            assert_eq!(policy["historic_lists"], run["historic_lists"], "{what}");
            assert_eq!(policy["peak_cached_bytes"], run["peak_cached_bytes"], "{what}");
            for key in ["peak_live_tables", "peak_table_bytes", "truth", "faults_outside", "odd_calls"] {
                assert_eq!(facts[key], run[key], "{what}: {key}");
            }
            assert_eq!(figures["flushes"]["ours"], run["flushes"], "{what}");
            assert_eq!(figures["flushes"]["ours_by_cause"], run["flushes_by_cause"], "{what}");
            let mut misses = 0;
            for (n, level) in policy["levels"].as_array().expect("levels").iter().enumerate() {
                let name = level["level"].as_str().expect("a name");
                for key in ["allocs", "hits", "refills", "misses"] {
                    assert_eq!(level[key], run["levels"][name][key], "{what}: {key} of {name}");
                }
                misses += level["misses"].as_u64().expect("a count");
                assert_eq!(figures["tables"]["made"][n], level["allocs"], "{what}: tables made of {name}");
                let calls: u64 = level["histogram"]
                    .as_array()
                    .map_or(0, |bins| bins.iter().map(|bin| bin["calls"].as_u64().unwrap_or(0)).sum());
                assert_eq!(Some(calls), level["allocs"].as_u64(), "{what}: the histogram of {name}");
                // And so it stands on the page.
                let row = format!("<td>{}</td><td>{}</td>", name.to_uppercase(), count(&level["allocs"]));
                assert!(html.contains(&row), "{what}: {row} is not on the page");
            }
            let misses = format!("<td>{}</td>", count(&Value::from(misses)));
            assert!(html.contains(&misses), "{what}: {misses} is not on the page");
        }
        assert!(html.contains(&format!("<dd>{}</dd>", count(&facts["peak_live_tables"]))), "{name}");
    }
}

/// Compares, for a shipped recording, the tables by mapping with those by cause, and the flushes of
/// forks and calls with Linux's. `calls` says how near these must be.
fn replays_like_linux(name: &str, calls: f64) {
    let dir = Dir::new(name);
    let (file, data) = (shipped(&format!("{name}.ptrace")), dir.path("data"));
    let page = dir.path("page.html");
    let ran = report(&[&file, "-o", &page, "--data", &data, "--advice", "none", "--policy", "plain"]);
    assert_eq!(ran.status, Some(0), "{}", ran.err);
    let figures = &dir.json("data/report.json")["traces"][0];
    let list = |rows: &Value| rows.as_array().expect("rows").clone();
    let by_cause = |rows: &Value, cause: &str| list(rows).into_iter().find(|row| row["cause"] == cause);
    let made = by_cause(&figures["tables"]["made_by"], "fault")
        .map_or(0, |row| row["levels"][0].as_u64().expect("a count"));
    let column: u64 =
        list(&figures["work"]["mappings"]).iter().map(|row| row["tables"].as_u64().expect("a count")).sum();
    assert!(made > 0);
    assert_eq!(column, made, "{name}: leaf tables of faults, by mapping and by cause");
    let total = |flushes: &Value| -> f64 {
        ["page", "range", "full"].iter().filter_map(|size| flushes[size].as_f64()).sum()
    };
    let (ours, linux) = (&figures["flushes"]["ours_by_cause"], &figures["flushes"]["linux"]);
    let forks = by_cause(&linux["by_cause"], "fork").expect("forks")["carried_out"]["full"].clone();
    assert_eq!(by_cause(&ours["by_cause"], "fork").expect("forks")["full"], forks, "{name}: a flush each");
    let (ours, linux) = (total(&ours["calls"]), total(&linux["calls"]["carried_out"]));
    assert!((ours - linux).abs() <= calls * linux, "{name}: calls flush {ours} times, in Linux {linux}");
}

#[test]
fn tables_by_mapping_equal_those_by_cause_and_flushes_linuxs() {
    replays_like_linux("fixture", 0.0);
    replays_like_linux("forkbig", 0.0);
    // Threads: an event of one may stand beside a flush of another.
    replays_like_linux("rustc", 0.01);
}

#[test]
#[ignore = "replays whole traces: cargo xtask ci tests-long"]
fn whole_builds_have_tables_of_their_causes_and_linuxs_flushes() {
    replays_like_linux("compile", 0.0);
    replays_like_linux("configure", 0.0);
    // Linux flushed once more for mprotect: 12,678 times for calls, not 12,677.
    replays_like_linux("linux-build", 0.001);
}

#[test]
fn sums_over_time_over_causes_and_over_classes_are_the_totals() {
    let dir = Dir::new("sums");
    let file = shipped("rustc.ptrace");
    let ran = report(&[&file, "-o", &dir.path("page.html"), "--data", &dir.path("data")]);
    assert_eq!(ran.status, Some(0), "{}", ran.err);
    let figures = &dir.json("data/report.json")["traces"][0];
    let sum = |values: &Value| -> u64 {
        values.as_array().expect("numbers").iter().filter_map(Value::as_u64).sum()
    };
    let tables = &figures["tables"];
    let made = sum(&tables["made"]);
    for side in ["made_by", "taken_by"] {
        let all: u64 = tables[side].as_array().expect("causes").iter().map(|row| sum(&row["levels"])).sum();
        assert_eq!(all, made, "{side}");
    }
    let leaves = tables["made"][0].as_u64();
    for key in ["most", "when_taken"] {
        let classes = tables["fullness"]["classes"].as_array().expect("classes");
        assert_eq!(Some(classes.iter().filter_map(|class| class[key].as_u64()).sum()), leaves, "{key}");
    }
    let bins = tables["lifetimes"]["bins"].as_array().expect("bins");
    let lives: u64 =
        bins.iter().flat_map(|bin| [&bin["leaf"], &bin["upper"]]).filter_map(Value::as_u64).sum();
    assert_eq!(lives, made);
    let points = figures["live"]["points"].as_array().expect("points");
    let totals: Vec<u64> = points.iter().map(|point| sum(&point["levels"])).collect();
    assert_eq!(totals.iter().copied().max(), figures["facts"]["peak_live_tables"].as_u64());
    for point in points {
        assert_eq!(sum(&point["levels"]), sum(&point["programs"]), "{point}");
    }
    let linux = &figures["flushes"]["linux"];
    for (by, total) in [("ours", &figures["flushes"]["ours"]), ("linux", &linux["carried_out"])] {
        let points = figures["flushes"]["points"].as_array().expect("points");
        for (n, size) in ["page", "range", "full"].into_iter().enumerate() {
            let all: u64 = points.iter().filter_map(|point| point[by][n].as_u64()).sum();
            assert_eq!(Some(all), total[size].as_u64(), "{by} {size}");
        }
    }
    let total = |flushes: &Value| -> u64 {
        ["page", "range", "full"].iter().filter_map(|size| flushes[size].as_u64()).sum()
    };
    let rows = |rows: &Value, of: &dyn Fn(&Value) -> u64| -> u64 {
        rows.as_array().expect("rows").iter().map(of).sum()
    };
    let ours = &figures["flushes"]["ours_by_cause"]["by_cause"];
    assert_eq!(rows(ours, &|row| total(row)), total(&figures["flushes"]["ours"]));
    let carried_out = rows(&linux["by_cause"], &|row| total(&row["carried_out"]));
    assert_eq!(carried_out, total(&linux["carried_out"]));
    let requested = rows(&linux["by_cause"], &|row| total(&row["requested"]));
    assert_eq!(requested, total(&linux["requested"]));
    assert_eq!(rows(&linux["requests"], &|row| total(row)), requested);
    for policy in figures["policies"].as_array().expect("policies") {
        let kept = policy["kept"].as_array().expect("bytes").iter().filter_map(Value::as_u64).max();
        assert_eq!(kept, policy["peak_cached_bytes"].as_u64(), "{}", policy["policy"]);
    }
}

#[test]
fn a_synthetic_program_has_its_tables_causes_and_lives() {
    let dir = Dir::new("made");
    let file = trace(&dir, "made.ptrace", &header("made"), &program(), true, 0);
    let ran =
        report(&[&file, "-o", &dir.path("page.html"), "--data", &dir.path("data"), "--policy", "ptarmigan"]);
    assert_eq!(ran.status, Some(0), "{}", ran.err);
    let figures = &dir.json("data/report.json")["traces"][0];
    assert_eq!(figures["facts"]["axis"], "us");
    let classes = figures["tables"]["fullness"]["classes"].as_array().expect("classes");
    let of = |from: u64, key: &str| {
        classes
            .iter()
            .find(|class| class["from"] == from)
            .and_then(|class| class[key].as_u64())
            .expect("a class")
    };
    // The mapping's tables are there twice: the child has copies until it executes.
    assert_eq!((of(64, "most"), of(512, "most")), (2, 2), "{classes:?}");
    // The table that half of the pages left, and the others then: two pages at most, and 0 at the
    // end.
    assert!(of(2, "most") >= 3 && of(0, "when_taken") >= 1, "{classes:?}");
    assert_eq!(figures["tables"]["fullness"]["left_empty"], 1, "{classes:?}");
    let cause = |side: &str, cause: &str| {
        let rows = figures["tables"][side].as_array().expect("causes");
        let row = rows.iter().find(|row| row["cause"] == cause);
        row.map_or(0, |row| {
            row["levels"].as_array().expect("levels").iter().filter_map(Value::as_u64).sum::<u64>()
        })
    };
    // A table for each of the four parts, and those of the arguments and the stack.
    for (side, name) in
        [("made_by", "fault"), ("made_by", "fork"), ("made_by", "exec"), ("made_by", "mremap")]
    {
        assert!(cause(side, name) > 0, "{side} {name}: {figures}");
    }
    assert_eq!(cause("made_by", "mremap"), 2, "a leaf table at the new place and one above");
    assert_eq!(cause("taken_by", "munmap"), 4 + 1, "four leaf tables and one above");
    assert!(cause("taken_by", "exit") > 0 && cause("taken_by", "exec") > 0);
    assert_eq!(cause("made_by", "start"), 1, "the root of the first space");
    let labels: Vec<&str> = figures["live"]["programs"]
        .as_array()
        .expect("programs")
        .iter()
        .filter_map(|program| program["label"].as_str())
        .collect();
    assert!(labels.contains(&"first") && labels.contains(&"<second>"), "{labels:?}");
    let html = dir.read("page.html");
    assert!(html.contains("&lt;second&gt;") && !html.contains("<second>"), "a name is text");
    let from = html.find("<section id=\"fullness\">").expect("a section");
    let section = &html[from..from + html[from..].find("</section>").expect("its end")];
    let said = section.split('>').filter_map(|part| part.strip_suffix("%)</text")?.split(" (").next());
    let most: Vec<String> =
        classes.iter().filter(|c| c["from"] != 0 || c["most"] != 0).map(|c| count(&c["most"])).collect();
    // The picture is there for four widths.
    assert_eq!(said.collect::<Vec<_>>(), [&most[..]; 4].concat(), "{classes:?}");
}

#[test]
fn lives_levels_and_flushes_are_where_they_were_made() {
    let dir = Dir::new("placed");
    // An event every millisecond, 100 of them. A leaf table lives from the 10th to the 30th, and
    // another one from the 50th to the 53rd.
    let mut kinds = vec![(0, anon(0x10_0000, 4096))];
    let until =
        |kinds: &mut Vec<(u32, Kind)>, n| kinds.resize(n, (0, Kind::Truth { tables: 1, at: Sampled::Exit }));
    until(&mut kinds, 10);
    kinds.push((0, write(0x10_0000)));
    until(&mut kinds, 30);
    kinds.push((0, Kind::Munmap { start: 0x10_0000, pages: 512 }));
    until(&mut kinds, 50);
    kinds.push((0, write(0x10_0200)));
    until(&mut kinds, 53);
    kinds.push((0, Kind::Munmap { start: 0x10_0200, pages: 512 }));
    until(&mut kinds, 70);
    kinds.push((0, Kind::TlbFlush { pages: 1, reason: 3 }));
    until(&mut kinds, 100);
    kinds.push((0, Kind::Exit { last: true }));
    let file = trace(&dir, "placed.ptrace", &header("placed"), &kinds, true, 0);
    let ran = report(&[&file, "-o", &dir.path("page.html"), "--data", &dir.path("data")]);
    assert_eq!(ran.status, Some(0), "{}", ran.err);
    let figures = &dir.json("data/report.json")["traces"][0];
    let lifetimes = &figures["tables"]["lifetimes"];
    let bins: Vec<(u64, u64)> = lifetimes["bins"]
        .as_array()
        .expect("bins")
        .iter()
        .filter(|bin| bin["leaf"].as_u64() > Some(0))
        .map(|bin| (bin["from"].as_u64().expect("a bound"), bin["leaf"].as_u64().expect("a count")))
        .collect();
    // 3,000 and 20,000 microseconds.
    assert_eq!(bins, [(2048, 1), (16384, 1)], "{lifetimes}");
    assert_eq!(lifetimes["median"][0], 20_000, "{lifetimes}");
    assert_eq!(lifetimes["cut"], 1, "the root was there before: {lifetimes}");
    let kinds_left = [(0, anon(0x10_0000, 4096)), (0, write(0x10_0000))];
    let left = trace(&dir, "left.ptrace", &header("left"), &kinds_left, true, 0);
    let ran = report(&[&left, "-o", &dir.path("left.html"), "--data", &dir.path("left")]);
    assert_eq!(ran.status, Some(0), "{}", ran.err);
    let left = &dir.json("left/report.json")["traces"][0]["tables"]["lifetimes"];
    assert_eq!(left["cut"], 4, "three tables and the root are left: {left}");
    let points = figures["live"]["points"].as_array().expect("points");
    let at = |ms: usize| &points[(ms * points.len()).div_ceil(100)]["levels"];
    let most = |level: usize| points.iter().filter_map(|point| point["levels"][level].as_u64()).max();
    assert_eq!((0..4).map(most).collect::<Vec<_>>(), [Some(1); 4]);
    let leaves = [5, 20, 40, 51, 60].map(|ms| at(ms)[0].as_u64());
    assert_eq!(leaves, [Some(0), Some(1), Some(0), Some(1), Some(0)]);
    assert!([5, 20, 40, 51, 60].iter().all(|ms| at(*ms)[3] == 1), "the root is always there");
    let flushes = figures["flushes"]["points"].as_array().expect("points");
    let with = |by: &str| -> Vec<usize> {
        let any = |point: &Value| point[by].as_array().is_some_and(|sizes| sizes.iter().any(|n| *n != 0));
        (0..flushes.len())
            .filter(|part| any(&flushes[*part]))
            .map(|part| part * 100 / flushes.len())
            .collect()
    };
    assert!(matches!(with("linux")[..], [69 | 70]), "{:?}", with("linux"));
    let ours = with("ours");
    assert!(
        ours.iter().any(|ms| (29..=31).contains(ms)) && ours.iter().any(|ms| (52..=54).contains(ms)),
        "{ours:?}"
    );
    assert!(!ours.iter().any(|ms| (0..29).contains(ms) || (55..99).contains(ms)), "{ours:?}");
}

#[test]
fn the_page_has_the_figures_of_its_data() {
    let dir = Dir::new("figures");
    let policies = ["--policy", "plain,v5,ptarmigan"];
    let args = [&shipped("fixture.ptrace"), "-o", &dir.path("page.html"), "--data", &dir.path("data")];
    let ran = report(&[&args[..], &policies[..]].concat());
    assert_eq!(ran.status, Some(0), "{}", ran.err);
    let html = dir.read("page.html");
    let section = |id: &str| {
        let from = html.find(&format!("<section id=\"{id}\">")).unwrap_or_else(|| panic!("no {id}"));
        &html[from..from + html[from..].find("</section>").expect("its end")]
    };
    let figures = &dir.json("data/report.json")["traces"][0];
    let rows = |values: &[&str], of: &Value| -> String {
        values.iter().map(|key| format!("<td>{}</td>", count(&of[*key]))).collect()
    };
    let sizes = ["page", "range", "full"];
    let flushes = &figures["flushes"];
    let calls = rows(&sizes, &flushes["linux"]["calls"]["carried_out"])
        + &rows(&sizes, &flushes["ours_by_cause"]["calls"]);
    let row = format!("<tr><td>calls on mappings</td>{calls}</tr>");
    assert!(section("flushes").contains(&row), "{row}");
    for policy in figures["policies"].as_array().expect("policies") {
        let sum = |key: &str| {
            let levels = policy["levels"].as_array().expect("levels");
            count(&Value::from(levels.iter().filter_map(|level| level[key].as_u64()).sum::<u64>()))
        };
        let row =
            format!("<td>{}</td><td>{}</td><td>{}</td><td>", sum("hits"), sum("refills"), sum("misses"));
        let (_, kept) = section("policies").split_once(&row).unwrap_or_else(|| panic!("{row}"));
        assert_eq!(kept.starts_with("0 B</td>"), policy["peak_cached_bytes"] == 0, "{policy}");
    }
    for class in figures["tables"]["fullness"]["classes"].as_array().expect("classes") {
        let said = format!(">{} (", count(&class["most"]));
        assert!(class["from"] == 0 || section("fullness").contains(&said), "{said}");
    }
    let fullness = &figures["tables"]["fullness"];
    let part =
        100 * fullness["below_64"].as_u64().expect("a count") / fullness["tables"].as_u64().expect("a count");
    assert!(
        section("fullness").contains(&format!("<h2>{part}\u{a0}% of leaf tables never held 64")),
        "{fullness}"
    );
    let fact = format!("<dt>leaf tables that never held 64 pages</dt><dd>{part} %</dd>");
    assert!(html.contains(&fact), "{fact}");
    for side in ["made_by", "taken_by"] {
        for row in figures["tables"][side].as_array().expect("causes") {
            let levels = row["levels"].as_array().expect("levels");
            let sum: u64 = levels.iter().filter_map(Value::as_u64).sum();
            let said = format!(">{} (", count(&Value::from(sum)));
            assert!(section("causes").contains(&said), "{side} {row}");
        }
    }
}

#[test]
fn a_name_is_text_wherever_it_stands() {
    let dir = Dir::new("names");
    let name = "<i>it & \"so\"";
    let mut kinds = program();
    kinds.insert(4, (0, Kind::Name(Name::new("<b>\"&"))));
    let (one, two) = (
        trace(&dir, "one.ptrace", &header(name), &kinds, true, 3),
        trace(&dir, "two.ptrace", &header("two"), &kinds, true, 0),
    );
    for traces in [&[&one][..], &[&one, &two]] {
        let traces: Vec<&str> = traces.iter().map(|path| path.as_str()).collect();
        let ran =
            report(&[&traces[..], &["-o", &dir.path("page.html"), "--data", &dir.path("data")]].concat());
        assert_eq!(ran.status, Some(0), "{}", ran.err);
        let html = dir.read("page.html");
        // The only bold text is the page's own.
        let own = html.replace("<b>A</b>", "").replace("<b>B</b>", "").replace("<b>Not alike</b>", "");
        assert!(!own.contains("<i>") && !own.contains("<b>"), "a name is no markup");
        let title = "<h1>Table pages: ";
        let said = html.find(title).map(|from| &html[from + title.len()..]).expect("a heading");
        let escaped = "&lt;i&gt;it &amp; &quot;so&quot;";
        assert!(said.trim_start_matches("A · ").starts_with(escaped), "{}", &said[..99]);
        let csv = dir.read("data/fullness.csv");
        assert!(csv.contains("\n1,\"<i>it & \"\"so\"\"\","), "{csv}");
        assert_eq!(dir.json("data/fullness.json")["rows"][0]["name"], name);
    }
}

#[test]
fn the_page_needs_nothing_else_and_no_script() {
    let dir = Dir::new("page");
    let page = dir.path("page.html");
    let ran = report(&[&shipped("fixture.ptrace"), "-o", &page]);
    assert_eq!(ran.status, Some(0), "{}", ran.err);
    assert_eq!(ran.out, "");
    let html = dir.read("page.html");
    assert!(html.starts_with("<!DOCTYPE html>") && html.ends_with("</html>\n"));
    for absent in ["<script", "src=", "url(", "@import", "https://", "NaN", "inf\""] {
        assert!(!html.contains(absent), "{absent} is on the page");
    }
    // The empty icon, parts of the page, and data that the page holds.
    let links = html.matches("href=").count();
    let own = ["href=\"data:,\"", "href=\"#", "href=\"data:text/csv;"].map(|own| html.matches(own).count());
    assert_eq!(links, own.iter().sum::<usize>(), "no links to elsewhere");
    assert!(html.contains("prefers-color-scheme: dark") && html.contains("@media print"));
    for id in
        ["live", "programs", "fullness", "lifetimes", "causes", "policies", "latency", "kept", "flushes"]
    {
        assert!(html.contains(&format!("<section id=\"{id}\">")), "{id}");
    }
    assert!(html.len() < 1 << 20, "{} bytes", html.len());
    for tag in
        ["section", "svg", "table", "div", "p", "tr", "td", "details", "dl", "nav", "main", "abbr", "ol"]
    {
        let (opened, closed) =
            (html.matches(&format!("<{tag}")).count(), html.matches(&format!("</{tag}>")).count());
        // `<path` begins like `<p`, `<title>` is not counted.
        let opened =
            if tag == "p" { html.matches("<p>").count() + html.matches("<p ").count() } else { opened };
        assert_eq!(opened, closed, "{tag}");
    }
}

#[test]
fn two_traces_are_side_by_side_and_compared() {
    let dir = Dir::new("two");
    let fixture = shipped("fixture.ptrace");
    let made = trace(&dir, "made.ptrace", &header("made"), &program(), true, 0);
    let ran = report(&[&fixture, &made, "-o", &dir.path("page.html"), "--data", &dir.path("data")]);
    assert_eq!(ran.status, Some(0), "{}", ran.err);
    let html = dir.read("page.html");
    assert!(
        html.contains("A · fixture") && html.contains("B · made") && html.contains("<th>from A to B</th>"),
        "{html}"
    );
    assert!(html.contains("different methods of recording"), "what is not alike is said");
    let both = dir.json("data/report.json");
    let faults = |n: usize| both["traces"][n]["facts"]["faults"].as_f64().expect("a count");
    let row = format!(
        "<td>page faults</td><td>{}</td><td>{}</td><td>{:.2} ×, {}</td>",
        faults(0),
        faults(1),
        faults(1) / faults(0),
        if faults(1) < faults(0) { "better" } else { "worse" }
    );
    assert!(html.contains(&row), "{row}");
    // One has times, the other has not.
    let life = html.find("<td>median life of a leaf table</td>").map(|from| &html[from..]).expect("a row");
    assert!(life[..life.find("</tr>").expect("its end")].ends_with("<td>–</td>"));
    let rows = dir.json("data/fullness.json");
    let traces: Vec<u64> =
        rows["rows"].as_array().expect("rows").iter().filter_map(|r| r["trace"].as_u64()).collect();
    assert!(traces.contains(&1) && traces.contains(&2));
}

#[test]
fn a_lossy_trace_or_one_unlike_linux_says_so_on_its_face() {
    let dir = Dir::new("lossy");
    let mut lossy = header("lossy");
    lossy.unseen = Unseen(Unseen::TLB_FLUSHES);
    let mut kinds = program();
    kinds.retain(|(_, kind)| !matches!(kind, Kind::TlbFlush { .. }));
    let file = trace(&dir, "lossy.ptrace", &lossy, &kinds, false, 17);
    let ran = report(&[&file, "-o", &dir.path("page.html")]);
    assert_eq!(ran.status, Some(0), "{}", ran.err);
    let html = dir.read("page.html");
    let face = &html[..html.find("<section").expect("a section")];
    for says in
        ["Lossy recording", "dropped 17 events", "differs from Linux", "does not contain: TLB flushes"]
    {
        assert!(face.contains(says), "{says}: {face}");
    }
    assert!(html.contains("Linux: not recorded"));
    let flushes = &html[html.find("<section id=\"flushes\">").expect("a section")..];
    let area = |class: &str| flushes.contains(&format!("class=\"{class}\"><title>"));
    assert!(["f0 low", "f0", "f0 high"].into_iter().any(area), "the library's flushes");
    assert!(!["f1 low", "f1", "f1 high"].into_iter().any(area), "and none of Linux");
    let mut foreign = header("foreign");
    foreign.arch = Arch::Aarch64;
    let mut kinds = program();
    kinds.retain(|(_, kind)| !matches!(kind, Kind::Truth { .. }));
    let odd = Kind::Mremap { from: 0x50_0000, old_pages: 1, to: 0x51_0000, new_pages: 1, keep: false };
    kinds.insert(6, (0, odd));
    let file = trace(&dir, "foreign.ptrace", &foreign, &kinds, false, 0);
    let ran = report(&[&file, "-o", &dir.path("page.html")]);
    assert_eq!(ran.status, Some(0), "{}", ran.err);
    let html = dir.read("page.html");
    let face = &html[..html.find("<section").expect("a section")];
    for says in [
        "Unchecked: the recording has no samples of VmPTE",
        "Recorded on aarch64 with pages of 4096",
        "1 calls make no sense in the replayed",
    ] {
        assert!(face.contains(says), "{says}: {face}");
    }
    let ran = report(&[&shipped("fixture.ptrace"), "-o", &dir.path("page.html")]);
    assert_eq!(ran.status, Some(0), "{}", ran.err);
    assert!(!dir.read("page.html").contains("class=\"warn\""), "nothing is wrong with this one");
}

/// A program fills a region, touches another, forks, and takes a part of the first away.
fn in_large_pages() -> Vec<(u32, Kind)> {
    let mut kinds = vec![(0, Kind::Exec { stack_end: 0x7_ffff_ffff, arg_pages: 1 })];
    kinds.push((0, anon(0x10_0000, 2 * 512)));
    kinds.extend((0..512).map(|n| (0, write(0x10_0000 + n))));
    kinds.push((0, write(0x10_0200)));
    kinds.extend([
        (0, Kind::Clone { child: 1, kind: CloneKind::Fork }),
        (1, Kind::Exit { last: true }),
        (0, Kind::Madvise { start: 0x10_0000, pages: 1, advice: 4 }),
        (0, Kind::Exit { last: true }),
    ]);
    kinds
}

#[test]
fn large_pages_count_only_where_linux_had_huge_ones() {
    let dir = Dir::new("large");
    let of = |name: &str, huge: HugePages| {
        let mut header = header(name);
        header.huge = huge;
        trace(&dir, &format!("{name}.ptrace"), &header, &in_large_pages(), false, 0)
    };
    let (always, advised) = (of("always", HugePages::Always), of("advised", HugePages::Advised));
    let page = |traces: &[&str]| {
        let ran = report(&[traces, &["-o", &dir.path("page.html"), "--data", &dir.path("data")]].concat());
        assert_eq!(ran.status, Some(0), "{}", ran.err);
        (dir.read("page.html"), dir.json("data/report.json")["traces"].clone())
    };
    let (html, traces) = page(&[&always]);
    let (facts, large) = (&traces[0]["facts"], &traces[0]["large"]);
    assert_eq!((&large["mapped"], &large["splits"]), (&2.into(), &1.into()), "{large}");
    assert_eq!(large["faults_found"], 511, "{large}");
    // Root, two tables above the leaves and one of the stack for each of parent and child, and two
    // leaf tables each with small pages. At most two of each are reserved.
    let number = |of: &Value, what: &str| of[what].as_u64().unwrap_or_else(|| panic!("{what}: {of}"));
    let live = |of: &Value| number(of, "peak_live_tables");
    assert_eq!(live(facts) - live(large), 4, "{facts} {large}");
    let bytes = |what: &str| number(large, what);
    assert_eq!(bytes("peak_table_bytes"), live(large) << 12);
    assert_eq!(bytes("peak_bytes_with_reserve"), number(facts, "peak_table_bytes"), "as Linux counts");
    for says in [
        "<h2>Faults map 2 large pages where the recorded Linux had huge ones <a",
        &format!("<td>memory in tables, at most</td><td>{} KiB</td>", live(facts) * 4),
        &format!("<td>the same with the reserve</td><td>–</td><td>{} KiB</td>", live(facts) * 4),
    ] {
        assert!(html.contains(says), "{says}: {html}");
    }
    // It asked for none where they had to be asked for.
    let (html, traces) = page(&[&advised]);
    assert!(!html.contains("id=\"large\"") && traces[0].get("large").is_none(), "{traces}");
    let (html, _) = page(&[&always, &advised]);
    assert!(html.contains("<h2>Faults map 2 large pages (A) and no large pages (B) where"), "{html}");
    assert!(html.contains("This recording is of a Linux without huge pages."), "{html}");
}

#[test]
fn data_is_written_as_csv_and_as_json() {
    let dir = Dir::new("data");
    let file = shipped("fixture.ptrace");
    let ran = report(&[&file, "-o", &dir.path("page.html"), "--data", &dir.path("deep/data")]);
    assert_eq!(ran.status, Some(0), "{}", ran.err);
    let data = Dir(Temporary(dir.0.0.join("deep/data")));
    let names = data.names();
    assert_eq!(names.len(), 30, "{names:?}");
    for name in names.iter().filter(|name| name.ends_with(".csv")) {
        let csv = data.read(name);
        let columns = csv.lines().next().expect("a head").split(',').count();
        assert!(
            // The fixture has no functions and no times of calls.
            (csv.lines().count() > 1 || ["functions.csv", "calls.csv"].contains(&name.as_str()))
                && csv.lines().all(|line| line.split(',').count() == columns),
            "{name}: {csv}"
        );
        let json = data.json(&name.replace(".csv", ".json"));
        assert_eq!(json["schema"], 2, "{name}");
        let rows = json["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), csv.lines().count() - 1, "{name}");
        assert!(rows.iter().all(|row| row.as_object().is_some_and(|row| row.len() == columns)), "{name}");
    }
}

#[test]
fn data_files_hold_what_the_whole_document_holds() {
    let dir = Dir::new("same");
    let made = trace(&dir, "made.ptrace", &header("made"), &program(), true, 0);
    let ran = report(&[
        &shipped("fixture.ptrace"),
        &made,
        "-o",
        &dir.path("page.html"),
        "--data",
        &dir.path("data"),
    ]);
    assert_eq!(ran.status, Some(0), "{}", ran.err);
    let document = dir.json("data/report.json");
    // Values of a file by trace, in the order of its rows.
    let column = |file: &str, trace: usize, key: &str| -> Vec<Value> {
        let rows = dir.json(&format!("data/{file}.json"))["rows"].clone();
        let rows = rows.as_array().expect("rows").iter().filter(|row| row["trace"] == trace + 1);
        rows.map(|row| row[key].clone()).collect()
    };
    let list = |value: &Value| value.as_array().expect("a list").clone();
    for trace in 0..2 {
        let one = &document["traces"][trace];
        let each =
            |of: &Value, key: &str| -> Vec<Value> { list(of).iter().map(|row| row[key].clone()).collect() };
        let classes = &one["tables"]["fullness"]["classes"];
        for key in ["from", "to", "most", "when_taken"] {
            assert_eq!(column("fullness", trace, key), each(classes, key), "fullness {key}");
        }
        for key in ["from", "to", "leaf", "upper"] {
            let bins = &one["tables"]["lifetimes"]["bins"];
            assert_eq!(column("lifetimes", trace, key), each(bins, key), "lifetimes {key}");
        }
        let causes: Vec<Value> =
            ["made_by", "taken_by"].iter().flat_map(|side| list(&one["tables"][side])).collect();
        let causes: Vec<Value> = causes.iter().flat_map(|row| list(&row["levels"])).collect();
        assert_eq!(column("causes", trace, "tables"), causes);
        let points = list(&one["live"]["points"]);
        for (file, key) in [("live-by-level", "levels"), ("live-by-program", "programs")] {
            let tables: Vec<Value> = points.iter().flat_map(|point| list(&point[key])).collect();
            assert_eq!(column(file, trace, "tables"), tables, "{file}");
        }
        let levels: Vec<Value> =
            points.iter().flat_map(|_| ["pte", "pmd", "pud", "pgd"].map(Value::from)).collect();
        assert_eq!(column("live-by-level", trace, "level"), levels);
        let sides = ["ours", "linux"];
        let flushes: Vec<Value> = list(&one["flushes"]["points"])
            .iter()
            .flat_map(|p| sides.map(|side| list(&p[side])).concat())
            .collect();
        assert_eq!(column("flushes", trace, "flushes"), flushes);
        let kept: Vec<Value> =
            list(&one["policies"]).iter().flat_map(|policy| list(&policy["kept"])).collect();
        assert_eq!(column("kept", trace, "bytes"), kept);
        let levels: Vec<Value> =
            list(&one["policies"]).iter().flat_map(|policy| list(&policy["levels"])).collect();
        for key in ["level", "allocs", "hits", "refills", "misses", "mean_ns", "p99_ns"] {
            let values: Vec<Value> = levels.iter().map(|level| level[key].clone()).collect();
            assert_eq!(column("policies", trace, key), values, "policies {key}");
        }
    }
}

#[test]
fn time_lines_obey_the_trace_event_format() {
    let dir = Dir::new("timeline");
    let timed = trace(&dir, "timed.ptrace", &header("timed"), &program(), true, 0);
    let mut untimed = header("untimed \"<&");
    untimed.unseen = Unseen(Unseen::TLB_FLUSHES);
    let untimed = trace(&dir, "untimed.ptrace", &untimed, &program(), false, 0);
    let ran = report(&[&timed, &untimed, "-o", &dir.path("page.html"), "--data", &dir.path("data")]);
    assert_eq!(ran.status, Some(0), "{}", ran.err);
    let timeline = dir.json("data/timeline.json");
    assert_eq!(timeline["displayTimeUnit"], "ms");
    let events = timeline["traceEvents"].as_array().expect("events");
    let mut named = BTreeMap::new();
    let mut tracks: BTreeMap<(u64, String), (u64, BTreeSet<String>)> = BTreeMap::new();
    for event in events {
        let text = |key: &str| event[key].as_str().unwrap_or_else(|| panic!("{key}: {event}")).to_owned();
        let number = |key: &str| event[key].as_u64().unwrap_or_else(|| panic!("{key}: {event}"));
        let (kind, name, process, at) = (text("ph"), text("name"), number("pid"), number("ts"));
        assert_eq!(number("tid"), 0, "{event}");
        let args = event["args"].as_object().unwrap_or_else(|| panic!("args: {event}"));
        if kind == "M" {
            let process_name = args["name"].as_str().expect("a name").to_owned();
            assert_eq!((name.as_str(), named.insert(process, process_name)), ("process_name", None));
            continue;
        }
        assert_eq!(kind, "C", "{event}");
        assert!(named.contains_key(&process), "a process is named before its counters: {event}");
        assert!(!args.is_empty() && args.values().all(Value::is_u64), "{event}");
        let series: BTreeSet<String> = args.keys().cloned().collect();
        match tracks.get_mut(&(process, name.clone())) {
            None => assert_eq!((at, tracks.insert((process, name), (0, series))), (0, None), "{event}"),
            Some((last, same)) => {
                assert!(*last < at || *last == 0, "time goes back: {event}");
                assert_eq!(*same, series, "{event}");
                *last = at;
            }
        }
    }
    let names: Vec<&str> = named.values().map(String::as_str).collect();
    assert_eq!(names, ["timed", "untimed \"<& (1 µs is 1 event)"]);
    let of = |process: u64| -> Vec<&str> {
        tracks.keys().filter(|(of, _)| *of == process).map(|(_, name)| name.as_str()).collect()
    };
    let all =
        ["bytes kept", "flushes by Linux", "flushes by the library", "tables by level", "tables by program"];
    assert_eq!(of(1), all);
    assert_eq!(of(2), [all[0], all[2], all[3], all[4]], "no flushes of Linux where none were recorded");
    let series = |name: &str| tracks[&(1, name.to_owned())].1.iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(series("tables by level"), ["pgd", "pmd", "pte", "pud"]);
    assert_eq!(series("tables by program"), ["<second>", "before exec", "first"]);
    assert_eq!(series("flushes by Linux"), ["full", "one page", "range"]);
    // The number of bytes that are kept changes over time.
    let kept = events.iter().filter(|event| event["pid"] == 1 && event["name"] == "bytes kept");
    let kept: Vec<Option<u64>> = kept.map(|event| event["args"]["ptarmigan"].as_u64()).collect();
    let policies = dir.json("data/report.json")["traces"][0]["policies"].clone();
    let ours = policies.as_array().expect("policies").iter().find(|policy| policy["policy"] == "ptarmigan");
    let ours = ours.and_then(|policy| policy["kept"].as_array()).expect("bytes");
    assert_eq!(kept, ours.iter().map(Value::as_u64).collect::<Vec<_>>());
    // The highest point of a track is the highest of the replay.
    let peak = events.iter().filter(|event| event["pid"] == 1 && event["name"] == "tables by level");
    let sum =
        |event: &Value| event["args"].as_object().map(|args| args.values().filter_map(Value::as_u64).sum());
    let peak: Option<u64> = peak.filter_map(sum).max();
    assert_eq!(peak, dir.json("data/report.json")["traces"][0]["facts"]["peak_live_tables"].as_u64());
}

#[test]
fn low_memory_is_shown_for_each_requested_userpte() {
    let dir = Dir::new("userpte");
    let file = shipped("fixture.ptrace");
    let page = dir.path("page.html");
    let args = [&file, "-o", &page, "--data", &dir.path("data"), "--memory", "64M", "--low", "16M"];
    let ran = report(&[&args[..], &["--userpte", "nohigh,high"]].concat());
    assert_eq!(ran.status, Some(0), "{}", ran.err);
    assert!(dir.read("page.html").contains("<section id=\"userpte\">"));
    let rows = dir.json("data/userpte.json");
    let [nohigh, high] = rows["rows"].as_array().expect("rows").as_slice() else { panic!("{rows}") };
    let (low, more) = (high["peak_low_bytes"].as_u64(), nohigh["peak_low_bytes"].as_u64());
    assert!(low > Some(0) && low < more, "{rows}");
    assert_eq!((nohigh["peak_high_bytes"].as_u64(), nohigh["high"].as_u64()), (Some(0), Some(0)));
    assert!(high["peak_high_bytes"].as_u64() > Some(0) && high["high"].as_u64() > Some(0));
    assert_eq!(high["tables"], nohigh["tables"]);
    let plain = report(&args);
    one_line(&plain, 2, "--userpte");
}

#[test]
fn only_regular_files_are_replaced_and_always_whole() {
    let dir = Dir::new("outputs");
    let fixture = shipped("fixture.ptrace");
    let to = |path: &str| report(&[&fixture, "-o", path]);
    one_line(&to(&dir.path("")), 1, "a directory; name a regular file");
    one_line(&to("/dev/null"), 1, "a device; name a regular file");
    one_line(&to(&dir.path("missing/page.html")), 1, "cannot be written");
    std::os::unix::fs::symlink(dir.path("nowhere"), dir.path("link")).expect("a link");
    one_line(&to(&dir.path("link")), 1, "a symbolic link to nothing");
    // A link to a file stays a link, and the file is replaced.
    std::fs::write(dir.path("file"), "old").expect("a file");
    std::os::unix::fs::symlink("file", dir.path("good")).expect("a link");
    std::fs::hard_link(dir.path("file"), dir.path("twin")).expect("a second name");
    assert_eq!(to(&dir.path("good")).status, Some(0));
    assert_eq!(dir.read("twin"), "old", "the page is moved to its place, not written there");
    assert!(dir.read("file").starts_with("<!DOCTYPE html>"));
    assert!(std::fs::symlink_metadata(dir.path("good")).expect("the link").is_symlink());
    one_line(&report(&[&fixture, "-o", &dir.path("p"), "--data", &dir.path("file")]), 1, "not a directory");
    // One of the data files cannot be replaced: no data file is written, and no page either.
    std::fs::create_dir_all(dir.path("data/kept.csv")).expect("a directory");
    one_line(&report(&[&fixture, "-o", &dir.path("p"), "--data", &dir.path("data")]), 1, "a directory");
    assert_eq!(dir.names(), ["data", "file", "good", "link", "twin"]);
    assert_eq!(std::fs::read_dir(dir.path("data")).expect("the directory").count(), 1);
}

#[test]
fn a_full_disk_leaves_the_old_page() {
    let dir = Dir::new("full");
    let disk = dir.path("disk");
    std::fs::create_dir(&disk).expect("a directory");
    // A file system of its own, of 64 KiB. Only root can have one.
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs", &disk]).output();
    if !mount.is_ok_and(|out| out.status.success()) {
        eprintln!("skipped: no file system can be mounted here");
        return;
    }
    let page = format!("{disk}/page.html");
    std::fs::write(&page, "old").expect("a file");
    let ran = report(&[&shipped("fixture.ptrace"), "-o", &page]);
    let left: Vec<_> =
        std::fs::read_dir(&disk).expect("the directory").map(|e| e.expect("an entry").file_name()).collect();
    let old = std::fs::read_to_string(&page).expect("the page");
    let unmounted = Command::new("umount").arg(&disk).status();
    assert!(unmounted.is_ok_and(|status| status.success()));
    one_line(&ran, 1, "No space left");
    assert_eq!((left, old.as_str()), (vec!["page.html".into()], "old"));
}

#[test]
fn bad_traces_and_options_are_one_line() {
    let dir = Dir::new("bad");
    let page = dir.path("page.html");
    one_line(&report(&["/nonexistent", "-o", &page]), 1, "/nonexistent");
    one_line(&report(&[&program::crate_file("Cargo.toml"), "-o", &page]), 1, "not a trace");
    let bytes = std::fs::read(shipped("fixture.ptrace")).expect("the fixture");
    std::fs::write(dir.path("cut"), &bytes[..bytes.len() / 2]).expect("a file");
    one_line(&report(&[&dir.path("cut"), "-o", &page]), 1, "truncated");
    one_line(&report(&["-", "-", "-o", &page]), 1, "standard input has one trace");
    one_line(&report(&["-", "--userpte", "high", "-o", &page]), 1, "name a file");
    let fixture = shipped("fixture.ptrace");
    one_line(
        &report(&[&fixture, "--memory", "1M", "--userpte", "high", "--low", "2M", "-o", &page]),
        1,
        "no high memory",
    );
    one_line(&report(&[&fixture, "--policy", "best", "-o", &page]), 2, "plain, v2004, v5, v2008, ptarmigan");
    one_line(&report(&[&fixture, "--userpte", "low", "-o", &page]), 2, "userpte");
    assert_eq!(dir.names(), ["cut"], "no page");
}

#[test]
fn standard_input_and_output_will_do_and_a_reader_may_go_away() {
    let command = || {
        let mut command = program::program(&["report", "-", "-o", "-"]);
        command.stdin(std::fs::File::open(shipped("fixture.ptrace")).expect("the fixture"));
        command
    };
    let ran = run(&mut command());
    assert_eq!((ran.status, ran.err.as_str()), (Some(0), ""));
    assert!(ran.out.starts_with("<!DOCTYPE html>"));
    reader_goes_away(&mut command(), 0);
}
