//! The lists of mistakes that models and tests have to notice name texts of the sources. Making the
//! mistakes takes an hour; whether their texts are still there is looked at here.
use std::fs;
use std::path::Path;

/// Returns the mistakes of a list whose text is not in the file that they name, and the number of
/// all.
fn stale(list: &str, source: impl Fn(&str) -> Option<String>) -> (Vec<String>, usize) {
    let (mut stale, mut all) = (Vec::new(), 0);
    for entry in list.split("\n## ").skip(1) {
        let name = entry.lines().next().unwrap_or_default();
        let file = entry.lines().find_map(|line| line.strip_prefix("file: ")).unwrap_or_default();
        let text = entry.split_once("\n<<<<\n").and_then(|(_, rest)| rest.split_once("\n====\n"));
        all += 1;
        let found = text.zip(source(file)).is_some_and(|((text, _), source)| source.contains(text));
        if !found {
            stale.push(format!("{file}: {name}"));
        }
    }
    (stale, all)
}

#[test]
fn the_text_of_every_mistake_is_in_its_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    for (list, least) in [("mutations", 21), ("invariants", 21), ("owners", 21), ("museum", 8)] {
        let text = fs::read_to_string(root.join("models").join(list)).expect("the list is there");
        let source = |file: &str| fs::read_to_string(root.join("crates/ptarmigan/src").join(file)).ok();
        let (stale, all) = stale(&text, source);
        assert!(stale.is_empty(), "{list}: {stale:#?}");
        assert!(all >= least, "{list}: {all}");
    }
}

#[test]
fn a_mistake_whose_text_is_gone_is_found() {
    let list = "Mistakes.\n\n## one\nfile: a.rs\n<<<<\nx = 1;\n====\nx = 2;\n>>>>\n\n## two\nfile: b.rs\n<<<<\ny\n====\nz\n>>>>\n";
    let source = |file: &str| (file == "a.rs").then(|| "let x = 1;\n".to_owned());
    assert_eq!(stale(list, source), (vec!["b.rs: two".to_owned()], 2));
}
