//! The end of a run.
use crate::handles::{self, Ptsan, call, hook};
use crate::machine::Machine;

/// The most that `ptsan_end` returns: shells give exit codes above 124 a meaning of their own.
const MOST: u64 = 100;

/// Ends the run: tables that were not freed are leaks, flushes that CPUs still owe are findings as
/// by `ptsan_flushes_done`, and the report lists suppressions that were not needed. Calls after the
/// first have no effect.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_finish(san: *mut Ptsan) -> i32 {
    hook("ptsan_finish", san, |machine| {
        machine.finish();
        Ok(())
    })
}

/// Ends a test: finishes the run, prints the report to standard error if there is anything to say,
/// and destroys the sanitizer.
///
/// Returns the number of findings and refused calls, at most 100, as the exit code of `main`. It is
/// 0 only if a sanitizer was there and has no finding.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_end(san: *mut Ptsan) -> i32 {
    let ended = call("ptsan_end", san, |machine| {
        machine.finish();
        let bad = machine.sum(|s| s.total()) + machine.refused();
        if bad > 0 || has_remarks(machine) {
            eprintln!("{}", machine.report());
        }
        Ok(bad)
    });
    match ended {
        Ok(bad) => {
            drop(handles::remove(san));
            bad.min(MOST) as i32
        }
        Err(_) => {
            eprintln!("ptsan_end: no report of sanitizer {san:p}; ptsan_last_error says why");
            1
        }
    }
}

/// Returns whether the report has remarks beside findings.
fn has_remarks(machine: &Machine) -> bool {
    machine.sum(|s| s.allowed()) > 0 || machine.check(|s, _| s.unused_suppressions().next().is_some())
}
