//! Output for others: `report --share` and `advise --share` are as of the copy of `inspect
//! --share`. The rows by mapping and by function of a report.
use crate::program::{Temporary, ptarmigan};
use crate::report::{Dir, header};
use ptarmigan_trace::{
    Call, Cause, CloneKind, Event, FaultFlags, Kind, MapFlags, Name, Note, Object, Place, Prot, Writer,
};

/// First page of the mapping.
const BASE: u64 = 0x800_0000;
/// Names of files and functions that a copy for others has not.
const SECRETS: [&str; 7] =
    ["load_rows", "store.c", "cache.db", "secretd", "start_worker", "work.c", "main_loop"];

/// Writes a trace of a program that fills 8 MiB of shared memory and forks, with names of all files
/// and functions.
fn named(dir: &Dir) -> String {
    let file = dir.path("named.ptrace");
    let mut writer = Writer::new(Vec::new(), &header("run"), 3).expect("a header");
    let [load, store, cache, module, start, work, main] =
        SECRETS.map(|text| writer.text(text).expect("a text"));
    let mut place = |function, file, line, caller| {
        let (function, file, module) = (Some(function), Some(file), Some(module));
        Some(writer.place(Place { function, file, line, module, caller }).expect("a place"))
    };
    let main = place(main, store, 90, None);
    let (load, start) = (place(load, store, 12, main), place(start, work, 34, main));
    let note = Kind::Note;
    let caller = |cause, page, events, place| note(Note::Caller { cause, page, events, place });
    let exec = Kind::Exec { stack_end: 0x7_ffff_ffff, arg_pages: 1 };
    let (flags, object) = (MapFlags(MapFlags::ANON), Object::SharedMemory);
    let mut kinds = vec![
        exec,
        Kind::Name(Name::new("app")),
        Kind::Mmap { start: BASE, pages: 2048, prot: Prot(Prot::READ | Prot::WRITE), flags },
        note(Note::Mapped { start: BASE, pages: 2048, object, name: Some(cache) }),
    ];
    let write = FaultFlags(FaultFlags::USER | FaultFlags::WRITE);
    kinds.extend((0..2048).map(|page| Kind::Fault { page: BASE + page, flags: write }));
    kinds.extend([
        caller(Cause::Fault, BASE, 300, load),
        caller(Cause::Fault, BASE, 100, None),
        caller(Cause::Call(Call::Fork), 0, 1, start),
        Kind::Clone { child: 1, kind: CloneKind::Fork },
        note(Note::Took { call: Call::Fork, nanos: 1_250_000_000, away: 0 }),
    ]);
    let mut micros = 0;
    let mut add = |task, kind| {
        micros += 100;
        writer.time(micros).expect("a time");
        writer.event(&Event { task, cpu: 0, kind }).expect("an event");
    };
    kinds.into_iter().for_each(|kind| add(0, kind));
    let exit = Kind::Exit { last: true };
    [(1, exec), (1, exit), (0, exit)].into_iter().for_each(|(task, kind)| add(task, kind));
    std::fs::write(&file, writer.finish(0).expect("a trace").0).expect("a temporary file");
    file
}

/// Writes the copy for others.
fn copy(dir: &Dir, file: &str) -> String {
    let copy = dir.path("copy.ptrace");
    ptarmigan(&["inspect", file, "--share", &copy]).good();
    copy
}

#[track_caller]
fn check(shared: &str, of_copy: &str, plain: &str, secrets: &[&str]) {
    assert_eq!(shared, of_copy);
    // Markdown marks underscores.
    let [shared, plain] = [shared, plain].map(|text| text.replace('\\', ""));
    for secret in SECRETS {
        assert!(!shared.contains(secret), "{secret}: {shared}");
    }
    for secret in secrets {
        assert!(plain.contains(secret), "{secret} is not in the output for its owner: {plain}");
    }
}

#[test]
fn advice_for_others_is_that_of_the_copy_for_others() {
    let dir = Dir::new("share-advise");
    let file = named(&dir);
    let copy = copy(&dir, &file);
    let secrets = ["load_rows", "store.c", "cache.db"];
    let advise =
        |file: &str, more: &[&str]| ptarmigan(&[&["advise", file, "--rounds", "0"], more].concat()).good();
    // The time of the replay stands before the notes, and differs in each run.
    let advice = |text: &str| text.split_once("\nNote:").expect("notes").1.to_owned();
    let (shared, plain) = (advise(&file, &["--share"]), advise(&file, &[]));
    check(&advice(&shared), &advice(&advise(&copy, &[])), &plain, &secrets);
    let (shared, plain) = (advise(&file, &["--share", "--json"]), advise(&file, &["--json"]));
    let advice = |text: &str| -> Vec<serde_json::Value> {
        let json: serde_json::Value = serde_json::from_str(text).expect("JSON");
        let pieces = json["traces"][0]["advice"].as_array().expect("pieces").clone();
        // The rest has the times of replays.
        let told =
            |piece: &serde_json::Value| ["title", "how", "places", "caller"].map(|key| piece[key].clone());
        pieces.iter().flat_map(told).collect()
    };
    assert_eq!(advice(&shared), advice(&advise(&copy, &["--json"])));
    assert!(!advice(&shared).is_empty(), "{shared}");
    check(&shared, &shared, &plain, &secrets);
    // The second recording has names, too.
    let check = ["--rounds", "0", "--share", "--check"];
    let second = Temporary::file("second.ptrace", std::fs::read(&file).expect("the trace"));
    let said = ptarmigan(&[&["advise", &file], &check[..], &[second.path()]].concat()).good();
    assert!(SECRETS.iter().all(|secret| !said.contains(secret)), "{said}");
}

#[test]
fn a_report_for_others_is_that_of_the_copy_for_others() {
    let dir = Dir::new("share-report");
    let file = named(&dir);
    let copy = copy(&dir, &file);
    let write = |name: &str, file: &str, more: &[&str]| {
        let path = |end: &str| dir.path(&format!("{name}{end}"));
        let (page, card, data) = (path(".html"), path(".svg"), path(""));
        let markdown = format!("--markdown={}", path(".md"));
        let args = ["report", file, "-o", &page, "--summary", &card, "--data", &data, &markdown];
        ptarmigan(&[&args, more].concat()).good();
    };
    write("shared", &file, &["--share"]);
    write("copy", &copy, &[]);
    write("plain", &file, &[]);
    let all = |end: &str| ["shared", "copy", "plain"].map(|name| dir.read(&format!("{name}{end}")));
    let [shared, of_copy, plain] = all(".md");
    check(&shared, &of_copy, &plain, &["load_rows", "store.c", "cache.db", "start_worker", "work.c"]);
    for end in [".svg", "/where.csv", "/functions.csv", "/live-by-program.csv", "/timeline.json"] {
        let [shared, of_copy, _] = all(end);
        check(&shared, &of_copy, "", &[]);
    }
    // The rest has times of the policies, which differ in each run.
    for end in [".html", "/report.json"] {
        let [shared, _, plain] = all(end);
        check(&shared, &shared, &plain, &SECRETS);
    }
    let parts = |html: &str| -> Vec<String> {
        let parts = html.split("<section id=\"").skip(1);
        let parts = parts.map(|part| part.split("</section>").next().unwrap_or_default().to_owned());
        parts.filter(|part| ["policies", "latency"].iter().all(|id| !part.starts_with(id))).collect()
    };
    let [shared, of_copy, _] = all(".html");
    assert_eq!(parts(&shared), parts(&of_copy));
}

#[test]
fn rows_by_mapping_and_by_function_are_those_of_inspect() {
    let dir = Dir::new("where");
    let file = named(&dir);
    let args = ["report", &file, "-o", &dir.path("page.html"), "--data", &dir.path("data")];
    ptarmigan(&[&args[..], &["--advice", "none"]].concat()).good();
    let inspected = ptarmigan(&["inspect", &file, "--json"]).json();
    let work = &dir.json("data/report.json")["traces"][0]["work"];
    for rows in ["mappings", "functions"] {
        let mut of_report = work[rows].clone();
        for row in of_report.as_array_mut().expect("rows") {
            // Tables are the replay's.
            let tables = row.as_object_mut().and_then(|row| row.remove("tables"));
            assert_eq!(tables.is_some(), rows == "mappings", "{row}");
        }
        assert_eq!(of_report, inspected[rows]);
        assert!(of_report.as_array().is_some_and(|rows| !rows.is_empty()));
    }
    let html = dir.read("page.html");
    for text in [
        "<h2>Where: 100\u{a0}% of faults in app: shared memory cache.db of 8 MiB <a",
        "<tr><td>app: shared memory cache.db of 8 MiB</td><td>2,048</td><td>100 %</td><td>4</td><td>0x8000000000</td></tr>",
        "<h2>By function: 75\u{a0}% of faults by app: load_rows (store.c:12) in secretd <a",
        "<tr><td>app: load_rows (store.c:12) in secretd</td><td>1,536</td><td>75 %</td></tr>",
        "<tr><td>app: caller unknown</td><td>512</td><td>25 %</td></tr>",
        "<h3>forks by caller</h3>",
        "<tr><td>app: start_worker (work.c:34) in secretd</td><td>1</td><td>100 %</td><td>1.250</td></tr>",
    ] {
        assert!(html.contains(text), "{text}");
    }
    let place = |id: &str| html.find(&format!("<section id=\"{id}\">")).expect("the part");
    assert!(place("where") < place("functions") && place("functions") < place("live"));
    let csv = dir.read("data/functions.csv");
    assert!(csv.contains(",app,fault,load_rows,secretd,store.c,12,main_loop,1536,0.75,"), "{csv}");
    let markdown = ptarmigan(&["report", &file, "--markdown"]).good();
    assert!(
        markdown
            .contains("\n- 100 % of forks by caller: app: start\\_worker (work.c:34) in secretd, 1.2 s\n"),
        "{markdown}"
    );
}

#[test]
fn many_rows_are_folded_and_bounded() {
    let dir = Dir::new("folded-rows");
    let mut kinds = vec![(0, Kind::Exec { stack_end: 0x7_ffff_ffff, arg_pages: 1 })];
    let maps = (1..=400).map(|n| (0, crate::report::anon(BASE + (n << 12), n)));
    kinds.extend(maps);
    kinds.extend((1..=400).map(|n| (0, crate::report::write(BASE + (n << 12)))));
    kinds.push((0, Kind::Exit { last: true }));
    let file = crate::report::trace(&dir, "many.ptrace", &header("many"), &kinds, true, 0);
    ptarmigan(&["report", &file, "-o", &dir.path("page.html"), "--advice", "none"]).good();
    let html = dir.read("page.html");
    let part = html.split("<section id=\"where\">").nth(1).and_then(|rest| rest.split("</section>").next());
    let part = part.expect("the part");
    assert!(part.contains("<summary>20 more of 195</summary>"), "{part}");
    assert_eq!(part.matches("<tr><td>").count(), 25);
}
