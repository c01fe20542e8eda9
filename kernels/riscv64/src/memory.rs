//! Address spaces: a table of those that tasks run in, and the calls into the library that change
//! them.

use core::cell::{Cell, UnsafeCell};
use core::mem::MaybeUninit;

use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::format::Sv39;
use ptarmigan::machine::On;
use ptarmigan::space::{Access, AreaFlags, FaultError, Object, SharedSpace, Space, SpaceMut};
use ptarmigan_kernel_base::program::OBJECT;
use ptarmigan_kernel_base::user::permissions;
use ptarmigan_kernel_mailbox::Operation;

use ptarmigan_kernel_base::fail;

use crate::irq::{self, HARTS};
use crate::lock::Lock;
use crate::machine::{Machine, on, pin};
use crate::{mmu, program};

/// Spaces at a time.
const SPACES: usize = 32;

/// A call could not be carried out.
#[derive(Clone, Copy, Debug)]
pub struct Refused;

/// A place in the table.
struct Slot {
    users: usize,
    id: u64,
}

/// A space, while its slot has users.
struct Place(UnsafeCell<MaybeUninit<SharedSpace<Sv39>>>);

// SAFETY: written by the one that fills the slot, before it has users, and by the one that empties
// it, after its last user; shared references in between. A `SharedSpace` is `Sync`.
unsafe impl Sync for Place {}

static SLOTS: Lock<[Slot; SPACES]> = Lock::new([const { Slot { users: 0, id: 0 } }; SPACES]);
static PLACES: [Place; SPACES] = [const { Place(UnsafeCell::new(MaybeUninit::uninit())) }; SPACES];

/// The space that each hart has loaded: its slot and its name. The name tells whether the slot
/// still has that space.
struct Current([Cell<Option<(usize, u64)>>; HARTS]);

// SAFETY: each CPU uses its own cell alone, with interrupts masked or from code that handlers do
// not call.
unsafe impl Sync for Current {}

static CURRENT: Current = Current([const { Cell::new(None) }; HARTS]);

fn current() -> &'static Cell<Option<(usize, u64)>> {
    // `cpu` is below the number of harts.
    &CURRENT.0[irq::cpu() % HARTS]
}

/// A user of a space. It has to be given back with [`SpaceRef::close`].
#[must_use = "a space that is not closed never ends"]
pub struct SpaceRef {
    slot: usize,
    id: u64,
}

/// Runs `f` with the machine and where on it this is.
fn here<R>(f: impl FnOnce(On<'_, Machine>) -> R) -> R {
    let pin = pin();
    f(on(&pin))
}

/// As [`here`], for calls that change tables: a recorder learns when they begin and end.
fn change<R>(f: impl FnOnce(On<'_, Machine>) -> R) -> R {
    let _operation = Operation::begin(irq::cpu());
    here(f)
}

/// Ends a space.
fn end(space: SharedSpace<Sv39>) {
    must(change(|on| space.end(on).map_err(|refused| refused.error)));
}

/// Puts a space into the table.
fn insert(space: Space<Sv39>) -> Result<SpaceRef, Refused> {
    let shared = SharedSpace::new(space);
    let id = shared.id().number();
    let mut slots = SLOTS.lock();
    let free = slots.iter_mut().zip(&PLACES).enumerate().find(|(_, (slot, _))| slot.users == 0);
    let Some((slot, (entry, place))) = free else {
        drop(slots);
        end(shared);
        return Err(Refused);
    };
    // SAFETY: the slot has no users, and the lock is held.
    unsafe { (*place.0.get()).write(shared) };
    *entry = Slot { users: 1, id };
    Ok(SpaceRef { slot, id })
}

/// How a fault's cause is told to the library.
fn access(cause: Cause) -> Access {
    match cause {
        Cause::Write => Access::Write,
        Cause::Read => Access::Read,
        Cause::Execute => Access::Exec,
    }
}

/// The access that caused a page fault.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A load.
    Read,
    /// A store, or an atomic instruction.
    Write,
    /// An instruction fetch.
    Execute,
}

fn range(start: u64, len: u64) -> Result<VirtRange, Refused> {
    let end = start.checked_add(len).ok_or(Refused)?;
    Ok(VirtRange { start, end })
}

impl SpaceRef {
    fn space(&self) -> &SharedSpace<Sv39> {
        // SAFETY: this user keeps the slot from being emptied. `slot` is one of the table's.
        unsafe { (*PLACES[self.slot % SPACES].0.get()).assume_init_ref() }
    }

    /// A space with the user program at `at` and `stack` bytes of stack below `stack_end`.
    pub fn program(at: u64, stack_end: u64, stack: u64) -> Result<SpaceRef, Refused> {
        let space = insert(here(Space::new).map_err(|_| Refused)?)?;
        let code = AreaFlags::READ.with(AreaFlags::EXEC).with(AreaFlags::BACKED);
        let object = Object { id: OBJECT, offset: 0 };
        let data = AreaFlags::READ.with(AreaFlags::WRITE);
        let mut result = space.map(range(at, program::LEN)?, code, object);
        if result.is_ok() {
            result = space.map(range(stack_end - stack, stack)?, data, Object::default());
        }
        match result {
            Ok(()) => Ok(space),
            Err(Refused) => {
                space.close();
                Err(Refused)
            }
        }
    }

    /// Has the space to itself for a call that changes its structure.
    fn edit<R, E>(
        &self,
        call: impl FnOnce(&mut SpaceMut<'_, Sv39, Machine>) -> Result<R, E>,
    ) -> Result<R, Refused> {
        change(|on| {
            let mut exclusive = self.space().lock(on).map_err(|_| Refused)?;
            call(&mut exclusive.edit()).map_err(|_| Refused)
        })
    }

    fn map(&self, range: VirtRange, flags: AreaFlags, object: Object) -> Result<(), Refused> {
        self.edit(|space| space.mmap(range, flags, object))
    }

    /// Maps anonymous memory.
    pub fn mmap(&self, start: u64, len: u64, bits: u64) -> Result<(), Refused> {
        self.map(range(start, len)?, permissions(bits), Object::default())
    }

    /// Unmaps.
    pub fn munmap(&self, start: u64, len: u64) -> Result<(), Refused> {
        let range = range(start, len)?;
        self.edit(|space| space.munmap(range))
    }

    /// Changes permissions.
    pub fn mprotect(&self, start: u64, len: u64, bits: u64) -> Result<(), Refused> {
        let range = range(start, len)?;
        self.edit(|space| space.mprotect(range, permissions(bits)))
    }

    /// A copy.
    pub fn fork(&self) -> Result<SpaceRef, Refused> {
        self.edit(|space| space.fork()).and_then(insert)
    }

    /// Serves a page fault. Refused: the task has no permission for the access.
    pub fn fault(&self, at: u64, cause: Cause) -> Result<(), Refused> {
        match change(|on| self.space().fault(on, VirtAddr(at), access(cause))) {
            // Entries that this hart has cached as they were before are forgotten by
            // `Harts::entry_became_valid`.
            Ok(_) => Ok(()),
            Err(FaultError::NoFrame(e)) => fail(format_args!("a fault found no memory: {e:?}")),
            Err(_) => Err(Refused),
        }
    }

    /// One more user.
    pub fn share(&self) -> SpaceRef {
        let mut slots = SLOTS.lock();
        if let Some(slot) = slots.get_mut(self.slot) {
            slot.users += 1;
        }
        SpaceRef { slot: self.slot, id: self.id }
    }

    /// One user less; the last one ends the space.
    pub fn close(self) {
        let mut slots = SLOTS.lock();
        let Some(slot) = slots.get_mut(self.slot) else { return };
        slot.users -= 1;
        if slot.users > 0 {
            return;
        }
        slot.id = 0;
        // SAFETY: the last user is this one, and the lock is held: nobody else reads or fills the
        // slot.
        let space = unsafe { (*PLACES[self.slot % SPACES].0.get()).assume_init_read() };
        drop(slots);
        if current().get() == Some((self.slot, self.id)) {
            current().set(None);
        }
        // Harts that still have it loaded, this one too, are moved to the kernel's root.
        end(space);
    }

    /// This hart goes on in the space.
    pub fn switch_to(&self) {
        let _masked = irq::Masked::new();
        if current().get() != Some((self.slot, self.id)) {
            leave();
            current().set(Some((self.slot, self.id)));
        }
        must(here(|on| self.space().activate(on)));
    }
}

/// There is one machine.
fn must<E: core::fmt::Display>(result: Result<(), E>) {
    if let Err(e) = result {
        fail(format_args!("{e}"));
    }
}

/// Runs `f` on the space that this hart has loaded, unless it has ended meanwhile.
fn with_current(at: Option<(usize, u64)>, f: impl FnOnce(&SharedSpace<Sv39>)) {
    let Some((slot, id)) = at else { return };
    let slots = SLOTS.lock();
    if let Some(entry) = slots.get(slot)
        && entry.users > 0
        && entry.id == id
    {
        // SAFETY: the slot has users, and the lock keeps the last of them from going.
        f(unsafe { (*PLACES[slot % SPACES].0.get()).assume_init_ref() });
    }
}

/// This hart leaves the space that it has loaded.
pub fn leave() {
    let _masked = irq::Masked::new();
    with_current(current().take(), |space| must(here(|on| space.deactivate(on))));
    check_fenced("the kernel's");
}

/// Ends the run if this hart may still use cached entries of the tables that were loaded before.
pub fn check_fenced(whose: &str) {
    if !mmu::is_fenced() {
        fail(format_args!("no fence after {whose} root was loaded"));
    }
}

/// Has this hart rest: it has no task to run, and keeps its space loaded.
pub fn rest() {
    let _masked = irq::Masked::new();
    with_current(current().get(), |space| must(here(|on| space.rest(on))));
}
