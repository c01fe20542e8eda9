//! Tests Linux's pool of slots with tasks that sleep: more tasks than slots, each with a stack of
//! its own.
//!
//! The kernel for programs never sleeps, so this is the one place where its tasks do. They run on
//! the CPU that boots, one at a time, until all have ended. A task that holds a slot gives way, so
//! that the others find no slot and sleep; code that gives a slot back wakes the first of them. If
//! all that have not ended sleep, nobody is left who could wake them. That is reported, not waited
//! for.

use core::arch::global_asm;
use core::cell::UnsafeCell;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};

use ptarmigan::addr::Pfn;
use ptarmigan::bootmem::BootMemory;
use ptarmigan::cpu::{NodeId, Pinned};
use ptarmigan::frames::{AllocFlags, Dirty, End, Frame, NoFrame, Request, ZoneClass};
use ptarmigan::highmem::pool::{MaySleep, PoolCounts, PoolError, Wake};
use ptarmigan::machine::Machine as _;
use ptarmigan::sync::SpinLock;
use ptarmigan_kernel::without::{Part, leaves_out};
use ptarmigan_kernel_base::late::Late;
use ptarmigan_linux::{FlushRule, LinuxPool};

use super::InitError;
use super::slots::HighSlots;
use super::windows;
use crate::KERNEL;
use crate::mmu::{self, Hardware};

/// Slots of the pool that is tested.
const SLOTS: usize = 2;
/// Tasks, and as many frames.
const TASKS: usize = 4;
/// How often each task maps a frame.
const ROUNDS: u32 = 64;

/// The states of a task.
const READY: u8 = 0;
const SLEEPING: u8 = 1;
const ENDED: u8 = 2;

/// The stack of a task.
#[repr(C, align(16))]
struct Stack(UnsafeCell<[u32; 4096]>);

// SAFETY: 1. It is written before its task begins, and then by its task alone.
unsafe impl Sync for Stack {}

static STACKS: [Stack; TASKS] = [const { Stack(UnsafeCell::new([0; 4096])) }; TASKS];

// Saves the registers that a call keeps, and the stack pointer to its first argument; goes on with
// the stack pointer that is its second.
global_asm!(
    r#"
.section .text
.globl switch_stack
switch_stack:
    mov eax, [esp + 4]
    mov edx, [esp + 8]
    push ebp
    push ebx
    push esi
    push edi
    mov [eax], esp
    mov esp, edx
    pop edi
    pop esi
    pop ebx
    pop ebp
    ret
"#
);

unsafe extern "C" {
    fn switch_stack(from: *mut u32, to: u32);
}

/// A task that does not run.
struct Task {
    doing: AtomicU8,
    /// Its stack pointer.
    at: AtomicU32,
}

/// The tasks, and who runs. All but [`wake`](Wake::wake) is used by one CPU.
struct Scheduler {
    tasks: [Task; TASKS],
    /// The stack pointer of the code that runs them.
    own: AtomicU32,
    /// Nobody is left who could wake those that sleep.
    stuck: AtomicBool,
    sleeps: AtomicUsize,
    wakes: AtomicUsize,
}

static SCHEDULER: Scheduler = Scheduler {
    tasks: [const { Task { doing: AtomicU8::new(READY), at: AtomicU32::new(0) } }; TASKS],
    own: AtomicU32::new(0),
    stuck: AtomicBool::new(false),
    sleeps: AtomicUsize::new(0),
    wakes: AtomicUsize::new(0),
};

impl Scheduler {
    /// Leaves the task that runs, for the scheduler.
    fn leave(&self, task: usize) {
        // SAFETY: 1. The scheduler's stack pointer: it waits in `run`, as this task runs.
        unsafe { switch_stack(self.tasks[task].at.as_ptr(), self.own.load(Ordering::Relaxed)) };
    }

    /// Runs the tasks until all have ended.
    fn run(&self) {
        for (number, (task, stack)) in self.tasks.iter().zip(&STACKS).enumerate() {
            let words = stack.0.get().cast::<u32>();
            let top = 4096 - 8;
            // SAFETY: 1. Eight words at the end of a stack that no task uses yet: four registers,
            // the address to go to, its return address, which is not used, and its argument.
            let at = unsafe {
                words.add(top + 4).write(body as *const () as u32);
                words.add(top + 6).write(number as u32);
                words.add(top)
            };
            task.at.store(at.addr() as u32, Ordering::Relaxed);
        }
        let doing = |task: &Task| task.doing.load(Ordering::SeqCst);
        loop {
            let mut ran = false;
            for task in &self.tasks {
                if doing(task) == READY {
                    ran = true;
                    // SAFETY: 1. The stack pointer of a task that has not begun, or that has left.
                    unsafe { switch_stack(self.own.as_ptr(), task.at.load(Ordering::Relaxed)) };
                }
            }
            if self.tasks.iter().all(|task| doing(task) == ENDED) {
                return;
            }
            if !ran {
                self.stuck.store(true, Ordering::Relaxed);
                for task in self.tasks.iter().filter(|task| doing(task) == SLEEPING) {
                    task.doing.store(READY, Ordering::SeqCst);
                }
            }
        }
    }
}

impl Wake for Scheduler {
    fn wake(&self, task: usize) {
        if leaves_out(Part::Wake) {
            return;
        }
        let doing = &self.tasks[task].doing;
        if doing.compare_exchange(SLEEPING, READY, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.wakes.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The task that runs, which may sleep.
struct Running(usize);

impl Running {
    /// Lets the others run.
    fn give_way(&mut self) {
        SCHEDULER.leave(self.0);
    }
}

impl MaySleep for Running {
    fn pinned<R>(&mut self, f: impl FnOnce(&Pinned<'_>) -> R) -> R {
        f(&KERNEL.pin())
    }

    fn task(&self) -> usize {
        self.0
    }

    fn sleep(&mut self, is_woken: &dyn Fn() -> bool) -> bool {
        let doing = &SCHEDULER.tasks[self.0].doing;
        loop {
            // A wake-up from here on makes the task ready again.
            doing.store(SLEEPING, Ordering::SeqCst);
            // A task that nobody made ready again does not count as woken, whatever the pool says.
            let is_stuck = SCHEDULER.stuck.load(Ordering::Relaxed);
            if is_stuck || is_woken() {
                doing.store(READY, Ordering::SeqCst);
                return !is_stuck;
            }
            SCHEDULER.sleeps.fetch_add(1, Ordering::Relaxed);
            SCHEDULER.leave(self.0);
        }
    }
}

/// The pool that is tested.
static POOL: Late<LinuxPool<'static, Hardware, HighSlots, Scheduler>> = Late::new();
/// The frames.
static FRAMES: [AtomicU32; TASKS] = [const { AtomicU32::new(0) }; TASKS];
/// The first thing that a task found wrong.
static WRONG: SpinLock<Option<Failed>> = SpinLock::new(None);

/// Why the test failed.
#[derive(Clone, Copy, Debug)]
pub enum Failed {
    /// There is no memory for the frames, or no window on one of them.
    NoFrame(NoFrame),
    /// The pool gave an error.
    Pool(PoolError),
    /// All tasks that had not ended slept.
    Stuck(PoolError),
    /// A slot showed another frame than it should.
    Shown {
        /// The frame that was mapped.
        frame: Pfn,
        /// The number in the frame that was seen.
        other: u32,
    },
    /// A frame that a task had mapped had no users.
    Unmapped(Pfn),
    /// Accesses were lost.
    Lost {
        /// How many were made.
        made: u32,
        /// How many arrived.
        arrived: u32,
    },
    /// No task slept, so the test shows no sleep.
    NobodySlept,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failed::NoFrame(e) => e.fmt(f),
            Failed::Pool(e) => e.fmt(f),
            Failed::Stuck(e) => write!(f, "all tasks sleep, and nobody wakes them: {e}"),
            Failed::Shown { frame, other } => {
                write!(f, "stale: the slot of frame {frame} shows frame {other:#x}")
            }
            Failed::Unmapped(frame) => write!(f, "frame {frame} lost the user that mapped it"),
            Failed::Lost { made, arrived } => write!(f, "{made} accesses were made, {arrived} arrived"),
            Failed::NobodySlept => f.write_str("no task slept for a slot, so nothing was tested"),
        }
    }
}

/// Where a task begins.
extern "C" fn body(number: u32) -> ! {
    let mut task = Running(number as usize % TASKS);
    for round in 0..ROUNDS {
        // Each frame is in use by several tasks at times.
        let frame = Pfn(FRAMES[(task.0 + round as usize * (task.0 + 1)) % TASKS].load(Ordering::Relaxed));
        let wrong = one_round(&mut task, frame).err();
        let mut first = WRONG.lock();
        *first = first.or(wrong);
        if first.is_some() {
            break;
        }
    }
    SCHEDULER.tasks[task.0].doing.store(ENDED, Ordering::SeqCst);
    loop {
        // One that has ended is not run again.
        SCHEDULER.leave(task.0);
    }
}

/// Maps a frame, looks at it before and after the others had their turn, and unmaps it.
fn one_round(task: &mut Running, frame: Pfn) -> Result<(), Failed> {
    let pool = POOL.get();
    let at = pool.map(task, frame).map_err(from_map)?.cast::<u32>();
    let mut shown = Ok(());
    for _ in 0..2 {
        // SAFETY: 1. The pool shows the frame there as long as this user stays; no other code runs
        // until the task gives way.
        let other = unsafe { at.read_volatile() };
        if other != frame.0 {
            shown = Err(Failed::Shown { frame, other });
            break;
        }
        // SAFETY: 1. Likewise: the second word of the frame.
        unsafe { at.add(1).write_volatile(at.add(1).read_volatile() + 1) };
        task.give_way();
    }
    // SAFETY: 1. This user has mapped it just now, and does not use the address any more.
    let had_users = task.pinned(|pin| unsafe { pool.unmap(pin, frame) }).map_err(Failed::Pool)?;
    shown.and(if had_users { Ok(()) } else { Err(Failed::Unmapped(frame)) })
}

fn from_map(e: PoolError) -> Failed {
    if matches!(e, PoolError::TimedOut { .. }) { Failed::Stuck(e) } else { Failed::Pool(e) }
}

/// Returns the bytes of boot memory that the pool takes.
pub const fn bytes() -> usize {
    LinuxPool::<'static, Hardware, HighSlots>::bytes(SLOTS)
}

/// Makes the pool.
///
/// # Errors
///
/// [`InitError`]: boot memory is short.
///
/// # Safety
///
/// 1. It is called once, while one CPU runs, after the library was set up.
pub unsafe fn init(boot: &mut BootMemory, rule: FlushRule) -> Result<(), InitError> {
    let machine = KERNEL.machine.get();
    let (low, slots) = (mmu::direct_map(), HighSlots::test(SLOTS));
    // SAFETY: 1. Slots show any frame of the machine; the direct map reaches those below its limit.
    // 2. These slots are used here alone. The table is all zero at boot, and no code has used an
    // address of it.
    let pool = unsafe { LinuxPool::new(boot, machine.tlb(), machine.frames(), low, slots) };
    let pool = pool.map_err(InitError::Pool)?;
    // SAFETY: 1. Point 1 of the caller's.
    unsafe { POOL.set(pool.woken_by(&SCHEDULER).with_rule(rule)) };
    Ok(())
}

/// The results of a test.
pub enum Results {
    /// There was no frame to map.
    NoHighMemory,
    /// All frames were shown where they should be.
    Held {
        /// How often a task slept, and was woken.
        sleeps: [usize; 2],
        /// The pool's counts.
        counts: PoolCounts,
    },
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Results::Held { sleeps: [sleeps, wakes], counts: PoolCounts { sweeps, idle_sweeps, .. } } = self
        else {
            return f.write_str("there is no high memory to map");
        };
        let times = TASKS as u32 * ROUNDS;
        write!(
            f,
            "{TASKS} tasks mapped frames {times} times in {SLOTS} slots, slept {sleeps} times and were woken \
             {wakes} times; {sweeps} sweeps, {idle_sweeps} of them with nothing stale"
        )
    }
}

/// Runs the tasks, once, if there is high memory.
///
/// # Errors
///
/// [`Failed`].
pub fn test() -> Result<Results, Failed> {
    let frames = KERNEL.machine.get().frames();
    let request = Request {
        node: NodeId(0),
        order: 0,
        zero: false,
        class: ZoneClass::High,
        end: End::High,
        flags: AllocFlags::NORMAL,
    };
    if !frames.has_high() {
        return Ok(Results::NoHighMemory);
    }
    let mut taken: [Option<Frame<Dirty>>; TASKS] = [const { None }; TASKS];
    let mut prepared = Ok(());
    for (place, number) in taken.iter_mut().zip(&FRAMES) {
        prepared = prepared.and_then(|()| {
            let frame = place.insert(frames.take(request).map_err(Failed::NoFrame)?.dirty());
            number.store(frame.pfn().0, Ordering::Relaxed);
            set_words(frame.pfn(), [frame.pfn().0, 0])
        });
    }
    let result = prepared.and_then(|()| run());
    // No slot shows them after this.
    let forgotten = POOL.get().flush_unused(&KERNEL.pin());
    taken.into_iter().flatten().for_each(|frame| frames.give(frame));
    let results = result?;
    forgotten.map(|_| results).map_err(Failed::Pool)
}

/// Runs the tasks, and compares their results.
fn run() -> Result<Results, Failed> {
    SCHEDULER.run();
    if let Some(failed) = *WRONG.lock() {
        return Err(failed);
    }
    let made = TASKS as u32 * ROUNDS * 2;
    let mut arrived = 0;
    for frame in &FRAMES {
        let [_, count] = words(Pfn(frame.load(Ordering::Relaxed)))?;
        arrived += count;
    }
    if arrived != made {
        return Err(Failed::Lost { made, arrived });
    }
    let sleeps = [&SCHEDULER.sleeps, &SCHEDULER.wakes].map(|count| count.load(Ordering::Relaxed));
    if sleeps[0] == 0 {
        return Err(Failed::NobodySlept);
    }
    Ok(Results::Held { sleeps, counts: POOL.get().counts() })
}

/// Writes the first two words of a frame.
fn set_words(frame: Pfn, words: [u32; 2]) -> Result<(), Failed> {
    // SAFETY: 1. The window shows the frame, which is the test's own.
    windows::with(&KERNEL.pin(), frame, |at| unsafe { at.cast::<[u32; 2]>().write_volatile(words) })
        .map_err(Failed::NoFrame)
}

/// Returns the first two words of a frame.
fn words(frame: Pfn) -> Result<[u32; 2], Failed> {
    // SAFETY: 1. The window shows the frame, which is the test's own.
    windows::with(&KERNEL.pin(), frame, |at| unsafe { at.cast::<[u32; 2]>().read_volatile() })
        .map_err(Failed::NoFrame)
}
