//! `rep stos` and `rep movs` as one store for each page.
//!
//! Under the trap flag they stop after each repetition, so a `memset` of a table would cost 4096
//! signals. Instead the thread runs a copy of the instruction with a breakpoint behind it, its
//! count reduced to the rest of the page. The instruction uses registers only, so the copy may
//! stand anywhere.
use std::arch::naked_asm;

/// A repeated store, decoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repeated {
    /// Bytes that one repetition stores.
    pub(super) element: usize,
    /// Length of the instruction in the code under test.
    pub(super) length: usize,
    /// The address of its copy.
    pub(super) copy: usize,
    /// The address of the thread when the breakpoint behind the copy has fired.
    pub(super) after: usize,
}

macro_rules! copies {
    ($($name:ident: $element:literal, [$($byte:literal),+];)+) => {
        $(
            /// Holds the instruction and a breakpoint. It is never called: a signal handler sends a
            /// thread here.
            ///
            /// # Safety
            /// Must not be called: it does not return.
            #[unsafe(naked)]
            unsafe extern "C" fn $name() {
                naked_asm!($(concat!(".byte ", $byte),)+ "int3", "ud2")
            }
        )+

        const FORMS: &[(&[u8], usize, unsafe extern "C" fn())] = &[$((&[$($byte),+], $element, $name),)+];
    };
}

copies! {
    stos_1: 1, [0xf3, 0xaa];
    stos_2: 2, [0x66, 0xf3, 0xab];
    stos_2_other: 2, [0xf3, 0x66, 0xab];
    stos_4: 4, [0xf3, 0xab];
    stos_8: 8, [0xf3, 0x48, 0xab];
    movs_1: 1, [0xf3, 0xa4];
    movs_2: 2, [0x66, 0xf3, 0xa5];
    movs_2_other: 2, [0xf3, 0x66, 0xa5];
    movs_4: 4, [0xf3, 0xa5];
    movs_8: 8, [0xf3, 0x48, 0xa5];
}

/// Decodes the repeated store at `rip`, if it has one of the usual forms.
///
/// # Safety
/// A thread is about to execute the instruction at `rip`.
pub(super) unsafe fn decode(rip: usize) -> Option<Repeated> {
    FORMS.iter().find_map(|&(bytes, element, copy)| {
        // Reads byte by byte, and only as long as the form matches: memory may end behind the
        // instruction.
        let same = bytes.iter().enumerate().all(|(i, &byte)| {
            // SAFETY: the bytes before this one are the start of a form, so the instruction, which
            // the processor fetched, reaches to this byte.
            let read = unsafe { std::ptr::with_exposed_provenance::<u8>(rip + i).read_volatile() };
            read == byte
        });
        same.then(|| {
            let copy = copy as *const () as usize;
            Repeated { element, length: bytes.len(), copy, after: copy + bytes.len() + 1 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_recognized_and_its_copy_ends_in_int3() {
        for &(bytes, element, copy) in FORMS {
            let mut code = bytes.to_vec();
            code.push(0x90);
            // SAFETY: the buffer holds a whole instruction and one byte more; decoding only reads
            // it.
            let found = unsafe { decode(code.as_ptr().expose_provenance()) }.expect("a form");
            assert_eq!((found.element, found.length), (element, bytes.len()));
            assert_eq!(found.copy, copy as *const () as usize);
            let stands = std::ptr::with_exposed_provenance::<u8>(found.copy);
            // SAFETY: the copy is that long, and code may be read.
            let copied = unsafe { std::slice::from_raw_parts(stands, found.after - found.copy) };
            assert_eq!(copied.split_last(), Some((&0xcc, bytes)));
        }
        // A plain store, and `rep` before something else.
        for code in [[0x48, 0x89, 0x07, 0x90], [0xf3, 0x48, 0xac, 0x90]] {
            // SAFETY: as above.
            assert!(unsafe { decode(code.as_ptr().expose_provenance()) }.is_none());
        }
    }
}
