//! Negative controls: parts that an image leaves out on purpose, by boot argument
//! (`without=flush`). A run in which something is left out has to fail, unless the image works
//! without it.

use core::sync::atomic::{AtomicU32, Ordering};

static LEFT_OUT: AtomicU32 = AtomicU32::new(0);

/// Bytes of the boot arguments, at most, where no firmware hands them over.
const ARGUMENTS: usize = 256;

/// Defines the parts that an image can leave out, each with its name in boot arguments: the type
/// `NegativeControl`, and the functions `read` and `leaves_out`. Those of the
/// [machine](crate::machine) come before them.
///
/// `if CONDITION;` in front makes the functions do something in images for which it holds only,
/// and leaves out the parts of the machine.
#[macro_export]
macro_rules! negative_controls {
    (if $is_built:expr; $($(#[$doc:meta])* $part:ident = $name:literal,)+) => {
        $crate::negative_controls!(@ $is_built, 0, [], $($(#[$doc])* $part = $name,)+);
    };
    (@ $is_built:expr, $first:expr, [$($of_machine:literal),*], $($(#[$doc:meta])* $part:ident = $name:literal,)+) => {
        /// A part that can be left out.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum NegativeControl {
            $($(#[$doc])* $part,)+
        }

        /// Reads the boot arguments; false if they name a part that is not known.
        pub fn read(arguments: &str) -> bool {
            !$is_built || $crate::negative_controls::read(arguments, &[$($of_machine,)* $($name),+])
        }

        /// Returns whether `part` is left out.
        #[inline]
        pub fn leaves_out(part: NegativeControl) -> bool {
            $is_built && $crate::negative_controls::leaves_out($first + part as u32)
        }
    };
    ($($(#[$doc:meta])* $part:ident = $name:literal,)+) => {
        const _: () = assert!($crate::machine::CLEAR == 0 && $crate::machine::COPY == 1);
        $crate::negative_controls!(@ true, $crate::machine::COPY + 1, ["clear", "copy"], $($(#[$doc])* $part = $name,)+);
    };
}

/// Returns the boot arguments in memory at an address, up to the first zero.
///
/// # Safety
///
/// 1. 256 bytes can be read there, and nobody ever writes to them.
pub unsafe fn arguments(at: *const u8) -> &'static str {
    // SAFETY: point 1 of the caller's.
    let bytes = unsafe { core::slice::from_raw_parts(at, ARGUMENTS) };
    let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    core::str::from_utf8(&bytes[..len]).unwrap_or("(not text)").trim()
}

/// Reads the boot arguments. `names` are those of parts, in the order of their numbers. Returns
/// whether all parts that are named exist.
pub fn read(arguments: &str, names: &[&str]) -> bool {
    arguments.split_ascii_whitespace().filter_map(|word| word.strip_prefix("without=")).all(|name| {
        let part = names.iter().take(32).position(|known| *known == name);
        LEFT_OUT.fetch_or(part.map_or(0, |part| 1 << part), Ordering::Relaxed);
        part.is_some()
    })
}

/// Returns whether the part with a number is left out.
#[inline]
pub fn leaves_out(part: u32) -> bool {
    LEFT_OUT.load(Ordering::Relaxed) >> part & 1 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_are_named_are_left_out_and_others_are_refused() {
        assert!(read("announce without=copy", &["flush", "copy"]));
        assert_eq!([0, 1, 2].map(leaves_out), [false, true, false]);
        assert!(!read("without=all", &["flush", "copy"]));
    }
}
