//! Writes logs, and runs the command on them.
#![allow(dead_code, reason = "each test file uses a part")]
use ptsan_log::{Encoder, Header, Record, Scope, Written};
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

/// The bytes of a log with these records.
pub fn log(header: &Header, records: &[Record<'_>]) -> Vec<u8> {
    let mut log = Encoder::new(Written(Vec::new()), header).unwrap();
    for (n, record) in records.iter().enumerate() {
        log.record_at(0xffff_8000_0010_0000 + n as u64, record).unwrap();
    }
    log.end(true).unwrap();
    log.into_sink().0
}

/// An invalidation of links and pages, by an instruction that names no level.
pub fn invalidate(cpu: Option<u16>, scope: Scope) -> Record<'static> {
    Record::Invalidate { cpu, scope, leaf_only: false, level: None, exception_level: None }
}

/// The same in the queue of a device.
pub fn queued(device: u16, scope: Scope) -> Record<'static> {
    Record::FlushQueued { device, scope, leaf_only: false, level: None, exception_level: None }
}

/// Runs `ptsan` with a log as standard input.
pub fn ptsan(arguments: &[&str], log: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ptsan"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that ends before it has read everything is part of some tests.
    let _ = child.stdin.take().unwrap().write_all(log);
    child.wait_with_output().unwrap()
}

/// Replays; returns the exit status and the output.
pub fn replay(log: &[u8], arguments: &[&str]) -> (i32, String) {
    let output = ptsan(&[&["replay", "-"], arguments].concat(), log);
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    assert!(!text.contains("panicked"), "{text}");
    (output.status.code().unwrap(), text)
}
