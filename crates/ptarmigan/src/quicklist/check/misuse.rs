//! Describes misuse of pages, and prints it.
use crate::addr::PhysAddr;
use crate::cpu::CpuId;
use crate::page::Level;
use core::fmt;

/// An event in the life of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Whether it was given back (or came from the allocator to rest); otherwise it was handed out.
    pub rests: bool,
    /// Where.
    pub cpu: CpuId,
    /// As a table of which level.
    pub level: Level,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MisuseKind {
    /// Given back, and had been given back already.
    GivenTwice,
    /// Given back, and had never been handed out: of no frame of this memory, or in use for
    /// something else.
    Foreign,
    /// Given back as a root that was handed out as another table, or the other way round.
    WrongClass,
    /// Given back, and not clean: entries are left.
    Dirty {
        /// Offset of the first byte that is not as it should be.
        offset: u32,
    },
    /// Handed out, and is in use: it was on the lists twice.
    TakenTwice,
    /// Written to while it rested.
    WrittenAtRest {
        /// Offset of the first byte that is not as it should be.
        offset: u32,
    },
}

/// A misuse of the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misuse {
    /// What is wrong.
    pub kind: MisuseKind,
    /// With which page.
    pub page: PhysAddr,
    /// Where it was found.
    pub cpu: CpuId,
    /// The level that the page was given or asked for as.
    pub level: Level,
    /// The last event.
    pub last: Option<Event>,
    /// The event before that.
    pub before: Option<Event>,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.rests { "given back" } else { "handed out" };
        write!(f, "{what} on CPU {} at level {}", self.cpu.0, self.level.0)
    }
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Misuse { page, cpu, level, .. } = *self;
        write!(f, "page {page}, CPU {}, level {}: ", cpu.0, level.0)?;
        match self.kind {
            MisuseKind::GivenTwice => write!(f, "given back twice")?,
            MisuseKind::Foreign => write!(f, "given back, and never handed out")?,
            MisuseKind::WrongClass => write!(f, "given back as a table of another class")?,
            MisuseKind::Dirty { offset } => {
                write!(f, "given back with something left at offset {offset:#x}")?
            }
            MisuseKind::TakenTwice => write!(f, "about to be handed out while in use")?,
            MisuseKind::WrittenAtRest { offset } => {
                write!(f, "written to at offset {offset:#x} while it rested")?
            }
        }
        if let Some(last) = self.last {
            write!(f, "; {last}")?;
        }
        if let Some(before) = self.before {
            write!(f, ", {before} before that")?;
        }
        Ok(())
    }
}
