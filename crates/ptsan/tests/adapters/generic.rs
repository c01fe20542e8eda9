//! The crate `page-table-generic`.
use super::*;
use page_table_generic::{MapConfig, PageTable, PhysAddr, TableMeta, VirtAddr};
use ptsan::adapters::page_table_generic::{A64, Allow, READ_ONLY, READ_WRITE, X64, flush};

fn allow(write: bool) -> Allow {
    if write { READ_WRITE } else { READ_ONLY }
}

fn va(at: u64) -> VirtAddr {
    VirtAddr::from_usize(at as usize)
}

fn step<T>(table: &mut PageTable<T, Machine>, model: &mut Model, random: &mut Rng)
where
    T: TableMeta,
    T::P: page_table_generic::PageTableEntry<PteConfig = Allow>,
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
            let config = MapConfig {
                vaddr: va(at),
                paddr: PhysAddr::from_usize(frame as usize),
                size: size as usize,
                pte: allow(write),
                allow_huge: large,
                flush: true,
            };
            table.map(&config).expect("free: no empty table is left in the way");
            model.0.insert(at, (frame, size, write));
        }
        4..6 => {
            let Some((at, _)) = model.find(at) else { return };
            model.0.remove(&at);
            // Way around: the other calls that unmap give tables back too early.
            let (.., tables) = table.unmap_page_deferred(va(at)).expect("mapped");
            flush(None);
            // SAFETY: every CPU has flushed.
            unsafe { tables.reclaim() };
        }
        6 => {
            let Some((at, (frame, size, write))) = model.find(at) else { return };
            model.0.insert(at, (frame, size, !write));
            table.protect_page(va(at), allow(!write)).expect("mapped");
        }
        _ => {
            let Some((at, (frame, LARGE, write))) = model.find(at) else { return };
            table.split_huge_page(va(at)).expect("a large page");
            for page in (0..LARGE).step_by(FRAME as usize) {
                model.0.insert(at + page, (frame + page, FRAME, write));
            }
        }
    }
}

fn silent_on<T>(arch: &Arch)
where
    T: TableMeta,
    T::P: page_table_generic::PageTableEntry<PteConfig = Allow>,
{
    for (machine, mut random, steps) in machines(arch) {
        let mut model = Model::default();
        let _current = machine.enter();
        let mut table = PageTable::<T, _>::new(machine.clone()).expect("frames");
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
fn correct_use_of_page_table_generic_is_silent() {
    silent_on::<X64>(&Arch::x86_64());
}

#[test]
fn correct_use_of_page_table_generic_is_silent_on_aarch64() {
    silent_on::<A64>(&Arch::aarch64_4k(48));
}
