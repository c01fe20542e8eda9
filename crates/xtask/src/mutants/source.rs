//! Reads the list of mutants, and compiles several into one source.
use crate::tokens::{opening, tokens};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// A change of a function's body that `cargo mutants` has listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// Its file, from the root of the workspace.
    pub file: String,
    /// The line of the change.
    pub line: usize,
    /// That line's text.
    pub text: String,
    /// The name of the function, with its type.
    pub function: String,
    /// The change in words, as `replace | with ^`.
    pub change: String,
    /// The bytes of the body, without braces.
    body: Range<usize>,
    /// The bytes that are replaced.
    span: Range<usize>,
    replacement: String,
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} {}: {}", self.file, self.line, self.function, self.change)
    }
}

impl Mutant {
    /// Returns its name in the file of states, which differs from that of any other.
    pub fn id(&self) -> String {
        format!("{self} at {}", self.span.start)
    }

    /// Returns a number by which mutants are drawn: a seed's order of all of them.
    pub fn order(&self, seed: u64) -> u64 {
        hash(self.id().as_bytes(), seed)
    }

    /// Returns the branch of its number.
    pub fn branch(&self, number: usize, source: &str) -> Branch {
        let changed = self.mutated(source);
        Branch { file: self.file.clone(), number, body: self.body.clone(), changed }
    }

    fn mutated(&self, source: &str) -> String {
        let (before, after) =
            (&source[self.body.start..self.span.start], &source[self.span.end..self.body.end]);
        format!("{before}{}{after}", self.replacement)
    }
}

/// Hashes bytes: FNV-1a, mixed at the end.
pub fn hash(bytes: &[u8], seed: u64) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let fold = bytes.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    let z = (fold ^ fold >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ z >> 31
}

/// Finds the byte of the brace that begins the body of the function in `span`.
fn body_at(source: &str, span: Range<usize>) -> Option<usize> {
    let tokens = tokens(&source[span.clone()]);
    opening(&tokens, 0).map(|brace| span.start + tokens[brace].at)
}

/// Whether two branches of a body can stand side by side, and be chosen at run time.
pub fn is_switchable(signature: &str) -> bool {
    let words: Vec<&str> = signature.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let is_const =
        words.windows(3).any(|w| w[0] == "const" && (w[1] == "fn" || w[1] == "unsafe" && w[2] == "fn"));
    !is_const && !signature.contains("-> impl")
}

/// Finds the byte of a place of the list, whose columns count characters.
fn byte_at(source: &str, starts: &[usize], place: &Value) -> Option<usize> {
    let number = |key| usize::try_from(place[key].as_u64()?).ok()?.checked_sub(1);
    let start = *starts.get(number("line")?)?;
    let line = &source[start..];
    let mut ends = line.char_indices().map(|(at, _)| at).chain([line.len()]);
    ends.nth(number("column")?).map(|at| start + at)
}

/// Reads the document that `cargo mutants --list --json` has printed, with the files that it names.
/// Returns the mutants that can be switched on at run time: a function that is `const` or lies in
/// another one is left out.
///
/// # Errors
///
/// The entry that is not understood.
pub fn parse(list: &str, files: &BTreeMap<String, String>) -> Result<Vec<Mutant>, String> {
    let list: Vec<Value> = serde_json::from_str(list).map_err(|e| format!("the list of mutants: {e}"))?;
    let mut mutants = Vec::new();
    let starts: BTreeMap<&str, Vec<usize>> = files
        .iter()
        .map(|(name, source)| {
            let ends = source.match_indices('\n').map(|(at, _)| at + 1);
            (name.as_str(), std::iter::once(0).chain(ends).collect())
        })
        .collect();
    for item in &list {
        let bad = || format!("the list of mutants has an entry that is not understood: {}", item["name"]);
        let function = &item["function"];
        let file = item["file"].as_str().ok_or_else(bad)?;
        if function.is_null() {
            continue;
        }
        let source = files.get(file).ok_or_else(bad)?;
        let place = |span: &Value| -> Option<Range<usize>> {
            Some(
                byte_at(source, &starts[file], &span["start"])?
                    ..byte_at(source, &starts[file], &span["end"])?,
            )
        };
        let (whole, span) =
            (place(&function["span"]).ok_or_else(bad)?, place(&item["span"]).ok_or_else(bad)?);
        let name = function["function_name"].as_str().ok_or_else(bad)?;
        let Some(open) = body_at(source, whole.clone()) else { continue };
        let body = open + 1..whole.end - 1;
        if !is_switchable(&source[whole.start..open]) || span.start < body.start || span.end > body.end {
            continue;
        }
        let line = item["span"]["start"]["line"].as_u64().ok_or_else(bad)? as usize;
        let said = item["name"].as_str().ok_or_else(bad)?;
        // `FILE:LINE:COLUMN: CHANGE`, with ` in FUNCTION` for a part of it.
        let change = said.splitn(4, ':').nth(3).ok_or_else(bad)?.trim();
        let change = change.strip_suffix(&format!(" in {name}")).unwrap_or(change);
        mutants.push(Mutant {
            file: file.into(),
            line,
            text: source[starts[file][line - 1]..].lines().next().unwrap_or_default().trim().into(),
            function: name.into(),
            change: change.into(),
            body,
            span,
            replacement: item["replacement"].as_str().ok_or_else(bad)?.into(),
        });
    }
    let bodies: Vec<(String, Range<usize>)> =
        mutants.iter().map(|m| (m.file.clone(), m.body.clone())).collect();
    mutants.retain(|m| {
        !bodies
            .iter()
            .any(|(file, body)| *file == m.file && body.start < m.body.start && m.body.end < body.end)
    });
    Ok(mutants)
}

/// The body of a function with a change, compiled beside the body as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The file, from the root of the workspace.
    pub file: String,
    /// The number that switches it on.
    pub number: usize,
    /// The bytes of the body, without braces.
    pub body: Range<usize>,
    /// The body with the change.
    pub changed: String,
}

/// Compiles branches of one file into its source: each is taken if its number is switched on.
/// Returns the source, and the lines of the branches with their numbers.
pub fn switched(source: &str, branches: &[&Branch]) -> (String, Vec<(Range<usize>, usize)>) {
    let mut bodies: BTreeMap<usize, Vec<&Branch>> = BTreeMap::new();
    for branch in branches {
        bodies.entry(branch.body.start).or_default().push(branch);
    }
    let (mut out, mut lines, mut at) = (String::new(), Vec::new(), 0);
    for (start, branches) in bodies {
        out += &source[at..start];
        for Branch { number, changed, .. } in &branches {
            let from = 1 + out.matches('\n').count();
            out += &format!("\nif crate::mutant_is_on({number}) {{\n{changed}\n}} else ");
            lines.push((from..1 + out.matches('\n').count(), *number));
        }
        let end = branches[0].body.end;
        out += &format!("{{{}}}\n", &source[start..end]);
        at = end;
    }
    (out + &source[at..], lines)
}

/// Returns the code that decides which mutant is on, to be put at the end of the crate's root. It
/// writes the number of each mutant that is come to into a file, if there is to be one.
pub fn switch(count: usize) -> String {
    format!(
        "
/// Returns whether a mutant is switched on.
pub(crate) fn mutant_is_on(number: usize) -> bool {{
    extern crate std;
    use core::sync::atomic::{{AtomicBool, AtomicUsize, Ordering::Relaxed}};
    use std::io::Write;
    static ON: AtomicUsize = AtomicUsize::new(usize::MAX);
    static SEEN: [AtomicBool; {n}] = [const {{ AtomicBool::new(false) }}; {n}];
    let mut on = ON.load(Relaxed);
    if on == usize::MAX {{
        on = std::env::var(\"{ON}\").ok().and_then(|on| on.parse().ok()).unwrap_or(0);
        ON.store(on, Relaxed);
    }}
    if on == 0
        && !SEEN[number].load(Relaxed)
        && !SEEN[number].swap(true, Relaxed)
        && let Some(file) = std::env::var_os(\"{SEEN}\")
        && let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(file)
    {{
        let _ = std::writeln!(file, \"{{number}}\");
    }}
    on == number
}}
",
        n = count + 1
    )
}

/// The variable with the number of the mutant that is on.
pub const ON: &str = "PTARMIGAN_MUTANT";
/// The variable with the file for the numbers of mutants that a test comes to.
pub const SEEN: &str = "PTARMIGAN_MUTANTS_SEEN";

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "a.rs";
    const SOURCE: &str = "/// A { brace, and \"text.\n#[doc = \"{\"]\nfn f(x: [u8; { 2 }]) -> u8 {\n    x[0] | x[1] // é {\n}\n\
                          const fn g() -> u8 {\n    1 + 1\n}\nfn h() {\n    fn i() -> bool {\n        1 == 2\n    }\n    i();\n}\n";

    /// An entry of the list: the lines of a function, and the place of a change.
    fn entry(
        name: &str,
        lines: (u64, u64),
        columns: (u64, u64),
        at: (u64, u64, u64),
        change: &str,
        new: &str,
    ) -> Value {
        let place = |line, column| serde_json::json!({ "line": line, "column": column });
        serde_json::json!({
            "file": FILE, "replacement": new, "name": format!("{FILE}:{}:{}: {change} in {name}", at.0, at.1),
            "function": { "function_name": name,
                "span": { "start": place(lines.0, columns.0), "end": place(lines.1, columns.1) } },
            "span": { "start": place(at.0, at.1), "end": place(at.0, at.2) },
        })
    }

    fn files() -> BTreeMap<String, String> {
        BTreeMap::from([(FILE.to_owned(), SOURCE.to_owned())])
    }

    fn mutants() -> Vec<Mutant> {
        let list = [
            entry("f", (1, 5), (1, 2), (4, 10, 11), "replace | with &", "&"),
            entry("f", (1, 5), (1, 2), (4, 10, 11), "replace | with ^", "^"),
            entry("g", (6, 8), (1, 2), (7, 7, 8), "replace + with -", "-"),
            entry("h", (9, 14), (1, 2), (13, 5, 9), "replace h with ()", "()"),
            entry("i", (10, 12), (5, 6), (11, 11, 13), "replace == with !=", "!="),
            serde_json::json!({ "file": FILE, "function": null, "name": "of no function" }),
        ];
        parse(&Value::from(list.to_vec()).to_string(), &files()).expect("fine")
    }

    #[test]
    fn bodies_are_found_despite_braces_in_signatures_and_texts() {
        let mutants = mutants();
        let said: Vec<String> = mutants.iter().map(ToString::to_string).collect();
        // `g` is const, and `i` lies in another function.
        assert_eq!(
            said,
            ["a.rs:4 f: replace | with &", "a.rs:4 f: replace | with ^", "a.rs:13 h: replace h with ()"]
        );
        assert_eq!(&SOURCE[mutants[0].body.clone()], "\n    x[0] | x[1] // é {\n");
        assert_eq!(mutants[0].mutated(SOURCE), "\n    x[0] & x[1] // é {\n");
        assert_eq!(mutants[0].text, "x[0] | x[1] // é {");
        assert_eq!(mutants[2].mutated(SOURCE), "\n    fn i() -> bool {\n        1 == 2\n    }\n    ()\n");
        assert!(is_switchable("pub unsafe fn f<const N: usize>()"));
        assert!(!is_switchable("pub const unsafe fn f()") && !is_switchable("fn f() -> impl Fn()"));
        assert_eq!(body_at("fn f();", 0..7), None);
        let broken = parse(r#"[{"file": "b.rs", "function": {}, "name": "n"}]"#, &files());
        assert!(broken.is_err_and(|why| why.contains("\"n\"")));
    }

    #[test]
    fn each_mutant_is_a_branch_and_its_lines_are_known() {
        let mutants = mutants();
        let branches: Vec<Branch> = (1..).zip(&mutants).map(|(number, m)| m.branch(number, SOURCE)).collect();
        let (source, lines) = switched(SOURCE, &branches.iter().collect::<Vec<_>>());
        let all: Vec<&str> = source.lines().collect();
        for (range, number) in &lines {
            let inside = all[range.start - 1..range.end].join("\n");
            assert!(inside.contains(&format!("mutant_is_on({number})")), "{inside}");
            let changed = mutants[*number - 1].mutated(SOURCE);
            assert!(inside.contains(changed.trim_end()), "{inside}");
        }
        assert_eq!(lines.len(), 3);
        // The last branch is the code as it was.
        assert!(
            source.contains("else {\n    x[0] | x[1] // é {\n}\n}\nconst fn g() -> u8 {\n    1 + 1\n}\n")
        );
        assert_eq!(switched(SOURCE, &[]), (SOURCE.to_owned(), Vec::new()));
        assert!(switch(3).contains("[AtomicBool; 4]") && switch(3).contains(ON));
    }

    #[test]
    fn a_seed_has_one_order_whatever_else_is_listed() {
        let orders = |seed| mutants().iter().map(|m| m.order(seed)).collect::<Vec<_>>();
        assert_eq!(orders(1), orders(1));
        assert_ne!(orders(1), orders(2));
        let mut all = orders(1);
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 3, "mutants of one place differ");
    }
}
