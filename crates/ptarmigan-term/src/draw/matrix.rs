//! Small distributions in rows and columns, all on one logarithmic scale.
use super::svg::{Anchor, Svg, number, width_of};

/// One distribution.
pub struct Cell {
    /// Lower bound, upper bound and share of each bin.
    pub bins: Vec<(f64, f64, f64)>,
    /// A value with a mark.
    pub mark: Option<f64>,
    /// The text in the corner.
    pub said: String,
    /// The class of the bins.
    pub class: &'static str,
}

/// Distributions by row and column.
pub struct Matrix<'a> {
    /// The names of the rows.
    pub rows: &'a [String],
    /// The names of the columns.
    pub columns: &'a [String],
    /// The cells, row by row.
    pub cells: &'a [Vec<Cell>],
    /// Marks of the scale with their texts; the first and the last are its ends.
    pub ticks: &'a [(f64, &'a str)],
}

/// Sizes of a cell's area and of the texts around.
const AREA: f64 = 46.0;
const TEXT: f64 = 20.0;
const GAP: f64 = 18.0;

impl Matrix<'_> {
    /// Draws the picture: columns beside each other as far as there is room, else below each other.
    pub fn draw(&self, width: f64, label: &str) -> String {
        let across =
            if width < 400.0 { 1 } else { self.columns.len().clamp(1, if width < 600.0 { 2 } else { 4 }) };
        let left = 84.0;
        let wide = (width - left - GAP * (across - 1) as f64) / across as f64;
        let block = TEXT + self.rows.len() as f64 * (AREA + 8.0) + 28.0;
        let blocks = self.columns.len().div_ceil(across);
        let mut svg = Svg::new(width, block * blocks as f64);
        for (n, column) in self.columns.iter().enumerate() {
            let x = left + (n % across) as f64 * (wide + GAP);
            let top = (n / across) as f64 * block;
            svg.text((x, top + 14.0), "b", Anchor::Start, column);
            for (row, name) in self.rows.iter().enumerate() {
                let bottom = top + TEXT + (row + 1) as f64 * (AREA + 8.0) - 8.0;
                if n % across == 0 {
                    svg.text((left - 10.0, bottom - 4.0), "t", Anchor::End, name);
                }
                if let Some(cell) = self.cells.get(row).and_then(|cells| cells.get(n)) {
                    self.cell(&mut svg, cell, (x, bottom), wide);
                }
            }
            let bottom = top + TEXT + self.rows.len() as f64 * (AREA + 8.0) - 8.0;
            // Texts where there is room for them, the last one first.
            let mut free = x + wide;
            for (tick, (value, text)) in self.ticks.iter().enumerate().rev() {
                let at = x + wide * self.place(*value);
                svg.line((at, bottom), (at, bottom + 4.0), "a");
                let width = width_of(text);
                let (anchor, start) = match tick {
                    0 => (Anchor::Start, at),
                    last if last + 1 == self.ticks.len() => (Anchor::End, at - width),
                    _ => (Anchor::Middle, at - width / 2.0),
                };
                if start + width <= free + 0.5 {
                    svg.text((at, bottom + 16.0), "m", anchor, text);
                    free = start - 8.0;
                }
            }
        }
        svg.finish(label)
    }

    /// Returns where a value is, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let end = |tick: Option<&(f64, &str)>| tick.map_or(1.0, |tick| tick.0).ln();
        let (first, last) = (end(self.ticks.first()), end(self.ticks.last()));
        ((value.max(f64::MIN_POSITIVE).ln() - first) / (last - first).max(f64::MIN_POSITIVE)).clamp(0.0, 1.0)
    }

    fn cell(&self, svg: &mut Svg, cell: &Cell, (x, bottom): (f64, f64), wide: f64) {
        let most = cell.bins.iter().map(|bin| bin.2).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let mut d = String::new();
        for (from, to, share) in cell.bins.iter().filter(|bin| bin.2 > 0.0) {
            let (a, b) = (x + wide * self.place(*from), x + wide * self.place(*to));
            // A call in a thousand can still be seen.
            let high = ((AREA - 12.0) * share / most).max(0.8);
            let (a, b, y) = (number(a), number(b), number(bottom - high));
            d += &format!("M{a} {}V{y}H{b}V{}Z", number(bottom), number(bottom));
        }
        svg.path(&d, cell.class, "");
        svg.line((x, bottom), (x + wide, bottom), "a");
        if let Some(mark) = cell.mark {
            let at = x + wide * self.place(mark);
            svg.line((at, bottom - AREA + 10.0), (at, bottom), "dash");
        }
        svg.text((x + wide, bottom - AREA + 12.0), "m", Anchor::End, &cell.said);
    }
}
