//! Address spaces: the calls into the library that change them.

use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::format::Ppc32;
use ptarmigan::machine::On;
use ptarmigan::space::{Access, AreaFlags, FaultError, Object, SharedSpace, Space, SpaceMut};
use ptarmigan::tlb::TlbRefusal;

use ptarmigan_kernel_base::fail;
use ptarmigan_kernel_base::program::OBJECT;
use ptarmigan_kernel_base::user::permissions;

use crate::machine::{Machine, on, pin};
use crate::without::{Part, leaves_out};
use crate::{abi, hashed, program};

/// A call could not be carried out.
#[derive(Clone, Copy, Debug)]
pub struct Refused;

/// A space. It has to be given back with [`SpaceRef::close`].
#[must_use = "a space that is not closed never ends"]
pub struct SpaceRef(SharedSpace<Ppc32>);

/// Runs `f` with the machine and where on it this is.
fn here<R>(f: impl FnOnce(On<'_, Machine>) -> R) -> R {
    let pin = pin();
    f(on(&pin))
}

fn range(start: u32, len: u32) -> VirtRange {
    let start = u64::from(start);
    VirtRange { start, end: start + u64::from(len) }
}

/// Ends the run if a call was refused: there is one machine, and no flush within a flush.
fn must(result: Result<(), TlbRefusal>) {
    if let Err(e) = result {
        fail(format_args!("{e}"));
    }
}

impl SpaceRef {
    /// A space with the user program and `stack` bytes of stack below `stack_end`.
    pub fn program(stack_end: u32, stack: u32) -> Result<SpaceRef, Refused> {
        let space = SpaceRef(SharedSpace::new(here(Space::new).map_err(|_| Refused)?));
        let code = AreaFlags::READ.with(AreaFlags::EXEC).with(AreaFlags::BACKED);
        let object = Object { id: OBJECT, offset: 0 };
        let data = AreaFlags::READ.with(AreaFlags::WRITE);
        let mapped = space
            .map(range(abi::PROGRAM, program::LEN as u32), code, object)
            .and_then(|()| space.map(range(stack_end - stack, stack), data, Object::default()));
        match mapped {
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
        call: impl FnOnce(&mut SpaceMut<'_, Ppc32, Machine>) -> Result<R, E>,
    ) -> Result<R, Refused> {
        here(|on| {
            let mut exclusive = self.0.lock(on).map_err(|_| Refused)?;
            call(&mut exclusive.edit()).map_err(|_| Refused)
        })
    }

    fn map(&self, range: VirtRange, flags: AreaFlags, object: Object) -> Result<(), Refused> {
        self.edit(|space| space.mmap(range, flags, object))
    }

    /// Maps anonymous memory.
    pub fn mmap(&self, start: u32, len: u32, bits: u32) -> Result<(), Refused> {
        self.map(range(start, len), permissions(bits.into()), Object::default())
    }

    /// Unmaps.
    pub fn munmap(&self, start: u32, len: u32) -> Result<(), Refused> {
        self.edit(|space| space.munmap(range(start, len)))
    }

    /// Changes permissions.
    pub fn mprotect(&self, start: u32, len: u32, bits: u32) -> Result<(), Refused> {
        self.edit(|space| space.mprotect(range(start, len), permissions(bits.into())))
    }

    /// A copy.
    pub fn fork(&self) -> Result<SpaceRef, Refused> {
        self.edit(|space| space.fork()).map(|space| SpaceRef(SharedSpace::new(space)))
    }

    /// Puts a page that was missed into the hash table, as its entry says; after a fault, if the
    /// entry does not allow the access. Refused: the task has no permission for the access.
    pub fn miss(&self, at: u32, access: Access, protected: bool) -> Result<(), Refused> {
        let va = VirtAddr(at.into());
        here(|on| {
            if self.refill(on, va, access, protected) {
                return Ok(());
            }
            match self.0.fault(on, va, access) {
                // The page is not hashed yet, so the access misses once more.
                Ok(_) => Ok(()),
                Err(FaultError::NoFrame(e)) => fail(format_args!("a fault found no memory: {e:?}")),
                Err(_) => Err(Refused),
            }
        })
    }

    fn refill(&self, on: On<'_, Machine>, va: VirtAddr, access: Access, protected: bool) -> bool {
        if leaves_out(Part::Bit) {
            // As a handler does it that only reads the software's entry.
            return match self.0.query(on, va) {
                Ok(Some((frame, attr))) => hashed::insert_unmarked(va, protected, frame, attr, access),
                _ => false,
            };
        }
        self.0
            .refill(on, va, access, |entry| hashed::refill_user(va.0 as u32, protected, entry))
            .unwrap_or_else(|e| fail(format_args!("{e}")))
    }

    /// The CPU goes on in the space.
    pub fn enter(&self) {
        must(here(|on| self.0.activate(on)));
    }

    /// The CPU leaves the space.
    pub fn leave(&self) {
        must(here(|on| self.0.deactivate(on)));
    }

    /// Ends the space.
    pub fn close(self) {
        must(here(|on| self.0.end(on).map_err(|refused| refused.error)));
    }
}
