//! Address spaces: a table of those that tasks run in, and the calls into the library that change
//! them.

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
pub struct Refused;

/// A place in the table.
#[derive(Clone, Copy)]
struct Slot {
    users: usize,
    id: u64,
}

/// The data that the lock guards.
struct Slots {
    all: [Slot; SPACES],
    /// The space that each CPU has loaded: its slot and its name. The name tells whether the slot
    /// still has that space.
    current: [Option<(usize, u64)>; CPUS],
}

/// The spaces that tasks run in.
pub struct Spaces<P: Port> {
    slots: Lock<Slots>,
    /// The space of each slot, while it has users: written by the one that fills the slot, before
    /// it has users, and by the one that empties it, after its last user; shared references in
    /// between.
    places: [Raw<MaybeUninit<SharedSpace<P::Format>>>; SPACES],
}

/// A user of a space. It has to be given back with [`SpaceRef::close`].
#[must_use = "a space that is not closed never ends"]
pub struct SpaceRef<P: Port> {
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

fn range(start: u64, len: u64) -> Result<VirtRange, Refused> {
    Ok(VirtRange { start, end: start.checked_add(len).ok_or(Refused)? })
}

fn end<P: Port>(space: SharedSpace<P::Format>) {
    must(P::change(|on| space.end(on).map_err(|refused| refused.error)));
}

impl<P: Port> Spaces<P> {
    /// Makes an empty table.
    pub const fn new() -> Self {
        let slots = Slots { all: [Slot { users: 0, id: 0 }; SPACES], current: [None; CPUS] };
        Spaces { slots: Lock::new(slots), places: [const { Raw::new(MaybeUninit::uninit()) }; SPACES] }
    }

    fn lock(&self) -> Guard<'_, Slots, P::Masked> {
        self.slots.lock(P::mask(), || ())
    }

    fn insert(&'static self, space: Space<P::Format>) -> Result<SpaceRef<P>, Refused> {
        let shared = SharedSpace::new(space);
        let id = shared.id().number();
        let mut slots = self.lock();
        let Some(slot) = slots.all.iter().position(|slot| slot.users == 0) else {
            drop(slots);
            end::<P>(shared);
            return Err(Refused);
        };
        // SAFETY: the slot has no users, and the lock is held.
        unsafe { (*self.places[slot % SPACES].get()).write(shared) };
        slots.all[slot % SPACES] = Slot { users: 1, id };
        Ok(SpaceRef { spaces: self, slot, id })
    }

    /// Makes a space with the user program, of `len` bytes, at `at`, and `stack` bytes of stack
    /// below `stack_end`.
    ///
    /// # Errors
    ///
    /// [`Refused`]
    pub fn program(
        &'static self,
        (at, len): (u64, u64),
        (stack_end, stack): (u64, u64),
    ) -> Result<SpaceRef<P>, Refused> {
        let space = self.insert(P::here(Space::new).map_err(|_| Refused)?)?;
        let code = AreaFlags::READ.with(AreaFlags::EXEC).with(AreaFlags::BACKED);
        let data = AreaFlags::READ.with(AreaFlags::WRITE);
        let mapped = space
            .map(at, len, code, Object { id: OBJECT, offset: 0 })
            .and_then(|()| space.map(stack_end - stack, stack, data, Object::default()));
        match mapped {
            Ok(()) => Ok(space),
            Err(Refused) => {
                space.close();
                Err(Refused)
            }
        }
    }

    /// Runs `f` on a space that a CPU has loaded, unless it has ended meanwhile.
    fn with(&self, slots: &Slots, loaded: Option<(usize, u64)>, f: impl FnOnce(&SharedSpace<P::Format>)) {
        if let Some((slot, id)) = loaded
            && let entry = slots.all[slot % SPACES]
            && entry.users > 0
            && entry.id == id
        {
            // SAFETY: the slot has users, and the lock keeps the last of them from going.
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

impl<P: Port> SpaceRef<P> {
    fn space(&self) -> &SharedSpace<P::Format> {
        // SAFETY: this user keeps the slot from being emptied.
        unsafe { (*self.spaces.places[self.slot % SPACES].get()).assume_init_ref() }
    }

    /// Has the space to itself for a call that changes its structure.
    fn edit<R, E>(
        &self,
        call: impl FnOnce(&mut SpaceMut<'_, P::Format, P::Machine>) -> Result<R, E>,
    ) -> Result<R, Refused> {
        P::change(|on| {
            let mut exclusive = self.space().lock(on).map_err(|_| Refused)?;
            call(&mut exclusive.edit()).map_err(|_| Refused)
        })
    }

    fn map(&self, start: u64, len: u64, flags: AreaFlags, object: Object) -> Result<(), Refused> {
        let range = range(start, len)?;
        self.edit(|space| space.mmap(range, flags, object))
    }

    /// Maps anonymous memory.
    ///
    /// # Errors
    ///
    /// [`Refused`]
    pub fn mmap(&self, start: u64, len: u64, bits: u64) -> Result<(), Refused> {
        self.map(start, len, permissions(bits), Object::default())
    }

    /// Unmaps.
    ///
    /// # Errors
    ///
    /// [`Refused`]
    pub fn munmap(&self, start: u64, len: u64) -> Result<(), Refused> {
        let range = range(start, len)?;
        self.edit(|space| space.munmap(range))
    }

    /// Changes permissions.
    ///
    /// # Errors
    ///
    /// [`Refused`]
    pub fn mprotect(&self, start: u64, len: u64, bits: u64) -> Result<(), Refused> {
        let range = range(start, len)?;
        self.edit(|space| space.mprotect(range, permissions(bits)))
    }

    /// Copies the space.
    ///
    /// # Errors
    ///
    /// [`Refused`]
    pub fn fork(&self) -> Result<SpaceRef<P>, Refused> {
        self.edit(|space| space.fork()).and_then(|copy| self.spaces.insert(copy))
    }

    /// Serves a page fault.
    ///
    /// # Errors
    ///
    /// [`Refused`]: the task has no permission for the access.
    pub fn fault(&self, at: u64, access: Access, protected: bool) -> Result<(), Refused> {
        let va = VirtAddr(at);
        P::change(|on| {
            if P::refills(self.space(), on, va, access, protected) {
                return Ok(());
            }
            match self.space().fault(on, va, access) {
                Ok(_) => Ok(()),
                Err(FaultError::NoFrame(e)) => fail(format_args!("a fault found no memory: {e:?}")),
                Err(_) => Err(Refused),
            }
        })
    }

    /// Adds a user.
    pub fn share(&self) -> SpaceRef<P> {
        self.spaces.lock().all[self.slot % SPACES].users += 1;
        SpaceRef { ..*self }
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
        // SAFETY: the last user is this one, and the lock is held: nobody else reads or fills the
        // slot.
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
