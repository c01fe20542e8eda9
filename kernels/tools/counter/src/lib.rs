//! A plugin of QEMU that counts a guest's operations between marks: instructions of programs and of
//! the kernel, pages that the kernel clears and copies and by which instructions, pages that the
//! TLB is told to forget, roots that are loaded. Neither guest knows of it, so that two kernels are
//! counted alike.
//!
//! ```text
//! qemu-system-x86_64 -icount shift=0 -smp 1 -plugin libkernel_counter.so,kernel=0xffff800000000000,out=counts ...
//! ```
//!
//! A mark is an instruction without effect, on x86 `nopl` with the displacement `0x50544100 + 2 *
//! case` where a case begins and one more where it ends. With `isa=aarch64` it is a `movz` of
//! `0x5400 + 2 * case` to the register of zeroes. The mark of case [`REPORT`] writes the counts.
//! With `profile=CASE` it also writes how often each instruction of the kernel was executed in that
//! case. With `groups=FILE` it counts the kernel's instructions by group, too: a line of the file
//! is a first address, the address behind the last, both in hexadecimal, and the number of a group.
//! With `caches=on` it also models caches ([`caches`]), for data and instructions of programs and
//! of the kernel. One CPU only.

// Tests are not linked with QEMU, which calls most of this.
#![cfg_attr(test, allow(dead_code))]

pub mod caches;
mod groups;
pub mod pages;
#[cfg(not(test))]
mod plugin;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock};

use caches::Caches;
use pages::{BY, By, PageWatch, Written};

/// Cases that there may be.
pub const CASES: usize = 64;
/// The case whose mark asks for the counts.
pub const REPORT: usize = CASES - 1;
/// The mark's displacement, without the case.
const MARK: u32 = 0x5054_4100;

// Counters to which the guest's translated code adds by itself.
static PROGRAMS: AtomicU64 = AtomicU64::new(0);
static KERNEL: AtomicU64 = AtomicU64::new(0);
static FORGOTTEN: AtomicU64 = AtomicU64::new(0);
static ROOTS: AtomicU64 = AtomicU64::new(0);
static ZEROED: AtomicU64 = AtomicU64::new(0);

/// `dc zva` of a page: each clears 64 bytes.
const ZEROED_A_PAGE: u64 = 64;
/// Instructions for each `dc zva`, in the loops of both kernels.
const ZEROING: u64 = 4;

/// The guest executes A64 instructions, not those of x86.
static IS_A64: AtomicBool = AtomicBool::new(false);
/// The first address of the kernel.
static KERNEL_START: AtomicU64 = AtomicU64::new(u64::MAX);
/// A case has begun: before, no access is followed.
static BEGUN: AtomicBool = AtomicBool::new(false);
/// The file that the counts are written to.
static OUT: OnceLock<String> = OnceLock::new();
/// The case whose instructions are counted one by one.
static PROFILED: OnceLock<usize> = OnceLock::new();
/// Each instruction of the kernel that has been translated while there is such a case: its address,
/// and how often it was executed.
static INSTRUCTIONS: Mutex<BTreeMap<u64, &'static AtomicU64>> = Mutex::new(BTreeMap::new());

/// The counts, at one moment or between two: instructions of programs and of the kernel, pages that
/// the TLB was told to forget, roots loaded, instructions that wrote pages; then, for each of
/// [`BY`], pages cleared and pages copied; then misses of modelled caches; then instructions by
/// group, if there are groups.
type CountVector = Vec<u64>;

#[derive(Default)]
struct MarkedCase {
    times: u64,
    begun: Option<CountVector>,
    sum: CountVector,
}

struct InstructionCounter {
    pages: PageWatch,
    written: Written,
    caches: Caches,
    cases: Vec<MarkedCase>,
    /// Of the case that is profiled: where instructions are, how often each was executed before.
    before: BTreeMap<u64, u64>,
    profile: BTreeMap<u64, u64>,
}

impl Default for InstructionCounter {
    fn default() -> Self {
        InstructionCounter {
            pages: PageWatch::default(),
            written: Written::default(),
            caches: Caches::default(),
            cases: (0..CASES).map(|_| MarkedCase::default()).collect(),
            before: BTreeMap::new(),
            profile: BTreeMap::new(),
        }
    }
}

thread_local! {
    // QEMU calls from the thread of its one CPU.
    static COUNTER: RefCell<InstructionCounter> = RefCell::default();
}

impl InstructionCounter {
    fn now(&self) -> CountVector {
        let Written { mut cleared, copied, instructions } = self.written;
        let zeroed = ZEROED.load(Relaxed);
        cleared[By::Zeroes as usize] = zeroed / ZEROED_A_PAGE;
        let instructions = instructions + zeroed * ZEROING;
        let counted = [&PROGRAMS, &KERNEL, &FORGOTTEN, &ROOTS].map(|count| count.load(Relaxed));
        let pages = (0..BY.len()).flat_map(|by| [cleared[by], copied[by]]);
        let counted = counted.into_iter().chain([instructions]).chain(pages);
        counted.chain(self.caches.misses).chain(groups::counts()).collect()
    }

    fn mark(&mut self, case: usize, ends: bool) {
        if case == REPORT {
            return self.report();
        }
        BEGUN.store(true, Relaxed);
        if PROFILED.get() == Some(&case) {
            self.profile(ends);
        }
        let now = self.now();
        let case = &mut self.cases[case];
        if !ends {
            case.begun = Some(now);
        } else if let Some(begun) = case.begun.take() {
            case.times += 1;
            case.sum.resize(now.len(), 0);
            let spans = now.iter().zip(begun).map(|(to, from)| to - from);
            case.sum.iter_mut().zip(spans).for_each(|(sum, span)| *sum += span);
        }
    }

    /// Adds the instructions executed since the case began, or begins.
    fn profile(&mut self, ends: bool) {
        let counts = instructions();
        if !ends {
            self.before = counts.iter().map(|(at, count)| (*at, count.load(Relaxed))).collect();
            return;
        }
        for (at, count) in counts.iter() {
            let executed = count.load(Relaxed) - self.before.get(at).copied().unwrap_or(0);
            if executed > 0 {
                *self.profile.entry(*at).or_default() += executed;
            }
        }
    }

    /// Writes a line for each case: its number, how often it was counted, and the sums.
    fn report(&self) {
        let mut text = String::new();
        for (number, case) in self.cases.iter().enumerate().filter(|(_, case)| case.times > 0) {
            let counts: String = case.sum.iter().map(|count| format!(" {count}")).collect();
            let _ = writeln!(text, "{number} {}{counts}", case.times);
        }
        for (at, count) in &self.profile {
            let _ = writeln!(text, "at {at:x} {count}");
        }
        let Some(out) = OUT.get() else { return };
        if let Err(e) = std::fs::write(out, text) {
            eprintln!("kernel-counter: cannot write {out}: {e}");
        }
    }
}

fn instructions() -> MutexGuard<'static, BTreeMap<u64, &'static AtomicU64>> {
    INSTRUCTIONS.lock().unwrap_or_else(|e| e.into_inner())
}

/// Returns the count of the instruction at an address. Translated code adds to it for good.
fn count_of(at: u64) -> &'static AtomicU64 {
    instructions().entry(at).or_insert_with(|| Box::leak(Box::new(AtomicU64::new(0))))
}

/// The kind of an instruction, as far as it is counted by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InstructionKind {
    Mark(usize),
    RepStos,
    RepMovs,
    ForgetsPage,
    LoadsRoot,
    Zeroes,
    Other,
}

/// Tells the kind of an A64 instruction (Arm ARM, "A64 instruction set encoding").
fn kind_a64(bytes: &[u8]) -> InstructionKind {
    let Some(word) = bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes)) else {
        return InstructionKind::Other;
    };
    let number = (word >> 5 & 0xffff).wrapping_sub(0x5400) as usize;
    match word {
        _ if word & 0xffe0_001f == 0xd280_001f && number < 2 * CASES => InstructionKind::Mark(number),
        // TLBI of EL1: those of a page or a range have an odd last operand.
        _ if word & 0xffff_f000 == 0xd508_8000 && word >> 5 & 1 != 0 => InstructionKind::ForgetsPage,
        _ if word & !0x1f == 0xd518_2000 => InstructionKind::LoadsRoot,
        _ if word & !0x1f == 0xd50b_7420 => InstructionKind::Zeroes,
        _ => InstructionKind::Other,
    }
}

/// Tells the kind of an x86 instruction from its bytes (the processor's manual, volume 2).
fn kind_x86(bytes: &[u8]) -> InstructionKind {
    let mut rest = bytes;
    let mut repeats = false;
    while let [first, after @ ..] = rest {
        match first {
            0xf3 => repeats = true,
            // Segments and sizes; then a prefix that only 64-bit code has, next to the opcode.
            0x2e | 0x36 | 0x3e | 0x26 | 0x64..=0x67 => {}
            0x40..=0x4f if matches!(after, [0xaa | 0xab | 0xa4 | 0xa5 | 0x0f, ..]) => {}
            _ => break,
        }
        rest = after;
    }
    match rest {
        [0x0f, 0x1f, 0x80, mark @ ..] if mark.len() == 4 => {
            let mark = mark.iter().rev().fold(0, |all, byte| all << 8 | u32::from(*byte));
            let number = mark.wrapping_sub(MARK) as usize;
            if number < 2 * CASES { InstructionKind::Mark(number) } else { InstructionKind::Other }
        }
        [0xaa | 0xab, ..] if repeats => InstructionKind::RepStos,
        [0xa4 | 0xa5, ..] if repeats => InstructionKind::RepMovs,
        [0x0f, 0x01, modrm, ..] if modrm & 0xc0 != 0xc0 && modrm >> 3 & 7 == 7 => {
            InstructionKind::ForgetsPage
        }
        [0x0f, 0x22, modrm, ..] if modrm >> 3 & 7 == 3 => InstructionKind::LoadsRoot,
        _ => InstructionKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_told_by_their_bytes() {
        for (bytes, expected) in [
            (&[0xf3, 0x48, 0xab][..], InstructionKind::RepStos),
            (&[0xf3, 0xab], InstructionKind::RepStos),
            (&[0xf3, 0xa4], InstructionKind::RepMovs),
            (&[0xf3, 0x48, 0xa5], InstructionKind::RepMovs),
            (&[0xab], InstructionKind::Other),
            (&[0x0f, 0x01, 0x38], InstructionKind::ForgetsPage),
            (&[0x0f, 0x01, 0xf8], InstructionKind::Other), // swapgs
            (&[0x0f, 0x22, 0xd8], InstructionKind::LoadsRoot),
            (&[0x41, 0x0f, 0x22, 0xdc], InstructionKind::LoadsRoot),
            (&[0x0f, 0x22, 0xe0], InstructionKind::Other), // cr4
            (&[0x0f, 0x1f, 0x80, 0x03, 0x41, 0x54, 0x50], InstructionKind::Mark(3)),
            (&[0x0f, 0x1f, 0x80, 0, 0, 0, 0], InstructionKind::Other),
            (&[], InstructionKind::Other),
        ] {
            assert_eq!(kind_x86(bytes), expected, "{bytes:02x?}");
        }
        for (word, expected) in [
            (0xd28a_807f_u32, InstructionKind::Mark(3)),
            (0xd28a_8060, InstructionKind::Other), // another register
            (0xd28b_801f, InstructionKind::Other), // another number
            (0xd508_83a0, InstructionKind::ForgetsPage), // vale1is
            (0xd508_8720, InstructionKind::ForgetsPage), // vae1
            (0xd508_8340, InstructionKind::Other), // aside1is
            (0xd508_831f, InstructionKind::Other), // vmalle1is
            (0xd518_2001, InstructionKind::LoadsRoot),
            (0xd518_2021, InstructionKind::Other), // ttbr1
            (0xd50b_7421, InstructionKind::Zeroes),
            (0xd503_201f, InstructionKind::Other), // nop
        ] {
            assert_eq!(kind_a64(&word.to_le_bytes()), expected, "{word:08x}");
        }
    }
}
