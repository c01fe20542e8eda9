//! The CPUs that may hold a table in their caches.

/// The number of holders that lie in the record of the frame itself, on one cache line.
const NEAR: usize = 4;
/// The number of holders above which they are pruned.
const PRUNE_AT: usize = 16;

/// A CPU that read the table for a position, as long as its context does not say otherwise.
///
/// It is checked on demand. A context that was dropped as a whole has another generation, so that
/// the usual check is one comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) cpu: u16,
    /// [`REGISTERS`], or the number of a context of that CPU.
    pub(crate) context: u32,
    pub(crate) generation: u32,
    /// Position of the table, as [`crate::Arch`] numbers them.
    pub(crate) position: u64,
    /// Event of the walk.
    pub(crate) since: u64,
}

/// Stands for a context in a [`Holder`]: the registers with the root's entries.
pub(crate) const REGISTERS: u32 = u32::MAX;
/// Stands for a context in a [`Holder`]: the global translations.
pub(crate) const GLOBALS: u32 = u32::MAX - 1;

/// A holder for the position that all of these have.
#[derive(Clone, Copy)]
struct Near {
    since: u64,
    generation: u32,
    /// The context as a signed number: -1 and -2 stand for [`REGISTERS`] and [`GLOBALS`].
    context: i16,
    /// [`FREE`] if there is no holder here, nor behind.
    cpu: u16,
}

/// Stands for no CPU: they are fewer.
const FREE: u16 = u16::MAX;

/// The holders of a table, in the order in which they came.
///
/// Nearly always a table is at one position and few CPUs hold it. Four such holders share a cache
/// line of the frame; others are in a list.
#[repr(C)]
pub(crate) struct Holders {
    position: u64,
    near: [Near; NEAR],
    more: Vec<Holder>,
    prune_at: u32,
}

impl Default for Holders {
    fn default() -> Self {
        let free = Near { since: 0, generation: 0, context: 0, cpu: FREE };
        Self { position: 0, near: [free; NEAR], more: Vec::new(), prune_at: 0 }
    }
}

/// Returns a context in the short form, if it fits.
fn short(context: u32) -> Option<i16> {
    i16::try_from(context as i32).ok()
}

impl Near {
    #[inline]
    fn whole(&self, position: u64) -> Holder {
        let Self { since, generation, context, cpu } = *self;
        Holder { cpu, context: i32::from(context) as u32, generation, position, since }
    }
}

impl Holders {
    /// Lists the holders, in the order in which they came.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Holder> + '_ {
        let near = self.near.iter().take_while(|near| near.cpu != FREE);
        near.map(|near| near.whole(self.position)).chain(self.more.iter().copied())
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.near.iter_mut().for_each(|near| near.cpu = FREE);
        self.more.clear();
    }

    /// Adds a holder, or replaces the one of the same CPU, context and position. Returns whether it
    /// is new, or has another generation. `valid` says which old holders still count.
    #[inline]
    pub(super) fn hold(&mut self, new: Holder, valid: impl Fn(&Holder) -> bool) -> bool {
        let Holder { cpu, context, generation, position, since } = new;
        if position == self.position {
            for near in &mut self.near {
                if near.cpu == cpu && i32::from(near.context) as u32 == context {
                    near.since = since;
                    return std::mem::replace(&mut near.generation, generation) != generation;
                }
            }
        }
        self.hold_new(new, &valid)
    }

    /// Adds a holder that is not near.
    #[cold]
    fn hold_new(&mut self, new: Holder, valid: &dyn Fn(&Holder) -> bool) -> bool {
        let same = |h: &Holder| h.cpu == new.cpu && h.context == new.context && h.position == new.position;
        if let Some(old) = self.more.iter_mut().find(|h| same(h)) {
            let renewed = old.generation != new.generation;
            *old = new;
            return renewed;
        }
        let count = self.iter().count();
        if count >= PRUNE_AT.max(self.prune_at as usize) {
            let left: Vec<Holder> = self.iter().filter(valid).collect();
            self.clear();
            self.prune_at = 2 * left.len() as u32;
            left.into_iter().for_each(|holder| self.push(holder));
        }
        self.push(new);
        true
    }

    /// Adds a holder behind the others.
    fn push(&mut self, new: Holder) {
        let used = self.near.iter().take_while(|near| near.cpu != FREE).count();
        if used == 0 {
            self.position = new.position;
        }
        // A holder behind one of the list is in the list as well: the order stays.
        let fits = used < NEAR && self.more.is_empty() && self.position == new.position;
        match short(new.context).filter(|_| fits && new.cpu != FREE) {
            Some(context) => {
                let Holder { cpu, generation, since, .. } = new;
                self.near[used] = Near { since, generation, context, cpu };
            }
            None => self.more.push(new),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds holders at random, and compares with a plain list.
    #[test]
    fn holders_are_those_of_a_list_in_the_same_order() {
        for (positions, contexts, seed) in [(1, 1, 1u64), (1, 9, 2), (3, 2, 3), (40, 3, 4)] {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut below = |n: u64| rng.u64(..n);
            let (mut holders, mut list, mut prune_at) = (Holders::default(), Vec::<Holder>::new(), 0);
            for since in 0..4000 {
                let context = match below(contexts + 3) {
                    0 => REGISTERS,
                    1 => GLOBALS,
                    2 => 40_000,
                    own => own as u32,
                };
                let (cpu, generation) = (below(3) as u16, below(3) as u32);
                let new = Holder { cpu, context, generation, position: below(positions) << 3, since };
                let valid = |h: &Holder| h.generation != 1;
                let same = |h: &&mut Holder| {
                    h.cpu == new.cpu && h.context == new.context && h.position == new.position
                };
                let news = match list.iter_mut().find(same) {
                    Some(old) => std::mem::replace(old, new).generation != new.generation,
                    None => {
                        if list.len() >= PRUNE_AT.max(prune_at) {
                            list.retain(valid);
                            prune_at = 2 * list.len();
                        }
                        list.push(new);
                        true
                    }
                };
                assert_eq!(holders.hold(new, valid), news);
                assert!(holders.iter().eq(list.iter().copied()), "{positions} positions, event {since}");
                if below(300) == 0 {
                    holders.clear();
                    list.clear();
                }
            }
        }
    }

    #[test]
    fn four_holders_lie_on_one_cache_line() {
        assert_eq!(size_of::<[Near; NEAR]>(), 64);
    }
}
