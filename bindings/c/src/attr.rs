//! Describes the mapping of an address, and its permissions.
use crate::error::PtError;
use ptarmigan::format::{Attr, MemoryType};

/// A page of a tree, a large page, or a group of either that the MMU may keep as one: where it is
/// mapped to and its permissions.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PtPage {
    /// Its first address.
    pub va: u64,
    /// The physical address of its first frame. The others follow it.
    pub phys: u64,
    /// Its bytes: `PT_PAGE_SIZE << level * PT_LEVEL_BITS`, more for a group.
    pub bytes: u64,
    /// Values of `enum pt_attr`, combined with `|`.
    pub attr: u32,
    /// The level of the table that has its entry: 0 for a page of `PT_PAGE_SIZE`, more for a large
    /// page.
    pub level: u32,
}

/// Permissions of a page, combined with `|`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PtAttr {
    /// It may be read. A page without permissions is not present for the MMU and keeps its frame.
    /// Pages that may be written and not read are refused; those that may be executed and not read,
    /// where the format has none.
    Read = 1,
    /// It may be written.
    Write = 2,
    /// Instructions may be fetched.
    Exec = 4,
    /// The user may use it.
    User = 8,
    /// The MMU has used it. Only in answers. AArch64 and RISC-V: set from the beginning, so that
    /// MMUs that leave it to software do not fault.
    Accessed = 32,
    /// The MMU has written through it. Only in answers. AArch64 and RISC-V: set from the beginning
    /// for pages that may be written.
    Dirty = 64,
    /// Not cached; writes are collected, and may be reordered: buffers of pictures. This and the
    /// next three are memory types, of which a page has one: two combined stand for another one.
    /// Without one it is usual memory, which is written back. `PT_ERROR_MEMORY_TYPE` for a type
    /// that pages cannot have: AArch64 has no `PT_ATTR_UNCACHED`, and RISC-V, where not every hart
    /// has types, none of them. They stand for `PT_MEMORY_TYPES` in `IA32_PAT` or `MAIR_EL1` of
    /// each CPU. Lines of a frame that is cached are written back and invalidated by the caller,
    /// before it is mapped with another type.
    WriteCombining = 0x1000,
    /// Not cached, and in order, unless an MTRR says otherwise. x86 alone.
    Uncached = 0x2000,
    /// Registers of a device: each access is made once and in order.
    Device = 0x3000,
    /// Cached; writes go to memory as well.
    WriteThrough = 0x7000,
}

/// The attributes that a caller may ask for.
const ASKED: u32 = PtAttr::Read as u32 | PtAttr::Write as u32 | PtAttr::Exec as u32 | PtAttr::User as u32;
const MEMORY: u32 = Attr::MEMORY.0;
const _: () = {
    assert!(PtAttr::WriteCombining as u32 == Attr(0).with_memory(MemoryType::WriteCombining).0);
    assert!(PtAttr::Uncached as u32 == Attr(0).with_memory(MemoryType::Uncached).0);
    assert!(PtAttr::Device as u32 == Attr(0).with_memory(MemoryType::Device).0);
    assert!(PtAttr::WriteThrough as u32 == Attr(0).with_memory(MemoryType::WriteThrough).0);
};

/// Reads attributes that are asked for.
pub(crate) fn asked(attr: u32) -> Result<Attr, PtError> {
    if attr & !(ASKED | MEMORY) != 0 {
        return Err(PtError::Argument);
    }
    let attr = Attr(attr);
    Ok(match attr.has(Attr::WRITE) {
        _ if cfg!(any(target_arch = "x86", target_arch = "x86_64")) => attr,
        true => attr | Attr::ACCESSED | Attr::DIRTY,
        false => attr | Attr::ACCESSED,
    })
}
