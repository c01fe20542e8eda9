//! Defines the results of functions, and remembers the reason of a refused call.
use ptsan::Fault;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};

/// The result of functions that carried out the call. Errors are negative (`ptsan_error`), the
/// faults of an access positive (`ptsan_fault`).
pub const PTSAN_OK: i32 = 0;

/// The reason why a call was refused. A refused call has no other effect. `ptsan_last_error` says
/// more, and `ptsan_end` counts refused calls as findings.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PtsanError {
    /// The sanitizer is NULL, was destroyed, or never existed.
    NoSanitizer = -1,
    /// An argument has no meaning: a number of no enum, a pointer that must not be NULL, text that
    /// cannot be read.
    BadArgument = -2,
    /// A callback that reads memory called a function of this library.
    Reentered = -3,
    /// Internal error in ptsan. Please report it.
    Internal = -4,
    /// The operating system refused, or the sanitizer has no memory to watch.
    System = -5,
}

/// Why an access cannot be translated.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PtsanFault {
    /// An entry on the way is empty.
    NotPresent = 1,
    /// The page is mapped, but not for this access.
    Permission = 2,
    /// The page is mapped, and its access flag is clear (AArch64).
    NotAccessed = 3,
    /// Reserved bits are set in an entry on the way.
    Malformed = 4,
    /// A table on the way lies outside memory.
    OutsideMemory = 5,
    /// The page is not in the hash table (32-bit PowerPC).
    NotHashed = 6,
    /// The address is not canonical.
    NonCanonical = 7,
    /// The CPU does not exist or has no root loaded.
    NoRoot = 8,
}

/// Returns the result of an access that faults.
pub(crate) fn code_of(fault: Fault) -> i32 {
    let code = match fault {
        Fault::NotPresent { .. } => PtsanFault::NotPresent,
        Fault::Permission => PtsanFault::Permission,
        Fault::NotAccessed { .. } => PtsanFault::NotAccessed,
        Fault::Malformed { .. } => PtsanFault::Malformed,
        Fault::OutsideMemory { .. } => PtsanFault::OutsideMemory,
        Fault::NotHashed => PtsanFault::NotHashed,
        Fault::NonCanonical => PtsanFault::NonCanonical,
        Fault::NoRoot => PtsanFault::NoRoot,
    };
    code as i32
}

/// A refused call.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) code: PtsanError,
    pub(crate) why: String,
}

impl Refusal {
    /// Refuses an argument. `why` names the error and a legal argument.
    pub(crate) fn argument(why: impl Into<String>) -> Self {
        Self { code: PtsanError::BadArgument, why: why.into() }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Keeps the reason for `ptsan_last_error`.
pub(crate) fn remember(text: &str) {
    let text: Vec<u8> = text.bytes().filter(|&b| b != 0).collect();
    // A thread that ends has no use for it any more.
    let _ = LAST.try_with(|last| {
        if let (Ok(mut last), Ok(text)) = (last.try_borrow_mut(), CString::new(text)) {
            *last = text;
        }
    });
}

/// Returns a text about the last refused call of this thread: function, reason and correction. The
/// text is empty if no call was refused. It is never NULL, and valid until the next refused call of
/// this thread.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_last_error() -> *const c_char {
    const NOTHING: &CStr = c"";
    LAST.try_with(|last| last.try_borrow().map_or(NOTHING.as_ptr(), |last| last.as_ptr()))
        .unwrap_or(NOTHING.as_ptr())
}
