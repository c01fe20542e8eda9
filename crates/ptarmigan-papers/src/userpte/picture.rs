//! The answer as a picture (SVG): memory to the right, sharing upwards.
use super::model::{LowMemory, Records};
use super::table::{Grid, size, used};
use std::fmt::{Result as Written, Write as _};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 420.0;
/// The corners of the field.
const LEFT: f64 = 64.0;
const RIGHT: f64 = 548.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 368.0;
/// Points of a curve for each doubling of the memory.
const POINTS: u32 = 4;
/// Colours of the curves, from dense to sparse.
const COLOURS: [&str; 6] = ["#08519c", "#238b45", "#b8860b", "#d94801", "#a50f15", "#54278f"];

/// The field: memories and sharings between which curves are drawn, on logarithmic axes.
struct Field {
    rams: (f64, f64),
    /// Powers of ten.
    sharings: (f64, f64),
}

impl Field {
    /// Returns where a memory is, from the left.
    fn x(&self, ram: f64) -> f64 {
        let (least, most) = self.rams;
        LEFT + (RIGHT - LEFT) * (ram / least).log2() / (most / least).log2().max(f64::MIN_POSITIVE)
    }

    /// Returns where a sharing is, from the top.
    fn y(&self, sharing: f64) -> f64 {
        let (least, most) = self.sharings;
        BOTTOM - (BOTTOM - TOP) * (sharing.log10() - least) / (most - least)
    }
}

/// A curve: memories in bytes with their sharing.
type Curve = Vec<(f64, f64)>;

fn curve(low: &LowMemory, (least, most): (f64, f64), records: Records, one_in: u32) -> Curve {
    let steps = ((most / least).log2() * f64::from(POINTS)).round().max(1.0) as u32;
    let at = |step: u32| {
        let ram = least * (most / least).powf(f64::from(step) / f64::from(steps));
        let sharing = low.exhausted_at(ram.round() as u64, records, used(one_in))?;
        (sharing > 0.0).then_some((ram, sharing))
    };
    (0..=steps).filter_map(at).collect()
}

/// Draws the sharing at which low tables exhaust low memory.
///
/// `None` if there is nothing to draw: fewer than two memories above low memory, or no room in it.
pub(super) fn draw(grid: &Grid) -> Option<String> {
    let rams = || grid.rams.iter().filter(|ram| **ram > grid.low.bytes).map(|ram| *ram as f64);
    let rams = (rams().fold(f64::INFINITY, f64::min), rams().fold(0.0, f64::max));
    if rams.0 >= rams.1 {
        return None;
    }
    let curves: Vec<(usize, Records, Curve)> = (0..grid.one_in.len())
        .flat_map(|at| Records::ALL.map(|records| (at, records)))
        .map(|(at, records)| (at, records, curve(&grid.low, rams, records, grid.one_in[at])))
        .collect();
    let all = || curves.iter().flat_map(|(_, _, curve)| curve.iter().map(|(_, sharing)| sharing.log10()));
    let (least, most) = (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
    if !least.is_finite() || !most.is_finite() {
        return None;
    }
    let field = Field { rams, sharings: (least.floor(), most.ceil().max(least.floor() + 1.0)) };
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut text, grid, &field, &curves);
    Some(text)
}

fn write(text: &mut String, grid: &Grid, field: &Field, curves: &[(usize, Records, Curve)]) -> Written {
    writeln!(
        text,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">"#
    )?;
    writeln!(text, r#"<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>"#)?;
    let low = size(grid.low.bytes);
    writeln!(
        text,
        r#"<text x="{LEFT}" y="18" font-size="14">Above a curve, low tables exhaust {low} of low memory: high tables pay</text>"#
    )?;
    writeln!(
        text,
        r##"<text x="{LEFT}" y="34" fill="#555">solid: 32-byte page records, as Linux; dashed: the library's</text>"##
    )?;
    axes(text, grid, field)?;
    for (at, records, curve) in curves {
        let points: Vec<String> =
            curve.iter().map(|(ram, s)| format!("{:.1},{:.1}", field.x(*ram), field.y(*s))).collect();
        let colour = COLOURS[at % COLOURS.len()];
        let dashes = if *records == Records::Library { r#" stroke-dasharray="3 4""# } else { "" };
        let points = points.join(" ");
        writeln!(
            text,
            r#"<polyline fill="none" stroke="{colour}" stroke-width="1.6"{dashes} points="{points}"/>"#
        )?;
        if let Some((ram, sharing)) = curve.last().filter(|_| *records == Records::Linux) {
            let (x, y) = (field.x(*ram) + 6.0, field.y(*sharing) + 4.0);
            let one_in = grid.one_in[*at];
            writeln!(text, r#"<text x="{x:.1}" y="{y:.1}" fill="{colour}">d = 1/{one_in}</text>"#)?;
        }
    }
    writeln!(text, "</svg>")
}

fn axes(text: &mut String, grid: &Grid, field: &Field) -> Written {
    let (least, most) = field.sharings;
    let mut power = least;
    while power <= most {
        let sharing = 10_f64.powf(power);
        let (y, label) =
            (field.y(sharing), if power < 0.0 { format!("{sharing}") } else { format!("{sharing:.0}") });
        writeln!(
            text,
            r##"<path d="M{LEFT} {y:.1}H{RIGHT}" stroke="#ddd"/><text x="{:.0}" y="{:.1}" text-anchor="end">{label}</text>"##,
            LEFT - 6.0,
            y + 4.0
        )?;
        power += 1.0;
    }
    for ram in grid.rams.iter().filter(|ram| **ram > grid.low.bytes) {
        let x = field.x(*ram as f64);
        writeln!(
            text,
            r##"<path d="M{x:.1} {TOP}V{BOTTOM}" stroke="#ddd"/><text x="{x:.1}" y="{:.0}" text-anchor="middle">{}</text>"##,
            BOTTOM + 18.0,
            size(*ram)
        )?;
    }
    writeln!(
        text,
        r#"<text x="{:.0}" y="{:.0}" text-anchor="middle">memory (bytes, log scale); d: used share of a table's entries</text>"#,
        (LEFT + RIGHT) / 2.0,
        BOTTOM + 40.0
    )?;
    writeln!(
        text,
        r#"<text transform="translate(16 {:.0}) rotate(-90)" text-anchor="middle">sharing S: mappings of a frame</text>"#,
        (TOP + BOTTOM) / 2.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn grid(rams: Vec<u64>) -> Grid {
        let low = LowMemory { bytes: 768 << 20, kernel: 80 << 20, spaces: 128, mapped: None };
        Grid { low, rams, one_in: vec![1, 512] }
    }

    #[test]
    fn every_curve_falls_and_lies_in_the_field() {
        let text = draw(&grid(vec![GIB, 8 * GIB, 64 * GIB])).expect("a picture");
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("<polyline")).collect();
        assert_eq!(lines.len(), 4, "two curves for each kind of records");
        for line in lines {
            let points =
                line.split("points=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("points");
            let points: Vec<(f64, f64)> = points
                .split(' ')
                .map(|point| point.split_once(',').expect("two numbers"))
                .map(|(x, y)| (x.parse().expect("x"), y.parse().expect("y")))
                .collect();
            assert_eq!(points.len(), 25, "four for each of six doublings");
            assert!(points.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 < two[1].1), "{points:?}");
            let inside = |(x, y): &(f64, f64)| (LEFT..=RIGHT).contains(x) && (TOP..=BOTTOM).contains(y);
            assert!(points.iter().all(inside), "{points:?}");
        }
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n") && text.len() < 8192, "{text}");
    }

    #[test]
    fn machines_without_high_memory_have_no_picture() {
        assert!(draw(&grid(vec![GIB / 2, 3 * GIB / 4])).is_none());
        assert!(draw(&grid(vec![GIB])).is_none());
    }
}
