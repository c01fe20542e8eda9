//! Numbers as people read them.

pub(super) use ptarmigan_replay::terminal::words::count;

/// Returns the letter of a trace, or its number after the last letter.
pub(super) fn letter(n: usize) -> String {
    u8::try_from(n)
        .ok()
        .filter(|n| *n < 26)
        .map_or(format!("{}", n + 1), |n| char::from(b'A' + n).to_string())
}

/// Formats a share of `all` in percent.
pub(super) fn share(part: u64, all: u64) -> String {
    if all == 0 {
        return "–".to_owned();
    }
    let percent = part as f64 * 100.0 / all as f64;
    match percent {
        _ if part == all => "100 %".to_owned(),
        _ if part == 0 => "0 %".to_owned(),
        p if p < 0.1 => "< 0.1 %".to_owned(),
        p if p < 10.0 => format!("{p:.1} %"),
        p if p > 99.9 => "> 99.9 %".to_owned(),
        p if p > 99.0 => format!("{p:.1} %"),
        p => format!("{p:.0} %"),
    }
}

/// Formats a share from 0 to 1 in percent.
pub(super) fn share_of(part: f64) -> String {
    share((part * 1e6).round() as u64, 1_000_000)
}

/// Formats a number of bytes.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0 => "0".to_owned(),
        n if n < 1 << 10 => format!("{n} B"),
        n if n < 10 << 10 => format!("{:.1} KiB", n as f64 / 1024.0),
        n if n < 1 << 20 => format!("{} KiB", n >> 10),
        n if n < 10 << 20 => format!("{:.1} MiB", n as f64 / f64::from(1 << 20)),
        n if n < 1 << 30 => format!("{} MiB", n >> 20),
        n => format!("{:.1} GiB", n as f64 / f64::from(1 << 30)),
    }
}

/// Formats nanoseconds.
pub(super) fn nanoseconds(ns: f64) -> String {
    match ns {
        n if n < 9.95 => format!("{n:.1} ns"),
        n if n < 999.5 => format!("{n:.0} ns"),
        n if n < 9_950.0 => format!("{:.1} µs", n / 1e3),
        n if n < 999_500.0 => format!("{:.0} µs", n / 1e3),
        n if n < 9_950_000.0 => format!("{:.1} ms", n / 1e6),
        n if n < 999_500_000.0 => format!("{:.0} ms", n / 1e6),
        n => format!("{:.1} s", n / 1e9),
    }
}

/// Formats a large number in at most five characters.
pub(super) fn short(n: f64) -> String {
    match n {
        n if n < 1e4 => count(n.round() as u64),
        n if n < 1e6 => trimmed(n / 1e3, "k"),
        n if n < 1e9 => trimmed(n / 1e6, "M"),
        n => trimmed(n / 1e9, "G"),
    }
}

fn trimmed(n: f64, unit: &str) -> String {
    let text = format!("{n:.1}");
    format!(
        "{}{unit}",
        text.strip_suffix(".0").unwrap_or(if n < 100.0 {
            &text
        } else {
            text.split('.').next().unwrap_or(&text)
        })
    )
}

/// Formats a place or a length on an axis: a time in microseconds, or a number of events.
pub(super) fn on_axis(at: u64, is_time: bool) -> String {
    match at {
        0 => "0".to_owned(),
        at if is_time => nanoseconds(at as f64 * 1e3),
        at => short(at as f64),
    }
}

/// Formats how many times `to` is of `from`.
pub(super) fn times(from: f64, to: f64) -> String {
    if from > 0.0 { format!("{:.2} ×", to / from) } else { "–".to_owned() }
}

/// Returns the plural of a regular noun where `n` asks for it.
pub(super) fn plural(n: u64, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{} {noun}s", count(n)) }
}

/// Returns the first sentences of a text that together have at most `most` characters, and the
/// first one in any case.
pub(super) fn sentences(text: &str, most: usize) -> &str {
    let ends = text.match_indices(". ").map(|(at, _)| at + 1).chain([text.len()]);
    let ends: Vec<usize> = ends.collect();
    let fitting = ends.iter().rev().find(|&&end| text[..end].chars().count() <= most);
    &text[..fitting.copied().unwrap_or(ends[0])]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_stay_whole() {
        let text = "Saves 3 of 4. It has 1.5 parts. More.";
        assert_eq!([1, 13, 31, 36, 37].map(|most| sentences(text, most).len()), [13, 13, 31, 31, 37]);
        assert_eq!((sentences("", 5), sentences("no end", 3)), ("", "no end"));
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            [0, 999, 1000, 86_152, 3_911_524].map(count),
            ["0", "999", "1,000", "86,152", "3,911,524"]
        );
        assert_eq!(share(82, 100), "82 %");
        assert_eq!(share(1, 3000), "< 0.1 %");
        assert_eq!([0.0, 0.0625, 1.0 / 3.0, 1.0].map(share_of), ["0 %", "6.2 %", "33 %", "100 %"]);
        assert_eq!(share(2999, 3000), "> 99.9 %");
        assert_eq!(share(0, 0), "–");
        assert_eq!([512, 4096, 1_392_640, 5 << 30].map(size), ["512 B", "4.0 KiB", "1.3 MiB", "5.0 GiB"]);
        assert_eq!([9.0, 144.0, 21_000.0].map(nanoseconds), ["9.0 ns", "144 ns", "21 µs"]);
        assert_eq!(
            [0.0, 4000.0, 12_500.0, 400_000.0, 3_900_000.0].map(short),
            ["0", "4,000", "12.5k", "400k", "3.9M"]
        );
        assert_eq!((plural(1, "event"), plural(2, "event")), ("1 event".to_owned(), "2 events".to_owned()));
    }
}
