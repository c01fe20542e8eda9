//! Tests Linux's pool of slots with tasks that sleep: more tasks than slots, each with a stack of
//! its own.
//!
//! ```text
//!  task      map ── no slot ── doing = SLEEPING ── is_woken? ── no ──> leave ──> the next task
//!  another   unmap ── wake: SLEEPING -> READY
//!  all sleep, none READY ──> the test fails: nobody could wake them
//! ```
//!
//! # Why
//!
//! The kernel for programs never sleeps, so this is the one place where its tasks do. They run on
//! the CPU that boots, one at a time, until all have ended. A task that holds a slot gives way, so
//! that the others find no slot and sleep; code that gives a slot back wakes the first of them. A
//! task says that it sleeps before it looks once more. Otherwise a wake-up between the look and the
//! sleep would be lost. If all that have not ended sleep, nobody is left who could wake them. A
//! test that fails ends the machine.

use core::arch::global_asm;
use core::fmt;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};

use ptarmigan::addr::Pfn;
use ptarmigan::bootmem::BootMemory;
use ptarmigan::cpu::{NodeId, Pinned};
use ptarmigan::frames::{AllocFlags, End, Request, ZoneClass};
use ptarmigan::highmem::pool::{MaySleep, PoolCounts, Wake};
use ptarmigan::machine::Machine as _;
use ptarmigan_kernel::negative_controls::{NegativeControl, leaves_out};
use ptarmigan_kernel_base::once_cell::OnceCell;
use ptarmigan_kernel_base::{Failed, fail, say};
use ptarmigan_kernel_x86::segments::OfCpu;
use ptarmigan_linux::{FlushRule, LinuxPool};

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

/// The stacks of the tasks.
static STACKS: [OfCpu<[u32; 4096]>; TASKS] = [const { OfCpu::new([0; 4096]) }; TASKS];

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
struct SleepingTask {
    doing: AtomicU8,
    /// Its stack pointer.
    at: AtomicU32,
}

/// The tasks, and who runs. All but [`wake`](Wake::wake) is used by one CPU.
struct Scheduler {
    tasks: [SleepingTask; TASKS],
    /// The stack pointer of the code that runs them.
    own: AtomicU32,
    sleeps: AtomicUsize,
    wakes: AtomicUsize,
}

static SCHEDULER: Scheduler = Scheduler {
    tasks: [const { SleepingTask { doing: AtomicU8::new(READY), at: AtomicU32::new(0) } }; TASKS],
    own: AtomicU32::new(0),
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
            let words = stack.get().cast::<u32>();
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
        let doing = |task: &SleepingTask| task.doing.load(Ordering::SeqCst);
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
                fail(format_args!("all tasks sleep, and nobody wakes them"));
            }
        }
    }
}

impl Wake for Scheduler {
    fn wake(&self, task: usize) {
        if leaves_out(NegativeControl::Wake) {
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
            if is_woken() {
                doing.store(READY, Ordering::SeqCst);
                return true;
            }
            SCHEDULER.sleeps.fetch_add(1, Ordering::Relaxed);
            SCHEDULER.leave(self.0);
        }
    }
}

/// The pool that is tested.
static POOL: OnceCell<LinuxPool<'static, Hardware, HighSlots, Scheduler>> = OnceCell::new();
/// The frames.
static FRAMES: [AtomicU32; TASKS] = [const { AtomicU32::new(0) }; TASKS];

/// Ends the machine if a part of the test has failed.
fn must<T, E: fmt::Display>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|e| fail(format_args!("{e}")))
}

/// Where a task begins.
extern "C" fn body(number: u32) -> ! {
    let mut task = Running(number as usize % TASKS);
    for round in 0..ROUNDS {
        // Each frame is in use by several tasks at times.
        let frame = &FRAMES[(task.0 + round as usize * (task.0 + 1)) % TASKS];
        one_round(&mut task, Pfn(frame.load(Ordering::Relaxed)));
    }
    SCHEDULER.tasks[task.0].doing.store(ENDED, Ordering::SeqCst);
    loop {
        // One that has ended is not run again.
        SCHEDULER.leave(task.0);
    }
}

/// Maps a frame, looks at it before and after the others had their turn, and unmaps it.
fn one_round(task: &mut Running, frame: Pfn) {
    let pool = POOL.get();
    let at = must(pool.map(task, frame)).cast::<u32>();
    for _ in 0..2 {
        // SAFETY: 1. The pool shows the frame there as long as this user stays; no other code runs
        // until the task gives way.
        let other = unsafe { at.read_volatile() };
        if other != frame.0 {
            fail(format_args!("stale: the slot of frame {frame} shows frame {other:#x}"));
        }
        // SAFETY: 1. Likewise: the second word of the frame.
        unsafe { at.add(1).write_volatile(at.add(1).read_volatile() + 1) };
        task.give_way();
    }
    // SAFETY: 1. This user has mapped it just now, and does not use the address any more.
    if !must(task.pinned(|pin| unsafe { pool.unmap(pin, frame) })) {
        fail(format_args!("frame {frame} lost the user that mapped it"));
    }
}

/// Returns the bytes of boot memory that the pool takes.
pub const fn bytes() -> usize {
    LinuxPool::<'static, Hardware, HighSlots>::bytes(SLOTS)
}

/// Makes the pool.
///
/// # Safety
///
/// 1. It is called once, while one CPU runs, after the library was set up.
pub unsafe fn init(boot: &mut BootMemory, rule: FlushRule) -> Result<(), Failed> {
    let machine = KERNEL.machine.get();
    let (low, slots) = (mmu::direct_map(), HighSlots::test(SLOTS));
    // SAFETY: 1. Slots show any frame of the machine; the direct map reaches those below its limit.
    // 2. These slots are used here alone. The table is all zero at boot, and no code has used an
    // address of it.
    let pool = unsafe { LinuxPool::new(boot, machine.tlb(), machine.frames(), low, slots)? };
    // SAFETY: 1. Point 1 of the caller's.
    unsafe { POOL.set(pool.woken_by(&SCHEDULER).with_rule(rule)) };
    Ok(())
}

/// Runs the tasks, once, if there is high memory.
pub fn test(name: &str) {
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
        return say!("kernel: kmap={name}: there is no high memory to map");
    }
    let taken = FRAMES.each_ref().map(|number| {
        let frame = must(frames.take(request)).dirty();
        number.store(frame.pfn().0, Ordering::Relaxed);
        // SAFETY: 1. The first words of a frame that is the test's own.
        with_words(frame.pfn(), |words| unsafe { words.write_volatile([frame.pfn().0, 0]) });
        frame
    });
    SCHEDULER.run();
    let times = TASKS as u32 * ROUNDS;
    // SAFETY: 1. The first words of a frame that is the test's own.
    let count = |frame| with_words(frame, |words| unsafe { words.read_volatile() })[1];
    let arrived: u32 = taken.iter().map(|frame| count(frame.pfn())).sum();
    if arrived != times * 2 {
        fail(format_args!("{} accesses were made, {arrived} arrived", times * 2));
    }
    let [sleeps, wakes] = [&SCHEDULER.sleeps, &SCHEDULER.wakes].map(|count| count.load(Ordering::Relaxed));
    if sleeps == 0 {
        fail(format_args!("no task slept for a slot, so nothing was tested"));
    }
    let PoolCounts { sweeps, idle_sweeps, .. } = POOL.get().counts();
    // No slot shows the frames after this.
    must(POOL.get().flush_unused(&KERNEL.pin()));
    taken.into_iter().for_each(|frame| frames.give(frame));
    say!(
        "kernel: kmap={name}: {TASKS} tasks mapped frames {times} times in {SLOTS} slots, slept {sleeps} times and \
         were woken {wakes} times; {sweeps} sweeps, {idle_sweeps} of them with nothing stale"
    );
}

/// Calls `f` with the first two words of a frame.
fn with_words<R>(frame: Pfn, f: impl FnOnce(*mut [u32; 2]) -> R) -> R {
    must(windows::with(&KERNEL.pin(), frame, |at| f(at.cast())))
}
