//! One privileged instruction: the fault sends the thread to a breakpoint, and the handler of that,
//! which runs on the thread's own stack, carries the instruction out.
use super::control::Refusal;
use super::decode::{self, Instruction, InstructionEffect, Operand, Segment};
use super::effect::Effect;
use super::escape::{self, End, KernelRun, Pending};
use super::lock::{self, WatchLock};
use super::ram::PAGE;
use super::region::{Region, Subject};
use super::registers::{self, Registers};
use crate::watch::Error;
use crate::watch::error::Code;
use std::arch::naked_asm;
use std::ptr::with_exposed_provenance;

/// The exceptions, in the register of the signal frame.
const INVALID_OPCODE: i64 = 6;
const GENERAL_PROTECTION: i64 = 13;

/// The low half of a register.
const LOW: u64 = 0xffff_ffff;

/// A breakpoint. It is never called: a signal handler sends a thread here.
///
/// # Safety
/// Must not be called: it does not return.
#[unsafe(naked)]
unsafe extern "C" fn breakpoint() {
    naked_asm!("int3", "ud2")
}

/// Takes over an instruction that the processor refused. Returns whether it is one of a run of
/// kernel code.
pub(super) fn fault(info: &libc::siginfo_t, at: &mut Registers) -> bool {
    let exception = at.get(libc::REG_TRAPNO);
    if !matches!(exception, INVALID_OPCODE | GENERAL_PROTECTION) || info.si_code <= 0 {
        return false;
    }
    let taken = escape::current(|run| {
        if lock::is_mine() {
            registers::say("ptsan: a privileged instruction inside `Watch::with` or a callback\n");
            return false;
        }
        let mask = at.mask();
        run.pending.set(Some(Pending { rip: at.get(libc::REG_RIP), exception, mask }));
        at.set_mask(registers::mask_of_one_instruction(mask));
        at.set(libc::REG_RIP, breakpoint as *const () as i64);
        true
    });
    taken.unwrap_or(false)
}

/// Carries the instruction out. Returns whether the trap was that of [`fault`].
pub(super) fn trap(at: &mut Registers) -> bool {
    if at.get(libc::REG_RIP) != breakpoint as *const () as i64 + 1 {
        return false;
    }
    let taken = escape::current(|run| {
        let Some(pending) = run.pending.take() else { return false };
        at.set_mask(pending.mask);
        // Backtraces of findings see the thread inside the instruction: see `step::trap`.
        at.set(libc::REG_RIP, pending.rip + 1);
        match carry_out(run, pending, at) {
            Ok(next) => at.set(libc::REG_RIP, next as i64),
            Err(end) => run.leave(end, at),
        }
        true
    });
    taken.unwrap_or(false)
}

/// Carries out an instruction. Returns the address of the next one.
fn carry_out(run: &KernelRun, pending: Pending, at: &mut Registers) -> Result<usize, End> {
    let rip = pending.rip as usize;
    let refused = |length, Refusal { why, value }: Refusal| {
        End::Refused(Error::Instruction { rip, code: code(rip, length), why, value })
    };
    let mut address = rip;
    let decoded = decode::decode(|| {
        // SAFETY: the processor has fetched the instruction, and no byte behind its end is asked
        // for.
        let byte = unsafe { with_exposed_provenance::<u8>(address).read_volatile() };
        address += 1;
        byte
    });
    let Some(instruction) = decoded else {
        let why = match pending.exception {
            INVALID_OPCODE => "is invalid in a program, and is not emulated",
            _ => "raised a general-protection fault, and is not emulated",
        };
        return Err(refused(decode::LONGEST, Refusal { why, value: None }));
    };
    if instruction.operation == InstructionEffect::Halt {
        return Err(End::Halt(rip));
    }
    let next = rip + instruction.length;
    // An operand that cannot be read faults here, before the lock is taken.
    let arguments = Arguments::of(instruction, at, next as u64);
    let held = WatchLock::new();
    // SAFETY: the caller of `run_on` keeps the watch, and with it the region.
    let region: &Region = unsafe { &*run.region };
    // SAFETY: the lock is held until the end of this function. `fault` saw to it that this thread
    // did not hold it before, so nobody has the subject.
    let done = unsafe {
        region.deliver(true);
        region.with(|subject| apply(subject, region, run.cpu, rip, arguments, at))
    };
    drop(held);
    done.unwrap_or(Ok(())).map_err(|refusal| refused(instruction.length, refusal))?;
    Ok(next)
}

/// An instruction with the values of its operands.
enum Arguments {
    InvalidatePage { va: u64 },
    InvalidateContext { kind: u64, pcid: u64, va: u64 },
    ReadControl { control: u8, into: u8 },
    WriteControl { control: u8, value: u64 },
    ReadModelSpecific { number: u32 },
    WriteModelSpecific { number: u32, value: u64 },
    Nothing,
}

impl Arguments {
    fn of(instruction: Instruction, at: &Registers, next: u64) -> Self {
        let address = |operand: Operand| {
            let segment = match operand.segment {
                Segment::Flat => 0,
                Segment::Fs => registers::segment(registers::ARCH_GET_FS),
                Segment::Gs => registers::segment(registers::ARCH_GET_GS),
            };
            operand.address(|r| at.general(r), next, segment)
        };
        match instruction.operation {
            InstructionEffect::InvalidatePage(operand) => Self::InvalidatePage { va: address(operand) },
            InstructionEffect::InvalidateContext { kind, descriptor } => {
                let descriptor = with_exposed_provenance::<[u64; 2]>(address(descriptor) as usize);
                // SAFETY: the code under test gave the address for the processor to read 16 bytes
                // there. If it cannot be read, that is a page fault, as it would be there.
                let [pcid, va] = unsafe { descriptor.read_unaligned() };
                Self::InvalidateContext { kind: at.general(kind), pcid, va }
            }
            InstructionEffect::ReadControl { control, into } => Self::ReadControl { control, into },
            InstructionEffect::WriteControl { control, from } => {
                Self::WriteControl { control, value: at.general(from) }
            }
            InstructionEffect::ReadModelSpecific => Self::ReadModelSpecific { number: at.general(1) as u32 },
            InstructionEffect::WriteModelSpecific => Self::WriteModelSpecific {
                number: at.general(1) as u32,
                value: at.general(2) << 32 | at.general(0) & LOW,
            },
            InstructionEffect::Halt | InstructionEffect::Nothing => Self::Nothing,
        }
    }
}

/// Applies an instruction to the registers of its CPU, tells the sanitizer, and stores its result.
fn apply(
    subject: &mut Subject,
    region: &Region,
    cpu: usize,
    rip: usize,
    arguments: Arguments,
    at: &mut Registers,
) -> Result<(), Refusal> {
    let loaded = subject.san.cpus.get(cpu).and_then(|c| c.loaded);
    let Some(control) = subject.controls.get_mut(cpu) else { return Ok(()) };
    if let Some(loaded) = loaded {
        control.follow(loaded.root);
    }
    let effect = match arguments {
        Arguments::InvalidatePage { va } => Effect::FlushPage { va },
        Arguments::InvalidateContext { kind, pcid, va } => control.invalidate(kind, pcid, va)?,
        Arguments::ReadControl { control: number, into } => {
            at.set_general(into, control.read(number)?);
            Effect::None
        }
        Arguments::WriteControl { control: number, value } => control.write(number, value)?,
        Arguments::ReadModelSpecific { number } => {
            let value = control.read_specific(number)?;
            at.set_general(0, value & LOW);
            at.set_general(2, value >> 32);
            Effect::None
        }
        Arguments::WriteModelSpecific { number, value } => {
            control.write_specific(number, value)?;
            Effect::None
        }
        Arguments::Nothing => Effect::None,
    };
    subject.carried_out(&region.ram, cpu, rip, effect);
    Ok(())
}

/// Returns `length` bytes at `rip`. The bytes behind the end of the page may not be there, so they
/// are left out.
fn code(rip: usize, length: usize) -> Code {
    let here = (PAGE - rip % PAGE).min(length).min(decode::LONGEST);
    let mut bytes = [0; decode::LONGEST];
    for (i, byte) in bytes[..here].iter_mut().enumerate() {
        // SAFETY: the processor has fetched an instruction that begins at `rip`, so that page can
        // be read.
        *byte = unsafe { with_exposed_provenance::<u8>(rip + i).read_volatile() };
    }
    Code::new(bytes, here)
}
