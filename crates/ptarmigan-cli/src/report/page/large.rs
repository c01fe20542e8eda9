//! Large pages, where a recorded Linux had huge ones.
use super::html::{HtmlTable, note, panels, said, section};
use crate::report::collect::{LargePageReplay, TraceFigures};
use ptarmigan_term::words::several;
use ptarmigan_term::{Bytes, Count};

/// Returns the part about large pages; empty if no recorded Linux had huge ones.
pub(super) fn large(all: &[TraceFigures]) -> String {
    if all.iter().all(|one| one.large.is_none()) {
        return String::new();
    }
    let mapped = |large: &LargePageReplay| several(large.mapped, "large page");
    let heading = format!(
        "Faults map {} where the recorded Linux had huge ones",
        said(all, |one| one.large.as_ref().map_or("no large pages".to_owned(), mapped))
    );
    let caption = "A second replay, with large pages of 2 MiB in the areas in which the recorded Linux tried huge \
                   ones. A large page has no leaf table. For each a frame is reserved, so that splitting it cannot \
                   fail: it stays free until then. All other parts of this page are without large pages, as Linux \
                   keeps a table for each huge page and counts it.";
    let content = panels(all, |one| {
        let Some(large) = &one.large else { return note("This recording is of a Linux without huge pages.") };
        let mut table = HtmlTable::new("", &["", "small pages", "with large pages"]);
        let made = one.tables.made.iter().sum();
        let none = || "–".to_owned();
        for (what, small, large) in [
            ("large pages mapped by faults", none(), Count(large.mapped).to_string()),
            ("large pages split", none(), Count(large.splits).to_string()),
            ("faults that find their page mapped", none(), Count(large.faults_found).to_string()),
            ("table pages made", Count(made).to_string(), Count(large.tables_made).to_string()),
            (
                "alive at once, at most",
                Count(one.facts.peak_live_tables).to_string(),
                Count(large.peak_live_tables).to_string(),
            ),
            (
                "memory in tables, at most",
                Bytes(one.facts.peak_table_bytes).to_string(),
                Bytes(large.peak_table_bytes).to_string(),
            ),
            ("the same with the reserve", none(), Bytes(large.peak_bytes_with_reserve).to_string()),
        ] {
            table.row([what.to_owned(), small, large.to_string()]);
        }
        table.finish()
    });
    section(all, "large", &heading, caption, &content)
}
