//! Prints the exhibits as a page of Markdown. The texts are the documentation of the models.
use super::{ALL, Exhibit};
use std::fmt::Write;

/// The sources of the models.
const SOURCES: [&str; 15] = [
    include_str!("device.rs"),
    include_str!("errata.rs"),
    include_str!("freebsd.rs"),
    include_str!("gather.rs"),
    include_str!("invalid.rs"),
    include_str!("iommu.rs"),
    include_str!("mremap.rs"),
    include_str!("number.rs"),
    include_str!("order.rs"),
    include_str!("overlap.rs"),
    include_str!("reader.rs"),
    include_str!("still_mapped.rs"),
    include_str!("unlinked.rs"),
    include_str!("x86_switch.rs"),
    include_str!("xen.rs"),
];

/// Returns the documentation of the model of `exhibit`, as one line.
pub fn description(exhibit: &Exhibit) -> Option<String> {
    let name = format!("name: \"{}\"", exhibit.name);
    let source = SOURCES.iter().find(|source| source.contains(&name))?;
    let model = source.split(&name).nth(1)?.split("model: ").nth(1)?.split(',').next()?;
    let above = source.split(&format!("\nfn {model}(")).next()?;
    let lines = above.lines().rev().map_while(|line| line.strip_prefix("/// ")).collect::<Vec<_>>();
    (!lines.is_empty()).then(|| lines.into_iter().rev().collect::<Vec<_>>().join(" "))
}

/// Returns the catalogue: a heading for each exhibit, its facts, and its description.
pub fn catalogue() -> String {
    let mut page = String::new();
    for exhibit in ALL {
        let Exhibit { name, numbers, project, year, kind, pattern, check, .. } = exhibit;
        let pattern = if *pattern { ", pattern" } else { "" };
        let rules: Vec<String> = exhibit.rules.iter().map(|rule| format!("`{}`", rule.name())).collect();
        let rules = rules.join(" or ");
        let text = description(exhibit).unwrap_or_default();
        _ = writeln!(page, "### {name}\n\n{numbers}; {project}{pattern}, {year}\n\n{text}\n");
        _ = writeln!(page, "* Finding: `{kind}` ({rules})\n* Check: {check}\n");
    }
    page
}
