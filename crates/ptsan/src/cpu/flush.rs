//! Describes invalidations: their targets, and the caches that they spare.
use crate::arch::StructureScope;
use std::fmt;

/// The translations that an invalidation drops.
/// ```
/// use ptsan::{Flush, Target};
///
/// let pages = Target::Range { space: 1, start: 0x1000, end: 0x9000, stride: 0x1000 };
/// let by_page = Flush::range(1, 0x1000, 0x9000, 0x1000);
/// assert_eq!((by_page.target, by_page.leaf_only, by_page.level), (pages, false, None));
/// assert_eq!(Flush::page_in_every_space(0x1000).to_string(), "flush of 0x1000 in every space");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The translations of one address, of whatever page size.
    Page {
        /// The address space.
        space: u64,
        /// An address in the page.
        va: u64,
    },
    /// One invalidation by address at `start`, `start + stride` and so on below `end`.
    Range {
        /// The address space.
        space: u64,
        /// First address.
        start: u64,
        /// First address after the range.
        end: u64,
        /// Bytes from one invalidation to the next.
        stride: u64,
    },
    /// As [`Target::Range`] in every address space, global translations too (AArch64 `TLBI VAAE1`,
    /// RISC-V `SFENCE.VMA` with an address and no ASID).
    EverySpace {
        /// First address.
        start: u64,
        /// First address after the range.
        end: u64,
        /// Bytes from one invalidation to the next.
        stride: u64,
    },
    /// All non-global translations of the space. If the space is loaded, this is a reload of the
    /// root: registers with its entries are read again.
    Space(u64),
    /// Everything, global translations too. Registers with the root's entries are read again.
    All,
}

/// An invalidation carried out by one CPU.
/// ```
/// use ptsan::{Access, Arch, Config, Content, Fault, Flush, Sanitizer};
///
/// let mut ram = vec![0u8; 0x3000];
/// let mut san = Sanitizer::new(Config::new(Arch::x86_2level()));
/// san.table_allocated(&ram, 0x1000, 4096, Some(1), Content::Zero);
/// san.switch(&ram, 0, 0x1000, 7);
/// ram[0x1000..0x1004].copy_from_slice(&0x40_0087u32.to_le_bytes());  // a page of 4 MiB
/// assert!(san.translate(&ram, 0, 0x1234, Access::READ).is_ok());
/// ram[0x1000..0x1004].fill(0);
/// san.flush(&ram, 0, Flush::page(7, 0));                             // any address in it will do
/// assert_eq!(san.translate(&ram, 0, 0x1234, Access::READ), Err(Fault::NotPresent { level: 1 }));
/// san.assert_clean();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flush {
    /// The translations that an invalidation drops.
    pub target: Target,
    /// Spares the paging-structure caches where the hardware can (see [`crate::StructureScope`]).
    pub leaf_only: bool,
    /// The level whose entries map the pages, if the invalidation names one: see [`Flush::level`].
    pub level: Option<u8>,
    /// The exception level whose translations it drops, if it names one: see [`Flush::of`].
    pub exception_level: Option<ExceptionLevel>,
}

/// An exception level of AArch64 that has translations of its own. Each instruction that
/// invalidates names one: `TLBI VAE1` does not reach the translations of EL2, nor `TLBI VAE2` those
/// of EL1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExceptionLevel {
    /// EL1 with EL0: a kernel and its programs (`VAE1`, `ASIDE1`, `VMALLE1`), and stage 2 below
    /// them (`IPAS2E1`, `VMALLS12E1`). A host with `HCR_EL2.{E2H,TGE}` set names its own
    /// translations so, too.
    El1,
    /// EL2: a hypervisor without that bit (`VAE2`, `ALLE2`).
    El2,
    /// EL3: secure firmware (`VAE3`, `ALLE3`).
    El3,
}

impl fmt::Display for ExceptionLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::El1 => "EL1",
            Self::El2 => "EL2",
            Self::El3 => "EL3",
        })
    }
}

impl Flush {
    /// Invalidates the translations of one address.
    #[must_use]
    pub const fn page(space: u64, va: u64) -> Self {
        Self { target: Target::Page { space, va }, ..Self::all() }
    }

    /// Invalidates by address every `stride` bytes from `start` to below `end`.
    #[must_use]
    pub const fn range(space: u64, start: u64, end: u64, stride: u64) -> Self {
        Self { target: Target::Range { space, start, end, stride }, ..Self::all() }
    }

    /// Invalidates the translations of one address in every address space, global ones too.
    #[must_use]
    pub const fn page_in_every_space(va: u64) -> Self {
        let target = Target::EverySpace { start: va, end: va.saturating_add(1), stride: 1 << 12 };
        Self { target, ..Self::all() }
    }

    /// Invalidates a whole address space except global translations.
    #[must_use]
    pub const fn space(space: u64) -> Self {
        Self { target: Target::Space(space), ..Self::all() }
    }

    /// Invalidates everything.
    #[must_use]
    pub const fn all() -> Self {
        Self { target: Target::All, leaf_only: false, level: None, exception_level: None }
    }

    /// Returns whether it invalidates all of a space at least.
    pub(crate) const fn is_full(&self) -> bool {
        matches!(self.target, Target::All | Target::Space(_))
    }

    /// Limits the invalidation to the last level.
    #[must_use]
    pub const fn leaf_only(self) -> Self {
        Self { leaf_only: true, ..self }
    }

    /// Names the level whose entries map the pages, as [`Arch::levels`](crate::Arch::levels) counts
    /// them, and so the size of the pages. AArch64 with FEAT_TTL has levels in the operand of
    /// `TLBI`, an SMMU in its commands.
    ///
    /// Hardware may search its TLB for pages of that size alone, so that the flush drops no page of
    /// another level and no table (Arm ARM, "TLBI", the field TTL). A flush of a space or of
    /// everything names no level.
    /// ```
    /// use ptsan::{Access, Arch, Config, Content, Flush, Kind, Sanitizer};
    ///
    /// let mut ram = vec![0u8; 0x3000];
    /// let mut san = Sanitizer::new(Config::new(Arch::x86_2level()));
    /// san.table_allocated(&ram, 0x1000, 4096, Some(1), Content::Zero);
    /// san.switch(&ram, 0, 0x1000, 7);
    /// ram[0x1000..0x1004].copy_from_slice(&0x40_0087u32.to_le_bytes()); // a page of level 1
    /// san.entry_written(&ram, 0x1000);
    /// ram[0x1000..0x1004].fill(0);
    /// san.entry_written(&ram, 0x1000);
    /// san.flush(&ram, 0, Flush::page(7, 0).level(0));
    /// san.flushes_done(&ram);
    /// assert_eq!(san.count(Kind::FlushMissing), 1);
    /// ```
    #[must_use]
    pub const fn level(self, level: u8) -> Self {
        Self { level: Some(level), ..self }
    }

    /// Returns whether an invalidation by address drops translations of a level.
    #[inline]
    pub(crate) fn drops_level(&self, level: u8) -> bool {
        self.level.is_none_or(|named| named == level)
    }

    /// Names the exception level whose translations the invalidation drops. It drops nothing of
    /// tables of another one ([`Config::exception_level`](crate::Config::exception_level)).
    /// ```
    /// use ptsan::{Access, Arch, Config, ExceptionLevel, Flush, Kind, Session};
    ///
    /// let config = Config { exception_level: ExceptionLevel::El2, ..Config::new(Arch::aarch64_4k(39)) };
    /// let mut s = Session::with(config, vec![0u8; 1 << 16]);
    /// s.alloc(0x1000);
    /// s.put(0x1000, 0x441);                                   // a block of 1 GiB
    /// s.load(0x1000);
    /// s.put(0x1000, 0);
    /// let vae1 = Flush::page(0x1000, 0).of(ExceptionLevel::El1);
    /// s.sanitizer.flush(&s.memory, 0, vae1);                  // should be VAE2
    /// s.flushes_done();
    /// assert_eq!(s.sanitizer.count(Kind::FlushMissing), 1);
    /// assert!(s.sanitizer.to_string().replace("\n    ", " ").contains("is for EL1, and these tables are of EL2"));
    /// ```
    #[must_use]
    pub const fn of(self, exception_level: ExceptionLevel) -> Self {
        Self { exception_level: Some(exception_level), ..self }
    }

    /// Returns whether it spares all tables: an invalidation by address of a CPU, or any of a
    /// `device`, in a format of this scope. An IOMMU keeps its links at an invalidation of the last
    /// level (VT-d: the hint IH; AMD: PDE clear), whatever CPUs do with the same tables.
    #[inline]
    pub(crate) const fn spares_tables(&self, scope: StructureScope, device: bool) -> bool {
        let last_level = self.leaf_only && (device || !matches!(scope, StructureScope::AnyInvalidation));
        last_level || self.level.is_some()
    }

    /// Returns the addresses, with their space (`None`: every one). Returns `None` for a flush that
    /// has no addresses.
    pub(crate) fn addresses(&self) -> Option<(Option<u64>, Strides)> {
        let strides = |start, end, stride: u64| Strides { start, end, stride: stride.max(1) };
        match self.target {
            Target::Page { space, va } => Some((Some(space), strides(va, va.saturating_add(1), 1))),
            Target::Range { space, start, end, stride } => Some((Some(space), strides(start, end, stride))),
            Target::EverySpace { start, end, stride } => Some((None, strides(start, end, stride))),
            Target::Space(_) | Target::All => None,
        }
    }
}

impl fmt::Display for Flush {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.target {
            Target::Page { space, va } => write!(f, "flush of {va:#x} in space {space:#x}")?,
            Target::Range { space, start, end, stride } => {
                write!(f, "flush of {start:#x}..{end:#x} by {stride:#x} in space {space:#x}")?;
            }
            Target::EverySpace { start, end, .. } if end == start.saturating_add(1) => {
                write!(f, "flush of {start:#x} in every space")?;
            }
            Target::EverySpace { start, end, stride } => {
                write!(f, "flush of {start:#x}..{end:#x} by {stride:#x} in every space")?;
            }
            Target::Space(space) => write!(f, "flush of space {space:#x}")?,
            Target::All => write!(f, "flush of everything")?,
        }
        if let Some(level) = self.level {
            write!(f, ", of pages of level {level}")?;
        }
        if let Some(level) = self.exception_level {
            write!(f, ", for {level}")?;
        }
        if self.leaf_only { write!(f, ", last level only") } else { Ok(()) }
    }
}

/// The addresses of a range flush.
#[derive(Clone, Copy)]
pub(crate) struct Strides {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) stride: u64,
}

impl Strides {
    /// Returns whether one of the addresses lies in the `size` bytes from `low`.
    pub(crate) fn hit(&self, low: u64, size: u64) -> bool {
        let last = low.saturating_add(size - 1);
        let Some(above) = low.checked_sub(self.start) else {
            return self.start < self.end && self.start <= last;
        };
        let Some(first) =
            above.div_ceil(self.stride).checked_mul(self.stride).and_then(|d| self.start.checked_add(d))
        else {
            return false;
        };
        first < self.end && first <= last
    }

    /// Returns the number of invalidations by address that the range takes.
    pub(crate) fn count(&self) -> u64 {
        let bytes = self.end.saturating_sub(self.start);
        // One address, the usual case, takes no division.
        if bytes <= self.stride { u64::from(bytes > 0) } else { bytes.div_ceil(self.stride) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_hit_exactly_the_blocks_of_their_addresses() {
        for (start, end, stride) in [(0x1000, 0x9000, 0x1000), (0x1800, 0x9000, 0x3000), (0x5000, 0x5000, 8)]
        {
            let strides = Strides { start, end, stride };
            for low in (0..0xb000).step_by(0x800) {
                for size in [0x800, 0x1000, 0x4000] {
                    let want = (start..end).step_by(stride as usize).any(|a| a >= low && a < low + size);
                    assert_eq!(
                        strides.hit(low, size),
                        want,
                        "{start:#x} {end:#x} {stride:#x} {low:#x} {size:#x}"
                    );
                }
            }
        }
    }
}
