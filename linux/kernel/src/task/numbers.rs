//! Finds tasks by their numbers: a hash table of slots.

use crate::limits::TASKS;

/// Lists of slots, a power of two. Numbers are given in order, so that live ones spread evenly.
const LISTS: usize = TASKS;
/// The end of a list. Slot `n` is `n + 1` in it.
const END: u16 = 0;

/// Slots by the numbers of their tasks.
pub struct Numbers {
    first: [u16; LISTS],
    next: [u16; TASKS],
}

fn list(number: i32) -> usize {
    number as u32 as usize % LISTS
}

impl Numbers {
    /// Makes an empty table.
    pub const fn new() -> Self {
        Numbers { first: [END; LISTS], next: [END; TASKS] }
    }

    /// Adds a slot, which is in no list, under a number.
    pub fn add(&mut self, number: i32, slot: usize) {
        let first = &mut self.first[list(number)];
        if let Some(next) = self.next.get_mut(slot) {
            *next = core::mem::replace(first, slot as u16 + 1);
        }
    }

    /// Removes a slot that was added under a number.
    pub fn remove(&mut self, number: i32, slot: usize) {
        let wanted = slot as u16 + 1;
        let mut place = &mut self.first[list(number)];
        let after = self.next.get(slot).copied().unwrap_or(END);
        while *place != wanted {
            let Some(here) = usize::from(*place).checked_sub(1) else { return };
            let Some(next) = self.next.get_mut(here) else { return };
            place = next;
        }
        *place = after;
    }

    /// Returns the slots that may be under a number, newest first: others whose numbers are in the
    /// same list are among them.
    pub fn candidates(&self, number: i32) -> impl Iterator<Item = usize> + '_ {
        let mut at = self.first[list(number)];
        core::iter::from_fn(move || {
            let slot = usize::from(at).checked_sub(1)?;
            at = self.next.get(slot).copied().unwrap_or(END);
            Some(slot)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn all(numbers: &Numbers, number: i32) -> Vec<usize> {
        numbers.candidates(number).collect()
    }

    #[test]
    fn a_slot_is_found_under_its_number_until_it_is_removed() {
        let mut numbers = Numbers::new();
        let (far, same) = (LISTS as i32, 2 * LISTS as i32);
        for (number, slot) in [(far + 5, 0), (5, TASKS - 1), (same + 5, 3), (6, 4)] {
            numbers.add(number, slot);
        }
        assert_eq!(all(&numbers, 5), [3, TASKS - 1, 0]);
        assert_eq!((all(&numbers, 6), all(&numbers, 7)), (Vec::from([4]), Vec::new()));
        numbers.remove(5, TASKS - 1);
        assert_eq!(all(&numbers, 5), [3, 0]);
        numbers.remove(same + 5, 3);
        numbers.remove(5, 77);
        numbers.remove(far + 5, 0);
        assert!(all(&numbers, 5).is_empty());
        numbers.add(5, 3);
        assert_eq!(all(&numbers, far + 5), [3]);
    }

    #[test]
    fn numbers_in_order_share_no_list_as_long_as_all_fit() {
        let mut numbers = Numbers::new();
        (0..TASKS).for_each(|slot| numbers.add(1_000_000 + slot as i32, slot));
        for slot in 0..TASKS {
            assert_eq!(all(&numbers, 1_000_000 + slot as i32), [slot]);
        }
        assert!(all(&numbers, i32::MIN).len() <= 1);
    }
}
