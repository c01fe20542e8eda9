//! The machines that traces are replayed on: a format, how its MMUs find pages, and how its tables
//! are reached.
mod hashed;
mod tables;
mod walked;
mod walking;

pub(super) use hashed::Hashed;
pub(super) use tables::{DirectTables, PlacedTables, ReachedTables};
#[cfg(feature = "formats")]
pub(super) use walked::Direct;
pub(super) use walked::{RecordedX86, Walked};
pub use walking::{ReplayHost, WalkingMmu};

use super::input::relayout::Room;
use super::workers::machine::ReplayMmu;
use crate::linux::PAGE;
use ptarmigan::format::Format;
use ptarmigan::page::Level;
use ptarmigan::tlb::TlbConfig;
use ptarmigan_hosted::Host;
use ptarmigan_ptsan::{HashUse, MmuTraits, SoftMmu, Watchable};
use ptarmigan_term::Failure;
use ptsan::Config;

/// Returns the user's half of a format, whose regions are counted in recorded pages.
pub(super) fn room<F: Format>() -> Room {
    let shift = F::shift(Level(1));
    Room { format: F::NAME, shift: shift - PAGE, regions: F::USER_END >> shift }
}

/// A machine that traces are replayed on.
pub trait Platform: Sized + Sync {
    /// The format of its tables.
    type Format: Watchable;
    /// How the MMUs of its CPUs behave.
    type Traits: MmuTraits;
    /// The mappings through which its tables are reached.
    type Tables: ReachedTables<Self::Format>;
    /// The structures in which its CPUs find translations.
    type Mmus<'s>: Sync;
    /// The MMU of a CPU.
    type Mmu<'m>: ReplayMmu;

    /// Makes the mappings through which the tables of a host are reached.
    fn tables(&self, host: &Host<Self::Format>) -> Result<Self::Tables, Failure>;
    /// Makes the MMUs of `cpus` CPUs, which a sanitizer watches if there is one.
    fn mmus<'s>(
        &self,
        cpus: usize,
        soft: Option<&'s SoftMmu<'s, Self::Format, Self::Traits>>,
    ) -> Result<Self::Mmus<'s>, Failure>;
    /// Returns the MMU as the machine takes it.
    fn mmu<'m>(mmus: &'m Self::Mmus<'_>) -> Self::Mmu<'m>;
    /// Makes the sanitizer of a host.
    fn sanitizer<'h>(
        &self,
        host: &'h Host<Self::Format>,
        config: Config,
    ) -> Result<SoftMmu<'h, Self::Format, Self::Traits>, Failure>;
    /// Tells the sanitizer that all programs have ended.
    fn ended(&self, _soft: &SoftMmu<'_, Self::Format, Self::Traits>) {}
    /// Returns the use of the hash table, if there is one.
    fn hash_use(_mmus: &Self::Mmus<'_>) -> Option<HashUse> {
        None
    }
    /// Returns the shape of the TLBs, where the arguments leave it open.
    fn tlb(&self, config: TlbConfig) -> TlbConfig {
        config
    }
    /// Returns the room that a recording must be moved to, if addresses are not as recorded.
    fn room(&self) -> Option<Room>;
}
