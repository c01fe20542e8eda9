//! The information that a program gets about a signal (`siginfo_t`), and signals that wait to be
//! delivered.

use super::number::bit;
use crate::abi::Abi;

/// `SI_USER`: by `kill`.
pub const SI_USER: i32 = 0;
/// `SI_KERNEL`: by the kernel, for no reason that has an address.
pub const SI_KERNEL: i32 = 0x80;
/// `SI_TKILL`: by `tkill` or `tgkill`.
pub const SI_TKILL: i32 = -6;
/// `SI_TIMER`: a timer of the program's has expired.
pub const SI_TIMER: i32 = -2;
/// `SEGV_MAPERR`: no area lies at the address.
pub const SEGV_MAPERR: i32 = 1;
/// `SEGV_ACCERR`: the area at the address does not allow it.
pub const SEGV_ACCERR: i32 = 2;
/// `BUS_ADRALN`: the address is not aligned.
pub const BUS_ADRALN: i32 = 1;
/// `BUS_ADRERR`: the file ends before the address.
pub const BUS_ADRERR: i32 = 2;
/// `ILL_ILLOPC`: no instruction, on machines that do not tell operands.
pub const ILL_ILLOPC: i32 = 1;
/// `ILL_ILLOPN`: no instruction.
pub const ILL_ILLOPN: i32 = 2;
/// `TRAP_BRKPT`: a breakpoint.
pub const TRAP_BRKPT: i32 = 1;
/// `TRAP_TRACE`: a single step.
pub const TRAP_TRACE: i32 = 2;
/// `FPE_INTDIV`: a division of integers by zero.
pub const FPE_INTDIV: i32 = 1;
/// `CLD_EXITED`: the child has ended by itself.
const CLD_EXITED: i32 = 1;
/// `CLD_KILLED`: a signal has ended the child.
const CLD_KILLED: i32 = 2;

/// Bytes of `siginfo_t` that are written: all others are zero.
pub const INFO_BYTES: usize = 32;

/// The information about one signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalInfo {
    /// `si_code`.
    pub code: i32,
    /// The fields beside the code.
    pub detail: Detail,
}

/// The fields of a signal beside its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// No field.
    Nothing,
    /// `si_addr`.
    Address(u64),
    /// The process that sent it. There is one user.
    Sender(i32),
    /// The child, and `si_status`.
    Child(i32, i32),
    /// A timer, by number; expirations beside the first, and the number that the program wants.
    Timer {
        /// `si_timerid`.
        id: u32,
        /// `si_overrun`.
        overrun: u32,
        /// `si_value`.
        value: u64,
    },
}

impl SignalInfo {
    /// By the kernel.
    pub const KERNEL: SignalInfo = SignalInfo { code: SI_KERNEL, detail: Detail::Nothing };
    /// A signal whose information was not kept, as Linux reports it.
    const LOST: SignalInfo = SignalInfo { code: SI_USER, detail: Detail::Sender(0) };

    /// By process `pid`, with `kill` or, if `code` says so, to one of its threads.
    pub const fn sent(code: i32, pid: i32) -> Self {
        SignalInfo { code, detail: Detail::Sender(pid) }
    }

    /// For an access, or an instruction, at an address.
    pub const fn at(code: i32, address: u64) -> Self {
        SignalInfo { code, detail: Detail::Address(address) }
    }

    /// For the end of child `pid` with a status as `wait4` has it.
    pub const fn ended(pid: i32, status: i32) -> Self {
        let by = status & 0x7f;
        let (code, status) = if by == 0 { (CLD_EXITED, status >> 8 & 0xff) } else { (CLD_KILLED, by) };
        SignalInfo { code, detail: Detail::Child(pid, status) }
    }

    /// Returns the start of `siginfo_t`.
    pub fn bytes(&self, abi: Abi, signal: u8) -> [u8; INFO_BYTES] {
        let mut bytes = [0; INFO_BYTES];
        let mut put = |at: usize, value: &[u8]| {
            if let Some(place) = bytes.get_mut(at..at + value.len()) {
                place.copy_from_slice(value);
            }
        };
        let word = abi.word();
        // Number, error, code; on 64 bits the rest is aligned to 8.
        let rest = if word == 8 { 16 } else { 12 };
        put(0, &i32::from(signal).to_le_bytes());
        put(8, &self.code.to_le_bytes());
        match self.detail {
            Detail::Nothing => {}
            Detail::Address(at) => put(rest, &at.to_le_bytes()[..word]),
            Detail::Sender(pid) => put(rest, &pid.to_le_bytes()),
            Detail::Timer { id, overrun, value } => {
                put(rest, &id.to_le_bytes());
                put(rest + 4, &overrun.to_le_bytes());
                put(rest + 8, &value.to_le_bytes()[..word]);
            }
            Detail::Child(pid, status) => {
                put(rest, &pid.to_le_bytes());
                put(rest + 8, &status.to_le_bytes());
            }
        }
        bytes
    }
}

/// Number of signals whose information is kept. As under Linux without memory, the others are
/// delivered too, but without information.
const KEPT: usize = 8;

/// Signals that wait to be delivered, each once.
#[derive(Clone)]
pub struct Pending {
    set: u64,
    kept: [(u8, SignalInfo); KEPT],
}

impl Pending {
    /// Makes an empty set.
    pub const fn new() -> Self {
        Pending { set: 0, kept: [(0, SignalInfo::LOST); KEPT] }
    }

    /// Returns the signals as a set.
    pub const fn set(&self) -> u64 {
        self.set
    }

    /// Adds a signal; one that waits already stays as it is.
    pub fn add(&mut self, signal: u8, info: SignalInfo) {
        if bit(signal) == 0 || self.set & bit(signal) != 0 {
            return;
        }
        self.set |= bit(signal);
        if let Some(place) = self.kept.iter_mut().find(|(kept, _)| *kept == 0) {
            *place = (signal, info);
        }
    }

    /// Takes a signal out, if it waits; returns its information.
    pub fn take(&mut self, signal: u8) -> Option<SignalInfo> {
        if self.set & bit(signal) == 0 {
            return None;
        }
        self.set &= !bit(signal);
        let place = self.kept.iter_mut().find(|(kept, _)| *kept == signal);
        Some(place.map_or(SignalInfo::LOST, |place| core::mem::replace(place, (0, SignalInfo::LOST)).1))
    }

    /// Takes all signals out.
    pub fn clear(&mut self) {
        self.set = 0;
        // The information in a place that is free is never read.
        for (kept, _) in &mut self.kept {
            *kept = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(bytes: &[u8], at: usize) -> i32 {
        i32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
    }

    #[test]
    fn fields_are_where_c_libraries_look_for_them() {
        let fault = SignalInfo::at(SEGV_ACCERR, 0x5000_1234);
        let wide = fault.bytes(Abi::X86_64, 11);
        assert_eq!((number(&wide, 0), number(&wide, 8), number(&wide, 16)), (11, 2, 0x5000_1234));
        let narrow = fault.bytes(Abi::I386, 11);
        assert_eq!((number(&narrow, 0), number(&narrow, 8), number(&narrow, 12)), (11, 2, 0x5000_1234));
        assert_eq!(
            number(&SignalInfo::at(1, 0xffff_8000_0000_0000).bytes(Abi::X86_64, 11), 20) as u32,
            0xffff_8000
        );
        // An address is a word of the program's: the bytes behind it are zero.
        assert_eq!(number(&SignalInfo::at(1, u64::MAX).bytes(Abi::I386, 11), 16), 0);
        let detail = Detail::Timer { id: 5, overrun: 6, value: 7 << 32 | 8 };
        let wide = SignalInfo { code: SI_TIMER, detail }.bytes(Abi::X86_64, 14);
        assert_eq!([16, 20, 24, 28].map(|at| number(&wide, at)), [5, 6, 8, 7]);
        let narrow = SignalInfo { code: SI_TIMER, detail }.bytes(Abi::I386, 14);
        assert_eq!([12, 16, 20, 24].map(|at| number(&narrow, at)), [5, 6, 8, 0]);
        let ended = SignalInfo::ended(77, 3 << 8);
        let wide = ended.bytes(Abi::X86_64, 17);
        assert_eq!((number(&wide, 8), number(&wide, 16), number(&wide, 24)), (CLD_EXITED, 77, 3));
        let narrow = SignalInfo::ended(77, 9).bytes(Abi::I386, 17);
        assert_eq!((number(&narrow, 8), number(&narrow, 12), number(&narrow, 20)), (CLD_KILLED, 77, 9));
    }

    #[test]
    fn every_signal_is_delivered_and_the_first_with_their_info() {
        let mut pending = Pending::new();
        for signal in 1..=64 {
            pending.add(signal, SignalInfo::sent(SI_USER, i32::from(signal)));
            // The second one of a kind is not kept.
            pending.add(signal, SignalInfo::KERNEL);
        }
        pending.add(0, SignalInfo::KERNEL);
        pending.add(65, SignalInfo::KERNEL);
        assert_eq!(pending.set(), u64::MAX);
        for signal in 1..=64 {
            let said = if usize::from(signal) <= KEPT { i32::from(signal) } else { 0 };
            assert_eq!(pending.take(signal), Some(SignalInfo::sent(SI_USER, said)), "{signal}");
            assert_eq!(pending.take(signal), None);
        }
        // The places are free again.
        pending.add(40, SignalInfo::KERNEL);
        assert_eq!((pending.set(), pending.take(40), pending.set()), (1 << 39, Some(SignalInfo::KERNEL), 0));
    }
}
