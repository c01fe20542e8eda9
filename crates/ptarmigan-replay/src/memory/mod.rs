//! Reports the host memory that a machine of a given size needs, before it is set up.
mod available;

pub use available::available;

use ptarmigan::addr::{FRAME_SHIFT, Pfn};
use ptarmigan::cpu::NodeId;
use ptarmigan::frames::{Frames, MemoryRun, MemorySize, ZoneClass};
use ptarmigan_term::print;
use ptarmigan_term::{Bytes, Context, Failure};

/// The least memory of a machine, in bytes.
pub(super) const LEAST: u64 = 1 << 20;
/// The most memory of a machine, in bytes.
pub(super) const MOST: u64 = 8 << 40;

/// The least cost that is reported, in bytes.
const NOTABLE: u64 = 1 << 30;

/// Parses the size of a memory: bytes, or a number with the suffix K, M, G or T.
pub fn parse(text: &str) -> Result<u64, String> {
    let bytes = number(text)?.unwrap_or(u64::MAX);
    check_range(bytes).map(|()| bytes)
}

/// Checks the size of a memory, in bytes.
///
/// # Errors
/// A text if a machine cannot have that much, or that little.
pub(super) fn check_range(bytes: u64) -> Result<(), String> {
    let range = || format!("out of range: {} to {}", Bytes(LEAST).option(), Bytes(MOST).option());
    (LEAST..=MOST).contains(&bytes).then_some(()).ok_or_else(range)
}

/// Parses a number of bytes in the same way.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    number(text)?.ok_or_else(|| "more than 2^64 bytes".to_owned())
}

/// Parses a number of bytes; `None` if it has more than 64 bits.
fn number(text: &str) -> Result<Option<u64>, String> {
    let text = text.trim();
    let (number, shift) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 10),
        Some((at, 'm' | 'M')) => (&text[..at], 20),
        Some((at, 'g' | 'G')) => (&text[..at], 30),
        Some((at, 't' | 'T')) => (&text[..at], 40),
        _ => (text, 0),
    };
    if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
        return Err("expected a number of bytes, such as 4194304, 512M or 4G".to_owned());
    }
    Ok(number.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift)))
}

/// Checks that a machine with `memory` bytes can be made on this host.
///
/// # Errors
/// If a machine cannot have that much or that little, or the host does not have enough left.
pub(super) fn fits(memory: u64, nodes: usize) -> Result<(), Failure> {
    check_range(memory).context("memory")?;
    cost(memory, nodes, available()).map(drop)
}

/// Reports the host memory for a machine with `memory` bytes, if that is at least [`NOTABLE`].
///
/// # Errors
/// If the host does not have that much left.
pub(super) fn check(memory: u64, nodes: usize) -> Result<(), Failure> {
    if let Some(note) = cost(memory, nodes, available())? {
        print::error(&note);
    }
    Ok(())
}

/// Returns the line that reports the cost, if it is notable.
fn cost(memory: u64, nodes: usize, available: Option<u64>) -> Result<Option<String>, Failure> {
    let frames = u32::try_from(memory >> FRAME_SHIFT).unwrap_or(u32::MAX) / (nodes as u32).max(1);
    let run = |node: usize| MemoryRun {
        start: Pfn(node as u32 * frames),
        frames,
        node: NodeId(node as u8),
        class: ZoneClass::Low,
    };
    let records = Frames::bytes(&MemorySize::of((0..nodes).map(run))) as u64;
    let share = (memory + records / 2) / records;
    let taken = format!(
        "--memory {}: frame records take 1/{share} of it, {}",
        Bytes(memory).option(),
        Bytes(records)
    );
    // A sixteenth is left for everything else.
    match available.map(|bytes| (bytes, bytes - bytes / 16)) {
        Some((available, usable)) if records > usable => {
            let most = (u128::from(memory) * u128::from(usable) / u128::from(records)) as u64;
            // Rounded down to a size that is easy to type.
            let most = if most >= 1 << 30 { most >> 30 << 30 } else { most >> 20 << 20 };
            Err(Failure::new(format!(
                "{taken}, and this host has {} left; give at most --memory {}",
                Bytes(available),
                Bytes(most.max(LEAST)).option()
            )))
        }
        _ => Ok((records >= NOTABLE).then(|| format!("{taken} of this host's memory"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_one_unit_and_inside_their_range() {
        let good = [("1M", LEAST), ("1048576", LEAST), (" 4g ", 4 << 30), ("8T", MOST), ("8192G", MOST)];
        for (text, bytes) in good {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        let odd = ["", "G", "-1", "+4G", "1.5G", "4GB", "4GiB", "4KK", "4 G", "0x100000", "many"];
        for text in odd {
            assert!(parse(text).is_err_and(|e| e.starts_with("expected a number")), "{text}");
        }
        let huge = ["0", "0T", "1", "1048575", "1023K", "8193G", "9T", "16T", "17T", "18446744073709551615"];
        let huge = huge.into_iter().chain(["18446744073709551616", "16777216T", "18446744073709551616T"]);
        for text in huge {
            assert_eq!(parse(text), Err("out of range: 1M to 8T".to_owned()), "{text}");
        }
    }

    #[test]
    fn a_machine_too_large_for_the_host_is_refused_with_a_remedy() {
        let refused = cost(MOST, 1, Some(24 << 30)).expect_err("32 GiB are more than 24");
        assert_eq!(
            refused.message(),
            "--memory 8T: frame records take 1/256 of it, 32 GiB, and this host has 24 GiB left; \
             give at most --memory 5759G"
        );
    }

    #[test]
    fn what_is_offered_instead_is_accepted() {
        for available in [1 << 20, 100 << 20, 3 << 30, 24 << 30] {
            for memory in [1 << 30, 1 << 40, MOST] {
                let Err(refused) = cost(memory, 64, Some(available)) else { continue };
                let offer = refused.message().rsplit(' ').next().expect("a size").to_owned();
                let offer = parse(&offer).unwrap_or_else(|e| panic!("{}: {e}", refused.message()));
                assert!(offer == LEAST || cost(offer, 1, Some(available)).is_ok(), "{}", refused.message());
            }
        }
    }

    #[test]
    fn only_a_notable_cost_gets_a_line() {
        assert_eq!(cost(4 << 30, 1, Some(1 << 40)).ok(), Some(None));
        assert_eq!(cost(4 << 30, 1, None).ok(), Some(None));
        let note = cost(1 << 40, 1, None).ok().flatten().expect("4 GiB are much");
        assert!(note.starts_with("--memory 1T: frame records take 1/256 of it, 4.0 GiB"), "{note}");
    }
}
