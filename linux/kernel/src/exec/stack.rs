//! The stack that a program begins with: arguments, environment, auxiliary vector.

use ptarmigan::addr::{FRAME_SIZE, VirtRange};
use ptarmigan::machine::On;

use super::arguments::Arguments;
use crate::arch::Arch;
use crate::errno::Errno;
use crate::memory::{Machine, TaskSpace};

/// The facts about the program in the auxiliary vector.
pub struct ProgramFacts {
    /// Where the headers of its segments are in memory.
    pub headers: u64,
    /// Bytes of each.
    pub header_size: usize,
    /// How many.
    pub header_count: usize,
    /// How far its interpreter was moved; 0 without one.
    pub interpreter: u64,
    /// Where it begins.
    pub entry: u64,
}

/// Pairs of the auxiliary vector.
const PAIRS: usize = 15;
/// Words besides the texts' addresses: the count, two zeroes, the auxiliary vector.
const WORDS: usize = 3 + 2 * PAIRS;
/// Bytes above the texts: the random ones, and the machine's name.
const TOP: usize = 16 + 16;

/// Returns the pages that the stack of a program needs at its beginning.
pub fn pages(arguments: &Arguments) -> u64 {
    let words = WORDS + arguments.arguments + arguments.environment;
    (TOP + arguments.total() + words * 8 + 64).div_ceil(FRAME_SIZE) as u64
}

/// Returns where the pages of a new stack begin.
pub fn begins_at<A: Arch>(arguments: &Arguments) -> u64 {
    A::STACK_END - pages(arguments) * FRAME_SIZE as u64
}

/// Words that are written one after the other.
struct Words<'a, 'm, A: Arch> {
    on: On<'m, Machine<A>>,
    space: &'a mut TaskSpace<A>,
    at: u64,
    bytes: [u8; 256],
    len: usize,
}

impl<A: Arch> Words<'_, '_, A> {
    fn put(&mut self, word: u64) -> Result<(), Errno> {
        let size = A::ABI.word();
        if self.len + size > self.bytes.len() {
            self.flush()?;
        }
        self.bytes[self.len..self.len + size].copy_from_slice(&word.to_le_bytes()[..size]);
        self.len += size;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Errno> {
        self.space.write(self.on, self.at, &self.bytes[..self.len])?;
        self.at += self.len as u64;
        self.len = 0;
        Ok(())
    }
}

/// Returns where the texts of the arguments are in memory.
pub fn arguments_at<A: Arch>(arguments: &Arguments) -> VirtRange {
    let start = A::STACK_END - (TOP + arguments.total()) as u64;
    VirtRange::saturating_pages(start, arguments.argument_bytes() as u64, 0)
}

/// Writes the stack; returns the stack pointer.
///
/// # Errors
///
/// [`Errno::ENOMEM`], [`Errno::EFAULT`] if it does not fit.
pub fn write<A: Arch>(
    on: On<'_, Machine<A>>,
    space: &mut TaskSpace<A>,
    arguments: &Arguments,
    facts: &ProgramFacts,
) -> Result<u64, Errno> {
    let word = A::ABI.word();
    let top = A::STACK_END - TOP as u64;
    let (random, name) = (top, top + 16);
    // Not random: runs are to be alike. Stack protectors take them as they are.
    let mut bytes = [0; TOP];
    for (i, byte) in bytes[..16].iter_mut().enumerate() {
        *byte = (i as u8).wrapping_mul(0x9d) ^ 0x5a;
    }
    let machine = A::MACHINE.as_bytes();
    let n = machine.len().min(15);
    bytes[16..16 + n].copy_from_slice(&machine[..n]);
    space.write(on, top, &bytes)?;
    let texts_at = top - arguments.total() as u64;
    let mut at = texts_at;
    arguments.each(A::kernel(), |bytes| {
        space.write(on, at, bytes)?;
        at += bytes.len() as u64;
        Ok(())
    })?;

    let words = WORDS + arguments.arguments + arguments.environment;
    let stack = (texts_at - (words * word) as u64) & !15;
    let mut out = Words::<A> { on, space, at: stack, bytes: [0; 256], len: 0 };
    out.put(arguments.arguments as u64)?;
    let (mut at, mut count, mut begins) = (texts_at, 0, true);
    arguments.each(A::kernel(), |bytes| {
        for part in bytes.split_inclusive(|byte| *byte == 0) {
            if begins {
                if count == arguments.arguments {
                    out.put(0)?;
                }
                out.put(at)?;
                count += 1;
            }
            at += part.len() as u64;
            begins = part.ends_with(&[0]);
        }
        Ok(())
    })?;
    if count == arguments.arguments {
        out.put(0)?;
    }
    out.put(0)?;
    let pairs: [(u64, u64); PAIRS] = [
        (3, facts.headers),
        (4, facts.header_size as u64),
        (5, facts.header_count as u64),
        (6, FRAME_SIZE as u64),
        (7, facts.interpreter),
        (8, 0),
        (9, facts.entry),
        (11, 0),
        (12, 0),
        (13, 0),
        (14, 0),
        (15, name),
        (16, A::ABI.capabilities()),
        (25, random),
        (0, 0),
    ];
    for (key, value) in pairs {
        out.put(key)?;
        out.put(value)?;
    }
    out.flush()?;
    Ok(stack)
}
