//! Cells that workers pass to each other; each cell has at most one claim.
//!
//! ```text
//!  worker 0   claim: taken.swap(true) ── get ── release: taken = false ──┐
//!  worker 1                                   claim: taken.swap(true) <───┘ ── get
//!  a wrong schedule       claim: it was taken ──> OutOfOrder
//! ```
//!
//! # Why
//!
//! The schedule says when a worker claims and releases a cell. A wrong schedule must not let two
//! workers use one address space, so claims are checked: when a cell is claimed, by an atomic swap,
//! and at every access, by the worker's own list of claims. The latter costs the load of a byte; a
//! lock for each cell would cost two atomic operations at every event, and would hide a wrong
//! schedule by waiting.
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// Numbered cells, each with or without a value.
pub struct Cells<T> {
    cells: Vec<Cell<T>>,
}

struct Cell<T> {
    taken: AtomicBool,
    // Boxed, as most cells are empty most of the time.
    value: UnsafeCell<Option<Box<T>>>,
}

// SAFETY: a value is reached only through the `Claims` that claimed its cell, and at most one has.
// So values move between threads and are never shared.
unsafe impl<T: Send> Sync for Cells<T> {}

/// The cells that one worker has claimed.
pub struct Claims<'c, T> {
    cells: &'c [Cell<T>],
    mine: Vec<bool>,
}

/// A worker used or released a cell that it had not claimed, or claimed a cell that was claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfOrder;

impl<T> Cells<T> {
    /// Creates `n` empty cells.
    pub fn new(n: usize) -> Self {
        let cell = || Cell { taken: AtomicBool::new(false), value: UnsafeCell::new(None) };
        Cells { cells: (0..n).map(|_| cell()).collect() }
    }

    /// Returns a list of claims for one worker, still empty.
    pub fn claims(&self) -> Claims<'_, T> {
        Claims { cells: &self.cells, mine: vec![false; self.cells.len()] }
    }

    /// Puts a value into a cell before the workers start.
    pub fn set(&mut self, n: u32, value: T) {
        *self.cells[n as usize].value.get_mut() = Some(Box::new(value));
    }

    /// Returns the values that are left.
    pub fn into_values(self) -> impl Iterator<Item = T> {
        self.cells.into_iter().filter_map(|cell| cell.value.into_inner()).map(|value| *value)
    }
}

impl<T> Claims<'_, T> {
    /// Claims a cell.
    ///
    /// # Errors
    /// [`OutOfOrder`] if the cell is claimed.
    pub fn claim(&mut self, n: u32) -> Result<(), OutOfOrder> {
        if self.cells[n as usize].taken.swap(true, Ordering::Acquire) {
            return Err(OutOfOrder);
        }
        self.mine[n as usize] = true;
        Ok(())
    }

    /// Releases a cell.
    ///
    /// # Errors
    /// [`OutOfOrder`] if this worker has not claimed the cell.
    pub fn release(&mut self, n: u32) -> Result<(), OutOfOrder> {
        if !std::mem::take(&mut self.mine[n as usize]) {
            return Err(OutOfOrder);
        }
        self.cells[n as usize].taken.store(false, Ordering::Release);
        Ok(())
    }

    /// Returns the value of a claimed cell.
    ///
    /// # Errors
    /// [`OutOfOrder`] if this worker has not claimed the cell.
    #[inline]
    pub fn get(&mut self, n: u32) -> Result<&mut Option<Box<T>>, OutOfOrder> {
        if !self.mine[n as usize] {
            return Err(OutOfOrder);
        }
        // SAFETY: only `claim` sets `mine`, and only `release` clears it. So this list has swapped
        // `taken` from false to true and has not stored false since: no other list holds the cell.
        // The previous holder stored false after its last use, and the swap has acquired that
        // store. The reference borrows this list, so there is one at a time.
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
