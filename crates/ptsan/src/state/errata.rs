//! Processors that forget less than their architecture says.

/// Errata of processors, by name. All are off by default.
///
/// A kernel that supports such a processor runs its tests with the erratum on: the invalidation
/// that does not help there pays no debt, and drops nothing.
/// ```
/// use ptsan::{Arch, Config, Errata, Flush, Kind, Session};
///
/// let errata = Errata { invlpg_spares_globals: true, ..Errata::default() };
/// let mut s = Session::with(Config { asids: true, errata, ..Config::new(Arch::x86_64()) }, vec![0u8; 1 << 16]);
/// for (table, entry) in [(0x1000, 0x2003), (0x2000, 0x3003), (0x3000, 0x4003), (0x4000, 0x9103)] {
///     s.alloc(table);
///     s.put(table, entry);                                // page 0 is global
/// }
/// s.load(0x1000);
/// s.put(0x4000, 0);
/// s.flush(0);                                             // INVLPG
/// s.frame_freed(0x9000);
/// assert_eq!(s.sanitizer.count(Kind::DataFreedBeforeFlush), 1);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Errata {
    /// x86 with PCIDs: an invalidation by address (`INVLPG`) leaves global translations. Some Intel
    /// processors with two kinds of cores (Alder Lake and others); Linux uses no PCIDs there
    /// (commit ce0b15d11ad8).
    pub invlpg_spares_globals: bool,
    /// RISC-V: `SFENCE.VMA` with an address or with an address-space number may drop nothing; only
    /// one of everything is reliable. SiFive CIP-1200.
    pub sfence_drops_only_all: bool,
    /// AArch64: a `DSB` does not wait for stores of other CPUs through a translation that a
    /// broadcast `TLBI` has dropped. After `TLBI; DSB` another `TLBI; DSB` is needed, of any
    /// address (CVE-2025-10263; Linux: `ARM64_WORKAROUND_REPEAT_TLBI`). Needs
    /// [`Config::barriers`](crate::Config::barriers).
    pub dsb_misses_stores: bool,
}
