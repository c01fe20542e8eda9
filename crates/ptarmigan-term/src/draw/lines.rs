//! Lines over time or events, with an area to compare them with.
use super::scale::{Field, Unit};
use super::svg::Svg;
use super::{KEY, NARROW, X_ROOM, XAxis, key};

/// One line.
pub struct Line {
    /// Classes of the line, and of its patch in a key.
    pub class: (&'static str, &'static str),
    /// Its name.
    pub label: String,
    /// One value for each part of the axis.
    pub values: Vec<f64>,
}

/// Lines on one scale.
pub struct Lines<'a> {
    /// The lines.
    pub lines: &'a [Line],
    /// The area behind them: its text and its values.
    pub area: (&'a str, &'a [f64]),
    /// The axis to the right.
    pub x: XAxis,
    /// The end of the scale upwards.
    pub y_end: f64,
    /// The kind of the values.
    pub unit: Unit,
}

impl Lines<'_> {
    /// Draws the picture.
    pub fn draw(&self, width: f64, label: &str) -> String {
        let narrow = width < NARROW;
        let (height, right) = if narrow { (236.0, 8.0) } else { (276.0, 190.0) };
        let under = if narrow { (self.lines.len() + 1) as f64 * KEY + 14.0 } else { 0.0 };
        let mut svg = Svg::new(width, height + under);
        let field = Field {
            left: 58.0,
            right: width - right,
            top: 14.0,
            bottom: height - X_ROOM,
            x_end: self.x.end,
            values_end: self.x.values_end,
            y_end: self.y_end.max(1.0),
        };
        field.draw_y(&mut svg, self.unit);
        let (what, values) = self.area;
        svg.path(&field.between(&vec![0.0; values.len()], values), "shade", what);
        for line in self.lines {
            svg.path(&field.steps(&line.values), line.class.0, &line.label);
        }
        field.draw_x(&mut svg, self.x.unit, self.x.what);
        let mut entries: Vec<(f64, &str, &str)> = self
            .lines
            .iter()
            .map(|line| (line.values.last().copied().unwrap_or(0.0), line.class.1, line.label.as_str()))
            .collect();
        entries.push((values.last().copied().unwrap_or(0.0), "shade", what));
        if narrow {
            let entries: Vec<(&str, &str)> = entries.iter().map(|(_, class, text)| (*class, *text)).collect();
            key(&mut svg, (field.left, height + 18.0), &entries);
            return svg.finish(label);
        }
        // Each label at the end of its line, or as close as its neighbours leave room.
        entries.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut below = f64::INFINITY;
        for (end, class, text) in entries {
            let y = (field.y(end) + 4.0).min(below - KEY);
            below = y;
            key(&mut svg, (field.right + 8.0, y), &[(class, text)]);
        }
        svg.finish(label)
    }
}
