//! Bars to the right, one below the other.
use super::svg::{Anchor, Svg};
use super::{KEY, key};

/// One bar.
pub struct Bar {
    /// Its name, to its left.
    pub label: String,
    /// Its segments, in order: class and value.
    pub segments: Vec<(&'static str, f64)>,
    /// The text at its end.
    pub said: String,
}

/// Bars on one scale.
pub struct Bars<'a> {
    /// The bars, the first one on top.
    pub bars: &'a [Bar],
    /// The end of the scale.
    pub end: f64,
    /// The meaning of the segments: class and text. Empty if there is one.
    pub key: &'a [(&'static str, &'static str)],
    /// Room for the labels, and for the texts at the ends, in pixels.
    pub room: (f64, f64),
}

/// The distance from bar to bar, and the height of one.
const STEP: f64 = 26.0;
const THICK: f64 = 16.0;

impl Bars<'_> {
    /// Draws the picture.
    pub fn draw(&self, width: f64, label: &str) -> String {
        let bottom = self.bars.len() as f64 * STEP + 4.0;
        let keys = if self.key.is_empty() { 0.0 } else { KEY + 6.0 };
        let mut svg = Svg::new(width, bottom + keys);
        let (left, room) = self.room;
        let scale = (width - left - room) / self.end.max(f64::MIN_POSITIVE);
        for (row, bar) in self.bars.iter().enumerate() {
            let top = row as f64 * STEP + 4.0;
            svg.text((left - 8.0, top + 12.5), "t", Anchor::End, &bar.label);
            let mut x = left;
            for (class, value) in &bar.segments {
                let length = (value * scale).max(0.0);
                svg.rect((x, top), (length, THICK), class, "");
                x += length;
            }
            svg.text((x + 6.0, top + 12.5), "m", Anchor::Start, &bar.said);
        }
        svg.line((left, 0.0), (left, bottom), "a");
        let mut x = left;
        for entry in self.key {
            key(&mut svg, (x, bottom + KEY), &[*entry]);
            x += 34.0 + 7.5 * entry.1.chars().count() as f64;
        }
        svg.finish(label)
    }
}
