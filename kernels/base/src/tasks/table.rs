//! Tasks, and the loop of each CPU that runs them.
//!
//! ```text
//!  start ──> Ready ── dequeue ──> Running ── trap ──┬─> Resume
//!              ^                                    ├─> GiveWay: enqueue
//!              │ enqueue, wake                      ├─> Waiting, Paused: another task wakes it
//!              └────────────────────────────────────┴─> Ended: the parent asks for its code
//!  idle        flag = true ── looks at the queue ── sleep <── wake: flag.swap(false), interrupt
//! ```
//!
//! # Why
//!
//! A CPU sets its flag before it looks at the queue, and a task is queued before the flags are
//! looked at. Otherwise a task could become ready between the look and the sleep, and the machine
//! would stand still with work to do. The next step of a task is carried out after all borrows of
//! its body have ended, because another CPU may run the task as soon as it is ready.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::{CPUS, CallRefused, Port, Registers, SpaceHandle, Spaces, Trap};
use crate::board::{fail, fail_if};
use crate::lock::{Guard, Lock};
use crate::raw::Raw;
use crate::user as abi;

/// Tasks at a time.
const TASKS: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq)]
enum TaskStatus {
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
struct TaskRecord {
    state: TaskStatus,
    parent: Option<usize>,
    posts: u32,
}

/// The part of a task that its CPU alone uses.
struct TaskBody<P: Port> {
    registers: P::Registers,
    space: Option<SpaceHandle<P>>,
}

/// The data that the lock guards.
struct TaskTable {
    all: [TaskRecord; TASKS],
    /// Ready tasks, a ring.
    queue: [usize; TASKS],
    first: usize,
    queued: usize,
    alive: usize,
}

/// The tasks of an image.
pub struct Tasks<P: Port> {
    /// The spaces that they run in.
    pub spaces: Spaces<P>,
    table: Lock<TaskTable>,
    /// A body is used by the one that makes the task, before it is ready; by the CPU that runs it;
    /// and by the holder of the lock while it waits.
    bodies: [Raw<TaskBody<P>>; TASKS],
    /// CPUs that sleep until there is something to run.
    idle: [AtomicBool; CPUS],
    /// CPUs that have gone to sleep for good.
    stopped: AtomicUsize,
    stopping: AtomicBool,
}

impl TaskTable {
    fn task(&mut self, number: usize) -> &mut TaskRecord {
        &mut self.all[number % TASKS]
    }

    fn enqueue(&mut self, number: usize) {
        self.task(number).state = TaskStatus::Ready;
        let at = (self.first + self.queued) % TASKS;
        self.queue[at] = number;
        self.queued += 1;
    }

    fn dequeue(&mut self) -> Option<usize> {
        self.queued = self.queued.checked_sub(1)?;
        let number = self.queue[self.first % TASKS];
        self.first = (self.first + 1) % TASKS;
        self.task(number).state = TaskStatus::Running;
        Some(number)
    }
}

/// The next step of a task after a trap. [`Tasks::run`] takes it when all borrows of the task have
/// ended, because others may use the task afterwards.
enum NextStep {
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

/// Returns the name of a task for users; it is not 0, because `fork` returns 0 in the child.
fn name(number: usize) -> u64 {
    number as u64 + 1
}

/// Returns the task of a name; if the name is nobody's, a number that no task has.
fn named(name: u64) -> usize {
    usize::try_from(name).map_or(TASKS, |name| name.wrapping_sub(1))
}

impl<P: Port> Tasks<P> {
    /// Makes an image's tasks: none.
    pub const fn new() -> Self {
        const FREE: TaskRecord = TaskRecord { state: TaskStatus::Free, parent: None, posts: 0 };
        let table = TaskTable { all: [FREE; TASKS], queue: [0; TASKS], first: 0, queued: 0, alive: 0 };
        Tasks {
            spaces: Spaces::new(),
            table: Lock::new(table),
            bodies: [const { Raw::new(TaskBody { registers: P::Registers::ZERO, space: None }) }; TASKS],
            idle: [const { AtomicBool::new(false) }; CPUS],
            stopped: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> Guard<'_, TaskTable, P::Masked> {
        self.table.lock(P::mask())
    }

    /// Returns the body of a task.
    ///
    /// # Safety
    ///
    /// 1. The caller is one that [`bodies`](Self::bodies) names, and has no other reference to it.
    #[expect(clippy::mut_from_ref, reason = "the caller answers for its being the only one")]
    unsafe fn body(&self, number: usize) -> &mut TaskBody<P> {
        // SAFETY: point 1 is passed on.
        unsafe { &mut *self.bodies[number % TASKS].get() }
    }

    /// A ready task is there: wakes a CPU that sleeps.
    fn wake(&self) {
        for (cpu, idle) in self.idle.iter().enumerate().take(P::cpus()) {
            if cpu != P::cpu() && idle.swap(false, Ordering::SeqCst) {
                return P::interrupt(cpu);
            }
        }
    }

    /// Makes a task.
    ///
    /// # Errors
    ///
    /// [`CallRefused`] if there are too many.
    pub fn start(
        &self,
        space: SpaceHandle<P>,
        registers: P::Registers,
        parent: Option<usize>,
    ) -> Result<usize, CallRefused> {
        let mut table = self.lock();
        let Some(number) = table.all.iter().position(|task| task.state == TaskStatus::Free) else {
            drop(table);
            space.close();
            return Err(CallRefused);
        };
        // SAFETY: 1. The slot is free, and the lock is held.
        unsafe { *self.body(number) = TaskBody { registers, space: Some(space) } };
        *table.task(number) = TaskRecord { state: TaskStatus::Ready, parent, posts: 0 };
        table.alive += 1;
        table.enqueue(number);
        drop(table);
        self.wake();
        Ok(number)
    }

    /// Starts the user program at `at`, with its stack below `stack_end`. Ends the run if that
    /// cannot be done.
    pub fn start_program(&'static self, at: (u64, u64), stack: (u64, u64), arguments: [u64; 3]) {
        let started = self
            .spaces
            .program(at, stack)
            .and_then(|space| self.start(space, P::Registers::at(at.0, stack.0, arguments), None));
        fail_if(started.is_err(), format_args!("a program does not start"));
    }

    /// Runs tasks until all have ended. Every CPU calls it; all but CPU 0 go on sleeping then until
    /// there are some again, and return when [`stop`](Self::stop) is called.
    pub fn run(&self) {
        loop {
            let next = self.lock().dequeue();
            let Some(number) = next else {
                let done = P::cpu() == 0 && self.lock().alive == 0;
                if done || self.stopping.load(Ordering::SeqCst) {
                    return self.spaces.leave();
                }
                self.idle();
                continue;
            };
            P::begin_turn();
            while self.run_once(number) {}
        }
    }

    /// Runs a task until its next trap and handles that; whether the task goes on.
    fn run_once(&self, number: usize) -> bool {
        let after = {
            // SAFETY: 1. The task runs on this CPU, and the reference ends with the block.
            let task = unsafe { self.body(number) };
            if let Some(space) = &task.space {
                space.switch_to();
            }
            let trap = P::enter(&mut task.registers);
            self.handle(number, task, trap)
        };
        match after {
            NextStep::Resume => return true,
            NextStep::GiveWay => self.lock().enqueue(number),
            NextStep::Wait(child) => return self.wait(number, child),
            NextStep::Pause => return self.pause(number),
            NextStep::End(code) => self.end(number, code),
        }
        false
    }

    /// Sleeps until there may be something to do.
    fn idle(&self) {
        let _masked = P::mask();
        self.spaces.rest();
        let flag = &self.idle[P::cpu() % CPUS];
        flag.store(true, Ordering::SeqCst);
        // Asked after the flag is set: a task that became ready before is seen here, one that comes
        // later wakes this CPU.
        let table = self.lock();
        let ready = table.queued > 0 || (table.alive == 0 && P::cpu() == 0);
        drop(table);
        if !ready && !self.stopping.load(Ordering::SeqCst) {
            P::sleep();
        }
        flag.store(false, Ordering::SeqCst);
        P::answer();
    }

    /// Has all other CPUs return from [`run`](Self::run), and waits until each has come to
    /// [`stopped`](Self::stopped); runs `check` meanwhile.
    pub fn stop(&self, check: impl FnOnce()) {
        self.stopping.store(true, Ordering::SeqCst);
        (1..P::cpus()).for_each(P::interrupt);
        check();
        while self.stopped.load(Ordering::SeqCst) + 1 < P::cpus() {
            ptarmigan::sync::spin();
        }
    }

    /// This CPU, which is not CPU 0, does nothing from now on.
    pub fn stopped(&self) {
        self.stopped.fetch_add(1, Ordering::SeqCst);
    }

    fn handle(&self, number: usize, task: &mut TaskBody<P>, trap: Trap) -> NextStep {
        match trap {
            Trap::Call => P::enabled(|| self.call(number, task)),
            Trap::Page { at, access, protected } => {
                let served = match &task.space {
                    Some(space) => P::enabled(|| space.fault(at, access, protected)),
                    None => Err(CallRefused),
                };
                if served.is_ok() { NextStep::Resume } else { NextStep::End(abi::KILLED) }
            }
            Trap::Interrupt => {
                P::answer();
                NextStep::Resume
            }
            Trap::Timer => NextStep::GiveWay,
            Trap::Other => NextStep::End(abi::KILLED),
        }
    }

    /// Carries out a call of the user's.
    fn call(&self, number: usize, task: &mut TaskBody<P>) -> NextStep {
        let [a0, a1, a2] = task.registers.arguments();
        let Some(space) = &task.space else { return NextStep::End(abi::KILLED) };
        let result = match task.registers.call() {
            abi::EXIT => return NextStep::End(a0),
            abi::FORK => {
                // The child's copy of the registers says 0.
                task.registers.set_result(0);
                space.fork().and_then(|child| self.start(child, task.registers, Some(number))).map(name)
            }
            abi::SPAWN => {
                let registers = P::Registers::at(a0, a1, [a2, 0, 0]);
                self.start(space.share(), registers, Some(number)).map(name)
            }
            abi::WAIT => return NextStep::Wait(a0),
            abi::MMAP => space.mmap(a0, a1, a2).map(|()| 0),
            abi::MUNMAP => space.munmap(a0, a1).map(|()| 0),
            abi::MPROTECT => space.mprotect(a0, a1, a2).map(|()| 0),
            abi::POST => self.post(a0).map(|()| 0),
            abi::PAUSE => return NextStep::Pause,
            abi::GIVE_WAY => return NextStep::GiveWay,
            abi::CPU => Ok(P::cpu() as u64),
            abi::FAILED => fail(format_args!("{}: {a1:#x}, not {a2:#x}", abi::failure(a0))),
            _ => Err(CallRefused),
        };
        task.registers.set_result(result.unwrap_or(abi::ERROR));
        NextStep::Resume
    }

    /// Sets the result of the call that a task is in.
    ///
    /// # Safety
    ///
    /// 1. The task must run on this CPU without borrows of it; or it must wait, with the table
    ///    locked.
    unsafe fn set_result(&self, number: usize, value: u64) {
        // SAFETY: point 1 is passed on.
        unsafe { self.body(number) }.registers.set_result(value);
    }

    /// `wait(child)`; whether the task goes on.
    fn wait(&self, number: usize, child: u64) -> bool {
        let child = named(child);
        let mut table = self.lock();
        let found = table.all.get(child).filter(|found| found.parent == Some(number));
        let result = match found.map(|found| found.state) {
            None | Some(TaskStatus::Free) => abi::ERROR,
            Some(TaskStatus::Ended(code)) => {
                table.task(child).state = TaskStatus::Free;
                code
            }
            Some(_) => {
                table.task(number).state = TaskStatus::Waiting(child);
                return false;
            }
        };
        // SAFETY: 1. It runs here, and `run_once` has given its reference up.
        unsafe { self.set_result(number, result) };
        true
    }

    /// `pause()`; whether the task goes on.
    fn pause(&self, number: usize) -> bool {
        let mut table = self.lock();
        // SAFETY: 1. It runs here, and `run_once` has given its reference up.
        unsafe { self.set_result(number, 0) };
        let own = table.task(number);
        if own.posts > 0 {
            own.posts -= 1;
            return true;
        }
        own.state = TaskStatus::Paused;
        false
    }

    /// `post(task)`.
    fn post(&self, to: u64) -> Result<(), CallRefused> {
        let to = named(to);
        let mut table = self.lock();
        let other = table.all.get_mut(to).ok_or(CallRefused)?;
        match other.state {
            TaskStatus::Free | TaskStatus::Ended(_) => return Err(CallRefused),
            TaskStatus::Paused => table.enqueue(to),
            _ => other.posts += 1,
        }
        drop(table);
        self.wake();
        Ok(())
    }

    /// The task ends.
    fn end(&self, number: usize, code: u64) {
        // SAFETY: 1. It runs here, and `run_once` has given its reference up.
        let space = unsafe { self.body(number) }.space.take();
        if let Some(space) = space {
            P::enabled(|| space.close());
        }
        let mut table = self.lock();
        table.alive -= 1;
        // Nobody will ask for the codes of its children any more.
        for child in table.all.iter_mut().filter(|child| child.parent == Some(number)) {
            child.parent = None;
            if matches!(child.state, TaskStatus::Ended(_)) {
                child.state = TaskStatus::Free;
            }
        }
        let Some(parent) = table.task(number).parent else {
            table.task(number).state = TaskStatus::Free;
            let last = table.alive == 0;
            drop(table);
            fail_if(code != 0, format_args!("a program ended with {code:#x}"));
            // CPU 0 waits for the end of the last task.
            if last && P::cpu() != 0 {
                P::interrupt(0);
            }
            return;
        };
        if table.task(parent).state == TaskStatus::Waiting(number) {
            table.task(number).state = TaskStatus::Free;
            // SAFETY: 1. The parent waits, and the lock is held.
            unsafe { self.set_result(parent, code) };
            table.enqueue(parent);
            drop(table);
            self.wake();
        } else {
            table.task(number).state = TaskStatus::Ended(code);
        }
    }
}
