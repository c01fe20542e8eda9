//! Each trait method of the caller's that the library calls unwinds in a test of this file's
//! neighbours, or `unwinding.list` says why it need not.
use crate::panics::POINTS;
use crate::reasons::reasons;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Methods that unwind in other tests than that of [`POINTS`]: `WithPin` in those
/// of the adapters, `PageState` in those of the pool.
const ELSEWHERE: [&str; 9] = [
    "MaySleep::pinned",
    "MaySleep::task",
    "MaySleep::sleep",
    "Wake::wake",
    "OwnCpu::stay",
    "WithPin::with_pin",
    "PageState::construct",
    "PageState::destruct",
    "PageState::restore",
];

fn sources(folder: &Path, text: &mut String) {
    let mut entries: Vec<_> =
        fs::read_dir(folder).expect("sources are there").map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            text.push_str(&fs::read_to_string(&path).expect("a source can be read"));
        }
    }
}

/// The methods of public traits, as `Trait::method`. A trait that only the library can implement
/// has a supertrait of a module `sealed`, and is none of them.
fn methods(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut within: Option<(String, String)> = None;
    for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
        let code = line.trim_start();
        let indent = &line[..line.len() - code.len()];
        let header = code.strip_prefix("pub ").map(|code| code.strip_prefix("unsafe ").unwrap_or(code));
        if let Some(name) = header.and_then(|code| code.strip_prefix("trait ")) {
            let end = name.find(|c: char| !c.is_alphanumeric()).unwrap_or(name.len());
            let ours = name.contains("sealed::") || &name[..end] == "Sealed";
            within = (!ours && !code.ends_with('}')).then(|| (name[..end].to_owned(), indent.to_owned()));
        } else if let Some((name, outer)) = &within {
            if code == "}" && indent == outer {
                within = None;
            } else if indent.len() == outer.len() + 4
                && let Some((_, method)) = code.split_once("fn ")
                && code.split("fn ").next().is_some_and(|before| before.is_empty() || before == "unsafe ")
            {
                let end = method.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(method.len());
                found.insert(format!("{name}::{}", &method[..end]));
            }
        }
    }
    found
}

#[test]
fn every_called_method_unwinds_in_a_test_or_has_a_reason() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut text = String::new();
    for name in ["ptarmigan", "ptarmigan-adapters", "ptarmigan-hosted", "ptarmigan-pool"] {
        sources(&crates.join(name).join("src"), &mut text);
    }
    let methods = methods(&text);
    assert!(methods.len() > 100, "the scan finds {} methods only", methods.len());
    let excused = reasons(include_str!("unwinding.list"));
    let cases: BTreeSet<_> = POINTS
        .iter()
        .flat_map(|(_, names)| *names)
        .chain(&ELSEWHERE)
        .map(|name| (*name).to_owned())
        .collect();
    let is_excused = |name: &String| {
        let of = name.split("::").next().unwrap_or_default();
        excused.contains_key(name) || excused.contains_key(&format!("{of}::*"))
    };
    let bare: Vec<_> = methods.iter().filter(|name| !cases.contains(*name) && !is_excused(name)).collect();
    assert!(
        bare.is_empty(),
        "these methods unwind in no test: add a case in tests/middle, or a reason in unwinding.list: \
         {bare:#?}"
    );
    let gone: Vec<_> = cases.iter().filter(|name| !methods.contains(*name)).collect();
    assert!(gone.is_empty(), "cases of methods that there are not: {gone:#?}");
    let of = |row: &str| match row.strip_suffix('*') {
        Some(of) => methods.iter().any(|name| name.starts_with(of) && !cases.contains(name)),
        None => methods.contains(row) && !cases.contains(row),
    };
    let idle: Vec<_> = excused.keys().filter(|row| !of(row)).collect();
    assert!(idle.is_empty(), "rows of methods that there are not, or that have a case: {idle:#?}");
}
