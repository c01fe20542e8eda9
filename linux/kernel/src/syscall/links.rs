//! Follows the links of `/proc`, and writes their texts.

use core::fmt::Write;

use super::Sys;
use crate::arch::Arch;
use crate::errno::Errno;
use crate::fs::path::{self, Found, Links, PATH};
use crate::fs::proc::Text;
use crate::fs::tree::{Magic, ROOT};
use crate::fs::{OpenFiles, What};
use crate::task::TaskQueues;

/// The processes and open files, as a caller sees them.
pub(super) struct View<'a> {
    /// Processes.
    pub tasks: &'a TaskQueues,
    /// Open files.
    pub open: &'a OpenFiles,
    /// The caller's process.
    pub caller: usize,
}

impl Links for View<'_> {
    fn caller(&self) -> u16 {
        self.caller as u16
    }

    fn process(&self, number: u32) -> Option<u16> {
        let number = i32::try_from(number).ok()?;
        self.tasks.find_process(number).map(|process| process as u16)
    }

    fn target(&self, process: u16, link: Magic, descriptor: u16) -> Option<What> {
        let process = self.tasks.process(process.into());
        // One that has ended has no files.
        let is_alive = process.threads > 0;
        match link {
            Magic::Program if is_alive => Some(What::Inode(process.program)),
            Magic::Directory if is_alive => Some(What::Inode(process.directory)),
            Magic::Root if is_alive => Some(What::Inode(ROOT)),
            Magic::Descriptor => {
                process.files.get(descriptor.into()).ok().map(|file| self.open.get(file).what)
            }
            _ => None,
        }
    }
}

impl<A: Arch> Sys<'_, A> {
    /// Returns the text of a link of `/proc`.
    pub(super) fn link_text(&mut self, found: &Found, link: Magic) -> Result<Text, Errno> {
        let own = self.process_slot();
        let mut text = Text::from(0);
        if link == Magic::Caller {
            let _ = write!(text, "{}", self.process().pid);
            return Ok(text);
        }
        let links = View { tasks: &self.state.tasks, open: &self.state.open, caller: own };
        let _ = match links.target(found.process, link, found.descriptor).ok_or(Errno::ENOENT)? {
            What::Inode(inode) => {
                self.put_path(&mut text, inode);
                Ok(())
            }
            What::PipeRead(pipe) | What::PipeWrite(pipe) => write!(text, "pipe:[{pipe}]"),
            What::Counter(_) => write!(text, "anon_inode:[eventfd]"),
            What::Timer(_) => write!(text, "anon_inode:[timerfd]"),
            What::Set(_) => write!(text, "anon_inode:[eventpoll]"),
            What::Nothing => Ok(()),
        };
        Ok(text)
    }

    /// Adds the path of a file; of one that has gone, its last name.
    pub(crate) fn put_path(&self, text: &mut Text, inode: u32) {
        let mut bytes = [0; PATH];
        if let Ok(n) = path::path_of(&self.state.tree, inode, &mut bytes) {
            return text.put(&bytes[..n - 1]);
        }
        for piece in [b"/", self.state.tree.get(inode).name(), b" (deleted)"] {
            text.put(piece);
        }
    }
}
