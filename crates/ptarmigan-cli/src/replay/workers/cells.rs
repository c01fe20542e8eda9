//! Things that workers hand to each other: whoever has taken one has it to itself.
//!
//! The schedule says when to take and when to give, and that alone would do. But a defect in it must not become two
//! workers at one address space: taking is checked, always, and so is every access, against the worker's own list of
//! what it has taken, which costs a byte's load.
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// Numbered things, each there or not yet or no more.
pub struct Cells<T> {
    cells: Vec<Cell<T>>,
}

struct Cell<T> {
    taken: AtomicBool,
    // Boxed, as most of them are empty most of the time.
    value: UnsafeCell<Option<Box<T>>>,
}

// SAFETY: a value is reached through the `Claims` that has taken its cell only, and at most one has: so values move
// between threads and are never shared.
unsafe impl<T: Send> Sync for Cells<T> {}

/// What one worker has taken.
pub struct Claims<'c, T> {
    cells: &'c [Cell<T>],
    mine: Vec<bool>,
}

/// A thing was used or given by a worker that did not have it, or taken while another had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfOrder;

impl<T> Cells<T> {
    /// `n` empty cells.
    pub fn new(n: usize) -> Self {
        let cell = || Cell { taken: AtomicBool::new(false), value: UnsafeCell::new(None) };
        Cells { cells: (0..n).map(|_| cell()).collect() }
    }

    /// A hand that has taken nothing yet.
    pub fn claims(&self) -> Claims<'_, T> {
        Claims { cells: &self.cells, mine: vec![false; self.cells.len()] }
    }

    /// Puts a value in, whoever has taken the cell.
    pub fn set(&mut self, n: u32, value: T) {
        *self.cells[n as usize].value.get_mut() = Some(Box::new(value));
    }

    /// All that is left.
    pub fn into_values(self) -> impl Iterator<Item = T> {
        self.cells.into_iter().filter_map(|cell| cell.value.into_inner()).map(|value| *value)
    }
}

impl<T> Claims<'_, T> {
    /// Takes a cell.
    ///
    /// # Errors
    /// [`OutOfOrder`] if somebody has it.
    pub fn claim(&mut self, n: u32) -> Result<(), OutOfOrder> {
        if self.cells[n as usize].taken.swap(true, Ordering::Acquire) {
            return Err(OutOfOrder);
        }
        self.mine[n as usize] = true;
        Ok(())
    }

    /// Lets others take it.
    ///
    /// # Errors
    /// [`OutOfOrder`] if this worker has not taken it.
    pub fn release(&mut self, n: u32) -> Result<(), OutOfOrder> {
        if !std::mem::take(&mut self.mine[n as usize]) {
            return Err(OutOfOrder);
        }
        self.cells[n as usize].taken.store(false, Ordering::Release);
        Ok(())
    }

    /// What is in a cell that this worker has taken.
    ///
    /// # Errors
    /// [`OutOfOrder`] if it has not.
    #[inline(always)]
    pub fn get(&mut self, n: u32) -> Result<&mut Option<Box<T>>, OutOfOrder> {
        if !self.mine[n as usize] {
            return Err(OutOfOrder);
        }
        // SAFETY: `mine` is set by `take` and reset by `give` only: this hand has swapped `taken` from false to true
        // and not stored false since, so no other hand has the cell, and whoever had it before stored false after its
        // last use, which the swap has seen. The reference borrows this hand, so there is one at a time.
        Ok(unsafe { &mut *self.cells[n as usize].value.get() })
    }
}

#[cfg(test)]
mod tests {
    use super::{Cells, OutOfOrder};

    #[test]
    fn what_one_has_taken_another_neither_takes_nor_uses_nor_gives() {
        let cells = Cells::<u32>::new(2);
        let (mut one, mut two) = (cells.claims(), cells.claims());
        assert_eq!(one.get(0), Err(OutOfOrder), "not taken yet");
        assert_eq!(one.claim(0), Ok(()));
        assert_eq!((one.claim(0), two.claim(0)), (Err(OutOfOrder), Err(OutOfOrder)));
        assert_eq!(two.get(0), Err(OutOfOrder));
        assert_eq!(two.release(0), Err(OutOfOrder));
        *one.get(0).expect("taken") = Some(Box::new(7));
        assert_eq!(two.claim(1), Ok(()), "the other one is free");
        assert_eq!(one.release(0), Ok(()));
        assert_eq!(one.get(0), Err(OutOfOrder), "given away");
        assert_eq!(one.release(0), Err(OutOfOrder), "given away");
        assert_eq!(two.claim(0), Ok(()));
        assert_eq!(two.get(0), Ok(&mut Some(Box::new(7))));
        assert_eq!(cells.into_values().collect::<Vec<_>>(), [7]);
    }
}
