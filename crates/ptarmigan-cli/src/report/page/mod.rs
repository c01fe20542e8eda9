//! The page: one HTML document that needs no other files and no scripts.
mod facts;
mod flushes;
mod html;
mod large;
mod live;
mod method;
mod placed;
mod policies;
mod style;
mod tables;
mod times;

use super::collect::Figures;
use super::draw::{Unit, XAxis, escape};
use html::{letter, name};
use style::STYLE;

/// Returns the page about these traces, of which there is at least one.
pub(super) fn page(all: &[Figures]) -> String {
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
    html += &format!("<h1>{}</h1>\n", escape(&title));
    html += &facts::lead(all);
    html += &warnings(all);
    html += &facts::facts(all);
    html += &live::levels(all);
    html += &live::programs(all);
    html += &tables::fullness(all);
    html += &tables::lifetimes(all);
    html += &tables::causes(all);
    html += &policies::side_by_side(all);
    html += &policies::latency(all);
    html += &policies::kept(all);
    html += &flushes::flushes(all);
    html += &large::large(all);
    html += &placed::placed(all);
    html += &method::method(all);
    html + "</body>\n</html>\n"
}

/// Returns the facts that a reader must know before trusting a figure.
fn warnings(all: &[Figures]) -> String {
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
fn x_axis(all: &[Figures], one: &Figures) -> XAxis {
    let (unit, what) = match one.facts.is_time() {
        true => (Unit::Time, "time since the start of the recording"),
        false => (Unit::Count, "events since the start of the recording"),
    };
    let alike = all.iter().filter(|other| other.facts.axis == one.facts.axis);
    let end = alike.map(|other| other.facts.axis_end).max().unwrap_or(one.facts.axis_end);
    XAxis { end: end as f64, values_end: one.facts.axis_end as f64, unit, what }
}

/// Returns the largest of a value over all traces, so that their pictures have one scale.
fn most(all: &[Figures], value: impl Fn(&Figures) -> f64) -> f64 {
    all.iter().map(value).fold(0.0, f64::max)
}
