//! The part of a program that is not under test.
use crate::error::Refusal;
use crate::handles::{Ptsan, hook};
use crate::text;
use std::ffi::c_char;

/// Marks a file or a function of the test as harness: hooks, allocators of frames, drivers. Reports
/// leave it out and name the first caller outside, for findings that are made from now on.
///
/// A pattern with a `/` or a `.` is the end of a file's path, in whole components: `"hooks.h"`,
/// `"host/hooks.h"`, `"tests/"` for all files in such a directory, `__FILE__`. Another pattern is
/// the name of a function. A `*` stands for anything: `"hw_*"`. It is copied.
///
/// # Safety
/// `pattern` is NULL, which is refused, or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ptsan_mark_harness(san: *mut Ptsan, pattern: *const c_char) -> i32 {
    hook("ptsan_mark_harness", san, |machine| {
        // SAFETY: the caller promises it.
        let pattern = unsafe { text::argument(pattern, "the pattern") }?;
        if pattern.trim().is_empty() {
            return Err(Refusal::argument("the pattern is empty; give a file or a function"));
        }
        machine.check(|s, _| s.mark_harness(pattern));
        Ok(())
    })
}
