//! Columns side by side: how often something lies between two bounds.
use super::scale::{Field, Unit};
use super::svg::{Anchor, Svg, width_of};
use super::{KEY, NARROW, X_ROOM, key};

/// A distribution. Columns have two segments.
pub struct Columns<'a> {
    /// The lower bound of each column, as text, and its two values.
    pub columns: &'a [(String, [f64; 2])],
    /// The meaning of the segments: class and text.
    pub key: [(&'static str, &'static str); 2],
    /// The end of the scale upwards.
    pub y_end: f64,
    /// The meaning of the bounds.
    pub what: &'static str,
    /// A column with a mark, and its text.
    pub mark: Option<(usize, String)>,
}

impl Columns<'_> {
    /// Draws the picture.
    pub fn draw(&self, width: f64, label: &str) -> String {
        let narrow = width < NARROW;
        let (height, right) = if narrow { (216.0, 8.0) } else { (226.0, 150.0) };
        let under = if narrow { 2.0 * KEY + 14.0 } else { 0.0 };
        let mut svg = Svg::new(width, height + under);
        let field = Field {
            left: 46.0,
            right: width - right,
            top: 24.0,
            bottom: height - X_ROOM,
            x_end: self.columns.len().max(1) as f64,
            values_end: self.columns.len().max(1) as f64,
            y_end: self.y_end.max(1.0),
        };
        field.draw_y(&mut svg, Unit::Count);
        let step = field.x(1.0) - field.left;
        // Numbers stand at least this far apart.
        let every = (46.0 / step).ceil().max(1.0) as usize;
        for (n, (bound, [lower, upper])) in self.columns.iter().enumerate() {
            let x = field.x(n as f64);
            let (base, middle, top) = (field.bottom, field.y(*lower), field.y(lower + upper));
            let wide = (step - 1.5).max(1.0);
            svg.rect((x, middle), (wide, base - middle), self.key[0].0, &format!("{bound}: {lower}"));
            svg.rect((x, top), (wide, middle - top), self.key[1].0, &format!("{bound}: {upper}"));
            let clear = x + width_of(bound) / 2.0 <= field.right;
            if n.is_multiple_of(every) && clear {
                svg.line((x, base), (x, base + 4.0), "a");
                svg.text((x, base + 17.0), "m", Anchor::Middle, bound);
            }
        }
        svg.text((field.right, field.bottom + 34.0), "m", Anchor::End, self.what);
        if let Some((column, text)) = &self.mark {
            let x = field.x(*column as f64 + 0.5);
            svg.line((x, field.top - 4.0), (x, field.bottom), "dash");
            svg.text_beside((x, field.top - 8.0), (0.0, field.right), text);
        }
        let at = if narrow { (field.left, height + 18.0) } else { (field.right + 16.0, field.top + 14.0) };
        key(&mut svg, at, &[self.key[1], self.key[0]]);
        svg.finish(label)
    }
}
