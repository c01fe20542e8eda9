//! `report --markdown` and `report --summary`, with the built program.
use crate::program::{crate_file, reader_goes_away, shipped};
use crate::report::{Dir, header, one_line, program, report, trace};

fn markdown(traces: &[&str]) -> String {
    let ran = report(&[traces, &["--markdown"]].concat());
    assert_eq!((ran.status, ran.err.as_str()), (Some(0), ""));
    ran.out
}

#[test]
fn a_comment_has_line_table_and_advice_and_is_stable() {
    let dir = Dir::new("comment");
    let sparse = crate_file("tests/advise/sparse.ptrace");
    let text = markdown(&[&sparse]);
    assert!(text.starts_with("### Page tables: "), "{text}");
    assert!(text.contains("page fault") && text.contains("| table pages made | "), "{text}");
    assert!(text.contains("**What would help**\n\n1. **"), "{text}");
    let folded = text.matches("   <details><summary>How</summary>\n\n   How: ").count();
    assert!(folded > 0 && folded == text.matches("   Not measured: ").count(), "{text}");
    assert_eq!(folded, text.matches("   </details>\n").count(), "{text}");
    assert_eq!(text, markdown(&[&sparse]));
    // No page is written beside it, and a page if one is named.
    let file = dir.path("comment.md");
    let ran = report(&[&sparse, &format!("--markdown={file}"), "-o", &dir.path("page.html")]);
    assert_eq!((ran.status, dir.read("comment.md")), (Some(0), text));
    assert_eq!(dir.names(), ["comment.md", "page.html"]);
    let columns = |row: &str| row.matches(" | ").count();
    let both = markdown(&[&sparse, &crate_file("tests/advise/sparse_mended.ptrace")]);
    assert!(both.contains("|  | A | B | from A to B |\n|---|--:|--:|--:|\n"), "{both}");
    assert!(both.contains(", better |") && both.contains("**What would help for A**"), "{both}");
    let rows: Vec<&str> = both.lines().filter(|line| line.starts_with("| ")).collect();
    assert!(rows.len() > 5 && rows.iter().all(|row| columns(row) == 3), "{rows:?}");
}

#[test]
fn names_are_text_in_a_comment_and_on_a_card() {
    let dir = Dir::new("text");
    let name = "a|b`c`<i>*x* @user #12 \u{1}http://host";
    let odd = trace(&dir, "odd.ptrace", &header(name), &program(), true, 3);
    let text = markdown(&[&odd]);
    for markup in ["a|b", "<i>", "*x*", "@user", "#12", "\u{1}", "://", "`c`"].map(str::to_owned) {
        let own = text.replace("\\`", "").replace("\\*", "").replace("\\|", "");
        assert!(!own.contains(&markup), "{markup}: {text}");
    }
    assert!(text.contains("> Lossy recording"), "{text}");
    let card = dir.path("card.svg");
    let ran = report(&[&odd, "--summary", &card]);
    assert_eq!(ran.status, Some(0), "{}", ran.err);
    let svg = dir.read("card.svg");
    assert!(svg.contains("a|b`c`&lt;i&gt;*x*") && !svg.contains("<i>") && !svg.contains('\u{1}'), "{svg}");
    assert!(svg.contains("Events were lost in recording"), "{svg}");
}

#[test]
fn a_comment_is_short_for_many_traces_and_programs() {
    let dir = Dir::new("long");
    let name = "*_`|".repeat(60);
    let long = trace(&dir, "long.ptrace", &header(&name), &program(), true, 3);
    let text = markdown(&[&long[..]; 20]);
    assert!(text.len() < 65_536, "{} bytes", text.len());
    assert!(text.contains("4 more traces are left out."), "{text}");
    let empty = trace(&dir, "empty.ptrace", &header(""), &[], false, 0);
    assert!(markdown(&[&empty]).starts_with("### Page tables: (no name)\n"));
}

#[test]
fn a_card_has_the_picture_the_numbers_and_a_line_of_advice() {
    let dir = Dir::new("card");
    let (sparse, mended) =
        (crate_file("tests/advise/sparse.ptrace"), crate_file("tests/advise/sparse_mended.ptrace"));
    let made = trace(&dir, "made.ptrace", &header("made"), &program(), true, 0);
    // Of all formats of traces, one and two of them.
    for traces in [&[&sparse[..]][..], &[&sparse, &mended], &[&shipped("fixture.ptrace")], &[&made]] {
        let ran = report(&[traces, &["--summary", &dir.path("card.svg")]].concat());
        assert_eq!(ran.status, Some(0), "{}", ran.err);
        let svg = dir.read("card.svg");
        let start = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1200 630\" width=\"1200\" height=\"630\"";
        assert!(svg.starts_with(start) && svg.ends_with("</svg>\n"), "{svg}");
        assert_eq!(svg.matches("<svg ").count(), 1 + traces.len(), "a picture of each trace");
        assert_eq!(svg.matches("</svg>").count(), 1 + traces.len());
        assert_eq!((svg.matches("class=\"value").count(), svg.matches("class=\"what\"").count()), (3, 3));
        assert_eq!(svg.matches("class=\"advice\"").count(), 1);
        for absent in ["var(--", "http://", "https://", "NaN", "href"] {
            assert!(
                !svg.replace(start, "").replace("xmlns=\"http://www.w3.org/2000/svg\"", "").contains(absent),
                "{absent}"
            );
        }
    }
    assert_eq!(dir.names(), ["card.svg", "made.ptrace"], "no page");
}

#[test]
fn bad_places_are_one_line_and_nothing_is_written() {
    let dir = Dir::new("places");
    let fixture = shipped("fixture.ptrace");
    let fails = |args: &[&str], says: &str| one_line(&report(&[&[&fixture[..]], args].concat()), 1, says);
    fails(&["--summary", &dir.path("card.png")], "the card is SVG; name a file that ends with .svg");
    fails(&["--summary", &dir.path("missing/card.svg")], "cannot be written");
    fails(&["--markdown=/dev/null"], "a device; name a regular file");
    fails(&["--markdown", "-o", "-"], "- twice: standard output takes one document");
    fails(&["--markdown", &dir.path("comment.md")], "not a trace; write --markdown=");
    let same = dir.path("same.svg");
    fails(&["-o", &same, "--summary", &same], "named for two documents");
    // A page that could be written is not, if the card cannot.
    fails(&["-o", &dir.path("page.html"), "--summary", &dir.path("missing/card.svg")], "cannot be written");
    assert_eq!(dir.names(), Vec::<String>::new());
    reader_goes_away(&mut crate::program::program(&["report", &fixture, "--markdown"]), 0);
}
