//! Entries that change and stay entries.
use super::{Node, Use};
use crate::format::{Access, Attr, Format, Slot};
use crate::page::Level;
use crate::tlb::hash::Refill;
use crate::window::OpenWindow;

/// The architecture demands that a live entry is broken off, and flushed, before the new one is
/// made (`broken`).
#[derive(Debug)]
pub(crate) struct NeedsBreak;

impl<F: Format, W: OpenWindow> Node<'_, F, W> {
    /// Changes the entry at `index` to the result of `change`, which must be an entry too; the one
    /// that was there. `change` may be called several times, as an MMU sets bits in between.
    ///
    /// # Errors
    ///
    /// [`NeedsBreak`] if an MMU may use the entry, and the architecture demands that it is broken
    /// off first. It is as it was then.
    #[inline(always)]
    pub fn update(&self, index: usize, others: Use, change: impl Fn(u64) -> u64) -> Result<u64, NeedsBreak> {
        let seen = self.load(index);
        let new = change(seen) | F::cleared(seen);
        if new == seen {
            return Ok(seen);
        }
        self.update_seen(index, seen, new, others, change).map(|(was, _)| was)
    }

    /// As [`update`](Self::update), for changes that need no break: the entry loses permissions
    /// alone, or no MMU can use it as it is.
    #[inline(always)]
    pub fn replace(&self, index: usize, others: Use, change: impl Fn(u64) -> u64) -> u64 {
        let seen = self.load(index);
        let new = change(seen) | F::cleared(seen);
        if new == seen { seen } else { self.replace_seen(index, seen, new, others, change).0 }
    }

    /// As [`update`](Self::update), for an entry that the caller has just `seen`, with `new` as the
    /// result of `change`; returns the one that was there and the one that is there now.
    #[inline(always)]
    pub fn update_seen(
        &self,
        index: usize,
        seen: u64,
        new: u64,
        others: Use,
        change: impl Fn(u64) -> u64,
    ) -> Result<(u64, u64), NeedsBreak> {
        self.exchange(index, seen, new, others, change, |old, new| {
            if const { F::EVER_BREAKS } && F::needs_break(self.level, old, new) {
                return Err(NeedsBreak);
            }
            Ok(())
        })
    }

    /// As [`update_seen`](Self::update_seen), for changes that need no break, as for
    /// [`replace`](Self::replace).
    #[inline(always)]
    pub fn replace_seen(
        &self,
        index: usize,
        seen: u64,
        new: u64,
        others: Use,
        change: impl Fn(u64) -> u64,
    ) -> (u64, u64) {
        let allowed = |old, new| -> Result<(), core::convert::Infallible> {
            debug_assert!(
                !F::EVER_BREAKS || !F::needs_break(self.level, old, new),
                "{new:#x} takes the place of {old:#x} without a break in the table at {}",
                self.at
            );
            Ok(())
        };
        let Ok(both) = self.exchange(index, seen, new, others, change, allowed);
        both
    }

    /// Puts `new` in the place of `seen`, or of the entry that is there by now the result of
    /// `change`. `may` is asked where MMUs may use the entry.
    #[inline(always)]
    fn exchange<E>(
        &self,
        index: usize,
        seen: u64,
        new: u64,
        others: Use,
        change: impl Fn(u64) -> u64,
        may: impl Fn(u64, u64) -> Result<(), E>,
    ) -> Result<(u64, u64), E> {
        let slot = self.slot(index);
        let (mut old, mut new) = (seen, new | F::cleared(seen));
        debug_assert!(!F::is_none(new), "entries are cleared by calls that count them");
        if others == Use::Private {
            slot.store(new);
            return Ok((old, new));
        }
        loop {
            may(old, new)?;
            match slot.exchange(old, new) {
                Ok(()) => return Ok((old, new)),
                Err(now) => old = now,
            }
            new = change(old) | F::cleared(old);
            if new == old {
                return Ok((old, new));
            }
        }
    }

    /// Lets no MMU use the leaf at `index` until the next change. It is still an entry, so its
    /// place is not filled again; it has no hint. Returns what it was.
    #[inline]
    pub fn break_off(&self, index: usize) -> u64 {
        self.replace(index, Use::Walked, |raw| {
            F::map_attr(self.level, F::unhinted(self.level, index, raw), Attr::without_access)
        })
    }

    /// Makes the leaf for `va`, which is [broken off](Self::break_off).
    pub fn make(&self, va: u64, raw: u64) {
        self.replace(F::index(self.level, va), Use::Walked, |_| raw);
    }

    /// Puts the link or leaf `raw` in the place of the one at `index` of a table above the leaves,
    /// which no MMU uses, or which the architecture lets it follow without a break; the one that
    /// was there.
    pub fn exchange_large(&self, index: usize, raw: u64, others: Use) -> u64 {
        let slot = self.slot(index);
        debug_assert!(self.level > Level::PTE && !F::is_none(raw) && !F::is_none(slot.load()));
        if others == Use::Private {
            let old = slot.load();
            slot.store(raw);
            return old;
        }
        slot.swap(raw)
    }

    /// Notes that the page at `index` is being put into the hash table for an `access`: sets the
    /// bits that stay, and those that an MMU would set. Returns the entry as it is then, and
    /// whether the bits were set before; `None`, without a change, if it does not allow the access.
    pub fn hash(&self, index: usize, access: Access) -> Option<Refill<u64>> {
        let slot = self.slot(index);
        let used = if access == Access::Write { Attr::ACCESSED | Attr::DIRTY } else { Attr::ACCESSED };
        let mut old = slot.load();
        loop {
            if F::is_none(old) || !F::allows(Level::PTE, old, access) {
                return None;
            }
            let new = F::map_attr(Level::PTE, old, |attr| attr | used) | F::KEPT;
            match slot.exchange(old, new) {
                Ok(()) => return Some(Refill { entry: new, was_hashed: F::cleared(old) != 0 }),
                Err(now) => old = now,
            }
        }
    }
}
