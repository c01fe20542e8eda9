//! The header: what was recorded, how, and what that way of recording cannot see.
use crate::{ReadError, VERSION, WriteError, hash};
use std::io::{BufRead, Read};

/// The first bytes of every trace. The first is not ASCII and the line ends are mixed, so that a transfer as
/// text breaks it at once.
pub(crate) const MAGIC: [u8; 8] = *b"\x89PTR\r\n\x1a\n";
const BODY: usize = 9;
const NAME_MAX: usize = 64;

/// The architecture of the recorded machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum Arch {
    /// x86-64.
    X86_64 = 1,
    /// AArch64.
    Aarch64 = 2,
    /// RISC-V, 64 bits.
    Riscv64 = 3,
}

impl Arch {
    fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::X86_64,
            2 => Self::Aarch64,
            3 => Self::Riscv64,
            _ => return None,
        })
    }

    /// The name that `uname -m` gives it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
            Self::Riscv64 => "riscv64",
        }
    }
}

/// How the events were obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum Method {
    /// Not recorded: made by a program.
    Synthetic = 0,
    /// Kernel tracepoints through tracefs, with perf's record of mappings and `VmPTE` through ptrace.
    Tracefs = 1,
    /// perf's page-fault event and record of mappings, with system calls and `VmPTE` through ptrace.
    Perf = 2,
}

impl Method {
    fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Synthetic,
            1 => Self::Tracefs,
            2 => Self::Perf,
            _ => return None,
        })
    }

    /// A short name: `synthetic`, `tracefs` or `perf`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Synthetic => "synthetic",
            Self::Tracefs => "tracefs",
            Self::Perf => "perf",
        }
    }
}

/// What the recording could not see: a set of the constants below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Unseen(pub u16);

impl Unseen {
    /// Faults that the kernel itself took on user addresses.
    pub const KERNEL_FAULTS: u16 = 1;
    /// Whether a fault was a read, a write or a fetch, and whether the page was present.
    pub const FAULT_ACCESS: u16 = 2;
    /// TLB flushes.
    pub const TLB_FLUSHES: u16 = 4;
    /// When a CPU went idle.
    pub const IDLE: u16 = 8;
    /// Areas that `execve` made itself.
    pub const EXEC_AREAS: u16 = 16;
    /// How many argument pages `execve` wrote.
    pub const ARG_PAGES: u16 = 32;
    /// Linux's own count of page-table pages.
    pub const TRUTH: u16 = 64;
    const ALL: u16 = 127;

    /// Whether `what` is among the things not seen.
    #[must_use]
    pub fn has(self, what: u16) -> bool {
        self.0 & what != 0
    }

    /// The things not seen, in words.
    #[must_use]
    pub fn names(self) -> Vec<&'static str> {
        [
            (Self::KERNEL_FAULTS, "faults of the kernel on user addresses"),
            (Self::FAULT_ACCESS, "whether a fault read, wrote or fetched"),
            (Self::TLB_FLUSHES, "TLB flushes"),
            (Self::IDLE, "idle CPUs"),
            (Self::EXEC_AREAS, "areas made by execve"),
            (Self::ARG_PAGES, "argument pages of execve"),
            (Self::TRUTH, "VmPTE"),
        ]
        .into_iter()
        .filter(|&(bit, _)| self.has(bit))
        .map(|(_, name)| name)
        .collect()
    }
}

/// What a trace says of itself before its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    name: String,
    /// Architecture of the recorded machine.
    pub arch: Arch,
    /// Binary logarithm of the page size in bytes: 12 for 4 KiB.
    pub page_shift: u8,
    /// Number of CPUs; every `Event::cpu` is below it. At least 1.
    pub cpus: u16,
    /// How it was recorded.
    pub method: Method,
    /// What that could not see.
    pub unseen: Unseen,
}

impl Header {
    /// A header for x86-64 with 4 KiB pages that leaves nothing unseen. Of `name`, the name of the workload, control
    /// characters and slashes are dropped and at most 64 bytes are kept: a name is not a path.
    #[must_use]
    pub fn new(name: &str, cpus: u16, method: Method) -> Self {
        let mut kept = String::new();
        for c in name.chars().filter(|c| !c.is_control() && *c != '/') {
            if kept.len() + c.len_utf8() > NAME_MAX {
                break;
            }
            kept.push(c);
        }
        Self { name: kept, arch: Arch::X86_64, page_shift: 12, cpus: cpus.max(1), method, unseen: Unseen(0) }
    }

    /// The name of the workload.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn encode(&self) -> Result<Vec<u8>, WriteError> {
        if self.cpus == 0 {
            return Err(WriteError::Header("no CPU"));
        }
        if !(10..=16).contains(&self.page_shift) {
            return Err(WriteError::Header("a page size that is not between 1 KiB and 64 KiB"));
        }
        if self.unseen.0 & !Unseen::ALL != 0 {
            return Err(WriteError::Header("unknown bits in the set of things not seen"));
        }
        let mut b = MAGIC.to_vec();
        b.extend(VERSION.to_le_bytes());
        b.extend(((BODY + self.name.len()) as u16).to_le_bytes());
        b.extend([self.arch as u8, self.page_shift]);
        b.extend(self.cpus.to_le_bytes());
        b.extend([self.method as u8, 0]);
        b.extend(self.unseen.0.to_le_bytes());
        b.push(self.name.len() as u8);
        b.extend(self.name.as_bytes());
        let sum = hash::of(&b);
        b.extend(sum.to_le_bytes());
        Ok(b)
    }

    /// Reads a header, leaving `r` at the first byte after it.
    pub(crate) fn decode(r: &mut impl BufRead) -> Result<Self, ReadError> {
        let mut b = vec![0u8; 12];
        let n = read_up_to(r, &mut b)?;
        if n < MAGIC.len() {
            // A short file that starts like a trace was cut; anything else never was one.
            return Err(if n > 0 && MAGIC.starts_with(&b[..n]) {
                ReadError::Truncated { event: 0 }
            } else {
                ReadError::NotATrace
            });
        }
        if b[..8] != MAGIC {
            return Err(ReadError::NotATrace);
        }
        if n < 12 {
            return Err(ReadError::Truncated { event: 0 });
        }
        let version = u16::from_le_bytes([b[8], b[9]]);
        if version > VERSION {
            return Err(ReadError::NewerVersion { found: version, known: VERSION });
        }
        let len = usize::from(u16::from_le_bytes([b[10], b[11]]));
        if version == 0 || !(BODY..=BODY + NAME_MAX).contains(&len) {
            return Err(ReadError::Checksum { part: "header" });
        }
        b.resize(12 + len + 8, 0);
        if read_up_to(r, &mut b[12..])? < len + 8 {
            return Err(ReadError::Truncated { event: 0 });
        }
        let (head, sum) = b.split_at(12 + len);
        if hash::of(head).to_le_bytes() != *sum {
            return Err(ReadError::Checksum { part: "header" });
        }
        let body = &head[12..];
        let damaged = |what| ReadError::Damaged { event: 0, offset: 0, what };
        let name = std::str::from_utf8(&body[BODY..]).map_err(|_| damaged("the name is not UTF-8"))?;
        if usize::from(body[8]) != name.len() || name.chars().any(|c| c.is_control() || c == '/') {
            return Err(damaged("the name is not one"));
        }
        let header = Self {
            name: name.to_owned(),
            arch: Arch::from_code(body[0]).ok_or(damaged("unknown architecture"))?,
            page_shift: body[1],
            cpus: u16::from_le_bytes([body[2], body[3]]),
            method: Method::from_code(body[4]).ok_or(damaged("unknown method of recording"))?,
            unseen: Unseen(u16::from_le_bytes([body[6], body[7]])),
        };
        if header.cpus == 0
            || !(10..=16).contains(&header.page_shift)
            || header.unseen.0 & !Unseen::ALL != 0
            || body[5] != 0
        {
            return Err(damaged("the header holds impossible values"));
        }
        Ok(header)
    }
}

/// Fills `out` as far as the input goes; says how far.
pub(crate) fn read_up_to(r: &mut impl Read, out: &mut [u8]) -> Result<usize, ReadError> {
    let mut n = 0;
    while n < out.len() {
        match r.read(&mut out[n..]) {
            Ok(0) => break,
            Ok(k) => n += k,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(n)
}
