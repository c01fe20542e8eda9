//! The page of `report`, with the built program: its parts, links, advice and data.
use crate::program::{crate_file, json, shipped};
use crate::report::{Dir, anon, header, program, report, trace, write};
use ptarmigan_trace::{Call, CloneKind, Kind, Name, Note};
use std::collections::BTreeSet;

/// Returns the page about traces.
fn page(dir: &Dir, args: &[&str]) -> String {
    let ran = report(&[args, &["-o", &dir.path("page.html")]].concat());
    assert_eq!(ran.status, Some(0), "{}", ran.err);
    dir.read("page.html")
}

/// Returns what stands between two texts, wherever they stand.
fn between<'a>(html: &'a str, from: &str, to: &str) -> Vec<&'a str> {
    html.split(from).skip(1).map(|rest| rest.split(to).next().expect("a part")).collect()
}

fn section<'a>(html: &'a str, id: &str) -> &'a str {
    let found = between(html, &format!("<section id=\"{id}\">"), "</section>");
    found.first().unwrap_or_else(|| panic!("no {id}"))
}

/// A task that starts `programs` others one after the other, each with `pages` pages.
fn starts(programs: u32, pages: u64, name: impl Fn(u32) -> String) -> Vec<(u32, Kind)> {
    let mut kinds = vec![
        (0, Kind::Exec { stack_end: 0x7_ffff_ffff, arg_pages: 1 }),
        (0, Kind::Name(Name::new("large"))),
        (0, anon(0x10_0000, 512 * 200)),
    ];
    kinds.extend((0..200).map(|n| (0, write(0x10_0000 + 512 * n))));
    for child in 1..=programs {
        kinds.extend([
            (0, Kind::Clone { child, kind: CloneKind::Vfork }),
            (child, Kind::Exec { stack_end: 0x7_ffff_ffff, arg_pages: 1 }),
            (child, Kind::Name(Name::new(&name(child)))),
            (child, anon(0x20_0000, 512 * pages)),
        ]);
        kinds.extend((0..pages).map(|n| (child, write(0x20_0000 + 512 * n))));
        kinds.push((child, Kind::Exit { last: true }));
    }
    kinds.push((0, Kind::Exit { last: true }));
    kinds
}

#[test]
fn every_link_has_a_target_and_headings_skip_no_level() {
    let dir = Dir::new("links");
    let made = trace(&dir, "made.ptrace", &header("made"), &program(), true, 0);
    for traces in [&[shipped("fixture.ptrace")][..], &[shipped("fixture.ptrace"), made]] {
        let traces: Vec<&str> = traces.iter().map(String::as_str).collect();
        let html = page(&dir, &traces);
        let ids = between(&html, " id=\"", "\"");
        let unique: BTreeSet<&str> = ids.iter().copied().collect();
        assert_eq!(unique.len(), ids.len(), "{ids:?}");
        let links = between(&html, "href=\"#", "\"");
        assert!(links.len() > 20, "{links:?}");
        for link in &links {
            assert!(unique.contains(link), "#{link} leads nowhere");
        }
        // The contents have every part that is not above them.
        let contents: Vec<&str> = between(&html, "<nav", "</nav>");
        let listed: BTreeSet<&str> = between(contents[0], "href=\"#", "\"").into_iter().collect();
        let parts = between(&html, "<section id=\"", "\"").into_iter().filter(|id| *id != "advice");
        assert_eq!(parts.chain(["kernel"]).collect::<BTreeSet<_>>(), listed);
        let mut last = 0;
        for (at, _) in html.match_indices("<h") {
            let Some(level) = html[at + 2..].chars().next().and_then(|c| c.to_digit(10)) else { continue };
            assert!(level <= last + 1, "a heading of level {level} after one of {last}");
            last = level;
        }
        assert_eq!(html.matches("<h1>").count(), 1);
        // Every picture says what it shows.
        for picture in between(&html, "<svg ", ">") {
            let label = between(picture, "aria-label=\"", "\"");
            assert!(
                picture.contains("role=\"img\"") && label.iter().all(|label| label.len() > 8),
                "{picture}"
            );
        }
    }
}

#[test]
fn parts_for_kernel_developers_are_folded_and_printed() {
    let dir = Dir::new("folded");
    let html = page(&dir, &[&shipped("fixture.ptrace"), "--advice", "none"]);
    let folded = between(&html, "<details id=\"kernel\">", "</details>");
    assert_eq!(between(folded[0], "<section id=\"", "\""), ["policies", "latency", "kept"]);
    // Rows of mappings are folded, too.
    assert_eq!((html.matches("<details id=").count(), html.matches(" open").count()), (1, 0));
    let print = html.split("@media print").nth(1).expect("rules for paper");
    assert!(print.contains("details::details-content { content-visibility: visible"), "{print}");
}

#[test]
fn words_have_a_tooltip_and_an_entry() {
    let dir = Dir::new("words");
    let html = page(&dir, &[&shipped("fixture.ptrace"), "--advice", "none"]);
    let glossary = section(&html, "glossary");
    for word in ["leaf table", "VmPTE", "TLB", "policy", "depot"] {
        assert!(glossary.contains(&format!("<dt>{word}</dt>")), "{word}");
    }
    let marked = between(section(&html, "fullness"), "<abbr title=\"", "\"");
    assert!(marked.iter().any(|title| title.starts_with("a table of the last level")), "{marked:?}");
    assert!(section(&html, "policies").contains("href=\"#word-depot\"><abbr"));
}

#[test]
fn advice_is_that_of_the_command_in_short() {
    let dir = Dir::new("advice");
    let sparse = crate_file("tests/advise/sparse.ptrace");
    let advice = json(&["advise", &sparse, "--rounds", "0", "--json"])["traces"][0]["advice"].clone();
    let titles: Vec<&str> =
        advice.as_array().expect("advice").iter().filter_map(|piece| piece["title"].as_str()).collect();
    assert!(!titles.is_empty());
    let html = page(&dir, &[&sparse]);
    let part = section(&html, "advice");
    assert!(html.find("id=\"advice\"") < html.find("<dl class=\"facts\""), "it stands at the top");
    for title in titles.iter().take(3) {
        // The first letter is a capital.
        assert!(part.contains(&title[1..]), "{title}: {part}");
    }
    assert_eq!(part.matches("<li>").count(), titles.len().min(3), "{part}");
    let none = page(&dir, &[&sparse, "--advice", "none"]);
    assert!(!none.contains("id=\"advice\""));
    // Standard input is read once, for advice, too.
    let mut command = crate::program::program(&["report", "-", "-o", "-"]);
    command.stdin(std::fs::File::open(&sparse).expect("the trace"));
    let ran = crate::program::run(&mut command);
    assert!(section(&ran.out, "advice").contains(&titles[0][1..]), "{}", ran.err);
}

/// Returns the CSV behind the links of a section.
fn behind(html: &str, id: &str) -> Vec<String> {
    let decode = |text: &str| {
        let mut bytes = Vec::new();
        let mut rest = text.as_bytes();
        while let [first, tail @ ..] = rest {
            rest = tail;
            bytes.push(*first);
            if let ([b'%'], [high, low, tail @ ..]) = (&[*first], tail) {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).expect("two digits");
                *bytes.last_mut().expect("a byte") = u8::from_str_radix(digits, 16).expect("two digits");
                rest = tail;
            }
        }
        String::from_utf8(bytes).expect("UTF-8")
    };
    let links = between(section(html, id), "href=\"data:text/csv;charset=utf-8,", "\"");
    links.into_iter().map(decode).collect()
}

#[test]
fn each_picture_links_its_data_which_equals_the_files() {
    let dir = Dir::new("behind");
    let made = trace(&dir, "made.ptrace", &header("a,\"b\""), &program(), true, 0);
    let html = page(&dir, &[&made, "--data", &dir.path("data"), "--advice", "none"]);
    for id in ["where", "fullness", "lifetimes", "causes", "policies", "latency"] {
        assert_eq!(behind(&html, id), [dir.read(&format!("data/{id}.csv"))], "{id}");
    }
    let figures = dir.json("data/report.json")["traces"][0].clone();
    let points = figures["live"]["points"].as_array().expect("points");
    for (id, key) in [("live", "levels"), ("programs", "programs")] {
        let csv = behind(&html, id).concat();
        let rows: Vec<&str> = csv.lines().skip(1).collect();
        assert_eq!(rows.len(), points.len(), "{csv}");
        for (row, point) in rows.iter().zip(points) {
            let values = point[key].as_array().expect("values").iter();
            let values: Vec<String> =
                [&point["at"]].into_iter().chain(values).map(|v| v.to_string()).collect();
            assert_eq!(*row, values.join(","), "{id}");
        }
    }
    assert!(behind(&html, "live")[0].starts_with("at_us,pte,pmd,pud,pgd\n"));
    assert!(behind(&html, "programs")[0].lines().next().is_some_and(|line| line.contains(",first")));
    let ours: Vec<String> = behind(&html, "flushes")[0].lines().skip(1).map(str::to_owned).collect();
    let all: u64 = ours
        .iter()
        .flat_map(|row| row.split(',').skip(1).take(3))
        .filter_map(|n| n.parse::<u64>().ok())
        .sum();
    let total = &figures["flushes"]["ours"];
    let total = ["page", "range", "full"].map(|size| total[size].as_u64().expect("a count"));
    assert_eq!(all, total.iter().sum::<u64>());
    assert!(
        behind(&html, "kept")[0]
            .starts_with("at_us,plain bytes,v5 (2) bytes,ptarmigan bytes,bytes in tables\n")
    );
    // A link for each of two traces.
    let html = page(&dir, &[&made, &shipped("fixture.ptrace"), "--advice", "none"]);
    assert_eq!(behind(&html, "live").len(), 2);
}

#[test]
fn programs_too_low_to_draw_are_one_line() {
    let dir = Dir::new("low");
    let kinds = starts(5, 1, |n| ["<expr>", "grep", "ls", "cat", "tr"][n as usize - 1].to_owned());
    let html = page(&dir, &[&trace(&dir, "low.ptrace", &header("low"), &kinds, true, 0), "--advice", "none"]);
    let part = section(&html, "programs");
    let line = between(part, "<p class=\"note\">Too low to draw, with at most ", ".</p>");
    assert_eq!(line.len(), 1, "{part}");
    for name in ["&lt;expr&gt;", "grep", "ls", "cat", "tr"] {
        assert!(line[0].contains(name), "{name}: {line:?}");
        assert!(!part.contains(&format!("class=\"t\">{name}</text>")), "{name} is drawn");
    }
    assert_eq!(part.matches("class=\"t\">large</text>").count(), 4, "in each width");
    // As many tables as the others: all are drawn.
    let kinds = starts(2, 180, |n| format!("other{n}"));
    let html =
        page(&dir, &[&trace(&dir, "high.ptrace", &header("high"), &kinds, true, 0), "--advice", "none"]);
    assert!(!html.contains("Too low to draw"));
    assert_eq!(section(&html, "programs").matches("class=\"t\">other2</text>").count(), 4);
}

#[test]
fn a_thousand_programs_and_no_events_have_bounded_pages() {
    let dir = Dir::new("many");
    let kinds = starts(1000, 2, |n| format!("<p{n}> \"&|"));
    let many = trace(&dir, "many.ptrace", &header(&"long".repeat(60)), &kinds, true, 0);
    let html = page(&dir, &[&many]);
    assert!(html.len() < 1 << 20, "{} bytes", html.len());
    assert!(!html.contains("<p1>"), "a name is text");
    let empty = trace(&dir, "empty.ptrace", &header(""), &[], false, 0);
    let html = page(&dir, &[&empty]);
    assert!(html.contains("<h1>Table pages: (no name)</h1>") && !html.contains("NaN"), "{html}");
}

#[test]
fn timelines_name_their_recording_and_omit_absent_calls() {
    let dir = Dir::new("times");
    let with = |name: &str, call: Option<Call>| {
        let mut kinds = program();
        let took = |call| (0, Kind::Note(Note::Took { call, nanos: 4_000_000, away: 0 }));
        kinds.splice(6..6, call.map(took));
        trace(&dir, &format!("{name}.ptrace"), &header(name), &kinds, true, 0)
    };
    let (fork, vfork) = (with("one", Some(Call::Fork)), with("two", Some(Call::Vfork)));
    let row = |html: &str, what: &str| {
        between(html, &format!("<tr><td>{what}</td>"), "</tr>").first().map(|row| (*row).to_owned())
    };
    let html = page(&dir, &[&fork, &vfork, "--advice", "none"]);
    for line in ["<b>A · one: ", "<b>B · two: "] {
        assert!(html.contains(line), "{line}: {html}");
    }
    let expected = "<td>4 ms in 1</td><td>none</td><td>–</td>";
    assert_eq!(row(&html, "forks").as_deref(), Some(expected), "B has times, and no fork");
    assert_eq!(row(&html, "CPU time"), None, "neither has it");
    let html = page(&dir, &[&fork, &with("three", None), "--advice", "none"]);
    let expected = "<td>4 ms in 1</td><td>not recorded</td><td>–</td>";
    assert_eq!(row(&html, "forks").as_deref(), Some(expected), "B has no times of calls");
    assert_eq!(between(&html, "Each bar counts the flushes in one of ", " equal").len(), 1);
    assert!(!html.contains(" (A) and 320 (B)"), "as many parts for both");
}
