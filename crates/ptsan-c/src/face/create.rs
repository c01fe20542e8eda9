//! Creating and destroying sanitizers.
use crate::error::{PtsanError, Refusal};
use crate::handles::{self, Ptsan, answer, guarded};
use crate::machine::{Checker, Machine};
use crate::options::PtsanOptions;
use crate::source::{PtsanRead, Source};
use ptsan::watch::{self, Watch};
use ptsan::{Config, Sanitizer, Shared};
use std::ffi::c_void;

/// Creates a sanitizer that reads tables from the program's memory: `bytes` bytes at `base`, whose
/// first has physical address `start`. `base` and `start` are multiples of 8.
///
/// Returns NULL if it cannot (`ptsan_last_error`). The caller ends it with `ptsan_end` or
/// `ptsan_destroy`.
///
/// # Safety
/// 1. `options` is NULL, which is refused, or points at options that stay as they are during the
///    call.
/// 2. The memory is readable, on every thread, until the sanitizer is gone, and with
///    `PTSAN_FLAG_WALKERS_SET_BITS` writable. Entries are stored in one piece.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ptsan_new(
    options: *const PtsanOptions,
    base: *const c_void,
    bytes: usize,
    start: u64,
) -> *mut Ptsan {
    create("ptsan_new", || {
        // SAFETY: points 1 and 2.
        let (options, source) = unsafe { (read(options)?, Source::direct(base, bytes, start)?) };
        // SAFETY: point 1.
        Ok(told(unsafe { options.config() }?, source, options.both_trees()))
    })
}

/// Creates a sanitizer that reads tables by calling `read` with `user`. Otherwise as `ptsan_new`.
///
/// # Safety
/// 1. As point 1 of `ptsan_new`.
/// 2. `read` is NULL, which is refused, or keeps to `ptsan_read`, until the sanitizer is gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ptsan_new_reading(
    options: *const PtsanOptions,
    read: PtsanRead,
    user: *mut c_void,
) -> *mut Ptsan {
    create("ptsan_new_reading", || {
        // SAFETY: points 1 and 2.
        let (options, source) = unsafe { (self::read(options)?, Source::callback(read, user)?) };
        // SAFETY: point 1.
        Ok(told(unsafe { options.config() }?, source, options.both_trees()))
    })
}

/// Creates a sanitizer with memory of its own in which it sees every store: `bytes` bytes of zero,
/// rounded up to pages of 4096. The first has physical address `start`, a multiple of 4096. See
/// `ptsan_watch_run`. Otherwise as `ptsan_new`.
///
/// It needs Linux on x86-64 and returns NULL elsewhere. It takes the signals SIGSEGV and SIGTRAP,
/// and passes on those that are not its own.
///
/// # Safety
/// As point 1 of `ptsan_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ptsan_watch_new(
    options: *const PtsanOptions,
    bytes: usize,
    start: u64,
) -> *mut Ptsan {
    create("ptsan_watch_new", || {
        // SAFETY: point 1.
        let config = unsafe { one_tree(read(options)?)?.config() }?;
        watched(config, |sanitizer| Watch::with_start(start, bytes, sanitizer))
    })
}

/// Does the same as `ptsan_watch_new`, with memory that is mapped one to one: the address of each
/// byte is its physical address (`ptsan_watch_base`). A kernel that takes physical addresses for
/// pointers, as under an identity map, runs as it is. See `ptsan_watch_run_on`.
///
/// `start` is a multiple of 4096; it fails if these addresses are in use. 0 chooses the lowest
/// multiple of 4 GiB that is free, the same in each run.
///
/// # Safety
/// As point 1 of `ptsan_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ptsan_watch_new_identity(
    options: *const PtsanOptions,
    bytes: usize,
    start: u64,
) -> *mut Ptsan {
    create("ptsan_watch_new_identity", || {
        // SAFETY: point 1.
        let config = unsafe { one_tree(read(options)?)?.config() }?;
        watched(config, |sanitizer| match start {
            0 => Watch::identity(bytes, sanitizer),
            start => Watch::identity_at(start, bytes, sanitizer),
        })
    })
}

/// Destroys a sanitizer without a report. `ptsan_end` is for the end of a test.
///
/// NULL is legal. Destroying twice, or using it afterwards, is `PTSAN_ERROR_NO_SANITIZER`. Calls
/// that other threads are in go on; the memory that the sanitizer reads must stay until these have
/// returned, and the memory of a watch stays as long.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_destroy(san: *mut Ptsan) -> i32 {
    let gone = guarded("ptsan_destroy", || {
        Machine::is_free()?;
        if san.is_null() || handles::remove(san).is_some() {
            return Ok(0);
        }
        let why = format!("there is no sanitizer {san:p}; was it destroyed?");
        Err(Refusal { code: PtsanError::NoSanitizer, why })
    });
    answer(gone.map_err(|refusal| refusal.code))
}

fn create(name: &str, make: impl FnOnce() -> Result<Machine, Refusal>) -> *mut Ptsan {
    let made = guarded(name, || {
        Machine::is_free()?;
        Ok(handles::add(make()?))
    });
    made.unwrap_or(std::ptr::null_mut())
}

/// Returns whether it matters which CPU carries out a store.
const fn asks_who_stores(config: &Config) -> bool {
    config.barriers || config.accessed_dirty
}

fn told(config: Config, source: Source, both_trees: bool) -> Machine {
    let asks = asks_who_stores(&config);
    let upper =
        both_trees.then(|| Shared::new(Config { arch: config.arch.clone().upper(), ..config.clone() }));
    let machine = Machine::new(Checker::Told(Shared::new(config), source), asks);
    match upper {
        Some(upper) => machine.with_upper(upper),
        None => machine,
    }
}

/// Refuses both trees where a watch has one sanitizer.
fn one_tree(options: &PtsanOptions) -> Result<&PtsanOptions, Refusal> {
    if options.both_trees() {
        return Err(Refusal::argument("watched memory has one tree; drop PTSAN_FLAG_BOTH_TREES"));
    }
    Ok(options)
}

fn watched(
    config: Config,
    make: impl FnOnce(Sanitizer) -> Result<Watch, watch::Error>,
) -> Result<Machine, Refusal> {
    let asks = asks_who_stores(&config);
    let watch = make(Sanitizer::new(config)).map_err(super::watch::refusal)?;
    Ok(Machine::new(Checker::Watched(watch), asks))
}

/// # Safety
/// `options` is NULL or points at options, also those that they point at, that stay for `'a`.
unsafe fn read<'a>(options: *const PtsanOptions) -> Result<&'a PtsanOptions, Refusal> {
    let why = "the options are NULL; give at least a format in `arch`";
    // SAFETY: the caller promises it.
    unsafe { options.as_ref() }.ok_or_else(|| Refusal::argument(why))
}
