//! Describes the MMUs of machines to the library.
use ptarmigan::tlb::Structures;

/// Properties of the MMUs that a double stands for, as the library sees them: the constants of
/// [`Mmu`](ptarmigan::tlb::Mmu) by the same names.
pub trait MmuTraits: 'static {
    /// See [`Mmu::BROADCASTS`](ptarmigan::tlb::Mmu::BROADCASTS).
    const BROADCASTS: bool;
    /// See [`Mmu::STRUCTURES`](ptarmigan::tlb::Mmu::STRUCTURES).
    const STRUCTURES: Structures;
    /// See [`Mmu::NEEDS_ENTRY_VALID`](ptarmigan::tlb::Mmu::NEEDS_ENTRY_VALID).
    const NEEDS_ENTRY_VALID: bool;
    /// An invalidation of pages by address names their level, and need not reach pages of another
    /// one: AArch64 with FEAT_TTL. Of interest for `ptarmigan_ptsan::SoftMmu`, which knows levels.
    const NAMES_LEVELS: bool = false;
}

/// MMUs like those of x86: CPUs interrupt each other, and any invalidation drops all links.
#[derive(Clone, Copy, Debug)]
pub enum Interrupting {}

impl MmuTraits for Interrupting {
    const BROADCASTS: bool = false;
    const STRUCTURES: Structures = Structures::AnyInvalidation;
    const NEEDS_ENTRY_VALID: bool = false;
}

/// MMUs like those of AArch64 with FEAT_TTL: an invalidation reaches all CPUs, between barriers,
/// and drops the links on the way to its address, or pages of the level that it names. Entries that
/// deny are cached.
#[derive(Clone, Copy, Debug)]
pub enum Broadcasting {}

impl MmuTraits for Broadcasting {
    const BROADCASTS: bool = true;
    const STRUCTURES: Structures = Structures::Tagged;
    const NEEDS_ENTRY_VALID: bool = true;
    const NAMES_LEVELS: bool = true;
}

/// MMUs whose TLBs software fills, like those of LoongArch, SPARC and Itanium: CPUs interrupt each
/// other, and there are no links to drop. A TLB keeps entries that deny, and on LoongArch entries
/// that are not valid; no fault drops them.
#[derive(Clone, Copy, Debug)]
pub enum Refilled {}

impl MmuTraits for Refilled {
    const BROADCASTS: bool = false;
    const STRUCTURES: Structures = Structures::AnyInvalidation;
    const NEEDS_ENTRY_VALID: bool = true;
}

/// MMUs like those of RISC-V: CPUs interrupt each other, an invalidation by address drops no links,
/// and entries that are not valid may be cached.
#[derive(Clone, Copy, Debug)]
pub enum Fencing {}

impl MmuTraits for Fencing {
    const BROADCASTS: bool = false;
    const STRUCTURES: Structures = Structures::WholeSpace;
    const NEEDS_ENTRY_VALID: bool = true;
}
