//! Counts the kernel's instructions by group: the caller says which addresses belong to which.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Groups that there may be.
const GROUPS: usize = 16;

/// First addresses, the addresses behind the last, and groups, in order of address.
type Ranges = Vec<(u64, u64, usize)>;

static RANGES: OnceLock<Ranges> = OnceLock::new();
/// Counters to which the guest's translated code adds by itself.
static COUNTS: [AtomicU64; GROUPS] = [const { AtomicU64::new(0) }; GROUPS];

/// Reads the lines of a file of ranges.
fn parse(text: &str) -> Result<Ranges, String> {
    let mut ranges = Ranges::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let &[start, end, group] = &words[..] else { return Err(format!("groups=: not a range: {line}")) };
        let address = |word| u64::from_str_radix(word, 16).map_err(|e| format!("groups=: {line}: {e}"));
        let (start, end) = (address(start)?, address(end)?);
        let group: usize = group.parse().map_err(|e| format!("groups=: {line}: {e}"))?;
        let is_ordered = start < end && ranges.last().is_none_or(|last| last.1 <= start);
        if group >= GROUPS || !is_ordered {
            return Err(format!("groups=: {line}: out of order, or more than {GROUPS} groups"));
        }
        ranges.push((start, end, group));
    }
    Ok(ranges)
}

/// Reads the file of ranges; once.
///
/// # Errors
///
/// There is no such file, or it is malformed.
pub fn read(path: &str) -> Result<(), String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("groups={path}: {e}"))?;
    RANGES.set(parse(&text)?).map_err(|_| "groups= is given twice".to_owned())
}

fn find(ranges: &Ranges, at: u64) -> Option<usize> {
    let behind = ranges.partition_point(|range| range.0 <= at);
    ranges[..behind].last().filter(|range| at < range.1).map(|range| range.2)
}

/// Returns the counter for the instruction at an address. `None` without groups, and where no group
/// is.
pub fn count_of(at: u64) -> Option<&'static AtomicU64> {
    find(RANGES.get()?, at).map(|group| &COUNTS[group])
}

/// Returns the counts by group; an empty list without groups.
pub fn counts() -> impl Iterator<Item = u64> {
    let number = if RANGES.get().is_some() { GROUPS } else { 0 };
    COUNTS[..number].iter().map(|count| count.load(Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_belongs_to_the_range_that_it_lies_in() {
        let ranges = parse("10 20 3\n20 28 0\n40 48 15\n").expect("ranges");
        for (at, group) in [
            (0xf, None),
            (0x10, Some(3)),
            (0x1f, Some(3)),
            (0x20, Some(0)),
            (0x28, None),
            (0x47, Some(15)),
            (0x48, None),
        ] {
            assert_eq!(find(&ranges, at), group, "{at:x}");
        }
        assert_eq!(find(&Ranges::new(), 0x10), None);
    }

    #[test]
    fn malformed_ranges_are_refused() {
        for text in ["10 20", "10 20 16", "20 10 1", "10 20 1\n18 28 1", "x 20 1", "10 20 1 1"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
