//! Describes the permitted accesses to a page, independent of the architecture.
use core::fmt;
use core::ops::BitOr;

/// Attributes of a page.
///
/// Bits 0 to 7 are those below. Bits 8 to 11 are the library's, for later use. Bits 12 to 15
/// ([`OWN`](Self::OWN)) are the format's own, for instance a memory type: `KernelRange`, `Vmalloc`
/// and `TreeMut` pass them on. Spaces do not ask for them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Attr(pub u16);

impl Attr {
    /// May be read; without it the entry is not present for the MMU.
    pub const READ: Attr = Attr(1);
    /// May be written.
    pub const WRITE: Attr = Attr(2);
    /// Instructions may be fetched.
    pub const EXEC: Attr = Attr(4);
    /// The user may use it.
    pub const USER: Attr = Attr(8);
    /// The same in all spaces: survives a change of root.
    pub const GLOBAL: Attr = Attr(16);
    /// The MMU has used it.
    pub const ACCESSED: Attr = Attr(32);
    /// The MMU has written through it.
    pub const DIRTY: Attr = Attr(64);
    /// For software: the frame is not counted by references (the zero frame, pages of a cache).
    pub const SPECIAL: Attr = Attr(128);
    /// All attributes of a format's own.
    pub const OWN: Attr = Attr(0xf000);

    /// Whether all attributes of `other` are set.
    #[inline]
    pub const fn has(self, other: Attr) -> bool {
        self.0 & other.0 == other.0
    }

    /// Without those of `other`.
    #[inline]
    pub const fn without(self, other: Attr) -> Attr {
        Attr(self.0 & !other.0)
    }
}

/// Returns the bits of an entry that stand for the attributes of `attr` in `table`.
#[inline]
pub(super) fn bits_of(table: &[(Attr, u64)], attr: Attr) -> u64 {
    table.iter().fold(0, |raw, (bit, to)| if attr.has(*bit) { raw | to } else { raw })
}

/// Returns the attributes in `table` whose bits an entry has.
#[inline]
pub(super) fn attr_of(table: &[(Attr, u64)], raw: u64) -> Attr {
    table.iter().fold(Attr::default(), |attr, (bit, from)| if raw & from != 0 { attr | *bit } else { attr })
}

impl BitOr for Attr {
    type Output = Attr;
    #[inline]
    fn bitor(self, other: Attr) -> Attr {
        Attr(self.0 | other.0)
    }
}

impl fmt::Display for Attr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = ["r", "w", "x", "u", "g", "a", "d", "s"];
        for (i, name) in names.iter().enumerate() {
            f.write_str(if self.0 >> i & 1 != 0 { name } else { "-" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Attr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attr({self})")
    }
}

/// A program's access to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Fetches an instruction.
    Exec,
}
