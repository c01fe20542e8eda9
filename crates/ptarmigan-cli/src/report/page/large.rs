//! Large pages, where a recorded Linux had huge ones.
use super::html::{Table, note, panels, said, section};
use crate::report::collect::{Figures, LargeFigures};
use crate::report::words::{count, plural, size};

/// Returns the part about large pages; empty if no recorded Linux had huge ones.
pub(super) fn large(all: &[Figures]) -> String {
    if all.iter().all(|one| one.large.is_none()) {
        return String::new();
    }
    let mapped = |large: &LargeFigures| plural(large.mapped, "large page");
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
        let mut table = Table::new("", &["", "small pages", "with large pages"]);
        let made = one.tables.made.iter().sum();
        let none = || "–".to_owned();
        for (what, small, large) in [
            ("large pages mapped by faults", none(), count(large.mapped)),
            ("large pages split", none(), count(large.splits)),
            ("faults that find their page mapped", none(), count(large.faults_found)),
            ("table pages made", count(made), count(large.tables_made)),
            ("alive at once, at most", count(one.facts.peak_live_tables), count(large.peak_live_tables)),
            ("memory in tables, at most", size(one.facts.peak_table_bytes), size(large.peak_table_bytes)),
            ("the same with the reserve", none(), size(large.peak_bytes_with_reserve)),
        ] {
            table.row([what.to_owned(), small, large]);
        }
        table.finish()
    });
    section(all, "large", &heading, caption, &content)
}
