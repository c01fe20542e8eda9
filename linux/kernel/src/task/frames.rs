//! Frames of records: taken when a task, a process or a space is made, given back when it goes.
//!
//! A task's frame has its [`Task`], which the kernel lock guards, and behind it its [`Body`], which
//! its CPU uses. A space's frame has its [`SpaceRecord`], and behind it the place for the space as
//! soon as several tasks run in it; one that shows many objects has frames for their counts. A
//! process has a frame of its own, which stays until its parent has asked for its end.

use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use ptarmigan::addr::{FRAME_SIZE, Pfn};
use ptarmigan::cpu::NodeId;
use ptarmigan::frames::{AllocFlags, Dirty, End, Frame, Request, ZoneClass};
use ptarmigan::machine::Machine as _;
use ptarmigan::space::SharedSpace;
use ptarmigan::window::{OpenWindow, WindowGuard};

use super::records::{Place, Records};
use super::{Body, Process, SpaceRecord, Task};
use crate::arch::Arch;
use crate::errno::Errno;
use crate::grown::Page;
use crate::{Kernel, State};

/// The frame of a task.
#[repr(C)]
struct TaskFrame<A: Arch> {
    task: Task,
    body: Body<A>,
}

/// A space that several tasks run in, behind its record.
pub type SpacePlace<A> = Option<SharedSpace<<A as Arch>::Format>>;

/// The frame of a space.
#[repr(C)]
struct SpaceFrame<A: Arch> {
    record: SpaceRecord,
    shared: SpacePlace<A>,
}

/// A frame that has just been taken for a `C`.
struct Taken<C> {
    at: NonNull<C>,
    frame: Pfn,
}

/// The contents of a frame that begins with a record `T`.
trait Contents<T> {
    /// Those of a record that has not been used.
    const NEW: Self;
}

impl<A: Arch> Contents<Task> for TaskFrame<A> {
    const NEW: Self = TaskFrame { task: Task::none(), body: Body::NONE };
}

impl Contents<Process> for Process {
    const NEW: Self = Process::none();
}

impl<A: Arch> Contents<SpaceRecord> for SpaceFrame<A> {
    const NEW: Self = SpaceFrame { record: SpaceRecord::none(), shared: None };
}

impl<A: Arch> Kernel<A> {
    /// Takes a slot for a new task, and a number; with `is_process` the slot is that of a process,
    /// too. The rest of the records is to be set by the caller.
    ///
    /// # Errors
    ///
    /// [`Errno::EAGAIN`] if there are too many tasks, [`Errno::ENOMEM`].
    pub(crate) fn claim(&'static self, state: &mut State, is_process: bool) -> Result<(usize, i32), Errno> {
        let tasks = &mut state.tasks;
        let slot = tasks.taken.claim().ok_or(Errno::EAGAIN)?;
        let made = self.provide::<_, TaskFrame<A>, _>(&mut tasks.all, slot);
        let place = made.inspect_err(|_| tasks.taken.release(slot))?;
        if is_process && let Err(e) = self.provide::<_, Process, _>(&mut tasks.processes, slot) {
            self.remove(&mut tasks.all, slot);
            tasks.taken.release(slot);
            return Err(e);
        }
        let frame = place.at().cast::<TaskFrame<A>>().as_ptr();
        // SAFETY: 1. The place is in a frame that `provide` has made such contents in.
        self.bodies.set(slot, unsafe { &raw mut (*frame).body });
        Ok((slot, tasks.give_number(slot)))
    }

    /// Gives a slot back, whose task is gone, or has not begun.
    pub(crate) fn give_back(&'static self, state: &mut State, slot: usize) {
        let tasks = &mut state.tasks;
        tasks.forget_number(slot);
        tasks.get_mut(slot).doing = super::Doing::Nothing;
        self.remove(&mut tasks.all, slot);
        self.remove(&mut tasks.processes, slot);
        tasks.taken.release(slot);
    }

    /// Takes a record for a new space, which the caller has to set.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOMEM`].
    pub(crate) fn claim_space(&'static self, state: &mut State) -> Result<usize, Errno> {
        let tasks = &mut state.tasks;
        let number = tasks.taken_spaces.claim().ok_or(Errno::ENOMEM)?;
        let made = self.provide::<_, SpaceFrame<A>, _>(&mut tasks.spaces, number);
        let place = made.inspect_err(|_| tasks.taken_spaces.release(number))?;
        let frame = place.at().cast::<SpaceFrame<A>>().as_ptr();
        // SAFETY: 1. The place is in a frame that `provide` has made such contents in.
        self.spaces.set(number, unsafe { &raw mut (*frame).shared });
        Ok(number)
    }

    /// Gives the record of a space back that no task runs in.
    pub(crate) fn give_back_space(&'static self, state: &mut State, number: usize) {
        while let Some(page) = state.tasks.space_mut(number).shown.take_page() {
            self.give_frame(page.frame);
        }
        self.remove(&mut state.tasks.spaces, number);
        state.tasks.taken_spaces.release(number);
    }

    /// Gives all records back: for the kernel's end.
    pub(super) fn give_back_all(&'static self, state: &mut State) {
        self.give_all(&mut state.tasks.all);
        self.give_all(&mut state.tasks.processes);
        self.give_all(&mut state.tasks.spaces);
    }

    fn give_all<T, const N: usize>(&'static self, records: &mut Records<T, N>) {
        while let Some(place) = records.remove_any() {
            self.give_frame(place.frame);
        }
    }

    /// Gives `number` a record in a frame with contents `C`: one that was kept, with whatever the
    /// record was before, or a new one.
    #[inline]
    fn provide<T, C: Contents<T>, const N: usize>(
        &'static self,
        records: &mut Records<T, N>,
        number: usize,
    ) -> Result<Place<T>, Errno> {
        match records.reuse(number) {
            Some(place) => Ok(place),
            None => self.provide_new::<T, C, N>(records, number),
        }
    }

    #[cold]
    #[inline(never)]
    fn provide_new<T, C: Contents<T>, const N: usize>(
        &'static self,
        records: &mut Records<T, N>,
        number: usize,
    ) -> Result<Place<T>, Errno> {
        let frame = self.take_frame::<C>()?;
        // SAFETY: 1. The frame is the caller's alone, and has room for the contents.
        unsafe { frame.at.write(C::NEW) };
        // SAFETY: 1. The contents begin with the record (`repr(C)`), and stay until the frame is
        // given back, as it is only after the place has been removed. 2. No other code has the
        // frame; bodies and spaces are behind the record.
        let place = unsafe { Place::new(frame.at.cast::<T>(), frame.frame) };
        records.set(number, place);
        Ok(place)
    }

    /// Takes a page of zeroes for records of a table ([`Grown`](crate::grown::Grown)).
    ///
    /// # Errors
    ///
    /// [`Errno::ENOMEM`].
    #[cold]
    pub(crate) fn new_page(&'static self) -> Result<Place<Page>, Errno> {
        let Taken { at, frame } = self.take_frame::<Page>()?;
        // SAFETY: 1. The frame is the caller's alone, and has room for the numbers, of which 0 is
        // one.
        unsafe { at.write_bytes(0, 1) };
        // SAFETY: 1. The numbers have just been written, and stay until the frame is given back,
        // after `Grown::take_page`. 2. No other code has the frame.
        Ok(unsafe { Place::new(at, frame) })
    }

    /// Takes a frame of low memory for a `C`, which is to be written.
    fn take_frame<C>(&'static self) -> Result<Taken<C>, Errno> {
        const { assert!(size_of::<C>() <= FRAME_SIZE && align_of::<C>() <= FRAME_SIZE) };
        let machine = self.machine.get();
        let taken = machine.frames().take(Request {
            node: NodeId(self.cpus[A::cpu()].node.load(Ordering::Relaxed)),
            order: 0,
            zero: false,
            class: ZoneClass::Low,
            end: End::High,
            flags: AllocFlags::NORMAL,
        })?;
        let frame = taken.dirty().into_raw();
        // The window reaches low memory in place, with or without its guard (`Arch`, points 5 and
        // 6).
        let at = machine.window().open_low(frame.addr()).base();
        crate::memory::machine::stored::<A>(frame);
        Ok(Taken { at: NonNull::new(at.cast()).ok_or(Errno::ENOMEM)?, frame })
    }

    #[inline]
    fn remove<T, const N: usize>(&'static self, records: &mut Records<T, N>, number: usize) {
        if let Some(place) = records.remove(number) {
            self.give_frame(place.frame);
        }
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn give_frame(&'static self, frame: Pfn) {
        let frames = self.machine.get().frames();
        // SAFETY: 1. `take_frame` took it, and its place has been removed: no code uses it. 2.
        // `Dirty` makes no claim about the content.
        frames.give(unsafe { Frame::<Dirty>::from_raw(frames.machine(), frame, 0) });
    }
}
