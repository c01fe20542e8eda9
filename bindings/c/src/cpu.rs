//! A CPU, in the memory of a `pt_cpu`: the machine and where the caller is.
use crate::error::PtError;
use crate::machine::{Parts, PtMachine};
use crate::object::{self, Arg, ConstArg, LastArg, Object, Word};
use core::cell::Cell;
use ptarmigan::cpu::{CpuId, NodeId, Pinned};
use ptarmigan::machine::{Machine, On};

/// Words of 8 bytes in a `pt_cpu`.
pub const PT_CPU_WORDS: usize = 16;

/// A CPU of a machine. Zero before `pt_cpu_init`; not moved between that and `pt_cpu_exit`.
///
/// It stands for being on the CPU: code that hands it to a function runs on that CPU and is not
/// preempted until the function returns.
#[repr(C, align(64))]
pub struct PtCpu {
    /// The library's.
    pub opaque: [u64; PT_CPU_WORDS],
}

/// The content of a `pt_cpu`.
#[repr(C)]
pub struct Cpu {
    word: Word,
    on: On<'static, Parts>,
    /// Tables that may still come back until the content of one is looked at.
    until_verified: Cell<u32>,
    /// Why the last call on this CPU that returns a pointer returned NULL.
    error: Cell<i32>,
    /// Gathers that have begun and not finished.
    gathers: Cell<u32>,
    /// The pin that `on` refers to.
    pin: Pinned<'static>,
}

// SAFETY: 1. `repr(C)`, with the word first. 2. `object::finish` compares. 3. odd, and no other
// kind has it.
unsafe impl Object for Cpu {
    type Storage = PtCpu;
    const KIND: usize = 0x6370_7533;
}

impl Cpu {
    /// Finds the CPU, on which the caller is.
    ///
    /// # Errors
    ///
    /// [`PtError::Pointer`] and [`PtError::Object`].
    #[inline]
    pub fn find<'a>(cpu: &Arg<'a, PtCpu>) -> Result<&'a Cpu, PtError> {
        cpu.find()
    }

    /// Makes CPU `number` of node `node`.
    ///
    /// # Errors
    ///
    /// [`PtError::Argument`] if there is no such CPU or node; [`PtError::InUse`] if the CPU has an
    /// object.
    pub fn make(
        storage: Arg<'_, PtCpu>,
        machine: ConstArg<'_, PtMachine>,
        number: u32,
        node: u32,
    ) -> Result<(), PtError> {
        let cpu = storage.vacant::<Cpu>()?;
        // SAFETY: 1. the machine refuses to end before the CPU, and does not end meanwhile.
        let parts: &'static Parts = unsafe { machine.lasting() }.find()?;
        if number >= parts.cpu_count() || node >= u32::from(parts.frames().nodes()) {
            return Err(PtError::Argument);
        }
        let id = CpuId(number as u16);
        if parts.cpus().has(id) {
            return Err(PtError::InUse);
        }
        // SAFETY: the storage is this call's alone, has room (`object::finish` compares) and stays
        // (invariant of `Arg`, 1.); the pin is written before the reference to it. Of `assume`: 1.
        // code that names the object runs on that CPU alone (contract of `pt_cpu_init`). 2. just
        // looked. Of `finish`: 1. all fields are written, and nothing fails after that.
        unsafe {
            let pin = &raw mut (*cpu).pin;
            pin.write(Pinned::assume(parts.id(), id, NodeId(node as u8)));
            let pin: &'static Pinned<'static> = &*pin;
            (&raw mut (*cpu).on).write(parts.on(pin)?);
            (&raw mut (*cpu).until_verified).write(Cell::new(parts.verify_every()));
            (&raw mut (*cpu).error).write(Cell::new(0));
            (&raw mut (*cpu).gathers).write(Cell::new(0));
            object::finish(cpu);
        }
        parts.cpus().set(id);
        Ok(())
    }

    /// Ends the CPU, which has given back its pages.
    pub fn end(&self, cpu: LastArg<'_, PtCpu>) {
        self.parts().cpus().clear(self.on.cpu());
        cpu.end::<Cpu>();
    }

    /// Returns the machine and this CPU.
    #[inline]
    pub fn on(&self) -> On<'static, Parts> {
        self.on
    }

    #[inline]
    pub fn parts(&self) -> &'static Parts {
        self.on.machine()
    }

    /// Notes why a pointer is NULL.
    #[cold]
    pub fn refuse<T>(&self, why: PtError) -> *mut T {
        self.error.set(why.code());
        core::ptr::null_mut()
    }

    /// Returns why the last pointer was NULL.
    pub fn error(&self) -> i32 {
        self.error.get()
    }

    /// Counts gathers.
    pub fn count_gathers(&self, change: i32) {
        self.gathers.set(self.gathers.get().wrapping_add_signed(change));
    }

    pub fn has_gathers(&self) -> bool {
        self.gathers.get() != 0
    }

    /// Counts a table that comes back, unless the content of this one is to be looked at: then it
    /// is not counted, and [`verifies`](Self::verifies) counts it.
    #[inline]
    pub fn skips(&self) -> bool {
        let left = self.until_verified.get();
        if left > 1 {
            self.until_verified.set(left - 1);
        }
        left > 1
    }

    /// Counts a table that comes back; whether the content of this one is to be looked at.
    pub fn verifies(&self) -> bool {
        if self.skips() {
            return false;
        }
        let every = self.parts().verify_every();
        // 0: never.
        self.until_verified.set(if every == 0 { u32::MAX } else { every });
        every != 0
    }
}
