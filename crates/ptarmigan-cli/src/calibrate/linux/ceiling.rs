//! The number of pages up to which this host's kernel flushes by name.
use std::fs;
use std::io::ErrorKind;

use serde::Serialize;

use super::case::Grid;
use ptarmigan_term::Failure;

const PATH: &str = "/sys/kernel/debug/x86/tlb_single_page_flush_ceiling";
/// The kernel's value after boot.
const DEFAULT: usize = 33;

/// The ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Ceiling {
    pub pages: usize,
    /// The kernel says so; otherwise it is Linux's value after boot.
    pub known: bool,
}

impl Ceiling {
    /// Reads it, where debugfs is mounted and may be read.
    ///
    /// # Errors
    ///
    /// If the kernel says something else than a number.
    pub(super) fn read() -> Result<Self, Failure> {
        match fs::read_to_string(PATH) {
            Ok(text) => Self::parse(&text),
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
                Ok(Ceiling { pages: DEFAULT, known: false })
            }
            Err(e) => Err(Failure::new(format!("{PATH}: {e}"))),
        }
    }

    fn parse(text: &str) -> Result<Self, Failure> {
        let pages = text.trim().parse();
        let pages = pages.map_err(|_| Failure::new(format!("{PATH} is {:?}, not a number", text.trim())))?;
        Ok(Ceiling { pages, known: true })
    }
}

impl Grid {
    /// Checks that both sides of the ceiling can be measured.
    ///
    /// # Errors
    ///
    /// If not, with the ceilings that work.
    pub(super) fn check(self) -> Result<(), Failure> {
        let allowed = Self::LOWEST..=Self::HIGHEST;
        if allowed.contains(&self.ceiling) && (1..=2).contains(&self.cpus) {
            return Ok(());
        }
        Err(Failure::new(format!(
            "this kernel flushes up to {} pages by name; calibrate needs {} to {}: set {PATH}",
            self.ceiling,
            Self::LOWEST,
            Self::HIGHEST
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ceiling_is_a_number_with_sizes_on_both_sides() {
        assert_eq!(Ceiling::parse("33\n").unwrap(), Ceiling { pages: 33, known: true });
        assert!(Ceiling::parse("many").unwrap_err().message().contains("\"many\", not a number"));
        for ceiling in [0, 7, 65] {
            let refused = Grid { ceiling, cpus: 1 }.check().unwrap_err();
            assert!(refused.message().contains("needs 8 to 64"), "{}", refused.message());
        }
        Grid { ceiling: 33, cpus: 1 }.check().unwrap();
    }
}
