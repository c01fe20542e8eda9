//! The crate `aarch64-paging`.
use super::*;
use aarch64_paging::Mapping;
use aarch64_paging::descriptor::{El1Attributes as Attributes, PhysicalAddress};
use aarch64_paging::paging::{Constraints, El1And0, MemoryRegion, RootTable, VaRange};
use ptsan::adapters::aarch64_paging::{Frames, edit};

fn flags(write: bool) -> Attributes {
    let always = Attributes::VALID
        | Attributes::ACCESSED
        | Attributes::NON_GLOBAL
        | Attributes::INNER_SHAREABLE
        | Attributes::USER;
    if write { always } else { always | Attributes::READ_ONLY }
}

type Live = Mapping<Frames, El1And0>;

fn map(mapping: &mut Live, at: u64, size: u64, frame: u64, flags: Attributes) -> bool {
    let range = MemoryRegion::new(at as usize, (at + size) as usize);
    let frame = PhysicalAddress(frame as usize);
    mapping.map_range(&range, frame, flags, Constraints::empty()).is_ok()
}

fn step(machine: &Machine, mapping: &mut Live, model: &mut Model, random: &mut Rng) {
    let at = any_page(random);
    match random.u64(..9) {
        0..4 => {
            let size = if random.u64(..4) == 0 { LARGE } else { FRAME };
            let at = at & !(size - 1);
            let (frame, write) = (any_frame(random, size), random.bool());
            if model.is_free(at, size) {
                let done = edit(machine, || map(mapping, at, size, frame, flags(write)));
                assert!(done, "the range is free");
                // A table that is there already gets small pages.
                let level = machine
                    .sanitizer(|san, memory| {
                        san.expect(memory, ptsan::Tree::Cpu(0), at, Some(Expected::at(frame)))
                    })
                    .expect("mapped")
                    .level;
                let unit = if level == 0 { FRAME } else { LARGE };
                for page in (0..size).step_by(unit as usize) {
                    model.0.insert(at + page, (frame + page, unit, write));
                }
            }
        }
        4..6 => {
            let Some((at, (frame, size, _))) = model.find(at) else { return };
            model.0.remove(&at);
            assert!(edit(machine, || map(mapping, at, size, frame, Attributes::empty())));
        }
        6..8 => {
            let Some((at, (frame, size, write))) = model.find(at) else { return };
            model.0.insert(at, (frame, size, !write));
            assert!(edit(machine, || map(mapping, at, size, frame, flags(!write))));
        }
        _ => edit(machine, || mapping.compact_subtables()),
    }
}

#[test]
fn correct_use_of_aarch64_paging_is_silent() {
    for (machine, mut random, steps) in machines(&Arch::aarch64_4k(48)) {
        let mut model = Model::default();
        let frames = Frames::flushing(&machine);
        let mut mapping = Mapping::with_asid_and_va_range(frames, 1, 0, El1And0, VaRange::Lower);
        load(&machine, mapping.root_address().0 as u64, &mut random);
        mapping.mark_active();
        for _ in 0..steps {
            run(&machine, || step(&machine, &mut mapping, &mut model, &mut random));
            model.access(&machine, &mut random);
        }
        (0..2).for_each(|cpu| machine.leave(cpu));
        mapping.mark_inactive();
        run(&machine, || drop(mapping));
        silent(&machine);
    }
}

#[test]
fn a_root_table_that_is_not_loaded_needs_no_flush() {
    let machine = machine(Arch::aarch64_4k(48));
    let mut table = RootTable::with_va_range(Frames::new(&machine), 0, El1And0, VaRange::Lower);
    let range = MemoryRegion::new(0, 4 * LARGE as usize);
    table
        .map_range(&range, PhysicalAddress(0x4000_0000), flags(true), Constraints::NO_BLOCK_MAPPINGS)
        .expect("free");
    drop(table);
    silent(&machine);
}
