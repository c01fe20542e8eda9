//! Checks that the crates above `ptarmigan-term` leave the text of a quantity to it.
//!
//! # Why
//!
//! A formatter of bytes or of times that stands beside the one of `ptarmigan-term` chooses another
//! unit or other digits. Then two commands print one quantity as two texts, for example `4096 MiB`
//! and `4.0 GiB`.
use crate::lines::{LineKind, kinds};
use crate::outcome;
use crate::repository;
use crate::tokens::{Token, tokens};
use std::path::Path;
use std::process::ExitCode;

/// The crate that formats quantities.
const HOME: &str = "crates/ptarmigan-term";
/// Macros that make text.
const MACROS: [&str; 8] =
    ["eprint", "eprintln", "format", "format_args", "print", "println", "write", "writeln"];
/// Bits by which bytes are shifted to another unit.
const SHIFTS: [&str; 4] = ["10", "20", "30", "40"];
/// Factors between units.
const FACTORS: [&str; 7] = ["1e3", "1e6", "1e9", "1000", "1000000", "1000000000", "1024"];
/// Units that a placeholder must not have behind it: the quantity brings its own.
const UNITS: [&str; 9] = ["ns", "us", "µs", "ms", "s", "KiB", "MiB", "GiB", "TiB"];
/// Methods of `Bytes` for a text in the unit of an option.
const IN_A_UNIT: [&str; 2] = ["kib", "mib"];

/// Runs `cargo xtask units`.
pub fn run() -> ExitCode {
    outcome::exit("units", failures().map(|failures| outcome::passed(&failures)))
}

/// Returns a line for each formatter outside of its home.
fn failures() -> Result<Vec<String>, String> {
    let files = repository::files()?;
    let packages = repository::packages(&files)?;
    let is_above = |file: &Path| {
        let above = packages.iter().filter(|package| package.uses.iter().any(|used| used.ends_with(HOME)));
        above.map(|package| package.directory.join("src")).any(|source| file.starts_with(source))
    };
    let mut failures = Vec::new();
    for (_, file) in repository::sources(&files, &packages).iter().filter(|(_, file)| is_above(file)) {
        for (line, why) in formatters(&repository::read(file)?, repository::is_test(file)) {
            failures.push(format!("{}:{line}: {why}; ptarmigan-term has Bytes, Time, Count", file.display()));
        }
    }
    Ok(failures)
}

/// Returns the macros of a source, outside of its tests, that format a quantity: the line, and what
/// gives it away.
fn formatters(text: &str, is_test: bool) -> Vec<(usize, String)> {
    let kinds: Vec<LineKind> = kinds(text, is_test).map(|(_, kind)| kind).collect();
    let tokens = tokens(text);
    let mut found = Vec::new();
    for (n, token) in tokens.iter().enumerate() {
        let is_macro = MACROS.contains(&token.text) && tokens.get(n + 1).is_some_and(|t| t.text == "!");
        let line = text[..token.at].matches('\n').count();
        if is_macro && kinds.get(line).is_some_and(|kind| *kind == LineKind::Code) {
            found.extend(formatter(arguments(&tokens[n + 2..])).map(|why| (line + 1, why)));
        }
    }
    found
}

/// Returns the tokens of the group that begins the tokens.
fn arguments<'a, 't>(tokens: &'a [Token<'t>]) -> &'a [Token<'t>] {
    let mut depth = 0usize;
    for (n, token) in tokens.iter().enumerate() {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return &tokens[..n];
        }
    }
    tokens
}

/// Returns what in the arguments of a macro formats a quantity.
fn formatter(arguments: &[Token<'_>]) -> Option<String> {
    let text = |n: usize| arguments.get(n).map_or("", |token| token.text);
    let has_a_unit = arguments.iter().any(|token| IN_A_UNIT.contains(&token.text));
    for n in 0..arguments.len() {
        if text(n) == ">" && text(n + 1) == ">" && SHIFTS.contains(&text(n + 2)) {
            return Some(format!("`>> {}`", text(n + 2)));
        }
        let is_one = matches!(text(n), "1" | "1u32" | "1_u32" | "1u64" | "1_u64");
        if is_one && text(n + 1) == "<" && text(n + 2) == "<" && SHIFTS.contains(&text(n + 3)) {
            return Some(format!("`1 << {}`", text(n + 3)));
        }
        let factor = text(n + 1).replace('_', "");
        if matches!(text(n), "/" | "*") && FACTORS.contains(&factor.as_str()) {
            return Some(format!("`{} {}`", text(n), text(n + 1)));
        }
        if text(n).starts_with(['"', 'r'])
            && let Some(unit) = unit_behind(text(n)).filter(|unit| !(has_a_unit && unit.ends_with("iB")))
        {
            return Some(format!("the unit {unit} behind a placeholder"));
        }
    }
    None
}

/// Returns the unit that stands behind a placeholder of a format string.
fn unit_behind(text: &str) -> Option<&'static str> {
    text.match_indices('}').find_map(|(at, _)| {
        let rest = &text[at + 1..];
        let word = rest.strip_prefix(' ').unwrap_or(rest);
        let end = word.find(|c: char| !c.is_alphanumeric()).unwrap_or(word.len());
        // An `s` at once is a plural.
        let unit = UNITS.into_iter().find(|unit| *unit == &word[..end])?;
        (unit != "s" || rest.starts_with(' ')).then_some(unit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> Option<String> {
        formatters(&format!("fn f() {{\n    {line}\n}}\n"), false).pop().map(|(_, why)| why)
    }

    #[test]
    fn a_formatter_of_a_quantity_is_refused() {
        for (line, why) in [
            (r#"format!("{} of it", bytes >> 20)"#, "`>> 20`"),
            (r#"write!(f, "{}", ns as f64 / 1e6)"#, "`/ 1e6`"),
            (r#"writeln!(f, "{:.1}", n as f64 / 1024.0)"#, "`/ 1024`"),
            (r#"println!("{}", us * 1_000.0)"#, "`* 1_000`"),
            (r#"format!("{}", n / f64::from(1 << 20))"#, "`1 << 20`"),
            (r#"format_args!("{ns:.1} ns each")"#, "the unit ns behind a placeholder"),
            (r#"format!("took {}us", us)"#, "the unit us behind a placeholder"),
            (r#"format!["{mib} MiB"]"#, "the unit MiB behind a placeholder"),
            (r#"format!("{} s", seconds)"#, "the unit s behind a placeholder"),
        ] {
            assert_eq!(found(line).as_deref(), Some(why), "{line}");
        }
    }

    #[test]
    fn other_texts_pass() {
        for line in [
            r#"format!("{}, {}", Bytes(bytes), Time::from_nanos(ns))"#,
            r#"format!("--memory {} MiB", Bytes(memory).mib())"#,
            r#"format!("{thing}s, {n} sweeps, 4 KiB")"#,
            r#"format!("{}", Bytes(pages << 12))"#,
            "let mib = bytes >> 20;",
            r#"assert!(n > 1, "{} ns", n);"#,
        ] {
            assert_eq!(found(line), None, "{line}");
        }
        let test = "#[cfg(test)]\nmod tests {\n    fn f() {\n        format!(\"{} ns\", 1);\n    }\n}\n";
        assert_eq!(formatters(test, false), []);
        assert_eq!(formatters("fn f() {\n    format!(\"{} ns\", 1);\n}\n", false).len(), 1);
    }

    #[test]
    fn the_whole_macro_is_searched_and_no_more() {
        assert_eq!(found("format!(\n\"{}\",\n(f(a, [b]), c >> 30)\n);").as_deref(), Some("`>> 30`"));
        assert_eq!(found(r#"(format!("{}", a), b >> 20);"#), None);
    }
}
