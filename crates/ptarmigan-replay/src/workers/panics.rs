//! Turns panics of replayed code into messages, for the one line that the replay ends with.
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// How many calls of [`caught`] this thread is in.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// The message of this thread's last panic in one of them.
    static MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs `body`. A panic is not printed. The caller must not use values that `body` was changing
/// when it panicked.
///
/// # Errors
/// The panic's message, and the place of the panic.
pub fn caught<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    static ONCE: Once = Once::new();
    ONCE.call_once(keep_messages);
    DEPTH.set(DEPTH.get() + 1);
    let done = catch_unwind(AssertUnwindSafe(body));
    DEPTH.set(DEPTH.get() - 1);
    done.map_err(|_| MESSAGE.take())
}

/// Has the messages of panics kept instead of printed, in threads that run [`caught`].
fn keep_messages() {
    let before = take_hook();
    set_hook(Box::new(move |info| {
        if DEPTH.get() == 0 {
            return before(info);
        }
        let payload = info.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let why = text.or(payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic");
        let place = info.location().map_or(String::new(), |at| format!(" ({}:{})", at.file(), at.line()));
        MESSAGE.set(format!("{why}{place}"));
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inner_panic_leaves_the_outer_body_running() {
        let done = caught(|| {
            let inner = caught(|| panic!("the inner one"));
            assert!(inner.is_err_and(|why| why.starts_with("the inner one (") && why.contains("panics.rs:")));
            7
        });
        assert_eq!(done, Ok(7));
        assert!(caught(|| std::panic::panic_any(1)).is_err_and(|why| why.starts_with("a panic")));
    }
}
