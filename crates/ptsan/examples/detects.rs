//! Prints the matrix of `tests/all/detects` as a table of Markdown: each defect that is put into
//! the code of a small kernel, and the kind of finding that each format gives.
#[macro_use]
#[path = "../tests/all/detects/matrix.rs"]
mod matrix;

use std::collections::BTreeMap;

/// Returns the name of a kind as reports write it: `FreeBeforeFlush` is `free-before-flush`.
fn kebab(kind: &str) -> String {
    let mut name = String::new();
    for letter in kind.chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.extend(letter.to_lowercase());
    }
    name
}

/// Prints a row: formats that give one kind stand together.
fn row(name: &str, found: &[(&str, &str)]) {
    let mut kinds: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (format, kind) in found {
        kinds.entry(kind).or_default().push(format);
    }
    let cells: Vec<String> =
        kinds.iter().map(|(kind, formats)| format!("`{}`: {}", kebab(kind), formats.join(", "))).collect();
    println!("| {} | {} |", name.replace('_', " "), cells.join("; "));
}

macro_rules! rows {
    ($($name:ident: $defect:ident, $($format:ident $kind:ident),+;)+) => {
        $(row(stringify!($name), &[$((stringify!($format), stringify!($kind))),+]);)+
    };
}

fn main() {
    println!("| defect | finding: formats |\n|---|---|");
    matrix_rows!(rows);
}
