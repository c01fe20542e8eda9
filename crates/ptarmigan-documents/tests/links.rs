//! Links lead somewhere: in the repository, in the book, and, for READMEs of packages, outside
//! both.
use ptarmigan_documents::files::{pages, root};
use ptarmigan_documents::markdown::Page;
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

/// Directories with pages.
const PLACES: [&str; 11] = [
    "docs",
    "book/src",
    "crates",
    "traces",
    "kernels",
    "linux",
    "benches-vs-peers",
    "models",
    "fuzz",
    "bindings",
    "integrations",
];

/// Registries and their documentation, to which READMEs of packages may lead.
const OUTSIDE: [&str; 3] = ["https://crates.io/crates/", "https://docs.rs/", "https://doc.rust-lang.org/"];

fn all() -> Vec<PathBuf> {
    let mut all: Vec<_> =
        ["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(|page| root().join(page)).into();
    for place in PLACES {
        let place = root().join(place);
        if place.is_dir() {
            all.extend(pages(&place).expect("pages"));
        }
    }
    all
}

fn parse(path: &Path) -> Page {
    Page::parse(&std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
}

/// Returns a path without `.` and `..`, from the root of the repository.
fn short(path: &Path) -> PathBuf {
    let root = root();
    let mut parts = Vec::new();
    for part in path.strip_prefix(&root).unwrap_or(path).components() {
        match part {
            Component::ParentDir => {
                parts.pop();
            }
            Component::CurDir => {}
            part => parts.push(part),
        }
    }
    parts.iter().collect()
}

/// Returns the fault of a link of `page`, if it has one.
fn problem(page: &Path, target: &str, anchors: &HashMap<PathBuf, Vec<String>>) -> Option<String> {
    if target.contains("://") {
        return (!target.starts_with("https://")).then(|| "it is no https".to_owned());
    }
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, name)| (file, Some(name)));
    let path = if file.is_empty() { page.to_owned() } else { page.parent()?.join(file) };
    if !path.exists() {
        return Some("there is no such file".to_owned());
    }
    let anchor = anchor?;
    let names = anchors.get(&path.canonicalize().ok()?);
    match names {
        // Links to lines of a source file, and the like.
        None => Some("its file has no headings".to_owned()),
        Some(names) if names.iter().any(|name| name == anchor) => None,
        Some(_) => Some("its page has no such heading".to_owned()),
    }
}

#[test]
fn links_lead_to_files_and_headings() {
    let all = all();
    let anchors: HashMap<PathBuf, Vec<String>> =
        all.iter().map(|path| (path.canonicalize().expect("it is there"), parse(path).anchors)).collect();
    let mut wrong = Vec::new();
    let mut links = 0;
    for path in &all {
        for link in parse(path).links {
            links += 1;
            if let Some(why) = problem(path, &link.target, &anchors) {
                wrong.push(format!("{}:{}: {}: {why}", short(path).display(), link.line, link.target));
            }
        }
    }
    assert!(links > 200, "only {links} links were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn links_of_the_book_stay_in_the_book() {
    let mut wrong = Vec::new();
    for place in ["docs", "book/src"] {
        for path in &pages(&root().join(place)).expect("pages") {
            for link in parse(path).links.iter().filter(|link| !link.target.contains("://")) {
                let file = link.target.split('#').next().unwrap_or_default();
                let target = short(&path.parent().expect("a directory").join(file));
                let inside = ["docs", "book/src"].iter().any(|place| target.starts_with(place));
                if !inside {
                    wrong.push(format!("{}:{}: {}", short(path).display(), link.line, link.target));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "these leave the book: name the file in backticks\n{}", wrong.join("\n"));
}

#[test]
fn every_page_is_a_chapter_and_every_chapter_a_page() {
    let book = root().join("book/src");
    let chapters: Vec<String> =
        parse(&book.join("SUMMARY.md")).links.into_iter().map(|link| link.target).collect();
    let own = pages(&book).expect("pages of the book");
    let own = own.iter().filter_map(|path| path.strip_prefix(&book).ok()?.to_str().map(str::to_owned));
    let documents = root().join("docs");
    let docs = pages(&documents).expect("the documents");
    let docs = docs.iter().filter_map(|path| path.strip_prefix(&documents).ok()?.to_str());
    let pages: Vec<String> =
        own.filter(|name| name != "SUMMARY.md").chain(docs.map(|name| format!("reference/{name}"))).collect();
    for page in &pages {
        assert!(chapters.contains(page), "{page} is not in book/src/SUMMARY.md");
    }
    for chapter in &chapters {
        assert!(pages.contains(chapter), "{chapter} is in book/src/SUMMARY.md only");
    }
}

#[test]
fn links_of_package_readmes_work_outside_the_repository() {
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(root().join("crates")).expect("the crates").flatten() {
        let manifest = std::fs::read_to_string(entry.path().join("Cargo.toml")).expect("a manifest");
        let readme = entry.path().join("README.md");
        if manifest.contains("publish = false") || !readme.exists() {
            continue;
        }
        for link in parse(&readme).links {
            let target = &link.target;
            let in_package = !target.contains("..") && !target.contains("://");
            if !in_package && !OUTSIDE.iter().any(|place| target.starts_with(place)) {
                wrong.push(format!("{}:{}: {target}", short(&readme).display(), link.line));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
