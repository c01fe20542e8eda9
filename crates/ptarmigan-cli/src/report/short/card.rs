//! A card of 1200 by 630 pixels, the size that pages which show a link ask for: one picture, three
//! numbers, one piece of advice.
//!
//! It stands alone, so its colours are in it, and it is light in every setting.
use super::{cut, name};
use crate::report::collect::TraceFigures;
use crate::report::page;
use ptarmigan_term::draw::{escape, placed};
use std::fmt::Write;

const STYLE: &str = "text{font-family:system-ui,'Segoe UI','Liberation Sans','DejaVu Sans',sans-serif;fill:#1b1f23}\
    .bg{fill:#fff}.rule{fill:#0b62ab}\
    svg svg text{font-size:13px}.m{font-size:12px;fill:#57606a}\
    .g{stroke:#e4e7eb;fill:none}.a{stroke:#828b96;fill:none}.mark{fill:#1b1f23}\
    .f0{fill:#0b62ab}.f1{fill:#b5620a}.f2{fill:#2a8a61}.f3{fill:#a2528f}.shade{fill:#e9ecf0;stroke:#828b96}\
    .name{font-size:38px;font-weight:600}.line{font-size:20px;fill:#57606a}.two{font-size:15px}\
    .warn{fill:#b3420a}.value{font-size:40px;font-weight:600}.pair{font-size:28px}.what{font-size:18px;fill:#57606a}.advice{font-size:21px;font-weight:600}";

const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 48.0;
const INNER: f64 = WIDTH - 2.0 * MARGIN;
/// Traces that have a picture.
const TRACES: usize = 2;
/// The numbers on the card, in the words of the page.
const NUMBERS: [&str; 3] = ["page faults", "table pages made", "memory in tables, at most"];

/// Returns the card as an SVG document.
pub(in crate::report) fn card(all: &[TraceFigures]) -> String {
    let shown = &all[..all.len().min(TRACES)];
    let mut body = String::new();
    let mut text = |x: f64, y: f64, class: &str, text: &str| {
        // A string takes all that is written to it.
        let text = escape(text);
        let _ = writeln!(body, r#"<text x="{x}" y="{y}" class="{class}">{text}</text>"#);
    };
    let names: Vec<String> = shown.iter().map(|one| name(one, 46 / shown.len())).collect();
    let title = cut(&format!("Page tables: {}", names.join(" → ")), 52);
    text(MARGIN, 76.0, "name", &title);
    let leads = page::lead_lines(shown).into_iter().zip(page::time_lines(shown));
    let leads: Vec<String> = leads.map(|(line, times)| times.unwrap_or(line)).collect();
    let (class, lines) = match leads.as_slice() {
        [one] => ("line", in_two(one, 104)),
        // Each stays one line, and the line of its times has some 140 characters.
        several => ("line two", several.iter().map(|line| cut(line, 142)).collect()),
    };
    for (n, line) in lines.iter().enumerate() {
        text(MARGIN, 114.0 + 28.0 * n as f64, class, line);
    }
    if shown.iter().any(|one| one.facts.lost > 0) {
        let says = "Events were lost in recording: every figure is a guess.";
        text(MARGIN, 114.0 + 28.0 * lines.len() as f64, "line warn", says);
    }
    let (_, rows) = page::rows(shown);
    for (n, what) in NUMBERS.iter().enumerate() {
        let Some(row) = rows.iter().find(|row| row[0] == *what) else { continue };
        let x = MARGIN + INNER / 3.0 * n as f64;
        let values: Vec<&str> = row.iter().skip(1).take(shown.len()).map(String::as_str).collect();
        // Two values of ten characters fit in a third of the card only if they are smaller.
        let class = if values.len() > 1 { "value pair" } else { "value" };
        text(x, 210.0, class, &cut(&values.join(" → "), 20));
        let change = row.get(3).map_or(String::new(), |change| format!(": {change}"));
        text(x, 238.0, "what", &cut(&format!("{what}{change}"), 44));
    }
    text(MARGIN, 606.0, "advice", &cut(&advice(shown), 98));
    let wide = (INNER - 24.0 * (shown.len() as f64 - 1.0)) / shown.len() as f64;
    for (n, one) in shown.iter().enumerate() {
        // Two pictures are drawn wider than they are shown, as their keys stand beside them.
        let drawn = page::live_picture(shown, one, wide.max(640.0));
        let x = MARGIN + (wide + 24.0) * n as f64;
        body += &placed(&drawn, (x, 262.0), (wide, 300.0));
    }
    let label = escape(&title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1200 630\" width=\"1200\" height=\"630\" \
         role=\"img\" aria-label=\"{label}\">\n<title>{label}</title>\n<style>{STYLE}</style>\n\
         <rect width=\"1200\" height=\"630\" class=\"bg\"/>\n<rect width=\"12\" height=\"630\" class=\"rule\"/>\n\
         {body}</svg>\n"
    )
}

/// Breaks a text between words into two lines of at most `most` characters. The rest is cut.
fn in_two(text: &str, most: usize) -> Vec<String> {
    if text.chars().count() <= most {
        return vec![cut(text, most)];
    }
    let end = text.char_indices().nth(most).map_or(text.len(), |(at, _)| at);
    match text[..end].rsplit_once(' ') {
        Some((first, _)) => vec![cut(first, most), cut(&text[first.len() + 1..], most)],
        None => vec![cut(text, most)],
    }
}

/// Returns the line of advice: the first piece of the last trace that has any, else the reason.
fn advice(all: &[TraceFigures]) -> String {
    let advice = || all.iter().rev().filter_map(|one| one.advice.as_ref());
    if let Some(piece) = advice().find_map(|advice| advice.pieces.first()) {
        return format!("→ {}", page::sentence(&piece.title));
    }
    let known = advice().next().is_some() && advice().all(|advice| advice.problem.is_none());
    if known { "No change that was tried helps.".to_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::in_two;

    #[test]
    fn a_long_line_is_broken_between_words_and_only_the_rest_is_cut() {
        assert_eq!(in_two("one two", 7), ["one two"]);
        assert_eq!(in_two("one two three", 8), ["one two", "three"]);
        assert_eq!(in_two("one two three four", 8), ["one two", "three f…"]);
        assert_eq!(in_two("threefour", 4), ["thr…"]);
        assert_eq!(in_two("ä ö ü", 3), ["ä", "ö ü"]);
    }
}
