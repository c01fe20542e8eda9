//! `replay` on good and bad traces and settings, with the built program.
use crate::program::{Ran, Temporary, crate_file, json, program, ptarmigan, reader_goes_away, shipped};
use ptarmigan_trace::{
    AreaKind, CloneKind, Event, FailedCall, FaultFlags, Header, HugePages, Kind, Locking, MapFlags, Method,
    Name, Prot, Sampled, Writer,
};
use serde_json::Value;

const RW: Prot = Prot(Prot::READ | Prot::WRITE);

/// A program that forks once; `tables` is the count that the trace attributes to Linux.
fn forking(tables: u32) -> Vec<(u32, Kind)> {
    let write = |page| Kind::Fault { page, flags: FaultFlags(FaultFlags::USER | FaultFlags::WRITE) };
    let anon = MapFlags(MapFlags::ANON);
    vec![
        (0, Kind::Exec { stack_end: 0x7_ffff_ffff, arg_pages: 1 }),
        (0, Kind::Area { start: 0x400, pages: 16, prot: RW, kind: AreaKind::Anon }),
        (0, Kind::Area { start: 0x7_fff0_0000, pages: 33, prot: RW, kind: AreaKind::Stack }),
        (0, write(0x400)),
        (0, Kind::Mmap { start: 0x10_0000, pages: 512, prot: RW, flags: anon }),
        (0, write(0x10_0000)),
        (0, Kind::Clone { child: 1, kind: CloneKind::Fork }),
        (1, write(0x10_0000)),
        (1, Kind::Munmap { start: 0x10_0000, pages: 512 }),
        (1, Kind::Truth { tables, at: Sampled::Exit }),
        (1, Kind::Exit { last: true }),
        (0, Kind::Idle),
        (0, Kind::Exit { last: true }),
    ]
}

fn file(name: &str, cpus: u16, kinds: &[(u32, Kind)]) -> Temporary {
    written(&Header::new(name, cpus, Method::Synthetic), kinds)
}

fn written(header: &Header, kinds: &[(u32, Kind)]) -> Temporary {
    let name = header.name();
    let mut w = Writer::new(Vec::new(), header, 3).expect("a good header");
    for &(task, kind) in kinds {
        // The writer refuses invalid events; only nonsense contains any.
        if let Err(e) = w.event(&Event { task, cpu: 0, kind }) {
            assert!(name.starts_with("nonsense"), "{kind:?}: {e}");
        }
    }
    Temporary::file(name, w.finish(0).expect("memory takes everything").0)
}

/// Runs `args` on a trace of these events.
fn on(name: &str, kinds: &[(u32, Kind)], args: &[&str]) -> Ran {
    ptarmigan(&[&["replay", file(name, 2, kinds).path()], args].concat())
}

#[test]
fn the_fixture_comes_out_as_linux_counted_it_on_every_policy() {
    let doc = json(&["replay", &shipped("fixture.ptrace"), "--sanitize", "--json"]);
    assert_eq!(doc["trace"]["lost"], 0);
    assert!(doc["trace"]["faults"].as_u64() > Some(100));
    let runs = doc["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 3);
    for run in runs {
        let truth = &run["truth"];
        assert!(truth["checked"].as_u64() > Some(5), "{run}");
        assert_eq!(truth["checked"], truth["equal"], "{run}");
        for level in ["pte", "pmd", "pud", "pgd"] {
            let l = &run["levels"][level];
            for key in ["allocs", "hits", "refills", "misses"] {
                assert!(l[key].is_u64(), "{level} {key}: {l}");
            }
            for key in ["total_ns", "min_ns", "mean_ns", "p50_ns", "p99_ns", "max_ns"] {
                assert!(l[key].is_number(), "{level} {key}: {l}");
            }
            assert!(l["min_ns"].as_f64() <= l["mean_ns"].as_f64(), "{level}: {l}");
            assert_eq!(l["allocs"], runs[0]["levels"][level]["allocs"], "all policies make the same tables");
        }
        for key in ["mean_alloc_ns", "events_per_s"] {
            assert!(run[key].as_f64() > Some(0.0), "{key}: {run}");
        }
        for key in ["peak_live_tables", "peak_table_bytes", "peak_cached_bytes", "cpus", "nodes"] {
            assert!(run[key].is_u64(), "{key}: {run}");
        }
        assert_eq!(run["flushes"], runs[0]["flushes"], "all policies flush alike");
        assert_eq!(run["sanitizer"]["ran"], true);
        let historic = run["policy"] == "v5";
        assert_eq!(run["sanitizer"]["findings"].as_u64() > Some(0), historic, "{run}");
    }
}

#[test]
fn only_historic_policies_have_findings_on_two_nodes() {
    let policies = ["--policy", "plain,v5,v2008,ptarmigan"];
    let args = ["replay", &shipped("fixture.ptrace"), "--nodes", "2", "--sanitize", "--json"];
    let doc = json(&[&args[..], &policies[..]].concat());
    let runs = doc["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 4);
    for run in runs {
        assert_eq!(run["nodes"], 2);
        let historic = run["policy"] == "v5" || run["policy"] == "v2008";
        let kinds = &run["sanitizer"]["kinds"];
        assert_eq!(kinds["free-before-flush"].as_u64() > Some(0), historic, "{run}");
    }
}

#[test]
fn historic_policies_run_per_number_of_lists_by_either_option() {
    for option in ["--historic-lists", "--v5-lists"] {
        let fixture = shipped("fixture.ptrace");
        let doc = json(&["replay", &fixture, "--policy", "v2008,ptarmigan", option, "1,3", "--json"]);
        let runs = doc["runs"].as_array().expect("runs");
        let lists: Vec<_> = runs.iter().map(|run| run["historic_lists"].as_u64()).collect();
        assert_eq!(lists, [Some(1), Some(3), None]);
        // With roots on a separate list, the cached pages differ for other levels. The number of
        // allocations is the same.
        for run in runs {
            assert_eq!(run["levels"]["pte"]["allocs"], runs[0]["levels"]["pte"]["allocs"], "{run}");
        }
    }
}

#[test]
fn every_sample_is_compared_and_a_wrong_one_is_seen() {
    // The child has three tables for the image and three for the stack. The tables of the area that
    // it unmapped are gone.
    for (tables, equal) in [(6, 1), (7, 0)] {
        let ran = on("truth", &forking(tables), &["--policy", "ptarmigan", "--json"]);
        assert_eq!(ran.status, Some(0), "{}", ran.err);
        let doc: Value = serde_json::from_str(&ran.out).expect("JSON");
        let truth = &doc["runs"][0]["truth"];
        assert_eq!((truth["checked"].as_u64(), truth["equal"].as_u64()), (Some(1), Some(equal)), "{truth}");
    }
}

#[test]
fn text_fits_80_columns_and_is_plain_in_a_pipe() {
    let ran = ptarmigan(&["replay", &shipped("fixture.ptrace"), "--sanitize"]);
    assert_eq!(ran.status, Some(0), "{}", ran.err);
    assert!(ran.out.contains("policy plain") && ran.out.contains("policy ptarmigan"), "{}", ran.out);
    for line in ran.out.lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
    }
    assert!(!ran.out.contains('\x1b') && ran.err.is_empty(), "{}", ran.err);
}

#[test]
fn several_traces_make_one_document() {
    let fixture = shipped("fixture.ptrace");
    let doc = json(&["replay", &fixture, &fixture, "--policy", "plain", "--json"]);
    assert_eq!(doc.as_array().map(Vec::len), Some(2));
}

/// A program asks for huge pages, forks, and gives parts of them back.
#[test]
fn large_pages_are_mapped_where_the_program_asked() {
    let write = |page| Kind::Fault { page, flags: FaultFlags(FaultFlags::USER | FaultFlags::WRITE) };
    let mut kinds = forking(6);
    let fork = kinds.iter().position(|(_, kind)| matches!(kind, Kind::Clone { .. })).expect("it forks");
    let anon = MapFlags(MapFlags::ANON);
    let asked = [
        Kind::Mmap { start: 0x20_0000, pages: 1024, prot: RW, flags: anon },
        Kind::Madvise { start: 0x20_0000, pages: 1024, advice: 14 },
        write(0x20_0000),
        write(0x20_0200),
    ];
    let at = fork - 2;
    kinds.splice(at..at, asked.map(|kind| (0, kind)));
    // What the child has more than without them: a table above, and one for each huge page.
    for (_, kind) in &mut kinds {
        if let Kind::Truth { tables, .. } = kind {
            *tables += 3;
        }
    }
    let trace = file("large", 2, &kinds);
    let run = |more: &[&str]| {
        let args = ["replay", trace.path(), "--policy", "ptarmigan", "--sanitize", "--json"];
        json(&[&args[..], more].concat())["runs"][0].clone()
    };
    let (small, large) = (run(&[]), run(&["--large-pages"]));
    assert!(small["large_pages"].is_null() && large["large_pages"] == 2, "{large}");
    for run in [&small, &large] {
        assert_eq!((&run["truth"]["checked"], &run["truth"]["equal"]), (&1.into(), &1.into()), "{run}");
        assert_eq!(run["sanitizer"]["findings"], 0, "{run}");
    }
    let tables = |run: &Value| run["peak_live_tables"].as_u64().expect("a count");
    assert!(tables(&large) < tables(&small), "tables in reserve take no memory");
}

/// A program gives a table's last page back, and later a whole table.
#[test]
fn empty_tables_go_back_by_the_rule() {
    let start = 0x20_0000;
    let map = Kind::Mmap { start, pages: 512, prot: RW, flags: MapFlags(MapFlags::ANON) };
    let write = Kind::Fault { page: start, flags: FaultFlags(FaultFlags::USER | FaultFlags::WRITE) };
    let give_up = |pages| Kind::Madvise { start, pages, advice: 4 };
    let kinds = [map, write, give_up(1), write, give_up(512), write, Kind::Exit { last: true }];
    let trace = file("empty", 1, &kinds.map(|kind| (0, kind)));
    let made = |more: &[&str]| {
        let args = ["replay", trace.path(), "--policy", "ptarmigan", "--sanitize", "--json"];
        let run = json(&[&args[..], more].concat())["runs"][0].clone();
        assert_eq!(run["sanitizer"]["findings"], 0, "{run}");
        run["levels"]["pte"]["allocs"].as_u64().expect("a count")
    };
    let rules = ["kept", "covered", "freed"].map(|rule| made(&["--empty-tables", rule]));
    assert_eq!((rules, made(&[])), ([1, 2, 3], 2));
}

#[test]
fn huge_pages_everywhere_spare_stacks_and_refused_areas() {
    let map = |start: u64, flags: u16| Kind::Mmap { start, pages: 512, prot: RW, flags: MapFlags(flags) };
    let first = |start| Kind::Fault { page: start, flags: FaultFlags(FaultFlags::USER | FaultFlags::WRITE) };
    let places: [(u64, u16, Option<u16>); 6] = [
        (0x20_0000, MapFlags::ANON, None),
        (0x30_0000, MapFlags::ANON | MapFlags::NO_HUGE, None),
        (0x40_0000, MapFlags::ANON, Some(15)),
        (0x50_0000, MapFlags::ANON | MapFlags::NO_HUGE, Some(14)),
        (0x60_0000, MapFlags::ANON | MapFlags::GROWSDOWN, None),
        (0x70_0000, MapFlags::ANON | MapFlags::SHARED, None),
    ];
    let mut kinds = Vec::new();
    for (start, flags, advice) in places {
        kinds.push((0, map(start, flags)));
        kinds.extend(advice.map(|advice| (0, Kind::Madvise { start, pages: 512, advice })));
        kinds.push((0, first(start)));
    }
    kinds.push((0, Kind::Exit { last: true }));
    let mut header = Header::new("everywhere", 1, Method::Synthetic);
    header.huge = HugePages::Always;
    let trace = written(&header, &kinds);
    let args = ["replay", trace.path(), "--policy", "ptarmigan", "--sanitize", "--json", "--large-pages"];
    let run = json(&args)["runs"][0].clone();
    // The first, and the one of a stack of which the program asks for them all the same.
    assert_eq!(run["large_pages"], 2, "{run}");
}

#[test]
fn data_frames_can_be_touched() {
    let ran = on("touch", &forking(6), &["--touch-data", "--sanitize", "--idle-zero", "9"]);
    assert_eq!(ran.status, Some(0), "{}", ran.err);
}

#[test]
fn frames_cleared_ahead_are_found_and_their_time_charged() {
    let fixture = shipped("fixture.ptrace");
    let args = ["replay", &fixture, "--touch-data", "--sanitize", "--policy", "plain,ptarmigan", "--json"];
    let lazy = json(&args);
    let doc = json(&[&args[..], &["--idle-zero", "64", "--use-lines", "8"]].concat());
    for (run, lazy) in
        doc["runs"].as_array().expect("runs").iter().zip(lazy["runs"].as_array().expect("runs"))
    {
        assert_eq!(run["sanitizer"]["findings"], 0);
        assert_eq!(run["truth"]["checked"], run["truth"]["equal"], "{run}");
        let count =
            |run: &Value, whose: &str, what: &str| run["zero"][whose][what].as_u64().expect("a count");
        for whose in ["faults", "zones"] {
            let [asked, found, then] = ["asked", "found", "cleared_then"].map(|what| count(run, whose, what));
            assert!(asked > 0 && asked == found + then, "{run}");
            assert!(count(run, whose, "cleared_ahead") <= asked, "{run}");
            assert_eq!(count(lazy, whose, "cleared_ahead"), 0, "{lazy}");
        }
        assert_eq!(count(run, "faults", "asked"), count(lazy, "faults", "asked"), "the same program");
        assert!(count(run, "faults", "found") > 0, "{run}");
        assert_eq!(count(lazy, "faults", "found"), 0, "nothing is cleared ahead without the option: {lazy}");
        let time = |what: &str| run["zero"]["times"][what].as_f64().expect("a number");
        assert!(time("ahead_ns") > 0.0 && time("without_ns") > 0.0, "{run}");
        assert!(time("total_ns") > time("replay_ns"), "{run}");
        assert!(lazy["zero"]["times"].is_null(), "{lazy}");
    }
    let plain = json(&["replay", &fixture, "--policy", "ptarmigan", "--json"]);
    assert!(plain["runs"][0]["zero"].is_null(), "without data and idle work there is nothing to say");
}

#[test]
fn text_of_frames_cleared_ahead_fits_80_columns() {
    let fixture = shipped("fixture.ptrace");
    let ran = ptarmigan(&["replay", &fixture, "--touch-data", "--idle-zero", "64", "--policy", "ptarmigan"]);
    assert_eq!(ran.status, Some(0), "{}", ran.err);
    assert!(ran.out.contains("cleared ahead") && ran.out.contains("x the time without"), "{}", ran.out);
    for line in ran.out.lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
    }
}

#[test]
#[ignore = "replays whole traces: cargo xtask ci tests-long"]
fn more_and_fewer_cpus_match_linux_under_the_sanitizer() {
    for cpus in ["1", "2", "8"] {
        let fixture = shipped("fixture.ptrace");
        let args = ["replay", &fixture, "--cpus", cpus, "--sanitize", "--seed", "3", "--json"];
        let doc = json(&args);
        for run in doc["runs"].as_array().expect("runs") {
            assert_eq!(run["cpus"].to_string(), cpus);
            assert_eq!(run["truth"]["checked"], run["truth"]["equal"], "{run}");
            let historic = run["policy"] == "v5";
            assert!(historic || run["sanitizer"]["findings"] == 0, "{run}");
            let workers = &run["workers"];
            if cpus == "1" {
                assert!(workers.is_null(), "one worker has no comparison: {run}");
                continue;
            }
            assert_eq!(workers["workers"].to_string(), cpus);
            for key in ["speed_up", "share", "events_per_s", "one_worker_events_per_s"] {
                assert!(workers[key].as_f64() > Some(0.0), "{key}: {run}");
            }
            // At most all workers at work all the time, at least one after the other.
            let ceiling = workers["ceiling"].as_f64().expect("a number");
            assert!((1.0..=8.0).contains(&ceiling), "{run}");
        }
    }
}

#[test]
fn copies_run_side_by_side_and_each_comes_out_right() {
    let fixture = shipped("fixture.ptrace");
    let one = json(&["replay", &fixture, "--policy", "ptarmigan", "--json"]);
    for (args, cpus) in [(&["--copies", "3"][..], 6), (&["--copies", "2", "--cpus", "3"], 6)] {
        let args = [&["replay", &fixture, "--policy", "ptarmigan", "--sanitize", "--json"], args].concat();
        let doc = json(&args);
        let (run, single) = (&doc["runs"][0], &one["runs"][0]);
        let copies = run["copies"]["copies"].as_u64().expect("copies");
        assert_eq!(run["cpus"], cpus);
        assert_eq!(run["sanitizer"]["findings"], 0);
        assert_eq!(run["truth"]["checked"].as_u64(), single["truth"]["checked"].as_u64().map(|n| n * copies));
        assert_eq!(run["truth"]["checked"], run["truth"]["equal"], "{run}");
        let allocs = |run: &Value| run["levels"]["pte"]["allocs"].as_u64().expect("a count");
        assert_eq!(allocs(run), copies * allocs(single));
        for key in ["events_per_s", "one_copy_events_per_s", "ratio", "ratio_by_processor_time"] {
            assert!(run["copies"][key].as_f64() > Some(0.0), "{key}: {run}");
        }
    }
}

#[test]
fn text_of_workers_and_copies_fits_80_columns() {
    let fixture = shipped("fixture.ptrace");
    let ran = ptarmigan(&["replay", &fixture, "--cpus", "100", "--copies", "2", "--policy", "plain"]);
    assert_eq!(ran.status, Some(0), "{}", ran.err);
    assert!(ran.out.contains("workers  100 on") && ran.out.contains("which they share"), "{}", ran.out);
    assert!(ran.out.contains("copies   2"), "{}", ran.out);
    for line in ran.out.lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
    }
}

#[test]
fn copies_that_do_not_fit_say_what_they_share() {
    let fixture = shipped("fixture.ptrace");
    let ran = ptarmigan(&["replay", &fixture, "--copies", "60", "--memory", "1M", "--policy", "plain"]);
    one_line(&ran, 1, "which all copies share");
}

fn one_line(ran: &Ran, status: i32, says: &str) {
    assert_eq!(ran.status, Some(status), "{}", ran.err);
    assert!(ran.err.contains(says), "{says:?} is not in {:?}", ran.err);
    assert!(!ran.err.contains("panicked"), "{}", ran.err);
    if status == 1 {
        assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    }
}

#[test]
fn bad_settings_are_one_line() {
    let fixture = shipped("fixture.ptrace");
    let with = |args: &[&str]| ptarmigan(&[&["replay", &fixture], args].concat());
    one_line(&with(&["--nodes", "0"]), 1, "1 to 64");
    one_line(&with(&["--nodes", "9999"]), 1, "1 to 64");
    for size in ["0", "1023K", "8193G", "16T", "99999T", "18446744073709551616"] {
        one_line(&with(&["--memory", size]), 2, "out of range: 1M to 8T");
    }
    one_line(&with(&["--memory", "much"]), 2, "a number of bytes");
    one_line(&with(&["--cpus", "0"]), 2, "1..=256");
    one_line(&with(&["--cpus", "257"]), 2, "1..=256");
    one_line(&with(&["--copies", "0"]), 2, "1..=256");
    one_line(&with(&["--cpus", "100", "--copies", "3"]), 1, "at most 256 CPUs in all");
    one_line(&ptarmigan(&["--cpus", "300"]), 2, "1..=256");
    one_line(&with(&["--historic-lists", "0"]), 2, "1..=3");
    one_line(&with(&["--use-lines", "2"]), 2, "--touch-data");
    one_line(&with(&["--touch-data", "--use-lines", "65"]), 2, "0..=64");
    one_line(&with(&["--v5-lists", "4"]), 2, "1..=3");
    one_line(&with(&["--policy", "best"]), 2, "plain, v2004, v5, v2008, ptarmigan");
    one_line(&with(&["--nodes", "60", "--memory", "1M"]), 1, "64 are the least");
    one_line(
        &with(&["--params", "quicklist=on quicklist=off"]),
        2,
        "`quicklist` at byte 13 was given before",
    );
    one_line(&with(&["--params", "tlb.model=best"]), 2, "none of linux, always-page, always-full");
    one_line(&ptarmigan(&["replay", "/nonexistent"]), 1, "/nonexistent");
    one_line(&ptarmigan(&["replay", &crate_file("Cargo.toml")]), 1, "not a trace");
}

#[test]
fn boot_parameters_change_the_machine() {
    let fixture = shipped("fixture.ptrace");
    let with = |params: &str| {
        let all = json(&["replay", &fixture, "--json", "--policy", "ptarmigan", "--params", params]);
        let policy = &all["runs"][0];
        let flushes = |kind: &str| policy["flushes"][kind].as_u64().expect(kind);
        (
            flushes("page"),
            flushes("range"),
            flushes("full"),
            policy["peak_cached_bytes"].as_u64().expect("bytes"),
        )
    };
    let (page, range, full, cached) = with("");
    assert!(page > 0 && range > 0 && full > 0 && cached > 0);
    assert_eq!(with("tlb.model=always-full"), (0, 0, page + range + full, cached));
    assert_eq!(with("tlb.model=linux,ceiling=1"), (page, 0, range + full, cached));
    assert_eq!(with("quicklist=off"), (page, range, full, 0));
}

#[test]
fn a_trace_cut_short_is_one_line() {
    let bytes = std::fs::read(shipped("fixture.ptrace")).expect("the fixture");
    let path = std::env::temp_dir().join(format!("ptarmigan-replay-cut-{}", std::process::id()));
    std::fs::write(&path, &bytes[..bytes.len() / 2]).expect("a temporary file");
    let ran = ptarmigan(&["replay", path.to_str().expect("a path in UTF-8")]);
    let _ = std::fs::remove_file(&path);
    one_line(&ran, 1, "truncated");
}

#[test]
fn a_machine_too_large_for_the_host_is_refused_at_once() {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = meminfo.lines().find_map(|line| {
        line.strip_prefix("MemAvailable:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    // Its frame records take 32 GiB.
    if available.is_none_or(|kb| kb >= 32 << 20) {
        eprintln!("skipped: this host can hold a machine of 8 TiB, or does not say");
        return;
    }
    let ran = ptarmigan(&["replay", "--memory", "8T", "/does/not/exist"]);
    one_line(&ran, 1, "--memory 8T: frame records take 1/256 of it, 32 GiB, and this host has ");
    assert!(ran.err.contains("left; give at most --memory "), "{}", ran.err);
}

#[test]
fn too_little_memory_names_the_process_and_loses_nothing() {
    let mut events = forking(6);
    let flags = FaultFlags(FaultFlags::USER | FaultFlags::WRITE);
    // The parent touches more than the machine has.
    let map = Kind::Mmap { start: 0x20_0000, pages: 4096, prot: RW, flags: MapFlags(MapFlags::ANON) };
    events.insert(7, (0, map));
    for i in 0..1000 {
        events.insert(8, (0, Kind::Fault { page: 0x20_0000 + i, flags }));
    }
    for policy in ["plain", "v5", "v2008", "ptarmigan"] {
        let stop = on(policy, &events, &["--memory", "1M", "--policy", policy]);
        one_line(&stop, 1, "process 0 got no memory");
        assert!(stop.out.is_empty(), "{}", stop.out);
        // The replay continues to its end, reports, and has every frame back.
        let on = on(policy, &events, &["--memory", "1M", "--policy", policy, "--keep-going"]);
        one_line(&on, 1, "process 0 got no memory");
        assert!(on.out.contains("memory ran out"), "{}", on.out);
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    reader_goes_away(&mut program(&["replay", &shipped("fixture.ptrace")]), 0);
}

/// Returns events that no program would cause, though each is valid by itself.
fn nonsense(seed: u64) -> Vec<(u32, Kind)> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut random = |below: u64| rng.u64(..below);
    let mut kinds = Vec::new();
    let mut alive = vec![0u32];
    let mut tasks = 1;
    while kinds.len() < 2500 && !alive.is_empty() {
        let at = random(alive.len() as u64) as usize;
        let task = alive[at];
        // Mostly around a few places, to make events collide; sometimes anywhere.
        let page = match random(8) {
            0 => random(1 << 52),
            1 => 0x7_ffff_ffff - random(64),
            n => n * 0x3_0000 + random(1200),
        };
        let pages = 1 + if random(20) == 0 { random(1 << 20) } else { random(700) };
        let pages = pages.min((1 << 52) - page);
        let prot = Prot(random(8) as u8);
        let kind = match random(34) {
            0 => Kind::Clone { child: tasks, kind: CloneKind::Fork },
            1 => Kind::Clone { child: tasks, kind: CloneKind::Vfork },
            2 => Kind::Clone { child: tasks, kind: CloneKind::Share },
            3 => Kind::Exec { stack_end: 0x7_ffff_ffff, arg_pages: random(40) as u32 },
            4 => Kind::Area { start: page, pages, prot, kind: AreaKind::Stack },
            5 => Kind::Area { start: page, pages, prot, kind: AreaKind::File },
            6 => Kind::Area { start: page, pages, prot, kind: AreaKind::Special },
            7 if alive.len() > 3 => Kind::Exit { last: random(2) == 0 },
            8 => Kind::Munmap { start: page, pages },
            9 => Kind::Brk { end: page },
            10 => {
                let to = (page + random(5000)).min((1 << 52) - 2000);
                let new_pages = 1 + random(900);
                Kind::Mremap { from: page, old_pages: pages, to, new_pages, keep: random(3) == 0 }
            }
            11 => Kind::Mprotect { start: page, pages, prot },
            12 => Kind::Madvise { start: page, pages, advice: random(26) as u16 },
            13 => Kind::Truth { tables: random(30) as u32, at: Sampled::Exit },
            14 => Kind::Idle,
            15..=18 => Kind::Mmap { start: page, pages, prot, flags: MapFlags(random(8192) as u16) },
            19 => Kind::Lock { start: page, pages, how: Locking(random(16) as u8 & 13) },
            20 => Kind::LockAll { how: Locking(random(8) as u8) },
            21 => Kind::StackLimit { pages: [0, 1, 2048, (1 << 52) - 1][random(4) as usize] },
            22 => {
                let flags = [0, 2, 4, 6, 12, 14, FaultFlags::HUGE][random(7) as usize];
                Kind::Touched { start: page, pages, flags: FaultFlags(flags) }
            }
            23 => {
                let call = match random(4) {
                    0 => FailedCall::Mprotect { start: page, pages, prot },
                    1 => FailedCall::Madvise { start: page, pages, advice: random(26) as u16 },
                    2 => FailedCall::Lock { start: page, pages, how: Locking(1) },
                    _ => FailedCall::Mremap { start: page, pages, to: page ^ 512, keep: random(2) == 0 },
                };
                Kind::Failed { errno: [12, 14, 22][random(3) as usize], call }
            }
            24 if random(8) == 0 => Kind::Name(Name::new("odd")),
            _ => Kind::Fault { page, flags: FaultFlags(random(32) as u8) },
        };
        match kind {
            Kind::Clone { .. } => {
                alive.push(tasks);
                tasks += 1;
            }
            Kind::Exit { .. } => {
                alive.swap_remove(at);
            }
            _ => {}
        }
        kinds.push((task, kind));
    }
    kinds
}

#[test]
fn nonsense_is_replayed_without_falling_over_or_losing_a_frame() {
    for seed in 1..=12 {
        let name = format!("nonsense{seed}");
        let ran =
            on(&name, &nonsense(seed), &["--memory", "16M", "--keep-going", "--sanitize", "--nodes", "2"]);
        assert!(!ran.err.contains("panicked") && !ran.err.contains("leaked"), "seed {seed}: {}", ran.err);
        assert!(
            !ran.err.contains("counted twice") && !ran.err.contains("sanitizer"),
            "seed {seed}: {}",
            ran.err
        );
        assert!(matches!(ran.status, Some(0 | 1)), "seed {seed}: {:?} {}", ran.status, ran.err);
        assert!(ran.out.contains("policy ptarmigan"), "seed {seed}: {} {}", ran.out, ran.err);
    }
}

/// Replays a fork between some events and others of its space. Linux counts so many tables in the
/// child, and in the parent at its end.
fn forked(name: &str, before: &[Kind], after: &[Kind], [child, parent]: [u32; 2]) -> String {
    let truth = |tables| Kind::Truth { tables, at: Sampled::Exit };
    let mut events = vec![(0, Kind::Exec { stack_end: 0x7_ffff_ffff, arg_pages: 1 })];
    events.extend(before.iter().map(|kind| (0, *kind)));
    events.push((0, Kind::Clone { child: 1, kind: CloneKind::Fork }));
    events.extend([(1, truth(child)), (1, Kind::Exit { last: true })]);
    events.extend(after.iter().chain([&truth(parent), &Kind::Exit { last: true }]).map(|kind| (0, *kind)));
    let ran = on(name, &events, &["--policy", "plain", "--cpus", "1"]);
    assert_eq!(ran.status, Some(0), "{}", ran.err);
    ran.out
}

#[test]
fn a_fault_that_waits_has_made_its_table_before() {
    let mmap = |start, pages| {
        let flags = MapFlags(MapFlags::ANON | MapFlags::FIXED);
        Kind::Mmap { start, pages, prot: Prot(3), flags }
    };
    let fault = |page| Kind::Fault { page, flags: FaultFlags(FaultFlags::WRITE | FaultFlags::USER) };
    // The first area has a page in one table, and shares another one with the second area.
    let base = 1 << 20;
    let alone = Kind::Mprotect { start: base + 768, pages: 256, prot: Prot(7) };
    let areas = [mmap(base, 1024), alone, fault(base)];
    let waiting = Kind::Touched { start: base + 800, pages: 1, flags: FaultFlags::WAITING };
    for (waits, child) in [(&[waiting][..], 7), (&[], 6)] {
        let out = forked("waits", &[&areas, waits].concat(), &[fault(base + 800)], [child, 7]);
        assert!(out.contains("in 2 of 2 samples"), "{waits:?}: {out}");
    }
}

#[test]
fn pages_of_a_call_come_where_the_trace_says() {
    let (start, pages) = (1 << 20, 4);
    let populated = Kind::Touched { start, pages, flags: FaultFlags::POPULATED };
    let anon = MapFlags::ANON | MapFlags::FIXED;
    let mmap = |flags| Kind::Mmap { start, pages, prot: Prot(3), flags: MapFlags(anon | flags) };
    let lock = |how| Kind::Lock { start, pages, how: Locking(Locking::NOW | how) };
    for (later, before) in [
        (true, &[mmap(MapFlags::POPULATE | MapFlags::LATER)][..]),
        (false, &[mmap(MapFlags::POPULATE)]),
        (true, &[mmap(0), lock(Locking::LATER)]),
        (false, &[mmap(0), lock(0)]),
    ] {
        let after = if later { &[populated][..] } else { &[] };
        let out = forked("later", before, after, [if later { 3 } else { 6 }, 6]);
        assert!(out.contains("in 2 of 2 samples"), "{before:?}: {out}");
    }
}
