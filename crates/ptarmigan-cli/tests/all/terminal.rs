//! The program on terminals: narrow ones, ones without colour.
#![cfg(target_os = "linux")]
use crate::program::program;
use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};

/// Runs the program on a terminal of so many columns. Returns its exit code and its output.
fn on_terminal(columns: u16, args: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String) {
    let (mut master, mut slave) = (-1, -1);
    let size = libc::winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the first two pointers are to integers of ours; the others are null or to `size`, and
    // are read during the call only.
    let opened =
        unsafe { libc::openpty(&mut master, &mut slave, std::ptr::null_mut(), std::ptr::null(), &size) };
    assert_eq!(opened, 0, "a terminal");
    // SAFETY: both are open, and nobody else owns them.
    let (mut screen, terminal) = unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
    let mut command = program(args);
    command.env_remove("NO_COLOR").env("TERM", "xterm").envs(environment.iter().copied());
    command
        .stdin(terminal.try_clone().expect("a terminal"))
        .stdout(terminal.try_clone().expect("a terminal"));
    command.stderr(terminal);
    let mut child = command.spawn().expect("the program is there");
    // Its copies of the terminal go, so that reading ends when the program does.
    drop(command);
    let mut shown = Vec::new();
    let mut some = [0; 4096];
    // The end of a terminal is an error.
    while let Ok(n @ 1..) = screen.read(&mut some) {
        shown.extend_from_slice(&some[..n]);
    }
    let status = child.wait().expect("it ends").code();
    (status, String::from_utf8_lossy(&shown).replace("\r\n", "\n"))
}

const RUNS: [&[&str]; 6] = [
    &["replay", "fixture", "--counters", "--sanitize", "--policy", "ptarmigan"],
    &["inspect", "fixture"],
    &["inspect", "fixture", "--events"],
    &["bench", "faults", "--rounds", "1"],
    &["replay", "--help"],
    &["advise", "fixture", "--rounds", "3"],
];

#[test]
fn reports_fit_40_columns() {
    for args in [RUNS[0], RUNS[1], RUNS[3], RUNS[5]] {
        let (status, shown) = on_terminal(40, args, &[("NO_COLOR", "1")]);
        assert_eq!(status, Some(0), "{args:?}: {shown}");
        // The text behind a carriage return is a progress bar, which takes itself away.
        let report = shown.lines().filter(|line| !line.contains(['\r', '\x1b']));
        for line in report {
            assert!(line.chars().count() <= 40, "{args:?}: {line}\n{shown}");
        }
    }
}

#[test]
fn help_wraps_at_40_columns() {
    let (status, shown) = on_terminal(40, &["replay", "--help"], &[("NO_COLOR", "1")]);
    assert_eq!(status, Some(0));
    // The parser breaks every line but this one.
    let lines = shown.lines().filter(|line| !line.starts_with("Usage: "));
    let long = lines.filter(|line| line.chars().count() > 40 && line.trim().contains(' '));
    assert_eq!(long.collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn a_terminal_of_20_columns_or_fewer_makes_nothing_panic() {
    for columns in [20, 7, 1, 0] {
        for args in RUNS {
            let (status, shown) = on_terminal(columns, args, &[]);
            assert_eq!(status, Some(0), "{columns} {args:?}: {shown}");
            assert!(!shown.contains("panicked"), "{columns} {args:?}: {shown}");
        }
    }
}

#[test]
fn colour_is_for_terminals_that_want_it() {
    let bad = ["inspect", "nowhere.ptrace"];
    let red = "\x1b[1;31mptarmigan:\x1b[0m ";
    let (status, shown) = on_terminal(80, &bad, &[]);
    assert!(status == Some(1) && shown.starts_with(red), "{shown:?}");
    for plain in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let (_, shown) = on_terminal(80, &bad, &[plain]);
        assert!(shown.starts_with("ptarmigan: "), "{plain:?}: {shown:?}");
    }
    let (_, shown) = on_terminal(80, &bad, &[("NO_COLOR", "")]);
    assert!(shown.starts_with(red), "an empty NO_COLOR counts as none: {shown:?}");
}

#[test]
fn a_trace_is_not_awaited_from_a_terminal() {
    let (status, shown) = on_terminal(80, &["inspect", "-"], &[("NO_COLOR", "1")]);
    assert_eq!(status, Some(1));
    assert!(shown.contains("standard input: cannot be read: a terminal; give a trace"), "{shown}");
}
