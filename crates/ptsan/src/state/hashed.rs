//! Keeps the hash table, and the space whose tree maps the pages of a virtual segment.
use crate::arch::{HashTable, SEGMENTS, Tag, segment_of};
use crate::hash::FastMap;

/// The segments of a space.
#[derive(Clone, Copy)]
struct Segments {
    root: u64,
    vsids: [u64; SEGMENTS],
}

/// Where the software's entry of a page is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub(crate) space: u64,
    pub(crate) root: u64,
    pub(crate) va: u64,
}

/// The state of a machine with a hash table.
#[derive(Default)]
pub(crate) struct Hashed {
    pub(crate) table: Option<HashTable>,
    spaces: FastMap<u64, Segments>,
    /// The space and the number of the segment for each virtual segment.
    owners: FastMap<u64, (u64, usize)>,
}

impl Hashed {
    /// Gives a space its segments, in place of those that it had.
    pub(crate) fn announce(&mut self, space: u64, root: u64, vsids: [u64; SEGMENTS]) {
        self.forget(space);
        self.spaces.insert(space, Segments { root, vsids });
        for (segment, vsid) in vsids.into_iter().enumerate() {
            self.owners.insert(vsid, (space, segment));
        }
    }

    /// Forgets the segments of a space. Those that it shared are another's then.
    pub(crate) fn forget(&mut self, space: u64) {
        let Some(gone) = self.spaces.remove(&space) else { return };
        for (segment, vsid) in gone.vsids.into_iter().enumerate() {
            if self.owners.get(&vsid).is_some_and(|owner| owner.0 == space) {
                self.owners.remove(&vsid);
                let heir = self.spaces.iter().find(|(_, other)| other.vsids[segment] == vsid);
                if let Some((heir, _)) = heir {
                    self.owners.insert(vsid, (*heir, segment));
                }
            }
        }
    }

    /// Names the page at `va` in a space.
    pub(crate) fn tag(&self, space: u64, va: u64) -> Option<Tag> {
        let vsid = self.spaces.get(&space)?.vsids[segment_of(va)];
        Some(Tag { vsid, page: Tag::page_of(va) })
    }

    /// Returns the address in a space at which a page is, if it is in one of the space's segments.
    pub(crate) fn address_in(&self, space: u64, tag: Tag) -> Option<u64> {
        let segment = self.spaces.get(&space)?.vsids.iter().position(|vsid| *vsid == tag.vsid)?;
        Some(tag.address(segment))
    }

    /// Returns where the software's entry of a page is.
    pub(crate) fn owner(&self, tag: Tag) -> Option<Owner> {
        let (space, segment) = *self.owners.get(&tag.vsid)?;
        Some(Owner { space, root: self.spaces.get(&space)?.root, va: tag.address(segment) })
    }

    /// Returns whether the space has the virtual segment, and no other space has it.
    pub(crate) fn is_own(&self, space: u64, vsid: u64) -> bool {
        let has = |s: &Segments| s.vsids.contains(&vsid);
        self.spaces.get(&space).is_some_and(has) && !self.spaces.iter().any(|(n, s)| *n != space && has(s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_segment_is_the_other_space_s_when_one_goes() {
        let vsids = |own: u64| std::array::from_fn(|n| if n < 12 { own + n as u64 } else { 900 + n as u64 });
        let mut hashed = Hashed::default();
        hashed.announce(1, 0x1000, vsids(100));
        hashed.announce(2, 0x2000, vsids(200));
        let tag = |vsid| Tag { vsid, page: 5 };
        assert_eq!(hashed.tag(1, 0x2000_5000), Some(tag(102)));
        let owner = |hashed: &Hashed, vsid| hashed.owner(tag(vsid)).map(|o| (o.space, o.root, o.va));
        assert_eq!(owner(&hashed, 102), Some((1, 0x1000, 0x2000_5000)));
        assert_eq!(owner(&hashed, 915), Some((2, 0x2000, 0xf000_5000)));
        assert!(hashed.is_own(1, 102) && !hashed.is_own(1, 915) && !hashed.is_own(2, 102));
        hashed.forget(2);
        assert_eq!(owner(&hashed, 915), Some((1, 0x1000, 0xf000_5000)));
        assert_eq!((owner(&hashed, 202), hashed.tag(2, 0)), (None, None));
        hashed.announce(1, 0x1000, vsids(300));
        assert_eq!(owner(&hashed, 102), None);
    }
}
