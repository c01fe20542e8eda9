//! Waiting on words of memory.

use ptarmigan::addr::VirtAddr;
use ptarmigan::machine::On;
use ptarmigan::space::AreaFlags;

use super::{Doing, Futex, Key, TaskQueues, Wait};
use crate::arch::Arch;
use crate::memory::{Machine, TaskSpace};

/// Returns the name of the word at `at` of a space; `number` is that of its record.
pub fn key<A: Arch>(on: On<'_, Machine<A>>, space: &mut TaskSpace<A>, number: usize, at: u64) -> Key {
    let area = space.edit(on, |space| space.area(VirtAddr(at)));
    match area {
        Ok(Some(area)) if area.flags.has(AreaFlags::SHARED) && area.object != 0 => {
            Key::Shared { object: area.object, offset: area.offset_at(at) }
        }
        _ => Key::Private { space: number, at },
    }
}

impl TaskQueues {
    /// Returns the task that has waited longest on a futex, of those that wait for one of `bits`.
    fn longest_waiter(&self, key: Key, bits: u32) -> Option<usize> {
        let waits = |slot: &usize| match self.get(*slot).doing {
            Doing::Waiting(Wait::Futex(futex)) => futex.key == key && futex.bits & bits != 0,
            _ => false,
        };
        self.slots().filter(waits).min_by_key(|slot| self.get(*slot).waits_since)
    }

    /// Wakes at most `most` tasks that wait on a futex for one of `bits`; how many.
    pub fn wake_futex(&mut self, key: Key, most: u32, bits: u32) -> u32 {
        let mut woken = 0;
        while woken < most
            && let Some(slot) = self.longest_waiter(key, bits)
        {
            self.get_mut(slot).woken = true;
            self.make_ready(slot);
            woken += 1;
        }
        woken
    }

    /// Has at most `most` tasks that wait on one futex wait on another; how many.
    pub fn move_futex(&mut self, from: Key, to: Key, most: u32) -> u32 {
        let mut moved = 0;
        while moved < most
            && from != to
            && let Some(slot) = self.longest_waiter(from, u32::MAX)
        {
            self.get_mut(slot).doing = Doing::Waiting(Wait::Futex(Futex { key: to, bits: u32::MAX }));
            moved += 1;
        }
        moved
    }
}
