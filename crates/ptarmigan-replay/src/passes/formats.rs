//! The machines that only builds with the feature `formats` have, some of them with larger pages.
//! Each takes as long to compile as one of the others.
use super::machine::PassMachine;
use crate::arch::MachineName;
use crate::args::ReplayArgs;
use crate::input::trace::Trace;
use crate::linux::PAGE;
use crate::platform::{Direct, Walked};
use ptarmigan::format::{
    Aarch64, Aarch64K16, Aarch64K64, Format, I386, Ia64, LoongArch64, Sparc64, Sv32, Sv39, Sv48, Sv57,
    X86_64, X86_64La57,
};
use ptarmigan::params::UserPte;
use ptarmigan_ptsan::{Broadcasting, Fencing, Interrupting, MmuTraits, Refilled, Watchable};
use ptarmigan_term::{Bytes, Failure};

/// Pages and levels of the machines that count tables while they are recorded: only tables of such
/// machines are compared with Linux's.
const RECORDED: (u32, u8) = (X86_64::PAGE_SHIFT, X86_64::LAYOUT.levels);

/// Rounds a trace to the pages of a machine, if these are larger than recorded ones. Returns their
/// size in bytes then.
///
/// # Errors
/// If the machine is to have high memory, and its pages are larger.
pub(super) fn round(
    trace: &mut Trace,
    machine: &dyn PassMachine,
    args: &ReplayArgs,
) -> Result<Option<u64>, Failure> {
    let (page_shift, levels) = machine.pages_and_levels();
    if page_shift > PAGE && args.high.low.is_some() {
        return Err(Failure::new(format!(
            "--low: pages of this machine have {} KiB, and windows on high memory show {}",
            Bytes(1 << page_shift).kib(),
            Bytes(1 << PAGE).kib()
        )));
    }
    let rounded = trace.round(page_shift);
    if (page_shift, levels) != RECORDED {
        trace.leave_counts_out();
    }
    Ok(rounded)
}

/// Makes a machine with `memory` bytes. `userpte` places the leaf tables of `i386`. `name` is a
/// machine that some builds lack.
///
/// # Errors
/// If the machine cannot have so much memory.
pub(super) fn machine(
    name: MachineName,
    userpte: UserPte,
    memory: u64,
) -> Result<Box<dyn PassMachine>, Failure> {
    match name {
        MachineName::I386 => Ok(Box::new(Walked::<I386, _>::small_with(userpte, memory, 4 << 30)?)),
        MachineName::X86_64La57 => direct::<X86_64La57, Interrupting>(memory),
        MachineName::Sv32 => direct::<Sv32, Fencing>(memory),
        MachineName::Sv39 => direct::<Sv39, Fencing>(memory),
        MachineName::Sv48 => direct::<Sv48, Fencing>(memory),
        MachineName::Sv57 => direct::<Sv57, Fencing>(memory),
        MachineName::Aarch64K4 => direct::<Aarch64, Broadcasting>(memory),
        MachineName::Aarch64K16 => direct::<Aarch64K16, Broadcasting>(memory),
        MachineName::Aarch64K64 => direct::<Aarch64K64, Broadcasting>(memory),
        MachineName::LoongArch64 => direct::<LoongArch64, Refilled>(memory),
        MachineName::Ia64 => direct::<Ia64, Refilled>(memory),
        MachineName::Sparc64 => direct::<Sparc64, Refilled>(memory),
        MachineName::X86_64 | MachineName::I386Pae | MachineName::Ppc32 => {
            Err(Failure::new("this machine is not one of these"))
        }
    }
}

fn direct<F: Watchable, M: MmuTraits>(memory: u64) -> Result<Box<dyn PassMachine>, Failure> {
    Ok(Box::new(Direct::<F, M>::with(memory)?))
}
