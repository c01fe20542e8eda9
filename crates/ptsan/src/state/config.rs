//! Configures the simulated machine, the checks and the number of findings kept.
use super::chance::Adversary;
use super::errata::Errata;
use crate::arch::Arch;
use crate::cpu::ExceptionLevel;
use crate::report::{Allow, Suppressions};
use std::sync::OnceLock;

/// Configures the simulated machine, the checks and the number of findings kept.
/// ```
/// use ptsan::{Adversary, Arch, Config, Sanitizer};
///
/// let adversary = Some(Adversary::new(1));
/// let config = Config { cpus: 4, asids: true, adversary, ..Config::new(Arch::aarch64_4k(48)) };
/// assert!(Sanitizer::new(config).findings().is_empty());
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    /// The number of CPUs, at most 65,535.
    pub cpus: usize,
    /// The number of devices that walk the tables too (behind an IOMMU, or sharing the address
    /// space of a process): see [`crate::Sanitizer::device`].
    pub devices: usize,
    /// The page-table format.
    pub arch: Arch,
    /// The exception level whose translations the tables describe (AArch64). A flush that names
    /// another one drops nothing: see [`Flush::of`](crate::Flush::of).
    pub exception_level: ExceptionLevel,
    /// Cached entries are tagged with their address space and survive a switch to another (PCID,
    /// ASID).
    ///
    /// A table may then be freed while a CPU that has *another* space loaded holds it. It must be
    /// flushed before that CPU uses the space again; a walk that shows otherwise is reported.
    pub asids: bool,
    /// A number of a space stands for the same root on all CPUs: two that run different roots under
    /// one number are a finding ([`crate::Kind::WrongNumber`]). CPUs that share a TLB need it
    /// (AArch64 with `TTBR.CnP`), and so does code whose invalidations by number are broadcast.
    pub common_numbers: bool,
    /// Frames may be tables of several levels: an entry of the root points at the root itself.
    pub recursive: bool,
    /// Reports old entries in a table that a walk reaches first, without a told link. Code that
    /// clears a table and then writes the very same entries looks the same, so this is off by
    /// default.
    pub infer_leftovers: bool,
    /// Whenever an access makes one CPU walk, every other CPU with the same root loaded, active or
    /// lazy, walks speculatively for the same address. Hardware may do so. A test that accesses
    /// memory from one CPU then finds the shootdowns that the others miss.
    pub eager_walkers: bool,
    /// CPUs walk speculatively at random moments and for random addresses: see [`Adversary`].
    pub adversary: Option<Adversary>,
    /// Barriers are told ([`crate::Sanitizer::barrier`]), and one that is missing is a finding.
    /// Only formats of architectures that need any ([`crate::Arch::ordering`]) are checked.
    pub barriers: bool,
    /// The code under test relies on the accessed and dirty bits that hardware sets
    /// ([`crate::Arch::hardware_bits`]).
    ///
    /// Then a plain store ([`crate::Sanitizer::entry_written`]) over an entry that another CPU may
    /// be writing through loses a dirty bit ([`crate::Kind::BitLost`]): code must exchange such an
    /// entry ([`crate::Sanitizer::entry_exchanged`]). An entry whose accessed bit was still clear
    /// when it was exchanged is in no cache, and owes no flush. A large page that is stored clean
    /// over a table with clean writable pages of it loses their bits, as does one that is made of
    /// pages that CPUs have written, and is clean ([`crate::Rule::DirtyLeftBehind`]).
    pub accessed_dirty: bool,
    /// CPUs and devices keep entries that were not valid when a walk read them, and go on faulting
    /// on them until a flush. On for formats whose architecture allows it
    /// ([`Arch::keeps_invalid`]). Off stands for hardware that promises not to (RISC-V with
    /// Svvptc).
    ///
    /// An access to a page that memory maps then may answer [`crate::Fault::NotPresent`]: the
    /// handler of that fault has to flush, and the access is made again. A second fault on the same
    /// entry is a finding ([`crate::Rule::InvalidKept`]), and so is one after which nobody has
    /// flushed by [`crate::Sanitizer::flushes_done`]. That one does not count if it is of a program
    /// and the CPU kept the entry when it walked ahead. CPUs that look pages up in a hash table
    /// keep no such entries.
    /// ```
    /// use ptsan::{Access, Arch, Config, Flush, Kind, Session};
    ///
    /// let mut s = Session::new(Arch::riscv_sv39(), vec![0u8; 1 << 16]);
    /// [0x1000, 0x2000, 0x3000].map(|table| s.alloc(table));
    /// s.put(0x1000, 0x801);
    /// s.put(0x2000, 0xc01);
    /// s.load(0x1000);
    /// let kernel = Access::READ.kernel();
    /// assert!(s.translate(0, kernel).is_err());       // the hart keeps the empty entry
    /// s.put(0x3000, 0x2443);                          // a page
    /// assert!(s.translate(0, kernel).is_err());       // no fence: it faults,
    /// assert!(s.translate(0, kernel).is_ok());        // and again
    /// assert_eq!(s.sanitizer.count(Kind::StaleUse), 1);
    /// ```
    pub keeps_invalid: bool,
    /// Walkers set accessed and dirty bits in memory ([`crate::Arch::used`]), as those of x86 do,
    /// and those of AArch64 with FEAT_HAFDBS and of RISC-V with Svadu. A CPU that writes through a
    /// clean translation walks again, and faults if the entry no longer allows the write.
    ///
    /// Code under test then meets bits that it has not set itself. The memory must be one that
    /// walkers can store to: [`Memory::exchange`](crate::Memory::exchange).
    pub walkers_set_bits: bool,
    /// The tables are those of stage 2 (a hypervisor's, with a guest's tables on top), and CPUs
    /// cache translations that are combined of both stages. A flush by address then needs
    /// [`crate::Sanitizer::stage1_flushed`] after it. Flushes of the whole space drop both.
    pub two_stages: bool,
    /// Locks are told ([`crate::Sanitizer::lock_guards`], [`crate::Sanitizer::lock_taken`],
    /// [`crate::Sanitizer::lock_released`]), and a store without the lock of its table is a finding
    /// ([`crate::Kind::UnlockedWrite`]). Needs told stores.
    pub locks: bool,
    /// Reports a frame that user mode may write at one address and execute at another, in whatever
    /// spaces ([`crate::Kind::WriteExecute`]). Needs told stores.
    pub write_xor_execute: bool,
    /// Processors that forget less than their architecture says: see [`Errata`].
    pub errata: Errata,
    /// The most flushes that CPUs may owe at a time; further ones are counted
    /// ([`crate::Stats::debts_dropped`]) and not checked. One takes some 150 bytes.
    pub debts: usize,
    /// The most translations, and the most tables in a paging-structure cache, that a CPU holds for
    /// one address space; at least one. If another comes, one that was there is evicted; which one
    /// is repeated with the run. It bounds the memory that the sanitizer takes, at some 60 bytes an
    /// entry.
    ///
    /// Without a bound, a translation stays until it is flushed: the worst that hardware may do.
    /// With one, an access may find less that is stale. The entries that a CPU may hold after a
    /// told store are found all the same.
    pub tlb: usize,
    /// The number of entries, of all tables, whose told store is remembered with its event: 16
    /// bytes each. Of further entries the sanitizer remembers when a CPU last left a root before
    /// the store, at some 7 bytes each. Findings are the same. Only the event of a store that was
    /// made before the level of its table was known may be given as an earlier one, in histories
    /// and for runs of entries.
    ///
    /// 64 neighbouring entries take 16 bytes each all the same if they have more than 8 different
    /// attributes, or if CPUs still hold something of more than 15 roots left between their stores.
    pub told: usize,
    /// The number of findings kept in full. All are counted.
    pub keep: usize,
    /// Kept findings name the callers of the hook. The environment variable `PTSAN_BACKTRACE=0`
    /// turns it off.
    pub backtraces: bool,
    /// Every table remembers the callers that allocated and freed it. Costs some microseconds for
    /// each.
    pub track_origins: bool,
    /// The number of stores of which the sanitizer remembers the callers, with `backtraces`: told
    /// stores that owe flushes. A finding that is made later then names the line of the store. Each
    /// takes some 5 µs. The environment variable `PTSAN_STORES` replaces the number.
    pub stores: usize,
    /// Files and functions that are not under test: see [`Config::harness`].
    pub harness: Vec<String>,
    /// Findings that are known and allowed.
    pub suppressions: Suppressions,
    /// Counts [`crate::Stats::nanoseconds`]. Costs some 50 ns a hook.
    pub timed: bool,
}

impl Config {
    /// Configures one CPU without ASIDs and without an adversary. 64 findings are kept with
    /// backtraces, and the callers of 4,096 stores.
    #[must_use]
    pub fn new(arch: Arch) -> Self {
        Self {
            cpus: 1,
            devices: 0,
            keeps_invalid: arch.keeps_invalid,
            arch,
            exception_level: ExceptionLevel::El1,
            asids: false,
            common_numbers: false,
            recursive: false,
            infer_leftovers: false,
            eager_walkers: false,
            adversary: None,
            barriers: false,
            accessed_dirty: false,
            walkers_set_bits: false,
            two_stages: false,
            locks: false,
            write_xor_execute: false,
            errata: Errata::default(),
            debts: 1 << 16,
            tlb: usize::MAX,
            told: 1 << 20,
            keep: 64,
            backtraces: true,
            track_origins: false,
            stores: 1 << 12,
            harness: Vec::new(),
            suppressions: Suppressions::default(),
            timed: false,
        }
    }

    /// Adds findings that are allowed.
    #[must_use]
    pub fn allow(mut self, allow: Allow) -> Self {
        self.suppressions.push(allow);
        self
    }

    /// Marks a file or a function of the test as harness: hooks, allocators of frames, drivers.
    /// Reports leave it out and name the first caller outside.
    ///
    /// A pattern with a `/` or a `.` is the end of a file's path, in whole components: `hooks.rs`,
    /// `tests/hooks.rs`, and `tests/` for all files in such a directory. `file!()` is the file that
    /// it stands in. Another pattern is a part of a function's path, in whole names: `Machine`
    /// stands for all methods of that type. A `*` stands for anything: `hw_*`.
    ///
    /// The sanitizer's own functions, with [`Session`](crate::Session) and the adapters, are left
    /// out anyway.
    /// ```
    /// use ptsan::{Arch, Config};
    ///
    /// let config = Config::new(Arch::x86_64()).harness(file!()).harness("hw_*");
    /// assert_eq!(config.harness.len(), 2);
    /// ```
    #[must_use]
    pub fn harness(mut self, pattern: impl Into<String>) -> Self {
        self.harness.push(pattern.into());
        self
    }

    /// Applies the environment: `PTSAN_SEED` replaces the seed of a configured adversary by a
    /// number (`0x` for hexadecimal) or by `random`, `PTSAN_BACKTRACE=0` turns backtraces off, and
    /// `PTSAN_STORES` is the number of stores whose callers are remembered.
    ///
    /// [`crate::Sanitizer::new`] calls it, so that a failed run can be repeated without a change to
    /// the code.
    pub(crate) fn with_environment(mut self, variable: impl Fn(&str) -> Option<String>) -> Self {
        if let Some(adversary) = &mut self.adversary
            && let Some(seed) = variable("PTSAN_SEED").and_then(|s| parse_seed(&s))
        {
            adversary.seed = seed;
        }
        self.backtraces &= variable("PTSAN_BACKTRACE").as_deref() != Some("0");
        if let Some(stores) = variable("PTSAN_STORES").and_then(|s| s.trim().parse().ok()) {
            self.stores = stores;
        }
        self
    }
}

/// Returns the number that the environment gives as a seed. `random` is one number in the whole
/// process, so that all parts of a test have the same.
pub(crate) fn parse_seed(text: &str) -> Option<u64> {
    use std::hash::{BuildHasher, Hasher, RandomState};
    static RANDOM: OnceLock<u64> = OnceLock::new();
    match text.trim() {
        "random" => Some(*RANDOM.get_or_init(|| RandomState::new().build_hasher().finish() >> 1)),
        text => match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_replaces_the_number_of_stores() {
        let with = |text: &'static str| {
            let variable = |name: &str| (name == "PTSAN_STORES").then(|| text.to_owned());
            Config::new(Arch::x86_64()).with_environment(variable).stores
        };
        assert_eq!([with("7"), with(" 0"), with("many")], [7, 0, 4096]);
    }

    #[test]
    fn the_environment_replaces_the_seed_and_turns_backtraces_off() {
        let with = |adversary, seed: &'static str, backtrace: &'static str| {
            let config = Config { adversary, ..Config::new(Arch::x86_64()) };
            let config = config.with_environment(|name| match name {
                "PTSAN_SEED" => Some(seed.to_owned()),
                "PTSAN_BACKTRACE" => Some(backtrace.to_owned()),
                _ => None,
            });
            (config.adversary.map(|a| a.seed), config.backtraces)
        };
        let some = Some(Adversary::new(7));
        assert_eq!(with(some, "0x10", "0"), (Some(16), false));
        assert_eq!(with(some, "10", "1"), (Some(10), true));
        assert_eq!(with(some, "ten", ""), (Some(7), true), "nonsense changes nothing");
        assert_eq!(with(None, "10", "1"), (None, true), "no adversary comes from outside");
        assert_ne!(with(some, "random", "1").0, Some(7));
        assert_eq!(with(some, "random", "1").0, with(some, "random", "1").0, "one in a process");
    }
}
