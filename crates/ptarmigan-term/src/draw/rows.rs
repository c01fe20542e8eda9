//! One small picture for each of several things, one below the other, all on one scale.
use super::scale::Field;
use super::svg::{Anchor, Svg};
use super::{X_ROOM, XAxis};

/// Areas in rows.
pub struct Rows<'a> {
    /// The label of each row, the text at its end, and its values.
    pub rows: &'a [(String, String, Vec<f64>)],
    /// The axis to the right.
    pub x: XAxis,
    /// The end of the scale upwards, of all rows.
    pub y_end: f64,
}

/// Heights of a row's text and of its area.
const TEXT: f64 = 20.0;
const AREA: f64 = 34.0;

impl Rows<'_> {
    /// Draws the picture.
    pub fn draw(&self, width: f64, label: &str) -> String {
        let height = self.rows.len() as f64 * (TEXT + AREA) + X_ROOM;
        let mut svg = Svg::new(width, height);
        let mut field = Field {
            left: 0.0,
            right: width,
            top: 0.0,
            bottom: 0.0,
            x_end: self.x.end,
            values_end: self.x.values_end,
            y_end: self.y_end.max(1.0),
        };
        for (row, (what, said, values)) in self.rows.iter().enumerate() {
            field.top = row as f64 * (TEXT + AREA) + TEXT;
            field.bottom = field.top + AREA;
            svg.text((0.0, field.top - 5.0), "t", Anchor::Start, what);
            svg.text((width, field.top - 5.0), "m", Anchor::End, said);
            svg.path(&field.between(&vec![0.0; values.len()], values), "f0", "");
            svg.line((0.0, field.bottom), (width, field.bottom), "a");
        }
        // The first number stands at the edge.
        field.left = 4.0;
        field.draw_x(&mut svg, self.x.unit, self.x.what);
        svg.finish(label)
    }
}
