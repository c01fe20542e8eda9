//! Lists of the futexes that a task holds (`set_robust_list`): at its end, their other users learn
//! that the owner has died.
//!
//! The list is the program's, and may be anything. It is followed for so many entries and no
//! longer, and a word is changed only if it names the task.

use ptarmigan::cpu::Pinned;

use super::Body;
use crate::arch::Arch;
use crate::errno::Errno;
use crate::memory::user::number;
use crate::{Kernel, State};

/// Entries that are followed at the most, as under Linux.
const MOST: usize = 2048;
/// The owner's number in the word of a futex.
const TID: u32 = 0x3fff_ffff;
/// Its owner has died.
const OWNER_DIED: u32 = 0x4000_0000;
/// Others wait for it.
const WAITERS: u32 = 0x8000_0000;

/// The change of a futex's word at the end of the task with number `tid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Death {
    /// The word afterwards; `None` if it stays.
    word: Option<u32>,
    /// A task that waits is woken.
    wakes: bool,
}

fn death(word: u32, tid: i32, is_pending: bool) -> Death {
    if word & TID == tid as u32 {
        Death { word: Some(word & WAITERS | OWNER_DIED), wakes: word & WAITERS != 0 }
    } else {
        // The task was between its last change of the word and the wake-up that follows it.
        Death { word: None, wakes: is_pending && word == 0 }
    }
}

impl<A: Arch> Kernel<A> {
    /// Follows the list of a task that ends, or begins another program, whose space is still there.
    pub(crate) fn leave_robust_list(
        &'static self,
        state: &mut State,
        slot: usize,
        body: &mut Body<A>,
        pin: &Pinned<'_>,
    ) {
        let head = core::mem::take(&mut state.tasks.get_mut(slot).robust);
        if head != 0 {
            // A list that cannot be read ends there.
            let _ = self.follow(state, slot, body, pin, head);
        }
    }

    fn follow(
        &'static self,
        state: &mut State,
        slot: usize,
        body: &mut Body<A>,
        pin: &Pinned<'_>,
        head: u64,
    ) -> Result<(), Errno> {
        let (on, word) = (self.on(pin), A::ABI.word());
        let read = |body: &mut Body<A>, at: u64| {
            let mut bytes = [0; 8];
            body.space.read(on, at, &mut bytes[..word])?;
            Ok::<_, Errno>(number(&bytes[..word]))
        };
        // Its first entry, where the words are, seen from entries, and the entry that is changing.
        let mut words = [0; 24];
        body.space.read(on, head, &mut words[..3 * word])?;
        let mut words = words.chunks_exact(word).map(number);
        let mut next_word = || words.next().unwrap_or(0);
        let (first, offset, pending) = (next_word(), next_word(), next_word());
        let offset = if word == 4 { i64::from(offset as u32 as i32) } else { offset as i64 };
        if first & !1 == head && pending & !1 == 0 {
            return Ok(());
        }
        // The lowest bit says that it is one of those that pass priorities on.
        let mut entry = first;
        for _ in 0..MOST {
            if entry & !1 == head {
                break;
            }
            // Read before the word is changed: the next owner may take the entry out.
            let next = read(body, entry & !1);
            if entry & !1 != pending & !1 {
                self.tell_of_death(state, slot, body, pin, (entry & !1).wrapping_add_signed(offset), false)?;
            }
            entry = next?;
        }
        if pending & !1 != 0 {
            self.tell_of_death(state, slot, body, pin, (pending & !1).wrapping_add_signed(offset), true)?;
        }
        Ok(())
    }

    fn tell_of_death(
        &'static self,
        state: &mut State,
        slot: usize,
        body: &mut Body<A>,
        pin: &Pinned<'_>,
        at: u64,
        is_pending: bool,
    ) -> Result<(), Errno> {
        Errno::EINVAL.when(!at.is_multiple_of(4))?;
        let (on, tid) = (self.on(pin), state.tasks.get(slot).tid);
        let mut bytes = [0; 4];
        // Most words are only read: a page that cannot be written is not an error then.
        body.space.read(on, at, &mut bytes)?;
        let mut word = u32::from_le_bytes(bytes);
        if death(word, tid, is_pending).word.is_some() {
            word = body.space.update(on, at, |word| death(word, tid, is_pending).word)?;
        }
        if death(word, tid, is_pending).wakes {
            let space = state.tasks.space_of(slot);
            let key = super::futex::key::<A>(on, &mut body.space, space, at);
            state.tasks.wake_futex(key, 1, u32::MAX);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_names_the_task_says_that_its_owner_has_died() {
        assert_eq!(death(7, 7, false), Death { word: Some(OWNER_DIED), wakes: false });
        assert_eq!(death(WAITERS | 7, 7, false), Death { word: Some(WAITERS | OWNER_DIED), wakes: true });
        // It stays so when it is looked at again.
        assert_eq!(death(WAITERS | OWNER_DIED, 7, false), Death { word: None, wakes: false });
        assert_eq!(death(WAITERS | 8, 7, false), Death { word: None, wakes: false });
    }

    #[test]
    fn who_waits_is_woken_if_the_task_had_no_time_to() {
        assert_eq!(death(0, 7, true), Death { word: None, wakes: true });
        assert_eq!(death(0, 7, false), Death { word: None, wakes: false });
        assert_eq!(death(8, 7, true), Death { word: None, wakes: false });
    }
}
