//! Makes a test of each page with blocks of Rust: all of its blocks as one program.
#[path = "src/markdown.rs"]
#[allow(dead_code)]
mod markdown;

use markdown::{Block, Page};
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages: Vec<PathBuf> =
        ["README.md", "crates/ptarmigan/README.md"].iter().map(|page| root.join(page)).collect();
    for directory in ["book/src", "docs"] {
        println!("cargo:rerun-if-changed={}", root.join(directory).display());
        for entry in std::fs::read_dir(root.join(directory))? {
            let path = entry?.path();
            if path.extension().is_some_and(|end| end == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    let mut program = String::new();
    for path in &pages {
        println!("cargo:rerun-if-changed={}", path.display());
        let page = Page::parse(&std::fs::read_to_string(path)?);
        let blocks: Vec<&Block> = page.blocks.iter().filter(|block| block.is_rust()).collect();
        if !blocks.is_empty() {
            program.push_str(&test(path.strip_prefix(&root)?, &blocks));
        }
    }
    let out = PathBuf::from(std::env::var("OUT_DIR")?).join("pages.rs");
    std::fs::write(out, program)?;
    Ok(())
}

/// Returns the test of a page. A block is inside the one before it: it sees the items of that
/// block, and may import the same names again.
fn test(path: &Path, blocks: &[&Block]) -> String {
    let path = path.with_extension("").to_string_lossy().to_lowercase();
    let name: String = path.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let mut text = format!("#[test]\nfn {name}() -> Result<(), Box<dyn std::error::Error>> {{\n");
    for block in blocks {
        text.push_str(&format!("    {{ // line {}\n{}", block.line, block.text));
    }
    text.push_str(&"    }\n".repeat(blocks.len()));
    text + "    Ok(())\n}\n"
}
