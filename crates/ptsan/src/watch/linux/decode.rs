//! The privileged instructions of page-table code, decoded (Intel SDM vol. 2, chapter 2 and the
//! pages of the instructions).

/// The longest instruction.
pub(super) const LONGEST: usize = 15;

/// A privileged instruction that is emulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) operation: InstructionEffect,
    /// Bytes, with prefixes.
    pub(super) length: usize,
}

/// Its effect. General registers have the processor's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InstructionEffect {
    /// `invlpg`.
    InvalidatePage(Operand),
    /// `invpcid`, with the register that holds its type.
    InvalidateContext { kind: u8, descriptor: Operand },
    /// `mov` from a control register.
    ReadControl { control: u8, into: u8 },
    /// `mov` to a control register.
    WriteControl { control: u8, from: u8 },
    /// `rdmsr`.
    ReadModelSpecific,
    /// `wrmsr`.
    WriteModelSpecific,
    /// `hlt`.
    Halt,
    /// `cli`, `sti`, `wbinvd`, `wbnoinvd`: no translation depends on them.
    Nothing,
}

/// An operand in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operand {
    base: Option<Base>,
    /// A register, and the power of two that it is multiplied with.
    index: Option<(u8, u8)>,
    displacement: i32,
    pub(super) segment: Segment,
    /// Whether the address has 32 bits (prefix `67`).
    narrow: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    Register(u8),
    /// The address of the next instruction.
    Next,
}

/// The segment of an operand. All others begin at address 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    Flat,
    Fs,
    Gs,
}

impl Operand {
    /// Returns the operand's address. `next` is the address of the next instruction, and `segment`
    /// the start of the segment.
    pub(super) fn address(&self, register: impl Fn(u8) -> u64, next: u64, segment: u64) -> u64 {
        let base = match self.base {
            Some(Base::Register(r)) => register(r),
            Some(Base::Next) => next,
            None => 0,
        };
        let index = self.index.map_or(0, |(r, shift)| register(r) << shift);
        let offset = base.wrapping_add(index).wrapping_add_signed(i64::from(self.displacement));
        segment.wrapping_add(if self.narrow { offset & 0xffff_ffff } else { offset })
    }
}

/// The prefixes of an instruction.
#[derive(Default)]
struct Prefixes {
    short: bool,
    /// `f2` or `f3`.
    repeated: bool,
    narrow: bool,
    segment: Option<Segment>,
    rex: u8,
}

impl Prefixes {
    /// Returns a register number of 4 bits: 3 of them, and the bit of REX at `shift`.
    fn register(&self, low: u8, shift: u8) -> u8 {
        low & 7 | (self.rex >> shift & 1) << 3
    }
}

/// Decodes an instruction, or returns `None` if it is not emulated. `next` returns its bytes one by
/// one, and is never asked for one behind its end.
pub(super) fn decode(mut next: impl FnMut() -> u8) -> Option<Instruction> {
    let mut length = 0;
    let mut next = || {
        length += 1;
        (length <= LONGEST).then(&mut next)
    };
    let mut prefixes = Prefixes::default();
    let opcode = loop {
        let byte = next()?;
        let rex = std::mem::take(&mut prefixes.rex);
        match byte {
            0x66 => prefixes.short = true,
            0x67 => prefixes.narrow = true,
            0xf2 | 0xf3 => prefixes.repeated = true,
            0x26 | 0x2e | 0x36 | 0x3e => {}
            0x64 => prefixes.segment = Some(Segment::Fs),
            0x65 => prefixes.segment = Some(Segment::Gs),
            // Only the one directly before the opcode counts.
            0x40..=0x4f => prefixes.rex = byte,
            opcode => {
                prefixes.rex = rex;
                break opcode;
            }
        }
    };
    let plain = !prefixes.short && !prefixes.repeated;
    let operation = match opcode {
        0xf4 => InstructionEffect::Halt,
        0xfa | 0xfb => InstructionEffect::Nothing,
        0x0f => match next()? {
            0x01 => match next()? {
                modrm if modrm >> 3 & 7 == 7 && modrm >> 6 != 3 && plain => {
                    InstructionEffect::InvalidatePage(operand(&prefixes, modrm, &mut next)?)
                }
                _ => return None,
            },
            0x09 if !prefixes.short => InstructionEffect::Nothing,
            0x20 => {
                let (control, into) = control(&prefixes, next()?);
                InstructionEffect::ReadControl { control, into }
            }
            0x22 => {
                let (control, from) = control(&prefixes, next()?);
                InstructionEffect::WriteControl { control, from }
            }
            0x30 if plain => InstructionEffect::WriteModelSpecific,
            0x32 if plain => InstructionEffect::ReadModelSpecific,
            0x38 if prefixes.short && !prefixes.repeated => match (next()?, next()?) {
                (0x82, modrm) if modrm >> 6 != 3 => InstructionEffect::InvalidateContext {
                    kind: prefixes.register(modrm >> 3, 2),
                    descriptor: operand(&prefixes, modrm, &mut next)?,
                },
                _ => return None,
            },
            _ => return None,
        },
        _ => return None,
    };
    Some(Instruction { operation, length })
}

/// Decodes the registers of a `mov` to or from a control register, which is never in memory.
fn control(prefixes: &Prefixes, modrm: u8) -> (u8, u8) {
    (prefixes.register(modrm >> 3, 2), prefixes.register(modrm, 0))
}

/// Decodes the bytes that follow ModRM.
fn operand(prefixes: &Prefixes, modrm: u8, next: &mut impl FnMut() -> Option<u8>) -> Option<Operand> {
    let form = modrm >> 6;
    let mut operand = Operand {
        base: None,
        index: None,
        displacement: 0,
        segment: prefixes.segment.unwrap_or(Segment::Flat),
        narrow: prefixes.narrow,
    };
    let mut wide = form == 2;
    match modrm & 7 {
        // A byte with base and index follows.
        4 => {
            let sib = next()?;
            let index = prefixes.register(sib >> 3, 1);
            // 4 means no index; with the bit of REX it is a register.
            operand.index = (index != 4).then_some((index, sib >> 6));
            if sib & 7 == 5 && form == 0 {
                wide = true;
            } else {
                operand.base = Some(Base::Register(prefixes.register(sib, 0)));
            }
        }
        5 if form == 0 => {
            operand.base = Some(Base::Next);
            wide = true;
        }
        low => operand.base = Some(Base::Register(prefixes.register(low, 0))),
    }
    if wide {
        operand.displacement = i32::from_le_bytes([next()?, next()?, next()?, next()?]);
    } else if form == 1 {
        operand.displacement = i32::from(next()?.cast_signed());
    }
    Some(operand)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes, and panics if a byte behind the instruction is asked for.
    fn of(code: &[u8]) -> Option<Instruction> {
        let mut bytes = code.iter();
        decode(|| *bytes.next().expect("no byte behind the instruction"))
    }

    /// Registers whose content shows which one it is.
    fn register(number: u8) -> u64 {
        0x1_0000_0000 + (u64::from(number) << 16)
    }

    const NEXT: u64 = 0x7000_0000_0000;
    const FS: u64 = 0x5000_0000_0000;

    /// Returns the address that the `invlpg` of these bytes is for.
    fn page(code: &[u8]) -> u64 {
        let found = of(code).unwrap_or_else(|| panic!("{code:02x?}"));
        assert_eq!(found.length, code.len(), "{code:02x?}");
        let InstructionEffect::InvalidatePage(operand) = found.operation else { panic!("{code:02x?}") };
        operand.address(register, NEXT, if operand.segment == Segment::Flat { 0 } else { FS })
    }

    #[test]
    fn every_addressing_form_gives_its_address() {
        const RCX: u64 = 0x1_0001_0000;
        const RSP: u64 = 0x1_0004_0000;
        const RBP: u64 = 0x1_0005_0000;
        const R12: u64 = 0x1_000c_0000;
        const R13: u64 = 0x1_000d_0000;
        for (code, address) in [
            (&[0x0f, 0x01, 0x39][..], RCX),                                // [rcx]
            (&[0x41, 0x0f, 0x01, 0x3c, 0x24], R12),                        // [r12]
            (&[0x41, 0x0f, 0x01, 0x7d, 0x00], R13),                        // [r13]
            (&[0x0f, 0x01, 0x7d, 0xf8], RBP - 8),                          // [rbp - 8]
            (&[0x0f, 0x01, 0x3c, 0x24], RSP),                              // [rsp]
            (&[0x0f, 0x01, 0x7c, 0x24, 0x10], RSP + 16),                   // [rsp + 16]
            (&[0x0f, 0x01, 0xb9, 0x00, 0x10, 0, 0], RCX + 0x1000),         // [rcx + 0x1000]
            (&[0x0f, 0x01, 0xb9, 0, 0xf0, 0xff, 0xff], RCX - 0x1000),      // [rcx - 0x1000]
            (&[0x0f, 0x01, 0x3d, 0x10, 0, 0, 0], NEXT + 16),               // [rip + 16]
            (&[0x0f, 0x01, 0x3c, 0x25, 0x00, 0x20, 0, 0], 0x2000),         // [0x2000]
            (&[0x0f, 0x01, 0x3c, 0x25, 0, 0, 0, 0x80], !0x7fff_ffff),      // [-0x80000000]
            (&[0x0f, 0x01, 0x3c, 0xcd, 8, 0, 0, 0], RCX * 8 + 8),          // [rcx * 8 + 8]
            (&[0x42, 0x0f, 0x01, 0x3c, 0x61], RCX + R12 * 2),              // [rcx + r12 * 2]
            (&[0x41, 0x0f, 0x01, 0x7c, 0x8d, 0x7f], R13 + RCX * 4 + 0x7f), // [r13 + rcx * 4 + 127]
            (&[0x0f, 0x01, 0xbc, 0x0d, 1, 0, 0, 0], RBP + RCX + 1),        // [rbp + rcx + 1]
            (&[0x67, 0x0f, 0x01, 0x39], RCX & 0xffff_ffff),                // [ecx]
            (&[0x67, 0x0f, 0x01, 0x79, 0xff], (RCX - 1) & 0xffff_ffff),    // [ecx - 1]
            (&[0x64, 0x0f, 0x01, 0x3c, 0x25, 8, 0, 0, 0], FS + 8),         // fs:[8]
            (&[0x65, 0x48, 0x0f, 0x01, 0x39], FS + RCX),                   // gs:[rcx]
            (&[0x3e, 0x0f, 0x01, 0x39], RCX),                              // ds:[rcx]
        ] {
            assert_eq!(page(code), address, "{code:02x?}");
        }
    }

    #[test]
    fn every_register_is_told_from_the_others() {
        let found = |code: &[u8]| of(code).unwrap_or_else(|| panic!("{code:02x?}")).operation;
        for number in 0..16 {
            let rex = 0x40 | number >> 3;
            let read = found(&[rex, 0x0f, 0x20, 0xd8 | number & 7]);
            assert_eq!(read, InstructionEffect::ReadControl { control: 3, into: number });
            let write = found(&[rex, 0x0f, 0x22, 0xe0 | number & 7]);
            assert_eq!(write, InstructionEffect::WriteControl { control: 4, from: number });
            let code = [0x66, 0x40 | (number >> 3) << 2, 0x0f, 0x38, 0x82, (number & 7) << 3 | 1];
            let InstructionEffect::InvalidateContext { kind, descriptor } = found(&code) else {
                panic!("{code:x?}")
            };
            assert_eq!((kind, descriptor.address(register, NEXT, 0)), (number, register(1)));
        }
        // Whatever the upper bits of ModRM say, the operand is a register.
        assert_eq!(found(&[0x0f, 0x22, 0x1c]), InstructionEffect::WriteControl { control: 3, from: 4 });
        assert_eq!(found(&[0x44, 0x0f, 0x20, 0xc0]), InstructionEffect::ReadControl { control: 8, into: 0 });
        // A REX that does not stand directly before the opcode is ignored.
        assert_eq!(
            found(&[0x44, 0x66, 0x0f, 0x20, 0xc0]),
            InstructionEffect::ReadControl { control: 0, into: 0 }
        );
    }

    #[test]
    fn instructions_without_operands_are_known() {
        for (code, operation) in [
            (&[0xf4][..], InstructionEffect::Halt),
            (&[0xfa], InstructionEffect::Nothing),
            (&[0xfb], InstructionEffect::Nothing),
            (&[0x0f, 0x09], InstructionEffect::Nothing),
            (&[0xf3, 0x0f, 0x09], InstructionEffect::Nothing),
            (&[0x0f, 0x30], InstructionEffect::WriteModelSpecific),
            (&[0x0f, 0x32], InstructionEffect::ReadModelSpecific),
        ] {
            assert_eq!(of(code), Some(Instruction { operation, length: code.len() }), "{code:02x?}");
        }
    }

    #[test]
    fn what_is_not_emulated_is_not_taken_for_what_is() {
        for code in [
            &[0x0f, 0x01, 0xf8][..],         // swapgs
            &[0x0f, 0x01, 0xf9],             // rdtscp
            &[0x0f, 0x01, 0x10],             // lgdt [rax]
            &[0x0f, 0x01, 0xfe],             // invlpgb
            &[0x0f, 0x08],                   // invd
            &[0x0f, 0x06],                   // clts
            &[0x0f, 0x0b],                   // ud2
            &[0x0f, 0x23],                   // mov to a debug register
            &[0x0f, 0x38, 0x82][..2],        // no 66 prefix
            &[0x66, 0x0f, 0x38, 0x80, 0x08], // invept
            &[0x66, 0x0f, 0x38, 0x82, 0xc8], // invpcid of a register
            &[0xf0],                         // lock
            &[0xec],                         // in
            &[0xc5],                         // VEX
            &[0x66; LONGEST],                // too long
        ] {
            assert_eq!(of(code), None, "{code:02x?}");
        }
    }
}
