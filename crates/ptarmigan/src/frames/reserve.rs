//! Frames that are kept free for operations which must not fail.
//!
//! Unmapping a part of a large page needs a table for the rest. Each large page that is mapped
//! raises a reserve by the tables that it may need, and whoever takes it apart draws on that.
//!
//! A reserve is a number in each zone: so many of its free frames are handed out to nobody else. It
//! costs no frame, no clearing and no list, and a gigabyte in pages of 2 MiB is reserved for at
//! once. Who has reserved how many is the holders' own count: the numbers of all zones together are
//! those of all holders together, and a frame that is drawn lowers the number of its zone.
//!
//! Rejected: a table held by each large page, as Linux deposits them. Mapping would take, and
//! clear, tables that are hardly ever used.
use super::zone::Zone;
use super::{Dirty, End, Frame, Frames, NoFrame, ZoneClass};
use crate::cpu::NodeId;
use core::sync::atomic::Ordering::Relaxed;

impl Frames {
    /// Keeps `n` low frames free, of `node` if it has them, for later calls of
    /// [`draw`](Self::draw).
    ///
    /// # Errors
    ///
    /// [`NoFrame`] if so many are not free above the minimum watermarks; the reserve is unchanged
    /// then.
    pub(crate) fn reserve(&self, node: NodeId, n: u32) -> Result<(), NoFrame> {
        let mut left = n;
        for zone in self.low_zones(node) {
            if left == 0 {
                break;
            }
            // Takers compare both numbers under this lock.
            let _buddy = zone.buddy.lock();
            let reserved = zone.reserved.load(Relaxed);
            let room = zone.unreserved().saturating_sub(zone.marks.min).min(left);
            zone.reserved.store(reserved + room, Relaxed);
            left -= room;
        }
        if left > 0 {
            self.unreserve(node, n - left);
            return Err(NoFrame::new(0, node, self.node_free(node)));
        }
        Ok(())
    }

    /// Gives up `n` frames of a reserve.
    pub(crate) fn unreserve(&self, node: NodeId, n: u32) {
        let mut left = n;
        while left > 0 {
            for zone in self.low_zones(node) {
                let _buddy = zone.buddy.lock();
                let reserved = zone.reserved.load(Relaxed);
                let part = reserved.min(left);
                zone.reserved.store(reserved - part, Relaxed);
                left -= part;
            }
            if self.reserved() == 0 {
                debug_assert_eq!(left, 0, "more frames were given up than were reserved");
                return;
            }
        }
    }

    /// Takes a frame that the caller has reserved, which is one less to it then.
    ///
    /// # Errors
    ///
    /// [`NoFrame`] if nobody has reserved a frame.
    pub(crate) fn draw(&self, node: NodeId) -> Result<Frame<Dirty>, NoFrame> {
        // Others may draw and reserve meanwhile: a frame that is reserved may be in a zone that has
        // been looked at before.
        while self.reserved() > 0 {
            for zone in self.low_zones(node) {
                if zone.reserved.load(Relaxed) == 0 {
                    continue;
                }
                let mut buddy = zone.buddy.lock();
                let reserved = zone.reserved.load(Relaxed);
                if reserved == 0 {
                    continue;
                }
                let Some(block) = buddy.take(&self.table, 0, true, End::Low) else { continue };
                zone.reserved.store(reserved - 1, Relaxed);
                self.note(zone, &buddy);
                // SAFETY: 1. the block came off the lists of the zone just now, so it is the
                // caller's alone. 2. `Dirty` makes no promise.
                return Ok(unsafe { Frame::from_raw(self.machine, block.pfn, 0) });
            }
        }
        Err(NoFrame::new(0, node, self.node_free(node)))
    }

    /// Returns the number of free frames that are kept for parts of large pages: no other request
    /// is served from them.
    pub fn reserved(&self) -> u32 {
        self.zones.iter().map(|zone| zone.reserved.load(Relaxed)).sum()
    }

    /// Returns the zones of low memory, zones of `node` first.
    fn low_zones(&self, node: NodeId) -> impl Iterator<Item = &Zone> {
        let its = move |zone: &&Zone| zone.run.node == node;
        let low = || self.zones.iter().filter(|zone| zone.run.class == ZoneClass::Low);
        low().filter(its).chain(low().filter(move |zone| !its(zone)))
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::bootmem::BootMemory;
    use crate::cpu::MachineId;
    use crate::frames::{AllocFlags, MemoryRun, MemorySize, Request, Taken};
    use core::mem::MaybeUninit;
    use core::ptr::NonNull;
    use std::sync::Arc;

    /// Low frames of two nodes.
    struct World {
        frames: Frames,
        _boot: Vec<MaybeUninit<u64>>,
    }

    // SAFETY: an execution of a model runs on one thread of the host.
    unsafe impl Send for World {}
    // SAFETY: as above.
    unsafe impl Sync for World {}

    const NODES: u32 = 2;

    impl World {
        /// A machine of two nodes of `each` frames.
        fn new(each: u32) -> Arc<Self> {
            let run = |node: u32| MemoryRun {
                start: crate::addr::Pfn(1 + node * each),
                frames: each,
                node: NodeId(node as u8),
                class: ZoneClass::Low,
            };
            let runs = [run(0), run(1)];
            let bytes = Frames::bytes(&MemorySize::of(&runs));
            let mut block: Vec<MaybeUninit<u64>> = Vec::with_capacity(bytes / 8 + 1);
            // SAFETY: 1. the block is kept beside the frames made of it.
            let mut boot =
                unsafe { BootMemory::new(NonNull::new(block.as_mut_ptr().cast()).unwrap(), bytes) };
            // SAFETY: 1. nobody uses the memory. 2. the identity is new.
            let frames = unsafe { Frames::new(&mut boot, MachineId::new(), &runs) }.unwrap();
            Arc::new(World { frames, _boot: block })
        }

        /// A space reserves `n` tables on `node`, draws one, which is returned, and gives the
        /// others up. It gets what it has reserved.
        fn splits(&self, node: u8, n: u32) -> Vec<Frame<Dirty>> {
            let (frames, node) = (&self.frames, NodeId(node));
            if frames.reserve(node, n).is_err() {
                return Vec::new();
            }
            let table = frames.draw(node).expect("a frame was reserved");
            frames.unreserve(node, n - 1);
            vec![table]
        }

        /// Another user takes frames without a reserve, as many as it gets.
        fn takes(&self, node: u8, most: usize) -> Vec<Frame<Dirty>> {
            let request = Request {
                node: NodeId(node),
                order: 0,
                zero: false,
                class: ZoneClass::Low,
                end: End::Low,
                flags: AllocFlags::URGENT,
            };
            (0..most).map_while(|_| self.frames.take(request).ok()).map(Taken::dirty).collect()
        }
    }

    type Cpu = fn(&World) -> Vec<Frame<Dirty>>;

    /// CPUs work on two nodes of `each` frames, and keep their frames until all are done: no CPU
    /// waits for another one's, none stays reserved, and none is lost.
    fn all_are_back<const N: usize>(preemptions: usize, each: u32, cpus: [Cpu; N]) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
        builder.max_branches = 5_000;
        builder.check(move || {
            let world = World::new(each);
            let mut others = Vec::new();
            for cpu in cpus.into_iter().skip(1) {
                let world = world.clone();
                others.push(loom::thread::spawn(move || cpu(&world)));
            }
            let mut taken = cpus[0](&world);
            for other in others {
                taken.extend(other.join().unwrap());
            }
            taken.into_iter().for_each(|frame| world.frames.give(frame));
            assert_eq!(world.frames.reserved(), 0, "frames stay reserved");
            assert_eq!(world.frames.counts().free, NODES * each, "frames are missing");
        });
    }

    #[test]
    fn models_of_a_reserve_of_which_nobody_else_takes_a_frame() {
        // The checker sees no conflict in what is read before the lock: the taker goes first.
        all_are_back(4, 1, [|w| w.takes(0, 2), |w| w.splits(0, 1)]);
        all_are_back(4, 1, [|w| w.takes(1, 2), |w| w.splits(0, 2)]);
        all_are_back(3, 2, [|w| w.takes(0, 4), |w| w.splits(0, 3)]);
    }

    #[test]
    fn models_of_a_reserve_that_two_spaces_draw_on() {
        all_are_back(4, 1, [|w| w.splits(0, 1), |w| w.splits(0, 1)]);
        all_are_back(3, 2, [|w| w.splits(0, 1), |w| w.splits(0, 1)]);
        all_are_back(3, 2, [|w| w.splits(0, 2), |w| w.splits(1, 2)]);
    }

    #[test]
    fn models_of_a_reserve_of_two_spaces_and_another_user() {
        all_are_back(1, 2, [|w| w.takes(0, 3), |w| w.splits(0, 2), |w| w.splits(1, 1)]);
    }
}
