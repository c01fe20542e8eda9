//! Keeps the way to the tables around the last page, for calls on single pages one after another.
use super::node::Node;
use super::tables::{NoTable, Tables, descend};
use crate::addr::PhysAddr;
use crate::format::Format;
use crate::frames::{AllocFlags, FrameMeta};
use crate::machine::{Machine, On};
use crate::page::Level;
use core::ops::Deref;

/// The tables of a tree that an edit has for itself, and the table of level 1 that maps the last
/// page that was asked for: the way to its neighbours begins there.
///
/// Tables come and stay as long as they are reached through a shared reference, which this derefs
/// to. A call that may take some away wants them by [`taking`](Self::taking), which forgets the
/// way.
pub(super) struct Near<'a, F: Format> {
    tables: &'a mut Tables<F>,
    /// The number of the span of addresses that the table maps, or [`NOWHERE`].
    span: u64,
    above: PhysAddr,
    /// Its record, if there is one.
    record: Option<&'a FrameMeta>,
    /// The number of the span of addresses that the line of it maps where a table was linked last:
    /// that line has been marked. [`NOWHERE`] if there is none.
    line: u64,
}

/// No table is known: no span has this number.
const NOWHERE: u64 = u64::MAX;

impl<'a, F: Format> Near<'a, F> {
    #[inline]
    pub fn new(tables: &'a mut Tables<F>) -> Self {
        Near { tables, span: NOWHERE, above: PhysAddr(0), record: None, line: NOWHERE }
    }

    /// The tables, for a call that may take some of them away.
    #[inline]
    pub fn taking(&mut self) -> &mut Tables<F> {
        (self.span, self.line) = (NOWHERE, NOWHERE);
        self.tables
    }

    /// Whether the table of level 1 that maps `va` is known.
    #[inline(always)]
    fn knows(&self, va: u64) -> bool {
        Tables::<F>::ROOT > Level(1) && va >> F::shift(Level(2)) == self.span
    }

    /// Returns the leaf table that maps `va`, a user address.
    ///
    /// # Errors
    ///
    /// Whether the table of level 1 above it exists, if there is none.
    #[inline(always)]
    pub fn leaf<M: Machine>(&mut self, on: On<'a, M>, va: u64) -> Result<Node<'a, F, M::Window>, bool> {
        if !self.knows(va) && !self.look(on, va) {
            return Err(false);
        }
        let end = descend::<F, _>(on.window(), self.above, Level(1), va, Level::PTE);
        if end.level > Level::PTE {
            return Err(true);
        }
        Ok(Node::open(on.window(), on.frames(), Level::PTE, end.at))
    }

    /// Looks the table of level 1 that maps `va` up; returns whether it exists. A call, so that the
    /// way through the table that is known stays short.
    #[inline(never)]
    fn look<M: Machine>(&mut self, on: On<'a, M>, va: u64) -> bool {
        let end = descend::<F, _>(on.window(), self.tables.root(), Tables::<F>::ROOT, va, Level(1));
        if end.level == Level(1) {
            self.span = va >> F::shift(Level(2));
            self.above = end.at;
            self.record = Some(on.frames().meta(end.at.pfn()));
        }
        end.level == Level(1)
    }

    /// Makes the leaf table that maps `va`, a user address, which [is missing](Self::leaf), with
    /// the leaf `raw` for `va` in it; and those above it, unless there `is_above`.
    ///
    /// # Errors
    ///
    /// [`NoTable`]; the tree is unchanged then.
    #[inline(always)]
    pub fn put_in_new<M: Machine>(
        &mut self,
        on: On<'a, M>,
        va: u64,
        is_above: bool,
        flags: AllocFlags,
        raw: u64,
    ) -> Result<(), NoTable> {
        if is_above { self.put_below(on, va, flags, raw) } else { self.put_far(on, va, flags, raw) }
    }

    /// A call, so that the way through existing tables stays short enough to be inlined.
    #[inline(never)]
    fn put_below<M: Machine>(
        &mut self,
        on: On<'_, M>,
        va: u64,
        flags: AllocFlags,
        raw: u64,
    ) -> Result<(), NoTable> {
        // Where there are large pages, one may lie there.
        if !self.tables.may_be_large()
            && let Some(record) = self.record
        {
            let (above, line) = (&self.above, &mut self.line);
            let link = |at| {
                // Looked at last, so that few registers are needed.
                let above = Node::<F, _>::with_record(on.window(), record, Level(1), *above);
                let index = F::index(Level(1), va);
                above.put_unmarked(index, F::link(Level(1), at));
                self.tables.note_linked::<M>(1);
                // Mostly its neighbour came before.
                let this = va >> F::shift(Level(1)) >> above.line_shift();
                if this != *line {
                    *line = this;
                    record.touch(above.line_of(index));
                }
            };
            let far = |page| self.tables.put_page(on, va, *above, page, raw);
            if self.tables.put_at_hand(on, va, flags, raw, link, far) {
                return Ok(());
            }
        }
        self.put_far(on, va, flags, raw)
    }

    #[inline(never)]
    fn put_far<M: Machine>(
        &self,
        on: On<'_, M>,
        va: u64,
        flags: AllocFlags,
        raw: u64,
    ) -> Result<(), NoTable> {
        if self.tables.may_be_large() && self.tables.is_large_at(on, va) {
            return Err(NoTable::LARGE);
        }
        Ok(self.tables.put_in_new_by(on, va, self.tables.descend(on, va), flags, raw)?)
    }
}

impl<F: Format> Deref for Near<'_, F> {
    type Target = Tables<F>;

    #[inline]
    fn deref(&self) -> &Tables<F> {
        self.tables
    }
}
