//! Address spaces: a table of those that tasks run in, and the calls into the library that change
//! them.
//!
//! ```text
//!  insert      slot without users ── space written ── users = 1 ──> SpaceHandle
//!  share       users + 1 ──────────── close: users - 1 ──> 0: space taken out ──> unlocked: ended
//!  current     CPU has (slot, id) loaded ── with: users > 0 and the same id? ──> the space
//! ```
//!
//! # Why
//!
//! A CPU keeps the space of its last task loaded after the task has ended, so the slot may be
//! empty, or another space's, when the CPU comes back to it. The name tells, because names are not
//! used again. A space is ended without the lock: its flush waits for other CPUs, and one that
//! waits for the lock with interrupts masked would not answer.

use core::fmt::Display;
use core::mem::MaybeUninit;

use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::space::{Access, AreaFlags, FaultError, Object, SharedSpace, Space, SpaceMut};

use super::{CPUS, Port};
use crate::board::fail;
use crate::lock::{Guard, Lock};
use crate::program::OBJECT;
use crate::raw::Raw;
use crate::user::permissions;

/// Spaces at a time.
const SPACES: usize = 32;

/// A call could not be carried out.
#[derive(Clone, Copy, Debug)]
pub struct CallRefused;

/// A place in the table.
#[derive(Clone, Copy)]
struct Slot {
    users: usize,
    id: u64,
}

/// The data that the lock guards.
struct SpaceSlots {
    all: [Slot; SPACES],
    /// The space that each CPU has loaded: its slot and its name. The name tells whether the slot
    /// still has that space.
    current: [Option<(usize, u64)>; CPUS],
}

/// The spaces that tasks run in.
pub struct Spaces<P: Port> {
    slots: Lock<SpaceSlots>,
    /// The space of each slot, while it has users: written by the one that fills the slot, before
    /// it has users, and by the one that empties it, after its last user; shared references in
    /// between.
    places: [Raw<MaybeUninit<SharedSpace<P::Format>>>; SPACES],
}

/// A user of a space. It has to be given back with [`SpaceHandle::close`].
#[must_use = "a space that is not closed never ends"]
pub struct SpaceHandle<P: Port> {
    spaces: &'static Spaces<P>,
    slot: usize,
    id: u64,
}

/// Ends the run if a call was refused: there is one machine, and no flush within a flush.
fn must<E: Display>(result: Result<(), E>) {
    if let Err(e) = result {
        fail(format_args!("{e}"));
    }
}

fn range(start: u64, len: u64) -> Result<VirtRange, CallRefused> {
    VirtRange::bytes(VirtAddr(start), len).ok_or(CallRefused)
}

fn end<P: Port>(space: SharedSpace<P::Format>) {
    must(P::change(|on| space.end(on).map_err(|refused| refused.error)));
}

impl<P: Port> Spaces<P> {
    /// Makes an empty table.
    pub const fn new() -> Self {
        let slots = SpaceSlots { all: [Slot { users: 0, id: 0 }; SPACES], current: [None; CPUS] };
        Spaces { slots: Lock::new(slots), places: [const { Raw::new(MaybeUninit::uninit()) }; SPACES] }
    }

    fn lock(&self) -> Guard<'_, SpaceSlots, P::Masked> {
        self.slots.lock(P::mask())
    }

    fn insert(&'static self, space: Space<P::Format>) -> Result<SpaceHandle<P>, CallRefused> {
        let shared = SharedSpace::new(space);
        let id = shared.id().number();
        let mut slots = self.lock();
        let Some(slot) = slots.all.iter().position(|slot| slot.users == 0) else {
            drop(slots);
            end::<P>(shared);
            return Err(CallRefused);
        };
        // SAFETY: 1. the slot has no users, and the lock is held: nobody else reaches the place.
        unsafe { (*self.places[slot % SPACES].get()).write(shared) };
        slots.all[slot % SPACES] = Slot { users: 1, id };
        Ok(SpaceHandle { spaces: self, slot, id })
    }

    /// Makes a space with the user program, of `len` bytes, at `at`, and `stack` bytes of stack
    /// below `stack_end`.
    ///
    /// # Errors
    ///
    /// [`CallRefused`]
    pub fn program(
        &'static self,
        (at, len): (u64, u64),
        (stack_end, stack): (u64, u64),
    ) -> Result<SpaceHandle<P>, CallRefused> {
        let space = self.insert(P::here(Space::new).map_err(|_| CallRefused)?)?;
        let code = AreaFlags::READ.with(AreaFlags::EXEC).with(AreaFlags::BACKED);
        let data = AreaFlags::READ.with(AreaFlags::WRITE);
        let mapped = space
            .map(at, len, code, Object { id: OBJECT, offset: 0 })
            .and_then(|()| space.map(stack_end - stack, stack, data, Object::default()));
        match mapped {
            Ok(()) => Ok(space),
            Err(CallRefused) => {
                space.close();
                Err(CallRefused)
            }
        }
    }

    /// Runs `f` on a space that a CPU has loaded, unless it has ended meanwhile.
    fn with(
        &self,
        slots: &SpaceSlots,
        loaded: Option<(usize, u64)>,
        f: impl FnOnce(&SharedSpace<P::Format>),
    ) {
        if let Some((slot, id)) = loaded
            && let entry = slots.all[slot % SPACES]
            && entry.users > 0
            && entry.id == id
        {
            // SAFETY: 1. the slot has users, and the lock keeps the last of them from going: the
            // place is filled, and nobody writes to it.
            f(unsafe { (*self.places[slot % SPACES].get()).assume_init_ref() });
        }
    }

    /// This CPU leaves the space that it has loaded.
    pub fn leave(&self) {
        let _masked = P::mask();
        let mut slots = self.lock();
        let loaded = slots.current[P::cpu() % CPUS].take();
        self.with(&slots, loaded, |space| must(P::here(|on| space.deactivate(on))));
        P::left();
    }

    /// Has this CPU rest: it has no task to run, and keeps its space loaded.
    pub fn rest(&self) {
        let slots = self.lock();
        let loaded = slots.current[P::cpu() % CPUS];
        self.with(&slots, loaded, |space| must(P::here(|on| space.rest(on))));
    }
}

impl<P: Port> SpaceHandle<P> {
    fn space(&self) -> &SharedSpace<P::Format> {
        // SAFETY: 1. this user keeps the slot from being emptied: the place is filled, and nobody
        // writes to it.
        unsafe { (*self.spaces.places[self.slot % SPACES].get()).assume_init_ref() }
    }

    /// Has the space to itself for a call that changes its structure.
    fn edit<R, E>(
        &self,
        call: impl FnOnce(&mut SpaceMut<'_, P::Format, P::Machine>) -> Result<R, E>,
    ) -> Result<R, CallRefused> {
        P::change(|on| {
            let mut exclusive = self.space().lock(on).map_err(|_| CallRefused)?;
            call(&mut exclusive.edit()).map_err(|_| CallRefused)
        })
    }

    fn map(&self, start: u64, len: u64, flags: AreaFlags, object: Object) -> Result<(), CallRefused> {
        let range = range(start, len)?;
        self.edit(|space| space.mmap(range, flags, object))
    }

    /// Maps anonymous memory.
    ///
    /// # Errors
    ///
    /// [`CallRefused`]
    pub fn mmap(&self, start: u64, len: u64, bits: u64) -> Result<(), CallRefused> {
        self.map(start, len, permissions(bits), Object::default())
    }

    /// Unmaps.
    ///
    /// # Errors
    ///
    /// [`CallRefused`]
    pub fn munmap(&self, start: u64, len: u64) -> Result<(), CallRefused> {
        let range = range(start, len)?;
        self.edit(|space| space.munmap(range))
    }

    /// Changes permissions.
    ///
    /// # Errors
    ///
    /// [`CallRefused`]
    pub fn mprotect(&self, start: u64, len: u64, bits: u64) -> Result<(), CallRefused> {
        let range = range(start, len)?;
        self.edit(|space| space.mprotect(range, permissions(bits)))
    }

    /// Copies the space.
    ///
    /// # Errors
    ///
    /// [`CallRefused`]
    pub fn fork(&self) -> Result<SpaceHandle<P>, CallRefused> {
        self.edit(|space| space.fork()).and_then(|copy| self.spaces.insert(copy))
    }

    /// Serves a page fault.
    ///
    /// # Errors
    ///
    /// [`CallRefused`]: the task has no permission for the access.
    pub fn fault(&self, at: u64, access: Access, protected: bool) -> Result<(), CallRefused> {
        let va = VirtAddr(at);
        P::change(|on| {
            if P::refills(self.space(), on, va, access, protected) {
                return Ok(());
            }
            match self.space().fault(on, va, access) {
                Ok(_) => Ok(()),
                Err(FaultError::NoFrame(e)) => fail(format_args!("a fault found no memory: {e:?}")),
                Err(_) => Err(CallRefused),
            }
        })
    }

    /// Adds a user.
    pub fn share(&self) -> SpaceHandle<P> {
        self.spaces.lock().all[self.slot % SPACES].users += 1;
        SpaceHandle { ..*self }
    }

    /// Takes a user away; the last one ends the space.
    pub fn close(self) {
        let mut slots = self.spaces.lock();
        let slot = &mut slots.all[self.slot % SPACES];
        slot.users -= 1;
        if slot.users > 0 {
            return;
        }
        slot.id = 0;
        // SAFETY: 1. the last user is this one, and the lock is held: nobody else reads or fills
        // the slot, which is filled.
        let space = unsafe { (*self.spaces.places[self.slot % SPACES].get()).assume_init_read() };
        let current = &mut slots.current[P::cpu() % CPUS];
        if *current == Some((self.slot, self.id)) {
            *current = None;
        }
        drop(slots);
        // CPUs that still have it loaded, this one too, are moved to the kernel's root.
        end::<P>(space);
    }

    /// Has this CPU go on in the space.
    pub fn switch_to(&self) {
        let _masked = P::mask();
        let this = Some((self.slot, self.id));
        if self.spaces.lock().current[P::cpu() % CPUS] != this {
            self.spaces.leave();
            self.spaces.lock().current[P::cpu() % CPUS] = this;
        }
        must(P::here(|on| self.space().activate(on)));
    }
}
