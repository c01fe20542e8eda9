//! Tasks of the user's, and the loop of each hart that runs them.
//!
//! A task runs in user mode until it traps; its hart handles the trap on the one kernel stack that
//! it has, and then goes on with the task or picks another. So the kernel is never preempted. Tasks
//! are, by the timer.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ptarmigan_kernel_base::fail;
use ptarmigan_kernel_base::riscv::sbi;
use ptarmigan_kernel_base::user::failure;

use crate::irq::{self, HARTS};
use crate::lock::Lock;
use crate::memory::{self, Refused, SpaceRef};
use crate::trap::{self, Registers, Trap};
use crate::{abi, kernel_half, machine};

/// Tasks at a time.
const TASKS: usize = 32;
/// Ticks that a task runs before another has its turn.
const SLICE: u64 = sbi::TICKS_PER_MS;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Ready,
    Running,
    /// In `wait` for the end of a task.
    Waiting(usize),
    /// In `pause`.
    Paused,
    /// Ended, its code not asked for yet.
    Ended(u64),
}

#[derive(Clone, Copy)]
struct Task {
    state: State,
    parent: Option<usize>,
    posts: u32,
}

/// The part of a task that its hart alone uses.
struct Body {
    registers: Registers,
    space: Option<SpaceRef>,
}

struct Tasks {
    all: [Task; TASKS],
    /// Ready tasks, a ring.
    queue: [usize; TASKS],
    first: usize,
    queued: usize,
    alive: usize,
}

struct Bodies([UnsafeCell<Body>; TASKS]);

// SAFETY: a body is used by the one that makes the task, before it is ready; by the hart that runs
// it; and by the holder of the lock of `TABLE` while it waits.
unsafe impl Sync for Bodies {}

static TABLE: Lock<Tasks> = Lock::new(Tasks {
    all: [const { Task { state: State::Free, parent: None, posts: 0 } }; TASKS],
    queue: [0; TASKS],
    first: 0,
    queued: 0,
    alive: 0,
});

static BODIES: Bodies =
    Bodies([const { UnsafeCell::new(Body { registers: Registers::ZERO, space: None }) }; TASKS]);

/// CPUs that sleep until there is something to run.
static IDLE: [AtomicBool; HARTS] = [const { AtomicBool::new(false) }; HARTS];
/// CPUs that have gone to sleep for good.
static STOPPED: AtomicUsize = AtomicUsize::new(0);
static STOPPING: AtomicBool = AtomicBool::new(false);

impl Tasks {
    fn task(&mut self, number: usize) -> &mut Task {
        &mut self.all[number % TASKS]
    }

    fn enqueue(&mut self, number: usize) {
        self.task(number).state = State::Ready;
        let at = (self.first + self.queued) % TASKS;
        self.queue[at] = number;
        self.queued += 1;
    }

    fn dequeue(&mut self) -> Option<usize> {
        self.queued = self.queued.checked_sub(1)?;
        let number = self.queue[self.first % TASKS];
        self.first = (self.first + 1) % TASKS;
        self.task(number).state = State::Running;
        Some(number)
    }

    fn free_slot(&self) -> Option<usize> {
        self.all.iter().position(|task| task.state == State::Free)
    }
}

/// The body of a task.
///
/// # Safety
///
/// 1. The caller is the one that [`Bodies`] names, and has no other reference to it.
unsafe fn body(number: usize) -> &'static mut Body {
    // SAFETY: point 1 is passed on.
    unsafe { &mut *BODIES.0[number % TASKS].get() }
}

/// A ready task is there: wakes a CPU that sleeps.
fn wake() {
    for cpu in 0..machine::cpus() {
        if cpu != irq::cpu() && IDLE.get(cpu).is_some_and(|idle| idle.swap(false, Ordering::SeqCst)) {
            machine::interrupt(cpu);
            return;
        }
    }
}

/// A new task.
pub fn start(space: SpaceRef, registers: Registers, parent: Option<usize>) -> Result<usize, Refused> {
    let mut table = TABLE.lock();
    let Some(number) = table.free_slot() else {
        drop(table);
        space.close();
        return Err(Refused);
    };
    // SAFETY: 1. The slot is free, and the lock is held.
    unsafe { *body(number) = Body { registers, space: Some(space) } };
    *table.task(number) = Task { state: State::Ready, parent, posts: 0 };
    table.alive += 1;
    table.enqueue(number);
    drop(table);
    wake();
    Ok(number)
}

/// The next step of a task after a trap. [`run`] takes it when all borrows of the task have ended,
/// because others may use the task afterwards.
enum After {
    /// It goes on.
    Resume,
    /// Others first.
    GiveWay,
    /// It waits for the end of a task.
    Wait(u64),
    /// It waits for a `post`.
    Pause,
    /// It ends, with a code.
    End(u64),
}

/// Runs tasks until all have ended. Every CPU calls it; all but CPU 0 go on sleeping then until
/// there are some again, and return when [`stop`] is called.
pub fn run() {
    loop {
        let next = TABLE.lock().dequeue();
        let Some(number) = next else {
            let done = irq::cpu() == 0 && TABLE.lock().alive == 0;
            if done || STOPPING.load(Ordering::SeqCst) {
                memory::leave();
                return;
            }
            idle();
            continue;
        };
        sbi::set_timer(sbi::time() + SLICE);
        while run_once(number) {}
    }
}

/// Runs a task until its next trap and handles that; whether the task goes on.
fn run_once(number: usize) -> bool {
    let after = {
        // SAFETY: 1. The task runs on this hart, and the reference ends with the block.
        let task = unsafe { body(number) };
        if let Some(space) = &task.space {
            space.switch_to();
        }
        let trap = trap::enter(&mut task.registers);
        handle(number, task, trap)
    };
    match after {
        After::Resume => return true,
        After::GiveWay => TABLE.lock().enqueue(number),
        After::Wait(child) => return wait(number, child),
        After::Pause => return pause(number),
        After::End(code) => end(number, code),
    }
    false
}

/// Sleeps until there may be something to do.
fn idle() {
    let _masked = irq::Masked::new();
    memory::rest();
    let Some(flag) = IDLE.get(irq::cpu()) else { return };
    flag.store(true, Ordering::SeqCst);
    // Asked after the flag is set: a task that became ready before is seen here, one that comes
    // later wakes this CPU.
    let table = TABLE.lock();
    let ready = table.queued > 0 || (table.alive == 0 && irq::cpu() == 0);
    drop(table);
    if !ready && !STOPPING.load(Ordering::SeqCst) {
        sbi::set_timer(u64::MAX);
        irq::sleep();
    }
    flag.store(false, Ordering::SeqCst);
    if irq::take_software() {
        machine::answer();
    }
}

/// Has all other CPUs return from [`run`], look at the kernel's half while `check` changes it, give
/// up their caches, and sleep for good.
pub fn stop(check: impl FnOnce()) {
    STOPPING.store(true, Ordering::SeqCst);
    for cpu in 1..machine::cpus() {
        machine::interrupt(cpu);
    }
    check();
    while STOPPED.load(Ordering::SeqCst) + 1 < machine::cpus() {
        core::hint::spin_loop();
    }
}

/// Runs tasks on a CPU other than CPU 0 until [`stop`] is called, and sleeps for good then.
pub fn run_other() -> ! {
    run();
    kernel_half::look();
    machine::drain(false);
    STOPPED.fetch_add(1, Ordering::SeqCst);
    loop {
        irq::sleep();
    }
}

fn handle(number: usize, task: &mut Body, trap: Trap) -> After {
    match trap.cause() {
        trap::Cause::Call => {
            task.registers.skip_call();
            irq::enabled(|| call(number, task))
        }
        trap::Cause::PageFault(cause) => {
            let served = match &task.space {
                Some(space) => irq::enabled(|| space.fault(trap.value, cause)),
                None => Err(Refused),
            };
            if served.is_err() {
                return After::End(abi::KILLED);
            }
            After::Resume
        }
        trap::Cause::Software => {
            irq::take_software();
            machine::answer();
            After::Resume
        }
        trap::Cause::Timer => After::GiveWay,
        trap::Cause::Other => After::End(abi::KILLED),
    }
}

/// Carries out a call of the user's.
fn call(number: usize, task: &mut Body) -> After {
    let [a0, a1, a2] = task.registers.arguments();
    let Some(space) = &task.space else { return After::End(abi::KILLED) };
    let result = match task.registers.call() {
        abi::EXIT => return After::End(a0),
        abi::FORK => {
            // The child's copy of the registers says 0.
            task.registers.set_result(0);
            space.fork().and_then(|child| start(child, task.registers, Some(number))).map(name)
        }
        abi::SPAWN => start(space.share(), Registers::at(a0, a1, [a2, 0, 0]), Some(number)).map(name),
        abi::WAIT => return After::Wait(a0),
        abi::MMAP => space.mmap(a0, a1, a2).map(|()| 0),
        abi::MUNMAP => space.munmap(a0, a1).map(|()| 0),
        abi::MPROTECT => space.mprotect(a0, a1, a2).map(|()| 0),
        abi::POST => post(a0).map(|()| 0),
        abi::PAUSE => return After::Pause,
        abi::GIVE_WAY => return After::GiveWay,
        abi::CPU => Ok(irq::cpu() as u64),
        abi::FAILED => fail(format_args!("{}: {a1:#x}, not {a2:#x}", failure(a0))),
        _ => Err(Refused),
    };
    task.registers.set_result(result.unwrap_or(abi::ERROR));
    After::Resume
}

/// Returns the name of a task for users; it is not 0, because `fork` returns 0 in the child.
fn name(number: usize) -> u64 {
    number as u64 + 1
}

/// Returns the task of a name; if the name is nobody's, a number that no task has.
fn named(name: u64) -> usize {
    usize::try_from(name).map_or(TASKS, |name| name.wrapping_sub(1))
}

/// Sets the result of the call that a task is in.
///
/// # Safety
///
/// 1. The task must run on this hart without borrows of it; or it must wait, with `TABLE` locked.
unsafe fn set_result(number: usize, value: u64) {
    // SAFETY: point 1 is passed on.
    unsafe { body(number) }.registers.set_result(value);
}

/// `wait(child)`; whether the task goes on.
fn wait(number: usize, child: u64) -> bool {
    let child = named(child);
    let mut table = TABLE.lock();
    let found = table.all.get(child).filter(|found| found.parent == Some(number)).map(|found| found.state);
    let result = match found {
        None | Some(State::Free) => abi::ERROR,
        Some(State::Ended(code)) => {
            table.task(child).state = State::Free;
            code
        }
        Some(_) => {
            table.task(number).state = State::Waiting(child);
            return false;
        }
    };
    // SAFETY: 1. It runs here, and `run_once` has given its reference up.
    unsafe { set_result(number, result) };
    true
}

/// `pause()`; whether the task goes on.
fn pause(number: usize) -> bool {
    let mut table = TABLE.lock();
    // SAFETY: 1. It runs here, and `run_once` has given its reference up.
    unsafe { set_result(number, 0) };
    let own = table.task(number);
    if own.posts > 0 {
        own.posts -= 1;
        return true;
    }
    own.state = State::Paused;
    false
}

/// `post(task)`.
fn post(to: u64) -> Result<(), Refused> {
    let to = named(to);
    let mut table = TABLE.lock();
    let other = table.all.get_mut(to).ok_or(Refused)?;
    match other.state {
        State::Free | State::Ended(_) => return Err(Refused),
        State::Paused => table.enqueue(to),
        _ => other.posts += 1,
    }
    drop(table);
    wake();
    Ok(())
}

/// The task ends.
fn end(number: usize, code: u64) {
    // SAFETY: 1. It runs here, and `run_once` has given its reference up.
    let space = unsafe { body(number) }.space.take();
    if let Some(space) = space {
        irq::enabled(|| space.close());
    }
    let mut table = TABLE.lock();
    table.alive -= 1;
    // Nobody will ask for the codes of its children any more.
    for child in &mut table.all {
        if child.parent == Some(number) {
            child.parent = None;
            if matches!(child.state, State::Ended(_)) {
                child.state = State::Free;
            }
        }
    }
    let Some(parent) = table.task(number).parent else {
        table.task(number).state = State::Free;
        let last = table.alive == 0;
        drop(table);
        if code != 0 {
            fail(format_args!("a program ended with {code:#x}"));
        }
        if last {
            wake_first();
        }
        return;
    };
    if table.task(parent).state == State::Waiting(number) {
        table.task(number).state = State::Free;
        // SAFETY: 1. The parent waits, and the lock is held.
        unsafe { set_result(parent, code) };
        table.enqueue(parent);
        drop(table);
        wake();
    } else {
        table.task(number).state = State::Ended(code);
    }
}

/// CPU 0 waits for the end of the last task.
fn wake_first() {
    if irq::cpu() != 0 {
        machine::interrupt(0);
    }
}
