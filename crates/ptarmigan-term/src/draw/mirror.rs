//! Two stacks of areas over one axis: one upwards, one downwards.
use super::scale::{Field, Unit, ticks};
use super::svg::{Anchor, Svg};
use super::{KEY, X_ROOM, XAxis, key};

/// Values that go up and values that go down, in three segments each.
pub struct Mirror<'a> {
    /// The meaning of both directions, as text.
    pub labels: [&'static str; 2],
    /// For each part of the axis, the segments upwards and downwards.
    pub parts: &'a [[[f64; 3]; 2]],
    /// Classes of the segments, upwards and downwards.
    pub classes: [[&'static str; 3]; 2],
    /// The meaning of the segments.
    pub key: [&'static str; 3],
    /// The axis to the right.
    pub x: XAxis,
    /// The end of both scales.
    pub y_end: f64,
}

impl Mirror<'_> {
    /// Draws the picture.
    pub fn draw(&self, width: f64, label: &str) -> String {
        let half = 100.0;
        let (left, right, top) = (46.0, width - 8.0, 22.0);
        let middle = top + half;
        let height = middle + half + X_ROOM;
        let mut svg = Svg::new(width, height + 2.0 * KEY + 12.0);
        let up = Field {
            left,
            right,
            top,
            bottom: middle,
            x_end: self.x.end,
            values_end: self.x.values_end,
            y_end: self.y_end.max(1.0),
        };
        // Upside down: its zero is at its top.
        let down = Field { top: middle + half, ..up };
        for tick in ticks(up.y_end, 3, Unit::Count) {
            for field in [up, down] {
                let y = field.y(tick);
                svg.line((left, y), (right, y), if tick == 0.0 { "a" } else { "g" });
                svg.text((left - 6.0, y + 4.0), "m", Anchor::End, &Unit::Count.format(tick));
                if tick == 0.0 {
                    break;
                }
            }
        }
        for (side, field) in [up, down].iter().enumerate() {
            let mut lower = vec![0.0; self.parts.len()];
            for segment in 0..3 {
                let upper: Vec<f64> =
                    lower.iter().zip(self.parts).map(|(low, part)| low + part[side][segment]).collect();
                svg.path(&field.between(&lower, &upper), self.classes[side][segment], self.key[segment]);
                lower = upper;
            }
        }
        svg.text((left + 6.0, top - 7.0), "t", Anchor::Start, self.labels[0]);
        svg.text((left + 6.0, middle + half - 6.0), "t", Anchor::Start, self.labels[1]);
        Field { bottom: middle + half, ..up }.draw_x(&mut svg, self.x.unit, self.x.what);
        for (side, classes) in self.classes.iter().enumerate() {
            let mut x = left;
            for (class, text) in classes.iter().zip(self.key) {
                key(&mut svg, (x, height + 14.0 + side as f64 * KEY), &[(*class, text)]);
                x += 38.0 + 7.0 * text.chars().count() as f64;
            }
        }
        svg.finish(label)
    }
}
