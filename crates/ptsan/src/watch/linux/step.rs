//! One store: the fault opens the page, and the trap behind the instruction closes and compares it.
use super::escape;
use super::list;
use super::lock::{self, WatchLock};
use super::ram::PAGE;
use super::region::{By, Region};
use super::registers::{self, Registers};
use super::rep::{self, Repeated};
use super::width;
use crate::watch::store::Changed;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering::*};

const WORDS: usize = PAGE / 8;
/// The most pages that one instruction stores to: a scatter of 16 elements, each across a boundary.
const MOST_PAGES: usize = 32;
/// The trap flag.
const TRAP: i64 = 1 << 8;
/// The direction flag: repeated stores run downwards.
const DOWN: i64 = 1 << 10;
/// A write, in the error code of a page fault.
const WRITE: i64 = 2;

/// A page that one instruction may store to.
#[derive(Clone, Copy)]
struct Open {
    region: *const Region,
    /// Offset of the page in the region.
    start: usize,
    /// The physical address at which the instruction faulted.
    phys: u64,
    before: [u64; WORDS],
}

/// How the thread comes back after the instruction.
#[derive(Clone, Copy)]
enum Way {
    /// By the trap flag.
    Trap,
    /// By the breakpoint behind the copy of a repeated store.
    Copy(Repeated),
}

/// The instruction under way. There is one for all threads; it belongs to the thread that holds the
/// lock.
struct Step {
    active: bool,
    rip: i64,
    way: Way,
    /// The signals that were blocked before.
    mask: u64,
    /// Whether the trap flag was set before.
    traced: bool,
    /// Repetitions that are left for later, because they store to the next page.
    left: i64,
    /// The bytes that the instruction overwrites from the first fault on, and before it.
    overwrites: (usize, usize),
    /// Whether the instruction reads and stores in one piece.
    atomic: bool,
    used: usize,
    open: [Open; MOST_PAGES],
}

struct SharedStep(UnsafeCell<Step>);
// SAFETY: only the thread that holds the lock touches it.
unsafe impl Sync for SharedStep {}

static STEP: SharedStep = SharedStep(UnsafeCell::new(Step {
    active: false,
    rip: 0,
    way: Way::Trap,
    mask: 0,
    traced: false,
    left: 0,
    overwrites: (0, 0),
    atomic: false,
    used: 0,
    open: [Open { region: std::ptr::null(), start: 0, phys: 0, before: [0; WORDS] }; MOST_PAGES],
}));

/// Prepares the store that faulted. Returns whether it was a store to watched memory, which can now
/// be executed.
pub(super) fn fault(info: &libc::siginfo_t, at: &mut Registers) -> bool {
    // SAFETY: `SIGSEGV` of the kernel has an address; one sent by a process has another code and is
    // sorted out first.
    let denied = info.si_code == registers::SEGV_ACCERR && at.get(libc::REG_ERR) & WRITE != 0;
    // SAFETY: the code says that the kernel sent it for an access, so there is an address.
    let address = if denied { unsafe { info.si_addr() }.addr() } else { 0 };
    if !denied || !list::is_watched_address(address) {
        // A repeated copy may have lost its source half-way. Its store is checked with the next
        // store.
        abandon(at);
        return false;
    }
    let held = WatchLock::new();
    // SAFETY: this thread holds the lock, and the handlers touch the step nowhere while this
    // reference lives.
    let step = unsafe { &mut *STEP.0.get() };
    if step.active && !step.is_at(at.get(libc::REG_RIP)) {
        // A foreign handler jumped out of the instruction and left the lock to this thread.
        step.close(false);
        // SAFETY: `active` means that this thread kept the lock at the fault.
        drop(unsafe { WatchLock::take_over() });
    }
    // If the watch is gone, or stores are allowed by now, the instruction is tried again.
    let Some(region) = list::find(&held, address) else { return true };
    // SAFETY: regions in the list are alive while the lock is held.
    let (ram, watched) = unsafe { (&(*region).ram, (*region).is_watched()) };
    let start = (address - ram.base().addr()) & !(PAGE - 1);
    if !watched {
        return ram.protect(start, PAGE, true).is_ok();
    }
    if step.active {
        // A further page of the same instruction: the lock was kept at the first.
        return step.open(region, address) || {
            abandon(at);
            false
        };
    }
    if !step.open(region, address) {
        return false;
    }
    step.begin(at, address);
    held.keep();
    true
}

/// Ends the step. Returns whether the trap belonged to it.
pub(super) fn trap(info: &libc::siginfo_t, at: &mut Registers) -> bool {
    if !lock::is_mine() {
        return false;
    }
    let rip = {
        // SAFETY: this thread holds the lock, and no other code touches the step while this
        // reference lives.
        let step = unsafe { &mut *STEP.0.get() };
        if !step.is_over(info.si_code, at.get(libc::REG_RIP)) {
            return false;
        }
        step.restore(at);
        step.close(true);
        step.rip
    };
    // SAFETY: the step was active, so this thread kept the lock at the fault.
    let held = unsafe { WatchLock::take_over() };
    // Meanwhile the signal frame says that the thread is inside the store, not behind it.
    // Backtraces of findings then name the right line, whether they look at the address itself or,
    // as for calls, at the byte before.
    let resume = at.get(libc::REG_RIP);
    at.set(libc::REG_RIP, rip + 1);
    list::deliver_all(&held);
    at.set(libc::REG_RIP, resume);
    true
}

/// Says what is known of a trap that no store explains, before it ends the process. Silent about
/// traps that are the business of the code under test, such as its breakpoints.
pub(super) fn say_unexplained(info: &libc::siginfo_t, at: &Registers) {
    // SAFETY: the left side says that this thread holds the lock, and no other code touches the
    // step while it is read.
    let under_way = lock::is_mine() && unsafe { (*STEP.0.get()).active };
    if under_way || at.is_debug_exception() {
        registers::say_formatted(format_args!(
            "ptsan: SIGTRAP with code {} at {:#x} ends the process: it belongs to no watched store \
             (one under way on this thread: {}; exception {}; blocked signals {:#x})\n",
            info.si_code,
            at.get(libc::REG_RIP),
            if under_way { "yes" } else { "no" },
            at.get(libc::REG_TRAPNO),
            at.mask(),
        ));
    }
}

/// Undoes the preparations for an instruction that will not be completed.
fn abandon(at: &mut Registers) {
    if !lock::is_mine() {
        return;
    }
    // SAFETY: this thread holds the lock, and no other code touches the step while this reference
    // lives.
    let step = unsafe { &mut *STEP.0.get() };
    if step.active && step.is_at(at.get(libc::REG_RIP)) {
        step.restore(at);
        step.close(false);
        // SAFETY: the step was active, so this thread kept the lock at the fault.
        drop(unsafe { WatchLock::take_over() });
    }
}

impl Step {
    /// Returns whether a thread at `rip` is at the instruction, or at its copy.
    fn is_at(&self, rip: i64) -> bool {
        rip == self.rip || matches!(self.way, Way::Copy(r) if rip == r.copy as i64)
    }

    /// Returns whether a `SIGTRAP` with this `si_code` ends the step. The trap flag gives two
    /// codes.
    fn is_over(&self, code: i32, rip: i64) -> bool {
        self.active
            && match self.way {
                Way::Trap => matches!(code, registers::TRAP_TRACE | registers::TRAP_BRKPT),
                Way::Copy(r) => rip == r.after as i64,
            }
    }

    /// Keeps a copy of the page and makes it writable.
    fn open(&mut self, region: *const Region, address: usize) -> bool {
        // SAFETY: regions in the list are alive while the lock is held, which `fault` does.
        let ram = unsafe { &(*region).ram };
        let offset = address - ram.base().addr();
        let start = offset & !(PAGE - 1);
        let Some(open) = self.open.get_mut(self.used) else {
            registers::say("ptsan: an instruction stores to too many watched pages\n");
            return false;
        };
        for (word, before) in words(region, start).zip(&mut open.before) {
            *before = word.load(Relaxed);
        }
        (open.region, open.start, open.phys) = (region, start, ram.start() + offset as u64);
        if ram.protect(start, PAGE, true).is_err() {
            registers::say(
                "ptsan: the system does not let a watched page be written; raise vm.max_map_count\n",
            );
            return false;
        }
        self.used += 1;
        true
    }

    /// Makes the thread come back after one instruction.
    fn begin(&mut self, at: &mut Registers, address: usize) {
        self.active = true;
        self.rip = at.get(libc::REG_RIP);
        self.mask = at.mask();
        at.set_mask(registers::mask_of_one_instruction(self.mask));
        let flags = at.get(libc::REG_EFL);
        self.traced = flags & TRAP != 0;
        (self.way, self.left) = (Way::Trap, 0);
        self.atomic = false;
        if let Some(repeated) = self.repeated() {
            let count = at.get(libc::REG_RCX);
            let offset = address % PAGE;
            let room = match flags & DOWN {
                0 => (PAGE - offset) / repeated.element,
                _ => offset / repeated.element + 1,
            };
            // An element across the boundary goes alone and opens both pages. The count is
            // unsigned.
            let room = room.max(1) as i64;
            if at.get(libc::REG_RDI) as usize == address {
                let now = if count as u64 > room as u64 { room } else { count };
                self.left = count.wrapping_sub(now);
                at.set(libc::REG_RCX, now);
                at.set(libc::REG_RIP, repeated.copy as i64);
                self.way = Way::Copy(repeated);
                let before =
                    if flags & DOWN == 0 { 0 } else { (now as usize).saturating_sub(1) * repeated.element };
                self.overwrites = (now as usize * repeated.element - before, before);
                return;
            }
        }
        self.overwrites = (width::of(self.code()).unwrap_or(0), 0);
        self.atomic = width::is_atomic(self.code());
        at.set(libc::REG_EFL, flags | TRAP);
    }

    /// Returns the bytes of the instruction, one by one.
    fn code(&self) -> impl FnMut() -> u8 {
        let mut rip = self.rip as usize;
        move || {
            // SAFETY: the processor has fetched the instruction, and no byte behind its end is
            // asked for.
            let byte = unsafe { std::ptr::with_exposed_provenance::<u8>(rip).read_volatile() };
            rip += 1;
            byte
        }
    }

    /// Returns the repeated store, if the instruction is one that can be executed as a whole.
    fn repeated(&self) -> Option<Repeated> {
        // SAFETY: regions in the list are alive while the lock is held, which `fault` does.
        let each = unsafe { (*self.open[0].region).each_repetition.get() };
        if each || self.traced {
            return None;
        }
        // SAFETY: the thread has faulted at this instruction and is about to carry it out.
        unsafe { rep::decode(self.rip as usize) }
    }

    /// Restores registers and signal mask to their values without a watch, after the instruction or
    /// in the midst of it.
    fn restore(&mut self, at: &mut Registers) {
        at.set_mask(self.mask);
        match self.way {
            Way::Trap if !self.traced => at.set(libc::REG_EFL, at.get(libc::REG_EFL) & !TRAP),
            Way::Trap => {}
            Way::Copy(repeated) => {
                let count = at.get(libc::REG_RCX).wrapping_add(self.left);
                at.set(libc::REG_RCX, count);
                let length = if count == 0 { repeated.length } else { 0 };
                at.set(libc::REG_RIP, self.rip + length as i64);
            }
        }
    }

    /// Protects the pages again, then compares: in this order no store of another thread is missed.
    /// `done` says that the instruction was completed.
    fn close(&mut self, done: bool) {
        self.active = false;
        let used = std::mem::take(&mut self.used);
        for open in &self.open[..used] {
            // SAFETY: regions in the list are alive while the lock is held, as it has been since
            // the fault.
            let region = unsafe { &*open.region };
            if region.is_watched() && region.ram.protect(open.start, PAGE, false).is_err() {
                registers::say(
                    "ptsan: the system does not let a watched page be protected; raise vm.max_map_count\n",
                );
            }
        }
        let (forward, back) = if done { self.overwrites } else { (0, 0) };
        let (first_region, fault) = (self.open[0].region, self.open[0].phys);
        let open = &mut self.open[..used];
        if used > 1 {
            open.sort_unstable_by_key(|o| (o.region.addr(), o.start));
        }
        for pages in open.chunk_by(|a, b| std::ptr::eq(a.region, b.region)) {
            let first = &pages[0];
            let here = std::ptr::eq(first.region, first_region);
            let overwritten =
                if here { fault.saturating_sub(back as u64)..fault + forward as u64 } else { 0..0 };
            let changed = pages.iter().flat_map(changes);
            let cpu = escape::current(|run| std::ptr::eq(run.region, first.region).then_some(run.cpu));
            let by = By { rip: self.rip as usize, atomic: self.atomic, cpu: cpu.flatten() };
            // SAFETY: the region is alive, as above, and the lock is held.
            unsafe { (*first.region).note(by, first.phys, overwritten, changed) };
        }
    }
}

/// Returns the words of a page that have changed.
fn changes(open: &Open) -> impl Iterator<Item = Changed> {
    // SAFETY: regions in the list are alive while the lock is held, which `close` does.
    let page = unsafe { (*open.region).ram.start() } + open.start as u64;
    words(open.region, open.start).zip(&open.before).enumerate().filter_map(move |(i, (word, &old))| {
        let new = word.load(Relaxed);
        (new != old).then_some(Changed { phys: page + i as u64 * 8, old, new })
    })
}

/// Returns the words of a page.
fn words(region: *const Region, start: usize) -> impl Iterator<Item = &'static AtomicU64> {
    // SAFETY: the region is in the list, which it cannot leave while the lock is held; the
    // iterators made here end before it is given back. `start` is a page of the region.
    let page = unsafe { (*region).ram.base().add(start).cast::<u64>() };
    // SAFETY: 512 aligned words of the page; stores of other threads are why they are read as
    // atomics.
    (0..WORDS).map(move |i| unsafe { AtomicU64::from_ptr(page.add(i)) })
}
