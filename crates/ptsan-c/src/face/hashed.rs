//! The hooks of machines whose CPUs look pages up in a hash table.
use crate::error::Refusal;
use crate::handles::{Ptsan, call, hook};
use ptsan::{HashLayout, HashTable};

/// How the entries of a hash table are laid out, big-endian.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PtsanHashLayout {
    /// Entries of 8 bytes in groups of 64, at least 64 KiB (604, 750).
    Bits32 = 1,
    /// Entries of 16 bytes in groups of 128, at least 256 KiB (POWER3).
    Bits64 = 2,
}

/// Tells that the CPUs look pages up in the hash table of `bytes` bytes at `phys`, a multiple of
/// its size, from now on. `layout` is an `enum ptsan_hash_layout`. For `PTSAN_ARCH_POWERPC`.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_hash_table(san: *mut Ptsan, phys: u64, bytes: u64, layout: u32) -> i32 {
    hook("ptsan_hash_table", san, |machine| {
        let layout = match layout {
            l if l == PtsanHashLayout::Bits32 as u32 => HashLayout::Bits32,
            l if l == PtsanHashLayout::Bits64 as u32 => HashLayout::Bits64,
            l => return Err(Refusal::argument(format!("layout {l}; see enum ptsan_hash_layout"))),
        };
        machine.check(|s, memory| s.hash_table(memory, HashTable { phys, bytes, layout }));
        Ok(())
    })
}

/// Tells which virtual segments (VSIDs) a space has, whose tree has its root at `root`: 16 numbers
/// at `vsids`. Call it before the space is loaded, and again when its segments change.
///
/// # Safety
/// `vsids` is NULL, which is refused, or points at 16 numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ptsan_segments(san: *mut Ptsan, space: u64, root: u64, vsids: *const u64) -> i32 {
    hook("ptsan_segments", san, |machine| {
        if vsids.is_null() {
            return Err(Refusal::argument("the segments are NULL; give 16 numbers"));
        }
        // SAFETY: it is not NULL, and the caller promises the rest. No alignment is needed.
        let vsids = unsafe { vsids.cast::<[u64; 16]>().read_unaligned() };
        machine.check(|s, _| s.segments(space, root, vsids));
        Ok(())
    })
}

/// Tells that the entry of the hash table that holds the byte at `phys` was stored to. Optional:
/// without it, an entry of the hash table is checked when a CPU finds it.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_hash_written(san: *mut Ptsan, phys: u64) -> i32 {
    hook("ptsan_hash_written", san, |machine| {
        machine.check(|s, memory| s.hash_written(memory, phys));
        Ok(())
    })
}

/// Checks all entries of the hash table. Returns how many are valid, or `PTSAN_NONE`. Call it when
/// no flush is under way.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_check_hash_table(san: *mut Ptsan) -> u64 {
    let valid = call("ptsan_check_hash_table", san, |machine| {
        Ok(machine.check(|s, memory| s.check_hash_table(memory)))
    });
    valid.unwrap_or(super::PTSAN_NONE)
}
