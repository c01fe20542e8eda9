//! Numbers of signals, as Linux has them on x86.

/// Signals are numbered from 1 to this.
pub const SIGNALS: usize = 64;

/// Returns the bit of a signal; 0 if there is no such signal.
pub const fn bit(signal: u8) -> u64 {
    if signal == 0 || signal as usize > SIGNALS { 0 } else { 1 << (signal - 1) }
}

macro_rules! signals {
    ($($name:ident = $number:literal, $what:literal;)*) => {
        $(#[doc = $what] pub const $name: u8 = $number;)*
    };
}

signals! {
    SIGINT = 2, "Interrupted from the terminal.";
    SIGQUIT = 3, "Ended from the terminal.";
    SIGILL = 4, "Not an instruction.";
    SIGTRAP = 5, "A breakpoint.";
    SIGABRT = 6, "The program gave up.";
    SIGBUS = 7, "Beyond the end of what is mapped.";
    SIGFPE = 8, "A division, or a number that is none.";
    SIGKILL = 9, "The end.";
    SIGSEGV = 11, "An access that is not allowed.";
    SIGPIPE = 13, "Nobody reads the pipe.";
    SIGALRM = 14, "The time of a timer has come.";
    SIGTERM = 15, "A request to end.";
    SIGCHLD = 17, "A child has ended.";
    SIGCONT = 18, "Go on.";
    SIGSTOP = 19, "Stop.";
    SIGTSTP = 20, "Stopped from the terminal.";
    SIGTTIN = 21, "Reads from the terminal in the background.";
    SIGTTOU = 22, "Writes to the terminal in the background.";
    SIGURG = 23, "Urgent data.";
    SIGXCPU = 24, "The process has used its CPU as long as it may.";
    SIGXFSZ = 25, "A file would be longer than it may be.";
    SIGVTALRM = 26, "The process has used its CPU so long.";
    SIGPROF = 27, "The process has used its CPU so long, the kernel's share included.";
    SIGWINCH = 28, "The terminal's size has changed.";
}

/// Whether a signal has no effect unless the program asks for it. Tasks are never stopped, so
/// signals that stop tasks have no effect either.
pub const fn is_ignored_by_default(signal: u8) -> bool {
    matches!(signal, SIGCHLD | SIGCONT | SIGSTOP | SIGTSTP | SIGTTIN | SIGTTOU | SIGURG | SIGWINCH)
}
