//! Prints on the serial port, and ends the run.
//!
//! ```text
//!  use_board   BOARD = board, release ──> line: acquire
//!  line        PRINTING: swap(true) ── one line ── store(false)
//!  fail        ENDING: swap(true) ── first: prints without the lock ──> exit(false)
//!                                 └─ others: forever
//! ```
//!
//! # Why
//!
//! Lines of several CPUs must not mix, because a program reads them to judge the run. A failure
//! does not take the lock: it may come in the middle of a line, on the CPU that holds it, and would
//! wait for itself. It is printed once, so that a panic in the report of a panic ends the machine,
//! and does not report itself.

use core::fmt::{self, Display, Write};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// The console and the exit of a machine.
pub struct BoardOutput {
    /// Sends a byte on the serial port.
    pub put: fn(u8),
    /// Ends the machine; `true` if every check held.
    pub exit: fn(bool) -> !,
}

static BOARD: AtomicPtr<BoardOutput> = AtomicPtr::new(ptr::null_mut());
/// A line is being printed.
static PRINTING: AtomicBool = AtomicBool::new(false);
static ENDING: AtomicBool = AtomicBool::new(false);

/// Has lines printed on a board from here on.
pub fn use_board(board: &'static BoardOutput) {
    BOARD.store(ptr::from_ref(board).cast_mut(), Ordering::Release);
}

fn board() -> Option<&'static BoardOutput> {
    // SAFETY: it is null, or `use_board` stored a reference that is valid for good.
    unsafe { BOARD.load(Ordering::Acquire).as_ref() }
}

struct BoardWriter<'a>(&'a BoardOutput);

impl Write for BoardWriter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(self.0.put);
        Ok(())
    }
}

fn print(text: fmt::Arguments<'_>) {
    let Some(board) = board() else { return };
    // The port cannot fail.
    let _ = BoardWriter(board).write_fmt(text);
    (board.put)(b'\n');
}

/// Prints a line as a whole. Interrupt handlers print only the last line of a run.
pub fn line(text: fmt::Arguments<'_>) {
    while PRINTING.swap(true, Ordering::Acquire) {
        ptarmigan::sync::spin();
    }
    print(text);
    PRINTING.store(false, Ordering::Release);
}

/// Prints a line on the serial port.
#[macro_export]
macro_rules! say {
    ($($argument:tt)*) => { $crate::board::line(::core::format_args!($($argument)*)) };
}

fn end(passed: bool) -> ! {
    if let Some(board) = board() {
        (board.exit)(passed);
    }
    forever()
}

/// Ends a run in which every check held.
pub fn pass() -> ! {
    say!("PASS");
    end(true)
}

/// Ends a run that has failed: says why, once, although the port may be in use.
pub fn fail(why: fmt::Arguments<'_>) -> ! {
    if !ENDING.swap(true, Ordering::Relaxed) {
        print(format_args!("FAIL {why}"));
        end(false);
    }
    // Another CPU ends the machine, or reporting has failed itself.
    forever()
}

/// Ends a run that has failed if `fails`.
pub fn fail_if(fails: bool, why: fmt::Arguments<'_>) {
    if fails {
        fail(why);
    }
}

/// Returns the value of a result; ends the run if there is none.
pub fn must<R, E: Display>(what: &str, result: Result<R, E>) -> R {
    result.unwrap_or_else(|e| fail(format_args!("{what}: {e}")))
}

/// Does nothing for ever: the machine is about to end.
pub fn forever() -> ! {
    loop {
        ptarmigan::sync::spin();
    }
}

/// Defines the image's handler of panics.
#[macro_export]
macro_rules! panic_handler {
    () => {
        #[panic_handler]
        fn panic(info: &::core::panic::PanicInfo<'_>) -> ! {
            $crate::fail(::core::format_args!("{info}"))
        }
    };
}

/// The error of a run that has ended, which no code sees: an error of any type becomes one by
/// ending the run.
#[derive(Debug)]
pub enum Failed {}

impl<E: Display> From<E> for Failed {
    fn from(e: E) -> Self {
        fail(format_args!("{e}"))
    }
}
