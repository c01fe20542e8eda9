//! Describes the mapping of an address, and its permissions.
use crate::error::PtError;
use ptarmigan::format::Attr;

/// A page of a tree, or of a C kernel's own: where it is mapped to and its permissions.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PtPage {
    /// Its address.
    pub va: u64,
    /// The physical address of its frame.
    pub phys: u64,
    /// Values of `enum pt_attr`, combined with `|`.
    pub attr: u32,
}

/// Permissions of a page, combined with `|`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PtAttr {
    /// It may be read. A page without permissions is not present for the MMU and keeps its
    /// frame. Pages that may be written and not read are refused; those that may be executed and not
    /// read, where the format has none.
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
    /// Memory of a device: it is not cached.
    #[cfg(target_arch = "aarch64")]
    Device = 4096,
}

/// The attributes that a caller may ask for.
const ASKED: u32 = PtAttr::Read as u32 | PtAttr::Write as u32 | PtAttr::Exec as u32 | PtAttr::User as u32;
#[cfg(target_arch = "aarch64")]
const DEVICE: u32 = PtAttr::Device as u32;
#[cfg(not(target_arch = "aarch64"))]
const DEVICE: u32 = 0;

/// Reads attributes that are asked for.
pub(crate) fn asked(attr: u32) -> Result<Attr, PtError> {
    if attr & !(ASKED | DEVICE) != 0 {
        return Err(PtError::Argument);
    }
    let attr = Attr(attr);
    Ok(match attr.has(Attr::WRITE) {
        _ if cfg!(any(target_arch = "x86", target_arch = "x86_64")) => attr,
        true => attr | Attr::ACCESSED | Attr::DIRTY,
        false => attr | Attr::ACCESSED,
    })
}
