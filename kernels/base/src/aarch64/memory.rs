//! `memcpy` and `memset` of the images, and a check of them: on the host their code does not run.

use core::arch::global_asm;

use crate::{fail, fail_if, say};

global_asm!(include_str!("memory.s"));

unsafe extern "C" {
    fn memcpy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8;
    fn memset(to: *mut u8, byte: i32, bytes: usize) -> *mut u8;
}

/// Sizes that are checked, up to three turns of the longest loop.
const SIZES: usize = 200;
/// Places in a row of 16 bytes that are checked.
const PLACES: [usize; 4] = [0, 1, 6, 8];
/// Bytes around those that are written.
const AROUND: usize = 16;
const BUFFER: usize = AROUND + SIZES + AROUND + 16;

/// Fails the run unless both write what they have to at sizes up to [`SIZES`] bytes, and nothing
/// around it.
pub fn check() {
    let source: [u8; BUFFER] = core::array::from_fn(|at| (at % 251) as u8 | 1);
    for (bytes, at) in (0..SIZES).flat_map(|bytes| PLACES.map(|at| (bytes, AROUND + at))) {
        for from in PLACES {
            let mut target = [0; BUFFER];
            // SAFETY: Both have `bytes` bytes from there on, and they are not the same memory.
            let returned = unsafe { memcpy(target[at..].as_mut_ptr(), source[from..].as_ptr(), bytes) };
            fail_if(
                returned != target[at..].as_mut_ptr(),
                format_args!("memcpy of {bytes} bytes does not return its target"),
            );
            let is_as = |n: usize| if n < bytes { source[from + n] } else { 0 };
            compare("memcpy", bytes, &target, at, is_as);
        }
        let mut target = [0; BUFFER];
        // SAFETY: It has `bytes` bytes from there on.
        unsafe { memset(target[at..].as_mut_ptr(), 0x1a5, bytes) };
        compare("memset", bytes, &target, at, |n| if n < bytes { 0xa5 } else { 0 });
    }
    say!("memory: copied and filled, up to {SIZES} bytes");
}

/// Fails the run unless the bytes from `at` on are those that `wanted` returns, and those before it
/// are zero.
fn compare(what: &str, bytes: usize, target: &[u8], at: usize, wanted: impl Fn(usize) -> u8) {
    for (n, byte) in target.iter().enumerate() {
        let wanted = n.checked_sub(at).map_or(0, &wanted);
        if *byte != wanted {
            fail(format_args!("{what} of {bytes} bytes to {at}: byte {n} is {byte:#x}, not {wanted:#x}"));
        }
    }
}
