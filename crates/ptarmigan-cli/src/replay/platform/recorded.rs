//! x86-64, with the recorded addresses.
use super::Platform;
use crate::error::Failure;
use crate::replay::workers::watch::Watch;
use ptarmigan::format::X86_64;
use ptarmigan::quicklist::Source;
use ptarmigan::table::KernelMap;
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::{Host, NoTlb};
use ptarmigan_rig::SoftMmu;
use ptsan::Config;

/// x86-64, with the recorded addresses.
pub struct Recorded;

impl Platform for Recorded {
    type Format = X86_64;
    type Mmus = ();
    type Mmu<'m> = NoTlb;
    type Checked<'s> = &'s SoftMmu<'s, X86_64>;
    type CheckedMmu<'m> = &'m SoftMmu<'m, X86_64>;
    type Tables = ();
    type Reach<'h> = DirectMap;
    type Watched<'m, W: Watch + Send> = W;

    fn mmus(&self, _cpus: usize) -> Result<(), Failure> {
        Ok(())
    }

    fn mmu((): &()) -> NoTlb {
        NoTlb
    }

    fn tables(&self, _: &Host<X86_64>) -> Result<(), Failure> {
        Ok(())
    }

    fn reach<'h>((): &'h (), host: &'h Host<X86_64>) -> DirectMap {
        host.window()
    }

    unsafe fn source<'h>(
        (): &'h (),
        host: &'h Host<X86_64>,
    ) -> Source<'h, DirectMap, &'h KernelMap<X86_64, DirectMap>> {
        host.source()
    }

    fn watch<W: Watch + Send>((): &(), watch: W) -> W {
        watch
    }

    fn unwatch<W: Watch + Send>(watched: W) -> W {
        watched
    }

    fn sanitizer<'h>(&self, host: &'h Host<X86_64>, config: Config) -> Result<SoftMmu<'h, X86_64>, Failure> {
        Ok(SoftMmu::new(host, config))
    }

    fn checked<'s>(&self, soft: &'s SoftMmu<'s, X86_64>, _cpus: usize) -> Result<Self::Checked<'s>, Failure> {
        Ok(soft)
    }

    fn checked_mmu<'m, 's: 'm>(checked: &'m Self::Checked<'s>) -> Self::CheckedMmu<'m> {
        checked
    }

    fn checked_watch<'m, 's: 'm, W: Watch + Send>(_: &'m Self::Checked<'s>, watch: W) -> W {
        watch
    }
}
