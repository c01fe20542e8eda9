//! The page: one HTML document that needs no other files and no scripts.
mod advice;
mod behind;
mod fact;
mod facts;
mod flushes;
mod glossary;
mod html;
mod large;
mod live;
mod method;
mod placed;
mod policies;
mod style;
mod tables;
mod times;
mod work;

use super::collect::TraceFigures;
use super::words::letter;
use html::name;
use ptarmigan_term::draw::{Unit, XAxis, escape};
use style::STYLE;

pub(super) use advice::{FIGURE as ADVICE_FIGURE, SHOWN as ADVICE_SHOWN, sentence};
pub(super) use facts::{lead_lines, rows, time_lines};
pub(super) use live::picture as live_picture;

/// Returns the page about these traces, of which there is at least one.
pub(super) fn page(all: &[TraceFigures]) -> String {
    let names: Vec<String> = (0..all.len()).map(|n| name(n, all)).collect();
    let title = format!("Table pages: {}", names.join(", "));
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"generator\" content=\"ptarmigan {}\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n",
        env!("CARGO_PKG_VERSION"),
        escape(&title)
    );
    html += &format!("<header>\n<h1>{}</h1>\n", escape(&title));
    html += &facts::lead(all);
    html += &warnings(all);
    html += "</header>\n";
    let (parts, folded) = parts(all);
    html += &format!("<div class=\"top\">\n{}{}</div>\n", advice::advice(all), facts::facts(all));
    html += &contents(&parts, &folded);
    let bodies = |parts: &[Part]| parts.iter().map(|part| part.html.as_str()).collect::<String>();
    html += &format!("<main>\n{}", bodies(&parts));
    html += &format!(
        "<details id=\"kernel\">\n<summary><h2>For kernel developers</h2> {}</summary>\n\
         <div class=\"folded\">\n{}</div>\n</details>\n</main>\n",
        folded.iter().map(|part| part.title).collect::<Vec<_>>().join(", "),
        deeper(&bodies(&folded))
    );
    html += &glossary::glossary();
    html += &method::method(all);
    html + "</body>\n</html>\n"
}

/// A part of the page.
struct Part {
    id: &'static str,
    /// Its name in the contents.
    title: &'static str,
    html: String,
}

/// Returns the parts for all readers, and those for kernel developers. Parts without content are
/// left out.
fn parts(all: &[TraceFigures]) -> (Vec<Part>, Vec<Part>) {
    let part = |id, title, html| Part { id, title, html };
    let mut parts = vec![
        part("where", "where", work::mappings(all)),
        part("functions", "by function", work::functions(all)),
        part("calls", "calls", times::by_call(all)),
        part("live", "table pages alive", live::levels(all)),
        part("programs", "by program", live::programs(all)),
        part("fullness", "how full", tables::fullness(all)),
        part("lifetimes", "lives", tables::lifetimes(all)),
        part("causes", "causes", tables::causes(all)),
        part("flushes", "TLB flushes", flushes::flushes(all)),
        part("large", "large pages", large::large(all)),
        part("userpte", "low memory", placed::placed(all)),
    ];
    parts.retain(|part| !part.html.is_empty());
    let folded = vec![
        part("policies", "policies", policies::side_by_side(all)),
        part("latency", "latency", policies::latency(all)),
        part("kept", "memory kept", policies::kept(all)),
    ];
    (parts, folded)
}

/// Returns links to all parts.
fn contents(parts: &[Part], folded: &[Part]) -> String {
    let link = |id: &str, title: &str| format!("<li><a href=\"#{id}\">{title}</a></li>\n");
    let links = |parts: &[Part]| parts.iter().map(|part| link(part.id, part.title)).collect::<String>();
    format!(
        "<nav aria-label=\"Contents\">\n<ul>\n{}{}{}{}</ul>\n</nav>\n",
        links(parts),
        link("kernel", "for kernel developers:"),
        links(folded),
        link("glossary", "glossary")
    )
}

/// Returns sections with their headings one level deeper. Text has no markup that could be taken
/// for a heading.
fn deeper(html: &str) -> String {
    let html = html.replace("<h3>", "<h4>").replace("</h3>", "</h4>");
    html.replace("<h2>", "<h3>").replace("</h2>", "</h3>")
}

/// Returns the facts that a reader must know before trusting a figure.
fn warnings(all: &[TraceFigures]) -> String {
    let mut lines = Vec::new();
    for (n, one) in all.iter().enumerate() {
        for warning in &one.warnings {
            let of = if all.len() > 1 { format!("<b>{}</b> ", letter(n)) } else { String::new() };
            lines.push(format!("<p>{of}{}</p>", escape(warning)));
        }
    }
    if let Some(unequal) = facts::unequal(all) {
        lines.push(format!("<p><b>Not alike</b> {}</p>", escape(&unequal)));
    }
    if lines.is_empty() {
        return String::new();
    }
    format!("<div class=\"warn\" role=\"note\">\n{}\n</div>\n", lines.join("\n"))
}

/// Returns the axis of a trace's pictures: one for all traces whose axes are alike.
fn x_axis(all: &[TraceFigures], one: &TraceFigures) -> XAxis {
    let (unit, what) = match one.facts.is_time() {
        true => (Unit::Time, "time since the start of the recording"),
        false => (Unit::Count, "events since the start of the recording"),
    };
    let alike = all.iter().filter(|other| other.facts.axis == one.facts.axis);
    let end = alike.map(|other| other.facts.axis_end).max().unwrap_or(one.facts.axis_end);
    XAxis { end: end as f64, values_end: one.facts.axis_end as f64, unit, what }
}

/// Returns the largest of a value over all traces, so that their pictures have one scale.
fn most(all: &[TraceFigures], value: impl Fn(&TraceFigures) -> f64) -> f64 {
    all.iter().map(value).fold(0.0, f64::max)
}
