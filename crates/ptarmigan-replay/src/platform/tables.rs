//! Reaches the tables of a machine: through the host's own map, or through windows on high memory.
use crate::high::UserPteReport;
use ptarmigan::format::Format;
use ptarmigan::params::UserPte;
use ptarmigan::quicklist::{PolicyCounts, Source};
use ptarmigan::table::KernelMap;
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::{Host, HostTables, TableReach};
use ptarmigan_term::{Context, Failure};

/// The mappings through which the tables of one host are reached.
pub trait ReachedTables<F: Format>: Sized + Sync {
    /// How a machine reaches its tables.
    type Reach<'h>: TableReach
    where
        Self: 'h;

    /// Makes the mappings of a host. Leaf tables are placed as `userpte` says, if there is a
    /// choice.
    fn new(host: &Host<F>, userpte: UserPte) -> Result<Self, Failure>;
    /// Returns how a machine on `host` reaches its tables.
    fn reach<'h>(&'h self, host: &'h Host<F>) -> Self::Reach<'h>;
    /// Makes a source of table pages.
    ///
    /// # Safety
    ///
    /// 1. The mappings were made for `host`.
    unsafe fn source<'h>(
        &'h self,
        host: &'h Host<F>,
    ) -> Source<'h, Self::Reach<'h>, &'h KernelMap<F, DirectMap>>;
    /// Returns the placement of tables, if they may be in high memory.
    fn placed(&self, counts: &PolicyCounts) -> Option<UserPteReport>;
}

/// Tables in the host's own map.
pub struct DirectTables;

impl<F: Format> ReachedTables<F> for DirectTables {
    type Reach<'h> = DirectMap;

    fn new(_: &Host<F>, _: UserPte) -> Result<Self, Failure> {
        Ok(DirectTables)
    }

    fn reach<'h>(&'h self, host: &'h Host<F>) -> DirectMap {
        host.window()
    }

    unsafe fn source<'h>(&'h self, host: &'h Host<F>) -> Source<'h, DirectMap, &'h KernelMap<F, DirectMap>> {
        host.source()
    }

    fn placed(&self, _: &PolicyCounts) -> Option<UserPteReport> {
        None
    }
}

/// Tables of which those of the lowest level may be in high memory.
pub struct PlacedTables {
    userpte: UserPte,
    windows: HostTables,
}

impl<F: Format> ReachedTables<F> for PlacedTables {
    type Reach<'h> = &'h HostTables;

    fn new(host: &Host<F>, userpte: UserPte) -> Result<Self, Failure> {
        let windows = HostTables::new(host, userpte).context("windows on tables")?;
        Ok(PlacedTables { userpte, windows })
    }

    fn reach<'h>(&'h self, _: &'h Host<F>) -> &'h HostTables {
        &self.windows
    }

    unsafe fn source<'h>(
        &'h self,
        host: &'h Host<F>,
    ) -> Source<'h, &'h HostTables, &'h KernelMap<F, DirectMap>> {
        // SAFETY: 1. by the caller.
        unsafe { self.windows.source(host) }
    }

    fn placed(&self, counts: &PolicyCounts) -> Option<UserPteReport> {
        Some(UserPteReport::new(self.userpte, &self.windows, counts))
    }
}
