//! Assigns the instructions of the library's kernel to groups, by the source files that they come
//! from.
//!
//! The image has debug information. For each address it names the functions inlined there,
//! innermost first; the first one whose file is the library's or the kernel's counts. So a function
//! of Rust's `core` belongs to its caller. Code without such a function, as `memcpy` and the entry
//! in assembly, belongs to its symbol.

mod sources;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use addr2line::Loader;

use crate::profile;
pub use sources::GROUPS;

/// The most bytes that a function has: the last one has no other behind it.
const FUNCTION: u64 = 1 << 16;

/// Returns the group of an address.
fn group_at(image: &Loader, at: u64, symbol: &str) -> usize {
    if let Ok(mut frames) = image.find_frames(at) {
        while let Ok(Some(frame)) = frames.next() {
            let function = frame.function.as_ref().and_then(|function| function.demangle().ok());
            let file = frame.location.as_ref().and_then(|location| location.file);
            let group = file.and_then(|file| sources::group_of(file, function.as_deref().unwrap_or("")));
            if let Some(group) = group {
                return group;
            }
        }
    }
    sources::group_of_symbol(symbol)
}

/// Returns the lines of the plugin's file of groups for an image.
///
/// # Errors
///
/// The image cannot be read, or has no debug information.
pub fn ranges(image: &Path) -> Result<String, String> {
    let loader = Loader::new(image).map_err(|e| format!("{}: {e}", image.display()))?;
    let functions: BTreeMap<u64, String> = profile::functions(image)?;
    let mut ranges: Vec<(u64, u64, usize)> = Vec::new();
    let starts: Vec<u64> = functions.keys().copied().collect();
    for (i, (start, symbol)) in functions.iter().enumerate() {
        let end = starts.get(i + 1).copied().unwrap_or(u64::MAX).min(start + FUNCTION);
        for at in *start..end {
            let group = group_at(&loader, at, symbol);
            match ranges.last_mut() {
                Some((_, end, last)) if *end == at && *last == group => *end += 1,
                _ => ranges.push((at, at + 1, group)),
            }
        }
    }
    if ranges.iter().all(|range| range.2 != sources::TABLES) {
        return Err(format!("{} has no debug information about the library", image.display()));
    }
    let mut text = String::new();
    for (start, end, group) in ranges {
        let _ = writeln!(text, "{start:x} {end:x} {group}");
    }
    Ok(text)
}
