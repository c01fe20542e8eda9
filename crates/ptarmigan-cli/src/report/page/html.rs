//! Pieces of a page.
use super::{behind, glossary};
use crate::report::collect::TraceFigures;
use crate::report::words::letter;
use ptarmigan_term::draw::escape;

/// Widths that each picture is drawn for, in pixels, and their classes. The style sheet shows the
/// one that comes nearest to the width of its panel, scaled by 0.7 to 1.4.
const WIDTHS: [(f64, &str); 4] = [(336.0, "w336"), (480.0, "w480"), (680.0, "w680"), (960.0, "w960")];

/// Returns the name of a trace on the page: its own, with a letter if there are several.
pub(super) fn name(n: usize, all: &[TraceFigures]) -> String {
    let name = if all[n].facts.name.is_empty() { "(no name)" } else { &all[n].facts.name };
    if all.len() > 1 { format!("{} · {name}", letter(n)) } else { name.to_owned() }
}

/// Returns a value of each trace, in words: the value alone if there is one trace.
pub(super) fn said(all: &[TraceFigures], value: impl Fn(&TraceFigures) -> String) -> String {
    match all {
        [one] => value(one),
        all => {
            let each = all.iter().enumerate().map(|(n, one)| format!("{} ({})", value(one), letter(n)));
            each.collect::<Vec<_>>().join(if all.len() == 2 { " and " } else { ", " })
        }
    }
}

/// Returns a section with a picture or a table for each trace, and links to their data. `heading`
/// and `caption` are text.
pub(super) fn section(all: &[TraceFigures], id: &str, heading: &str, caption: &str, content: &str) -> String {
    // A number and its percent sign stay on one line.
    let heading = escape(heading).replace(" %", "\u{a0}%");
    let (caption, links) = (glossary::explain(caption), behind::links(all, id));
    format!(
        "<section id=\"{id}\">\n<h2>{heading}{}</h2>\n<p>{caption}</p>\n{content}{links}</section>\n",
        anchor(id)
    )
}

/// Returns a link from a heading to its own section.
pub(super) fn anchor(id: &str) -> String {
    format!(" <a class=\"anchor\" href=\"#{id}\" aria-label=\"Link to this part\">#</a>")
}

/// Returns a note, as text, under a picture.
pub(super) fn note(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("<p class=\"note\">{}</p>\n", escape(text)) }
}

/// Draws a picture for each trace, for each width that it may be shown at.
pub(super) fn pictures(all: &[TraceFigures], draw: impl Fn(&TraceFigures, f64) -> String) -> String {
    pictures_with(all, draw, |_| String::new())
}

/// As [`pictures`], with more HTML below each.
pub(super) fn pictures_with(
    all: &[TraceFigures],
    draw: impl Fn(&TraceFigures, f64) -> String,
    below: impl Fn(&TraceFigures) -> String,
) -> String {
    panels(all, |one| {
        let each = WIDTHS.map(|(width, class)| format!("<div class=\"{class}\">{}</div>", draw(one, width)));
        each.concat() + "\n" + &below(one)
    })
}

/// Puts something for each trace side by side.
pub(super) fn panels(all: &[TraceFigures], content: impl Fn(&TraceFigures) -> String) -> String {
    let class = if all.len() > 1 { "panels two" } else { "panels" };
    let mut html = format!("<div class=\"{class}\">\n");
    for (n, one) in all.iter().enumerate() {
        html += "<div class=\"panel\">";
        if all.len() > 1 {
            html += &format!("<h3>{}</h3>\n", escape(&name(n, all)));
        }
        html += &content(one);
        html += "</div>\n";
    }
    html + "</div>\n"
}

/// A table under construction. One that is wider than the page scrolls, not the page.
pub(super) struct HtmlTable(String);

impl HtmlTable {
    /// Begins a table with these headings.
    pub fn new(class: &str, headings: &[&str]) -> Self {
        let cells: String = headings.iter().map(|text| format!("<th>{}</th>", escape(text))).collect();
        HtmlTable(format!(
            "<div class=\"scroll\"><table class=\"{class}\"><thead><tr>{cells}</tr></thead><tbody>\n"
        ))
    }

    /// Adds a row.
    pub fn row<S: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let cells: String =
            cells.into_iter().map(|text| format!("<td>{}</td>", escape(text.as_ref()))).collect();
        self.0 += &format!("<tr>{cells}</tr>\n");
    }

    /// Adds a row that is a heading across `columns` columns.
    pub fn heading(&mut self, text: &str, columns: usize) {
        self.0 += &format!("<tr><th colspan=\"{columns}\">{}</th></tr>\n", escape(text));
    }

    /// Returns the table.
    pub fn finish(self) -> String {
        self.0 + "</tbody></table></div>\n"
    }
}
