//! Draws pictures as SVG: the caller gives the data, and this module decides how they are drawn.
//!
//! Each picture is drawn for a width in pixels and is shown near that width, so text has about one
//! size in all of them. A page has pictures of several widths and shows those that fit.
mod bars;
mod columns;
mod lines;
mod matrix;
mod mirror;
mod rows;
mod scale;
mod stack;
mod svg;

pub use bars::{Bar, Bars};
pub use columns::Columns;
pub use lines::{Line, Lines};
pub use matrix::{Cell, Matrix};
pub use mirror::Mirror;
pub use rows::Rows;
pub use scale::Unit;
pub use stack::{Layer, Stack};
pub use svg::{escape, placed};

use svg::{Anchor, Svg};

/// The axis to the right of a picture, from 0. Values are of equal parts of it.
#[derive(Clone, Copy)]
pub struct XAxis {
    /// Its end.
    pub end: f64,
    /// Where the values end: pictures side by side have one axis, and a shorter recording leaves
    /// the rest of it empty.
    pub values_end: f64,
    /// The kind of its numbers.
    pub unit: Unit,
    /// The meaning of the numbers.
    pub what: &'static str,
}

/// Below this width a picture has its key under it instead of beside it.
const NARROW: f64 = 600.0;
/// The room below a picture for the numbers of its axis, and for their meaning.
const X_ROOM: f64 = 42.0;
/// The height of a line of a key.
const KEY: f64 = 19.0;

/// Draws a key: a patch and a text for each entry, one below the other.
fn key(svg: &mut Svg, (x, y): (f64, f64), entries: &[(&str, &str)]) {
    for (line, (class, text)) in entries.iter().enumerate() {
        let y = y + line as f64 * KEY;
        svg.rect((x, y - 9.0), (11.0, 11.0), class, "");
        svg.text((x + 17.0, y + 1.0), "t", Anchor::Start, text);
    }
}
