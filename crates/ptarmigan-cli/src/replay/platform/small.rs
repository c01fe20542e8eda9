//! 32-bit x86, with and without PAE: areas packed into 3 GiB, and tables that may be in high memory.
use super::{Platform, room};
use crate::error::{Context, Failure};
use crate::replay::args::ReplayArgs;
use crate::replay::high::UserPteReport;
use crate::replay::input::relayout::Room;
use crate::replay::workers::watch::Watch;
use ptarmigan::addr::FRAME_SIZE;
use ptarmigan::params::UserPte;
use ptarmigan::quicklist::{PolicyCounts, Source};
use ptarmigan::table::KernelMap;
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::{Host, HostTables, NoTlb};
use ptarmigan_rig::{SoftMmu, Watchable};
use ptsan::{Config, Content};
use std::marker::PhantomData;

/// A machine of format `F`.
pub struct Small<F> {
    userpte: UserPte,
    _format: PhantomData<F>,
}

impl<F: Watchable> Small<F> {
    /// Describes the machine that the arguments ask for. `reach` is how much memory its entries
    /// name, in bytes.
    ///
    /// # Errors
    /// If there is more memory than that.
    pub fn new(args: &ReplayArgs, reach: u64) -> Result<Self, Failure> {
        if args.memory > reach {
            return Err(Failure::new(format!(
                "--memory {} MiB: {} has at most {} MiB",
                args.memory >> 20,
                F::NAME,
                reach >> 20
            )));
        }
        let userpte = args.params.and_then(|params| params.userpte).unwrap_or_default();
        Ok(Small { userpte, _format: PhantomData })
    }
}

impl<F: Watchable> Platform for Small<F> {
    type Format = F;
    type Mmus = ();
    type Mmu<'m> = NoTlb;
    type Checked<'s> = &'s SoftMmu<'s, F>;
    type CheckedMmu<'m> = &'m SoftMmu<'m, F>;
    type Tables = HostTables;
    type Reach<'h> = &'h HostTables;
    type Watched<'m, W: Watch + Send> = W;

    fn mmus(&self, _cpus: usize) -> Result<(), Failure> {
        Ok(())
    }

    fn mmu((): &()) -> NoTlb {
        NoTlb
    }

    fn tables(&self, host: &Host<F>) -> Result<HostTables, Failure> {
        HostTables::new(host, self.userpte).context("windows on tables")
    }

    fn reach<'h>(tables: &'h HostTables, _: &'h Host<F>) -> &'h HostTables {
        tables
    }

    unsafe fn source<'h>(
        tables: &'h HostTables,
        host: &'h Host<F>,
    ) -> Source<'h, &'h HostTables, &'h KernelMap<F, DirectMap>> {
        // SAFETY: 1. by the caller.
        unsafe { tables.source(host) }
    }

    fn placed(&self, tables: &HostTables, counts: &PolicyCounts) -> Option<UserPteReport> {
        Some(UserPteReport::new(self.userpte, tables, counts))
    }

    fn watch<W: Watch + Send>((): &(), watch: W) -> W {
        watch
    }

    fn unwatch<W: Watch + Send>(watched: W) -> W {
        watched
    }

    fn sanitizer<'h>(&self, host: &'h Host<F>, config: Config) -> Result<SoftMmu<'h, F>, Failure> {
        let soft = SoftMmu::new(host, config);
        if F::ROOT_IN_REGISTERS {
            // An MMU reads the whole root when it loads it, so it comes to the kernel's table, which
            // on a host is the zero frame.
            let level = F::LAYOUT.levels - 2;
            soft.with(|sanitizer, memory| {
                let at = host.zero_frame().addr().0;
                sanitizer.table_allocated(memory, at, FRAME_SIZE as u64, Some(level), Content::Unchecked);
            });
        }
        Ok(soft)
    }

    fn ended(&self, soft: &SoftMmu<'_, F>) {
        if F::ROOT_IN_REGISTERS {
            let at = soft.host().zero_frame().addr().0;
            soft.with(|sanitizer, memory| sanitizer.table_freed(memory, at, FRAME_SIZE as u64));
        }
    }

    fn checked<'s>(&self, soft: &'s SoftMmu<'s, F>, _cpus: usize) -> Result<Self::Checked<'s>, Failure> {
        Ok(soft)
    }

    fn checked_mmu<'m, 's: 'm>(checked: &'m Self::Checked<'s>) -> Self::CheckedMmu<'m> {
        checked
    }

    fn checked_watch<'m, 's: 'm, W: Watch + Send>(_: &'m Self::Checked<'s>, watch: W) -> W {
        watch
    }

    fn room(&self) -> Option<Room> {
        Some(room::<F>())
    }
}
