//! Makes the workload of each space.
use ptarmigan_bench::table::contender::{CasePages, ForkShape, PAGE, PHYS, VIRT};

/// Spaces that are made, filled and dropped.
pub struct Work {
    /// The case's name.
    pub name: &'static str,
    /// The remark below the table.
    pub about: &'static str,
    /// Pages that are mapped with one call each, in each space.
    spaces: Vec<Vec<(usize, usize)>>,
    /// Instead, pages that are mapped with one range call where the crate has one.
    pub range: Option<Range>,
}

/// A range, mapped to frames in a row.
#[derive(Clone, Copy)]
pub struct Range {
    pub virt: usize,
    pub phys: usize,
    pub bytes: usize,
}

impl Range {
    /// Returns its pages, for crates without range calls.
    pub fn pages(self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.bytes).step_by(PAGE).map(move |at| (self.virt + at, self.phys + at))
    }
}

/// Bytes of the dense case: 8 leaf tables.
const DENSE: usize = 16 << 20;

impl Work {
    /// Makes the cases, with about `spaces` spaces each.
    pub fn all(spaces: usize) -> [Work; 3] {
        let shape = ForkShape::new(CasePages::USUAL);
        let sparse: Vec<Vec<_>> = shape.spaces().take(spaces).map(|space| space.pages().collect()).collect();
        let tiny = sparse.iter().map(|pages| pages[..1].to_vec()).collect();
        let dense = spaces.div_ceil(64);
        [
            Work { name: "sparse", about: "32 pages, 2 MiB apart: 35 tables", spaces: sparse, range: None },
            Work { name: "tiny", about: "one page: 4 tables", spaces: tiny, range: None },
            Work {
                name: "dense",
                about: "4,096 pages in a row, by one range call where there is one: 11 tables",
                spaces: vec![Vec::new(); dense],
                range: Some(Range { virt: VIRT, phys: PHYS, bytes: DENSE }),
            },
        ]
    }

    /// Returns the pages of each space.
    pub fn spaces(&self) -> impl Iterator<Item = &[(usize, usize)]> {
        self.spaces.iter().map(Vec::as_slice)
    }

    /// Returns how many pages are mapped.
    pub fn pages(&self) -> usize {
        let range = self.range.map_or(0, |range| range.bytes / PAGE);
        self.spaces.iter().map(|pages| pages.len() + range).sum()
    }
}
