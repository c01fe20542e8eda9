//! Runs functions of a test at calls to an MMU.
use super::call::Call;
use super::lock;
use ptarmigan::cpu::Pinned;
use std::sync::{Arc, Mutex};

/// A function for every call.
type Each<'h> = Arc<dyn Fn(&Pinned<'_>, &Call) + Send + Sync + 'h>;

/// A function for one call, and the calls that it may be.
struct Next<'h> {
    which: Box<dyn Fn(&Call) -> bool + Send + 'h>,
    hook: Box<dyn FnOnce(&Pinned<'_>) + Send + 'h>,
}

/// The functions for one moment of calls. They run without a lock, so that they may set others and
/// make calls that lead here.
#[derive(Default)]
pub(super) struct Hooks<'h> {
    each: Mutex<Option<Each<'h>>>,
    next: Mutex<Option<Next<'h>>>,
}

impl<'h> Hooks<'h> {
    pub fn set_each(&self, hook: impl Fn(&Pinned<'_>, &Call) + Send + Sync + 'h) {
        *lock(&self.each) = Some(Arc::new(hook));
    }

    pub fn set_next(
        &self,
        which: impl Fn(&Call) -> bool + Send + 'h,
        hook: impl FnOnce(&Pinned<'_>) + Send + 'h,
    ) {
        *lock(&self.next) = Some(Next { which: Box::new(which), hook: Box::new(hook) });
    }

    pub fn clear(&self) {
        *lock(&self.each) = None;
        *lock(&self.next) = None;
    }

    pub fn run(&self, pin: &Pinned<'_>, call: &Call) {
        let each = lock(&self.each).clone();
        if let Some(each) = each {
            each(pin, call);
        }
        let next = lock(&self.next).take_if(|next| (next.which)(call));
        if let Some(next) = next {
            (next.hook)(pin);
        }
    }
}
