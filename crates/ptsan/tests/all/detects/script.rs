//! The operations before a defect, and the one that has it.
use super::kernel::{CPUS, Defect, Kernel, PAGE, USER};

/// Work without the defect: it switches, maps, unmaps, restricts and remaps.
pub fn work(k: &mut Kernel, steps: u64) {
    for _ in 0..steps {
        let (cpu, space) = (k.below(CPUS as u64) as usize, 1 + k.below(3));
        let va = USER + k.below(24) * PAGE;
        match k.below(12) {
            0 => k.switch(cpu, space),
            1 => k.lazy(cpu),
            2 => k.resume(cpu),
            3..=5 if !k.is_mapped(space, va) => k.map(space, va),
            6 => k.unmap(cpu, space, va, 1),
            7 => {
                let n = 1 + k.below(8);
                k.unmap(cpu, space, va, n);
            }
            8 => k.protect(cpu, space, va),
            9 => {
                let copy = k.below(2) == 0;
                k.remap(cpu, space, va, copy);
            }
            10 if k.below(8) == 0 => {
                k.destroy(space);
                k.space(space);
            }
            _ => k.touch(cpu, va),
        }
    }
}

/// Makes spaces and works on them. From then on tests know the loaded space: space 1, with one page
/// mapped and one more.
pub fn prepare(k: &mut Kernel) {
    for space in 1..=3 {
        k.space(space);
    }
    let steps = 20 + k.below(40);
    work(k, steps);
    for cpu in 0..CPUS {
        k.resume(cpu);
        k.switch(cpu, 1);
    }
    k.unmap(0, 1, USER, 24);
    k.map(1, USER);
    k.map(1, USER + PAGE);
    k.hook(|san, _| san.assert_clean());
}

/// Runs the code with the defect.
pub fn inject(k: &mut Kernel, defect: Defect, seed: u64) {
    let cpu = (seed % CPUS as u64) as usize;
    k.defect = defect;
    match defect {
        Defect::NoFlushOnDowngrade => k.protect(cpu, 1, USER),
        Defect::RemapWithoutFlush => k.remap(cpu, 1, USER, false),
        Defect::CopyWithoutFlush => k.remap(cpu, 1, USER, true),
        Defect::LinkedBeforeCleared => k.map(1, USER + (1 << 30)),
        Defect::WrongFrame => k.map(1, USER + 2 * PAGE),
        Defect::TableMapped => k.map(1, USER + 2 * PAGE),
        Defect::GlobalByRootLoad => k.kernel_page(cpu),
        Defect::SplitWithoutBreak | Defect::CollapseOnePage => k.collapse_and_split(cpu, 1),
        Defect::PromotedClean | Defect::PromotedUnread => k.promote(cpu, 1),
        Defect::Leak | Defect::RootWhileLoaded => k.destroy(1),
        Defect::NumberReused => {
            k.destroy(1);
            k.space(1);
            k.switch(cpu, 1);
            k.touch(cpu, USER);
        }
        Defect::LazyLeftOut => {
            let other = (cpu + 1) % CPUS;
            k.lazy(other);
            k.unmap(cpu, 1, USER, 1);
            k.resume(other);
            k.touch(other, USER + PAGE);
        }
        // Only here the table goes with its last page.
        Defect::TableBeforeFlush | Defect::FlushedThenUnlinked | Defect::LeafOnly | Defect::DoubleFree => {
            k.unmap(cpu, 1, USER, 2);
        }
        Defect::WrongStride => {
            if k.format.is_riscv() {
                // A table that is freed would have the whole space flushed.
                k.map(1, USER + 2 * PAGE);
            }
            k.unmap(cpu, 1, USER, 2);
        }
        _ => k.unmap(cpu, 1, USER, 1),
    }
    k.defect = Defect::None;
    if defect == Defect::Leak {
        k.destroy(2);
        k.destroy(3);
        return k.finish();
    }
    for cpu in 0..CPUS {
        k.touch(cpu, USER);
        k.touch(cpu, USER + PAGE);
    }
    k.hook(|san, ram| san.flushes_done(ram));
    k.hook(|san, ram| san.finish_with(ram));
}
