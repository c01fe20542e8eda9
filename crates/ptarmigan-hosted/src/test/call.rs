//! Describes the calls that an MMU has got.
use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::CpuId;
use ptarmigan::tlb::{Invalidation, NewEntry, Root, Scope, SpaceId};

/// A call of the library to the MMU of a CPU, with its arguments.
///
/// An MMU must not be given a [`Root`] or a [`NewEntry`] again ([`Mmu`](ptarmigan::tlb::Mmu), 6.).
/// So a log has [`Loaded`] and [`ValidEntry`] with the same fields, which cannot be made into them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// [`Mmu::invalidate`](ptarmigan::tlb::Mmu::invalidate).
    Invalidate(CpuId, Invalidation),
    /// [`Mmu::invalidate_kernel`](ptarmigan::tlb::Mmu::invalidate_kernel).
    InvalidateKernel(CpuId, Scope),
    /// [`Mmu::load`](ptarmigan::tlb::Mmu::load).
    Load(CpuId, Loaded),
    /// [`Mmu::lazy`](ptarmigan::tlb::Mmu::lazy).
    Lazy(CpuId, SpaceId),
    /// [`Mmu::resume`](ptarmigan::tlb::Mmu::resume).
    Resume(CpuId, SpaceId),
    /// [`Mmu::unload`](ptarmigan::tlb::Mmu::unload).
    Unload(CpuId, SpaceId),
    /// [`Mmu::entry_became_valid`](ptarmigan::tlb::Mmu::entry_became_valid).
    EntryBecameValid(CpuId, ValidEntry),
}

/// The method of [`Mmu`](ptarmigan::tlb::Mmu) that a [`Call`] is of, by the same name.
#[expect(missing_docs, reason = "the names are the methods'")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Invalidate,
    InvalidateKernel,
    Load,
    Lazy,
    Resume,
    Unload,
    EntryBecameValid,
}

impl Call {
    /// Returns the CPU that made it.
    pub fn cpu(&self) -> CpuId {
        match *self {
            Call::Invalidate(cpu, _)
            | Call::InvalidateKernel(cpu, _)
            | Call::Load(cpu, _)
            | Call::Lazy(cpu, _)
            | Call::Resume(cpu, _)
            | Call::Unload(cpu, _)
            | Call::EntryBecameValid(cpu, _) => cpu,
        }
    }

    /// Returns the method.
    pub fn method(&self) -> Method {
        match self {
            Call::Invalidate(..) => Method::Invalidate,
            Call::InvalidateKernel(..) => Method::InvalidateKernel,
            Call::Load(..) => Method::Load,
            Call::Lazy(..) => Method::Lazy,
            Call::Resume(..) => Method::Resume,
            Call::Unload(..) => Method::Unload,
            Call::EntryBecameValid(..) => Method::EntryBecameValid,
        }
    }

    /// Returns the addresses that the CPU was to forget, of a space or of the kernel's half; `None`
    /// for a call of another method.
    pub fn scope(&self) -> Option<Scope> {
        match self {
            Call::Invalidate(_, what) => Some(what.scope),
            Call::InvalidateKernel(_, scope) => Some(*scope),
            _ => None,
        }
    }
}

/// A root that a CPU has loaded, as [`Root`] has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The space.
    pub space: SpaceId,
    /// Where its root table is.
    pub at: PhysAddr,
    /// The number of the space; 0 if tags are not used.
    pub asid: u16,
    /// Whether translations under that number might stay.
    pub keep: bool,
    /// Whether translations under all numbers had to go.
    pub forget_all: bool,
}

impl From<&Root> for Loaded {
    fn from(root: &Root) -> Self {
        let Root { space, at, asid, keep, forget_all, .. } = *root;
        Loaded { space, at, asid, keep, forget_all }
    }
}

/// Entries that have become valid or allow more, as [`NewEntry`] has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidEntry {
    /// The space; `None` for the kernel's half.
    pub space: Option<SpaceId>,
    /// The number under which the CPU knows the space, if it does.
    pub asid: Option<u16>,
    /// The first address.
    pub va: u64,
    /// Binary logarithm of the bytes that each entry maps.
    pub shift: u32,
    /// How many there are.
    pub pages: u64,
    /// The first entry as it was before.
    pub was: u64,
    /// The first entry as it is now.
    pub raw: u64,
    /// How many levels of tables may have been linked.
    pub linked: u8,
}

impl From<&NewEntry> for ValidEntry {
    fn from(entry: &NewEntry) -> Self {
        let NewEntry { space, asid, va, shift, pages, was, raw, linked, .. } = *entry;
        ValidEntry { space, asid, va, shift, pages, was, raw, linked }
    }
}
