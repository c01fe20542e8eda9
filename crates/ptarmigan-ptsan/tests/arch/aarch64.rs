//! AArch64: the user's half with ASIDs and without, with ranges and without, and the kernel's half.
//!
//! Not seen: `VAALE1`, which is for entries of a space without a number: no CPU knows any of them.
//! `DSB NSH` is seen no later than the next barrier, which completes the invalidation in the model
//! as well. The cleaning of code is no translation.
use crate::recorder::{Machine, Outcome, Port, Recorder, is_clean, is_found, leaves_are_clean, run};
use ptarmigan::arch::NoIpi;
use ptarmigan::arch::aarch64::{Barrier, Features, Granule, Instructions, Op, Tables, Tlbi};
use ptarmigan::cpu::Pinned;
use ptarmigan::format::{Aarch64, Aarch64K16, Aarch64K64, Aarch64Upper, Format, Formats};
use ptarmigan::tlb::{Invalidation, Mmu, NewEntry, Root, Scope, SpaceId, Structures};
use ptarmigan_ptsan::{Told, Watchable};
use ptsan::{Config, Flush, Target};
use std::marker::PhantomData;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;

/// Numbers are the machine's.
pub fn tag(_: usize, asid: u16) -> u64 {
    asid.into()
}

/// The address of an operand that names a page: bits 12 to 55, of which 48 are translated.
pub fn address(operand: u64) -> u64 {
    ((operand << 20) as i64 >> 20 << 12) as u64
}

/// The granule that a number in an operand names, as a binary logarithm.
fn granule(number: u64) -> u32 {
    [0, 12, 14, 16][number as usize & 3]
}

/// The first address of a range and the first behind it.
pub fn range(operand: u64) -> (u64, u64) {
    let shift = granule(operand >> 46);
    let start = ((operand << 27) as i64 >> 27 << shift) as u64;
    let (scale, num) = (operand >> 44 & 3, operand >> 39 & 31);
    (start, start.wrapping_add((num + 1) << (5 * scale + 1) << shift))
}

/// The level that a field of an operand names, as the sanitizer counts levels. The last one is 3.
fn level(field: u64) -> u8 {
    3 - (field & 3) as u8
}

/// Returns the level that the operand of a range names, if it names one. `None` if a CPU need not
/// do what it says: the granule that it names is not that of the tables.
pub fn level_of_range<F: Format>(operand: u64) -> Option<Option<u8>> {
    let field = operand >> 37 & 3;
    (granule(operand >> 46) == F::PAGE_SHIFT).then(|| (field != 0).then(|| level(field)))
}

/// As [`level_of_range`], for the operand of a page.
pub fn level_of_page<F: Format>(operand: u64) -> Option<Option<u8>> {
    match operand >> 46 & 3 {
        0 => Some(None),
        number => (granule(number) == F::PAGE_SHIFT).then(|| Some(level(operand >> 44))),
    }
}

/// As the two before, for an instruction at EL1.
fn level_of<F: Format>(op: Op, operand: u64) -> Option<Option<u8>> {
    match op {
        Op::Rvae1is | Op::Rvale1is | Op::Rvaae1is => level_of_range::<F>(operand),
        Op::Aside1is | Op::Aside1 | Op::Vmalle1is | Op::Vmalle1 => Some(None),
        _ => level_of_page::<F>(operand),
    }
}

/// The mnemonic of a barrier, and the sanitizer's word for it.
pub fn named(barrier: Barrier) -> (&'static str, ptsan::Barrier) {
    match barrier {
        Barrier::DsbIshst => ("dsb ishst", ptsan::Barrier::Data),
        Barrier::DsbIsh => ("dsb ish", ptsan::Barrier::Data),
        Barrier::DsbNsh => ("dsb nsh", ptsan::Barrier::Data),
        Barrier::Isb => ("isb", ptsan::Barrier::Instruction),
    }
}

// SAFETY: The software MMUs execute the instruction of the name, except for the one that is left
// out, which the sanitizer has to notice.
unsafe impl<F: Format> Instructions for &Recorder<'_, '_, F> {
    fn tlbi(&self, pin: &Pinned<'_>, op: Op, operand: u64) {
        let (name, here, leaf_only) = match op {
            Op::Vae1is => ("vae1is", false, false),
            Op::Vale1is => ("vale1is", false, true),
            Op::Vaae1is => ("vaae1is", false, false),
            Op::Rvae1is => ("rvae1is", false, false),
            Op::Rvale1is => ("rvale1is", false, true),
            Op::Rvaae1is => ("rvaae1is", false, false),
            Op::Aside1is => ("aside1is", false, false),
            Op::Vmalle1is => ("vmalle1is", false, false),
            Op::Vale1 => ("vale1", true, true),
            Op::Vaale1 => ("vaale1", true, true),
            Op::Aside1 => ("aside1", true, false),
            Op::Vmalle1 => ("vmalle1", true, false),
        };
        let Some(cpu) = self.executes(pin, name) else { return };
        let Some(level) = level_of::<F>(op, operand) else { return };
        let (space, page) = (operand >> 48, 1 << F::PAGE_SHIFT);
        let va = address(operand);
        let target = match op {
            Op::Vae1is | Op::Vale1is | Op::Vale1 => Target::Page { space, va },
            Op::Vaae1is | Op::Vaale1 => Target::EverySpace { start: va, end: va + 1, stride: page },
            Op::Rvae1is | Op::Rvale1is => {
                let (start, end) = range(operand);
                Target::Range { space, start, end, stride: page }
            }
            Op::Rvaae1is => {
                let (start, end) = range(operand);
                Target::EverySpace { start, end, stride: page }
            }
            Op::Aside1is | Op::Aside1 => Target::Space(space),
            Op::Vmalle1is | Op::Vmalle1 => Target::All,
        };
        let flush = Flush { target, leaf_only, level, ..Flush::all() };
        self.tell(|san, memory| match here {
            true => san.flush(memory, cpu, flush),
            false => san.flush_everywhere(memory, flush),
        });
    }

    fn barrier(&self, pin: &Pinned<'_>, barrier: Barrier) {
        let (name, told) = named(barrier);
        let Some(cpu) = self.executes(pin, name) else { return };
        self.tell(|san, _| san.barrier(cpu, told));
    }

    fn ttbr0(&self, pin: &Pinned<'_>) -> u64 {
        self.register(pin).load(Relaxed)
    }

    unsafe fn load_ttbr0(&self, pin: &Pinned<'_>, value: u64) {
        self.register(pin).store(value, Relaxed);
        let Some(cpu) = self.executes(pin, "msr ttbr0_el1") else { return };
        self.tell(|san, memory| san.switch(memory, cpu, value & ((1 << 48) - 1), value >> 48));
    }

    fn ctr(&self, _: &Pinned<'_>) -> u64 {
        4 << 16
    }

    unsafe fn dc_cvau(&self, pin: &Pinned<'_>, _: *const u8) {
        self.executes(pin, "dc cvau");
    }

    fn ic_ialluis(&self, pin: &Pinned<'_>) {
        self.executes(pin, "ic ialluis");
    }
}

/// MMUs of which the tests use one root register: calls on trees of `F` and on the kernel's half in
/// `F` are compiled for one machine, and one kind is made.
struct Alone<F, M>(M, PhantomData<fn() -> F>);

// SAFETY: all promises are those of `M`, which reads `F` by one of its registers.
unsafe impl<F: Format, M: Mmu> Mmu for Alone<F, M> {
    const FORMATS: Formats = Formats::of::<F>();
    const BROADCASTS: bool = M::BROADCASTS;
    const STRUCTURES: Structures = M::STRUCTURES;
    const NEEDS_ENTRY_VALID: bool = M::NEEDS_ENTRY_VALID;

    fn invalidate(&self, pin: &Pinned<'_>, what: &Invalidation) {
        self.0.invalidate(pin, what);
    }
    fn invalidate_kernel(&self, pin: &Pinned<'_>, scope: &Scope) {
        self.0.invalidate_kernel(pin, scope);
    }
    fn load(&self, pin: &Pinned<'_>, root: &Root) {
        self.0.load(pin, root);
    }
    fn unload(&self, pin: &Pinned<'_>, space: SpaceId) {
        self.0.unload(pin, space);
    }
    fn entry_became_valid(&self, pin: &Pinned<'_>, entry: &NewEntry) {
        self.0.entry_became_valid(pin, entry);
    }
}

/// Makes MMUs for tables of `T`, and calls on trees of `F`: `T`, or the kernel's.
fn machine_of<T: Tables, F: Format + Watchable>(features: Features) -> impl Fn(u64, Machine) -> Outcome {
    machine_with::<T, F>(features, false)
}

/// A machine, with `leaves` of every size in place of random calls.
fn machine_with<T: Tables, F: Format + Watchable>(
    features: Features,
    leaves: bool,
) -> impl Fn(u64, Machine) -> Outcome {
    move |seed, machine| {
        let config = Config { asids: true, barriers: true, accessed_dirty: true, ..Config::new(F::arch()) };
        let port = Port { config, tag, register: |root| root };
        run::<Told<F>>(seed, machine, &port, |recorder, root, what| {
            // SAFETY: 1. The recorder's CPUs have them. And 1. that of the run.
            let mmu =
                unsafe { Tlbi::<T, _, _>::with_features(NoIpi, recorder, features).with_kernel_root(root) };
            let mmu = Alone::<Told<F>, _>(mmu, PhantomData);
            if leaves {
                recorder.leaves(mmu, (seed, machine.cpus, machine.asids));
            } else {
                recorder.calls(mmu, what);
            }
        })
    }
}

const RANGES: Features = Features { ranges: true, ..Features::ARMV8_0 };
/// Levels, and ranges of pages of 16 KiB and of 64 KiB.
const LEVELS: Features = Features { ttl: true, ..RANGES };
const K16: Features = Features { granule: Granule::K16, ..LEVELS };
const K64: Features = Features { granule: Granule::K64, ..LEVELS };

#[test]
fn random_calls_have_no_finding() {
    let common = ["aside1", "aside1is", "dsb ish", "dsb ishst", "dsb nsh", "isb", "msr ttbr0_el1"];
    let sorted = |more: &[&'static str]| {
        let mut all = [&common[..], more].concat();
        all.sort_unstable();
        all
    };
    let pages = sorted(&["vaale1", "vae1is", "vale1", "vale1is", "vmalle1"]);
    is_clean(&[0, 5], &pages, machine_of::<Aarch64, Aarch64>(Features::ARMV8_0));
    let ranges = sorted(&["rvae1is", "rvale1is", "vaale1", "vae1is", "vale1", "vale1is", "vmalle1"]);
    is_clean(&[0, 5], &ranges, machine_of::<Aarch64, Aarch64>(RANGES));
    is_clean(&[0, 5], &ranges, machine_of::<Aarch64, Aarch64>(LEVELS));
    is_clean(&[0, 5], &ranges, machine_of::<Aarch64K16, Aarch64K16>(K16));
    is_clean(&[0, 5], &ranges, machine_of::<Aarch64K64, Aarch64K64>(K64));
    // The library uses more numbers than the CPUs have.
    is_clean(&[9], &pages, machine_of::<Aarch64, Aarch64>(Features { asids: 6, ..Features::ARMV8_0 }));
}

#[test]
fn leaves_of_every_size_have_no_finding() {
    for ranges in [false, true] {
        leaves_are_clean(machine_with::<Aarch64, Aarch64>(Features { ranges, ..LEVELS }, true));
        leaves_are_clean(machine_with::<Aarch64K16, Aarch64K16>(Features { ranges, ..K16 }, true));
        leaves_are_clean(machine_with::<Aarch64K64, Aarch64K64>(Features { ranges, ..K64 }, true));
    }
    leaves_are_clean(machine_with::<Aarch64, Aarch64>(RANGES, true));
}

#[test]
fn random_calls_on_the_kernels_half_have_no_finding() {
    let names = ["dsb ish", "dsb ishst", "isb", "vaae1is"];
    is_clean(&[5], &names, machine_of::<Aarch64, Aarch64Upper>(Features::ARMV8_0));
}

#[test]
fn an_instruction_that_is_left_out_is_found() {
    for left_out in
        ["vae1is", "vale1is", "vale1", "aside1is", "vmalle1", "dsb ishst", "dsb ish", "isb", "msr ttbr0_el1"]
    {
        is_found(5, left_out, machine_of::<Aarch64, Aarch64>(Features::ARMV8_0));
    }
    for left_out in ["rvae1is", "rvale1is"] {
        is_found(5, left_out, machine_of::<Aarch64, Aarch64>(RANGES));
    }
    is_found(0, "aside1", machine_of::<Aarch64, Aarch64>(Features::ARMV8_0));
    for left_out in ["vaae1is", "dsb ishst", "dsb ish"] {
        is_found(5, left_out, machine_of::<Aarch64, Aarch64Upper>(Features::ARMV8_0));
    }
}

/// A CPU may ignore ranges in another granule than the tables'.
#[test]
fn a_granule_that_is_not_the_tables_is_found() {
    let found = |features: Features| {
        (1..20).any(|seed| {
            let machine = Machine { cpus: 2, asids: 5, left_out: "" };
            machine_of::<Aarch64K16, Aarch64K16>(features)(seed, machine).findings > 0
        })
    };
    assert!(!found(K16));
    assert!(found(Features { granule: Granule::K64, ..RANGES }), "ranges");
    // No leaf of tables of that granule has the size of these pages: no level is named.
    assert!(!found(Features { granule: Granule::K64, ranges: false, ..LEVELS }));
    // Pages larger than the granule that is named are told one by one.
    assert!(!found(Features { granule: Granule::K4, ..RANGES }));
}

/// Logs the cleaning of code.
struct Log {
    ctr: u64,
    log: Mutex<Vec<String>>,
}

// SAFETY: No CPU has any translation, nor any instruction.
unsafe impl Instructions for &Log {
    fn tlbi(&self, _: &Pinned<'_>, _: Op, _: u64) {}
    fn barrier(&self, _: &Pinned<'_>, barrier: Barrier) {
        self.log.lock().unwrap().push(format!("{barrier:?}"));
    }
    fn ttbr0(&self, _: &Pinned<'_>) -> u64 {
        0
    }
    unsafe fn load_ttbr0(&self, _: &Pinned<'_>, _: u64) {}
    fn ctr(&self, _: &Pinned<'_>) -> u64 {
        self.ctr
    }
    unsafe fn dc_cvau(&self, _: &Pinned<'_>, at: *const u8) {
        self.log.lock().unwrap().push(format!("{:#x}", at.addr()));
    }
    fn ic_ialluis(&self, _: &Pinned<'_>) {
        self.log.lock().unwrap().push("ic ialluis".to_owned());
    }
}

#[test]
fn code_is_cleaned_line_by_line_and_then_fetched_anew() {
    let host = crate::driver::host::<Aarch64>(1);
    let slots = host.slots();
    let pin = slots[0].pin();
    let executed = |ctr, at: usize, bytes| {
        let log = Log { ctr, log: Mutex::default() };
        // SAFETY: 1. No CPU has any translation.
        let mmu = unsafe { Tlbi::<Aarch64, _, _>::with_features(NoIpi, &log, Features::ARMV8_0) };
        // SAFETY: 1. No byte is read.
        unsafe { mmu.clean_code(&pin, std::ptr::without_provenance(at), bytes) };
        mmu.invalidate_code(&pin);
        std::mem::take(&mut *log.log.lock().unwrap()).join(" ")
    };
    // Lines of 64 bytes.
    let fetched = "DsbIsh ic ialluis DsbIsh Isb";
    assert_eq!(executed(4 << 16, 0x1000, 192), format!("0x1000 0x1040 0x1080 {fetched}"));
    // From the middle of a line to the middle of another.
    assert_eq!(executed(4 << 16, 0x1030, 80), format!("0x1030 0x1040 {fetched}"));
    assert_eq!(executed(4 << 16, 0x1030, 0), fetched);
    // Caches that need no cleaning.
    assert_eq!(executed(1 << 28 | 4 << 16, 0x1000, 192), fetched);
    assert_eq!(executed(1 << 29 | 4 << 16, 0x1000, 64), "0x1000 DsbIsh Isb");
}
