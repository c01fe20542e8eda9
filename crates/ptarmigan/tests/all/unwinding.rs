//! Checks the state after the MMU's code, or a policy's, has unwound.
use crate::{common, remembering};
use ptarmigan::addr::{PhysAddr, VirtAddr, VirtRange};
use ptarmigan::cpu::Pinned;
use ptarmigan::format::{Access, Formats, X86_64};
use ptarmigan::frames::Frames;
use ptarmigan::machine::Machine;
use ptarmigan::page::Level;
use ptarmigan::quicklist::{Layer, Layered, Policy};
use ptarmigan::space::{AreaFlags, Space};
use ptarmigan::tlb::{Invalidation, Mmu, Root, Scope, SpaceId, Structures, TlbConfig};
use ptarmigan_hosted::{Delivery, Host, HostConfig, HostMachine};
use ptarmigan_linux::Rules;
use remembering::ExactTlbs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

type X = X86_64;
const PAGE: u64 = 4096;
const VA: u64 = 0x40_0000;
const LEAF: u64 = 2 << 20;

fn small(cpus: usize) -> HostConfig {
    HostConfig { cpus, bytes: 16 << 20, touch_data: true, prefault: 0, ..HostConfig::default() }
}

fn unwinds<R>(f: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(|| drop(f()))).is_err()
}

/// A moment of a load.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    BeforeTheRegister,
    AfterTheRegister,
}

/// The registers of two CPUs that hold the root, and the loads. The next load may fail.
#[derive(Default)]
struct Registers<const BROADCASTS: bool> {
    fail: Mutex<Option<Moment>>,
    roots: Mutex<[Option<PhysAddr>; 2]>,
    loads: Mutex<Vec<Root>>,
}

impl<const BROADCASTS: bool> Registers<BROADCASTS> {
    fn fail_next(&self, moment: Moment) {
        *self.fail.lock().unwrap() = Some(moment);
    }
    fn fails(&self, moment: Moment) -> bool {
        self.fail.lock().unwrap().take_if(|when| *when == moment).is_some()
    }
    fn root(&self, cpu: usize) -> Option<PhysAddr> {
        self.roots.lock().unwrap()[cpu]
    }
    fn last(&self) -> Root {
        *self.loads.lock().unwrap().last().unwrap()
    }
}

// SAFETY: 1., 2. and 3. no translation is cached. 4. the register is cleared. 5. there is no other
// CPU to reach. 6. roots are kept to be looked at only. 7. no translation is cached, and `unload`
// does not unwind.
unsafe impl<const B: bool> Mmu for &Registers<B> {
    const FORMATS: Formats = Formats::ANY;
    const BROADCASTS: bool = B;
    const STRUCTURES: Structures = Structures::AnyInvalidation;
    const NEEDS_ENTRY_VALID: bool = false;
    fn invalidate(&self, _: &Pinned<'_>, _: &Invalidation) {}
    fn invalidate_kernel(&self, _: &Pinned<'_>, _: &Scope) {}
    fn load(&self, pin: &Pinned<'_>, root: &Root) {
        assert!(!self.fails(Moment::BeforeTheRegister), "the MMU's code fails");
        self.roots.lock().unwrap()[usize::from(pin.cpu().0)] = Some(root.at);
        assert!(!self.fails(Moment::AfterTheRegister), "the MMU's code fails");
        self.loads.lock().unwrap().push(*root);
    }
    fn unload(&self, pin: &Pinned<'_>, _: SpaceId) {
        self.roots.lock().unwrap()[usize::from(pin.cpu().0)] = None;
    }
}

#[test]
fn a_load_that_failed_has_not_forgotten_what_its_number_was_before() {
    let host = Host::<X>::new(small(1)).unwrap();
    let mmu = Registers::<false>::default();
    let config = TlbConfig { asids: 1, ..TlbConfig::new(1) };
    let policy = host.quicklists().unwrap();
    let m = HostMachine::with_tlb(&host, policy, &mmu, config, Delivery::AtOnce).unwrap();
    let slot = host.slot(0).unwrap();
    let pin = slot.pin();
    let on = m.on(&pin).unwrap();
    let (a, b) = (Space::<X>::new(on).unwrap(), Space::<X>::new(on).unwrap());
    a.activate(on).unwrap();
    a.deactivate(on).unwrap();
    mmu.fail_next(Moment::BeforeTheRegister);
    assert!(unwinds(|| b.activate(on)));
    b.activate(on).unwrap();
    let last = mmu.last();
    assert_eq!((last.space, last.asid), (b.tlb().id(), 1));
    assert!(!last.keep, "the TLB holds translations of the other space under this number");
}

#[test]
fn a_load_that_failed_has_not_forgotten_all_numbers() {
    let host = Host::<X>::new(small(1)).unwrap();
    let mmu = Registers::<true>::default();
    let config = TlbConfig { asids: 2, ..TlbConfig::new(1) };
    let policy = host.quicklists().unwrap();
    let m = HostMachine::with_tlb(&host, policy, &mmu, config, Delivery::AtOnce).unwrap();
    let slot = host.slot(0).unwrap();
    let pin = slot.pin();
    let on = m.on(&pin).unwrap();
    let spaces: Vec<_> = (0..3).map(|_| Space::<X>::new(on).unwrap()).collect();
    for space in &spaces[..2] {
        space.activate(on).unwrap();
        space.deactivate(on).unwrap();
    }
    // The third needs a rollover.
    mmu.fail_next(Moment::BeforeTheRegister);
    assert!(unwinds(|| spaces[2].activate(on)));
    spaces[2].activate(on).unwrap();
    let last = mmu.last();
    assert!(last.forget_all, "{last:?}: under this number the TLB holds what another space left");
    // Once is enough.
    spaces[2].deactivate(on).unwrap();
    spaces[2].activate(on).unwrap();
    assert!(!mmu.last().forget_all);
}

/// CPU 1 keeps a space lazily and fails to load another; then `after`, with both.
fn failed_load(moment: Moment, after: impl FnOnce(&Registers<false>, [PhysAddr; 2], &dyn Fn(usize))) {
    let host = Host::<X>::new(small(2)).unwrap();
    let mmu = Registers::<false>::default();
    let slots = host.slots();
    let pins: Vec<_> = slots.iter().map(|slot| slot.pin()).collect();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), &mmu).unwrap();
    let (on0, on1) = (m.on(&pins[0]).unwrap(), m.on(&pins[1]).unwrap());
    let (old, new) = (Space::<X>::new(on0).unwrap(), Space::<X>::new(on0).unwrap());
    let roots = [old.tree().root(), new.tree().root()];
    old.activate(on1).unwrap();
    old.rest(on1).unwrap();
    mmu.fail_next(moment);
    assert!(unwinds(|| new.activate(on1)));
    let spaces = Mutex::new([Some(old), Some(new)]);
    after(&mmu, roots, &|which| {
        let space = spaces.lock().unwrap()[which].take().unwrap();
        space.end(on0).unwrap();
    });
}

#[test]
fn a_cpu_whose_load_failed_leaves_both_spaces_before_they_end() {
    for moment in [Moment::BeforeTheRegister, Moment::AfterTheRegister] {
        for which in [0, 1] {
            failed_load(moment, |mmu, roots, end| {
                end(which);
                assert_ne!(mmu.root(1), Some(roots[which]), "CPU 1 walks tables that are handed out again");
            });
        }
    }
}

#[test]
fn a_space_whose_load_failed_can_be_loaded_then() {
    let host = Host::<X>::new(small(1)).unwrap();
    let mmu = Registers::<false>::default();
    let slot = host.slot(0).unwrap();
    let pin = slot.pin();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), &mmu).unwrap();
    let on = m.on(&pin).unwrap();
    let space = Space::<X>::new(on).unwrap();
    for moment in [Moment::BeforeTheRegister, Moment::AfterTheRegister] {
        mmu.fail_next(moment);
        assert!(unwinds(|| space.activate(on)));
        assert!(!space.tlb().is_active_on(pin.cpu()));
        space.activate(on).unwrap();
        assert!(space.tlb().is_active_on(pin.cpu()));
        assert_eq!(mmu.root(0), Some(space.tree().root()));
        space.deactivate(on).unwrap();
    }
    space.end(on).unwrap();
}

/// Fails once when it is told of a table that comes back.
struct FailsOnce<'h> {
    frames: &'h Frames,
    fails: AtomicBool,
}

// SAFETY: 1. the page is `inner`'s.
unsafe impl<P: Policy> Layer<P> for FailsOnce<'_> {
    fn frames(&self) -> Option<&Frames> {
        Some(self.frames)
    }
    fn freeing(&self, _: &Pinned<'_>, _: Level, _: PhysAddr) {
        assert!(!self.fails.swap(false, SeqCst), "the layer's code fails");
    }
}

#[test]
fn the_next_flush_makes_up_for_one_that_a_layer_kept_from_beginning() {
    let rw = AreaFlags::READ.with(AreaFlags::WRITE);
    let page = |start| VirtRange::new(start, start + PAGE).unwrap();
    let host = Host::<X>::new(small(2)).unwrap();
    let model = ExactTlbs::default();
    let slots = host.slots();
    let (pin, pin1) = (slots[0].pin(), slots[1].pin());
    // This policy takes tables before the flush, and the layer is told of them then.
    let fails = FailsOnce { frames: host.frames(), fails: AtomicBool::new(true) };
    let policy = Layered::new(fails, common::historic(&host, Rules::V5, 2).unwrap()).unwrap();
    let m = HostMachine::new(&host, policy, &model).unwrap();
    let on = m.on(&pin).unwrap();
    let mut space = Space::<X>::new(on).unwrap();
    for va in [VA, VA + LEAF] {
        space.edit(on).unwrap().mmap(page(va), rw, 0).unwrap();
        space.fault(on, VirtAddr(va), Access::Write).unwrap();
    }
    space.activate(m.on(&pin1).unwrap()).unwrap();
    let (frame, _) = space.tree().query(on, VirtAddr(VA)).unwrap();
    model.walk(1, VA, frame);
    assert!(unwinds(|| space.edit(on).unwrap().munmap(page(VA))));
    // No page is left that could be flushed.
    space.edit(on).unwrap().munmap(page(VA)).unwrap();
    space.edit(on).unwrap().mmap(page(VA), rw, 0).unwrap();
    space.fault(on, VirtAddr(VA), Access::Write).unwrap();
    space.edit(on).unwrap().munmap(page(VA + LEAF)).unwrap();
    assert!(!model.knows(1, VA), "CPU 1 writes to a frame that the space has not any more");
}
