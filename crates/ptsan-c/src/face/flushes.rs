//! The hooks of invalidations.
//!
//! For a shootdown, tell each CPU's part when that CPU carries it out. `PTSAN_EVERY_CPU` is for
//! hardware that broadcasts.
use crate::handles::{Ptsan, hook};
use crate::machine::PTSAN_EVERY_CPU;
use crate::options::exception_level_of;
use ptsan::{Flush, Memory, Sanitizer, Target};

/// Tells that the CPU invalidates the translations of the page at `va` in a space, and global ones
/// (x86 `invlpg`, AArch64 `tlbi vae1`). For a shootdown, tell each CPU's part when that CPU carries
/// it out; `PTSAN_EVERY_CPU` is for hardware that broadcasts.
///
/// `leaf_only` spares the paging-structure caches where hardware can (AArch64 `vale1`).
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_flush_page(san: *mut Ptsan, cpu: i32, space: u64, va: u64, leaf_only: bool) -> i32 {
    flush("ptsan_flush_page", san, cpu, Flush { leaf_only, ..Flush::page(space, va) })
}

/// Tells that the CPU invalidates by address in a space at `start`, `start + stride` and so on
/// below `end`. All are bytes. CPUs and `leaf_only` as for `ptsan_flush_page`.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_flush_range(
    san: *mut Ptsan,
    cpu: i32,
    space: u64,
    start: u64,
    end: u64,
    stride: u64,
    leaf_only: bool,
) -> i32 {
    flush("ptsan_flush_range", san, cpu, Flush { leaf_only, ..Flush::range(space, start, end, stride) })
}

/// Tells that the CPU invalidates by address in every space, as `ptsan_flush_range` in one (AArch64
/// `tlbi vaae1`, RISC-V `sfence.vma` without an ASID). Without `PTSAN_FLAG_ASIDS` a CPU holds one
/// space: then this is an x86 `invlpg` where the space is not known.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_flush_every_space(
    san: *mut Ptsan,
    cpu: i32,
    start: u64,
    end: u64,
    stride: u64,
    leaf_only: bool,
) -> i32 {
    let target = Target::EverySpace { start, end, stride };
    flush("ptsan_flush_every_space", san, cpu, Flush { target, leaf_only, ..Flush::all() })
}

/// Tells that the CPU invalidates by address in a space, as `ptsan_flush_range`, and names the
/// level whose entries map the pages, counted from the leaves (AArch64 with FEAT_TTL): pages of
/// level 0 are the smallest. The flush drops no page of another level and no table.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_flush_level(
    san: *mut Ptsan,
    cpu: i32,
    space: u64,
    start: u64,
    end: u64,
    stride: u64,
    level: u8,
) -> i32 {
    flush("ptsan_flush_level", san, cpu, Flush::range(space, start, end, stride).level(level))
}

/// Tells that the CPU invalidates by address in every space, as `ptsan_flush_every_space`, and
/// names the level of the pages, as `ptsan_flush_level`.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_flush_every_space_level(
    san: *mut Ptsan,
    cpu: i32,
    start: u64,
    end: u64,
    stride: u64,
    level: u8,
) -> i32 {
    let target = Target::EverySpace { start, end, stride };
    let what = Flush { target, ..Flush::all() }.level(level);
    flush("ptsan_flush_every_space_level", san, cpu, what)
}

/// Tells that the CPU invalidates a space except global translations (x86: a reload of CR3).
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_flush_space(san: *mut Ptsan, cpu: i32, space: u64) -> i32 {
    flush("ptsan_flush_space", san, cpu, Flush::space(space))
}

/// Tells that the CPU invalidates everything, global translations too.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_flush_all(san: *mut Ptsan, cpu: i32) -> i32 {
    flush("ptsan_flush_all", san, cpu, Flush::all())
}

/// Tells that the CPU invalidates by address as `ptsan_flush_range` does, for an exception level of
/// AArch64: 1 (`vae1`, `ipas2e1`), 2 (`vae2`) or 3 (`vae3`). It drops nothing of tables of another
/// one: see `ptsan_options.exception_level`.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_flush_of(
    san: *mut Ptsan,
    cpu: i32,
    exception_level: u32,
    space: u64,
    start: u64,
    end: u64,
    stride: u64,
    leaf_only: bool,
) -> i32 {
    let what = Flush { leaf_only, ..Flush::range(space, start, end, stride) };
    flush_of("ptsan_flush_of", san, cpu, exception_level, what)
}

/// Tells that the CPU invalidates everything of an exception level of AArch64 (`vmalle1`, `alle2`,
/// `alle3`), as `ptsan_flush_of`.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_flush_all_of(san: *mut Ptsan, cpu: i32, exception_level: u32) -> i32 {
    flush_of("ptsan_flush_all_of", san, cpu, exception_level, Flush::all())
}

/// Tells that the CPU invalidates all that it has cached of stage 1 for the guest that it runs
/// (AArch64 `tlbi vmalle1`, `PTSAN_EVERY_CPU` for `vmalle1is`; RISC-V `hfence.vvma` without
/// operands; x86 `invvpid` of the guest's number). For sanitizers of stage 2 with
/// `PTSAN_FLAG_TWO_STAGES`: on AArch64 a flush by intermediate physical address (`tlbi ipas2e1`)
/// does not drop translations that are combined of both stages, so that it has to be followed by
/// this one.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_stage1_flushed(san: *mut Ptsan, cpu: i32) -> i32 {
    hook("ptsan_stage1_flushed", san, |machine| {
        if cpu == PTSAN_EVERY_CPU {
            machine.check(|s, _| {
                let cpus = (0..).take_while(|cpu| s.cpu_state(*cpu).is_some()).count();
                (0..cpus).for_each(|cpu| s.stage1_flushed(cpu));
            });
        } else {
            let cpu = machine.cpu(cpu)?;
            machine.check(|s, _| s.stage1_flushed(cpu));
        }
        Ok(())
    })
}

fn flush_of(name: &str, san: *mut Ptsan, cpu: i32, exception_level: u32, what: Flush) -> i32 {
    match exception_level_of(exception_level) {
        Ok(level) => flush(name, san, cpu, what.of(level)),
        Err(refusal) => hook(name, san, |_| Err(refusal)),
    }
}

fn flush(name: &str, san: *mut Ptsan, cpu: i32, what: Flush) -> i32 {
    hook(name, san, |machine| {
        let cpu = if cpu == PTSAN_EVERY_CPU { None } else { Some(machine.cpu(cpu)?) };
        let hook = |s: &mut Sanitizer, memory: &dyn Memory| match cpu {
            Some(cpu) => s.flush(memory, cpu, what),
            None => s.flush_everywhere(memory, what),
        };
        match what.target {
            Target::Page { va, .. } => machine.check_at(va, hook),
            Target::Range { start, .. } | Target::EverySpace { start, .. } => machine.check_at(start, hook),
            Target::Space(_) | Target::All => machine.tell(hook),
        }
        Ok(())
    })
}
