//! The width of a plain store: one that overwrites memory whatever it held. And whether a store is
//! atomic: one that no bit is lost by which hardware sets meanwhile.
//!
//! The comparison of the page shows which words changed. A word that is stored to and stays the
//! same does not show, but is as new as the others, so the instruction is decoded too. `lock`ed
//! instructions and arithmetic are no plain stores: they keep the value that they find, or a part
//! of it.

/// Returns how many bytes the instruction stores, or `None` if it is not one of the usual plain
/// stores. `next` returns its bytes one by one, and is never asked for one behind its end.
pub(super) fn of(mut next: impl FnMut() -> u8) -> Option<usize> {
    let (mut short, mut repeat) = (false, 0);
    let mut byte = loop {
        match next() {
            0x66 => short = true,
            prefix @ (0xf2 | 0xf3) => repeat = prefix,
            // Segments, and addresses of 32 bits.
            0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x67 => {}
            byte => break byte,
        }
    };
    let mut wide = false;
    if byte & 0xf0 == 0x40 {
        wide = byte & 8 != 0;
        byte = next();
    }
    let word = match (wide, short) {
        (true, _) => 8,
        (false, true) => 2,
        (false, false) => 4,
    };
    let prefix = match repeat {
        0xf3 => Prefix::F3,
        0xf2 => Prefix::F2,
        _ if short => Prefix::P66,
        _ => Prefix::None,
    };
    match byte {
        // `mov`, `stos`, `movs`; of the latter one repetition.
        0x88 | 0xc6 | 0xa2 | 0xaa | 0xa4 => Some(1),
        0x89 | 0xc7 | 0xa3 | 0xab | 0xa5 => Some(word),
        0x0f => match (next(), prefix) {
            // `movnti`, and `mov`s from the registers of MMX.
            (0xc3, Prefix::None) => Some(word),
            (0x7f | 0xe7, Prefix::None) => Some(8),
            (opcode, _) => vector(opcode, prefix, wide, 16),
        },
        0xc5 => {
            let p = next();
            vector(next(), Prefix::of(p), false, 16 << (p >> 2 & 1))
        }
        0xc4 => {
            let (map, p) = (next() & 0x1f, next());
            if map == 1 { vector(next(), Prefix::of(p), p & 0x80 != 0, 16 << (p >> 2 & 1)) } else { None }
        }
        0x62 => {
            let (map, p, q) = (next() & 7, next(), next());
            let (length, masked) = (q >> 5 & 3, q & 7 != 0);
            if map != 1 || masked || length == 3 {
                return None;
            }
            match (next(), Prefix::of(p)) {
                (0x7f, Prefix::F2) => Some(16 << length),
                (opcode, prefix) => vector(opcode, prefix, p & 0x80 != 0, 16 << length),
            }
        }
        _ => None,
    }
}

/// Returns whether the instruction reads and stores in one piece: with a `lock` prefix, or `xchg`.
/// `next` returns its bytes one by one, and is never asked for one behind its end.
pub(super) fn is_atomic(mut next: impl FnMut() -> u8) -> bool {
    loop {
        match next() {
            0xf0 => return true,
            0x66 | 0xf2 | 0xf3 | 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x67 => {}
            // REX is the last prefix.
            0x40..=0x4f => return matches!(next(), 0x86 | 0x87),
            byte => return matches!(byte, 0x86 | 0x87),
        }
    }
}

/// The prefix that distinguishes instructions with the same opcode.
#[derive(Clone, Copy)]
enum Prefix {
    None,
    P66,
    F3,
    F2,
}

impl Prefix {
    /// Decodes the two bits of VEX and EVEX.
    fn of(p: u8) -> Self {
        match p & 3 {
            0 => Self::None,
            1 => Self::P66,
            2 => Self::F3,
            _ => Self::F2,
        }
    }
}

/// Returns the width of a store from a vector register of `length` bytes.
fn vector(opcode: u8, prefix: Prefix, wide: bool, length: usize) -> Option<usize> {
    match (opcode, prefix) {
        (0x11, Prefix::F3) => Some(4),
        (0x11, Prefix::F2) => Some(8),
        (0x11 | 0x29 | 0x2b, Prefix::None | Prefix::P66) => Some(length),
        (0x7f, Prefix::P66 | Prefix::F3) | (0xe7, Prefix::P66) => Some(length),
        (0x13 | 0x17, Prefix::None | Prefix::P66) | (0xd6, Prefix::P66) => Some(8),
        (0x7e, Prefix::P66) => Some(if wide { 8 } else { 4 }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the width, and panics if a byte behind the instruction is asked for.
    fn width(code: &[u8]) -> Option<usize> {
        let mut bytes = code.iter();
        of(|| *bytes.next().expect("no byte behind the instruction"))
    }

    #[test]
    fn plain_stores_are_as_wide_as_their_registers() {
        for (code, bytes) in [
            (&[0x88, 0x07][..], 1),                      // mov [rdi], al
            (&[0x66, 0x89, 0x07], 2),                    // mov [rdi], ax
            (&[0x89, 0x07], 4),                          // mov [rdi], eax
            (&[0x48, 0x89, 0x07], 8),                    // mov [rdi], rax
            (&[0x64, 0x4c, 0x89, 0x07], 8),              // mov fs:[rdi], r8
            (&[0x48, 0xc7, 0x07, 0, 0, 0, 0], 8),        // mov qword ptr [rdi], 0
            (&[0x48, 0x0f, 0xc3, 0x07], 8),              // movnti [rdi], rax
            (&[0xf3, 0x48, 0xab], 8),                    // rep stosq, once
            (&[0x0f, 0x11, 0x07], 16),                   // movups [rdi], xmm0
            (&[0xf2, 0x0f, 0x11, 0x07], 8),              // movsd [rdi], xmm0
            (&[0x66, 0x0f, 0xd6, 0x07], 8),              // movq [rdi], xmm0
            (&[0x66, 0x48, 0x0f, 0x7e, 0x07], 8),        // movq [rdi], xmm0, the other form
            (&[0xf3, 0x0f, 0x7f, 0x07], 16),             // movdqu [rdi], xmm0
            (&[0xc5, 0xfe, 0x7f, 0x07], 32),             // vmovdqu [rdi], ymm0
            (&[0xc5, 0xf8, 0x29, 0x07], 16),             // vmovaps [rdi], xmm0
            (&[0xc4, 0xc1, 0x7e, 0x7f, 0x00], 32),       // vmovdqu [r8], ymm0
            (&[0x62, 0xf1, 0xfe, 0x48, 0x7f, 0x07], 64), // vmovdqu64 [rdi], zmm0
            (&[0x62, 0xf1, 0x7f, 0x28, 0x7f, 0x07], 32), // vmovdqu8 [rdi], ymm0
        ] {
            assert_eq!(width(code), Some(bytes), "{code:x?}");
        }
    }

    #[test]
    fn locked_instructions_and_exchanges_are_atomic_and_no_others() {
        let atomic = |code: &[u8]| {
            let mut bytes = code.iter();
            is_atomic(|| *bytes.next().expect("no byte behind the instruction"))
        };
        for code in [
            &[0xf0, 0x48, 0x0f, 0xb1, 0x0f][..], // lock cmpxchg [rdi], rcx
            &[0x66, 0xf0, 0x0f, 0xc1, 0x07],     // lock xadd [rdi], ax
            &[0xf0, 0x48, 0x21, 0x07],           // lock and [rdi], rax
            &[0x48, 0x87, 0x07],                 // xchg [rdi], rax
            &[0x65, 0x86, 0x07],                 // xchg gs:[rdi], al
        ] {
            assert!(atomic(code), "{code:x?}");
        }
        for code in [
            &[0x48, 0x89, 0x07][..],   // mov [rdi], rax
            &[0x89, 0x07],             // mov [rdi], eax
            &[0x48, 0x21, 0x07],       // and [rdi], rax
            &[0x48, 0x0f, 0xb1, 0x0f], // cmpxchg [rdi], rcx
            &[0xf3, 0x48, 0xab],       // rep stosq
            &[0xc5, 0xfe, 0x7f, 0x07], // vmovdqu [rdi], ymm0
        ] {
            assert!(!atomic(code), "{code:x?}");
        }
    }

    #[test]
    fn what_keeps_a_part_of_memory_is_no_plain_store() {
        for code in [
            &[0xf0, 0x48, 0x0f, 0xb1, 0x0f][..],   // lock cmpxchg [rdi], rcx
            &[0x48, 0x87, 0x07],                   // xchg [rdi], rax
            &[0x48, 0x09, 0x07],                   // or [rdi], rax
            &[0x48, 0x01, 0x07],                   // add [rdi], rax
            &[0x62, 0xf1, 0xfe, 0x49, 0x7f, 0x07], // vmovdqu64 [rdi]{k1}, zmm0
            &[0xc4, 0xe2, 0x7d, 0x2e, 0x07],       // vmaskmovps [rdi], ymm0, ymm0
        ] {
            assert_eq!(width(code), None, "{code:x?}");
        }
    }
}
