//! The header: the machine of the log.
use crate::wire::Check;
use core::fmt;

/// The first bytes of every log.
pub const MAGIC: [u8; 8] = *b"\x89PTL\r\n\x1a\n";
/// The version of the format that this crate writes, and the newest that it reads.
pub const VERSION: u16 = 1;
/// The bytes of the header that this crate writes, with its check.
pub const HEADER_BYTES: usize = 26;
/// The bytes of a header up to its length.
pub const HEADER_START: usize = 12;
/// The bytes behind the length, without the check.
pub(crate) const FIELDS: usize = 12;

const WITH_ASIDS: u8 = 1;
const UPPER: u8 = 1 << 1;
const BARRIERS: u8 = 1 << 2;
const ACCESSED_DIRTY: u8 = 1 << 3;
const TWO_STAGES: u8 = 1 << 4;

macro_rules! architectures {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal $text:literal,)+) => {
        /// The page-table format that a log is about.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Architecture {
            $($(#[doc = $doc])+ $name = $code,)+
        }

        impl Architecture {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// Returns the name that is printed.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

architectures! {
    /// x86, 2 levels, entries of 4 bytes.
    X86TwoLevel = 1 "x86 2-level",
    /// x86, 3 levels (PAE).
    X86Pae = 2 "x86 PAE",
    /// x86-64, 4 levels.
    X86_64 = 3 "x86-64",
    /// x86-64, 5 levels.
    X86_64La57 = 4 "x86-64 LA57",
    /// RISC-V Sv32.
    Sv32 = 5 "RISC-V Sv32",
    /// RISC-V Sv39.
    Sv39 = 6 "RISC-V Sv39",
    /// RISC-V Sv48.
    Sv48 = 7 "RISC-V Sv48",
    /// RISC-V Sv57.
    Sv57 = 8 "RISC-V Sv57",
    /// AArch64 stage 1, pages of 4 KiB.
    Aarch64K4 = 9 "AArch64 4K stage 1",
    /// AArch64 stage 1, pages of 16 KiB.
    Aarch64K16 = 10 "AArch64 16K stage 1",
    /// AArch64 stage 1, pages of 64 KiB.
    Aarch64K64 = 11 "AArch64 64K stage 1",
    /// AArch64 stage 2, pages of 4 KiB.
    Stage2K4 = 12 "AArch64 4K stage 2",
    /// AArch64 stage 2, pages of 16 KiB.
    Stage2K16 = 13 "AArch64 16K stage 2",
    /// AArch64 stage 2, pages of 64 KiB.
    Stage2K64 = 14 "AArch64 64K stage 2",
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The machine of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The page-table format.
    pub architecture: Architecture,
    /// The number of CPUs. They are numbered from 0.
    pub cpus: u16,
    /// Whether TLB entries are tagged with their address space and survive the load of another root
    /// (PCID, ASID).
    pub asids: bool,
    /// The bytes of a table of usual size, for which records write 0. 0 here is the format's own.
    pub table_bytes: u32,
    /// AArch64: how many address bits are translated. 0 for other formats.
    pub va_bits: u8,
    /// AArch64 stage 2: the first level that is walked, as the manual numbers levels.
    pub start_level: u8,
    /// AArch64 stage 1: the upper of two trees (`TTBR1`).
    pub upper: bool,
    /// Whether barriers are recorded: one that is missing is a finding.
    pub barriers: bool,
    /// Whether the kernel relies on the accessed and dirty bits that hardware sets: a plain store
    /// over an entry through which another CPU may write is a finding.
    pub accessed_dirty: bool,
    /// Whether a guest's tables lie on top of these, and CPUs cache translations that are combined
    /// of both stages: an invalidation by address needs [`Record::Stage1Flushed`] after it.
    ///
    /// [`Record::Stage1Flushed`]: crate::Record::Stage1Flushed
    pub two_stages: bool,
}

impl Header {
    /// Describes a machine without ASIDs whose tables have the format's own size.
    #[must_use]
    pub const fn new(architecture: Architecture, cpus: u16) -> Self {
        Self {
            architecture,
            cpus,
            asids: false,
            table_bytes: 0,
            va_bits: 0,
            start_level: 0,
            upper: false,
            barriers: false,
            accessed_dirty: false,
            two_stages: false,
        }
    }

    /// Returns the header as it is written, without its check, and the check.
    pub(crate) fn bytes(&self) -> ([u8; HEADER_START + FIELDS], Check) {
        let mut bytes = [0; HEADER_START + FIELDS];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10..12].copy_from_slice(&(FIELDS as u16).to_le_bytes());
        bytes[12] = self.architecture as u8;
        let flags = [
            (self.asids, WITH_ASIDS),
            (self.upper, UPPER),
            (self.barriers, BARRIERS),
            (self.accessed_dirty, ACCESSED_DIRTY),
            (self.two_stages, TWO_STAGES),
        ];
        bytes[13] = flags.iter().filter(|(set, _)| *set).map(|(_, bit)| bit).sum();
        bytes[14..16].copy_from_slice(&self.cpus.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.table_bytes.to_le_bytes());
        bytes[20] = self.va_bits;
        bytes[21] = self.start_level;
        (bytes, Check::new().with(&bytes))
    }

    /// Reads magic, version and length. Returns how many bytes follow, without the check of 2 bytes
    /// behind them.
    ///
    /// # Errors
    /// See [`HeaderError`].
    pub fn length(fixed: &[u8; HEADER_START]) -> Result<usize, HeaderError> {
        if fixed[..8] != MAGIC {
            return Err(HeaderError::NotALog);
        }
        let version = u16::from_le_bytes([fixed[8], fixed[9]]);
        if version == 0 || version > VERSION {
            return Err(HeaderError::Version(version));
        }
        let length = usize::from(u16::from_le_bytes([fixed[10], fixed[11]]));
        if length < FIELDS { Err(HeaderError::Short(length)) } else { Ok(length) }
    }

    /// Reads the bytes behind the length, without the check. Bytes behind the fields that are known
    /// are ignored.
    ///
    /// # Errors
    /// See [`HeaderError`].
    pub fn fields(bytes: &[u8]) -> Result<Self, HeaderError> {
        let Some(b) = bytes.first_chunk::<FIELDS>() else { return Err(HeaderError::Short(bytes.len())) };
        let architecture = Architecture::ALL.iter().copied().find(|a| *a as u8 == b[0]);
        let header = Self {
            architecture: architecture.ok_or(HeaderError::Architecture(b[0]))?,
            asids: b[1] & WITH_ASIDS != 0,
            upper: b[1] & UPPER != 0,
            barriers: b[1] & BARRIERS != 0,
            accessed_dirty: b[1] & ACCESSED_DIRTY != 0,
            two_stages: b[1] & TWO_STAGES != 0,
            cpus: u16::from_le_bytes([b[2], b[3]]),
            table_bytes: u32::from_le_bytes([b[4], b[5], b[6], b[7]]),
            va_bits: b[8],
            start_level: b[9],
        };
        if header.cpus == 0 { Err(HeaderError::NoCpus) } else { Ok(header) }
    }
}

/// An error of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// It does not begin with [`MAGIC`].
    NotALog,
    /// It is of a version that this crate does not know.
    Version(u16),
    /// It has fewer bytes than version 1 needs.
    Short(usize),
    /// No architecture has this number.
    Architecture(u8),
    /// It has no CPUs.
    NoCpus,
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotALog => f.write_str("no log of ptsan: the first 8 bytes are not those of one"),
            Self::Version(version) => {
                write!(f, "version {version} of the format; this program reads up to {VERSION}")
            }
            Self::Short(length) => write!(f, "a header of {length} bytes, {FIELDS} are needed"),
            Self::Architecture(code) => write!(f, "architecture {code} is not known"),
            Self::NoCpus => f.write_str("a machine without CPUs"),
        }
    }
}

impl core::error::Error for HeaderError {}
