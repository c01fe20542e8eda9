//! One sanitizer with the state that a C program needs beside it.
//!
//! ```text
//!  ptsan_…   begin_call: has_before, acquire ── before(user) ── check: lock ── Sanitizer
//!              └─ BEFORE is set: the call comes from there ──> not again
//!  inside    INSIDE = true ── the hook ── drop: INSIDE as it was
//! ```
//!
//! # Why
//!
//! A test may have a scheduler of its own, which wants to run another thread before a hook. It is a
//! function of C, and may call hooks itself: a mark of the thread keeps it from running in itself
//! for ever. A flag in front of its lock spares programs without it a lock for each call. The mark
//! that a thread is inside must go back when a hook panics, because the panic handler asks it.
use crate::error::{self, PtsanError, Refusal};
use crate::source::Source;
use crate::text;
use crate::threads::Threads;
use ptsan::watch::Watch;
use ptsan::{Memory, Operation, Sanitizer, Shared};
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::ffi::{CString, c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// In place of a CPU's number: the CPU that stands for the calling thread. See `ptsan_run_on`.
pub const PTSAN_THIS_CPU: i32 = -1;
/// In place of a CPU's number, for flushes: one that hardware broadcasts to every CPU.
pub const PTSAN_EVERY_CPU: i32 = -2;

/// Who has the sanitizer.
pub(crate) enum Checker {
    /// The hooks of the program alone.
    Told(Shared, Source),
    /// Memory in which every store is seen.
    Watched(Watch),
}

/// A function that the program wants to be called before each call of the library.
#[derive(Clone, Copy)]
pub(crate) struct Before {
    pub(crate) code: unsafe extern "C" fn(user: *mut c_void),
    pub(crate) user: *mut c_void,
}

// SAFETY: `ptsan_before_calls` requires a function that may be called with `user` on every thread.
unsafe impl Send for Before {}

/// An operation in the only or lower tree, and in the upper one.
type InTrees = (Operation, Option<Operation>);

/// One sanitizer with the state that a C program needs beside it.
pub(crate) struct Machine {
    pub(crate) checker: Checker,
    /// The sanitizer of the upper tree, if the machine has two.
    pub(crate) upper: Option<Shared>,
    pub(crate) threads: Threads,
    /// Whether it matters which CPU stores.
    asks_who_stores: bool,
    /// The operations under way, by the numbers that C knows.
    operations: Mutex<(u64, HashMap<u64, InTrees>)>,
    /// Notes of findings, which do not change once they are made. C has pointers to them.
    notes: Mutex<HashMap<(bool, usize), CString>>,
    refused: Mutex<Refused>,
    /// The patterns that are marked as harness.
    harness: Mutex<HashSet<String>>,
    before: Mutex<Option<Before>>,
    /// Whether there is a function in `before`, which most programs do not have.
    has_before: AtomicBool,
    finished: AtomicBool,
}

/// The calls that were refused.
#[derive(Default)]
struct Refused {
    count: u64,
    first: String,
}

thread_local! {
    /// Whether this thread has the sanitizer.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread runs the function that comes before calls.
    static BEFORE: Cell<bool> = const { Cell::new(false) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Machine {
    pub(crate) fn new(checker: Checker, asks_who_stores: bool) -> Self {
        Self {
            checker,
            upper: None,
            threads: Threads::default(),
            asks_who_stores,
            operations: Mutex::default(),
            notes: Mutex::default(),
            refused: Mutex::default(),
            harness: Mutex::default(),
            before: Mutex::default(),
            has_before: AtomicBool::new(false),
            finished: AtomicBool::new(false),
        }
    }

    /// Returns whether the sanitizer asks which CPU carries out a store.
    pub(crate) const fn asks_who_stores(&self) -> bool {
        self.asks_who_stores
    }

    /// Makes the thread stand for a CPU from now on. Returns the one that it stood for, if it had
    /// one.
    pub(crate) fn run_on(&self, cpu: usize) -> Option<usize> {
        let before = self.threads.run_on(cpu);
        // A watch sees stores by itself: they are those of the CPU that was named last.
        if self.asks_who_stores {
            self.tell(|sanitizer, _| sanitizer.running_on(cpu));
        }
        before
    }

    /// Makes the thread stand for the CPU that [`Machine::run_on`] returned.
    pub(crate) fn run_again_on(&self, before: Option<usize>) {
        match before {
            Some(cpu) => drop(self.run_on(cpu)),
            None => self.threads.leave(),
        }
    }

    /// Calls the sanitizer with its memory, one thread at a time.
    pub(crate) fn check<R>(&self, hook: impl FnOnce(&mut Sanitizer, &dyn Memory) -> R) -> R {
        Self::inside(|| match &self.checker {
            Checker::Told(shared, source) => hook(&mut shared.lock(), source),
            Checker::Watched(watch) => watch.with(|sanitizer, ram| hook(sanitizer, ram)),
        })
    }

    /// Marks that this thread has a sanitizer.
    pub(crate) fn inside<R>(run: impl FnOnce() -> R) -> R {
        struct Inside(bool);
        impl Drop for Inside {
            fn drop(&mut self) {
                INSIDE.set(self.0);
            }
        }
        let _inside = Inside(INSIDE.replace(true));
        run()
    }

    /// Refuses a call from a function that reads memory: the thread has the sanitizer already.
    pub(crate) fn is_free() -> Result<(), Refusal> {
        if INSIDE.get() {
            let why = "called by the function that reads memory, which must not call the library";
            return Err(Refusal { code: PtsanError::Reentered, why: why.to_owned() });
        }
        Ok(())
    }

    /// Marks files or functions as harness. A hook may do so each time: again has no effect.
    pub(crate) fn mark_harness(&self, pattern: &str) {
        let mut marked = lock(&self.harness);
        if !marked.contains(pattern) {
            marked.insert(pattern.to_owned());
            self.tell(|sanitizer, _| sanitizer.mark_harness(pattern));
        }
    }

    /// Replaces the function that comes before calls.
    pub(crate) fn before_calls(&self, before: Option<Before>) {
        *lock(&self.before) = before;
        self.has_before.store(before.is_some(), Ordering::Release);
    }

    /// Runs the function that comes before calls, unless this call comes from it.
    pub(crate) fn begin_call(&self) {
        if !self.has_before.load(Ordering::Acquire) || BEFORE.get() {
            return;
        }
        let Some(Before { code, user }) = *lock(&self.before) else { return };
        BEFORE.set(true);
        // SAFETY: `ptsan_before_calls` was promised that the function may be called so.
        unsafe { code(user) };
        BEFORE.set(false);
    }

    /// Returns the number of the CPU that an argument means.
    pub(crate) fn cpu(&self, cpu: i32) -> Result<usize, Refusal> {
        match usize::try_from(cpu) {
            Ok(cpu) => Ok(cpu),
            Err(_) if cpu == PTSAN_THIS_CPU => Ok(self.threads.here()),
            Err(_) => Err(Refusal::argument(format!(
                "CPU {cpu}; count from 0, or give PTSAN_THIS_CPU, or for a flush PTSAN_EVERY_CPU"
            ))),
        }
    }

    /// Keeps an operation under way and returns its number, which is never 0.
    pub(crate) fn keep(&self, operation: InTrees) -> u64 {
        let (last, open) = &mut *lock(&self.operations);
        *last += 1;
        open.insert(*last, operation);
        *last
    }

    /// Returns the operation with the number, which ends.
    pub(crate) fn take(&self, number: u64) -> Result<InTrees, Refusal> {
        let operation = lock(&self.operations).1.remove(&number);
        operation.ok_or_else(|| Refusal::argument(format!("operation {number} is not under way")))
    }

    /// Ends the run, once.
    pub(crate) fn finish(&self) {
        if !self.finished.swap(true, Ordering::Relaxed) {
            self.check(|sanitizer, memory| sanitizer.finish_with(memory));
            // Both know the same tables: leaks are told once.
            self.check_upper(|sanitizer, memory| sanitizer.flushes_done(memory));
        }
    }

    /// Copies the note of the finding with this index, for as long as the machine lives.
    pub(crate) fn note(&self, index: (bool, usize), note: &str) -> *const c_char {
        lock(&self.notes).entry(index).or_insert_with(|| text::c_string(note)).as_ptr()
    }

    /// Counts a refused call.
    pub(crate) fn refuse(&self, text: &str) {
        error::remember(text);
        let mut refused = lock(&self.refused);
        refused.count += 1;
        if refused.count == 1 {
            refused.first = text.to_owned();
        }
    }

    /// Returns the number of refused calls.
    pub(crate) fn refused(&self) -> u64 {
        lock(&self.refused).count
    }

    /// Prints the report, and the refused calls.
    pub(crate) fn report(&self) -> String {
        let mut report = match &self.checker {
            Checker::Told(..) => self.print(ToString::to_string),
            Checker::Watched(watch) => watch.to_string(),
        };
        let refused = lock(&self.refused);
        match refused.count {
            0 => {}
            1 => report.push_str("\n\nptsan refused a call:"),
            many => report.push_str(&format!("\n\nptsan refused {many} calls, the first:")),
        }
        if refused.count > 0 {
            report.push_str(&text::wrapped(&refused.first));
        }
        report
    }
}
