//! Says how the memory behind a page is cached, and translates it to the bits of entries.
use super::Attr;

/// How accesses to the memory behind a page are cached and ordered: a part of [`Attr`].
///
/// The types are in order of strictness but for the first two: [`FormatExt::nearest`] goes from a
/// type that a format does not have to the next one in the order [`WriteBack`](Self::WriteBack),
/// [`WriteThrough`](Self::WriteThrough), [`WriteCombining`](Self::WriteCombining),
/// [`Uncached`](Self::Uncached), [`Device`](Self::Device).
///
/// The number of a type is the index that it has in the PAT of x86 ([`X86_64::PAT`]), so that
/// entries of x86 have its bits as they are.
///
/// [`FormatExt::nearest`]: super::FormatExt::nearest
/// [`X86_64::PAT`]: super::X86_64::PAT
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
#[repr(u8)]
pub enum MemoryType {
    /// Cached, and written to memory when the line leaves the cache: usual memory.
    #[default]
    WriteBack = 0,
    /// Cached for reads. Writes go to memory as well.
    WriteThrough = 7,
    /// Not cached. Writes are collected and may reach memory in another order, and reads may be
    /// made ahead: buffers of pictures, and memory that a device reads and writes beside the CPU.
    WriteCombining = 1,
    /// Not cached, and accesses are in order. A register of the CPU or an outer stage may weaken it
    /// to [`WriteCombining`](Self::WriteCombining): MTRRs of x86, the guest's own tables under EPT.
    Uncached = 2,
    /// Registers of a device: every access of the program is one access of the bus, in order, and
    /// none is made ahead. On AArch64 accesses must be aligned.
    Device = 3,
}

impl MemoryType {
    /// All types, from the least to the most strict one.
    pub const ALL: [MemoryType; 5] = [
        MemoryType::WriteBack,
        MemoryType::WriteThrough,
        MemoryType::WriteCombining,
        MemoryType::Uncached,
        MemoryType::Device,
    ];

    /// The type with a number; `None` if no type has it.
    #[inline]
    pub(crate) const fn numbered(n: u32) -> Option<MemoryType> {
        match n {
            0 => Some(MemoryType::WriteBack),
            1 => Some(MemoryType::WriteCombining),
            2 => Some(MemoryType::Uncached),
            3 => Some(MemoryType::Device),
            7 => Some(MemoryType::WriteThrough),
            _ => None,
        }
    }
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
