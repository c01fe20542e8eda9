//! The first example of the README prints the report that the README shows.

const README: &str = include_str!("../../README.md");

/// Returns the text between a line that begins with `start` and the fence behind it.
fn block(start: &str) -> &'static str {
    let rest = README.split(start).nth(1).expect("the README has the block");
    rest.split("```").next().expect("the block ends")
}

#[test]
fn the_first_example_prints_what_the_readme_says() {
    let source = include_str!("first.rs");
    let lines = source.strip_prefix("{\n").and_then(|rest| rest.strip_suffix("s.sanitizer.to_string()\n}\n"));
    let shown = block("```rust\n").strip_suffix("println!(\"{}\", s.sanitizer);\n");
    assert_eq!(lines, shown, "the README has another program");

    let printed: String = include!("first.rs");
    let (report, _) = printed.split_once("  found in\n").expect("a finding has callers");
    let (_, summary) = printed.split_once("\n\nsummary: ").expect("a report has a summary");
    let expected = block("```text\n");
    let (head, callers) = expected.split_once("  found in\n").expect("the README has callers");
    assert_eq!(report, head);
    assert_eq!(callers.split_once("\n\nsummary: ").expect("a summary").1, format!("{summary}\n"));
}
