//! The address spaces of a replay, and what one worker has of them.
//!
//! A space that one task uses at a time belongs to one worker at a time and is passed on ([`Cells`]): no locks. From the
//! moment on at which a second task uses it, it is the library's [`SharedSpace`], and each worker that comes to it keeps
//! a reference until the schedule says that it is done with it.
use super::cells::{Cells, Claims, OutOfOrder};
use ptarmigan::format::Format;
use ptarmigan::space::{SharedSpace, Space};
use std::sync::{Arc, Mutex, PoisonError};

/// All spaces.
pub struct Spaces<F: Format> {
    own: Cells<Space<F>>,
    shared: Vec<Mutex<Option<Arc<SharedSpace<F>>>>>,
}

/// What a worker has of a shared space.
enum SharedState<F: Format> {
    /// Nothing.
    Not,
    /// There was no memory to make it.
    Missing,
    Here(Arc<SharedSpace<F>>),
}

/// One worker's.
pub struct WorkerSpaces<'s, F: Format> {
    own: Claims<'s, Space<F>>,
    all: &'s Spaces<F>,
    shared: Vec<SharedState<F>>,
}

/// How a worker has a space.
pub enum SpaceRef<'h, F: Format> {
    /// To itself.
    Own(&'h mut Space<F>),
    /// Together with others.
    Shared(&'h SharedSpace<F>),
    /// There was no memory to make it, or it has ended.
    Nothing,
}

impl<F: Format> Spaces<F> {
    /// Room for `n` spaces.
    pub fn new(n: usize) -> Self {
        Spaces { own: Cells::new(n), shared: (0..n).map(|_| Mutex::new(None)).collect() }
    }

    /// Puts a space in before anybody has any.
    pub fn set(&mut self, n: u32, space: Space<F>) {
        self.own.set(n, space);
    }

    /// What one worker has: nothing yet.
    pub fn for_worker(&self) -> WorkerSpaces<'_, F> {
        let shared = (0..self.shared.len()).map(|_| SharedState::Not).collect();
        WorkerSpaces { own: self.own.claims(), all: self, shared }
    }

    /// All that is left when no worker has any.
    pub fn into_left(self) -> impl Iterator<Item = Space<F>> {
        let shared = self.shared.into_iter().filter_map(|shared| {
            let shared = shared.into_inner().unwrap_or_else(PoisonError::into_inner)?;
            Arc::into_inner(shared).map(SharedSpace::into_inner)
        });
        self.own.into_values().chain(shared)
    }
}

impl<F: Format> WorkerSpaces<'_, F> {
    /// A space that is the worker's own; `None` if it is not there.
    ///
    /// # Errors
    /// [`OutOfOrder`] if it is not its own.
    #[inline(always)]
    pub fn own(&mut self, n: u32) -> Result<&mut Option<Box<Space<F>>>, OutOfOrder> {
        self.own.get(n)
    }

    /// A space that the worker has, one way or the other.
    ///
    /// # Errors
    /// [`OutOfOrder`] if it has not.
    #[inline]
    pub fn get(&mut self, n: u32) -> Result<SpaceRef<'_, F>, OutOfOrder> {
        match &self.shared[n as usize] {
            SharedState::Here(shared) => Ok(SpaceRef::Shared(shared)),
            SharedState::Missing => Ok(SpaceRef::Nothing),
            SharedState::Not => {
                Ok(self.own.get(n)?.as_mut().map_or(SpaceRef::Nothing, |space| SpaceRef::Own(space)))
            }
        }
    }

    /// Takes a space out that ends: nobody else has it any more.
    ///
    /// # Errors
    /// [`OutOfOrder`] if somebody has.
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

    /// Takes a space for this worker alone.
    ///
    /// # Errors
    /// [`OutOfOrder`] if somebody has it.
    pub fn claim(&mut self, n: u32) -> Result<(), OutOfOrder> {
        self.own.claim(n)
    }

    /// Lets others take it.
    ///
    /// # Errors
    /// [`OutOfOrder`] if this worker has not taken it.
    pub fn release(&mut self, n: u32) -> Result<(), OutOfOrder> {
        self.own.release(n)
    }

    /// Lets others in on a space that was the worker's own.
    ///
    /// # Errors
    /// [`OutOfOrder`] if it was not.
    pub fn share(&mut self, n: u32) -> Result<(), OutOfOrder> {
        if let Some(space) = self.own.get(n)?.take() {
            *self.published(n) = Some(Arc::new(SharedSpace::new(*space)));
        }
        self.own.release(n)?;
        self.attach(n);
        Ok(())
    }

    /// Comes to a shared space.
    pub fn attach(&mut self, n: u32) {
        let published = self.published(n).clone();
        self.shared[n as usize] = published.map_or(SharedState::Missing, SharedState::Here);
    }

    /// Is done with it.
    pub fn detach(&mut self, n: u32) {
        self.shared[n as usize] = SharedState::Not;
    }
}
