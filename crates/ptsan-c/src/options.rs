//! Reads the options of a new sanitizer.
use crate::error::Refusal;
use crate::text;
use ptsan::{Adversary, Arch, Config, Errata, ExceptionLevel, Granule, Suppressions};
use std::ffi::c_char;

/// Page-table formats, with the caching rules of their hardware.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PtsanArch {
    /// 32-bit x86 without PAE (i386): 2 levels, entries of 4 bytes.
    X86 = 1,
    /// 32-bit x86 with PAE (i686): 3 levels.
    X86Pae = 2,
    /// x86-64 with 4 levels.
    X86_64 = 3,
    /// x86-64 with 5 levels.
    #[allow(non_camel_case_types, reason = "the header has a word of its own for it")]
    X86_64_La57 = 4,
    /// RISC-V Sv32.
    RiscvSv32 = 5,
    /// RISC-V Sv39.
    RiscvSv39 = 6,
    /// RISC-V Sv48.
    RiscvSv48 = 7,
    /// RISC-V Sv57.
    RiscvSv57 = 8,
    /// AArch64 stage 1, pages of 4 KiB. `va_bits` counts.
    Aarch64_4k = 9,
    /// AArch64 stage 1, pages of 16 KiB. `va_bits` counts.
    Aarch64_16k = 10,
    /// AArch64 stage 1, pages of 64 KiB. `va_bits` counts.
    Aarch64_64k = 11,
    /// AArch64 stage 2, pages of 4 KiB. `va_bits` and `start_level` count.
    Aarch64Stage2_4k = 12,
    /// AArch64 stage 2, pages of 16 KiB. `va_bits` and `start_level` count.
    Aarch64Stage2_16k = 13,
    /// AArch64 stage 2, pages of 64 KiB. `va_bits` and `start_level` count.
    Aarch64Stage2_64k = 14,
    /// 32-bit PowerPC with a hash table: see `ptsan_hash_table`.
    Powerpc = 15,
    /// Intel's extended page tables, 4 levels. Addresses are guest-physical; see
    /// `PTSAN_FLAG_TWO_STAGES`.
    Ept = 16,
    /// AMD's nested page tables, 4 levels. Addresses are guest-physical.
    Npt = 17,
    /// The G-stage of RISC-V, Sv39x4. Addresses are guest-physical.
    #[allow(non_camel_case_types, reason = "the header has a word of its own for it")]
    RiscvSv39_x4 = 18,
    /// The G-stage of RISC-V, Sv48x4. Addresses are guest-physical.
    #[allow(non_camel_case_types, reason = "the header has a word of its own for it")]
    RiscvSv48_x4 = 19,
    /// LoongArch, 64 bits, 16 KiB pages. Software fills the TLB.
    Loongarch64 = 20,
}

/// Flags for `ptsan_options.flags`, combined with `|`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PtsanFlag {
    /// Cached entries are tagged with their address space and survive a switch to another (PCID,
    /// ASID).
    Asids = 1,
    /// Entries of the root may point at the root itself.
    Recursive = 2,
    /// When an access makes one CPU walk, every other CPU with the same root walks too.
    EagerWalkers = 4,
    /// Reports old entries in a table that a walk reaches first, for kernels that tell no stores.
    InferLeftovers = 8,
    /// Findings name the callers that allocated and freed the table. Costs microseconds a table.
    TrackOrigins = 16,
    /// AArch64: the upper of the two trees (`TTBR1`).
    Upper = 32,
    /// Findings name no callers.
    NoBacktraces = 64,
    /// Barriers are told (`ptsan_barrier`), and one that is missing is a finding. For AArch64 and
    /// RISC-V; other formats need no barrier.
    Barriers = 128,
    /// The kernel relies on the accessed and dirty bits that hardware sets. A plain store over an
    /// entry through which another CPU may write then loses a dirty bit: exchange it
    /// (`ptsan_entry_exchanged`). An entry that was not accessed when it was exchanged owes no
    /// flush.
    AccessedDirty = 256,
    /// Reports a frame that user mode may write at one address and execute at another. Needs stores
    /// that are told or watched.
    WriteXorExecute = 512,
    /// The tables are those of stage 2, a hypervisor's with a guest's tables on top, and CPUs cache
    /// translations that are combined of both stages. A flush by address then needs
    /// `ptsan_stage1_flushed` after it. Flushes of the whole space drop both.
    TwoStages = 1024,
    /// AArch64 stage 1: both trees in one sanitizer. `ptsan_switch` loads `TTBR0`,
    /// `ptsan_switch_upper` `TTBR1`; a flush is told once. Not with memory that is watched.
    BothTrees = 2048,
    /// A number of a space stands for the same root on all CPUs (AArch64 with `TTBR.CnP`): two that
    /// run different roots under one number are a finding.
    CommonNumbers = 4096,
    /// Locks are told (`ptsan_lock_guards`, `ptsan_lock_taken`, `ptsan_lock_released`): a store
    /// without the lock of its table is a finding. Needs stores that are told or watched.
    Locks = 8192,
    /// Erratum: `invlpg` beside PCIDs leaves global translations (some Intel processors with two
    /// kinds of cores).
    InvlpgSparesGlobals = 16384,
    /// Erratum: `sfence.vma` with operands may drop nothing (SiFive CIP-1200).
    SfenceDropsOnlyAll = 32768,
    /// Erratum: after `tlbi` and `dsb` another `tlbi` and `dsb` are needed (CVE-2025-10263). With
    /// `PTSAN_FLAG_BARRIERS`.
    DsbMissesStores = 65536,
    /// CPUs and devices keep entries that were not valid when a walk read them: an access that
    /// memory allows may fault (`PTSAN_FAULT_NOT_PRESENT`) until the handler flushes, and a second
    /// fault is a finding. It is on for RISC-V.
    KeepsInvalid = 131_072,
    /// They keep none (RISC-V with Svvptc).
    DropsInvalid = 262_144,
    /// Walkers set accessed and dirty bits in the tables, as those of x86 do, and those of AArch64
    /// with FEAT_HAFDBS and of RISC-V with Svadu. The sanitizer then stores to the memory of
    /// `ptsan_new`; that of `ptsan_new_reading` will not do.
    WalkersSetBits = 524_288,
}

/// The simulated machine. Set all members to zero, then those that matter:
/// `ptsan_options options = { .arch = PTSAN_ARCH_X86_64, .cpus = 2 };`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PtsanOptions {
    /// The page-table format, an `enum ptsan_arch`.
    pub arch: u32,
    /// The number of CPUs, at most 65535. 0 means 1.
    pub cpus: u32,
    /// Values of `enum ptsan_flag`, combined with `|`.
    pub flags: u32,
    /// AArch64: the number of address bits that are translated. 0 means 48, for stage 2 40.
    pub va_bits: u32,
    /// AArch64 stage 2: the level at which walks start, as the manual numbers it (0 to 3).
    pub start_level: u32,
    /// CPUs walk speculatively at random moments: this many times in 1000 calls, at most 65535. 0
    /// means never; 500 is a good start.
    pub adversary_rate: u32,
    /// The seed of these moments. The environment variable `PTSAN_SEED` replaces it.
    pub seed: u64,
    /// The number of findings kept in full; all are counted. 0 means 64.
    pub keep: u32,
    /// The most flushes that CPUs may owe at a time; further ones are counted
    /// (`ptsan_debts_dropped`) and not checked. One takes some 150 bytes. 0 means 65536.
    pub debts: u32,
    /// The most entries whose stores are remembered with their events, at 16 bytes each; beyond it
    /// a table takes some 4 KiB. 0 means 1048576.
    pub told: u32,
    /// The number of devices that walk the tables too: see `ptsan_device`.
    pub devices: u32,
    /// The number of CPUs is 0: the tables are those of devices alone.
    pub devices_only: bool,
    /// Findings that are known and do not count, or NULL. One a line: `kind`, `kind/Rule`, either
    /// with `:part of a caller's name`. Text after ` #` is a comment. It is copied.
    pub suppressions: *const c_char,
    /// AArch64: the exception level whose translations the tables describe, 1 to 3. 0 means 1. See
    /// `ptsan_flush_of`.
    pub exception_level: u32,
}

/// Returns the exception level of a number.
pub(crate) fn exception_level_of(number: u32) -> Result<ExceptionLevel, Refusal> {
    match number {
        1 => Ok(ExceptionLevel::El1),
        2 => Ok(ExceptionLevel::El2),
        3 => Ok(ExceptionLevel::El3),
        _ => Err(Refusal::argument(format!("exception level {number}; 1, 2 and 3 have translations"))),
    }
}

const ALL_FLAGS: u32 = 1_048_575;

impl PtsanOptions {
    fn has(&self, flag: PtsanFlag) -> bool {
        self.flags & flag as u32 != 0
    }

    /// Returns whether there is a sanitizer for each of the two trees.
    pub(crate) fn both_trees(&self) -> bool {
        self.has(PtsanFlag::BothTrees)
    }

    /// Returns the configuration that the options ask for.
    ///
    /// # Safety
    /// `suppressions` is NULL or a string.
    pub(crate) unsafe fn config(&self) -> Result<Config, Refusal> {
        if self.flags & !ALL_FLAGS != 0 {
            let flags = self.flags;
            return Err(Refusal::argument(format!("flags {flags:#x}; combine values of enum ptsan_flag")));
        }
        let at_most = |number: u32, what: &str| {
            u16::try_from(number)
                .map_err(|_| Refusal::argument(format!("{number} {what}; 65535 are the most")))
        };
        let rate = at_most(self.adversary_rate, "steps of the adversary in 1000 calls")?;
        let arch = self.format()?;
        let keeps = arch.keeps_invalid || self.has(PtsanFlag::KeepsInvalid);
        let mut config = Config {
            keeps_invalid: keeps && !self.has(PtsanFlag::DropsInvalid),
            exception_level: exception_level_of(self.exception_level.max(1))?,
            cpus: usize::from(at_most(self.cpus, "CPUs")?).max(usize::from(!self.devices_only)),
            devices: usize::from(at_most(self.devices, "devices")?),
            common_numbers: self.has(PtsanFlag::CommonNumbers),
            locks: self.has(PtsanFlag::Locks),
            errata: Errata {
                invlpg_spares_globals: self.has(PtsanFlag::InvlpgSparesGlobals),
                sfence_drops_only_all: self.has(PtsanFlag::SfenceDropsOnlyAll),
                dsb_misses_stores: self.has(PtsanFlag::DsbMissesStores),
            },
            asids: self.has(PtsanFlag::Asids),
            recursive: self.has(PtsanFlag::Recursive),
            eager_walkers: self.has(PtsanFlag::EagerWalkers),
            infer_leftovers: self.has(PtsanFlag::InferLeftovers),
            track_origins: self.has(PtsanFlag::TrackOrigins),
            backtraces: !self.has(PtsanFlag::NoBacktraces),
            barriers: self.has(PtsanFlag::Barriers),
            accessed_dirty: self.has(PtsanFlag::AccessedDirty),
            walkers_set_bits: self.has(PtsanFlag::WalkersSetBits),
            write_xor_execute: self.has(PtsanFlag::WriteXorExecute),
            two_stages: self.has(PtsanFlag::TwoStages),
            adversary: (rate > 0).then_some(Adversary { seed: self.seed, rate }),
            ..Config::new(arch)
        };
        if self.keep > 0 {
            config.keep = self.keep as usize;
        }
        if self.debts > 0 {
            config.debts = self.debts as usize;
        }
        if self.told > 0 {
            config.told = self.told as usize;
        }
        if !self.suppressions.is_null() {
            // SAFETY: the caller promises it.
            let list = unsafe { text::argument(self.suppressions, "the list of suppressions") }?;
            config.suppressions = Suppressions::parse(list)
                .map_err(|e| Refusal::argument(format!("suppressions, {e}; write kind or kind/Rule")))?;
        }
        Ok(config)
    }

    fn format(&self) -> Result<Arch, Refusal> {
        use PtsanArch as A;
        let bits = |default: u8| match u8::try_from(self.va_bits) {
            Ok(0) => default,
            Ok(bits) => bits,
            // No format has so many, and the sanitizer says so.
            Err(_) => u8::MAX,
        };
        let stage2 = |granule| {
            let start = u8::try_from(self.start_level).unwrap_or(u8::MAX);
            Arch::aarch64_stage2(granule, bits(40), start)
        };
        let is = |arch: A| self.arch == arch as u32;
        let fixed: [(A, fn() -> Arch); 14] = [
            (A::X86, Arch::x86_2level),
            (A::X86Pae, Arch::x86_pae),
            (A::X86_64, Arch::x86_64),
            (A::X86_64_La57, Arch::x86_64_la57),
            (A::RiscvSv32, Arch::riscv_sv32),
            (A::RiscvSv39, Arch::riscv_sv39),
            (A::RiscvSv48, Arch::riscv_sv48),
            (A::RiscvSv57, Arch::riscv_sv57),
            (A::Powerpc, Arch::ppc32),
            (A::Ept, Arch::ept),
            (A::Npt, Arch::npt),
            (A::RiscvSv39_x4, Arch::riscv_sv39x4),
            (A::RiscvSv48_x4, Arch::riscv_sv48x4),
            (A::Loongarch64, Arch::loongarch64),
        ];
        let is_fixed = fixed.iter().find(|(arch, _)| is(*arch));
        let arch = match is_fixed {
            Some((_, describe)) => describe(),
            None if is(A::Aarch64_4k) => Arch::aarch64_4k(bits(48)),
            None if is(A::Aarch64_16k) => Arch::aarch64_16k(bits(48)),
            None if is(A::Aarch64_64k) => Arch::aarch64_64k(bits(48)),
            None if is(A::Aarch64Stage2_4k) => stage2(Granule::K4),
            None if is(A::Aarch64Stage2_16k) => stage2(Granule::K16),
            None if is(A::Aarch64Stage2_64k) => stage2(Granule::K64),
            None => {
                let arch = self.arch;
                return Err(Refusal::argument(format!("no format has number {arch}; see enum ptsan_arch")));
            }
        };
        let (name, va_bits, start_level) = (arch.name, self.va_bits, self.start_level);
        let is_stage2 = is_fixed.is_none() && self.arch >= A::Aarch64Stage2_4k as u32;
        if is_fixed.is_some() && va_bits != 0 || !is_stage2 && start_level != 0 {
            let member = if is_fixed.is_some() && va_bits != 0 {
                format!("va_bits {va_bits}")
            } else {
                format!("start_level {start_level}")
            };
            let which = member.split(' ').next().unwrap_or_default();
            return Err(Refusal::argument(format!(
                "{member}, and {name} has no such choice; leave {which} 0"
            )));
        }
        if arch.levels.is_empty() {
            return Err(Refusal::argument(format!(
                "{name} cannot have {va_bits} address bits from level {start_level}"
            )));
        }
        if self.both_trees() && (self.has(PtsanFlag::Upper) || is_fixed.is_some() || is_stage2) {
            return Err(Refusal::argument(format!(
                "{name} has not both trees at once; drop PTSAN_FLAG_BOTH_TREES or PTSAN_FLAG_UPPER"
            )));
        }
        match (self.has(PtsanFlag::Upper), is_fixed.is_some() || is_stage2) {
            (false, _) => Ok(arch),
            (true, false) => Ok(arch.upper()),
            (true, true) => {
                Err(Refusal::argument(format!("{name} has no upper tree; drop PTSAN_FLAG_UPPER")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arch: u32) -> PtsanOptions {
        PtsanOptions {
            arch,
            cpus: 0,
            flags: 0,
            va_bits: 0,
            start_level: 0,
            adversary_rate: 0,
            seed: 0,
            keep: 0,
            debts: 0,
            told: 0,
            devices: 0,
            devices_only: false,
            suppressions: std::ptr::null(),
            exception_level: 0,
        }
    }

    fn config(options: PtsanOptions) -> Result<Config, String> {
        // SAFETY: the lists of these tests are strings.
        unsafe { options.config() }.map_err(|refusal| refusal.why)
    }

    #[test]
    fn every_format_number_is_a_distinct_format() {
        let names: Vec<_> = (1..=20_u32)
            .map(|n| {
                config(PtsanOptions {
                    start_level: [1, 2, 2].get(n.wrapping_sub(12) as usize).copied().unwrap_or(0),
                    ..options(n)
                })
                .unwrap()
                .arch
                .name
            })
            .collect();
        let mut distinct = names.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 20, "{names:?}");
        assert_eq!(names[PtsanArch::X86_64 as usize - 1], Arch::x86_64().name);
        for n in [0, 21, u32::MAX] {
            assert!(config(options(n)).unwrap_err().contains("ptsan_arch"), "{n}");
        }
    }

    #[test]
    fn all_flags_are_known_and_no_other_bit_is_taken() {
        let all = config(PtsanOptions { flags: ALL_FLAGS & !2048, ..options(9) }).unwrap();
        assert!(all.asids && all.recursive && all.eager_walkers && all.infer_leftovers && all.track_origins);
        assert!(!all.backtraces && all.barriers && all.accessed_dirty && all.write_xor_execute);
        assert!(all.walkers_set_bits);
        assert!(all.two_stages && all.common_numbers && all.locks && !all.keeps_invalid);
        let keeps = |arch: PtsanArch, flags: u32| {
            config(PtsanOptions { flags, ..options(arch as u32) }).unwrap().keeps_invalid
        };
        assert!(keeps(PtsanArch::RiscvSv39, 0) && !keeps(PtsanArch::X86_64, 0));
        assert!(keeps(PtsanArch::X86_64, PtsanFlag::KeepsInvalid as u32));
        assert!(!keeps(PtsanArch::RiscvSv39, PtsanFlag::DropsInvalid as u32));
        let Errata { invlpg_spares_globals, sfence_drops_only_all, dsb_misses_stores } = all.errata;
        assert!(invlpg_spares_globals && sfence_drops_only_all && dsb_misses_stores);
        assert_eq!(all.arch.canonical, ptsan::Canonical::OnesExtended);
        let none = config(options(9)).unwrap();
        assert!(!none.asids && !none.recursive && !none.eager_walkers && !none.infer_leftovers);
        assert!(!none.barriers && !none.accessed_dirty && !none.write_xor_execute && !none.two_stages);
        assert!(!none.walkers_set_bits);
        assert!(none.backtraces && none.cpus == 1 && none.adversary.is_none());
        assert!(config(PtsanOptions { flags: ALL_FLAGS + 1, ..options(9) }).is_err());
    }

    #[test]
    fn documented_page_sizes_are_those_of_the_formats() {
        let source = include_str!("options.rs");
        let list = source.split("pub enum PtsanArch {").nth(1).and_then(|rest| rest.split("\n}").next());
        let (mut text, mut seen) = (String::new(), 0);
        for line in list.expect("the enumeration").lines().map(str::trim) {
            if let Some(words) = line.strip_prefix("///") {
                text += words;
            } else if let Some((name, number)) = line.split_once(" = ").filter(|_| !line.starts_with('#')) {
                let number: u32 = number.trim_end_matches(',').parse().expect("a number");
                let said = text.split(" KiB").next().filter(|_| text.contains(" KiB"));
                let said = said.and_then(|before| before.rsplit(' ').next()?.parse::<u64>().ok());
                if let Some(said) = said {
                    // Stage 2 says where walks start.
                    let start_level =
                        if (12..=14).contains(&number) { 1 + u32::from(number > 12) } else { 0 };
                    let arch = config(PtsanOptions { start_level, ..options(number) }).unwrap().arch;
                    let page = 1 << arch.levels[0].shift;
                    assert_eq!(said << 10, page, "{name}");
                    seen += 1;
                }
                text.clear();
            }
        }
        assert_eq!(seen, 7, "six of AArch64, one of LoongArch");
    }

    #[test]
    fn choices_that_a_format_does_not_have_are_refused() {
        for wrong in [
            PtsanOptions { va_bits: 48, ..options(3) },
            PtsanOptions { start_level: 1, ..options(9) },
            PtsanOptions { va_bits: 300, ..options(9) },
            PtsanOptions { va_bits: 60, ..options(9) },
            PtsanOptions { start_level: 9, ..options(12) },
            PtsanOptions { flags: PtsanFlag::Upper as u32, ..options(3) },
            PtsanOptions { flags: PtsanFlag::BothTrees as u32, ..options(3) },
            PtsanOptions { flags: PtsanFlag::BothTrees as u32 | PtsanFlag::Upper as u32, ..options(9) },
            PtsanOptions { cpus: 65536, ..options(3) },
            PtsanOptions { exception_level: 4, ..options(9) },
            PtsanOptions { adversary_rate: 65536, ..options(3) },
            PtsanOptions { suppressions: c"leek".as_ptr(), ..options(3) },
            PtsanOptions { suppressions: c"\xff".as_ptr(), ..options(3) },
        ] {
            assert!(config(wrong).is_err(), "{wrong:?}");
        }
        for (wrong, text) in [
            (
                PtsanOptions { va_bits: 48, ..options(3) },
                "va_bits 48, and x86-64 has no such choice; leave va_bits 0",
            ),
            (PtsanOptions { start_level: 1, ..options(3) }, "leave start_level 0"),
            (PtsanOptions { start_level: 1, ..options(9) }, "start_level 1, and AArch64 4K stage 1 has"),
        ] {
            let why = config(wrong).unwrap_err();
            assert!(why.contains(text), "{why}");
        }
        for (number, level) in [
            (0, ExceptionLevel::El1),
            (1, ExceptionLevel::El1),
            (2, ExceptionLevel::El2),
            (3, ExceptionLevel::El3),
        ] {
            let options = PtsanOptions { exception_level: number, ..options(9) };
            assert_eq!(config(options).unwrap().exception_level, level);
        }
        assert_eq!(config(options(9)).unwrap().debts, 65536);
        assert_eq!(config(PtsanOptions { debts: 5, ..options(9) }).unwrap().debts, 5);
        assert_eq!(config(options(9)).unwrap().told, 1 << 20);
        assert_eq!(config(PtsanOptions { told: 5, ..options(9) }).unwrap().told, 5);
        let fine = PtsanOptions { suppressions: c"leak # known".as_ptr(), adversary_rate: 500, ..options(9) };
        assert_eq!(config(fine).unwrap().adversary, Some(Adversary { seed: 0, rate: 500 }));
    }
}
