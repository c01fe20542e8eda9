//! Scales, their marks, and the frame that they stand around.
use super::svg::{Anchor, Svg, number, width_of};
use crate::{Bytes, Count, Time};

/// The kind of the numbers on a scale.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Numbers of something.
    Count,
    /// Bytes.
    Bytes,
    /// Microseconds.
    Time,
}

impl Unit {
    /// Formats a number on a scale.
    pub fn format(self, n: f64) -> String {
        match self {
            _ if n == 0.0 => "0".to_owned(),
            Unit::Count => short(n),
            Unit::Bytes => Bytes(n as u64).to_string(),
            Unit::Time => Time::from_micros(n).to_string(),
        }
    }

    /// Returns a round step of a scale that is at least `least`.
    fn step(self, least: f64) -> f64 {
        if self == Unit::Bytes {
            return 2_f64.powf(least.max(1.0).log2().ceil());
        }
        let power = 10_f64.powf(least.max(1e-9).log10().floor());
        let step = [1.0, 2.0, 5.0].into_iter().map(|n| n * power).find(|step| *step >= least * 0.999);
        let step = step.unwrap_or(10.0 * power);
        if self == Unit::Count { step.max(1.0) } else { step }
    }
}

/// Formats a large number in at most five characters, for which a scale has room.
fn short(n: f64) -> String {
    let (n, unit) = match n {
        n if n < 1e4 => return Count(n.round() as u64).to_string(),
        n if n < 1e6 => (n / 1e3, "k"),
        n if n < 1e9 => (n / 1e6, "M"),
        n => (n / 1e9, "G"),
    };
    let text = if n < 100.0 { format!("{n:.1}") } else { format!("{}", n.trunc()) };
    format!("{}{unit}", text.strip_suffix(".0").unwrap_or(&text))
}

/// Returns the marks of a scale from 0 to `end`, about `n` of them after the first.
pub fn ticks(end: f64, n: usize, unit: Unit) -> Vec<f64> {
    let step = unit.step(end.max(1.0) / n.max(1) as f64);
    (0..=(end / step + 1e-9) as usize).map(|i| i as f64 * step).collect()
}

/// The field of a picture, and the meaning of its sides. Both scales begin at 0.
///
/// Values for equal parts of the scale to the right end at `values_end`.
#[derive(Clone, Copy)]
pub struct Field {
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
    pub x_end: f64,
    pub values_end: f64,
    pub y_end: f64,
}

impl Field {
    /// Returns where a value is, from the left.
    pub fn x(&self, value: f64) -> f64 {
        self.left + (self.right - self.left) * value / self.x_end.max(f64::MIN_POSITIVE)
    }

    /// Returns where a value is, from the top.
    pub fn y(&self, value: f64) -> f64 {
        self.bottom - (self.bottom - self.top) * value / self.y_end.max(f64::MIN_POSITIVE)
    }

    /// Draws the lines of the upward scale with their numbers.
    pub fn draw_y(&self, svg: &mut Svg, unit: Unit) {
        let n = ((self.bottom - self.top) / 40.0) as usize;
        for tick in ticks(self.y_end, n.max(1), unit) {
            let y = self.y(tick);
            svg.line((self.left, y), (self.right, y), if tick == 0.0 { "a" } else { "g" });
            svg.text((self.left - 6.0, y + 4.0), "m", Anchor::End, &unit.format(tick));
        }
    }

    /// Draws the marks of the scale to the right with their numbers, and below them their meaning.
    pub fn draw_x(&self, svg: &mut Svg, unit: Unit, what: &str) {
        let n = ((self.right - self.left) / 80.0) as usize;
        for tick in ticks(self.x_end, n.max(2), unit) {
            let x = self.x(tick);
            svg.line((x, self.bottom), (x, self.bottom + 4.0), "a");
            let text = unit.format(tick);
            // The last number may not stick out.
            match x + width_of(&text) / 2.0 > self.right {
                true => svg.text((self.right, self.bottom + 17.0), "m", Anchor::End, &text),
                false => svg.text((x, self.bottom + 17.0), "m", Anchor::Middle, &text),
            }
        }
        svg.text((self.right, self.bottom + 34.0), "m", Anchor::End, what);
    }

    /// Returns the width of each of `parts` equal parts.
    pub fn part(&self, parts: usize) -> f64 {
        (self.x(self.values_end) - self.left) / parts.max(1) as f64
    }

    /// Returns the outline of values for equal parts of the scale to the right: a path that begins
    /// with `M` and has a step where the value changes.
    pub fn steps(&self, values: &[f64]) -> String {
        let mut d = String::new();
        let width = self.part(values.len());
        let mut last = String::new();
        for (part, value) in values.iter().enumerate() {
            let y = number(self.y(*value));
            if y != last {
                let x = number(self.left + part as f64 * width);
                d += &if part == 0 { format!("M{x} {y}") } else { format!("H{x}V{y}") };
                last = y;
            }
        }
        if d.is_empty() { d } else { d + &format!("H{}", number(self.x(self.values_end))) }
    }

    /// Returns the area between two outlines, `lower` and `upper`.
    pub fn between(&self, lower: &[f64], upper: &[f64]) -> String {
        if lower.iter().zip(upper).all(|(a, b)| a == b) {
            return String::new();
        }
        let width = self.part(lower.len());
        let mut d = self.steps(upper);
        let mut last = String::new();
        for (part, value) in lower.iter().enumerate().rev() {
            let y = number(self.y(*value));
            if y != last {
                if !last.is_empty() {
                    d += &format!("H{}", number(self.left + (part + 1) as f64 * width));
                }
                d += &format!("V{y}");
                last = y;
            }
        }
        d + &format!("H{}Z", number(self.left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_within_the_scale() {
        assert_eq!(ticks(297.0, 4, Unit::Count), [0.0, 100.0, 200.0]);
        assert_eq!(ticks(1.0, 4, Unit::Count), [0.0, 1.0]);
        assert_eq!(ticks(5.0 * 1024.0 * 1024.0, 4, Unit::Bytes), [0.0, 2097152.0, 4194304.0]);
        for end in [0.0, 1.0, 7.0, 1e3, 1e9] {
            for unit in [Unit::Count, Unit::Bytes, Unit::Time] {
                let marks = ticks(end, 5, unit);
                assert!(marks.len() < 13 && marks.iter().all(|mark| *mark <= end.max(1.0)), "{marks:?}");
            }
        }
    }

    #[test]
    fn numbers_on_a_scale_are_short() {
        let numbers = [0.0, 4000.0, 12_500.0, 400_000.0, 3_900_000.0];
        assert_eq!(numbers.map(|n| Unit::Count.format(n)), ["0", "4,000", "12.5k", "400k", "3.9M"]);
        assert_eq!(Unit::Bytes.format(2_097_152.0), "2 MiB");
    }

    #[test]
    fn outlines_have_a_step_where_the_value_changes_and_no_more() {
        let field = Field {
            left: 0.0,
            right: 40.0,
            top: 0.0,
            bottom: 10.0,
            x_end: 4.0,
            values_end: 4.0,
            y_end: 10.0,
        };
        assert_eq!(field.steps(&[1.0, 1.0, 5.0, 5.0]), "M0 9H20V5H40");
        assert_eq!(field.between(&[0.0; 4], &[1.0, 1.0, 5.0, 5.0]), "M0 9H20V5H40V10H0Z");
        assert_eq!(field.between(&[0.0, 0.0, 1.0, 1.0], &[2.0; 4]), "M0 8H40V9H20V10H0Z");
        assert_eq!(field.between(&[3.0; 4], &[3.0; 4]), "");
        assert_eq!(field.steps(&[]), "");

        // The values of a recording half as long as the axis.
        let half = Field { x_end: 8.0, ..field };
        assert_eq!(half.steps(&[1.0, 1.0, 5.0, 5.0]), "M0 9H10V5H20");
        assert_eq!(half.between(&[0.0; 4], &[1.0, 1.0, 5.0, 5.0]), "M0 9H10V5H20V10H0Z");
    }

    #[test]
    fn every_mark_has_its_number_and_the_unit_stands_below() {
        let field = Field {
            left: 0.0,
            right: 400.0,
            top: 0.0,
            bottom: 10.0,
            x_end: 4e6,
            values_end: 4e6,
            y_end: 1.0,
        };
        let mut svg = Svg::new(400.0, 60.0);
        field.draw_x(&mut svg, Unit::Time, "time");
        let picture = svg.finish("");
        let texts: Vec<&str> = picture.split("</text>").filter_map(|text| text.rsplit('>').next()).collect();
        assert_eq!(texts[..6], ["0", "1 s", "2 s", "3 s", "4 s", "time"], "{picture}");
        assert!(picture.contains(r#"y="44" class="m" text-anchor="end">time"#), "{picture}");
    }
}
