//! System calls.
//!
//! A call returns a number or an error; or it has to wait ([`Stop::Block`]) and is made again from
//! the beginning when the event may have happened. So a call makes no change before it knows that
//! it need not wait.

mod attributes;
mod contents;
mod data;
mod directories;
mod epoll;
mod events;
mod files;
mod futex;
mod keyed;
mod layout;
mod links;
mod locks;
mod map;
mod misc;
mod poll;
mod process;
pub(crate) mod reach;
mod resident;
mod schedule;
mod signals;
mod stat;
mod table;
mod terminal;
mod time;
mod timers;

use ptarmigan::cpu::Pinned;
use ptarmigan::machine::On;
use ptarmigan_kernel_base::say;

use crate::arch::{Arch, Context};
use crate::counts::Count;
use crate::errno::Errno;
use crate::memory::{Machine, TaskSpace, user};
use crate::task::{After, Body, Ends, Wait};
use crate::{Kernel, State};

/// The reason why a call has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It failed.
    Error(Errno),
    /// It has to wait.
    Block(Wait),
    /// The task ends, or its process, with this status.
    End(Ends, i32),
    /// Others first; the call returns 0.
    GiveWay,
    /// The registers are as they should be already.
    Quiet,
}

impl From<Errno> for Stop {
    fn from(e: Errno) -> Self {
        Stop::Error(e)
    }
}

/// The tag of areas that are locked (`mlock`).
pub const LOCKED: u16 = 2;
/// The tag of areas that show a segment (`shmat`).
const SEGMENT: u16 = 4;

/// Numbers of calls that are not there and are named on the console at the most: programs are not
/// to fill it.
const MOST_NAMED: usize = 24;

/// Numbers of calls that are not there and were named on the console already.
pub struct Named([u64; MOST_NAMED]);

impl Named {
    /// Makes an empty set.
    pub const fn new() -> Self {
        Named([0; MOST_NAMED])
    }

    /// Adds a number, which is not 0: that call is there. Whether it is to be named.
    fn add(&mut self, number: u64) -> bool {
        let place = self.0.iter_mut().find(|known| [0, number].contains(known));
        place.is_some_and(|place| core::mem::replace(place, number) == 0)
    }
}

/// A system call that is being made.
pub struct Sys<'a, A: Arch> {
    /// The kernel.
    pub kernel: &'static Kernel<A>,
    /// The data of the kernel lock, which is held.
    pub state: &'a mut State,
    /// The caller's registers and space.
    pub body: &'a mut Body<A>,
    /// The caller's slot.
    pub me: usize,
    /// Where the caller runs.
    pub pin: &'a Pinned<'a>,
}

impl<'a, A: Arch> Sys<'a, A> {
    /// Returns the machine, seen from the caller's CPU.
    pub fn on(&self) -> On<'a, Machine<A>> {
        self.kernel.on(self.pin)
    }

    /// Returns the caller's space.
    pub fn space(&mut self) -> &mut TaskSpace<A> {
        &mut self.body.space
    }

    /// Reads bytes of the caller.
    ///
    /// # Errors
    ///
    /// [`Errno::EFAULT`], [`Errno::ENOMEM`].
    pub fn read_bytes(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        let on = self.on();
        self.space().read(on, at, bytes)
    }

    /// Writes bytes of the caller.
    ///
    /// # Errors
    ///
    /// [`Errno::EFAULT`], [`Errno::ENOMEM`].
    pub fn write_bytes(&mut self, at: u64, bytes: &[u8]) -> Result<(), Errno> {
        let on = self.on();
        self.space().write(on, at, bytes)
    }

    /// Writes the answer of a call that returns 0.
    ///
    /// # Errors
    ///
    /// [`Errno::EFAULT`], [`Errno::ENOMEM`].
    pub fn answer(&mut self, at: u64, bytes: &[u8]) -> Result<u64, Errno> {
        self.write_bytes(at, bytes).map(|()| 0)
    }

    /// Reads numbers of `size` bytes each, 8 at most.
    ///
    /// # Errors
    ///
    /// [`Errno::EFAULT`], [`Errno::ENOMEM`].
    pub fn read_numbers<const N: usize>(&mut self, at: u64, size: usize) -> Result<[u64; N], Errno> {
        let (mut bytes, mut numbers) = ([[0; 8]; N], [0; N]);
        let bytes = &mut bytes.as_flattened_mut()[..N * size];
        self.read_bytes(at, bytes)?;
        for (number, bytes) in numbers.iter_mut().zip(bytes.chunks_exact(size)) {
            *number = user::number(bytes);
        }
        Ok(numbers)
    }

    /// Reads a number of four bytes.
    ///
    /// # Errors
    ///
    /// [`Errno::EFAULT`], [`Errno::ENOMEM`].
    pub fn read_u32(&mut self, at: u64) -> Result<u32, Errno> {
        self.read_numbers(at, 4).map(|[number]| number as u32)
    }

    /// Reads a word of the program's size.
    ///
    /// # Errors
    ///
    /// [`Errno::EFAULT`], [`Errno::ENOMEM`].
    pub fn read_word(&mut self, at: u64) -> Result<u64, Errno> {
        self.read_numbers(at, A::ABI.word()).map(|[word]| word)
    }

    /// Reads a text that ends with a zero; returns its length.
    ///
    /// # Errors
    ///
    /// [`Errno::EFAULT`], [`Errno::ENOMEM`], [`Errno::ENAMETOOLONG`].
    pub fn read_text(&mut self, at: u64, text: &mut [u8]) -> Result<usize, Errno> {
        let on = self.on();
        self.space().text(on, at, text)
    }

    /// Returns the caller's task.
    pub fn task(&mut self) -> &mut crate::task::Task {
        self.state.tasks.get_mut(self.me)
    }

    /// Returns the caller's process.
    pub fn process(&mut self) -> &mut crate::task::Process {
        self.state.tasks.process_of_mut(self.me)
    }

    /// Returns the slot of the first task of the caller's process, which names it.
    pub fn process_slot(&self) -> usize {
        self.state.tasks.get(self.me).process
    }

    /// Returns the record of the caller's space.
    pub fn record(&mut self) -> &mut crate::task::SpaceRecord {
        let number = self.state.tasks.space_of(self.me);
        self.state.tasks.space_mut(number)
    }

    /// Names a call that is not there, once.
    #[cold]
    fn unknown(&mut self, number: u64) -> Stop {
        if self.state.named.add(number) {
            say!("kernel: system call {number} is not there");
        }
        Errno::ENOSYS.into()
    }

    /// Returns the error of calls that make sockets, which are named once.
    #[cold]
    fn no_sockets(&mut self) -> Errno {
        let number = self.body.context.number();
        let _ = self.unknown(number);
        Errno::EAFNOSUPPORT
    }

    /// Returns the error of calls about sockets.
    #[cold]
    fn no_socket(&mut self, descriptor: u64) -> Errno {
        self.file(descriptor).err().unwrap_or(Errno::ENOTSOCK)
    }

    /// Says when the wait of this call ends, `timeout` nanoseconds after it was first made; whether
    /// it has ended.
    pub fn deadline(&mut self, timeout: u64) -> bool {
        let now = A::now();
        let task = self.task();
        if task.deadline == 0 {
            task.deadline = now.saturating_add(timeout).max(1);
        }
        task.deadline <= now
    }
}

impl<A: Arch> Kernel<A> {
    /// Makes the call that a task's registers say.
    pub(crate) fn call(&'static self, slot: usize, body: &mut Body<A>, pin: &Pinned<'_>) -> After {
        self.count(Count::Calls);
        let mut state = self.lock();
        let number = body.context.number();
        let result = Sys { kernel: self, state: &mut state, body, me: slot, pin }.make(number);
        let mut gives_way = false;
        match result {
            Ok(value) => body.context.set_result(value),
            Err(Stop::Error(e)) => body.context.set_result((-i64::from(e.0)) as u64),
            Err(Stop::Quiet) => {}
            Err(Stop::GiveWay) => {
                body.context.set_result(0);
                gives_way = true;
            }
            Err(Stop::End(ends, status)) => {
                drop(state);
                return After::End(ends, status);
            }
            Err(Stop::Block(wait)) => {
                let mut heard = state.tasks.deliverable(slot) & wait.interrupted_by();
                if heard != 0 {
                    self.drop_ignored(&mut state, slot);
                    heard = state.tasks.deliverable(slot) & wait.interrupted_by();
                }
                if heard == 0 {
                    return After::Block(state, wait);
                }
                if self.makes_again(&state, slot, wait) {
                    body.context.repeat_call();
                } else {
                    body.context.set_result((-i64::from(Errno::EINTR.0)) as u64);
                }
            }
        }
        let task = state.tasks.get_mut(slot);
        (task.deadline, task.woken) = (0, false);
        let (process, is_suspended) = (task.process, task.signals.suspended.is_some());
        let (own, blocked) = (task.signals.pending.set(), task.signals.blocked);
        let deliverable = (own | state.tasks.process(process).pending.set()) & !blocked;
        if is_suspended || deliverable != 0 {
            match self.deliver(&mut state, slot, body, pin) {
                After::Resume => {}
                after => return after,
            }
        }
        let gives_way = gives_way
            && (state.tasks.has_ready() || self.is_stopping() || !state.tasks.get(slot).cpus.has(A::cpu()));
        if gives_way { After::GiveWay(state) } else { After::Resume }
    }

    /// Whether a call that a signal interrupted is made again after the handler.
    fn makes_again(&'static self, state: &State, slot: usize, wait: Wait) -> bool {
        let signal = state.tasks.deliverable(slot).trailing_zeros() as u8 + 1;
        let action = state.tasks.process_of(slot).actions.get(signal);
        let restarts = action.flags & crate::signal::SA_RESTART != 0;
        restarts && !matches!(wait, Wait::Time | Wait::Poll | Wait::Signal(_))
    }
}
