//! The door of the library is as narrow as the documents say: counted in `kernels/minimal` and in
//! the traits that a kernel implements.
use std::fs;
use std::path::{Path, PathBuf};

fn file(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Lines that are neither empty nor comments.
fn code(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with("//")).collect()
}

/// All files of the kernel in Rust.
fn sources() -> Vec<(PathBuf, String)> {
    fn visit(directory: &Path, all: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                visit(&path, all);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a file");
                all.push((path, text));
            }
        }
    }
    let mut all = Vec::new();
    visit(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../minimal/src"), &mut all);
    all
}

/// Items of a trait that an implementation has to have: those without a default.
fn required(text: &str, name: &str) -> usize {
    let start = text.find(&format!("trait {name}")).unwrap_or_else(|| panic!("no trait {name}"));
    let body = &text[start..];
    let body = &body[..body.find("\n}\n").expect("its end")];
    let is_item = |line: &&str| {
        let line = line.trim_start();
        ["fn ", "unsafe fn ", "const ", "type "].iter().any(|word| line.starts_with(word))
    };
    // An item of several lines ends with the first that has a body or a semicolon.
    let lines = code(body);
    let items = lines.iter().enumerate().filter(|(_, line)| line.starts_with("    ") && is_item(line));
    items
        .filter(|(at, _)| {
            let end = lines[*at..].iter().find(|line| line.ends_with('{') || line.ends_with([';', '}']));
            end.is_some_and(|end| end.ends_with(';') && !end.contains('='))
        })
        .count()
}

#[test]
fn the_library_is_set_up_and_used_in_forty_lines() {
    let text = file("minimal/src/library.rs");
    let lines = code(&text).len();
    assert!(lines <= 40, "{lines} lines");
    assert!(text.contains("set_up(") && text.contains(".mmap(") && text.contains(".fork()"));
}

#[test]
fn set_up_has_two_unsafe_calls() {
    let text = file("minimal/src/library.rs");
    let calls: Vec<&str> = code(&text).into_iter().filter(|line| line.contains("unsafe")).collect();
    assert_eq!(calls.len(), 2, "{calls:#?}");
    assert!(calls[0].contains("set_up(") && calls[1].contains("assume("), "{calls:#?}");
}

#[test]
fn a_kernel_writes_seven_items_of_traits_at_most() {
    let tlb = file("../crates/ptarmigan/src/tlb/hardware.rs");
    let objects = file("../crates/ptarmigan/src/setup/objects.rs");
    assert_eq!(
        required(&tlb, "Mmu"),
        7,
        "with its formats, of an architecture that the library does not know"
    );
    let known = required(&tlb, "Ipi") + required(&objects, "Objects");
    assert!(known <= 6, "{known} items of one that it knows, with several CPUs and with files");
    // With one CPU and without files, a kernel implements no trait.
    for (path, text) in sources() {
        let implements = |line: &&str| line.contains("impl") && line.contains(" for ");
        assert_eq!(code(&text).into_iter().find(implements), None, "{}", path.display());
    }
}

#[test]
fn code_of_the_guide_is_that_of_the_kernel() {
    let (guide, kernel) = (file("../docs/porting.md"), file("minimal/src/library.rs"));
    let blocks: Vec<&str> = guide.split("```").skip(1).step_by(2).collect();
    let rust: Vec<&str> = blocks.iter().filter_map(|block| block.strip_prefix("rust,ignore\n")).collect();
    assert!(rust.len() == 1 && kernel.contains(rust[0]), "{rust:#?}");
}

#[test]
fn required_items_are_those_without_a_default() {
    let text = "trait T {\n    const A: u8;\n    const B: u8 = 1;\n    fn a(\n        &self,\n    ) -> u8;\n    fn b() {}\n    type C;\n    fn d() {\n        e();\n    }\n}\n";
    assert_eq!(required(text, "T"), 3);
}
