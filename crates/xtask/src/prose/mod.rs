//! Counts words of the comments and documents that make them hard to read, and fails above a limit.
//! Fails if a line of theirs is wider than 100 columns, or if the documentation of a protocol's
//! module gives no reason and shows no case.
mod list;
mod protocols;
mod text;
mod width;

use crate::repository;
use clap::Args;
use list::{Limit, List, Part};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Arguments of `prose`.
#[derive(Args)]
pub struct ProseArgs {
    /// Prints the places with most of the counted words, of the parts that the limits hold for.
    #[arg(long, value_name = "N", default_value_t = 0)]
    worst: usize,
    /// Looks at these files or directories instead of the parts of the list; the limits hold for
    /// each.
    paths: Vec<PathBuf>,
    /// Prints the modules of protocols whose documentation lacks a reason or a drawing.
    #[arg(long)]
    protocols: bool,
    /// Prints a document of JSON.
    #[arg(long)]
    json: bool,
    /// The list of limits and paths.
    #[arg(long, value_name = "FILE", default_value = "crates/xtask/lists/prose.list")]
    list: PathBuf,
}

/// Words of a part.
#[derive(Default)]
struct Counted {
    words: usize,
    /// For each limit.
    hits: Vec<usize>,
    /// For each limit.
    places: Vec<Vec<String>>,
    /// Modules whose documentation begins with a forbidden word.
    openings: Vec<String>,
}

/// Runs `cargo xtask prose`.
pub fn run(args: &ProseArgs) -> ExitCode {
    let counted = List::read(&args.list).and_then(|mut list| {
        if !args.paths.is_empty() {
            let part = |path: &PathBuf| Part {
                name: path.display().to_string(),
                gated: true,
                paths: vec![path.clone()],
            };
            list.parts = args.paths.iter().map(part).collect();
        }
        let files = repository::files()?;
        let counted = list.parts.iter().map(|part| count(part, &files, &list));
        let counted = counted.collect::<Result<Vec<_>, _>>()?;
        let wide =
            width::failures(files.iter().filter(|file| {
                args.paths.is_empty() || args.paths.iter().any(|path| file.starts_with(path))
            }))?;
        let protocols = match args.paths.as_slice() {
            [] => protocols::failures(&files, args.protocols)?,
            _ => Default::default(),
        };
        Ok((list, counted, wide, protocols))
    });
    let (list, counted, wide, (protocols, unexplained)) = match counted {
        Ok(counted) => counted,
        Err(err) => {
            eprintln!("cargo xtask prose: {err}");
            return ExitCode::from(2);
        }
    };
    if args.json {
        println!("{:#}", json(&list, &counted));
    } else {
        print(&list, &counted);
        print!("\n{protocols}");
    }
    let mut failed = !wide.is_empty() || !unexplained.is_empty();
    wide.iter().chain(&unexplained).for_each(|failure| eprintln!("FAILED: {failure}"));
    for (part, counted) in list.parts.iter().zip(&counted).filter(|(part, _)| part.gated) {
        for failure in failures(part, counted, &list) {
            failed = true;
            eprintln!("FAILED: {failure}");
        }
        for place in counted.places.iter().flatten().take(args.worst) {
            eprintln!("{place}");
        }
    }
    if failed {
        eprintln!(
            "`cargo xtask prose --worst 20 --protocols` lists places; CONTRIBUTING.md (How we write) has \
             the rules."
        );
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Counts the words of `part`, of the Rust sources and documents among `files`.
fn count(part: &Part, files: &[PathBuf], list: &List) -> Result<Counted, String> {
    let mut counted = Counted {
        hits: vec![0; list.limits.len()],
        places: vec![Vec::new(); list.limits.len()],
        ..Counted::default()
    };
    for path in &part.paths {
        let is_prose =
            |file: &Path| file == path || repository::is_kind(file, "rs") || repository::is_kind(file, "md");
        let mut below = files.iter().filter(|file| file.starts_with(path) && is_prose(file)).peekable();
        if below.peek().is_none() {
            return Err(format!("{}: no source or document of the repository", path.display()));
        }
        for file in below {
            let source = repository::read(file)?;
            add(&mut counted, file, &source, list);
        }
    }
    Ok(counted)
}

/// Adds the words of one file.
fn add(counted: &mut Counted, file: &Path, source: &str, list: &List) {
    let rust = file.extension().is_some_and(|extension| extension == "rs");
    let lines = if rust { text::comments(source) } else { text::document(source) };
    let words = text::words(&lines);
    counted.words += words.len();
    for (at, word) in &words {
        for (limit, Limit { words, .. }) in list.limits.iter().enumerate() {
            if words.contains(word) {
                counted.hits[limit] += 1;
                let line = &lines[*at];
                counted.places[limit].push(format!("{}:{}:{}", file.display(), line.number, line.text));
            }
        }
    }
    let opening = words.iter().find(|(at, _)| lines[*at].module);
    if let Some((at, word)) = opening.filter(|(_, word)| list.first.contains(word)) {
        counted.openings.push(format!("{}:{}: begins with “{word}”", file.display(), lines[*at].number));
    }
}

/// Returns a count in 10,000 words, rounded up so that a limit is exact.
fn rate(hits: usize, words: usize) -> usize {
    (hits * 10_000).div_ceil(words.max(1))
}

fn failures(part: &Part, counted: &Counted, list: &List) -> Vec<String> {
    let mut failures = counted.openings.clone();
    for (limit, &hits) in list.limits.iter().zip(&counted.hits) {
        let rate = rate(hits, counted.words);
        if rate > limit.most as usize {
            failures.push(format!(
                "{}: {} stands {hits} times in {} words, {rate} in 10,000; at most {} may",
                part.name,
                limit.words.join("/"),
                counted.words,
                limit.most
            ));
        }
    }
    failures
}

fn print(list: &List, counted: &[Counted]) {
    print!("{:<24} {:>4} {:>7}", "in 10,000 words", "gate", "words");
    for limit in &list.limits {
        print!(" {:>13}", limit.words.join("/"));
    }
    println!(" {:>8}", "openings");
    for (part, counted) in list.parts.iter().zip(counted) {
        print!("{:<24} {:>4} {:>7}", part.name, if part.gated { "yes" } else { "" }, counted.words);
        for &hits in &counted.hits {
            print!(" {:>13}", rate(hits, counted.words));
        }
        println!(" {:>8}", counted.openings.len());
    }
}

fn json(list: &List, counted: &[Counted]) -> serde_json::Value {
    let parts = list.parts.iter().zip(counted).map(|(part, counted)| {
        let counts = list.limits.iter().zip(&counted.hits).map(|(limit, &hits)| {
            serde_json::json!({
                "words": limit.words,
                "most_in_10000": limit.most,
                "count": hits,
                "in_10000": rate(hits, counted.words),
            })
        });
        serde_json::json!({
            "part": part.name,
            "gated": part.gated,
            "words": counted.words,
            "counts": counts.collect::<Vec<_>>(),
            "openings": counted.openings,
            "failures": if part.gated { failures(part, counted, list) } else { Vec::new() },
        })
    });
    serde_json::json!({ "parts": parts.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(most: u32) -> List {
        let limit =
            |words: &[&str]| Limit { words: words.iter().map(|&word| word.to_owned()).collect(), most };
        List {
            limits: vec![limit(&["what"]), limit(&["nothing", "none"])],
            first: vec!["what".into(), "how".into()],
            parts: Vec::new(),
        }
    }

    fn counted(file: &str, source: &str, list: &List) -> Counted {
        let mut counted = Counted { hits: vec![0; 2], places: vec![Vec::new(); 2], ..Counted::default() };
        add(&mut counted, Path::new(file), source, list);
        counted
    }

    fn part() -> Part {
        Part { name: "p".into(), gated: true, paths: Vec::new() }
    }

    #[test]
    fn a_limit_fails_above_and_not_at_its_number() {
        // 500 words, one of them counted: 20 in 10,000.
        let text = format!("// {}what", "word ".repeat(499));
        let at = counted("a.rs", &text, &list(20));
        assert_eq!((at.words, at.hits.as_slice()), (500, [1, 0].as_slice()));
        assert!(failures(&part(), &at, &list(20)).is_empty());
        assert_eq!(failures(&part(), &at, &list(19)).len(), 1);
        // One word fewer: 20.04 in 10,000 are too many.
        let text = format!("// {}what", "word ".repeat(498));
        assert_eq!(failures(&part(), &counted("a.rs", &text, &list(20)), &list(20)).len(), 1);
    }

    #[test]
    fn words_of_one_limit_are_added_up() {
        let both = counted("a.md", "None of it is what it was: nothing.\n`None`", &list(0));
        assert_eq!(both.hits, [1, 2]);
        assert_eq!(both.places[1].len(), 2);
    }

    #[test]
    fn a_module_may_not_begin_with_a_question() {
        let list = list(10_000);
        for source in ["//! How pages rest.\nfn f() {}", "// Header.\n//!\n//! What a CPU does."] {
            let counted = counted("a.rs", source, &list);
            assert_eq!(failures(&part(), &counted, &list).len(), 1, "{source}");
        }
        for source in ["//! Keeps pages. How: below.", "/// How many.\nfn f() {}", "//! Show how."] {
            assert!(counted("a.rs", source, &list).openings.is_empty(), "{source}");
        }
    }
}
