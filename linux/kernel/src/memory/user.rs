//! The memory of programs, as the kernel reads and writes it.
//!
//! ```text
//!  read, write   page ── query: present, allowed? ── yes ──> window ── bytes
//!                          └─ no ── fault: served ──> query again
//!  futex words   AtomicU32 in the window ── exchange with the program's own CPUs
//! ```
//!
//! # Why
//!
//! Each page is looked up in the program's tables, and a fault is served where they do not allow
//! the access. Then the bytes are reached through a window. So the kernel never faults, and works
//! on spaces that are not loaded, too. Access at the program's own addresses would be faster, and
//! would need a table of the instructions that may fault, which must be complete. Words that
//! threads of the program use meanwhile are read and written as atomics.

use core::sync::atomic::{AtomicU32, Ordering};

use ptarmigan::addr::{FRAME_SIZE, Pfn, VirtAddr};
use ptarmigan::format::{Access, Attr, Format};
use ptarmigan::machine::On;
use ptarmigan::space::{FaultError, SpaceMut};

use super::machine::Machine;
use super::space::TaskSpace;
use crate::arch::Arch;
use crate::errno::Errno;

const PAGE: u64 = FRAME_SIZE as u64;

/// Returns the number that at most 8 bytes of a program are.
pub fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
}

/// Returns the frame in which a program's page is, after the kernel made it present for `access`.
fn frame<A: Arch>(
    space: &mut SpaceMut<'_, A::Format, Machine<A>>,
    at: u64,
    access: Access,
) -> Result<Pfn, Errno> {
    Errno::EFAULT.when(at >= A::Format::USER_END)?;
    let needed = match access {
        Access::Write => Attr::USER | Attr::READ | Attr::WRITE,
        _ => Attr::USER | Attr::READ,
    };
    let page = VirtAddr(at & !(PAGE - 1));
    // A fault that is served leaves the page present: the second look finds it.
    for _ in 0..3 {
        if let Some((pfn, attr)) = space.query(page)
            && attr.has(needed)
        {
            return Ok(pfn);
        }
        match space.fault(VirtAddr(at), access) {
            Ok(done) => A::kernel().count_fault(done),
            Err(FaultError::NoFrame(_)) => return Err(Errno::ENOMEM),
            Err(_) => return Err(Errno::EFAULT),
        }
    }
    Err(Errno::EFAULT)
}

impl<A: Arch> TaskSpace<A> {
    /// Calls `f` for each piece of `len` bytes at `at` that lies in one page, with a pointer to the
    /// piece, where in the whole it begins, and its length.
    ///
    /// # Errors
    ///
    /// [`Errno::EFAULT`] if the program may not do that; [`Errno::ENOMEM`]; the error of `f`.
    /// Pieces before have been passed to `f` then.
    pub fn each_piece(
        &mut self,
        on: On<'_, Machine<A>>,
        at: u64,
        len: usize,
        access: Access,
        mut f: impl FnMut(*mut u8, usize, usize) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        // No other CPU takes a page away between the look at its entry and the last byte.
        self.edit(on, |mut space| {
            let mut done = 0;
            while done < len {
                let here = at.checked_add(done as u64).ok_or(Errno::EFAULT)?;
                let offset = (here % PAGE) as usize;
                let n = (FRAME_SIZE - offset).min(len - done);
                let pfn = frame::<A>(&mut space, here, access)?;
                A::page(on.pin(), pfn, |page| f(page.wrapping_add(offset), done, n))??;
                done += n;
            }
            Ok(())
        })?
    }

    /// Reads bytes of a program.
    ///
    /// # Errors
    ///
    /// As [`each_piece`](Self::each_piece).
    pub fn read(&mut self, on: On<'_, Machine<A>>, at: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        let len = bytes.len();
        self.each_piece(on, at, len, Access::Read, |from, done, n| {
            let Some(to) = bytes.get_mut(done..done + n) else { return Err(Errno::EFAULT) };
            // SAFETY: 1. `from` has `n` bytes of the page that the window shows (`Arch`, point 4);
            // programs that share the page may race with this, as with each other. 2. `to` is
            // memory of the kernel's own, of that length, and no page of a program.
            unsafe { from.copy_to_nonoverlapping(to.as_mut_ptr(), n) };
            Ok(())
        })
    }

    /// Writes bytes of a program.
    ///
    /// # Errors
    ///
    /// As [`each_piece`](Self::each_piece).
    pub fn write(&mut self, on: On<'_, Machine<A>>, at: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.each_piece(on, at, bytes.len(), Access::Write, |to, done, n| {
            let Some(from) = bytes.get(done..done + n) else { return Err(Errno::EFAULT) };
            // SAFETY: 1. `to` has `n` bytes of a page that is the program's to write, as the window
            // shows it (`Arch`, point 4). 2. `from` is memory of the kernel's own, of that length.
            unsafe { to.copy_from_nonoverlapping(from.as_ptr(), n) };
            Ok(())
        })
    }

    /// Changes a word of a program, which other CPUs may change meanwhile; returns the word before.
    /// `f` is called until no other CPU was faster; if it returns `None`, the word stays.
    ///
    /// # Errors
    ///
    /// As [`each_piece`](Self::each_piece), and [`Errno::EINVAL`] if `at` is not aligned.
    pub fn update(
        &mut self,
        on: On<'_, Machine<A>>,
        at: u64,
        f: impl Fn(u32) -> Option<u32>,
    ) -> Result<u32, Errno> {
        Errno::EINVAL.when(!at.is_multiple_of(4))?;
        let mut before = 0;
        self.each_piece(on, at, 4, Access::Write, |word, _, _| {
            // SAFETY: 1. `at`, and with it its place in the page, is aligned to four bytes. 2. The
            // piece is valid for reads and writes while this function runs (`Arch`, point 4): an
            // aligned word lies in one page. 3. Programs change it by atomic instructions, or race
            // with each other; the kernel's own accesses are under the space's lock.
            let word = unsafe { AtomicU32::from_ptr(word.cast()) };
            let updated = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, &f);
            before = updated.unwrap_or_else(|word| word);
            Ok(())
        })?;
        Ok(before)
    }

    /// Clears bytes of a program.
    ///
    /// # Errors
    ///
    /// As [`each_piece`](Self::each_piece).
    pub fn clear(&mut self, on: On<'_, Machine<A>>, at: u64, len: usize) -> Result<(), Errno> {
        self.each_piece(on, at, len, Access::Write, |to, _, n| {
            // SAFETY: 1. As in `write`.
            unsafe { to.write_bytes(0, n) };
            Ok(())
        })
    }

    /// Reads a text that ends with a zero, without it, to the start of `text`; returns its length.
    ///
    /// # Errors
    ///
    /// As [`each_piece`](Self::each_piece), and [`Errno::ENAMETOOLONG`] if `text` is too short for
    /// it and the zero.
    pub fn text(&mut self, on: On<'_, Machine<A>>, at: u64, text: &mut [u8]) -> Result<usize, Errno> {
        let mut done = 0;
        while done < text.len() {
            let here = at.checked_add(done as u64).ok_or(Errno::EFAULT)?;
            let n = (FRAME_SIZE - (here % PAGE) as usize).min(text.len() - done);
            let Some(piece) = text.get_mut(done..done + n) else { break };
            self.read(on, here, piece)?;
            if let Some(end) = piece.iter().position(|byte| *byte == 0) {
                return Ok(done + end);
            }
            done += n;
        }
        Err(Errno::ENAMETOOLONG)
    }
}
