//! Provides the hooks of barriers, and settles debts by flushes.
use crate::arch::StoreOrdering;
use crate::cpu::{Flush, Target};
use crate::owed::Cover;
use crate::state::{Issued, Sanitizer};

/// A barrier that a CPU carries out.
/// ```
/// use ptsan::{Arch, Barrier, Config, Kind, Session};
///
/// let config = Config { barriers: true, ..Config::new(Arch::aarch64_4k(39)) };
/// let mut s = Session::with(config, vec![0u8; 1 << 16]);
/// s.alloc(0x1000);
/// s.put(0x1000, 0x441);                                   // a block of 1 GiB
/// s.load(0x1000);
/// s.put(0x1000, 0);
/// s.flush(0);                                             // no DSB before and after it
/// s.flushes_done();
/// assert_eq!(s.sanitizer.count(Kind::FlushMissing), 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Barrier {
    /// AArch64 `DSB` (`ISHST` before an invalidation, `ISH` after it): earlier stores can be seen
    /// by walkers, earlier invalidations have taken effect.
    Data,
    /// AArch64 `DSB ISHST`: earlier stores can be seen by walkers. Invalidations may still be under
    /// way.
    Stores,
    /// AArch64 `ISB`: a root that was loaded takes effect.
    Instruction,
    /// RISC-V `FENCE RW, RW`: earlier stores can be seen by walkers of other CPUs.
    Fence,
}

impl Sanitizer {
    /// Tells which CPU carries out the stores that are told from now on.
    ///
    /// Only needed with [`Config::barriers`](crate::Config::barriers),
    /// [`Config::accessed_dirty`](crate::Config::accessed_dirty) and
    /// [`Config::locks`](crate::Config::locks), where it matters which CPU stored.
    pub fn running_on(&mut self, cpu: usize) {
        self.hook(|s| {
            if s.has_cpu(cpu) {
                s.running = Some(cpu);
            }
        });
    }

    /// Tells that a CPU carries out a barrier. Only checked with
    /// [`Config::barriers`](crate::Config::barriers).
    ///
    /// On AArch64 a store to an entry is ordered before an invalidation only by a [`Barrier::Data`]
    /// between them, and the invalidation has taken effect only after another one. On RISC-V a
    /// store is ordered before the `SFENCE.VMA` of another CPU only by a [`Barrier::Fence`]. A
    /// flush without its barriers pays no debt: translations that it should have flushed are
    /// reported when they are due ([`Kind::FlushMissing`](crate::Kind::FlushMissing)).
    pub fn barrier(&mut self, cpu: usize, barrier: Barrier) {
        self.hook(|s| {
            if !s.has_cpu(cpu) {
                return;
            }
            match barrier {
                Barrier::Instruction => s.cpus[cpu].unsynchronized = false,
                Barrier::Stores => s.last_barrier = s.event,
                Barrier::Data | Barrier::Fence => {
                    s.last_barrier = s.event;
                    s.complete_flushes();
                }
            }
        });
    }

    fn complete_flushes(&mut self) {
        let two_stages = self.config.two_stages;
        let (now, last) = (self.event, self.last_issued);
        let spares_globals = self.config.spares_globals();
        let takes_two = self.config.errata.dsb_misses_stores;
        // First: a flush of stage 1 helps after one of stage 2 that an earlier barrier has
        // completed.
        for (cpu, space) in std::mem::take(&mut self.issued_stage1) {
            self.debts.combined_flushed(cpu, space);
        }
        for mut issued in std::mem::take(&mut self.issued) {
            if takes_two && issued.waited.is_none_or(|first| first > last) {
                issued.waited.get_or_insert(now);
                self.issued.push(issued);
                continue;
            }
            let Issued { cpu, flush, loaded, before, .. } = issued;
            let (arch, device) = (&self.config.arch, self.is_device(cpu));
            self.debts.pay(cpu, Cover { arch, flush, loaded, spares_globals, before, two_stages, device });
        }
    }

    /// Pays the debts that the flush covers: at once, or when a barrier has completed it. `queued`
    /// is the event at which it was given to a device, which needs no barrier of a CPU.
    pub(super) fn flushed(&mut self, cpu: usize, flush: Flush, queued: Option<u64>) {
        let device = self.is_device(cpu);
        let arch = &self.config.arch;
        let c = &mut self.cpus[cpu];
        let loaded = c.loaded.map(|l| l.space);
        let spares_globals = self.config.spares_globals();
        // Entries cached after the invalidation was queued may be there still.
        let at = queued.unwrap_or(self.event);
        let other_root = c.other_root.filter(|other| other.until > at);
        // A device that keeps its links can walk on from them.
        match flush.target {
            _ if device && flush.spares_tables(arch.structures, true) => {}
            Target::All => {
                c.visits.flushed_all(at);
                c.other_root = other_root;
            }
            Target::Space(space) => {
                c.visits.flushed(space, at);
                if loaded == Some(space) {
                    c.other_root = other_root;
                }
            }
            _ => {}
        }
        // The space of which a flush by address reaches global translations.
        let loaded = loaded.filter(|_| !spares_globals);
        let two_stages = self.config.two_stages && cpu < self.config.cpus;
        // An invalidation of a device needs no barrier of a CPU.
        let ordered = self.config.barriers && cpu < self.config.cpus;
        let ordering = if ordered { arch.ordering } else { StoreOrdering::Implicit };
        let before = match ordering {
            StoreOrdering::Implicit => queued.unwrap_or(u64::MAX),
            StoreOrdering::Completed | StoreOrdering::Fenced => self.last_barrier,
        };
        if ordering == StoreOrdering::Completed {
            self.last_issued = self.event;
            if !self.debts.is_empty() {
                self.issued.push(Issued { cpu, flush, loaded, before, event: self.event, waited: None });
            }
        } else {
            self.debts.pay(cpu, Cover { arch, flush, loaded, spares_globals, before, two_stages, device });
        }
    }
}
