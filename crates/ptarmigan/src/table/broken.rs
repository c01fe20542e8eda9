//! Breaks live entries before others take their place, where the architecture demands it.
//!
//! # The protocol
//!
//! 1. [`Node::update`] refuses a change that [`Format::needs_break`].
//! 2. The caller breaks the entry off ([`Broken::add`]): no MMU can use it, but it is still an
//!    entry and keeps its frame, so its place is not filled again. It also notes the page as stale.
//! 3. One flush has all CPUs forget a batch of such pages.
//! 4. Only then the new entries are made ([`Broken::make`]).
//!
//! ```text
//!  entry      old ── add ──> broken off ───────────────────────── make ──> new
//!  MMU        uses old       faults, or uses old from its TLB     uses new
//!  flush                     ── all CPUs forget up to 48 pages ──>
//!                            ── refused, unwound ──> old again
//! ```
//!
//! Meanwhile an access to such a page faults on every CPU. If the flush is refused, or anything
//! unwinds, the old entries come back: an entry that takes its own place needs no break.
//!
//! A [group](super::group) is one element of a batch: its entries differ in bits that MMUs set
//! alone, and all get those of all.
//!
//! # Why
//!
//! Arm demands it (break-before-make): a TLB that holds the old entry while the new one is in
//! memory may match both, and the result is unpredictable. A flush for each entry would be one
//! broadcast for each page of a range, so breaks are collected. The batch is an array on the stack,
//! because changing permissions must not need memory. Rejected: a mark in the entry instead, which
//! would allow one flush for a range of any size. Each format would need a free bit for it, and its
//! attributes would have to survive in entries that are not present.
use super::group::Group;
#[cfg(doc)]
use super::node::NeedsBreak;
use super::node::Node;
use crate::format::Format;
use crate::page::Level;
use crate::window::OpenWindow;

/// Entries that are flushed together: 768 bytes of stack.
pub(super) const BATCH: usize = 48;

/// Up to `N` leaves that are broken off, with their former values. `find` finds the table of a
/// level for an address. Dropping it makes the old entries again.
pub(super) struct Broken<'w, F: Format, W: OpenWindow + 'w, T, const N: usize>
where
    T: Fn(Level, u64) -> Option<Node<'w, F, W>>,
{
    find: T,
    /// Addresses, with the level and notes in their lowest bits, which are 0 in addresses of pages,
    /// and old entries. Elements from `len` on are unused. For a group, the leaf of its first
    /// entry.
    pages: [(u64, u64); N],
    len: usize,
    /// Whether groups are made with the hint.
    hints: bool,
}

/// The bits of an address that hold the level.
const LEVEL: u64 = 7;
/// The element is a group, or the entries of one.
const GROUP: u64 = 1 << 3;
/// They had the hint.
const HINTED: u64 = 1 << 4;
/// All notes in an address.
const NOTES: u64 = LEVEL | GROUP | HINTED;

impl<'w, F: Format, W: OpenWindow + 'w, T, const N: usize> Broken<'w, F, W, T, N>
where
    T: Fn(Level, u64) -> Option<Node<'w, F, W>>,
{
    /// Empty. `find` finds the table of a level that maps an address, for each that
    /// [`add`](Self::add) is given.
    pub fn new(find: T) -> Self {
        Broken { find, pages: [(0, 0); N], len: 0, hints: true }
    }

    /// The same, with `hints` for whether [groups](Self::add_group) are made with the hint. They
    /// come back as they were.
    pub fn with_hints(mut self, hints: bool) -> Self {
        self.hints = hints;
        self
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn is_full(&self) -> bool {
        self.len == N
    }

    /// Breaks the leaf at `index` of `node` off, which maps addresses from `va` on; returns its
    /// former value. There is room for it.
    pub fn add(&mut self, node: &Node<'_, F, W>, index: usize, va: u64) -> u64 {
        let was = node.break_off(index);
        self.push(va & !NOTES | u64::from(node.level().0), was);
        was
    }

    /// Breaks the entries of a group off, or those that become one. There is room for it.
    pub fn add_group(&mut self, group: &Group<'_, '_, F, W>) {
        let hinted = if group.is_hinted() { HINTED } else { 0 };
        let place = group.va() & !NOTES | u64::from(group.level().0) | GROUP | hinted;
        let was = group.break_off();
        self.push(place, was);
    }

    fn push(&mut self, place: u64, was: u64) {
        if let Some(page) = self.pages.get_mut(self.len) {
            *page = (place, was);
            self.len += 1;
        }
    }

    /// Makes all the entries that `new(level, address, old entry)` returns, after `flush` has had
    /// every CPU forget the old ones, and calls `made(level, address, new entry)` for each. If
    /// `flush` fails, the old ones are made again. Of a group, `new` is asked for the first leaf
    /// alone, without the hint.
    pub fn make<E>(
        &mut self,
        flush: impl FnOnce() -> Result<(), E>,
        new: impl FnMut(Level, u64, u64) -> u64,
        mut made: impl FnMut(Level, u64, u64),
    ) -> Result<(), E> {
        self.make_by(&mut (), |()| flush(), new, |(), level, va, raw| made(level, va, raw))
    }

    /// As [`make`](Self::make), with `by` for those functions that use the same thing.
    pub fn make_by<E, B>(
        &mut self,
        by: &mut B,
        flush: impl FnOnce(&mut B) -> Result<(), E>,
        mut new: impl FnMut(Level, u64, u64) -> u64,
        mut made: impl FnMut(&mut B, Level, u64, u64),
    ) -> Result<(), E> {
        if let Err(e) = flush(by) {
            self.restore();
            return Err(e);
        }
        while let Some(&(place, was)) = self.pages.get(self.len.wrapping_sub(1)) {
            let (level, va) = Self::level_and_address(place);
            let raw = new(level, va, was);
            self.len -= 1;
            self.put(place, raw, self.hints, &mut |va, raw| made(by, level, va, raw));
        }
        Ok(())
    }

    /// The level and the address of an element of `pages`.
    fn level_and_address(place: u64) -> (Level, u64) {
        (Level((place & LEVEL) as u8), place & !NOTES)
    }

    /// Makes an entry, or a group. Apart from the callers, which call others with their own frames
    /// on the stack.
    #[inline(never)]
    fn put(&self, place: u64, raw: u64, hint: bool, made: &mut impl FnMut(u64, u64)) {
        let (level, va) = Self::level_and_address(place);
        let node = (self.find)(level, va);
        debug_assert!(node.is_some(), "the table of {va:#x} stays while its entries are broken off");
        let Some(node) = node else { return };
        if place & GROUP != 0 {
            return Group::around(&node, va).make(raw, hint, made);
        }
        node.make(va, raw);
        made(va, raw);
    }

    #[cold]
    fn restore(&mut self) {
        while let Some(&(place, was)) = self.pages.get(self.len.wrapping_sub(1)) {
            self.len -= 1;
            self.put(place, was, place & HINTED != 0, &mut |_, _| {});
        }
    }
}

impl<'w, F: Format, W: OpenWindow + 'w, T, const N: usize> Drop for Broken<'w, F, W, T, N>
where
    T: Fn(Level, u64) -> Option<Node<'w, F, W>>,
{
    fn drop(&mut self) {
        if self.len > 0 {
            self.restore();
        }
    }
}
