//! Blocks for a shell, in the READMEs, the book and the documents: lines of `ptarmigan` parse, and
//! other programs that they run exist.
use ptarmigan_cli::cli;
use ptarmigan_documents::files::{pages, root};
use ptarmigan_documents::markdown::Page;
use std::path::{Path, PathBuf};

/// Programs that are not ours.
const OTHERS: [&str; 11] =
    ["alias", "cc", "cd", "cmake", "git", "jq", "ptsan", "qemu-system-riscv64", "rustup", "valgrind", "xz"];
/// Words of the shell itself, whose lines are not looked into.
const SHELL: [&str; 3] = ["do", "done", "for"];
/// Subcommands of cargo that are only looked at for names of packages.
const CARGO: [&str; 9] = ["add", "bench", "build", "check", "doc", "fuzz", "install", "miri", "test"];

fn all() -> Vec<PathBuf> {
    let mut all = vec![root().join("README.md"), root().join("CONTRIBUTING.md")];
    for place in ["docs", "book/src", "crates"] {
        all.extend(pages(&root().join(place)).expect("pages"));
    }
    all
}

/// Divides a block into commands: without comments and continued lines, at pipes and `&&`.
fn commands(text: &str) -> Vec<Vec<String>> {
    let joined = text.replace("\\\n", " ");
    let mut all = Vec::new();
    for line in joined.lines() {
        let line = if line.trim_start().starts_with('#') { "" } else { line };
        let line = line.split(" # ").next().unwrap_or_default().replace("&&", "|");
        for part in divide(&line) {
            let words = words(&part);
            // VARIABLE=value before a command.
            let command = words.iter().skip_while(|word| is_assignment(word)).cloned().collect::<Vec<_>>();
            if !command.is_empty() {
                all.push(command);
            }
        }
    }
    all
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphabetic() || c == '_')
    })
}

/// Divides a line at pipes and semicolons that are not quoted.
fn divide(line: &str) -> Vec<String> {
    let (mut parts, mut quote) = (vec![String::new()], None);
    for c in line.chars() {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), _) if c == open => quote = None,
            (None, '|' | ';') => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(part) = parts.last_mut() {
            part.push(c);
        }
    }
    parts
}

/// Divides a command into words, without the redirections behind `>` and `<`.
fn words(part: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in part.chars() {
        match (quote, c) {
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_with(String::new);
            }
            (Some(open), _) if c == open => quote = None,
            (None, '>' | '<') => break,
            (None, ' ') => words.extend(word.take()),
            _ => word.get_or_insert_with(String::new).push(c),
        }
    }
    words.extend(word);
    words
}

/// Returns the fault of a command, if it has one.
fn problem(command: &[String], page: &Path) -> Option<String> {
    let first = command.first()?.as_str();
    match first {
        "ptarmigan" => parse(&command[1..]),
        "ptarmigan-papers" => fault(ptarmigan_papers::parse(command)),
        "cargo" => cargo(&command[1..]),
        _ if OTHERS.contains(&first) || SHELL.contains(&first) => None,
        // Of the repository, or beside the page.
        _ if first.contains('/') => {
            let beside = page.parent().is_some_and(|directory| directory.join(first).exists());
            // A program that a block has just compiled.
            let made = first.starts_with("./");
            (!beside && !made && !root().join(first).exists()).then(|| "there is no such file".to_owned())
        }
        _ => Some(format!("{first} is not known to this test")),
    }
}

fn parse(arguments: &[String]) -> Option<String> {
    let line = std::iter::once("ptarmigan").chain(arguments.iter().map(String::as_str));
    fault(cli::parse(line))
}

/// Returns the error of a line, unless it asks for help.
fn fault<C>(parsed: Result<C, clap::Error>) -> Option<String> {
    parsed.err().filter(clap::Error::use_stderr).map(|error| error.to_string())
}

fn cargo(arguments: &[String]) -> Option<String> {
    let (own, passed) = match arguments.iter().position(|word| word == "--") {
        Some(at) => (&arguments[..at], &arguments[at + 1..]),
        None => (arguments, &[][..]),
    };
    let of = |names: &[&str]| {
        let at = own.iter().position(|word| names.contains(&word.as_str()))?;
        own.get(at + 1).map(String::as_str)
    };
    let package = of(&["-p", "--package"]);
    if let Some(name) =
        package.filter(|name| name.chars().all(|c| c.is_ascii_lowercase() || "-_".contains(c)))
    {
        let place = ["crates", "", "kernels"].iter().map(|place| root().join(place).join(name));
        if !place.clone().any(|place| place.join("Cargo.toml").exists()) {
            return Some(format!("there is no package {name}"));
        }
        if let Some(example) = of(&["--example"]).filter(|one| one.chars().all(|c| !c.is_ascii_uppercase())) {
            let file = format!("examples/{example}.rs");
            if !place.clone().any(|place| place.join(&file).exists()) {
                return Some(format!("{name} has no example {example}"));
            }
        }
    }
    if let Some(path) = of(&["--path"]) {
        return (!root().join(path).join("Cargo.toml").exists())
            .then(|| format!("there is no crate at {path}"));
    }
    match own.iter().find(|word| !word.starts_with(['-', '+']))?.as_str() {
        "run" if package.is_none() => parse(passed),
        "run" | "xtask" => None,
        other if CARGO.contains(&other) => None,
        other => Some(format!("cargo {other} is not known to this test")),
    }
}

#[test]
fn commands_in_the_pages_can_be_run() {
    let (mut own, mut wrong) = (0, Vec::new());
    for path in all() {
        let page = Page::parse(&std::fs::read_to_string(&path).expect("a page"));
        for block in page.blocks.iter().filter(|block| block.is_shell()) {
            for command in commands(&block.text) {
                own += usize::from(command[0].starts_with("ptarmigan"));
                if let Some(why) = problem(&command, &path) {
                    let line = command.join(" ");
                    wrong.push(format!("{}:{}: {line}: {why}", path.display(), block.line));
                }
            }
        }
    }
    assert!(own > 40, "only {own} commands of ours were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_wrong_command_is_noticed() {
    let page = root().join("README.md");
    let check = |text: &str| commands(text).iter().find_map(|command| problem(command, &page));
    for good in [
        "ptarmigan replay rustc --json | jq '.runs[] | .policy'   # comment",
        "PTSAN_SEED=7 cargo test",
        "cargo run --release -- bench table",
        "ptarmigan --help",
    ] {
        assert_eq!(check(good), None, "{good}");
    }
    for bad in [
        "ptarmigan replay --sanitise",
        "cargo run --release -- bnech",
        "cargo run -p nothing",
        "kernels/nothing",
        "frobnicate",
        "cargo run -p ptarmigan --example nothing",
    ] {
        assert!(check(bad).is_some(), "{bad}");
    }
}
