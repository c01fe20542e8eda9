//! Checks of pages on their way through the lists: given back twice, never handed out, not clean.
//!
//! [`Unchecked`] has no cost. [`Checked`] keeps two words for each frame: the last event, and the
//! one before. By these it refuses a page that is given back twice or was never handed out. It
//! verifies the content of a sample of the pages, in debug builds of all. A page that fails its
//! check is leaked on purpose: only its frame is lost.
//!
//! In poison mode pages that rest are filled with a pattern, and the pattern is checked when they
//! are handed out. So code that goes on using a page that it gave back is found, and a walker that
//! still knows such a table finds no entry there that it would follow.
mod misuse;
mod sample;

pub use misuse::{Event, Misuse, MisuseKind};

use super::Source;
use crate::addr::{FRAME_SIZE, PhysAddr};
use crate::bootmem::{BootMemory, BootMemoryShort};
use crate::cpu::CpuId;
use crate::frames::{Frames, MemorySize, PerFrame};
use crate::page::{Clean, Construct, Level};
use crate::window::{OpenWindow, WindowGuard};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use sample::{NUMBER, Sample};

/// Where something happens to a page.
pub struct Site<'s, 'm, W, C> {
    /// Where the lists get their pages.
    pub source: &'s Source<'m, W, C>,
    /// The CPU at work.
    pub cpu: CpuId,
    /// The page's level.
    pub level: Level,
}

impl<W, C> Clone for Site<'_, '_, W, C> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<W, C> Copy for Site<'_, '_, W, C> {}

/// A check of pages. All functions are called on the path that they are about. A page over which
/// one unwinds is leaked, like one that it refuses.
pub trait Check: Sync {
    /// Whether pages are looked at when they are given back. Otherwise
    /// [`given`](Self::given) need not be called.
    const LOOKS_AT_GIVEN: bool = true;

    /// Notes that a page has come from the allocator: it rests, or is handed out.
    fn made<W: OpenWindow, C: Construct>(&self, site: &Site<'_, '_, W, C>, page: &Clean, rests: bool);

    /// Checks a page that is given back. Returns false if it must not be taken.
    fn given<W: OpenWindow, C: Construct>(&self, site: &Site<'_, '_, W, C>, page: &Clean) -> bool;

    /// Checks a page that rested and is to be handed out. Returns false if it must not be.
    fn taken<W: OpenWindow, C: Construct>(&self, site: &Site<'_, '_, W, C>, page: &Clean) -> bool;

    /// Checks a page that rested and goes back to the allocator, where it has to arrive zero, or
    /// constructed.
    fn leaves<W: OpenWindow, C: Construct>(&self, site: &Site<'_, '_, W, C>, page: &Clean);
}

/// Checks no page, at no cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unchecked;

impl Check for Unchecked {
    const LOOKS_AT_GIVEN: bool = false;

    #[inline]
    fn made<W: OpenWindow, C: Construct>(&self, _: &Site<'_, '_, W, C>, _: &Clean, _: bool) {}
    #[inline(always)]
    fn given<W: OpenWindow, C: Construct>(&self, _: &Site<'_, '_, W, C>, _: &Clean) -> bool {
        true
    }
    #[inline(always)]
    fn taken<W: OpenWindow, C: Construct>(&self, _: &Site<'_, '_, W, C>, _: &Clean) -> bool {
        true
    }
    #[inline]
    fn leaves<W: OpenWindow, C: Construct>(&self, _: &Site<'_, '_, W, C>, _: &Clean) {}
}

/// How closely to check.
#[derive(Clone, Copy, Debug)]
pub struct CheckConfig {
    /// The content of a page is verified each `sample`-th time that something happens to it; 1:
    /// always, 0: never; 2047 is the most. Debug builds always verify it. An even number counts as
    /// the odd one below: a page is given back and handed out by turns, so an even sample would see
    /// one of both only.
    pub sample: u32,
    /// Pages that rest are filled with a pattern.
    pub poison: bool,
    /// Called for each misuse, on the CPU where it was found.
    pub report: fn(&Misuse),
}

impl CheckConfig {
    /// Returns the settings that may stay on in production: the events of pages are checked always,
    /// their content each 255th time, and no page is filled. Reading a page takes as long as some
    /// ten pairs, so this is below a tenth of one on average.
    pub const fn new(report: fn(&Misuse)) -> Self {
        CheckConfig { sample: 255, poison: false, report }
    }
}

/// Keeps the last two events of each frame. Refuses a page that is given back twice or was never
/// handed out, that is of another class, or that is not clean; [`CheckConfig`] says how closely it
/// checks. Only a page that is refused is lost.
pub struct Checked {
    /// Words of each frame: last event, the one before.
    frames: PerFrame<[AtomicU32; 2]>,
    /// When content is verified.
    content: Sample,
    /// When there is anything to do with content.
    closely: Sample,
    config: CheckConfig,
    refused: AtomicUsize,
}

/// An event as a word: bit 0 set; bit 1 rests; 3 bits of level; 16 of CPU; the number of the event
/// in what is left.
const KNOWN: u32 = 1;
const RESTS: u32 = 1 << 1;
const LEVEL: u32 = 2;
const CPU: u32 = 5;
/// All that is said of the page itself.
const STATE: u32 = (1 << CPU) - 1;

/// Returns the word that follows `last`.
#[inline]
fn after(last: u32, event: Event) -> u32 {
    let number = (last & (u32::MAX << NUMBER)).wrapping_add(1 << NUMBER);
    let rests = if event.rests { RESTS } else { 0 };
    KNOWN | rests | u32::from(event.level.0) << LEVEL | u32::from(event.cpu.0) << CPU | number
}

fn event(word: u32) -> Option<Event> {
    let (rests, cpu) = (word & RESTS != 0, CpuId((word >> CPU & 0xffff) as u16));
    (word & KNOWN != 0).then_some(Event { rests, level: Level((word >> LEVEL & 7) as u8), cpu })
}

/// The pattern that resting pages are filled with. No architecture takes such an entry for one that
/// is present.
const PATTERN: u64 = 0x5a5a_5a5a_5a5a_5a5a;
/// Words that are looked at together.
const RUN: usize = 64;

impl Checked {
    /// Makes checks for the frames of `frames`.
    ///
    /// # Errors
    ///
    /// [`BootMemoryShort`] if the words do not fit.
    pub fn new(boot: &mut BootMemory, frames: &Frames, config: CheckConfig) -> Result<Self, BootMemoryShort> {
        let words = PerFrame::new(boot, frames, || [AtomicU32::new(0), AtomicU32::new(0)])?;
        let content = if cfg!(debug_assertions) { Sample::ALWAYS } else { Sample::new(config.sample) };
        let closely = if config.poison { Sample::ALWAYS } else { content };
        Ok(Checked { frames: words, content, closely, config, refused: AtomicUsize::new(0) })
    }

    /// Returns the bytes of boot memory that memory of this size takes.
    pub fn bytes(size: &MemorySize) -> usize {
        PerFrame::<[AtomicU32; 2]>::bytes(size)
    }

    /// Returns the number of pages that were refused; their frames are lost.
    pub fn refused(&self) -> usize {
        self.refused.load(Relaxed)
    }

    #[inline(always)]
    fn words(&self, frames: &Frames, at: PhysAddr) -> Option<&[AtomicU32; 2]> {
        self.frames.of(frames, at.pfn())
    }

    /// Returns whether a page has words of its own: tables smaller than a frame share the frame's
    /// words.
    #[inline]
    fn is_tracked<W: OpenWindow, C: Construct>(site: &Site<'_, '_, W, C>) -> bool {
        !site.source.layout().is_small(site.level)
    }

    /// Records the event of a page that follows `last`.
    #[inline(always)]
    fn note<W: OpenWindow, C: Construct>(
        &self,
        site: &Site<'_, '_, W, C>,
        words: &[AtomicU32; 2],
        last: u32,
        rests: bool,
    ) {
        words[1].store(last, Relaxed);
        words[0].store(after(last, Event { rests, cpu: site.cpu, level: site.level }), Relaxed);
    }

    // Sites go by value where it is cold, so that the path of a hit need not lay one down in
    // memory.
    #[cold]
    #[inline(never)]
    fn refuse<W: OpenWindow, C: Construct>(
        &self,
        site: Site<'_, '_, W, C>,
        page: PhysAddr,
        kind: MisuseKind,
    ) -> bool {
        self.refused.fetch_add(1, Relaxed);
        self.report(site, page, kind);
        false
    }

    fn report<W: OpenWindow, C: Construct>(
        &self,
        site: Site<'_, '_, W, C>,
        page: PhysAddr,
        kind: MisuseKind,
    ) {
        let words = self
            .words(site.source.frames(), page)
            .map(|words| [words[0].load(Relaxed), words[1].load(Relaxed)]);
        let [last, before] = words.unwrap_or_default().map(event);
        (self.config.report)(&Misuse { kind, page, cpu: site.cpu, level: site.level, last, before });
    }

    fn is_poisoned<W: OpenWindow, C: Construct>(&self, site: Site<'_, '_, W, C>) -> bool {
        // Roots are written to while they rest: by changes of the kernel map.
        self.config.poison && site.level != site.source.layout().root() && Self::is_tracked(&site)
    }

    /// Returns the offset of the first word that is not `pattern`.
    fn find_other<W: OpenWindow, C: Construct>(
        site: Site<'_, '_, W, C>,
        page: PhysAddr,
        pattern: u64,
    ) -> Option<u32> {
        let bytes = site.source.layout().table_bytes(site.level) as usize;
        (0..bytes).step_by(FRAME_SIZE).find_map(|from| {
            let guard = site.source.window().open(PhysAddr(page.0 + from as u64));
            // SAFETY: the guard is valid for the frame, which is the caller's alone: it is a page
            // between user and lists.
            let words = unsafe { core::slice::from_raw_parts(guard.base().cast::<u64>(), FRAME_SIZE / 8) };
            // Run by run, without a branch for each word.
            let differs = |run: &[u64; RUN]| run.iter().fold(0, |any, w| any | (w ^ pattern)) != 0;
            let (runs, _) = words.as_chunks::<RUN>();
            let n = runs.iter().position(differs)?;
            let at = n * RUN + runs[n].iter().position(|w| *w != pattern)?;
            Some((from + at * 8) as u32)
        })
    }

    fn fill<W: OpenWindow, C: Construct>(site: Site<'_, '_, W, C>, page: PhysAddr, pattern: u64) {
        let bytes = site.source.layout().table_bytes(site.level) as usize;
        for from in (0..bytes).step_by(FRAME_SIZE) {
            let guard = site.source.window().open(PhysAddr(page.0 + from as u64));
            // SAFETY: as in `find_other`.
            let words =
                unsafe { core::slice::from_raw_parts_mut(guard.base().cast::<u64>(), FRAME_SIZE / 8) };
            words.fill(pattern);
        }
    }

    /// Looks for writes to the resting page, and clears the page in poison mode.
    #[cold]
    #[inline(never)]
    fn wake<W: OpenWindow, C: Construct>(
        &self,
        site: Site<'_, '_, W, C>,
        page: PhysAddr,
    ) -> Result<(), MisuseKind> {
        let poisoned = self.is_poisoned(site);
        // The kernel's half of a root is not zero, and the lists do not know where it begins.
        let found = if poisoned {
            Self::find_other(site, page, PATTERN)
        } else if site.level != site.source.layout().root() {
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

    /// Looks for content that the user left in a page, if it is `due`, and fills it in poison mode.
    #[cold]
    #[inline(never)]
    fn lay_down<W: OpenWindow, C: Construct>(
        &self,
        site: Site<'_, '_, W, C>,
        page: PhysAddr,
        due: bool,
    ) -> Result<(), MisuseKind> {
        if due
            && site.level != site.source.layout().root()
            && let Some(offset) = Self::find_other(site, page, 0)
        {
            return Err(MisuseKind::Dirty { offset });
        }
        if self.is_poisoned(site) {
            Self::fill(site, page, PATTERN);
        }
        Ok(())
    }

    /// Returns why a page whose last event is `last` cannot be given back, if it cannot.
    #[cold]
    #[inline(never)]
    fn why<W: OpenWindow, C: Construct>(site: Site<'_, '_, W, C>, last: u32) -> Option<MisuseKind> {
        let top = site.source.layout().root();
        match event(last) {
            None => Some(MisuseKind::Foreign),
            Some(last) if last.rests => Some(MisuseKind::GivenTwice),
            Some(last) => ((last.level == top) != (site.level == top)).then_some(MisuseKind::WrongClass),
        }
    }
}

impl Check for Checked {
    fn made<W: OpenWindow, C: Construct>(&self, site: &Site<'_, '_, W, C>, page: &Clean, rests: bool) {
        if let Some(words) = self.words(site.source.frames(), page.addr()).filter(|_| Self::is_tracked(site))
        {
            self.note(site, words, words[0].load(Relaxed), rests);
            if rests && self.is_poisoned(*site) {
                Self::fill(*site, page.addr(), PATTERN);
            }
        }
    }

    #[inline(always)]
    fn given<W: OpenWindow, C: Construct>(&self, site: &Site<'_, '_, W, C>, page: &Clean) -> bool {
        let at = page.addr();
        let Some(words) = self.words(site.source.frames(), at) else {
            return self.refuse(*site, at, MisuseKind::Foreign);
        };
        if !Self::is_tracked(site) {
            return true;
        }
        let last = words[0].load(Relaxed);
        // Handed out at the level that it is given back at: as it nearly always is.
        if last & STATE != KNOWN | u32::from(site.level.0) << LEVEL
            && let Some(kind) = Self::why(*site, last)
        {
            return self.refuse(*site, at, kind);
        }
        if self.closely.is_due(last >> NUMBER)
            && let Err(kind) = self.lay_down(*site, at, self.content.is_due(last >> NUMBER))
        {
            return self.refuse(*site, at, kind);
        }
        self.note(site, words, last, true);
        true
    }

    #[inline(always)]
    fn taken<W: OpenWindow, C: Construct>(&self, site: &Site<'_, '_, W, C>, page: &Clean) -> bool {
        let at = page.addr();
        let Some(words) = self.words(site.source.frames(), at).filter(|_| Self::is_tracked(site)) else {
            return true;
        };
        let last = words[0].load(Relaxed);
        if last & (KNOWN | RESTS) != KNOWN | RESTS {
            return self.refuse(*site, at, MisuseKind::TakenTwice);
        }
        if self.closely.is_due(last >> NUMBER)
            && let Err(kind) = self.wake(*site, at)
        {
            return self.refuse(*site, at, kind);
        }
        self.note(site, words, last, false);
        true
    }

    fn leaves<W: OpenWindow, C: Construct>(&self, site: &Site<'_, '_, W, C>, page: &Clean) {
        let at = page.addr();
        let Some(words) = self.words(site.source.frames(), at).filter(|_| Self::is_tracked(site)) else {
            return;
        };
        if let Err(kind) = self.wake(*site, at) {
            // The allocator has to get it zero.
            self.report(*site, at, kind);
            Self::fill(*site, at, 0);
        }
        words.iter().for_each(|word| word.store(0, Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_counts_on_from_the_last_and_tells_of_its_own_event() {
        let mut word = 0;
        for n in 1..5000u32 {
            let said = Event { rests: n % 3 == 0, level: Level((n % 5) as u8), cpu: CpuId((n * 31) as u16) };
            word = after(word, said);
            assert_eq!((word >> NUMBER, event(word)), (n % (1 << (u32::BITS - NUMBER)), Some(said)));
        }
    }
}
