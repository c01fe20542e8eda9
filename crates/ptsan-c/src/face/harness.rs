//! The part of a program that is not under test.
use super::PtsanCode;
use crate::error::{PTSAN_OK, Refusal};
use crate::handles::{Ptsan, answer, call_alone, hook};
use crate::machine::Before;
use crate::text;
use std::ffi::{c_char, c_void};

/// Marks a file or a function of the test as harness: hooks, allocators of frames, drivers. Reports
/// leave it out and name the first caller outside, for findings that are made from now on.
///
/// A pattern with a `/` or a `.` is the end of a file's path, in whole components: `"hooks.h"`,
/// `"host/hooks.h"`, `"tests/"` for all files in such a directory, `__FILE__`. Another pattern is
/// the name of a function. A `*` stands for anything: `"hw_*"`. It is copied, and a pattern that is
/// marked again has no effect, so that a hook may begin with `PTSAN_HARNESS(san)`.
///
/// # Safety
/// `pattern` is NULL, which is refused, or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ptsan_mark_harness(san: *mut Ptsan, pattern: *const c_char) -> i32 {
    // A store that is told before must not name the function that is about to be marked.
    let marked = call_alone("ptsan_mark_harness", san, |machine| {
        // SAFETY: the caller promises it.
        let pattern = unsafe { text::argument(pattern, "the pattern") }?;
        if pattern.trim().is_empty() {
            return Err(Refusal::argument("the pattern is empty; give a file or a function"));
        }
        machine.mark_harness(pattern);
        Ok(PTSAN_OK)
    });
    answer(marked)
}

/// Lets every function of this library call `code(user)` first, on the calling thread, before it
/// takes the sanitizer's lock. For harnesses that learn of a store before it is made, such as
/// `ptsan_stores.c`: they tell of it here, so that no flush overtakes it. Calls that `code` makes
/// itself do not call it again. NULL ends that.
///
/// # Safety
/// `code` is NULL or keeps to `ptsan_code`, on every thread, until it is replaced and the calls
/// under way have returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ptsan_before_calls(san: *mut Ptsan, code: PtsanCode, user: *mut c_void) -> i32 {
    hook("ptsan_before_calls", san, |machine| {
        machine.before_calls(code.map(|code| Before { code, user }));
        Ok(())
    })
}
