//! The tables that the large pages of a tree may need, so that taking one apart never fails.
//!
//! A large page of level L may have to become a table of level L - 1, and each of that table's
//! entries one of the level below. So many tables are reserved for it when it is mapped: one for a
//! page of 2 MiB, 513 for one of 1 GiB (x86-64). It is one sum for the tree.
//!
//! Tables of one frame are reserved by [number](Frames::reserve). Those of several frames are held,
//! as free memory may be in pieces: they are as rare as their large pages are large (one of 64 KiB
//! for 512 MiB on AArch64 with a granule of 64 KiB).
use crate::addr::Pfn;
use crate::format::Format;
#[cfg(doc)]
use crate::frames::Frames;
use crate::frames::{AllocFlags, Dirty, End, Frame, NoFrame, Request, ZoneClass};
use crate::machine::{Machine, On};
use crate::page::{Clean, Level};
use crate::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Tables that are reserved for large pages of one tree.
pub(super) struct Reserve {
    /// How many, and [`GROUPS`]. An atomic, as shared faults add to it; a caller that holds the
    /// tables exclusively uses plain loads and stores.
    tables: AtomicU32,
    /// Where tables have several frames: the blocks that are held, chained through their records.
    held: Pfn,
}

/// The tree may have groups, which need no tables. In the same word, so that one load tells whether
/// all leaves are pages. More tables than that many have no room in memory.
const GROUPS: u32 = 1 << 31;

/// The tables that a leaf in a table of `level` may need: 0 for pages.
pub(super) fn needed<F: Format>(level: Level) -> u32 {
    let mut tables = 0u32;
    for below in 0..level.0 {
        // Each of its entries needs as many as those of the level below did, and it is one itself.
        tables = if below == 0 { 1 } else { 1 + tables * F::entries(Level(below)) as u32 };
    }
    tables
}

impl Reserve {
    /// None.
    pub fn none() -> Self {
        Reserve { tables: AtomicU32::new(0), held: Pfn::NONE }
    }

    /// Tables that are reserved.
    #[inline]
    pub fn tables(&self) -> u32 {
        self.tables.load(Relaxed) & !GROUPS
    }

    fn set(&self, tables: u32) {
        self.tables.store(self.tables.load(Relaxed) & GROUPS | tables, Relaxed);
    }

    /// Whether there is a large page, or may be a group.
    #[inline]
    pub fn is_used(&self) -> bool {
        self.tables.load(Relaxed) != 0
    }

    /// Whether there may be groups.
    #[inline]
    pub fn has_groups(&self) -> bool {
        self.tables.load(Relaxed) & GROUPS != 0
    }

    /// Notes, for good, that there may be groups. The caller holds the tables exclusively.
    pub fn note_groups(&mut self) {
        self.tables.store(self.tables.load(Relaxed) | GROUPS, Relaxed);
    }

    /// Binary logarithm of the frames of a table: those below the root have one size.
    const fn order<F: Format>() -> u8 {
        F::LAYOUT.table_shift[0].saturating_sub(crate::addr::FRAME_SHIFT as u8)
    }

    /// Reserves `n` tables more.
    ///
    /// # Errors
    ///
    /// [`NoFrame`]; the reserve is unchanged then.
    pub fn raise<F: Format, M: Machine>(&mut self, on: On<'_, M>, n: u32) -> Result<(), NoFrame> {
        if Self::order::<F>() == 0 {
            on.frames().reserve(on.node(), n)?;
            self.set(self.tables() + n);
            return Ok(());
        }
        let before = self.tables();
        while self.tables() - before < n {
            let (order, flags) = (Self::order::<F>(), AllocFlags::NORMAL);
            let (class, end, node) = (ZoneClass::Low, End::Low, on.node());
            match on.frames().take(Request { node, order, zero: true, class, end, flags }) {
                Ok(block) => self.hold(on, block.dirty()),
                Err(e) => {
                    self.lower::<F, M>(on, self.tables() - before);
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    /// Reserves `n` tables more, as other CPUs may do at the same time.
    ///
    /// # Errors
    ///
    /// [`NoFrame`], also where tables have several frames; the reserve is unchanged then.
    pub fn raise_shared<F: Format, M: Machine>(&self, on: On<'_, M>, n: u32) -> Result<(), NoFrame> {
        if Self::order::<F>() != 0 {
            return Err(NoFrame::new(Self::order::<F>(), on.node(), on.frames().node_free(on.node())));
        }
        on.frames().reserve(on.node(), n)?;
        self.tables.fetch_add(n, Relaxed);
        Ok(())
    }

    /// Gives up what [`raise_shared`](Self::raise_shared) has reserved for a page that was not
    /// mapped.
    pub fn lower_shared<M: Machine>(&self, on: On<'_, M>, n: u32) {
        on.frames().unreserve(on.node(), n);
        self.tables.fetch_sub(n, Relaxed);
    }

    fn hold<M: Machine>(&mut self, on: On<'_, M>, block: Frame<Dirty>) {
        let pfn = block.into_raw();
        on.frames().meta(pfn).set_next(self.held);
        self.held = pfn;
        self.set(self.tables() + 1);
    }

    /// The block that was held last.
    fn let_go<F: Format, M: Machine>(&mut self, on: On<'_, M>) -> Option<Frame<Dirty>> {
        if self.held == Pfn::NONE {
            return None;
        }
        let pfn = self.held;
        self.held = on.frames().meta(pfn).next();
        self.set(self.tables() - 1);
        // SAFETY: 1. `raise` took it, in this order, and it has just come off the chain. 2. `Dirty`
        // makes no promise.
        Some(unsafe { Frame::from_raw(on.frames().machine(), pfn, Self::order::<F>()) })
    }

    /// Gives up `n` tables, which are not needed any more.
    #[cold]
    pub fn lower<F: Format, M: Machine>(&mut self, on: On<'_, M>, n: u32) {
        debug_assert!(n <= self.tables());
        if Self::order::<F>() == 0 {
            return self.lower_counted(on, n);
        }
        for _ in 0..n {
            if let Some(block) = self.let_go::<F, M>(on) {
                on.frames().give(block);
            }
        }
    }

    /// As [`lower`](Self::lower), where tables have one frame: these are counted and not held.
    #[inline(always)]
    fn lower_counted<M: Machine>(&mut self, on: On<'_, M>, n: u32) {
        on.frames().unreserve(on.node(), n);
        self.set(self.tables() - n);
    }

    /// Takes a table of `level` for the parts of a large page, of the policy's if it has one, and
    /// of the reserve otherwise, which is one table less then.
    ///
    /// # Errors
    ///
    /// [`NoFrame`] if there is none, and none was reserved: never for a large page of this tree.
    pub fn draw<F: Format, M: Machine>(&mut self, on: On<'_, M>, level: Level) -> Result<Clean, NoFrame> {
        if let Ok(page) = on.alloc_table(level, AllocFlags::NORMAL) {
            // In line: this is where calls are deepest.
            if Self::order::<F>() == 0 {
                self.lower_counted(on, 1);
            } else {
                self.lower::<F, M>(on, 1);
            }
            return Ok(page);
        }
        let frame = if Self::order::<F>() == 0 {
            let frame = on.frames().draw(on.node())?;
            self.set(self.tables() - 1);
            frame
        } else {
            let none = NoFrame::new(Self::order::<F>(), on.node(), on.frames().node_free(on.node()));
            self.let_go::<F, M>(on).ok_or(none)?
        };
        // SAFETY: 1. it is low memory of the machine, which its window reaches (`Machine`, 3.).
        let frame = unsafe { frame.clear(on.window()) };
        on.frames().meta(frame.pfn()).begin_clean();
        // SAFETY: 1. and 3. just taken. 2. just cleared; a table below the root has so many frames,
        // and may lie in low memory.
        let page = unsafe { Clean::from_raw(frame.into_raw().addr(), level) };
        // SAFETY: 1. as said above; `level` is below that of a large page.
        unsafe { on.policy().adopt(&page) };
        Ok(page)
    }
}
