//! Finds modules of protocols, and the ones among them that give no reason or show no case.
//!
//! # Which modules
//!
//! The code decides. A module is a protocol if [`STEPS`] or more of these places are in it, outside
//! of its tests:
//!
//! * An operation that orders memory between CPUs or threads: `Acquire`, `Release`, `AcqRel` or
//!   `SeqCst`.
//! * A value whose end is a step: `impl Drop`.
//! * A lock that is taken, if there are [`LOCKS`] of these.
//!
//! A module with a heading *protocol* in its documentation is one too: its steps may be calls in an
//! order, which no place shows. An `unsafe trait` is none: the compiler's lints demand its
//! `# Safety`. A module with fewer than [`OWN`] places may leave its documentation to the `mod.rs`
//! of its directory, if that names it between backquotes or in a block.
//!
//! # What is demanded
//!
//! * A heading that begins with `Why`, over [`SENTENCES`] sentences or more with one of the words
//!   [`REASONS`].
//! * A drawing: a block of `text` with [`LINES`] lines or more, two of which have arrows or boxes.
//!   It uses [`WORDS`] words of the code or more. Or an example: a block that is compiled, or a
//!   heading `# Example` over the path of a test's file.
//!
//! # Why
//!
//! A limit of words only moves the words, so a reader gets other words and no reason. A reason and
//! a drawing must be made from the code. The words of a drawing are compared with the code, and no
//! two modules may give the same reason, because otherwise one text would do for all of them.
//!
//! ```text
//! readers.rs    14 orderings ──> module: # Why, drawing
//! state.rs       2 orderings ──> mod.rs: # Why, drawing, which names `state`
//! error.rs       no place    ──> free
//! ```
use crate::ceilings::Ceilings;
use crate::lines::{LineKind, kinds};
use crate::{repository, tokens};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The ceilings of crates.
const LIST: &str = "crates/xtask/lists/protocols.list";
/// Places that make a module a protocol.
const STEPS: usize = 2;
/// Calls of `lock` that count as places.
const LOCKS: usize = 4;
/// Places from which on a module needs documentation of its own.
const OWN: usize = 4;
/// Sentences of a reason, at least.
const SENTENCES: usize = 2;
/// Words that give a reason.
const REASONS: [&str; 5] = ["because", "otherwise", "so that", "must", "would"];
/// Lines of a drawing or an example, at least.
const LINES: usize = 3;
/// Words of the code in a drawing, at least.
const WORDS: usize = 3;
/// Parts of arrows and boxes.
const DRAWN: [&str; 14] = ["->", "<-", "=>", "--", "→", "←", "↑", "↓", "─", "│", "|", "└", "▲", "▼"];

/// A module of a crate.
#[derive(Debug, Default)]
struct Module {
    /// The module's documentation, line by line, without its marks.
    doc: Vec<String>,
    /// Parts of its code that make it a protocol: orderings, ends of values, locks.
    places: usize,
    /// Words of its code.
    words: BTreeSet<String>,
}

/// Parts of a module's documentation.
#[derive(Debug, Default)]
struct Doc<'d> {
    /// Headings, each with the text below it.
    sections: Vec<(&'d str, String)>,
    /// Blocks, each with the word behind its mark.
    blocks: Vec<(&'d str, Vec<&'d str>)>,
}

impl Module {
    fn of(source: &str) -> Self {
        let doc = source.lines().filter_map(|line| line.trim_start().strip_prefix("//!"));
        let doc = doc.map(|line| line.strip_prefix(' ').unwrap_or(line).to_owned()).collect();
        let code = kinds(source, false).filter(|(_, kind)| *kind == LineKind::Code);
        let code: Vec<&str> = code.map(|(line, _)| line).collect();
        let code = code.join("\n");
        let all = tokens::tokens(&code);
        let text = |at: usize| all.get(at).map_or("", |token| token.text);
        let (mut orderings, mut ends, mut locks, mut open) = (0, 0, 0, Vec::new());
        for at in 0..all.len() {
            let before = |n: usize| at.checked_sub(n).map_or("", text);
            match text(at) {
                bracket @ ("(" | "[" | "{") => open.push(bracket),
                ")" | "]" | "}" => {
                    open.pop();
                }
                "Acquire" | "Release" | "AcqRel" | "SeqCst" => {
                    let is_whole = before(2) == ":" && before(3) == "Ordering";
                    let is_argument = matches!(before(1), "(" | ",") && matches!(text(at + 1), ")" | ",");
                    orderings += usize::from(is_whole || is_argument && open.last() == Some(&"("));
                }
                "Drop" if text(at + 1) == "for" => ends += 1,
                "lock" if before(1) == "." => locks += 1,
                _ => {}
            }
        }
        let locks = if locks < LOCKS { 0 } else { locks };
        let words = all.iter().flat_map(|token| words(token.text)).collect();
        Self { doc, places: orderings + ends + locks, words }
    }

    fn is_protocol(&self) -> bool {
        let of_protocol = |(heading, _): &(&str, String)| heading.to_lowercase().contains("protocol");
        self.places >= STEPS || self.parts().sections.iter().any(of_protocol)
    }

    fn parts(&self) -> Doc<'_> {
        let mut parts = Doc::default();
        let mut in_block = false;
        for line in &self.doc {
            if let Some(info) = line.trim_start().strip_prefix("```") {
                in_block = !in_block;
                if in_block {
                    parts.blocks.push((info, Vec::new()));
                }
            } else if in_block {
                parts.blocks.last_mut().into_iter().for_each(|(_, lines)| lines.push(line));
            } else if let Some(heading) = line.strip_prefix("# ") {
                parts.sections.push((heading, String::new()));
            } else if let Some((_, text)) = parts.sections.last_mut() {
                text.push_str(line.trim());
                text.push(' ');
            }
        }
        parts
    }

    /// Returns the text of its reasons.
    fn why(&self) -> String {
        let sections = self.parts().sections.into_iter();
        sections.filter(|(heading, _)| is_why(heading)).map(|(_, text)| text).collect()
    }

    /// Returns the parts that its documentation lacks. `words` are those of the code that it is
    /// about, and `is_file` says whether a file is in the repository.
    fn lacks(&self, words: &BTreeSet<String>, is_file: &dyn Fn(&str) -> bool) -> Vec<&'static str> {
        let (parts, why) = (self.parts(), self.why());
        let mut lacks = Vec::new();
        if !parts.sections.iter().any(|(heading, _)| is_why(heading)) {
            lacks.push("no heading `# Why`");
        } else if sentences(&why) < SENTENCES {
            lacks.push("fewer than two sentences under `# Why`");
        } else if !REASONS.iter().any(|reason| has_words(&why, reason)) {
            lacks.push("no reason under `# Why`");
        }
        let names_test = |text: &str| text.split('`').skip(1).step_by(2).any(is_file);
        let is_named =
            parts.sections.iter().any(|(heading, text)| heading.starts_with("Example") && names_test(text));
        let is_shown = |(info, lines): &(&str, Vec<&str>)| match *info {
            "text" => is_drawing(lines, words),
            info => is_compiled(info) && lines.iter().filter(|line| !line.trim().is_empty()).count() >= LINES,
        };
        if !is_named && !parts.blocks.iter().any(is_shown) {
            lacks.push("neither a drawing of its code nor an example");
        }
        lacks
    }

    /// Returns whether its documentation names the module `name` between backquotes or in a block.
    fn names(&self, name: &str) -> bool {
        let quoted = self.doc.iter().any(|line| {
            line.split('`').skip(1).step_by(2).any(|code| code.split("::").any(|part| part == name))
        });
        let drawn = |(_, lines): &(&str, Vec<&str>)| lines.iter().any(|line| has_words(line, name));
        quoted || self.parts().blocks.iter().any(drawn)
    }
}

fn is_why(heading: &str) -> bool {
    heading.split_whitespace().next() == Some("Why")
}

/// Returns whether `text` has the words `part`, in any case.
fn has_words(text: &str, part: &str) -> bool {
    let is_letter = |c: char| c.is_alphanumeric() || c == '_';
    let text = text.to_lowercase();
    text.match_indices(part)
        .any(|(at, _)| !text[..at].ends_with(is_letter) && !text[at + part.len()..].starts_with(is_letter))
}

/// Counts the sentences of four words or more.
fn sentences(text: &str) -> usize {
    let mut words = 0;
    let mut sentences = 0;
    for word in text.split_whitespace() {
        words += 1;
        if word.trim_end_matches([')', '*', '`', '”']).ends_with(['.', '?', '!']) {
            sentences += usize::from(words >= 4);
            words = 0;
        }
    }
    sentences
}

/// Returns the parts of an identifier that have four letters or more, in lower case.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in text.chars() {
        if !c.is_alphabetic() || c.is_uppercase() && was_lower {
            words.push(String::new());
        }
        was_lower = c.is_lowercase();
        if c.is_alphabetic() {
            words.last_mut().into_iter().for_each(|word| word.extend(c.to_lowercase()));
        }
    }
    words.retain(|word| word.chars().count() >= 4);
    words
}

/// Returns whether `lines` have arrows or boxes, and words of the code.
fn is_drawing(lines: &[&str], code: &BTreeSet<String>) -> bool {
    let drawn = lines.iter().filter(|line| DRAWN.iter().any(|part| line.contains(part)));
    let used: BTreeSet<String> = lines.iter().flat_map(|line| words(line)).collect();
    lines.iter().filter(|line| !line.trim().is_empty()).count() >= LINES
        && drawn.count() >= 2
        && used.intersection(code).count() >= WORDS
}

/// Returns whether rustdoc compiles a block with these words behind its mark.
fn is_compiled(info: &str) -> bool {
    info.split(',').all(|word| {
        matches!(word, "" | "rust" | "no_run" | "should_panic" | "compile_fail")
            || word.len() == 5 && word.starts_with('E')
    })
}

/// Modules of a crate that are protocols, each with the parts that its documentation lacks.
type Checked = Vec<(PathBuf, Vec<&'static str>)>;

/// Checks the modules of one crate.
fn check(modules: &BTreeMap<PathBuf, Module>, is_file: &dyn Fn(&str) -> bool) -> Checked {
    let mut checked = Vec::new();
    for (file, module) in modules.iter().filter(|(_, module)| module.is_protocol()) {
        let beside = file.with_file_name("mod.rs");
        let home = modules.get(&beside).filter(|_| beside != **file && module.places < OWN);
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        // The documentation of a directory is about all files in it.
        let below = |root: &Path| {
            let files = modules.iter().filter(|(file, _)| file.parent() == root.parent());
            files.flat_map(|(_, module)| module.words.clone()).collect::<BTreeSet<_>>()
        };
        let is_explained =
            home.is_some_and(|home| home.names(&stem) && home.lacks(&below(&beside), is_file).is_empty());
        let lacks = if is_explained {
            Vec::new()
        } else if file.ends_with("mod.rs") {
            module.lacks(&below(file), is_file)
        } else {
            module.lacks(&module.words, is_file)
        };
        checked.push((file.clone(), lacks));
    }
    // The same reason is no reason.
    let reasons: Vec<String> = checked.iter().map(|(file, _)| modules[file].why()).collect();
    for (at, (_, lacks)) in checked.iter_mut().enumerate() {
        let is_same = |other: usize| other != at && reasons[other] == reasons[at];
        if !reasons[at].is_empty() && (0..reasons.len()).any(is_same) {
            lacks.push("the reason of another module");
        }
    }
    checked
}

/// Returns a table of the protocols of each crate, with the parts that are missing if `each` or if
/// there are too many, and the crates that are above their ceilings.
///
/// # Errors
///
/// A text that names the file or command that fails.
pub fn failures(files: &[PathBuf], each: bool) -> Result<(String, Vec<String>), String> {
    let list = Ceilings::read(Path::new(LIST))?;
    let mut crates: BTreeMap<PathBuf, BTreeMap<PathBuf, Module>> = BTreeMap::new();
    let is_test = |file: &Path| repository::is_test(file) || file.ends_with("tests.rs");
    for (directory, file) in repository::sources(files, &repository::packages(files)?) {
        if !is_test(file) {
            let module = Module::of(&repository::read(file)?);
            crates.entry(directory.to_owned()).or_default().insert(file.clone(), module);
        }
    }
    let mut counts = Vec::new();
    let mut table = format!("{:<34} {:>9} {:>8} {:>8}\n", "protocols", "modules", "lacking", "ceiling");
    for (directory, modules) in &crates {
        // A test is named from the directory of the package, or from the root.
        let is_file = |name: &str| {
            let package = directory.parent().unwrap_or(directory);
            name.ends_with(".rs") && (Path::new(name).is_file() || package.join(name).is_file())
        };
        let checked = check(modules, &is_file);
        let lacking: Vec<_> = checked.iter().filter(|(_, lacks)| !lacks.is_empty()).collect();
        let ceiling = list.ceiling(directory);
        if !checked.is_empty() {
            let ceiling = ceiling.map_or_else(String::new, |ceiling| ceiling.to_string());
            let (name, all, few) = (directory.display().to_string(), checked.len(), lacking.len());
            let _ = writeln!(table, "{name:<34} {all:>9} {few:>8} {ceiling:>8}");
        }
        if each || lacking.len() > ceiling.unwrap_or(0) {
            for (file, lacks) in &lacking {
                let _ = writeln!(table, "  {}: {}", file.display(), lacks.join("; "));
            }
        }
        counts.push((directory.clone(), lacking.len()));
    }
    Ok((table, list.failures(&counts, "protocols without a reason or a drawing")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mailbox with documentation that passes.
    const MAILBOX: &str = "\
//! Passes requests.
//!
//! # Why
//!
//! The sender sets the flag last, because a receiver that sees it reads the request. With the
//! flag first it would read an old one.
//!
//! ```text
//! sender                receiver
//! request.store   ──┐
//! flag.store      ──┴─> flag.load, request.load
//! ```
fn send(request: &AtomicU32, flag: &AtomicBool) {
    request.store(1, Relaxed);
    flag.store(true, Ordering::Release);
    while flag.load(Ordering::Acquire) {}
}
";

    /// Checks the files of one crate, in which `tests/mailbox.rs` is a file.
    fn lacks(files: &[(&str, &str)]) -> Vec<(String, Vec<&'static str>)> {
        let modules = files.iter().map(|(file, text)| (PathBuf::from(file), Module::of(text))).collect();
        let checked = check(&modules, &|name: &str| name == "tests/mailbox.rs");
        checked.into_iter().map(|(file, lacks)| (file.display().to_string(), lacks)).collect()
    }

    fn lack(text: &str) -> Vec<&'static str> {
        lacks(&[("a.rs", text)]).into_iter().flat_map(|(_, lacks)| lacks).collect()
    }

    fn without_doc() -> String {
        MAILBOX.lines().filter(|line| !line.starts_with("//!")).map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn a_protocol_without_reason_and_drawing_fails() {
        let text = format!("//! Passes requests.\n{}", without_doc());
        assert_eq!(lack(&text), ["no heading `# Why`", "neither a drawing of its code nor an example"]);
        assert_eq!(lack(MAILBOX), [""; 0]);
    }

    #[test]
    fn the_code_decides_which_module_is_a_protocol() {
        let is_one = |text: &str| !lacks(&[("a.rs", text)]).is_empty();
        for text in [
            "fn f() { x.compare_exchange(a, b, AcqRel, Acquire) }",
            "fn f() { fence(Ordering::SeqCst); x.load(Ordering::Acquire) }",
            "impl<'a, T> Drop for A<'a, T> {}\nfn f() { x.load(Acquire) }",
            "impl Drop for A {}\nunsafe impl<#[may_dangle] T> Drop for B<T> {}",
            "fn f() { a.lock(); b.lock(); c.lock(); d.lock(); }",
            "//! X.\n//!\n//! # The protocol\nfn f() {}",
        ] {
            assert!(is_one(text), "{text}");
        }
        for text in [
            "fn f() { x.load(Relaxed); y.load(Acquire) }",
            "impl Drop for A {}",
            "enum Op { Acquire, Release, Stay }\nfn f(a: Acquire<'_>) { g(Op::Acquire, Op::Release) }",
            "use std::sync::atomic::Ordering::{AcqRel, Acquire};\n// x.swap(Acquire, Acquire)",
            "fn f() { a.lock(); b.lock(); c.lock(); }",
            "unsafe trait T {}",
            "#[cfg(test)]\nmod tests {\n    fn f() { x.swap(1, AcqRel); x.load(Acquire) }\n}",
        ] {
            assert!(!is_one(text), "{text}");
        }
    }

    #[test]
    fn each_part_of_the_documentation_is_demanded() {
        let one = "because a receiver that sees it reads the request. With the\n//! flag first it would";
        for (part, other, lacking) in [
            ("//! # Why", "//! # How", "no heading `# Why`"),
            (one, "because a receiver that sees it would", "fewer than two sentences under `# Why`"),
            ("reads the request. With", "reads it. So. With", ""),
            ("──┐", "   ", "neither a drawing of its code nor an example"),
            ("```text", "```ignore", "neither a drawing of its code nor an example"),
            (
                "//! flag.store      ──┴─> flag.load, request.load\n",
                "",
                "neither a drawing of its code nor an example",
            ),
        ] {
            assert!(MAILBOX.contains(part), "{part}");
            let expected: &[&str] = if lacking.is_empty() { &[] } else { &[lacking] };
            assert_eq!(lack(&MAILBOX.replacen(part, other, 1)), expected, "{part}");
        }
        let reasonless = MAILBOX.replace("because", "and").replace("would read", "reads");
        assert_eq!(lack(&reasonless), ["no reason under `# Why`"]);
    }

    #[test]
    fn an_example_is_compiled_or_names_a_test() {
        let begin = MAILBOX.find("//! ```text").unwrap();
        let end = MAILBOX.find("fn send").unwrap();
        let with = |shown: &str| format!("{}{shown}{}", &MAILBOX[..begin], &MAILBOX[end..]);
        let code = "//! ```compile_fail,E0308\n//! let a = 1;\n//! let b = 2;\n//! f(a, b);\n//! ```\n";
        for (shown, passes) in [
            (code, true),
            ("//! ```text\n//! apples ──> pears\n//! pears  ──> plums\n//! plums\n//! ```\n", false),
            ("//! ```\n//! let a = 1;\n//! ```\n", false),
            ("//! # Example\n//!\n//! `tests/mailbox.rs` sends one.\n", true),
            ("//! # Example\n//!\n//! `tests/other.rs` sends one.\n", false),
            ("//! `tests/mailbox.rs` sends one.\n", false),
        ] {
            assert_eq!(lack(&with(shown)).is_empty(), passes, "{shown}");
        }
    }

    #[test]
    fn a_directory_explains_small_parts_that_it_names() {
        let home = MAILBOX.replace("Passes requests.", "Passes requests: see `flag`.");
        let small = "fn f() { flag.swap(a, AcqRel); flag.load(Ordering::Acquire) }\n";
        let failing = |files: &[(&str, &str)]| {
            let failing = lacks(files).into_iter().filter(|(_, lacks)| !lacks.is_empty());
            failing.map(|(file, _)| file).collect::<Vec<_>>()
        };
        assert_eq!(failing(&[("a/mod.rs", &home), ("a/flag.rs", small)]), [""; 0]);
        assert_eq!(failing(&[("a/mod.rs", MAILBOX), ("a/sent.rs", small)]), ["a/sent.rs"]);
        assert_eq!(failing(&[("a/mod.rs", &home), ("a/b/flag.rs", small)]), ["a/b/flag.rs"]);
        let large = small.repeat(OWN / 2);
        assert_eq!(failing(&[("a/mod.rs", &home), ("a/flag.rs", &large)]), ["a/flag.rs"]);
        let without = home.replace("# Why", "# How");
        assert_eq!(failing(&[("a/mod.rs", &without), ("a/flag.rs", small)]), ["a/flag.rs", "a/mod.rs"]);
    }

    #[test]
    fn a_reason_stands_once() {
        let both = lacks(&[("a.rs", MAILBOX), ("b.rs", MAILBOX)]);
        assert!(both.iter().all(|(_, lacks)| lacks == &["the reason of another module"]), "{both:?}");
    }
}
