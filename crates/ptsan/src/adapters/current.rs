//! The machine for static hooks, which have no argument to carry one.
use super::machine::Machine;
use std::cell::RefCell;
use std::marker::PhantomData;

thread_local! {
    static ENTERED: RefCell<Vec<Machine>> = const { RefCell::new(Vec::new()) };
}

/// Makes its machine the thread's current one while it lives. Created by [`Machine::enter`].
#[must_use = "the machine is current only while this lives"]
#[derive(Debug)]
pub struct Current {
    /// Binds it to the thread that made it.
    thread: PhantomData<*const ()>,
}

impl Machine {
    /// Makes this the machine on which the static hooks of the adapters work on this thread. Drop
    /// the guards in the reverse order of their creation.
    pub fn enter(&self) -> Current {
        ENTERED.with_borrow_mut(|entered| entered.push(self.clone()));
        Current { thread: PhantomData }
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        // A thread that is ending has lost its list and needs it no more.
        let _ = ENTERED.try_with(|entered| entered.borrow_mut().pop());
    }
}

/// Returns the thread's current machine.
///
/// # Panics
/// Panics without a current machine: the hooks that ask have no way to return an error.
#[must_use]
pub fn current() -> Machine {
    match ENTERED.with_borrow(|entered| entered.last().cloned()) {
        Some(machine) => machine,
        None => panic!("no machine is current on this thread; call Machine::enter and keep what it returns"),
    }
}
