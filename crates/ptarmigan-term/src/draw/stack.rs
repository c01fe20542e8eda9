//! Areas on top of each other, over time or events.
use super::scale::{Field, Unit};
use super::svg::Svg;
use super::{KEY, NARROW, X_ROOM, XAxis, key};

/// One area.
pub struct Layer {
    /// The class of its area.
    pub class: &'static str,
    /// Its name.
    pub label: String,
    /// One value for each part of the axis.
    pub values: Vec<f64>,
}

/// Areas on top of each other, the first at the bottom.
pub struct Stack<'a> {
    /// The layers, the lowest first.
    pub layers: &'a [Layer],
    /// The axis to the right.
    pub x: XAxis,
    /// The end of the scale upwards.
    pub y_end: f64,
    /// A part with a mark on top, and its text.
    pub mark: Option<(usize, String)>,
}

impl Stack<'_> {
    /// Draws the picture.
    pub fn draw(&self, width: f64, label: &str) -> String {
        let narrow = width < NARROW;
        let keys = self.layers.len() as f64 * KEY;
        let (height, right) = if narrow { (236.0, 8.0) } else { (276.0, 150.0) };
        let under = if narrow { keys + 14.0 } else { 0.0 };
        let field = Field {
            left: 46.0,
            right: width - right,
            top: 26.0,
            bottom: height - X_ROOM,
            x_end: self.x.end,
            values_end: self.x.values_end,
            y_end: self.y_end.max(1.0),
        };
        let mut svg = Svg::new(width, height + under);
        field.draw_y(&mut svg, Unit::Count);
        let mut lower = vec![0.0; self.layers.first().map_or(0, |layer| layer.values.len())];
        for layer in self.layers {
            let upper: Vec<f64> = lower.iter().zip(&layer.values).map(|(a, b)| a + b).collect();
            svg.path(&field.between(&lower, &upper), layer.class, &layer.label);
            lower = upper;
        }
        field.draw_x(&mut svg, self.x.unit, self.x.what);
        if let Some((part, text)) = &self.mark {
            let x = field.left + field.part(lower.len()) * (*part as f64 + 0.5);
            let y = field.y(lower.get(*part).copied().unwrap_or(0.0));
            svg.dot((x, y), "mark");
            svg.text_beside((x, y - 5.0), (field.left, field.right), text);
        }
        // From the top down, as the areas lie.
        let entries: Vec<(&str, &str)> =
            self.layers.iter().rev().map(|layer| (layer.class, layer.label.as_str())).collect();
        let at = if narrow { (field.left, height + 18.0) } else { (field.right + 16.0, field.top + 14.0) };
        key(&mut svg, at, &entries);
        svg.finish(label)
    }
}
