//! The crate `x86_64`.
use super::*;
use ptsan::Flush;
use ptsan::Kind;
use ptsan::adapters::x86_64::{Forward, Space};
use x86_64::structures::paging::mapper::CleanUp;
use x86_64::structures::paging::{
    FrameDeallocator, Mapper, Page, PageTableFlags as Flags, PhysFrame, Size2MiB, Size4KiB,
};
use x86_64::{PhysAddr, VirtAddr};

/// Way around: `clean_up` frees tables before a flush is possible.
#[derive(Default)]
struct Parked(Vec<PhysFrame>);

impl FrameDeallocator<Size4KiB> for Parked {
    unsafe fn deallocate_frame(&mut self, frame: PhysFrame) {
        self.0.push(frame);
    }
}

fn flags(write: bool) -> Flags {
    let always = Flags::PRESENT | Flags::USER_ACCESSIBLE;
    if write { always | Flags::WRITABLE } else { always }
}

fn page<S: x86_64::structures::paging::PageSize>(va: u64) -> Page<S> {
    Page::containing_address(VirtAddr::new(va))
}

fn step(machine: &Machine, space: &mut Space, model: &mut Model, random: &mut Rng) {
    // Way around: tables are linked before they are cleared, so the allocator clears them.
    let mut frames = space.frames().zeroed();
    let at = any_page(random);
    match random.u64(..10) {
        0..4 => {
            let large = random.u64(..4) == 0;
            let size = if large { LARGE } else { FRAME };
            let at = at & !(size - 1);
            let (frame, write) = (any_frame(random, size), random.bool());
            if !model.is_free(at, size) {
                return;
            }
            let (to, flags) = (PhysAddr::new(frame), flags(write));
            let parents = Flags::PRESENT | Flags::WRITABLE | Flags::USER_ACCESSIBLE;
            let mut mapper = space.mapper();
            // Way around: a call that fails widens the entry in its way, so calls are tried where
            // no page is mapped. SAFETY: the frames are simulated.
            let done = unsafe {
                if large {
                    let (page, frame) = (page::<Size2MiB>(at), PhysFrame::containing_address(to));
                    let token = mapper.map_to_with_table_flags(page, frame, flags, parents, &mut frames);
                    token.map(|token| token.forward(machine, 1)).is_ok()
                } else {
                    let (page, frame) = (page::<Size4KiB>(at), PhysFrame::containing_address(to));
                    let token = mapper.map_to_with_table_flags(page, frame, flags, parents, &mut frames);
                    token.map(|token| token.forward(machine, 1)).is_ok()
                }
            };
            // An empty table may take the place of a large page, until the next clean-up.
            assert!(done || large, "free, and enough frames");
            if done {
                model.0.insert(at, (frame, size, write));
            }
        }
        4..7 => {
            let Some((at, (_, size, _))) = model.find(at) else { return };
            model.0.remove(&at);
            if size == LARGE {
                space.mapper().unmap(page::<Size2MiB>(at)).expect("mapped").1.forward(machine, 1);
            } else {
                space.mapper().unmap(page::<Size4KiB>(at)).expect("mapped").1.forward(machine, 1);
            }
        }
        7..9 => {
            let Some((at, (frame, size, write))) = model.find(at) else { return };
            model.0.insert(at, (frame, size, !write));
            // SAFETY: the frames are simulated.
            unsafe {
                if size == LARGE {
                    let token = space.mapper().update_flags(page::<Size2MiB>(at), flags(!write));
                    token.expect("mapped").forward(machine, 1);
                } else {
                    let token = space.mapper().update_flags(page::<Size4KiB>(at), flags(!write));
                    token.expect("mapped").forward(machine, 1);
                }
            }
        }
        _ => clean_up(machine, space),
    }
}

fn clean_up(machine: &Machine, space: &mut Space) {
    let mut parked = Parked::default();
    // SAFETY: the tables are this space's alone.
    unsafe { space.mapper().clean_up(&mut parked) };
    machine.flush_everywhere(Flush::space(1));
    let mut frames = space.frames();
    for frame in parked.0 {
        // SAFETY: unlinked and flushed.
        unsafe { frames.deallocate_frame(frame) };
    }
}

#[test]
fn correct_use_of_x86_64_is_silent() {
    for (machine, mut random, steps) in machines(&Arch::x86_64()) {
        let mut model = Model::default();
        let mut space = Space::new(&machine, 1).expect("frames");
        load(&machine, space.root(), &mut random);
        for _ in 0..steps {
            run(&machine, || step(&machine, &mut space, &mut model, &mut random));
            model.access(&machine, &mut random);
        }
        for (&at, &(_, size, _)) in &model.0 {
            if size == LARGE {
                space.mapper().unmap(page::<Size2MiB>(at)).expect("mapped").1.forward(&machine, 1);
            } else {
                space.mapper().unmap(page::<Size4KiB>(at)).expect("mapped").1.forward(&machine, 1);
            }
        }
        clean_up(&machine, &mut space);
        (0..2).for_each(|cpu| machine.leave(cpu));
        space.destroy();
        silent(&machine);
    }
}

#[test]
fn the_offset_mapper_reaches_the_same_tables() {
    let machine = machine(Arch::x86_64());
    let mut space = Space::new(&machine, 1).expect("frames");
    machine.load(0, space.root(), 1);
    let frame = PhysFrame::<Size4KiB>::containing_address(PhysAddr::new(0x123_4000));
    let mut frames = space.frames();
    // SAFETY: the frame is simulated.
    unsafe { space.offset_mapper().map_to(page(0x7000), frame, flags(true), &mut frames) }
        .expect("free")
        .forward(&machine, 1);
    machine.expect(0, 0x7008, Some(Expected::at(0x123_4008)));
    machine.sanitizer(|san, _| san.assert_clean());
}

#[test]
fn a_forgotten_flush_is_found() {
    let machine = machine(Arch::x86_64());
    let mut space = Space::new(&machine, 1).expect("frames");
    machine.load(0, space.root(), 1);
    let frame = PhysFrame::<Size4KiB>::containing_address(PhysAddr::new(0x123_4000));
    let mut frames = space.frames();
    // SAFETY: the frame is simulated.
    let token = unsafe { space.mapper().map_to(page(0x7000), frame, flags(true), &mut frames) };
    token.expect("free").ignore();
    machine.access(0, 0x7000, Access::READ).expect("mapped");
    space.mapper().unmap(page::<Size4KiB>(0x7000)).expect("mapped").1.ignore();
    let _ = machine.access(0, 0x7000, Access::READ);
    assert_eq!(machine.sanitizer(|san, _| san.count(Kind::StaleUse)), 1, "{machine}");
}
