//! Says how the memory behind a page is cached.

/// How accesses to the memory behind a page are cached and ordered: a part of
/// [`Attr`](super::Attr).
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
