//! The hooks of devices that walk tables: behind an IOMMU, or in the address space of a process.
//!
//! A device is another reader of the tables beside the CPUs, with an IOTLB and a cache of tables of
//! its own. All hooks take it where they take a CPU, by the number that [`Sanitizer::device`]
//! returns.
use crate::cpu::{Flush, Target};
use crate::hash::FastMap;
use crate::memory::Memory;
use crate::report::Place;
use crate::state::{Queued, Sanitizer};

/// The most invalidations in the queues.
const MOST_QUEUED: usize = 1 << 16;

impl Sanitizer {
    /// Returns the number by which hooks name a device, counted from 0
    /// ([`Config::devices`](crate::Config::devices)).
    ///
    /// [`switch`](Self::switch) attaches it to the tables at a root, under the number of a domain
    /// or a PASID, and [`leave`](Self::leave) detaches it. Its caches are tagged with that
    /// number and survive both. [`translate`](Self::translate) is an access of the device. It
    /// takes part in no [`flush_everywhere`](Self::flush_everywhere). One that serves several
    /// spaces at once is several devices.
    ///
    /// Its numbers and those of CPUs are one sort where they are flushed or destroyed: give domains
    /// numbers that no CPU uses, 2^32 and more for example.
    ///
    /// A device may set accessed and dirty bits in whatever it has cached as a table: one that is
    /// freed before the device forgets it, while it is attached, is corrupted later
    /// ([`Kind::FreeBeforeFlush`](crate::Kind::FreeBeforeFlush)), and a plain store loses a dirty
    /// bit ([`Kind::BitLost`](crate::Kind::BitLost)).
    /// ```
    /// use ptsan::{Access, Arch, Config, Content, Flush, Kind, Sanitizer};
    ///
    /// let mut ram = vec![0u8; 1 << 16];
    /// let mut san = Sanitizer::new(Config { devices: 1, ..Config::new(Arch::x86_2level()) });
    /// for table in [0x1000, 0x2000] {
    ///     san.table_allocated(&ram, table, 4096, None, Content::Zero);
    /// }
    /// ram[0x1000..0x1004].copy_from_slice(&0x2007u32.to_le_bytes());
    /// ram[0x2000..0x2004].copy_from_slice(&0x9007u32.to_le_bytes());
    /// let disk = san.device(0);
    /// san.switch(&ram, disk, 0x1000, 1);                      // domain 1
    /// assert_eq!(san.translate(&ram, disk, 0x10, Access::READ).unwrap().phys, 0x9010);
    /// ram[0x1000..0x1004].fill(0);
    /// san.flush_queued(disk, Flush::space(1));                // nobody waits for it
    /// san.table_freed(&ram, 0x2000, 4096);
    /// assert_eq!(san.count(Kind::FreeBeforeFlush), 1);
    /// assert!(san.to_string().contains("device 0"));
    /// ```
    #[must_use]
    pub fn device(&self, device: usize) -> usize {
        self.config.cpus.saturating_add(device)
    }

    /// Tells that an invalidation was put into the queue of a device: at any moment from now on the
    /// device may carry it out. It helps when it has been waited for
    /// ([`queue_completed`](Self::queue_completed)), and only against earlier stores.
    ///
    /// For an invalidation that is over when the call returns, use [`flush`](Self::flush).
    pub fn flush_queued(&mut self, device: usize, flush: Flush) {
        self.hook(|s| {
            if !s.expects_device(device, "flush_queued") || !s.is_possible(device, flush) {
                return;
            }
            let event = s.event;
            let full = s.queue.len() >= MOST_QUEUED;
            if full {
                // So many that they count as one of everything.
                s.queue.retain(|q| q.device != device);
            }
            s.queue.push(Queued { device, flush: if full { Flush::all() } else { flush }, event });
        });
    }

    /// Tells that the code under test has waited until a device carried out everything in its
    /// queue: the status of a wait descriptor was written (VT-d), `COMPLETION_WAIT` has stored
    /// (AMD), `CMD_SYNC` is consumed (SMMU).
    pub fn queue_completed(&mut self, memory: &(impl Memory + ?Sized), device: usize) {
        self.hook(|s| {
            if !s.expects_device(device, "queue_completed") {
                return;
            }
            s.adversary_acts(memory);
            let (done, rest) = std::mem::take(&mut s.queue).into_iter().partition(|q| q.device == device);
            s.queue = rest;
            let mut done: Vec<Queued> = done;
            // The last one of a space, or of everything, does what those before it do.
            let mut seen: FastMap<u64, ()> = FastMap::default();
            let mut all = false;
            done.reverse();
            let scope = s.config.arch.structures;
            done.retain(|q| match q.flush.target {
                _ if all => false,
                // It does less.
                _ if q.flush.spares_tables(scope, true)
                    || s.config.without_effect(q.flush, true).is_some() =>
                {
                    true
                }
                Target::All => {
                    all = true;
                    true
                }
                Target::Space(space) => seen.insert(space, ()).is_none(),
                _ => true,
            });
            done.reverse();
            for Queued { flush, event, .. } in done {
                s.invalidate(memory, device, flush, Some(event));
            }
            if let Some(c) = s.cpus.get_mut(device) {
                c.settled = true;
            }
        });
    }

    /// Reports a number that stands for no device.
    pub(super) fn expects_device(&mut self, device: usize, hook: &str) -> bool {
        if !self.has_cpu(device) {
            return false;
        }
        let is = self.is_device(device);
        if !is {
            let place = Place { cpu: Some(device), ..Place::default() };
            let needs = format!("{hook} needs the number of a device: call Sanitizer::device");
            self.bad_argument(place, &needs);
        }
        is
    }
}
