//! The header: the machine of the log.
use crate::parts::ExceptionLevel;
use crate::wire::{CHECK_BYTES, Check};
use core::fmt;

/// The first bytes of every log.
pub const MAGIC: [u8; 8] = *b"\x89PTL\r\n\x1a\n";
/// The version of the format that this crate writes, and the newest that it reads.
pub const VERSION: u16 = 2;
/// The version that added devices, readers, locks, numbers of spaces and tables of hypervisors.
pub(crate) const SECOND_VERSION: u16 = 2;
/// The bytes of the header that this crate writes, with its check. One more if the tables are of
/// another exception level than EL1.
pub const HEADER_BYTES: usize = 26;
/// The most bytes of the header that this crate writes.
pub(crate) const MOST_HEADER_BYTES: usize = HEADER_BYTES + 1;
/// The bytes of a header up to its length.
pub const HEADER_START: usize = 12;
/// The bytes behind the length, without the check, that every header has.
pub(crate) const FIELDS: usize = 12;

const WITH_ASIDS: u8 = 1;
const UPPER: u8 = 1 << 1;
const BARRIERS: u8 = 1 << 2;
const ACCESSED_DIRTY: u8 = 1 << 3;
const TWO_STAGES: u8 = 1 << 4;
const COMMON_NUMBERS: u8 = 1 << 5;
const LOCKS: u8 = 1 << 6;
const KEEPS_INVALID: u8 = 1 << 7;
/// The flags of version 1. Others are ignored in its logs.
const FIRST_FLAGS: u8 = COMMON_NUMBERS - 1;

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
    /// Intel's extended page tables, 4 levels. Addresses are guest-physical, and so they are in the
    /// formats below.
    Ept = 16 "EPT",
    /// AMD's nested page tables, 4 levels.
    Npt = 17 "NPT",
    /// The G-stage of RISC-V, Sv39x4.
    Sv39x4 = 18 "RISC-V Sv39x4",
    /// The G-stage of RISC-V, Sv48x4.
    Sv48x4 = 19 "RISC-V Sv48x4",
}

impl Architecture {
    /// Returns the first version of the format that knows it.
    #[must_use]
    pub const fn version(self) -> u16 {
        if self as u8 > Self::Stage2K64 as u8 { SECOND_VERSION } else { 1 }
    }
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
    /// The number of CPUs. They are numbered from 0. It may be 0 if there are devices.
    pub cpus: u16,
    /// The number of devices that walk the tables too. They are numbered behind the CPUs:
    /// [`Header::device`].
    pub devices: u16,
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
    /// Whether the number of a space stands for the same root on all CPUs: two that run different
    /// roots under one number are a finding.
    pub common_numbers: bool,
    /// Whether locks are recorded: a store without the lock of its table is a finding.
    pub locks: bool,
    /// Whether CPUs and devices keep entries that were not valid when a walk read them, until they
    /// are flushed (RISC-V without Svvptc).
    pub keeps_invalid: bool,
    /// AArch64: the exception level of the translations that the tables describe. An invalidation
    /// that names another spares them.
    pub exception_level: ExceptionLevel,
}

impl Header {
    /// Describes a machine without ASIDs whose tables have the format's own size.
    #[must_use]
    pub const fn new(architecture: Architecture, cpus: u16) -> Self {
        Self {
            architecture,
            cpus,
            devices: 0,
            asids: false,
            table_bytes: 0,
            va_bits: 0,
            start_level: 0,
            upper: false,
            barriers: false,
            accessed_dirty: false,
            two_stages: false,
            common_numbers: false,
            locks: false,
            keeps_invalid: false,
            exception_level: ExceptionLevel::El1,
        }
    }

    /// Returns the number by which records name a device, counted from 0.
    #[must_use]
    pub const fn device(&self, device: u16) -> u16 {
        self.cpus.saturating_add(device)
    }

    /// Writes the header with its check. Returns how many bytes it has, and the check. The field
    /// of the exception level is there if it is not the usual one.
    pub(crate) fn put(&self, bytes: &mut [u8; MOST_HEADER_BYTES]) -> (usize, Check) {
        let fields = FIELDS + usize::from(self.exception_level != ExceptionLevel::El1);
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10..12].copy_from_slice(&(fields as u16).to_le_bytes());
        bytes[12] = self.architecture as u8;
        let flags = [
            (self.asids, WITH_ASIDS),
            (self.upper, UPPER),
            (self.barriers, BARRIERS),
            (self.accessed_dirty, ACCESSED_DIRTY),
            (self.two_stages, TWO_STAGES),
            (self.common_numbers, COMMON_NUMBERS),
            (self.locks, LOCKS),
            (self.keeps_invalid, KEEPS_INVALID),
        ];
        bytes[13] = flags.iter().filter(|(set, _)| *set).map(|(_, bit)| bit).sum();
        bytes[14..16].copy_from_slice(&self.cpus.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.table_bytes.to_le_bytes());
        bytes[20] = self.va_bits;
        bytes[21] = self.start_level;
        bytes[22..24].copy_from_slice(&self.devices.to_le_bytes());
        let end = HEADER_START + fields;
        if fields > FIELDS {
            bytes[24] = self.exception_level as u8;
        }
        let check = Check::new().with(&bytes[..end]);
        bytes[end..end + CHECK_BYTES].copy_from_slice(&check.value().to_le_bytes());
        (end + CHECK_BYTES, check)
    }

    /// Reads magic, version and length. Returns the version, and how many bytes follow, without the
    /// check of 2 bytes behind them.
    ///
    /// # Errors
    /// See [`HeaderError`].
    pub fn start(fixed: &[u8; HEADER_START]) -> Result<(u16, usize), HeaderError> {
        if fixed[..8] != MAGIC {
            return Err(HeaderError::NotALog);
        }
        let version = u16::from_le_bytes([fixed[8], fixed[9]]);
        if version == 0 || version > VERSION {
            return Err(HeaderError::Version(version));
        }
        let length = usize::from(u16::from_le_bytes([fixed[10], fixed[11]]));
        if length < FIELDS { Err(HeaderError::Short(length)) } else { Ok((version, length)) }
    }

    /// Reads the bytes behind the length, without the check, of a log of a version. Bytes behind
    /// the fields that are known are ignored.
    ///
    /// # Errors
    /// See [`HeaderError`].
    pub fn fields(version: u16, bytes: &[u8]) -> Result<Self, HeaderError> {
        let Some(b) = bytes.first_chunk::<FIELDS>() else { return Err(HeaderError::Short(bytes.len())) };
        let architecture = Architecture::ALL.iter().copied().find(|a| *a as u8 == b[0]);
        let architecture = architecture.ok_or(HeaderError::Architecture(b[0]))?;
        let needs = architecture.version();
        if needs > version {
            return Err(HeaderError::NewArchitecture { architecture, needs, version });
        }
        let second = version >= SECOND_VERSION;
        let exception_level = match bytes.get(FIELDS).filter(|_| second) {
            None | Some(0) => ExceptionLevel::El1,
            Some(level) => ExceptionLevel::try_from(u64::from(*level))
                .map_err(|()| HeaderError::ExceptionLevel(*level))?,
        };
        let flags = if second { b[1] } else { b[1] & FIRST_FLAGS };
        let header = Self {
            architecture,
            devices: if second { u16::from_le_bytes([b[10], b[11]]) } else { 0 },
            asids: flags & WITH_ASIDS != 0,
            upper: flags & UPPER != 0,
            barriers: flags & BARRIERS != 0,
            accessed_dirty: flags & ACCESSED_DIRTY != 0,
            two_stages: flags & TWO_STAGES != 0,
            common_numbers: flags & COMMON_NUMBERS != 0,
            locks: flags & LOCKS != 0,
            keeps_invalid: flags & KEEPS_INVALID != 0,
            cpus: u16::from_le_bytes([b[2], b[3]]),
            table_bytes: u32::from_le_bytes([b[4], b[5], b[6], b[7]]),
            va_bits: b[8],
            start_level: b[9],
            exception_level,
        };
        if header.cpus.checked_add(header.devices).is_none() {
            return Err(HeaderError::TooMany { cpus: header.cpus, devices: header.devices });
        }
        if header.cpus == 0 && header.devices == 0 { Err(HeaderError::NoCpus) } else { Ok(header) }
    }
}

/// An error of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// It does not begin with [`MAGIC`].
    NotALog,
    /// It is of a version that this crate does not know.
    Version(u16),
    /// It has fewer bytes than the fields of version 1 and 2.
    Short(usize),
    /// No architecture has this number.
    Architecture(u8),
    /// The architecture is of a later version than that of the log.
    NewArchitecture {
        /// The architecture.
        architecture: Architecture,
        /// The version that has it.
        needs: u16,
        /// The version of the log.
        version: u16,
    },
    /// Tables of no exception level have this number.
    ExceptionLevel(u8),
    /// It has neither CPUs nor devices.
    NoCpus,
    /// CPUs and devices together are more than 65,535.
    TooMany {
        /// The number of CPUs.
        cpus: u16,
        /// The number of devices.
        devices: u16,
    },
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
            Self::NewArchitecture { architecture, needs, version } => write!(
                f,
                "{architecture}: version {needs} of the format has it, and the header says version {version}"
            ),
            Self::ExceptionLevel(level) => write!(f, "exception level {level}; it is 1, 2 or 3"),
            Self::NoCpus => f.write_str("a machine without CPUs and devices"),
            Self::TooMany { cpus, devices } => {
                write!(f, "{cpus} CPUs and {devices} devices; both together are at most 65535")
            }
        }
    }
}

impl core::error::Error for HeaderError {}
