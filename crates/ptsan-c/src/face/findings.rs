//! Returns and prints the findings.
use crate::error::Refusal;
use crate::handles::{Ptsan, call};
use crate::text;
use ptsan::{Format, Kind};
use std::ffi::{CString, c_char};

/// The value of members of `ptsan_finding` that do not apply; and the answer of a refused call that
/// returns a number.
pub const PTSAN_NONE: u64 = u64::MAX;

/// How a report prints. The README of ptsan describes each.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PtsanFormat {
    /// Sentences within 80 columns.
    Text = 1,
    /// A line of at most 80 columns for each finding.
    Short = 2,
    /// Commands of GitHub Actions, which mark the innermost caller in the code under test.
    Github = 3,
    /// An object on a line for the run, and one for each finding.
    Json = 4,
}

impl PtsanFormat {
    fn from_number(number: u32) -> Result<Format, Refusal> {
        let names = [
            (Self::Text, Format::Text),
            (Self::Short, Format::Short),
            (Self::Github, Format::GitHub),
            (Self::Json, Format::Json),
        ];
        let format = names.into_iter().find(|(name, _)| *name as u32 == number);
        let unknown = || Refusal::argument(format!("no format has number {number}; see enum ptsan_format"));
        format.map(|(_, format)| format).ok_or_else(unknown)
    }
}

/// A finding: one for each cause, with its first place. The strings are the library's. `note` lives
/// until the sanitizer is destroyed, the others forever.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PtsanFinding {
    /// The name of the kind, such as "free-before-flush".
    pub kind: *const c_char,
    /// The name of the rule, such as "HeldInTlb", as lists of suppressions have it.
    pub rule: *const c_char,
    /// The sentence of the rule.
    pub text: *const c_char,
    /// Particulars of the first time, or "".
    pub note: *const c_char,
    /// The number of the call that found it first, counted from 1.
    pub event: u64,
    /// How often it was made: a loop that breaks a rule at many places is one finding.
    pub count: u64,
    /// How often it was made together with other findings of its cause, such as other kinds.
    pub total: u64,
    /// Physical address of the frame, or `PTSAN_NONE`.
    pub frame: u64,
    /// Virtual address, or `PTSAN_NONE`.
    pub va: u64,
    /// The address space, or `PTSAN_NONE`.
    pub space: u64,
    /// The CPU, or -1.
    pub cpu: i32,
    /// The level of the table, or -1.
    pub level: i32,
}

/// Returns the number of findings so far, repetitions included, or `PTSAN_NONE`.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_total(san: *mut Ptsan) -> u64 {
    number("ptsan_total", san, |machine| Ok(machine.sum(|s| s.total())))
}

/// Returns the number of findings of a kind so far, repetitions included, or `PTSAN_NONE`. `kind`
/// is a name, such as "stale-use"; one that does not exist is refused.
///
/// # Safety
/// `kind` is NULL, which is refused, or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ptsan_count(san: *mut Ptsan, kind: *const c_char) -> u64 {
    number("ptsan_count", san, |machine| {
        // SAFETY: the caller promises it.
        let name = unsafe { text::argument(kind, "the kind") }?;
        let kind = Kind::ALL.into_iter().find(|k| k.name() == name);
        let kind = kind.ok_or_else(|| Refusal::argument(format!("no kind `{name}`; see ptsan_kind_name")))?;
        Ok(machine.sum(|s| s.count(kind)))
    })
}

/// Returns the name of the kind of findings with this index, the worst first, or NULL after the
/// last. The string lives forever.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_kind_name(index: usize) -> *const c_char {
    Kind::ALL.get(index).map_or(std::ptr::null(), |kind| text::kind_name(*kind))
}

/// Returns the number of suppressed findings, which count nowhere else, or `PTSAN_NONE`.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_allowed(san: *mut Ptsan) -> u64 {
    number("ptsan_allowed", san, |machine| Ok(machine.sum(|s| s.allowed())))
}

/// Returns the number of refused calls, or `PTSAN_NONE`.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_refused(san: *mut Ptsan) -> u64 {
    number("ptsan_refused", san, |machine| Ok(machine.refused()))
}

/// Returns the number of tables that are allocated now, or `PTSAN_NONE`.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_live_tables(san: *mut Ptsan) -> u64 {
    number("ptsan_live_tables", san, |machine| Ok(machine.check(|s, _| s.live_tables())))
}

/// Returns the number of flushes that CPUs owed beyond `ptsan_options.debts`, which were not
/// checked, or `PTSAN_NONE`.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_debts_dropped(san: *mut Ptsan) -> u64 {
    number("ptsan_debts_dropped", san, |machine| Ok(machine.sum(|s| s.stats().debts_dropped)))
}

/// Writes the finding with this index, in the order in which they were made, to `*finding`. Returns
/// false after the last finding kept, or if the call is refused, and then leaves it alone:
/// `for (size_t i = 0; ptsan_finding_at(san, i, &finding); i++)`
///
/// # Safety
/// `finding` is NULL, which is refused, or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ptsan_finding_at(san: *mut Ptsan, index: usize, finding: *mut PtsanFinding) -> bool {
    let there = call("ptsan_finding_at", san, |machine| {
        if finding.is_null() {
            return Err(Refusal::argument("the place for the finding is NULL"));
        }
        // Does not store or print while the sanitizer is locked.
        let Some((found, index)) = machine.finding(index) else { return Ok(false) };
        let (kind, rule, place, event) = (found.kind, found.rule, found.place, found.event);
        let (count, total, note) = (found.count, found.total(), &found.note);
        let found = PtsanFinding {
            kind: text::kind_name(kind),
            rule: text::rule_name(rule),
            text: text::rule_text(rule),
            note: machine.note(index, note),
            event,
            count,
            total,
            frame: place.frame.unwrap_or(PTSAN_NONE),
            va: place.va.unwrap_or(PTSAN_NONE),
            space: place.space.unwrap_or(PTSAN_NONE),
            cpu: place.cpu.and_then(|cpu| i32::try_from(cpu).ok()).unwrap_or(-1),
            level: place.level.map_or(-1, i32::from),
        };
        // SAFETY: it is not NULL, and the caller promises the rest. No alignment is needed.
        unsafe { finding.write_unaligned(found) };
        Ok(true)
    });
    there.unwrap_or(false)
}

/// Prints the finding with this index: kind, place, history of the frame, callers. Returns a string
/// for `ptsan_free_text`, or NULL as `ptsan_finding_at` returns false.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_finding_text(san: *mut Ptsan, index: usize) -> *mut c_char {
    let printed = call("ptsan_finding_text", san, |machine| {
        Ok(machine.finding(index).map(|(finding, _)| finding.to_string()))
    });
    handed_over(printed.ok().flatten())
}

/// Prints the report: counts, all findings kept, and the refused calls. The environment variable
/// `PTSAN_FORMAT` chooses the format of the findings; the rest of the report is text. Returns a
/// string for `ptsan_free_text`, or NULL if the call is refused.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_report(san: *mut Ptsan) -> *mut c_char {
    handed_over(call("ptsan_report", san, |machine| Ok(machine.report())).ok())
}

/// Prints the findings in a format, an `enum ptsan_format`, whatever the environment variable
/// `PTSAN_FORMAT` says. Refused calls are not in it: see `ptsan_refused`. Returns a string for
/// `ptsan_free_text`, or NULL if the call is refused.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_report_as(san: *mut Ptsan, format: u32) -> *mut c_char {
    let printed = call("ptsan_report_as", san, |machine| {
        let format = PtsanFormat::from_number(format)?;
        Ok(machine.print(|s| s.report_as(format).to_string()))
    });
    handed_over(printed.ok())
}

/// Prints the counts of the findings in one sentence, and how to repeat the run if an adversary
/// took part. Returns a string for `ptsan_free_text`, or NULL if the call is refused.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_summary(san: *mut Ptsan) -> *mut c_char {
    handed_over(call("ptsan_summary", san, |machine| Ok(machine.print(|s| s.summary().to_string()))).ok())
}

/// Frees a string that this library gave for it. NULL is legal.
///
/// # Safety
/// `text` is NULL or came from a function that names this one, and was not freed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ptsan_free_text(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: `handed_over` made it by `into_raw`, and the caller promises the rest.
        drop(unsafe { CString::from_raw(text) });
    }
}

fn handed_over(text: Option<String>) -> *mut c_char {
    text.map_or(std::ptr::null_mut(), |text| text::c_string(&text).into_raw())
}

fn number(
    name: &str,
    san: *mut Ptsan,
    body: impl FnOnce(&crate::machine::Machine) -> Result<u64, Refusal>,
) -> u64 {
    call(name, san, body).unwrap_or(PTSAN_NONE)
}
