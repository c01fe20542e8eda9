//! Draws the parts of each case: a bar is as long as Linux takes instructions.

use std::fmt::Write as _;

use super::ratio::{Pair, linux};
use super::row::{SuiteRow, cases, find};
use super::show::number;

/// Groups of functions with the colours of their parts: reds are the small kernel's, blues the
/// library's.
const COLOURS: [(&str, &str); 8] = [
    ("entry", "#b45309"),
    ("tasks", "#d97706"),
    ("files", "#fbbf24"),
    ("tables", "#1d4ed8"),
    ("areas", "#0891b2"),
    ("data pages", "#38bdf8"),
    ("policy", "#6366f1"),
    ("other", "#a8a29e"),
];
const PROGRAM: &str = "#57534e";
const LINUX: &str = "#cbd5e1";

const LEFT: f64 = 176.0;
const WIDTH: f64 = 400.0;
const TOP: f64 = 84.0;
const LINE: f64 = 20.0;

struct Bar<'a> {
    case: &'a str,
    linux: f64,
    here: f64,
    plain: Option<f64>,
    /// Names, colours and instructions.
    parts: Vec<(&'a str, &'a str, f64)>,
}

fn bar<'a>(rows: &'a [SuiteRow], case: &'a str) -> Option<Bar<'a>> {
    let (linux, here) = (linux(rows, case, Pair::Never)?, find(rows, case, Pair::Never.here())?);
    let happened = here.happened.as_ref().filter(|_| !here.parts.is_empty())?;
    let mut parts = vec![("program", PROGRAM, happened.programs)];
    for (group, colour) in COLOURS {
        let part = here.parts.iter().find(|part| part.group == group)?;
        parts.push((group, colour, part.instructions));
    }
    let plain = find(rows, case, "plain-x86_64").map(|row| row.value);
    Some(Bar { case, linux: linux.value, here: here.value, plain, parts })
}

/// Draws the cases that have parts and a row of Linux. `None` without such a case.
pub fn svg(rows: &[SuiteRow], suite: &str) -> Option<String> {
    let bars: Vec<Bar<'_>> = cases(rows).into_iter().filter_map(|case| bar(rows, case)).collect();
    if bars.is_empty() {
        return None;
    }
    let height = TOP + LINE * bars.len() as f64 + 30.0;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 700 {height}\" font-family=\"sans-serif\" \
         font-size=\"11\" role=\"img\" aria-label=\"Instructions of the suite {suite}, as parts of Linux's\">\n\
         <style>text{{fill:#0f172a}}@media (prefers-color-scheme:dark){{text{{fill:#e2e8f0}}}}</style>\n\
         <text x=\"8\" y=\"18\" font-size=\"14\">Instructions of each case as a part of Linux's: a whole bar is Linux</text>\n"
    );
    let lists = ("without lists", "url(#lists)");
    let legend = [("program", PROGRAM)].into_iter().chain(COLOURS).chain([lists, ("Linux", LINUX)]);
    text.push_str(
        "<defs><pattern id=\"lists\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\">\
         <path d=\"M0 4L4 0\" stroke=\"#6366f1\"/></pattern></defs>\n",
    );
    for (i, (name, colour)) in legend.enumerate() {
        let (x, y) = (8.0 + 112.0 * (i % 6) as f64, 34.0 + 18.0 * (i / 6) as f64);
        let _ = writeln!(
            text,
            "<rect x=\"{x}\" y=\"{y}\" width=\"10\" height=\"10\" fill=\"{colour}\"/><text x=\"{}\" y=\"{}\">{name}</text>",
            x + 14.0,
            y + 9.0
        );
    }
    for (i, bar) in bars.iter().enumerate() {
        let y = TOP + LINE * i as f64;
        let _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            y + 11.0,
            bar.case
        );
        // A case that is slower than Linux fills its bar.
        let whole = bar.linux.max(bar.here).max(bar.plain.unwrap_or(0.0));
        let mut piece = |from: f64, to: f64, colour: &str, name: &str| {
            let (x, width) = (LEFT + WIDTH * from / whole, WIDTH * (to - from) / whole);
            if width >= 0.05 {
                let _ = writeln!(
                    text,
                    "<rect x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"14\" fill=\"{colour}\"><title>{name}: {}</title></rect>",
                    number(to - from)
                );
            }
        };
        piece(0.0, bar.linux, LINUX, "Linux, of this not here");
        if let Some(plain) = bar.plain.filter(|plain| *plain > bar.here) {
            piece(bar.here, plain, "url(#lists)", "spared by lists of table pages");
        }
        // The parts are of a boot in which the ticks of the clock fell as they did.
        let sum: f64 = bar.parts.iter().map(|part| part.2).sum();
        let mut at = 0.0;
        for (name, colour, instructions) in &bar.parts {
            let width = instructions * bar.here / sum;
            piece(at, at + width, colour, name);
            at += width;
        }
        let _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{}\">{:.2} times fewer</text>",
            LEFT + WIDTH + 6.0,
            y + 11.0,
            bar.linux / bar.here
        );
    }
    let bottom = height - 26.0;
    let _ = writeln!(text, "<path d=\"M{LEFT} {TOP}V{bottom}\" stroke=\"{LINUX}\"/>");
    let _ = writeln!(
        text,
        "<text x=\"8\" y=\"{}\">brown: the small kernel; blue: the library; hatched: spared by its lists of table pages</text>",
        height - 8.0
    );
    text.push_str("</svg>\n");
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::super::row::{Part, tests::row};
    use super::*;
    use crate::rows::Happened;
    use crate::split::GROUPS;

    fn rows() -> Vec<SuiteRow> {
        let happened = Happened {
            programs: 5.0,
            kernel: 40.0,
            pages_as_one: 45.0,
            cleared: Vec::new(),
            copied: Vec::new(),
            page_invalidations: 0.0,
            root_loads: 0.0,
        };
        let parts = GROUPS.map(|group| Part { group: group.into(), instructions: 5.0 });
        let here = SuiteRow {
            happened: Some(happened),
            parts: parts.into(),
            ..row("fork", "ptarmigan-x86_64", 45.0)
        };
        vec![row("fork", "linux-x86_64", 90.0), row("fork", "plain-x86_64", 60.0), here]
    }

    #[test]
    fn parts_fill_the_bar_up_to_the_case_s_value() {
        let text = svg(&rows(), "ours").expect("a picture");
        let widths: Vec<f64> = text
            .lines()
            .filter(|line| line.contains("<title>") && !line.contains(LINUX) && !line.contains("#lists"))
            .filter_map(|line| line.split("width=\"").nth(1)?.split('"').next()?.parse().ok())
            .collect();
        assert_eq!(widths.len(), 9);
        assert!((widths.iter().sum::<f64>() - WIDTH / 2.0).abs() < 0.5, "{widths:?}");
        assert!(text.contains("2.00 times fewer") && text.contains("spared by lists of table pages: 15.0"));
    }

    #[test]
    fn every_group_has_a_colour_and_rows_without_parts_no_bar() {
        assert_eq!(COLOURS.map(|(group, _)| group), GROUPS);
        assert!(
            svg(&[row("fork", "linux-x86_64", 90.0), row("fork", "ptarmigan-x86_64", 45.0)], "ours")
                .is_none()
        );
    }
}
