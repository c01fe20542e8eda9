//! On boards with one CPU: several processes.

use crate::abi::{self, Word};
use crate::arch::{self, call};
use crate::common::{self, alone, exit, processes};

/// A place for a process's own pages: on both sides of a border of leaf tables.
pub const OWN: Word = if cfg!(target_arch = "loongarch64") { 0x1f60_0000 } else { 0x2000_0000 };

/// The first code. The kernel has set the stack up and says how often, and a number that tells
/// processes apart.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".entry")]
extern "C" fn start(rounds: Word, seed: Word) -> ! {
    alone();
    processes(seed, |seed| {
        for round in 0..rounds {
            common::round(seed, round);
            arch::round(seed, round);
        }
    });
    exit(0)
}

/// Others may run first.
pub fn between() {
    call(abi::GIVE_WAY, 0, 0, 0);
}

/// The child of a fork begins: it need not wait.
pub fn child_begins(_: bool) {}

/// The parent has written.
pub fn parent_wrote(_: Word) {}

/// Pages of a process that may be read, and not jumped into: none that is tried. QEMU 7.2 reads the
/// instruction of LoongArch at which such an exception happens, for `BADI`, and never ends; the MMU
/// of PowerPC has no permission for instructions of a page's own.
pub fn jumped_into() -> &'static [Word] {
    &[]
}
