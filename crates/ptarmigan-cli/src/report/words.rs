//! Numbers as people read them.
use ptarmigan_term::draw::Unit;

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

/// Formats a place or a length on an axis: a time in microseconds, or a number of events.
pub(super) fn on_axis(at: u64, is_time: bool) -> String {
    let unit = if is_time { Unit::Time } else { Unit::Count };
    unit.format(at as f64)
}

/// Formats how many times `to` is of `from`.
pub(super) fn times(from: f64, to: f64) -> String {
    if from > 0.0 { format!("{:.2} ×", to / from) } else { "–".to_owned() }
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
    fn shares_read_well() {
        assert_eq!(share(82, 100), "82 %");
        assert_eq!(share(1, 3000), "< 0.1 %");
        assert_eq!([0.0, 0.0625, 1.0 / 3.0, 1.0].map(share_of), ["0 %", "6.2 %", "33 %", "100 %"]);
        assert_eq!(share(2999, 3000), "> 99.9 %");
        assert_eq!(share(0, 0), "–");
    }
}
