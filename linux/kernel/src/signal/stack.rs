//! Stacks of their own for handlers of signals (`sigaltstack`).

use crate::errno::Errno;

/// `SS_ONSTACK`: the task runs on it.
const ONSTACK: u32 = 1;
/// `SS_DISABLE`: no such stack.
const DISABLE: u32 = 2;
/// `SS_AUTODISARM`: the stack is disabled while a handler runs on it.
const AUTODISARM: u32 = 1 << 31;

/// A stack for handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalStack {
    /// Its lowest address.
    pub at: u64,
    /// Its bytes; 0 without a stack.
    pub size: u64,
    /// `SS_` flags, as a program set them.
    pub flags: u32,
}

impl SignalStack {
    /// No stack.
    pub const NONE: SignalStack = SignalStack { at: 0, size: 0, flags: DISABLE };

    /// Whether a task whose stack pointer is `stack` runs on it.
    pub const fn holds(&self, stack: u64) -> bool {
        self.flags & AUTODISARM == 0 && stack > self.at && stack - self.at <= self.size
    }

    /// Returns the flags that `sigaltstack` tells.
    pub const fn flags_at(&self, stack: u64) -> u32 {
        let mode = if self.size == 0 {
            DISABLE
        } else if self.holds(stack) {
            ONSTACK
        } else {
            0
        };
        mode | self.flags & AUTODISARM
    }

    /// Returns where a handler that wants the stack begins; `None` without a stack, or if the task
    /// runs on it already.
    pub const fn top(&self, stack: u64) -> Option<u64> {
        if self.size == 0 || self.holds(stack) { None } else { Some(self.at.wrapping_add(self.size)) }
    }

    /// Returns the setting while a handler runs.
    pub const fn in_handler(self) -> Self {
        if self.flags & AUTODISARM != 0 { SignalStack::NONE } else { self }
    }

    /// Makes it another one, for a task whose stack pointer is `stack`. It has to have `least`
    /// bytes.
    ///
    /// # Errors
    ///
    /// [`Errno::EPERM`] if the task runs on it, [`Errno::EINVAL`] for flags that there are not,
    /// [`Errno::ENOMEM`] if the new one is too small for a handler.
    pub fn set(&mut self, new: SignalStack, stack: u64, least: u64) -> Result<(), Errno> {
        Errno::EPERM.when(self.holds(stack))?;
        match new.flags & !AUTODISARM {
            DISABLE => *self = SignalStack { at: 0, size: 0, flags: new.flags },
            0 | ONSTACK if new.size < least => return Err(Errno::ENOMEM),
            0 | ONSTACK => *self = new,
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: u64 = 2048;

    #[test]
    fn a_stack_is_set_and_told_and_not_changed_while_it_is_used() {
        let mut stack = SignalStack::NONE;
        assert_eq!((stack.flags_at(5), stack.top(5)), (DISABLE, None));
        let new = SignalStack { at: 0x1000, size: 0x2000, flags: 0 };
        assert_eq!(stack.set(SignalStack { size: LEAST - 1, ..new }, 5, LEAST), Err(Errno::ENOMEM));
        assert_eq!(stack.set(SignalStack { flags: 4, ..new }, 5, LEAST), Err(Errno::EINVAL));
        assert_eq!(stack, SignalStack::NONE);
        assert_eq!(stack.set(new, 5, LEAST), Ok(()));
        assert_eq!((stack.flags_at(5), stack.top(5)), (0, Some(0x3000)));
        // From the first byte below its end to the last one that is in use.
        for (at, on) in [(0x1000, false), (0x1001, true), (0x3000, true), (0x3001, false)] {
            assert_eq!((stack.holds(at), stack.flags_at(at)), (on, u32::from(on)), "{at:x}");
            assert_eq!(stack.top(at), (!on).then_some(0x3000));
        }
        assert_eq!(stack.set(SignalStack::NONE, 0x2000, LEAST), Err(Errno::EPERM));
        assert_eq!(stack.in_handler(), new);
        assert_eq!(stack.set(SignalStack::NONE, 5, LEAST), Ok(()));
        assert_eq!(stack, SignalStack::NONE);
        let disarmed = SignalStack { flags: AUTODISARM, ..new };
        assert_eq!(stack.set(disarmed, 5, LEAST), Ok(()));
        assert_eq!((stack.holds(0x2000), stack.in_handler()), (false, SignalStack::NONE));
    }
}
