//! The interface of contenders: one method for each case with the loop inside; clock and checks are
//! outside.
use ptarmigan::format::Format;
use ptarmigan::page::Level;

/// Pages in the contiguous cases.
pub const PAGES: usize = 1 << 20;
/// Bytes in a page.
pub const PAGE: usize = 4096;
/// Start of the mappings: 256 GiB, aligned for every level.
pub const VIRT: usize = 0x40_0000_0000;
/// The first of the pretended data frames, which are mapped and never touched.
pub const PHYS: usize = 0x1_0000_0000;

/// The pages of the cases: where they are, how large, and how many, which depends on the format of
/// the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CasePages {
    /// Pages in the contiguous cases.
    pub count: usize,
    /// Bytes in a page.
    pub bytes: usize,
    /// Start of the mappings, aligned for every level but the root's.
    pub virt: usize,
    /// The first of the pretended data frames, which are mapped and never touched.
    pub phys: usize,
    /// Bytes that a leaf table maps.
    pub table: usize,
}

impl CasePages {
    /// The pages of four levels with pages of 4 KiB, which all contenders have.
    pub const USUAL: CasePages =
        CasePages { count: PAGES, bytes: PAGE, virt: VIRT, phys: PHYS, table: STRIDE };

    /// Returns those of tables of format `F`: as many as [`PAGES`], or as its user's half has room
    /// for.
    pub fn of<F: Format>() -> CasePages {
        let bytes = 1 << F::PAGE_SHIFT;
        let is_small = F::USER_END <= VIRT as u64;
        // 1 GiB is below half of the smallest user's half, and frames are named from there on too.
        let (virt, phys) = if is_small { (1 << 30, 1 << 30) } else { (VIRT, PHYS) };
        let room = F::USER_END.min(1 << F::PHYS_BITS) - virt as u64;
        let count = usize::try_from(room / bytes as u64).unwrap_or(PAGES).min(PAGES);
        CasePages { count, bytes, virt, phys, table: 1 << F::shift(Level(1)) }
    }

    /// Returns the (virtual, physical) pairs of the contiguous cases.
    #[inline]
    pub fn contiguous(self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.count).map(move |i| (self.virt + i * self.bytes, self.phys + i * self.bytes))
    }

    /// Large pages in the cases of large pages: leaves that map as much as a leaf table does. They
    /// cover the same addresses as the pages.
    pub const fn large(self) -> usize {
        self.count * self.bytes / self.table
    }

    /// Large pages that are split in a sample.
    pub const fn split(self) -> usize {
        if self.large() < SPLIT { self.large() } else { SPLIT }
    }

    /// Returns the (virtual, physical) pairs of the large pages.
    #[inline]
    pub fn large_pages(self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.large()).map(move |i| (self.virt + i * self.table, self.phys + i * self.table))
    }

    /// Returns the (virtual, physical) pairs of the devices: one of [`DEVICE`] pages in each span
    /// of addresses that a leaf table maps, each elsewhere in it.
    #[inline]
    pub fn devices(self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.large()).map(move |i| {
            let within = i % (self.table / (self.bytes * DEVICE)) * DEVICE * self.bytes;
            (self.virt + i * self.table + within, self.phys + i * self.table + within)
        })
    }

    /// Returns the result of [`TableContender::query`] while all devices are mapped.
    pub fn device_frames(self) -> usize {
        let pages = self.devices().flat_map(|(_, phys)| (0..DEVICE).map(move |k| phys + k * self.bytes));
        pages.fold(0, usize::wrapping_add)
    }

    /// Returns the result of [`TableContender::query`] while everything is mapped.
    pub fn all_frames(self) -> usize {
        self.contiguous().map(|(_, phys)| phys).fold(0, usize::wrapping_add)
    }

    /// Returns it after [`TableContender::large_half`].
    pub fn frames_after_half(self) -> usize {
        let (start, half) = (self.virt + self.table / 2, self.table / 2);
        let is_gone = |virt: usize| {
            virt < self.virt + self.split() * self.table
                && virt >= start
                && (virt - start) % self.table < half
        };
        let left = self.contiguous().filter(|&(virt, _)| !is_gone(virt));
        left.map(|(_, phys)| phys).fold(0, usize::wrapping_add)
    }
}

/// Large pages that are split in a sample, if there are as many: their tables fit in the cache of
/// the second level.
const SPLIT: usize = 64;

/// Pages of a device: 64 KiB of registers, where pages have 4 KiB.
pub const DEVICE: usize = 16;

/// Address spaces made and torn down in one `fork-shape` sample.
pub const SPACES: usize = 4096;
/// Pages mapped in each of these spaces.
pub const SPARSE: usize = 32;
/// Distance of their regions: each needs its own leaf table.
pub const STRIDE: usize = 2 << 20;

/// The timed cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableCase {
    /// Map 1,048,576 contiguous pages with one call each; fewer in a smaller user's half.
    Map,
    /// Look up each of them with one call.
    Query,
    /// Unmap each of them with one call.
    Unmap,
    /// Map all of them with one range call.
    MapRange,
    /// Unmap all of them with one range call.
    UnmapRange,
    /// Make an address space, map 32 pages that each need a leaf table, and tear it down; 4096
    /// times.
    ForkShape,
    /// Map the memory of the contiguous cases as large pages: leaves that map as much as a leaf
    /// table does.
    LargeMap,
    /// Unmap all of them.
    LargeUnmap,
    /// Split the first of them, [`CasePages::split`] many, into pages, with one call each.
    LargeSplit,
    /// Unmap the upper half of as many of them, with one call each.
    LargeHalf,
    /// Map the registers of a device in each span that a leaf table maps, with one call each:
    /// [`DEVICE`] pages of uncached memory, in tables that are not there yet.
    Device,
}

impl TableCase {
    /// Every case, in the order of running and printing.
    pub const ALL: [TableCase; 11] = [
        TableCase::Map,
        TableCase::Query,
        TableCase::Unmap,
        TableCase::MapRange,
        TableCase::UnmapRange,
        TableCase::ForkShape,
        TableCase::LargeMap,
        TableCase::LargeUnmap,
        TableCase::LargeSplit,
        TableCase::LargeHalf,
        TableCase::Device,
    ];

    /// The cases for contenders that have no large pages: those before the ones about them.
    pub const PAGES: &'static [TableCase] = Self::ALL.split_at(6).0;

    /// The cases for contenders whose pages show usual memory alone.
    pub const MEMORY: &'static [TableCase] = Self::ALL.split_at(10).0;

    /// Returns the name in rows.
    pub fn name(self) -> &'static str {
        match self {
            TableCase::Map => "map",
            TableCase::Query => "query",
            TableCase::Unmap => "unmap",
            TableCase::MapRange => "map-range",
            TableCase::UnmapRange => "unmap-range",
            TableCase::ForkShape => "fork-shape",
            TableCase::LargeMap => "large-map",
            TableCase::LargeUnmap => "large-unmap",
            TableCase::LargeSplit => "large-split",
            TableCase::LargeHalf => "large-half",
            TableCase::Device => "device",
        }
    }
}

/// The virtual addresses of the `fork-shape` case: in each space, a page at a random offset in each
/// region that a leaf table maps.
///
/// Real programs do not touch the first page of every such region. With offset 0 everywhere, all
/// leaf entries would share a cache set, and every touched line would be a table's first.
pub struct ForkShape {
    offsets: Vec<u16>,
}

impl ForkShape {
    /// Creates the same offsets for every contender and every run. `at` says where the pages are.
    pub fn new(at: CasePages) -> Self {
        let entries = at.table / at.bytes;
        // xorshift64*: the offsets only have to lack a pattern.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            // The upper bits: as many as there are entries in a table.
            (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> (u64::BITS - entries.ilog2())) as u16
        };
        ForkShape { offsets: (0..SPACES * SPARSE).map(|_| next()).collect() }
    }

    /// Returns the spaces, each as pairs of addresses and frames to map.
    #[inline]
    pub fn spaces(&self) -> impl Iterator<Item = ForkSpace<'_>> {
        self.offsets.as_chunks::<SPARSE>().0.iter().map(|offsets| ForkSpace { offsets })
    }
}

/// One address space of the `fork-shape` case.
#[derive(Clone, Copy)]
pub struct ForkSpace<'a> {
    offsets: &'a [u16; SPARSE],
}

impl<'a> ForkSpace<'a> {
    /// Returns its (virtual, physical) pairs with [`CasePages::USUAL`], ascending.
    #[inline]
    pub fn pages(self) -> impl Iterator<Item = (usize, usize)> + use<'a> {
        self.pages_of(CasePages::USUAL)
    }

    /// Returns its (virtual, physical) pairs, ascending. `at` is that of the shape, which a caller
    /// knows while it is compiled.
    #[inline]
    pub fn pages_of(self, at: CasePages) -> impl Iterator<Item = (usize, usize)> + use<'a> {
        let CasePages { bytes, virt, phys, table, .. } = at;
        let offsets = self.offsets.iter().enumerate();
        offsets.map(move |(i, &offset)| (virt + i * table + usize::from(offset) * bytes, phys + i * bytes))
    }
}

/// Returns the (virtual, physical) pairs of the contiguous cases with [`CasePages::USUAL`].
#[inline]
pub fn contiguous() -> impl Iterator<Item = (usize, usize)> {
    CasePages::USUAL.contiguous()
}

/// A page-table implementation under test.
///
/// It owns at most one populated address space. The harness calls [`open`](Self::open), the methods
/// of a case, and [`close`](Self::close). It times only the methods named after the case and checks
/// [`query`](Self::query) around them. [`tables_out`](Self::tables_out) has to be 0 after every
/// `close` and every `fork_shape`.
pub trait TableContender {
    /// Returns the name in rows and for `--only`.
    fn name(&self) -> &'static str;

    /// Returns the cases that the contender supports.
    fn cases(&self) -> &'static [TableCase] {
        &TableCase::ALL
    }

    /// Creates an empty address space. Not timed.
    fn open(&mut self);

    /// `map`: maps [`contiguous`] page by page.
    fn map(&mut self);

    /// `query`: looks up [`contiguous`] page by page. Returns the wrapping sum of the frames found;
    /// a page that is not mapped counts 0.
    fn query(&mut self) -> usize;

    /// `unmap`: unmaps [`contiguous`] page by page.
    fn unmap(&mut self);

    /// `map-range`: maps [`contiguous`] with one call.
    fn map_range(&mut self) {}

    /// `unmap-range`: unmaps [`contiguous`] with one call.
    fn unmap_range(&mut self) {}

    /// `large-map`: maps [`CasePages::large_pages`] as large pages.
    fn large_map(&mut self) {}

    /// `large-unmap`: unmaps all of them.
    fn large_unmap(&mut self) {}

    /// `large-split`: splits the first [`CasePages::split`] of them into pages, with one call each.
    fn large_split(&mut self) {}

    /// `large-half`: unmaps the upper half of the first [`CasePages::split`] of them, one after the
    /// other.
    fn large_half(&mut self) {}

    /// `device`: maps [`DEVICE`] pages of uncached memory from each of [`CasePages::devices`] on.
    fn device(&mut self) {}

    /// Returns the result of [`query`](Self::query), where some of the pages are parts of large
    /// ones. Not timed.
    fn query_large(&mut self) -> usize {
        self.query()
    }

    /// Destroys the address space and returns its tables to the pool. Not timed.
    fn close(&mut self);

    /// Returns the names of the variants of `fork-shape`. The fastest is the contender's row; the
    /// rows of the others have their name as a suffix.
    fn fork_ways(&self) -> &'static [&'static str] {
        &[""]
    }

    /// `fork-shape` in the variant with index `way`: for each of [`ForkShape::spaces`], makes a
    /// space, maps its pages and tears it down.
    fn fork_shape(&mut self, way: usize, shape: &ForkShape);

    /// Returns the number of allocated tables.
    fn tables_out(&self) -> usize {
        super::peer_pool::live()
    }

    /// Returns everything borrowed for the benchmark. Called once, after the last round.
    ///
    /// # Errors
    ///
    /// If something was lost.
    fn finish(&mut self) -> Result<(), String> {
        Ok(())
    }
}
