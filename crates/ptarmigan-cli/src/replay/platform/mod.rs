//! The machines that traces are replayed on: a format, how its MMUs find pages, and how its tables
//! are reached.
mod hashed;
mod recorded;
mod small;

pub(super) use hashed::Hashed;
pub(super) use recorded::Recorded;
pub(super) use small::Small;

use super::high::UserPteReport;
use super::input::relayout::Room;
use super::workers::watch::Watch;
use crate::error::Failure;
use ptarmigan::format::Format;
use ptarmigan::page::Level;
use ptarmigan::quicklist::{PolicyCounts, Source};
use ptarmigan::table::KernelMap;
use ptarmigan::tlb::{Mmu, TlbConfig};
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::{Host, TableReach};
use ptarmigan_rig::{HashUse, SoftMmu, Watchable};
use ptsan::Config;

/// Returns the user's half of a format of two or three levels.
pub(super) fn room<F: Format>() -> Room {
    let shift = F::shift(Level(1));
    Room { format: F::NAME, shift: shift - F::PAGE_SHIFT, regions: F::USER_END >> shift }
}

/// A machine that traces are replayed on.
pub trait Platform: Sized + Sync {
    /// The format of its tables.
    type Format: Watchable;
    /// The structures in which its CPUs find translations.
    type Mmus: Sync;
    /// The MMU of a CPU.
    type Mmu<'m>: Mmu
    where
        Self: 'm;
    /// As [`Mmus`](Self::Mmus), under the sanitizer.
    type Checked<'s>: Sync
    where
        Self: 's;
    /// As [`Mmu`](Self::Mmu), under the sanitizer.
    type CheckedMmu<'m>: Mmu
    where
        Self: 'm;
    /// The mappings through which tables are reached, if the host's own map is not enough.
    type Tables: Sync;
    /// How the machine reaches its tables.
    type Reach<'h>: TableReach;
    /// An observer, with the work of CPUs after a fault.
    type Watched<'m, W: Watch + Send>: Watch + Send
    where
        Self: 'm;

    /// Makes the MMUs of `cpus` CPUs.
    fn mmus(&self, cpus: usize) -> Result<Self::Mmus, Failure>;
    /// Returns the MMU as the machine takes it.
    fn mmu(mmus: &Self::Mmus) -> Self::Mmu<'_>;
    /// Makes the mappings through which the tables of a host are reached.
    fn tables(&self, host: &Host<Self::Format>) -> Result<Self::Tables, Failure>;
    /// Returns how a machine on `host` reaches its tables.
    fn reach<'h>(tables: &'h Self::Tables, host: &'h Host<Self::Format>) -> Self::Reach<'h>;
    /// Makes a source of table pages.
    ///
    /// # Safety
    ///
    /// 1. `tables` was made for `host`.
    unsafe fn source<'h>(
        tables: &'h Self::Tables,
        host: &'h Host<Self::Format>,
    ) -> Source<'h, Self::Reach<'h>, &'h KernelMap<Self::Format, DirectMap>>;
    /// Returns the placement of tables, if they may be in high memory.
    fn placed(&self, _tables: &Self::Tables, _counts: &PolicyCounts) -> Option<UserPteReport> {
        None
    }
    /// Adds the work of CPUs after a fault to an observer.
    fn watch<W: Watch + Send>(mmus: &Self::Mmus, watch: W) -> Self::Watched<'_, W>;
    /// Returns the observer alone.
    fn unwatch<W: Watch + Send>(watched: Self::Watched<'_, W>) -> W;
    /// Makes the sanitizer of a host.
    fn sanitizer<'h>(
        &self,
        host: &'h Host<Self::Format>,
        config: Config,
    ) -> Result<SoftMmu<'h, Self::Format>, Failure>;
    /// Tells the sanitizer that all programs have ended.
    fn ended(&self, _soft: &SoftMmu<'_, Self::Format>) {}
    /// Makes MMUs that a sanitizer watches.
    fn checked<'s>(
        &self,
        soft: &'s SoftMmu<'s, Self::Format>,
        cpus: usize,
    ) -> Result<Self::Checked<'s>, Failure>;
    /// As [`mmu`](Self::mmu).
    fn checked_mmu<'m, 's: 'm>(checked: &'m Self::Checked<'s>) -> Self::CheckedMmu<'m>;
    /// As [`watch`](Self::watch).
    fn checked_watch<'m, 's: 'm, W: Watch + Send>(
        checked: &'m Self::Checked<'s>,
        watch: W,
    ) -> Self::Watched<'m, W>;
    /// Returns the use of the hash table, if there is one.
    fn hash_use(_mmus: &Self::Mmus) -> Option<HashUse> {
        None
    }
    /// As [`hash_use`](Self::hash_use). Checks all that the table has.
    fn checked_hash_use(_checked: &Self::Checked<'_>) -> Option<HashUse> {
        None
    }
    /// Returns the shape of the TLBs, where the arguments leave it open.
    fn tlb(&self, config: TlbConfig) -> TlbConfig {
        config
    }
    /// Returns the room that a recording must be moved to, if addresses are not as recorded.
    fn room(&self) -> Option<Room> {
        None
    }
}
