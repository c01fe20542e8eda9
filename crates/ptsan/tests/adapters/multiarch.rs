//! The crate `page_table_multiarch`.
use super::*;
use memory_addr::{PhysAddr, VirtAddr};
use page_table_multiarch::x86_64::X64PageTable;
use page_table_multiarch::{GenericPTE, MappingFlags, PageSize, PageTable64, PagingMetaData, PagingResult};
use ptsan::adapters::page_table_multiarch::{A64, A64Entry, Handler, edit};

fn flags(write: bool) -> MappingFlags {
    let always = MappingFlags::READ | MappingFlags::USER;
    if write { always | MappingFlags::WRITE } else { always }
}

fn step<M, PTE>(table: &mut PageTable64<M, PTE, Handler>, model: &mut Model, random: &mut Rng)
where
    M: PagingMetaData<VirtAddr = VirtAddr>,
    PTE: GenericPTE,
{
    let at = any_page(random);
    match random.u64(..8) {
        0..4 => {
            let large = random.u64(..4) == 0;
            let size = if large { LARGE } else { FRAME };
            let at = at & !(size - 1);
            let (frame, write) = (any_frame(random, size), random.bool());
            if !model.is_free(at, size) {
                return;
            }
            let page_size = if large { PageSize::Size2M } else { PageSize::Size4K };
            let (va, pa) = (VirtAddr::from_usize(at as usize), PhysAddr::from_usize(frame as usize));
            // An empty table, which the crate keeps, may take the place of a large page.
            let done = edit(table, |cursor| cursor.map(va, pa, page_size, flags(write))).is_ok();
            assert!(done || large, "free, and enough frames");
            if done {
                model.0.insert(at, (frame, size, write));
            }
        }
        4..6 => {
            let Some((at, _)) = model.find(at) else { return };
            model.0.remove(&at);
            edit(table, |cursor| cursor.unmap(VirtAddr::from_usize(at as usize))).expect("mapped");
        }
        _ => {
            let Some((at, (frame, size, write))) = model.find(at) else { return };
            model.0.insert(at, (frame, size, !write));
            let va = VirtAddr::from_usize(at as usize);
            edit(table, |cursor| cursor.protect(va, flags(!write))).expect("mapped");
        }
    }
}

fn silent_on<M, PTE>(arch: &Arch, new: fn() -> PagingResult<PageTable64<M, PTE, Handler>>)
where
    M: PagingMetaData<VirtAddr = VirtAddr>,
    PTE: GenericPTE,
{
    for (machine, mut random, steps) in machines(arch) {
        let mut model = Model::default();
        let _current = machine.enter();
        let mut table = new().expect("frames");
        load(&machine, table.root_paddr().as_usize() as u64, &mut random);
        for _ in 0..steps {
            run(&machine, || step(&mut table, &mut model, &mut random));
            model.access(&machine, &mut random);
        }
        (0..2).for_each(|cpu| machine.leave(cpu));
        run(&machine, || drop(table));
        silent(&machine);
    }
}

#[test]
fn correct_use_of_page_table_multiarch_is_silent() {
    silent_on(&Arch::x86_64(), X64PageTable::try_new);
}

#[test]
fn correct_use_of_page_table_multiarch_is_silent_on_aarch64() {
    silent_on(&Arch::aarch64_4k(48), PageTable64::<A64, A64Entry, Handler>::try_new);
}
