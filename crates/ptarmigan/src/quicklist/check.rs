//! Pages that are looked after on their way through the lists: given back twice, never handed out, not clean.
//!
//! [`Unchecked`] is nothing at all. [`Checked`] keeps two words for each frame: what happened to it last, and before.
//! By these it refuses a page that is given back twice or was never handed out; content is verified for a sample of
//! the pages, in debug builds for all. A page that is refused stays where nobody gets it: its frame is lost, and nothing else is.
//!
//! In poison mode pages that rest are filled with a pattern, which is looked for when they are handed out: whoever goes on using a
//! page that he gave back is seen by it, and a walker that still knows such a table finds no entry there that it would
//! follow (REQ-2, REQ-19).
use super::{Clean, Construct, Level, Source};
use crate::addr::{FRAME_SIZE, PhysAddr};
use crate::bootmem::{BootMemory, BootMemoryShort, BootSlice};
use crate::cpu::CpuId;
use crate::frames::Frames;
use crate::window::{Window, WindowGuard};
use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

/// Where a page is at the moment.
pub struct Site<'s, 'm, W, C> {
    /// Where the lists get their pages.
    pub source: &'s Source<'m, W, C>,
    /// The CPU at work.
    pub cpu: CpuId,
    /// The page's level.
    pub level: Level,
}

/// Who looks on at what becomes of pages. All functions are called on the path that they are about.
pub trait Check: Sync {
    /// A page has come from the allocator; it rests, or is handed out.
    fn made<W: Window, C: Construct>(&self, site: &Site<'_, '_, W, C>, page: &Clean, rests: bool);

    /// A page is given back; false if it must not be taken.
    fn given<W: Window, C: Construct>(&self, site: &Site<'_, '_, W, C>, page: &Clean) -> bool;

    /// A page that rested is to be handed out; false if it must not be.
    fn taken<W: Window, C: Construct>(&self, site: &Site<'_, '_, W, C>, page: &Clean) -> bool;

    /// A page that rested goes back to the allocator, where it has to arrive zero, or constructed.
    fn leaves<W: Window, C: Construct>(&self, site: &Site<'_, '_, W, C>, page: &Clean);
}

/// Nobody looks on, and it costs nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unchecked;

impl Check for Unchecked {
    #[inline(always)]
    fn made<W: Window, C: Construct>(&self, _: &Site<'_, '_, W, C>, _: &Clean, _: bool) {}
    #[inline(always)]
    fn given<W: Window, C: Construct>(&self, _: &Site<'_, '_, W, C>, _: &Clean) -> bool {
        true
    }
    #[inline(always)]
    fn taken<W: Window, C: Construct>(&self, _: &Site<'_, '_, W, C>, _: &Clean) -> bool {
        true
    }
    #[inline(always)]
    fn leaves<W: Window, C: Construct>(&self, _: &Site<'_, '_, W, C>, _: &Clean) {}
}

/// How closely to look.
#[derive(Clone, Copy, Debug)]
pub struct CheckConfig {
    /// The content of a page is verified each `sample`-th time that something happens to it; 1: always, 0: never. Debug builds
    /// always do.
    pub sample: u32,
    /// Fill pages that rest with a pattern.
    pub poison: bool,
    /// Called for each misuse, on the CPU where it was found.
    pub report: fn(&Misuse),
}

/// What happened to a page.
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
    /// Given back, and had never been handed out: of no frame of this memory, or somebody else's.
    Foreign,
    /// Given back as a top that was handed out as another table, or the other way round.
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
    /// What happened to it last.
    pub last: Option<Event>,
    /// What happened before that.
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

/// Looks on. Keeps what happened to each frame last, and before, and refuses a page that is given back twice or was never
/// handed out, is of another class, or is not as it should be; [`CheckConfig`] says how closely it looks (REQ-2, REQ-19). A page
/// that is refused is lost, and nothing else is.
pub struct Checked {
    config: CheckConfig,
    base: u32,
    /// Words of each frame: last event, the one before.
    frames: BootSlice<[AtomicU32; 2]>,
    refused: AtomicUsize,
}

/// An event as a word: bit 0 set; bit 1 rests; 3 bits of level; 16 of CPU; the number of the event.
fn word(event: Event, number: u32) -> u32 {
    1 | u32::from(event.rests) << 1
        | u32::from(event.level.0) << 2
        | u32::from(event.cpu.0) << 5
        | number << 21
}

fn event(word: u32) -> Option<Event> {
    let rests = word & 2 != 0;
    (word & 1 != 0).then_some(Event {
        rests,
        level: Level((word >> 2 & 7) as u8),
        cpu: CpuId((word >> 5 & 0xffff) as u16),
    })
}

/// What resting pages are filled with. No architecture takes such an entry for one that is present.
const PATTERN: u64 = 0x5a5a_5a5a_5a5a_5a5a;

impl Checked {
    /// For the frames of `frames`.
    ///
    /// # Errors
    ///
    /// [`BootMemoryShort`] if the words do not fit.
    pub fn new(boot: &mut BootMemory, frames: &Frames, config: CheckConfig) -> Result<Self, BootMemoryShort> {
        let (base, span) = frames.span();
        let words = boot.take(span as usize, |_| [AtomicU32::new(0), AtomicU32::new(0)])?;
        Ok(Checked { config, base, frames: words, refused: AtomicUsize::new(0) })
    }

    /// Boot memory for `frames`.
    pub fn bytes(frames: &Frames) -> usize {
        BootMemory::bytes::<[AtomicU32; 2]>(frames.span().1 as usize)
    }

    /// Pages that were refused; their frames are lost.
    pub fn refused(&self) -> usize {
        self.refused.load(Relaxed)
    }

    fn words(&self, at: PhysAddr) -> Option<&[AtomicU32; 2]> {
        self.frames.get(at.pfn().0.wrapping_sub(self.base) as usize)
    }

    /// Tables smaller than a frame share its words, and say nothing.
    fn is_tracked<W: Window, C: Construct>(site: &Site<'_, '_, W, C>) -> bool {
        !site.source.layout().is_small(site.level)
    }

    /// Whether the page's content is due to be verified.
    fn is_due(&self, words: &[AtomicU32; 2]) -> bool {
        if cfg!(debug_assertions) {
            return true;
        }
        match self.config.sample {
            0 => false,
            1 => true,
            n => (words[0].load(Relaxed) >> 21).is_multiple_of(n),
        }
    }

    fn note<W: Window, C: Construct>(&self, site: &Site<'_, '_, W, C>, words: &[AtomicU32; 2], rests: bool) {
        let last = words[0].load(Relaxed);
        let event = Event { rests, cpu: site.cpu, level: site.level };
        words[1].store(last, Relaxed);
        words[0].store(word(event, (last >> 21) + 1), Relaxed);
    }

    #[cold]
    fn refuse<W: Window, C: Construct>(
        &self,
        site: &Site<'_, '_, W, C>,
        page: PhysAddr,
        kind: MisuseKind,
    ) -> bool {
        self.refused.fetch_add(1, Relaxed);
        self.report(site, page, kind);
        false
    }

    fn report<W: Window, C: Construct>(&self, site: &Site<'_, '_, W, C>, page: PhysAddr, kind: MisuseKind) {
        let words = self.words(page).map(|words| [words[0].load(Relaxed), words[1].load(Relaxed)]);
        let [last, before] = words.unwrap_or_default().map(event);
        (self.config.report)(&Misuse { kind, page, cpu: site.cpu, level: site.level, last, before });
    }

    fn is_poisoned<W: Window, C: Construct>(&self, site: &Site<'_, '_, W, C>) -> bool {
        // Tops are written to while they rest: by changes of the kernel map.
        self.config.poison && site.level != site.source.layout().top() && Self::is_tracked(site)
    }

    /// Offset of the first word that is not `pattern`.
    fn find_other<W: Window, C: Construct>(
        site: &Site<'_, '_, W, C>,
        page: PhysAddr,
        pattern: u64,
    ) -> Option<u32> {
        let bytes = 1usize << site.source.layout().table_shift[site.level.at()];
        (0..bytes).step_by(FRAME_SIZE).find_map(|from| {
            let guard = site.source.window().map(PhysAddr(page.0 + from as u64));
            // SAFETY: the guard is valid for the frame, which is the caller's alone: it is a page between user and lists.
            let words =
                unsafe { core::slice::from_raw_parts(guard.base().cast::<u64>().as_ptr(), FRAME_SIZE / 8) };
            let at = words.iter().position(|w| *w != pattern)?;
            Some((from + at * 8) as u32)
        })
    }

    fn fill<W: Window, C: Construct>(site: &Site<'_, '_, W, C>, page: PhysAddr, pattern: u64) {
        let bytes = 1usize << site.source.layout().table_shift[site.level.at()];
        for from in (0..bytes).step_by(FRAME_SIZE) {
            let guard = site.source.window().map(PhysAddr(page.0 + from as u64));
            // SAFETY: as in `find_other`.
            let words = unsafe {
                core::slice::from_raw_parts_mut(guard.base().cast::<u64>().as_ptr(), FRAME_SIZE / 8)
            };
            words.fill(pattern);
        }
    }

    /// Looks for what was written at rest, and clears the page in poison mode.
    fn wake<W: Window, C: Construct>(
        &self,
        site: &Site<'_, '_, W, C>,
        page: PhysAddr,
        due: bool,
    ) -> Result<(), MisuseKind> {
        let poisoned = self.is_poisoned(site);
        // The kernel's half of a top is not zero, and the lists do not know where it begins.
        let found = if poisoned {
            Self::find_other(site, page, PATTERN)
        } else if due && site.level != site.source.layout().top() {
            Self::find_other(site, page, 0)
        } else {
            None
        };
        if let Some(offset) = found {
            return Err(MisuseKind::WrittenAtRest { offset });
        }
        if poisoned {
            Self::fill(site, page, 0);
        }
        Ok(())
    }
}

impl Check for Checked {
    fn made<W: Window, C: Construct>(&self, site: &Site<'_, '_, W, C>, page: &Clean, rests: bool) {
        if let Some(words) = self.words(page.addr()).filter(|_| Self::is_tracked(site)) {
            self.note(site, words, rests);
            if rests && self.is_poisoned(site) {
                Self::fill(site, page.addr(), PATTERN);
            }
        }
    }

    fn given<W: Window, C: Construct>(&self, site: &Site<'_, '_, W, C>, page: &Clean) -> bool {
        let at = page.addr();
        let Some(words) = self.words(at) else { return self.refuse(site, at, MisuseKind::Foreign) };
        if !Self::is_tracked(site) {
            return true;
        }
        let top = site.source.layout().top();
        match event(words[0].load(Relaxed)) {
            None => return self.refuse(site, at, MisuseKind::Foreign),
            Some(last) if last.rests => return self.refuse(site, at, MisuseKind::GivenTwice),
            Some(last) if (last.level == top) != (site.level == top) => {
                return self.refuse(site, at, MisuseKind::WrongClass);
            }
            Some(_) => {}
        }
        if self.is_due(words)
            && site.level != top
            && let Some(offset) = Self::find_other(site, at, 0)
        {
            return self.refuse(site, at, MisuseKind::Dirty { offset });
        }
        self.note(site, words, true);
        if self.is_poisoned(site) {
            Self::fill(site, at, PATTERN);
        }
        true
    }

    fn taken<W: Window, C: Construct>(&self, site: &Site<'_, '_, W, C>, page: &Clean) -> bool {
        let at = page.addr();
        let Some(words) = self.words(at).filter(|_| Self::is_tracked(site)) else { return true };
        if event(words[0].load(Relaxed)).is_none_or(|last| !last.rests) {
            return self.refuse(site, at, MisuseKind::TakenTwice);
        }
        if let Err(kind) = self.wake(site, at, self.is_due(words)) {
            return self.refuse(site, at, kind);
        }
        self.note(site, words, false);
        true
    }

    fn leaves<W: Window, C: Construct>(&self, site: &Site<'_, '_, W, C>, page: &Clean) {
        let at = page.addr();
        let Some(words) = self.words(at).filter(|_| Self::is_tracked(site)) else { return };
        if let Err(kind) = self.wake(site, at, true) {
            // The allocator has to get it zero.
            self.report(site, at, kind);
            Self::fill(site, at, 0);
        }
        words.iter().for_each(|word| word.store(0, Relaxed));
    }
}
