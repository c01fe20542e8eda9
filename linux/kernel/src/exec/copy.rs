//! Copies arguments and environment of a program from the memory of the caller.

use super::arguments::{BYTES, TEXT};
use crate::arch::Arch;
use crate::errno::Errno;
use crate::syscall::Sys;

impl<A: Arch> Sys<'_, A> {
    /// Begins the list of arguments for a program that is found as `name`.
    pub(super) fn clear_arguments(&mut self, name: &[u8]) {
        self.drop_arguments();
        let stack = self.process().limits.stack.soft;
        self.state.tasks.arguments.begin(stack, A::ABI.word(), name.len());
    }

    /// Gives the pages of arguments back that are not needed any more.
    pub fn drop_arguments(&mut self) {
        if let Some(more) = self.state.tasks.arguments.more.take() {
            self.kernel.release_object(more);
        }
    }

    /// Adds a text of the caller's memory.
    ///
    /// # Errors
    ///
    /// [`Errno::E2BIG`], [`Errno::EFAULT`], [`Errno::ENOMEM`].
    pub fn add_argument(&mut self, environment: bool, at: u64) -> Result<(), Errno> {
        let on = self.on();
        let (space, arguments) = (&mut self.body.space, &mut self.state.tasks.arguments);
        match space.text(on, at, arguments.room()) {
            Ok(n) => return arguments.added(environment, n + 1),
            Err(Errno::ENAMETOOLONG) => {}
            Err(e) => return Err(e),
        }
        let more = match arguments.more {
            Some(more) => more,
            None => *arguments.more.insert(self.kernel.objects().create(0)?),
        };
        let (mut len, mut piece) = (0, [0; 512]);
        loop {
            let here = at.checked_add(len as u64).ok_or(Errno::EFAULT)?;
            let (n, is_end) = match space.text(on, here, &mut piece) {
                Ok(n) => (n + 1, true),
                Err(Errno::ENAMETOOLONG) => (piece.len(), false),
                Err(e) => return Err(e),
            };
            let from = arguments.len + len;
            Errno::E2BIG.when(len + n > TEXT || from + n > arguments.limit)?;
            let near = n.min(BYTES.saturating_sub(from));
            if let Some(room) = arguments.bytes.get_mut(from..from + near) {
                room.copy_from_slice(&piece[..near]);
            }
            if near < n {
                self.kernel.write_object(more, (from + near - BYTES) as u64, &piece[near..n])?;
            }
            len += n;
            if is_end {
                return arguments.added(environment, len);
            }
        }
    }
}
