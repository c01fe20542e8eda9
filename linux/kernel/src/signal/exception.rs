//! Exceptions of x86 processors, as the signals that Linux makes of them.

use super::info::{BUS_ADRALN, FPE_INTDIV, ILL_ILLOPN, SignalInfo, TRAP_TRACE};
use super::number;

/// Returns the signal for an exception of a program, and its information. `at` is the program's
/// next instruction, `vectors` the bytes of `fxsave`. Page faults and general protection are not
/// asked for.
pub fn signal(vector: u8, at: u64, vectors: &[u8; 512]) -> (u8, SignalInfo) {
    let word = |n: usize| u16::from_le_bytes([vectors[n], vectors[n + 1]]);
    match vector {
        0 => (number::SIGFPE, SignalInfo::at(FPE_INTDIV, at)),
        1 => (number::SIGTRAP, SignalInfo::at(TRAP_TRACE, at)),
        3 => (number::SIGTRAP, SignalInfo::KERNEL),
        6 => (number::SIGILL, SignalInfo::at(ILL_ILLOPN, at)),
        11 | 12 => (number::SIGBUS, SignalInfo::KERNEL),
        // The exceptions that have happened and are not masked: of the x87, and of MXCSR.
        16 => (number::SIGFPE, SignalInfo::at(float_code(word(2) & !word(0)), at)),
        17 => (number::SIGBUS, SignalInfo::at(BUS_ADRALN, 0)),
        19 => (number::SIGFPE, SignalInfo::at(float_code(word(24) & !(word(24) >> 7)), at)),
        _ => (number::SIGSEGV, SignalInfo::KERNEL),
    }
}

/// Returns `si_code` for exceptions of floating point: `FPE_FLTINV`, `FPE_FLTDIV`, `FPE_FLTOVF`,
/// `FPE_FLTUND` (of a denormal number, too), `FPE_FLTRES`.
fn float_code(raised: u16) -> i32 {
    let codes = [(0x01, 7), (0x04, 3), (0x08, 4), (0x12, 5), (0x20, 6)];
    codes.into_iter().find(|(bits, _)| raised & bits != 0).map_or(0, |(_, code)| code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floating_point_says_which_exception_is_not_masked() {
        let mut vectors = [0; 512];
        // x87: inexact and a division by zero have happened, the first is masked.
        (vectors[0], vectors[2]) = (0x7b, 0x24);
        assert_eq!(signal(16, 5, &vectors), (number::SIGFPE, SignalInfo::at(3, 5)));
        // MXCSR: an overflow and an inexact result, of which overflows are not masked.
        (vectors[24], vectors[25]) = (0xa8, 0x1b);
        assert_eq!(signal(19, 5, &vectors), (number::SIGFPE, SignalInfo::at(4, 5)));
        assert_eq!(signal(0, 7, &vectors), (number::SIGFPE, SignalInfo::at(1, 7)));
        assert_eq!(signal(4, 7, &vectors), (number::SIGSEGV, SignalInfo::KERNEL));
    }
}
