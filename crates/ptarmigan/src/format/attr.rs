//! Describes the permitted accesses to a page, independent of the architecture.
use super::MemoryType;
use core::fmt;
use core::ops::BitOr;

/// Attributes of a page.
///
/// [`READ`](Self::READ), [`WRITE`](Self::WRITE) and [`EXEC`](Self::EXEC) are permissions. An entry
/// that gives none of them is not present for the MMU, and keeps its frame. [`EXEC`](Self::EXEC)
/// alone is a page for execution only.
///
/// No format can say all attributes in all combinations: [`Rights`](super::Rights) has those that
/// one can. Calls that are given attributes refuse others
/// ([`Inexpressible`](super::Inexpressible)).
///
/// | bits | |
/// |---|---|
/// | 0–7 | permissions and notes, by name |
/// | 8–11 | [`SOFT`](Self::SOFT): the caller's own, which no MMU looks at |
/// | 12–14 | [`MEMORY`](Self::MEMORY): a number, the [memory type](super::MemoryType) |
/// | 16 | [`KERNEL_EXEC`](Self::KERNEL_EXEC) |
/// | 17 | [`SHARED`](Self::SHARED) |
/// | 20–23 | [`KEY`](Self::KEY): a number, the protection key |
/// | the others | for later use |
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Attr(pub u32);

impl Attr {
    /// May be read.
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
    /// The kernel may fetch instructions from it, although it is the user's. Without it, whether
    /// the kernel may is [`Rights::kernel_fetch`](super::Rights::kernel_fetch).
    pub const KERNEL_EXEC: Attr = Attr(1 << 16);
    /// The caller's own: entries keep it, and no MMU and no part of the library looks at it. It
    /// stays when permissions change, when the page is copied because it is written, moved, or
    /// passed on by fork. Formats have as many as [`Rights::soft_bits`](super::Rights::soft_bits),
    /// in order.
    pub const SOFT0: Attr = Attr(1 << 8);
    /// The same as [`SOFT0`](Self::SOFT0), once more.
    pub const SOFT1: Attr = Attr(1 << 9);
    /// The same as [`SOFT0`](Self::SOFT0), once more.
    pub const SOFT2: Attr = Attr(1 << 10);
    /// The same as [`SOFT0`](Self::SOFT0), once more.
    pub const SOFT3: Attr = Attr(1 << 11);
    /// All attributes of the caller's own.
    pub const SOFT: Attr = Attr(0xf00);
    /// The protection key of a page, see [`key`](Self::key).
    pub const KEY: Attr = Attr(0xf << 20);
    /// All bits that mean something.
    const KNOWN: Attr = Attr(0xff)
        .with(Self::SOFT)
        .with(Self::MEMORY)
        .with(Self::KERNEL_EXEC)
        .with(Self::SHARED)
        .with(Self::KEY);
    /// Numbers of several bits: each is one value, so that two of them differ or are the same.
    pub(crate) const NUMBERS: Attr = Self::MEMORY.with(Self::KEY);
    /// The permissions, and what depends on them: none of these is in an entry without access.
    const ACCESS: Attr = Attr(1 | 2 | 4 | 16 | 1 << 16);

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

    /// A guest shares it with its host: it is not encrypted by the guest's key
    /// ([`Encrypted`](super::Encrypted)).
    pub const SHARED: Attr = Attr(1 << 17);

    /// Returns the protection key `n` as an attribute, for formats with keys
    /// ([`Keyed`](super::Keyed)): `None` if there is no such key, as there are 16. Pages without a
    /// key have key 0.
    #[inline]
    pub const fn key(n: u8) -> Option<Attr> {
        if n < 16 { Some(Attr((n as u32) << Self::KEY.0.trailing_zeros())) } else { None }
    }

    /// Returns the number of the protection key, 0 for a page without one.
    #[inline]
    pub const fn key_number(self) -> u8 {
        (self.only(Self::KEY).0 >> Self::KEY.0.trailing_zeros()) as u8
    }

    /// Those of `which` alone.
    #[inline]
    pub const fn only(self, which: Attr) -> Attr {
        Attr(self.0 & which.0)
    }

    /// Without permissions: the entry keeps its frame, and the MMU does not use it.
    #[inline]
    pub const fn without_access(self) -> Attr {
        self.without(Self::ACCESS)
    }

    /// Returns the attributes of a page of the kernel's half. No code serves a fault there that has
    /// to note an access, so a page that can be used is accessed, and one that can be written is
    /// dirty, from the start.
    pub(crate) const fn noted(self) -> Attr {
        let used = if self.only(Attr(1 | 2 | 4)).0 != 0 { Self::ACCESSED } else { Attr(0) };
        let written = if self.has(Self::WRITE) { Self::DIRTY } else { Attr(0) };
        self.with(used).with(written)
    }

    /// With those of `other`.
    #[inline]
    pub const fn with(self, other: Attr) -> Attr {
        Attr(self.0 | other.0)
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
        if self.has(Attr::KERNEL_EXEC) {
            f.write_str("+k")?;
        }
        if self.has(Attr::SHARED) {
            f.write_str("+shared")?;
        }
        if self.key_number() != 0 {
            write!(f, "+key{}", self.key_number())?;
        }
        match MemoryType::numbered(self.memory_number()) {
            Some(MemoryType::WriteBack) => {}
            Some(MemoryType::WriteThrough) => f.write_str("+through")?,
            Some(MemoryType::WriteCombining) => f.write_str("+combining")?,
            Some(MemoryType::Uncached) => f.write_str("+uncached")?,
            Some(MemoryType::Device) => f.write_str("+device")?,
            None => write!(f, "+memory{}", self.memory_number())?,
        }
        for n in 0..4 {
            if self.0 >> (8 + n) & 1 != 0 {
                write!(f, "+soft{n}")?;
            }
        }
        let unknown = self.without(Self::KNOWN);
        if unknown.0 != 0 { write!(f, "+{:#x}", unknown.0) } else { Ok(()) }
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

impl Attr {
    /// The memory type of a page, see [`memory`](Self::memory): a number in bits 12 to 14.
    pub const MEMORY: Attr = Attr(7 << 12);

    /// Returns the same with the memory type `memory`, in place of the one before. Attributes that
    /// are combined with `|` must have one type, or one of them the usual one.
    ///
    /// ```
    /// use ptarmigan::format::{Attr, MemoryType};
    ///
    /// let buffer = Attr::READ | Attr::WRITE;
    /// let combined = buffer.with_memory(MemoryType::WriteCombining);
    /// assert_eq!(combined.memory(), MemoryType::WriteCombining);
    /// assert_eq!(combined.with_memory(MemoryType::WriteBack), buffer);
    /// ```
    #[inline]
    pub const fn with_memory(self, memory: MemoryType) -> Attr {
        self.without(Self::MEMORY).with(Attr((memory as u32) << Self::MEMORY.0.trailing_zeros()))
    }

    /// Returns the memory type; the strictest one for a number that no type has, with which every
    /// format refuses the attributes.
    #[inline]
    pub const fn memory(self) -> MemoryType {
        match MemoryType::numbered(self.memory_number()) {
            Some(memory) => memory,
            None => MemoryType::Device,
        }
    }

    /// The number of the memory type, whether there is such a type or not.
    #[inline]
    pub(super) const fn memory_number(self) -> u32 {
        self.only(Self::MEMORY).0 >> Self::MEMORY.0.trailing_zeros()
    }
}

/// The memory types of a format, and the bits of a leaf that say each of them. The first one is
/// for types that the format does not have.
pub(super) type Types = [(MemoryType, u64)];

/// Returns the bits of a leaf for the memory type of `attr`.
#[inline]
pub(super) fn memory_bits(types: &Types, attr: Attr) -> u64 {
    let memory = attr.memory();
    let other = types.first().map_or(0, |first| first.1);
    types.iter().fold(other, |bits, (has, of)| if *has == memory { *of } else { bits })
}

/// Returns the memory type that the bits `bits` of a leaf say, as an attribute. The bits that
/// stand for no type of the format's are [`MemoryType::Device`].
#[inline]
pub(super) fn memory_of(types: &Types, bits: u64) -> Attr {
    let memory =
        types.iter().fold(MemoryType::Device, |found, (has, of)| if *of == bits { *has } else { found });
    Attr(0).with_memory(memory)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_read_back_and_takes_the_place_of_another() {
        let rest = Attr(u32::MAX).without(Attr::MEMORY);
        for memory in MemoryType::ALL {
            for before in MemoryType::ALL {
                let attr = rest.with_memory(before).with_memory(memory);
                assert_eq!((attr.memory(), attr.without(Attr::MEMORY)), (memory, rest));
            }
            assert_eq!(MemoryType::numbered(memory as u32), Some(memory));
        }
        assert_eq!((Attr(0).memory(), Attr(4 << 12).memory()), (MemoryType::WriteBack, MemoryType::Device));
    }
}
