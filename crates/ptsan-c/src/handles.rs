//! Names sanitizers for C, and does the common work of all functions.
//!
//! A handle is a number that is never used twice, in the shape of a pointer. The library never
//! reads through it, so a stale or invented one is an error and not undefined behaviour.
use crate::error::{self, PTSAN_OK, PtsanError, Refusal};
use crate::machine::Machine;
use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// A sanitizer. Programs only have pointers to it, which they must not look behind.
#[derive(Debug)]
pub struct Ptsan {
    _private: (),
}

static MACHINES: RwLock<BTreeMap<usize, Arc<Machine>>> = RwLock::new(BTreeMap::new());
/// Looks like the address of something aligned.
const STEP: usize = 16;

/// Gives a machine a name.
pub(crate) fn add(machine: Machine) -> *mut Ptsan {
    static NEXT: AtomicUsize = AtomicUsize::new(STEP);
    let name = NEXT.fetch_add(STEP, Ordering::Relaxed);
    MACHINES.write().unwrap_or_else(PoisonError::into_inner).insert(name, Arc::new(machine));
    std::ptr::without_provenance_mut(name)
}

/// Takes the name away. The machine goes when the last call that uses it returns.
pub(crate) fn remove(san: *const Ptsan) -> Option<Arc<Machine>> {
    MACHINES.write().unwrap_or_else(PoisonError::into_inner).remove(&san.addr())
}

fn find(san: *const Ptsan) -> Result<Arc<Machine>, Refusal> {
    if san.is_null() {
        let why = "the sanitizer is NULL; was it created?".to_owned();
        return Err(Refusal { code: PtsanError::NoSanitizer, why });
    }
    let machines = MACHINES.read().unwrap_or_else(PoisonError::into_inner);
    machines.get(&san.addr()).cloned().ok_or_else(|| Refusal {
        code: PtsanError::NoSanitizer,
        why: format!("there is no sanitizer {san:p}; was it destroyed?"),
    })
}

/// Runs the body of a function: no panic leaves it, and a refusal is remembered under `name`.
pub(crate) fn guarded<R>(name: &str, body: impl FnOnce() -> Result<R, Refusal>) -> Result<R, Refusal> {
    let refusal = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(result)) => return Ok(result),
        Ok(Err(refusal)) => refusal,
        Err(panic) => Refusal { code: PtsanError::Internal, why: message(panic.as_ref()) },
    };
    let refusal = Refusal { why: format!("{name}: {}", refusal.why), ..refusal };
    error::remember(&refusal.why);
    Err(refusal)
}

/// Runs the body of a function of a sanitizer, as [`guarded`]. Its report lists the refusal.
pub(crate) fn call<R>(
    name: &str,
    san: *const Ptsan,
    body: impl FnOnce(&Machine) -> Result<R, Refusal>,
) -> Result<R, PtsanError> {
    call_alone(name, san, |machine| {
        machine.begin_call();
        body(machine)
    })
}

/// Does the same as [`call`] without the function of the program that comes before calls.
pub(crate) fn call_alone<R>(
    name: &str,
    san: *const Ptsan,
    body: impl FnOnce(&Machine) -> Result<R, Refusal>,
) -> Result<R, PtsanError> {
    let machine = guarded(name, || find(san)).map_err(|refusal| refusal.code)?;
    guarded(name, || Machine::is_free().and_then(|()| body(&machine))).map_err(|refusal| {
        machine.refuse(&refusal.why);
        refusal.code
    })
}

/// Runs the body of a hook, as [`call`], and returns the result for C.
pub(crate) fn hook(name: &str, san: *const Ptsan, body: impl FnOnce(&Machine) -> Result<(), Refusal>) -> i32 {
    answer(call(name, san, |machine| body(machine).map(|()| PTSAN_OK)))
}

/// Returns the result of a call for C.
pub(crate) fn answer(result: Result<i32, PtsanError>) -> i32 {
    result.unwrap_or_else(|code| code as i32)
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    format!("the sanitizer failed inside: {text}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Checker;
    use crate::source::Source;
    use ptsan::{Arch, Config, Shared};

    fn machine() -> Machine {
        // SAFETY: the memory is constant.
        let source = unsafe { Source::direct((&raw const MEMORY).cast(), 8, 0) }.unwrap();
        Machine::new(Checker::Told(Shared::new(Config::new(Arch::x86_64())), source), false)
    }
    static MEMORY: u64 = 0;

    #[test]
    fn a_name_is_not_used_again() {
        let first = add(machine());
        assert_eq!(hook("f", first, |_| Ok(())), PTSAN_OK);
        assert!(remove(first).is_some() && remove(first).is_none());
        let second = add(machine());
        assert_ne!(first, second);
        assert_eq!(hook("f", first, |_| Ok(())), PtsanError::NoSanitizer as i32);
        assert!(remove(second).is_some());
    }

    #[test]
    fn a_panic_is_an_error_and_leaves_the_sanitizer_usable() {
        let san = add(machine());
        let got = hook("f", san, |m| m.check(|_, _| panic!("as the test wants it")));
        assert_eq!(got, PtsanError::Internal as i32);
        assert_eq!(
            hook("f", san, |m| m.check(|s, _| {
                s.finish();
                Ok(())
            })),
            PTSAN_OK
        );
        let machine = remove(san).unwrap();
        assert_eq!(machine.refused(), 1);
        assert!(machine.report().contains("f: the sanitizer failed inside: as the test wants it"));
    }
}
