//! Copies the entries of one folio together at a fork. A recording does not have the frames of
//! pages, so it cannot tell which neighbours are one folio.
use crate::price::{About, Answer, Moment, Row, Whole};

/// Refuses an answer, with its reason.
pub struct ForkBatching;

impl Row for ForkBatching {
    fn about(&self) -> About {
        About {
            name: "fork-batching",
            title: "copy entries of one folio together at fork",
            reference: "D. Hildenbrand, optimize fork() with PTE-mapped THP, Linux 6.9 (2024)",
            claim: "the author measured shorter forks of memory in large folios",
        }
    }

    fn event(&mut self, _: &Moment<'_>) {}

    fn answer(&mut self, _: &Whole<'_>) -> Result<Answer, String> {
        Err("no recording has the frames of pages, so it does not tell which pages are one folio".to_owned())
    }
}
