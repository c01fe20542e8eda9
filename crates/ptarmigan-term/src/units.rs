//! Formats quantities.
use std::fmt::{Alignment, Display, Formatter, Result, Write};
use std::time::Duration;

/// Significant digits of a number of bytes or of a time, unless a precision asks for more.
const DIGITS: usize = 2;

/// Formats a number with commas between groups of three digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count(pub u64);

impl Count {
    /// Rounds to three digits, for a number that is an estimate.
    #[must_use]
    pub fn rounded(self) -> Self {
        let unit = 10u64.pow(self.0.checked_ilog10().unwrap_or(0).saturating_sub(2));
        Count((self.0 + unit / 2) / unit * unit)
    }
}

impl Display for Count {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        pad(f, &grouped(&self.0.to_string()))
    }
}

/// Formats a mean of counts, with one decimal or as many as a precision says.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Mean(pub f64);

impl Display for Mean {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        pad(f, &decimal(self.0, f.precision().unwrap_or(1)))
    }
}

/// Formats a number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl Bytes {
    /// Returns the whole MiB, for a text in the unit of an option.
    #[must_use]
    pub fn mib(self) -> u64 {
        self.0 >> 20
    }

    /// Returns the whole KiB.
    #[must_use]
    pub fn kib(self) -> u64 {
        self.0 >> 10
    }

    /// Returns the number as an option takes it: in the largest unit that divides it.
    #[must_use]
    pub fn option(self) -> String {
        let units = [("T", 40), ("G", 30), ("M", 20), ("K", 10)];
        let divides = |shift: u32| self.0 > 0 && self.0.trailing_zeros() >= shift;
        let unit = units.into_iter().find(|(_, shift)| divides(*shift));
        unit.map_or_else(|| self.0.to_string(), |(unit, shift)| format!("{}{unit}", self.0 >> shift))
    }
}

impl Display for Bytes {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let digits = f.precision().unwrap_or(DIGITS);
        let units = ["B", "KiB", "MiB", "GiB", "TiB"];
        let (power, value, decimals) = scaled(self.0 as f64, 1024.0, units.len(), digits);
        pad(f, &format!("{} {}", decimal(value, decimals), units[power]))
    }
}

/// Formats a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Time {
    nanos: f64,
}

impl Time {
    /// Creates a time of nanoseconds.
    #[must_use]
    pub fn from_nanos(nanos: f64) -> Self {
        Time { nanos }
    }

    /// Creates a time of microseconds.
    #[must_use]
    pub fn from_micros(micros: f64) -> Self {
        Time { nanos: micros * 1e3 }
    }

    /// Creates a time of milliseconds.
    #[must_use]
    pub fn from_millis(millis: f64) -> Self {
        Time { nanos: millis * 1e6 }
    }

    /// Creates a time of seconds.
    #[must_use]
    pub fn from_secs(secs: f64) -> Self {
        Time { nanos: secs * 1e9 }
    }

    /// Returns the seconds.
    #[must_use]
    pub fn as_secs(self) -> f64 {
        self.nanos / 1e9
    }
}

impl From<Duration> for Time {
    fn from(time: Duration) -> Self {
        Time::from_secs(time.as_secs_f64())
    }
}

impl Display for Time {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        if !self.nanos.is_finite() {
            return pad(f, "–");
        }
        let units = ["ns", "µs", "ms", "s"];
        let digits = f.precision().unwrap_or(DIGITS);
        let (power, value, decimals) = scaled(self.nanos, 1e3, units.len(), digits);
        pad(f, &format!("{} {}", decimal(value, decimals), units[power]))
    }
}

/// Formats a figure of a measurement by the name of its unit, with four digits: a time for `ns`,
/// `us`, `ms` and `s`, also of each of something (`ns/page`), bytes for `bytes`, `KiB`, `MiB` and
/// `GiB`, and a number for all others.
pub fn figure(value: f64, unit: &str) -> String {
    let time = |nanos: f64| format!("{:.4}", Time::from_nanos(value * nanos));
    let bytes = |bytes: f64| match value * bytes {
        bytes if bytes.is_finite() && bytes >= 0.0 => format!("{:.4}", Bytes(bytes.round() as u64)),
        _ => "–".to_owned(),
    };
    match unit.split('/').next().unwrap_or_default() {
        "ns" => time(1.0),
        "us" => time(1e3),
        "ms" => time(1e6),
        "s" => time(1e9),
        "bytes" => bytes(1.0),
        "KiB" => bytes(1024.0),
        "MiB" => bytes(1024.0 * 1024.0),
        "GiB" => bytes(1024.0 * 1024.0 * 1024.0),
        _ if !value.is_finite() => "–".to_owned(),
        _ => decimal(value, if value.fract() == 0.0 || value.abs() >= 1000.0 { 0 } else { 2 }),
    }
}

/// Chooses the unit: the first in which the rounded number has less than `factor`. Returns its
/// power of `factor`, the number in it, and the decimals of the number.
fn scaled(value: f64, factor: f64, units: usize, digits: usize) -> (usize, f64, usize) {
    let (mut power, mut value) = (0, value);
    while power + 1 < units && value.abs() >= factor - half_a_step(value, digits) {
        value /= factor;
        power += 1;
    }
    // A whole number of units has no decimals: it is exact.
    (power, value, if value.fract() == 0.0 { 0 } else { decimals(value, digits) })
}

/// Returns how many decimals give a number at least `digits` significant digits.
fn decimals(value: f64, digits: usize) -> usize {
    let fits = |&decimals: &usize| {
        let end = 10f64.powi((digits - decimals) as i32);
        value.abs() < end - 0.5 / 10f64.powi(decimals as i32)
    };
    (0..digits).rev().find(fits).unwrap_or(0)
}

fn half_a_step(value: f64, digits: usize) -> f64 {
    0.5 / 10f64.powi(decimals(value, digits) as i32)
}

/// Formats a number with commas and decimals. A number that is rounded to zero has no sign.
fn decimal(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let is_zero = text.chars().all(|c| matches!(c, '-' | '0' | '.'));
    let text = text.strip_prefix('-').filter(|_| is_zero).unwrap_or(&text);
    match text.split_once('.') {
        Some((whole, rest)) => format!("{}.{rest}", grouped(whole)),
        None => grouped(text),
    }
}

/// Puts commas between groups of three digits.
fn grouped(digits: &str) -> String {
    let length = digits.len();
    let mut text = String::with_capacity(length + length / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (length - i).is_multiple_of(3) && !text.ends_with('-') {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Writes a text in the width of the format, to the right unless an alignment is given.
/// `Formatter::pad` would cut it at the precision.
fn pad(f: &mut Formatter<'_>, text: &str) -> Result {
    let free = f.width().unwrap_or(0).saturating_sub(text.chars().count());
    let before = match f.align() {
        Some(Alignment::Left) => 0,
        Some(Alignment::Center) => free / 2,
        _ => free,
    };
    let fill = f.fill();
    (0..before).try_for_each(|_| f.write_char(fill))?;
    f.write_str(text)?;
    (before..free).try_for_each(|_| f.write_char(fill))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_in_groups_of_three() {
        let counts = [0, 999, 1000, 86_152, 1_234_567].map(|n| Count(n).to_string());
        assert_eq!(counts, ["0", "999", "1,000", "86,152", "1,234,567"]);
        assert_eq!(
            [Mean(1650.34), Mean(-1650.0), Mean(-650.0)].map(|n| n.to_string()),
            ["1,650.3", "-1,650.0", "-650.0"]
        );
        assert_eq!([format!("{:.0}", Mean(-0.4)), Mean(-0.04).to_string()], ["0", "0.0"]);
        assert_eq!([0, 7, 1234, 315_728].map(|n| Count(n).rounded().0), [0, 7, 1230, 316_000]);
    }

    #[test]
    fn bytes_have_two_digits_and_whole_units_no_decimals() {
        let texts = |bytes: &[u64]| bytes.iter().map(|n| Bytes(*n).to_string()).collect::<Vec<_>>();
        assert_eq!(
            texts(&[0, 1, 1023, 1024, 4096, 4097]),
            ["0 B", "1 B", "1,023 B", "1 KiB", "4 KiB", "4.0 KiB"]
        );
        assert_eq!(texts(&[1_392_640, 12_345_678, 512 << 20]), ["1.3 MiB", "12 MiB", "512 MiB"]);
        // Rounded up to a whole unit.
        assert_eq!(texts(&[(1 << 20) - 1, (1 << 30) - 1]), ["1.0 MiB", "1.0 GiB"]);
        assert_eq!(texts(&[5 << 30, 8 << 40, 2 << 50]), ["5 GiB", "8 TiB", "2,048 TiB"]);
        assert_eq!(format!("{:.3}", Bytes(1_392_640)), "1.33 MiB");
    }

    #[test]
    fn an_option_has_the_largest_unit_that_divides_the_bytes() {
        let options = [0, 1000, 4096, 512 << 20, 3 << 29, 8 << 40].map(|n| Bytes(n).option());
        assert_eq!(options, ["0", "1000", "4K", "512M", "1536M", "8T"]);
    }

    #[test]
    fn times_have_two_digits() {
        let texts = [0.0, 0.04, 9.0, 9.96, 144.0, 999.6, 7698.0, 21_000.0, 36.1e6, 3.13e9, 1650.3e9];
        assert_eq!(
            texts.map(|ns| Time::from_nanos(ns).to_string()),
            [
                "0 ns", "0.0 ns", "9 ns", "10 ns", "144 ns", "1.0 µs", "7.7 µs", "21 µs", "36 ms", "3.1 s",
                "1,650 s"
            ]
        );
        assert_eq!(
            [0.94, 12.6, 0.0999].map(|s| Time::from_secs(s).to_string()),
            ["940 ms", "13 s", "100 ms"]
        );
        assert_eq!(Time::from(Duration::from_millis(1500)).to_string(), "1.5 s");
        assert_eq!(
            format!("{:.4} {:.4}", Time::from_nanos(23.714), Time::from_nanos(4.6)),
            "23.71 ns 4.600 ns"
        );
        assert_eq!([f64::NAN, -7.7e3].map(|ns| Time::from_nanos(ns).to_string()), ["–", "-7.7 µs"]);
    }

    #[test]
    fn the_name_of_its_unit_makes_a_figure_a_time_or_bytes() {
        let figures = [(23.714, "ns/page"), (1.5, "ms"), (1.4, "MiB"), (3911.0, "pages"), (0.251, "x")];
        assert_eq!(
            figures.map(|(value, unit)| figure(value, unit)),
            ["23.71 ns", "1.500 ms", "1.400 MiB", "3,911", "0.25"]
        );
        assert_eq!([figure(f64::NAN, "pages"), figure(f64::NAN, "KiB")], ["–", "–"]);
        assert_eq!(figure(-2.0, "spaces"), "-2");
    }

    #[test]
    fn no_time_below_a_thousand_seconds_needs_more_than_six_columns() {
        let mut ns = 0.01;
        while ns < 999e9 {
            let text = Time::from_nanos(ns).to_string();
            assert!(text.chars().count() <= 6, "{text}");
            ns *= 1.0007;
        }
    }

    #[test]
    fn a_width_fills_to_the_left_or_as_aligned() {
        let time = Time::from_nanos(7698.0);
        assert_eq!(
            format!("{time:8}|{time:<8}|{time:^8}|{:*>6}", Count(1000)),
            "  7.7 µs|7.7 µs  | 7.7 µs |*1,000"
        );
    }
}
