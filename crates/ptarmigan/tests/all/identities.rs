//! Every public type says whose it is, or `owners.list` says why it need not.
#![cfg(not(any(loom, miri)))]
use crate::reasons::reasons;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Names of machines, spaces and sets of local maps.
const SEEDS: [&str; 3] = ["MachineId", "SpaceId", "MapsId"];

/// Crates whose sources are scanned, and the module that names of their types begin with; of the
/// library it is the module below its root.
const CRATES: [(&str, Option<&str>); 5] = [
    ("ptarmigan", None),
    ("ptarmigan-adapters", Some("adapters")),
    ("ptarmigan-hosted", Some("hosted")),
    ("ptarmigan-linux", Some("linux")),
    ("ptarmigan-pool", Some("pool")),
];

/// A struct or an enum of the library, or of a crate beside it.
struct Definition {
    file: String,
    /// The module below the crate's root that it is in, or the crate.
    module: String,
    name: String,
    is_public: bool,
    is_struct: bool,
    /// Its parameters and fields, without comments.
    body: String,
    has_identity: bool,
}

impl Definition {
    /// Returns whether it holds a borrow for a lifetime of its own.
    fn borrows(&self) -> bool {
        self.body.split("&'").skip(1).any(|rest| !rest.starts_with("static"))
    }

    fn words(&self) -> impl Iterator<Item = &str> {
        self.body.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
    }
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the folder of the sources is there") {
        let path = entry.expect("an entry of the folder").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
}

/// The text up to the end of a definition: a `;`, or the `}` that closes it.
fn body(text: &str) -> &str {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 && (c == '}' || c == ';') {
            return &text[..at];
        }
    }
    panic!("a definition without an end: {}", &text[..text.len().min(80)]);
}

fn definitions(root: &Path, name: Option<&str>) -> Vec<Definition> {
    let mut files = Vec::new();
    sources(root, &mut files);
    files.sort();
    let mut found = Vec::new();
    for path in files {
        let file = path.strip_prefix(root).expect("below the root").display().to_string();
        let first = file.split('/').next().unwrap_or_default().trim_end_matches(".rs");
        let module = name.unwrap_or(first).to_owned();
        let text = fs::read_to_string(&path).expect("a source can be read");
        let text: String = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .flat_map(|line| [line, "\n"])
            .collect();
        let mut at = 0;
        for line in text.split_inclusive('\n') {
            let start = at;
            at += line.len();
            let code = line.trim_start();
            let (visible, code) = match code.split_once(' ') {
                Some((first, rest)) if first == "pub" || first.starts_with("pub(") => (first, rest),
                _ => ("", code),
            };
            let Some((kind @ ("struct" | "enum"), rest)) = code.split_once(' ') else { continue };
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            if end == 0 {
                // A macro's parameter.
                continue;
            }
            let begin = start + (line.len() - rest.len()) + end;
            found.push(Definition {
                file: path.display().to_string(),
                module: module.clone(),
                name: rest[..end].to_owned(),
                is_public: visible == "pub",
                is_struct: kind == "struct",
                body: body(&text[begin..]).to_owned(),
                has_identity: false,
            });
        }
    }
    found
}

/// Finds the types that hold an identity or a borrow of their owner, in a field or in that of a
/// type that they hold.
///
/// Enums are not looked into: their content depends on the variant.
fn find_identities(all: &mut [Definition]) {
    for definition in &mut *all {
        let seeded = definition.words().any(|word| SEEDS.contains(&word));
        let held = definition.is_struct && (definition.borrows() || seeded);
        definition.has_identity = held || SEEDS.contains(&definition.name.as_str());
    }
    loop {
        let holds = |definition: &Definition| {
            let one = |word: &str| {
                let named: Vec<_> = all.iter().filter(|d| d.name == word).collect();
                let here: Vec<_> = named.iter().filter(|d| d.file == definition.file).copied().collect();
                let near: Vec<_> = named.iter().filter(|d| d.module == definition.module).copied().collect();
                let meant = [here, near, named].into_iter().find(|found| !found.is_empty());
                word != definition.name && meant.is_some_and(|meant| meant.iter().all(|d| d.has_identity))
            };
            definition.is_struct && !definition.has_identity && definition.words().any(one)
        };
        let new: Vec<_> = (0..all.len()).filter(|at| holds(&all[*at])).collect();
        if new.is_empty() {
            return;
        }
        new.into_iter().for_each(|at| all[at].has_identity = true);
    }
}

#[test]
fn every_public_type_carries_its_owner_or_a_reason_why_not() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let mut all = Vec::new();
    for (name, module) in CRATES {
        all.extend(definitions(&root.join("crates").join(name).join("src"), module));
    }
    find_identities(&mut all);
    let mut excused = reasons(include_str!("owners.list"));
    let public: Vec<_> = all.iter().filter(|definition| definition.is_public).collect();
    assert!(public.len() > 200, "the scan finds {} types only", public.len());
    let without: BTreeSet<_> = public
        .iter()
        .filter(|definition| !definition.has_identity)
        .map(|definition| format!("{}::{}", definition.module, definition.name))
        .collect();
    let bare: Vec<_> = without.iter().filter(|name| excused.remove(*name).is_none()).collect();
    assert!(
        bare.is_empty(),
        "these types carry neither an identity nor a borrow of their owner: give them one, or give the \
         reason in owners.list: {bare:#?}"
    );
    assert!(excused.is_empty(), "rows of types that there are not, or that carry an owner: {excused:#?}");
}
