//! Describes the layout of entries of a hash table.

/// A page, as the hash table names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag {
    vsid: u32,
    page: u16,
}

impl Tag {
    /// Bits of a VSID that are used. 64-bit implementations have 52; software that was written for
    /// both uses no more.
    pub const VSID_BITS: u32 = 24;

    /// Names the page with index `page` of the segment `vsid`, of which the low 24 bits count.
    pub const fn new(vsid: u32, page: u16) -> Self {
        Tag { vsid: vsid & ((1 << Self::VSID_BITS) - 1), page }
    }

    /// Names the page of 4 KiB at `va` of the space with context number `context`.
    ///
    /// A segment is 256 MiB. Its VSID is `context * 897 * 16 + segment * 0x111`, modulo 2^24, as in
    /// Linux: consecutive contexts lie far from each other in the table. The factor is odd but for
    /// the 16 segments, so that VSIDs of 2^20 contexts differ.
    pub const fn of(context: u32, va: u32) -> Self {
        let segment = va >> 28;
        let vsid = context.wrapping_mul(897 * 16).wrapping_add(segment.wrapping_mul(0x111));
        Tag::new(vsid, (va >> 12) as u16)
    }

    /// Returns the number of the virtual segment.
    pub const fn vsid(self) -> u32 {
        self.vsid
    }

    /// Returns the index of the page in its segment.
    pub const fn page(self) -> u16 {
        self.page
    }

    /// Returns the primary hash; the secondary one is its complement.
    pub(super) const fn hash(self) -> u32 {
        self.vsid ^ self.page as u32
    }
}

/// The mapping of a page: the low word of an entry's second half, in the architecture's layout.
/// Bits 12 to 31 are the frame's number, 0x100 and 0x80 the referenced and the changed bit, 0x78
/// the storage attributes (WIMG) and 3 the protection (PP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping(pub u32);

impl Mapping {
    /// The page was used.
    pub const REFERENCED: u32 = 0x100;
    /// The page was written to.
    pub const CHANGED: u32 = 0x80;
    /// Bits that the architecture defines.
    pub const BITS: u32 = 0xffff_f1fb;
}

/// Words of the larger entry.
pub(super) const MOST_WORDS: usize = 4;

/// Layout of a hash table's entries, in words of 32 bits, the more significant one first.
///
/// It is implemented by [`Hashed32`] and [`Hashed64`], the two that there are.
pub trait HashLayout: Copy + sealed::Sealed + 'static {
    /// Words of an entry.
    #[doc(hidden)]
    const WORDS: usize;
    /// The word with the bit that says that the entry is valid, of those that hold the tag.
    #[doc(hidden)]
    const VALID_WORD: usize;
    /// That bit.
    #[doc(hidden)]
    const VALID: u32;
    /// Groups of the smallest table. Entries name as much of the page's index as the group of such
    /// a table leaves open.
    const LEAST_GROUPS: usize;

    /// The words of an entry. `secondary` says that it is in the secondary group.
    #[doc(hidden)]
    fn encode(tag: Tag, secondary: bool, mapping: Mapping) -> [u32; MOST_WORDS];

    /// The VSID of an entry, of which 24 bits are used.
    #[doc(hidden)]
    fn vsid(words: [u32; MOST_WORDS]) -> u32;
}

mod sealed {
    pub trait Sealed {}
}

/// Entries of 8 bytes in groups of 64, as 32-bit implementations have them.
#[derive(Clone, Copy, Debug)]
pub struct Hashed32;

impl sealed::Sealed for Hashed32 {}

impl HashLayout for Hashed32 {
    const WORDS: usize = 2;
    const VALID_WORD: usize = 0;
    const VALID: u32 = 1 << 31;
    const LEAST_GROUPS: usize = 1 << 10;

    #[inline]
    fn encode(tag: Tag, secondary: bool, mapping: Mapping) -> [u32; MOST_WORDS] {
        // V, VSID (24), H, API (6: the upper bits of the index).
        let upper = u32::from(tag.page) >> 10;
        [Self::VALID | tag.vsid << 7 | u32::from(secondary) << 6 | upper, mapping.0 & Mapping::BITS, 0, 0]
    }

    #[inline]
    fn vsid([first, ..]: [u32; MOST_WORDS]) -> u32 {
        first >> 7 & ((1 << Tag::VSID_BITS) - 1)
    }
}

/// Entries of 16 bytes in groups of 128, as 64-bit implementations have them.
#[derive(Clone, Copy, Debug)]
pub struct Hashed64;

impl sealed::Sealed for Hashed64 {}

impl HashLayout for Hashed64 {
    const WORDS: usize = 4;
    const VALID_WORD: usize = 1;
    const VALID: u32 = 1;
    const LEAST_GROUPS: usize = 1 << 11;

    #[inline]
    fn encode(tag: Tag, secondary: bool, mapping: Mapping) -> [u32; MOST_WORDS] {
        // VSID (52), API (5: the upper bits of the index), 5 bits reserved, H, V.
        let upper = u64::from(tag.page) >> 11;
        let first = u64::from(tag.vsid) << 12 | upper << 7 | u64::from(secondary) << 1 | 1;
        [(first >> 32) as u32, first as u32, 0, mapping.0 & Mapping::BITS]
    }

    #[inline]
    fn vsid([high, low, ..]: [u32; MOST_WORDS]) -> u32 {
        (high << 20 | low >> 12) & ((1 << Tag::VSID_BITS) - 1)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn entries_are_laid_out_as_the_manual_says() {
        let tag = Tag::new(0xabcdef, 0xfc01);
        let mapping = Mapping(0x1234_5192);
        assert_eq!(Hashed32::encode(tag, false, mapping)[..2], [0xd5e6_f7bf, 0x1234_5192]);
        assert_eq!(Hashed32::encode(tag, true, mapping)[0], 0xd5e6_f7ff);
        assert_eq!(Hashed64::encode(tag, false, mapping), [0xa, 0xbcde_ff81, 0, 0x1234_5192]);
        assert_eq!(Hashed64::encode(tag, true, mapping)[1], 0xbcde_ff83);
        assert_eq!(Hashed32::vsid(Hashed32::encode(tag, true, mapping)), 0xabcdef);
        assert_eq!(Hashed64::vsid(Hashed64::encode(tag, true, mapping)), 0xabcdef);
    }

    #[test]
    fn contexts_and_segments_have_segment_numbers_of_their_own() {
        // An interpreter takes many minutes for all of them.
        let contexts = if cfg!(miri) { 64 } else { 4096 };
        let mut seen = std::collections::BTreeSet::new();
        for context in 0..contexts {
            for segment in 0..16 {
                assert!(seen.insert(Tag::of(context, segment << 28).vsid()), "{context} {segment}");
            }
        }
        assert_eq!(Tag::of(0, 0x1234_5678), Tag::new(0x111, 0x2345));
    }
}
