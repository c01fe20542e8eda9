//! What a contender has to do: one method per case, the loops inside, the clock and the checks outside.

/// Pages in the contiguous cases.
pub const PAGES: usize = 1 << 20;
/// Bytes in a page.
pub const PAGE: usize = 4096;
/// Where the cases map: 256 GiB, aligned for every level.
pub const VIRT: usize = 0x40_0000_0000;
/// The first of the pretended data frames; they are mapped, never touched.
pub const PHYS: usize = 0x1_0000_0000;

/// Address spaces made and torn down in one `fork-shape` sample.
pub const SPACES: usize = 4096;
/// Pages mapped in each of them.
pub const SPARSE: usize = 32;
/// Distance of the regions they are mapped in: one leaf table each.
pub const STRIDE: usize = 2 << 20;

/// The timed cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableCase {
    /// Map 1,048,576 contiguous pages, one call each.
    Map,
    /// Look each of them up, one call each.
    Query,
    /// Unmap each of them, one call each.
    Unmap,
    /// Map them all by one range call.
    MapRange,
    /// Unmap them all by one range call.
    UnmapRange,
    /// Make an address space, map 32 pages 2 MiB apart, tear it down; 4096 times.
    ForkShape,
}

impl TableCase {
    /// Every case, in the order they are run and printed.
    pub const ALL: [TableCase; 6] = [
        TableCase::Map,
        TableCase::Query,
        TableCase::Unmap,
        TableCase::MapRange,
        TableCase::UnmapRange,
        TableCase::ForkShape,
    ];

    /// The name in rows.
    pub fn name(self) -> &'static str {
        match self {
            TableCase::Map => "map",
            TableCase::Query => "query",
            TableCase::Unmap => "unmap",
            TableCase::MapRange => "map-range",
            TableCase::UnmapRange => "unmap-range",
            TableCase::ForkShape => "fork-shape",
        }
    }
}

/// The virtual addresses of the `fork-shape` case: in each space, a page at a random offset in each region.
///
/// Real programs do not touch the first page of every 2 MiB region. With offset 0 everywhere all leaf entries
/// would sit in the same cache set and every touched line would be a table's first.
pub struct ForkShape {
    pages: Vec<u16>,
}

impl ForkShape {
    /// The same offsets for every contender and every run.
    pub fn new() -> Self {
        // xorshift64*: the quality needed is "not a pattern".
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 55) as u16
        };
        ForkShape { pages: (0..SPACES * SPARSE).map(|_| next()).collect() }
    }

    /// The spaces, each as the addresses of its pages paired with the frames to map there.
    #[inline(always)]
    pub fn spaces(&self) -> impl Iterator<Item = ForkSpace<'_>> {
        self.pages.as_chunks::<SPARSE>().0.iter().map(|offsets| ForkSpace { offsets })
    }
}

/// One address space of the `fork-shape` case.
#[derive(Clone, Copy)]
pub struct ForkSpace<'a> {
    offsets: &'a [u16; SPARSE],
}

impl<'a> ForkSpace<'a> {
    /// Its (virtual, physical) pairs, ascending.
    #[inline(always)]
    pub fn pages(self) -> impl Iterator<Item = (usize, usize)> + use<'a> {
        self.offsets
            .iter()
            .enumerate()
            .map(|(i, &offset)| (VIRT + i * STRIDE + usize::from(offset) * PAGE, PHYS + i * PAGE))
    }
}

/// The (virtual, physical) pairs of the contiguous cases.
#[inline(always)]
pub fn contiguous() -> impl Iterator<Item = (usize, usize)> {
    (0..PAGES).map(|i| (VIRT + i * PAGE, PHYS + i * PAGE))
}

impl Default for ForkShape {
    fn default() -> Self {
        Self::new()
    }
}

/// What [`TableContender::query`] must return while everything is mapped.
pub fn all_frames() -> usize {
    contiguous().map(|(_, phys)| phys).fold(0, usize::wrapping_add)
}

/// A page-table implementation under test.
///
/// It owns at most one populated address space. The harness calls [`open`](Self::open), the methods of a case and
/// [`close`](Self::close); it times only the methods named after the case, checks [`query`](Self::query) around
/// them and wants [`tables_out`](Self::tables_out) to be 0 after every `close` and every `fork_shape`.
pub trait TableContender {
    /// The name in rows and for `--only`.
    fn name(&self) -> &'static str;

    /// The cases it has operations for.
    fn cases(&self) -> &'static [TableCase] {
        &TableCase::ALL
    }

    /// Makes an empty address space. Not timed.
    fn open(&mut self);

    /// `map`: maps [`contiguous`] page by page.
    fn map(&mut self);

    /// `query`: looks [`contiguous`] up page by page; returns the wrapping sum of the frames found, where a page
    /// that is not mapped counts 0.
    fn query(&mut self) -> usize;

    /// `unmap`: unmaps [`contiguous`] page by page.
    fn unmap(&mut self);

    /// `map-range`: maps [`contiguous`] by one call.
    fn map_range(&mut self) {}

    /// `unmap-range`: unmaps [`contiguous`] by one call.
    fn unmap_range(&mut self) {}

    /// Throws the address space away, its tables back in the pool. Not timed.
    fn close(&mut self);

    /// The ways there are to do `fork-shape`, by name. The fastest is the contender's row, the others are printed
    /// with their name as a suffix.
    fn fork_ways(&self) -> &'static [&'static str] {
        &[""]
    }

    /// `fork-shape` in the way with this index: for each of [`ForkShape::spaces`] make a space, map its pages, tear it
    /// down.
    fn fork_shape(&mut self, way: usize, shape: &ForkShape);

    /// Tables taken and not given back.
    fn tables_out(&self) -> usize {
        super::peer_pool::live()
    }

    /// Called once, after the last round: everything that was borrowed for the benchmark goes back.
    ///
    /// # Errors
    ///
    /// What did not come back.
    fn finish(&mut self) -> Result<(), String> {
        Ok(())
    }
}
