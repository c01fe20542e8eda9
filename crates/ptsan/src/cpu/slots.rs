//! A hash table of cached entries that is emptied at no cost.
//!
//! Hardware drops everything it has cached with one instruction, and page-table code has it do so
//! all the time. Each slot carries the number of the emptying after which it was filled, so that
//! one addition empties all. A table that stays small stays in the cache of the host.
use crate::hash::MixHasher;
use std::hash::Hasher;

/// The number of slots of a table that holds anything.
const LEAST: usize = 16;
/// The number of slots that a table may keep when it is emptied.
const KEPT: usize = 256;

#[derive(Clone, Copy)]
struct Slot<V> {
    key: u64,
    /// The filling in which the slot was filled; it is free in all others.
    filling: u64,
    value: V,
}

/// Values by key, with linear probing.
pub(super) struct Slots<V> {
    slots: Vec<Slot<V>>,
    filling: u64,
    len: usize,
    /// Where the next value to evict is looked for.
    victim: usize,
}

impl<V> Default for Slots<V> {
    fn default() -> Self {
        Self { slots: Vec::new(), filling: 1, len: 0, victim: 0 }
    }
}

impl<V: Copy> Slots<V> {
    /// Returns the number of values.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn home(&self, key: u64) -> usize {
        let mut hasher = MixHasher::default();
        hasher.write_u64(key);
        hasher.finish() as usize & (self.slots.len() - 1)
    }

    /// Returns the slot of a key, or the free one where it belongs.
    #[inline]
    fn find(&self, key: u64) -> (usize, bool) {
        let mut at = self.home(key);
        loop {
            let slot = &self.slots[at];
            if slot.filling != self.filling {
                return (at, false);
            }
            if slot.key == key {
                return (at, true);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    #[inline]
    pub(super) fn get(&self, key: u64) -> Option<&V> {
        if self.len == 0 {
            return None;
        }
        let (at, found) = self.find(key);
        found.then(|| &self.slots[at].value)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        if self.len == 0 {
            return None;
        }
        let (at, found) = self.find(key);
        found.then(|| &mut self.slots[at].value)
    }

    /// Puts a value in, and returns the one that it replaces.
    #[inline]
    pub(super) fn insert(&mut self, key: u64, value: V) -> Option<V> {
        if self.slots.len() < 2 * (self.len + 1) {
            self.grow(value);
        }
        let (at, found) = self.find(key);
        let slot = &mut self.slots[at];
        if found {
            return Some(std::mem::replace(&mut slot.value, value));
        }
        *slot = Slot { key, filling: self.filling, value };
        self.len += 1;
        None
    }

    /// Doubles the slots. `any` fills those that are free.
    #[cold]
    fn grow(&mut self, any: V) {
        let slots = (2 * self.slots.len()).max(LEAST);
        let old = std::mem::replace(&mut self.slots, vec![Slot { key: 0, filling: 0, value: any }; slots]);
        for slot in old.into_iter().filter(|s| s.filling == self.filling) {
            let (at, _) = self.find(slot.key);
            self.slots[at] = slot;
        }
    }

    /// Takes a value out.
    pub(super) fn remove(&mut self, key: u64) -> Option<V> {
        if self.len == 0 {
            return None;
        }
        let (mut hole, found) = self.find(key);
        if !found {
            return None;
        }
        let value = self.slots[hole].value;
        let last = self.slots.len() - 1;
        let mut at = hole;
        // Moves later entries up, so that a search never meets a hole too early.
        loop {
            at = (at + 1) & last;
            let slot = self.slots[at];
            if slot.filling != self.filling {
                break;
            }
            let way = at.wrapping_sub(self.home(slot.key)) & last;
            if way >= at.wrapping_sub(hole) & last {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole].filling = 0;
        self.len -= 1;
        Some(value)
    }

    /// Takes a value out that was put in some time ago, and returns it with its key. The earlier
    /// calls determine which one.
    pub(super) fn evict(&mut self) -> Option<(u64, V)> {
        if self.len == 0 {
            return None;
        }
        let last = self.slots.len() - 1;
        while self.slots[self.victim & last].filling != self.filling {
            self.victim = self.victim.wrapping_add(1);
        }
        let key = self.slots[self.victim & last].key;
        self.victim = self.victim.wrapping_add(1);
        self.remove(key).map(|value| (key, value))
    }

    /// Takes everything out. A table that has become much too large is halved; one of no more than
    /// [`KEPT`] slots keeps its memory.
    pub(super) fn clear(&mut self) {
        self.filling += 1;
        if self.slots.len() > KEPT && self.len < self.slots.len() / 16 {
            self.slots.truncate(self.slots.len() / 2);
        }
        self.len = 0;
    }

    /// Lists the entries, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &V)> {
        self.slots.iter().filter(|s| s.filling == self.filling).map(|s| (s.key, &s.value))
    }

    /// Takes out the entries that `drop` selects, and passes each to `dropped`.
    pub(super) fn drop_where(&mut self, drop: impl Fn(u64) -> bool, mut dropped: impl FnMut(u64)) {
        let keys: Vec<u64> = self.iter().map(|(key, _)| key).filter(|key| drop(*key)).collect();
        for key in keys {
            self.remove(key);
            dropped(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_table_that_was_large_once_becomes_small_again() {
        let mut slots = Slots::default();
        (0..10_000).for_each(|key| _ = slots.insert(key, key));
        assert_eq!(slots.slots.len(), 32_768);
        slots.clear();
        assert_eq!(slots.slots.len(), 32_768, "it was full");
        for round in 0..100 {
            (0..10).for_each(|key| _ = slots.insert(key * 977, round));
            assert!((0..10).all(|key| slots.get(key * 977) == Some(&round)) && slots.len() == 10);
            slots.clear();
        }
        assert_eq!((slots.slots.len(), slots.iter().count()), (KEPT, 0));
    }

    #[test]
    fn it_holds_what_a_map_holds_after_any_calls() {
        let (mut slots, mut map) = (Slots::default(), BTreeMap::new());
        let mut rng = fastrand::Rng::with_seed(1);
        for step in 0..200_000u64 {
            // Keys are few, so that they meet in neighbouring slots.
            let key = rng.u64(..300);
            match rng.u8(..8) {
                0..4 => assert_eq!(slots.insert(key, step), map.insert(key, step)),
                4..6 => assert_eq!(slots.remove(key), map.remove(&key)),
                6 if rng.u32(..2048) == 0 => {
                    slots.clear();
                    map.clear();
                }
                6 if slots.len() > 100 => {
                    let (key, value) = slots.evict().unwrap();
                    assert_eq!(map.remove(&key), Some(value));
                }
                _ => assert_eq!(slots.get(key), map.get(&key)),
            }
            assert_eq!(slots.len(), map.len());
        }
        slots.drop_where(|key| key % 3 == 0, |key| assert!(map.remove(&key).is_some()));
        let all: BTreeMap<u64, u64> = slots.iter().map(|(key, value)| (key, *value)).collect();
        assert_eq!(all, map);
        assert!(map.keys().all(|key| key % 3 != 0) && !map.is_empty());
    }
}
