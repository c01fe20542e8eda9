//! The address spaces of a replay, and the access of one worker to them.
//!
//! A space that one task uses at a time belongs to one worker at a time, which claims it without a
//! lock ([`Cells`]). When a second task starts to use it, the space becomes the library's
//! [`SharedSpace`]. Each worker that uses it keeps a reference until the schedule detaches the
//! worker.
use super::cells::{Cells, Claims, OutOfOrder};
use ptarmigan::format::Format;
use ptarmigan::space::{SharedSpace, Space, SpaceRef};
use std::sync::{Arc, Mutex, PoisonError};

/// All spaces.
pub struct Spaces<F: Format> {
    own: Cells<Space<F>>,
    shared: Vec<Mutex<Option<Arc<SharedSpace<F>>>>>,
}

/// The access of one worker to a shared space.
enum SharedState<F: Format> {
    /// The worker is not attached.
    Not,
    /// The worker is attached, but memory ran out before the space was made.
    Missing,
    Here(Arc<SharedSpace<F>>),
}

/// The access of one worker to all spaces.
pub struct WorkerSpaces<'s, F: Format> {
    own: Claims<'s, Space<F>>,
    all: &'s Spaces<F>,
    shared: Vec<SharedState<F>>,
}

impl<F: Format> Spaces<F> {
    /// Creates `n` empty places for spaces.
    pub fn new(n: usize) -> Self {
        Spaces { own: Cells::new(n), shared: (0..n).map(|_| Mutex::new(None)).collect() }
    }

    /// Puts a space into its place before the workers start.
    pub fn set(&mut self, n: u32, space: Space<F>) {
        self.own.set(n, space);
    }

    /// Returns the access of one worker, which holds no space yet.
    pub fn for_worker(&self) -> WorkerSpaces<'_, F> {
        let shared = (0..self.shared.len()).map(|_| SharedState::Not).collect();
        WorkerSpaces { own: self.own.claims(), all: self, shared }
    }

    /// Returns the spaces that are left after all workers have finished.
    pub fn into_left(self) -> impl Iterator<Item = Space<F>> {
        let shared = self.shared.into_iter().filter_map(|shared| {
            let shared = shared.into_inner().unwrap_or_else(PoisonError::into_inner)?;
            Arc::into_inner(shared).map(SharedSpace::into_inner)
        });
        self.own.into_values().chain(shared)
    }
}

impl<F: Format> WorkerSpaces<'_, F> {
    /// Returns a claimed space, or `None` if its place is empty.
    ///
    /// # Errors
    /// [`OutOfOrder`] if this worker has not claimed it.
    #[inline]
    pub fn own(&mut self, n: u32) -> Result<&mut Option<Box<Space<F>>>, OutOfOrder> {
        self.own.get(n)
    }

    /// Returns a space that this worker has claimed or is attached to; `None` if the space has
    /// ended, or memory ran out before it was made.
    ///
    /// # Errors
    /// [`OutOfOrder`] if it has neither.
    #[inline]
    pub fn get(&mut self, n: u32) -> Result<Option<SpaceRef<'_, F>>, OutOfOrder> {
        Ok(match &self.shared[n as usize] {
            SharedState::Here(shared) => Some(SpaceRef::Shared(shared)),
            SharedState::Missing => None,
            SharedState::Not => self.own.get(n)?.as_mut().map(|space| SpaceRef::Own(space)),
        })
    }

    /// Removes a space that ends, after all other workers have detached.
    ///
    /// # Errors
    /// [`OutOfOrder`] if another worker still holds it.
    pub fn remove(&mut self, n: u32) -> Result<Option<Space<F>>, OutOfOrder> {
        match std::mem::replace(&mut self.shared[n as usize], SharedState::Not) {
            SharedState::Not => Ok(self.own.get(n)?.take().map(|space| *space)),
            SharedState::Missing => Ok(None),
            SharedState::Here(mine) => {
                self.published(n).take();
                Arc::into_inner(mine).map(|shared| Some(shared.into_inner())).ok_or(OutOfOrder)
            }
        }
    }

    fn published(&self, n: u32) -> std::sync::MutexGuard<'_, Option<Arc<SharedSpace<F>>>> {
        self.all.shared[n as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims a space.
    ///
    /// # Errors
    /// [`OutOfOrder`] if it is claimed.
    pub fn claim(&mut self, n: u32) -> Result<(), OutOfOrder> {
        self.own.claim(n)
    }

    /// Releases a space.
    ///
    /// # Errors
    /// [`OutOfOrder`] if this worker has not claimed it.
    pub fn release(&mut self, n: u32) -> Result<(), OutOfOrder> {
        self.own.release(n)
    }

    /// Makes a claimed space shared, and attaches this worker.
    ///
    /// # Errors
    /// [`OutOfOrder`] if this worker has not claimed it.
    pub fn share(&mut self, n: u32) -> Result<(), OutOfOrder> {
        if let Some(space) = self.own.get(n)?.take() {
            *self.published(n) = Some(Arc::new(SharedSpace::new(*space)));
        }
        self.own.release(n)?;
        self.attach(n);
        Ok(())
    }

    /// Attaches this worker to a shared space.
    pub fn attach(&mut self, n: u32) {
        let published = self.published(n).clone();
        self.shared[n as usize] = published.map_or(SharedState::Missing, SharedState::Here);
    }

    /// Detaches this worker from a shared space.
    pub fn detach(&mut self, n: u32) {
        self.shared[n as usize] = SharedState::Not;
    }
}
