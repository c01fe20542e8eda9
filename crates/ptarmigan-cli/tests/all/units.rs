//! A quantity has one text, whichever command prints it.
use crate::program::{Temporary, crate_file, ptarmigan, shipped, text};

/// Units of times and of bytes as they are printed.
const UNITS: [&str; 9] = ["ns", "µs", "ms", "s", "B", "KiB", "MiB", "GiB", "TiB"];
/// Other names of these, which no text has.
const OTHERS: [&str; 8] = ["us", "sec", "seconds", "K", "M", "G", "KB", "MB"];

/// Returns the quantities of a text that `Count`, `Bytes` and `Time` would write in another way.
fn odd(text: &str) -> Vec<String> {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '.' | ',' | '_' | '/' | '#' | '-');
    let words: Vec<&str> = text.split(|c: char| !(is_part(c) || c == 'µ')).collect();
    let mut odd = Vec::new();
    for (n, word) in words.iter().enumerate() {
        let number = word.trim_end_matches(['.', ',']).trim_start_matches('-');
        let digits =
            number.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | ','))).unwrap_or(number.len());
        if digits == 0 || number.starts_with(['.', ',']) {
            continue;
        }
        let (number, rest) = number.split_at(digits);
        // A unit sticks to no number.
        if UNITS.contains(&rest) || OTHERS.contains(&rest) {
            odd.push((*word).to_owned());
        }
        let next = words.get(n + 1).map_or("", |next| next.trim_end_matches(['.', ',']));
        let is_whole = rest.is_empty() && *word == number;
        let unit = if is_whole { next } else { "" };
        let fits = match unit {
            unit if OTHERS.contains(&unit) => false,
            unit if UNITS.contains(&unit) => is_scaled(number, unit),
            _ => !rest.is_empty() || is_grouped(number),
        };
        if !fits {
            odd.push(format!("{number} {unit}"));
        }
    }
    odd
}

/// Returns whether the whole part of a number has commas between groups of three digits.
fn is_grouped(number: &str) -> bool {
    let whole = number.split('.').next().unwrap_or(number);
    let mut groups = whole.split(',');
    let first = groups.next().unwrap_or("");
    (1..=3).contains(&first.len()) && groups.all(|group| group.len() == 3)
}

/// Returns whether a number with its unit has the digits that the unit asks for.
fn is_scaled(number: &str, unit: &str) -> bool {
    let value: f64 = number.replace(',', "").parse().unwrap_or(f64::NAN);
    let end = match unit {
        "s" | "TiB" => f64::INFINITY,
        _ if unit.ends_with('B') => 1024.0,
        _ => 1000.0,
    };
    let decimals = number.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    is_grouped(number) && value < end && decimals <= usize::from(value < 10.0)
}

#[test]
fn every_command_writes_a_quantity_alike() {
    let forkbig = shipped("forkbig.ptrace");
    let dense = crate_file("tests/advise/dense.ptrace");
    let mended = crate_file("tests/advise/dense_mended.ptrace");
    let page = Temporary::new("units.html");
    let commands: [&[&str]; 7] = [
        &["replay", &dense, "--policy", "plain,v5,ptarmigan", "--sanitize"],
        &["replay", &dense, "--arch", "i386-pae", "--memory", "4G", "--params", "userpte=auto"],
        &["inspect", &forkbig],
        &["advise", &dense, "--rounds", "3"],
        &["advise", &dense, "--rounds", "0", "--check", &mended],
        &["report", &dense, &mended, "--markdown"],
        &["report", &forkbig, "-o", page.path()],
    ];
    for args in commands {
        let ran = ptarmigan(args);
        assert_eq!(ran.status, Some(0), "{args:?}: {}", ran.err);
        let odd: Vec<String> = ran.out.lines().chain(ran.err.lines()).flat_map(odd).collect();
        assert!(odd.is_empty(), "{args:?}: {odd:?}\n{}{}", ran.out, ran.err);
    }
    let html = std::fs::read_to_string(text(&page.0)).expect("a page");
    let cells = html.split("<td").skip(1).filter_map(|cell| cell.split('>').nth(1)?.split('<').next());
    let cells: Vec<&str> = cells.collect();
    let odd: Vec<String> = cells.iter().flat_map(|cell| odd(cell)).collect();
    assert!(cells.len() > 50 && odd.is_empty(), "{odd:?}");
}

#[test]
fn the_texts_of_other_formatters_are_odd() {
    for text in
        ["3911524 events", "4096 MiB", "7698ns", "17us", "17 us", "91.62 ms", "0.45 s", "512.0 MiB", "174000"]
    {
        assert_eq!(odd(text).len(), 1, "{text}");
    }
    for text in
        ["3,911,524 events", "4 GiB", "7.7 µs, 17 µs;", "92 ms", "450 ms", "1,650.3 pages", "x86-64", "12 %"]
    {
        assert_eq!(odd(text), [] as [String; 0], "{text}");
    }
}
