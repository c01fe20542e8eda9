//! The control registers and model-specific registers of one CPU (Intel SDM vol. 3, 2.5 and 4.10).
use super::effect::{Effect, Load};

/// CR0: protection, and paging.
const PROTECTION: u64 = 1 << 0;
const PAGING: u64 = 1 << 31;
/// CR0 in 64-bit mode: PG, AM, WP, NE, ET, MP, PE.
const CR0: u64 = 0x8005_0033;
/// The bits of CR0 that exist.
const CR0_KNOWN: u64 = 0xe005_003f;

const ADDRESS_EXTENSION: u64 = 1 << 5;
const GLOBAL_PAGES: u64 = 1 << 7;
const FIVE_LEVELS: u64 = 1 << 12;
const PCIDS: u64 = 1 << 17;
const NO_SUPERVISOR_EXECUTION: u64 = 1 << 20;
/// The bits of CR4 that exist: 0 to 14, 16 to 18, 20 to 25, 27, 28 and 32.
const CR4_KNOWN: u64 = 0x1_1bf7_7fff;

/// CR3: the root.
const ROOT: u64 = 0x000f_ffff_ffff_f000;
const PCID: u64 = 0xfff;
/// A load of CR3 without a flush.
const KEEP: u64 = 1 << 63;

const EFER: u32 = 0xc000_0080;
const LONG_MODE: u64 = 1 << 8;
const LONG_MODE_ACTIVE: u64 = 1 << 10;
const NO_EXECUTE: u64 = 1 << 11;
/// SCE, LME, LMA, NXE, SVME, LMSLE, FFXSR.
const EFER_KNOWN: u64 = 0x7d01;

/// Other model-specific registers that keep the written value, and their first content: IA32_PAT,
/// the three of SYSENTER, STAR, LSTAR, CSTAR, SFMASK and KERNEL_GS_BASE.
const KEPT: [(u32, u64); 9] = [
    (0x277, 0x0007_0406_0007_0406),
    (0x174, 0),
    (0x175, 0),
    (0x176, 0),
    (0xc000_0081, 0),
    (0xc000_0082, 0),
    (0xc000_0083, 0),
    (0xc000_0084, 0),
    (0xc000_0102, 0),
];

/// Why an instruction cannot be carried out, and the value that is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) why: &'static str,
    pub(super) value: Option<u64>,
}

impl Refusal {
    const fn of(why: &'static str, value: u64) -> Self {
        Self { why, value: Some(value) }
    }
}

/// The registers.
#[derive(Debug)]
pub(super) struct Control {
    cr0: u64,
    cr2: u64,
    cr3: u64,
    cr4: u64,
    efer: u64,
    kept: [u64; KEPT.len()],
    /// Whether the sanitizer knows PCIDs ([`crate::Config::asids`]).
    tagged: bool,
}

impl Control {
    /// Creates the registers of a CPU in 64-bit mode, with paging and global pages on and PCIDs
    /// off.
    pub(super) fn new(tagged: bool, five_levels: bool) -> Self {
        Self {
            cr0: CR0,
            cr2: 0,
            cr3: 0,
            cr4: ADDRESS_EXTENSION | GLOBAL_PAGES | if five_levels { FIVE_LEVELS } else { 0 },
            efer: 1 | LONG_MODE | LONG_MODE_ACTIVE | NO_EXECUTE,
            kept: KEPT.map(|(_, first)| first),
            tagged,
        }
    }

    /// Takes over the root that a hook has loaded.
    pub(super) fn follow(&mut self, root: u64) {
        if self.cr3 & ROOT != root & ROOT {
            self.cr3 = root & ROOT;
        }
    }

    pub(super) fn read(&self, control: u8) -> Result<u64, Refusal> {
        match control {
            0 => Ok(self.cr0),
            2 => Ok(self.cr2),
            3 => Ok(self.cr3),
            4 => Ok(self.cr4),
            other => Err(Refusal::of("reads a control register other than 0, 2, 3 and 4", other.into())),
        }
    }

    pub(super) fn write(&mut self, control: u8, value: u64) -> Result<Effect, Refusal> {
        match control {
            0 => self.write_cr0(value),
            2 => {
                self.cr2 = value;
                Ok(Effect::None)
            }
            3 => self.write_cr3(value),
            4 => self.write_cr4(value),
            other => Err(Refusal::of("writes a control register other than 0, 2, 3 and 4", other.into())),
        }
    }

    fn write_cr0(&mut self, value: u64) -> Result<Effect, Refusal> {
        if value & !CR0_KNOWN != 0 {
            return Err(Refusal::of("sets reserved bits of CR0", value));
        }
        if value & (PROTECTION | PAGING) != PROTECTION | PAGING {
            return Err(Refusal::of("turns paging off in CR0, which 64-bit code cannot", value));
        }
        // Bit 4 is always set.
        self.cr0 = value | 1 << 4;
        Ok(Effect::None)
    }

    fn write_cr3(&mut self, value: u64) -> Result<Effect, Refusal> {
        let pcids = self.cr4 & PCIDS != 0;
        let keep = value & KEEP != 0;
        let reserved = !(ROOT | PCID | if pcids { KEEP } else { 0 });
        if value & reserved != 0 {
            return Err(Refusal::of("sets reserved bits of CR3", value));
        }
        self.cr3 = value & !KEEP;
        let load = Load {
            root: value & ROOT,
            pcid: if pcids { value & PCID } else { 0 },
            keep,
            // Without global pages, the bit in an entry has no meaning.
            globals: self.cr4 & GLOBAL_PAGES == 0,
        };
        Ok(Effect::Load(load))
    }

    fn write_cr4(&mut self, value: u64) -> Result<Effect, Refusal> {
        let (set, cleared) = (value & !self.cr4, self.cr4 & !value);
        if value & !CR4_KNOWN != 0 {
            return Err(Refusal::of("sets reserved bits of CR4", value));
        }
        if (set | cleared) & (FIVE_LEVELS | ADDRESS_EXTENSION) != 0 {
            return Err(Refusal::of(
                "changes the format in CR4 (LA57 or PAE); choose it with the sanitizer's `Arch`",
                value,
            ));
        }
        if set & PCIDS != 0 {
            if !self.tagged {
                return Err(Refusal::of(
                    "sets CR4.PCIDE, but the sanitizer knows no PCIDs; set `Config::asids`",
                    value,
                ));
            }
            if self.cr3 & PCID != 0 {
                return Err(Refusal::of("sets CR4.PCIDE while the lowest bits of CR3 are set", self.cr3));
            }
        }
        self.cr4 = value;
        Ok(if (set | cleared) & GLOBAL_PAGES != 0 || cleared & PCIDS != 0 {
            Effect::FlushAll
        } else if set & NO_SUPERVISOR_EXECUTION != 0 {
            Effect::FlushCurrent
        } else {
            Effect::None
        })
    }

    /// Returns the effect of `invpcid` of this type. `pcid` is the first word of the descriptor.
    pub(super) fn invalidate(&self, kind: u64, pcid: u64, va: u64) -> Result<Effect, Refusal> {
        let with_pcid = kind <= 1;
        if kind > 3 {
            return Err(Refusal::of("has a type above 3", kind));
        }
        if pcid & !PCID != 0 {
            return Err(Refusal::of("has a descriptor with reserved bits", pcid));
        }
        if with_pcid && pcid != 0 && self.cr4 & PCIDS == 0 {
            return Err(Refusal::of("names a PCID other than 0, but CR4.PCIDE is clear", pcid));
        }
        Ok(match kind {
            0 => Effect::FlushTagged { pcid, va },
            1 => Effect::FlushTag { pcid },
            2 => Effect::FlushAll,
            _ => Effect::FlushTags,
        })
    }

    pub(super) fn read_specific(&self, number: u32) -> Result<u64, Refusal> {
        match place(number)? {
            None => Ok(self.efer),
            Some(i) => Ok(self.kept[i]),
        }
    }

    pub(super) fn write_specific(&mut self, number: u32, value: u64) -> Result<(), Refusal> {
        let Some(i) = place(number)? else {
            if value & !EFER_KNOWN != 0 {
                return Err(Refusal::of("sets bits of EFER that are reserved or not emulated", value));
            }
            if (value ^ self.efer) & LONG_MODE != 0 {
                return Err(Refusal::of("leaves 64-bit mode in EFER while paging is on", value));
            }
            if value & NO_EXECUTE == 0 {
                return Err(Refusal::of("clears EFER.NXE, which the sanitizer takes as set", value));
            }
            // The processor sets the bit itself.
            self.efer = value | LONG_MODE_ACTIVE;
            return Ok(());
        };
        self.kept[i] = value;
        Ok(())
    }
}

/// Returns the index of a model-specific register among those that are kept, `None` for EFER.
fn place(number: u32) -> Result<Option<usize>, Refusal> {
    if number == EFER {
        return Ok(None);
    }
    let place = KEPT.iter().position(|&(kept, _)| kept == number);
    place.map(Some).ok_or(Refusal::of("uses a model-specific register that is not emulated", number.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u64 = ADDRESS_EXTENSION | GLOBAL_PAGES;

    fn why(result: Result<Effect, Refusal>) -> &'static str {
        result.expect_err("refused").why
    }

    #[test]
    fn registers_hold_what_was_written() {
        let mut control = Control::new(true, false);
        for (number, value) in [(0, CR0 & !(1 << 16)), (2, !0), (3, 0x1234_5018), (4, OWN | 1 << 21)] {
            control.write(number, value).expect("carried out");
            assert_eq!(control.read(number), Ok(value), "CR{number}");
        }
        for (number, first) in KEPT {
            assert_eq!(control.read_specific(number), Ok(first));
            control.write_specific(number, u64::from(number)).expect("kept");
        }
        for (number, _) in KEPT {
            assert_eq!(control.read_specific(number), Ok(number.into()));
        }
        assert_eq!(control.read_specific(EFER), Ok(0xd01));
        control.write_specific(EFER, 0x900).expect("kept");
        assert_eq!(control.read_specific(EFER), Ok(0xd00), "LMA stays");
    }

    #[test]
    fn a_load_of_the_root_flushes_unless_bit_63_says_otherwise() {
        let mut control = Control::new(true, false);
        let load = |root, pcid, keep, globals| Ok(Effect::Load(Load { root, pcid, keep, globals }));
        assert_eq!(control.write(3, 0x5018), load(0x5000, 0, false, false), "no PCIDs: bits of the cache");
        assert_eq!(why(control.write(3, KEEP | 0x5000)), "sets reserved bits of CR3");
        assert_eq!(control.read(3), Ok(0x5018), "what is refused changes nothing");
        assert!(why(control.write(4, OWN | PCIDS)).contains("lowest bits of CR3"));
        control.write(3, 0x5000).expect("loads");
        assert_eq!(control.write(4, OWN | PCIDS), Ok(Effect::None));
        assert_eq!(control.write(3, 0x6007), load(0x6000, 7, false, false));
        assert_eq!(control.write(3, KEEP | 0x6008), load(0x6000, 8, true, false));
        assert_eq!(control.read(3), Ok(0x6008), "bit 63 is never read");
        assert_eq!(control.write(4, ADDRESS_EXTENSION | PCIDS), Ok(Effect::FlushAll));
        assert_eq!(control.write(3, 0x6007), load(0x6000, 7, false, true), "nothing is global");
    }

    #[test]
    fn cr4_flushes_what_the_bits_call_for() {
        let mut control = Control::new(true, false);
        for (value, effect) in [
            (OWN, Effect::None),
            (ADDRESS_EXTENSION, Effect::FlushAll),
            (OWN, Effect::FlushAll),
            (OWN | PCIDS, Effect::None),
            (OWN, Effect::FlushAll),
            (OWN | NO_SUPERVISOR_EXECUTION, Effect::FlushCurrent),
            (OWN, Effect::None),
        ] {
            assert_eq!(control.write(4, value), Ok(effect), "{value:#x}");
        }
        assert!(why(Control::new(false, false).write(4, OWN | PCIDS)).contains("Config::asids"));
        assert!(why(control.write(4, OWN | FIVE_LEVELS)).contains("LA57"));
        assert!(why(Control::new(true, true).write(4, OWN)).contains("LA57"));
    }

    #[test]
    fn what_the_processor_refuses_is_refused() {
        let mut control = Control::new(true, false);
        assert!(why(control.write(0, CR0 & !PAGING)).contains("turns paging off"));
        assert!(why(control.write(0, CR0 | 1 << 32)).contains("CR0"));
        assert!(why(control.write(3, 1 << 52)).contains("CR3"));
        assert!(why(control.write(4, OWN | 1 << 15)).contains("CR4"));
        assert!(why(control.write(8, 0)).contains("other than"));
        assert_eq!(control.read(8).expect_err("refused").value, Some(8));
        assert!(why(control.invalidate(4, 0, 0)).contains("type"));
        assert!(why(control.invalidate(3, 1 << 12, 0)).contains("reserved"));
        assert!(why(control.invalidate(1, 5, 0)).contains("PCIDE"));
        assert_eq!(control.invalidate(3, 5, 0), Ok(Effect::FlushTags), "its PCID counts for nothing");
        for (number, value) in [(EFER, 0x500), (EFER, 0xc00), (EFER, 1 << 15 | 0xd01), (0xc000_0100, 0)] {
            control.write_specific(number, value).expect_err("refused");
        }
    }
}
