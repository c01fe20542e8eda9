//! Scripts: files whose first line names the program that reads them.

use core::ops::Range;

use crate::arch::Arch;
use crate::errno::Errno;
use crate::fs::{Kind, path};
use crate::syscall::Sys;

/// Bytes of the first line at the most.
const LINE: usize = 128;

/// Where the words of the first line are: the program, and an argument for it.
fn words(line: &[u8]) -> Option<(Range<usize>, Range<usize>)> {
    let is_blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
    let end = line.iter().position(|byte| *byte == b'\n')?;
    let line = line.get(..end)?;
    let start = 2 + line.get(2..)?.iter().position(|byte| !is_blank(byte))?;
    let stop = line[start..].iter().position(is_blank).map_or(end, |at| start + at);
    let argument = line[stop..].iter().position(|byte| !is_blank(byte)).map_or(end, |at| stop + at);
    let last =
        line[argument..].iter().rposition(|byte| !is_blank(byte)).map_or(argument, |at| argument + at + 1);
    Some((start..stop, argument..last))
}

impl<A: Arch> Sys<'_, A> {
    /// Begins the list of arguments for the program in file `inode`, which was found as `name`.
    /// Returns the file to be executed, and whether it is another one: the program that reads a
    /// script, whose arguments, up to the script's name, are in the list then.
    ///
    /// # Errors
    ///
    /// [`Errno::EACCES`] if the script may not be executed, [`Errno::ENOEXEC`] if its first line
    /// names no program, [`Errno::E2BIG`], and the errors of a path to a program that does not
    /// exist.
    pub fn begin_arguments(&mut self, inode: u16, name: &[u8]) -> Result<(u16, bool), Errno> {
        self.state.tasks.arguments.clear();
        let Kind::File(object) = self.state.tree.get(inode).kind else { return Ok((inode, false)) };
        let mut line = [0; LINE];
        let n = self.kernel.read_object(object, 0, &mut line);
        if !line[..n].starts_with(b"#!") {
            return Ok((inode, false));
        }
        Errno::EACCES.when(self.state.tree.get(inode).mode & 0o111 == 0)?;
        let (program, argument) = words(&line[..n]).ok_or(Errno::ENOEXEC)?;
        let directory = self.process().directory;
        let found = path::resolve(&self.state.tree, directory, &line[program.clone()], true)?;
        let reader = found.existing(&self.state.tree)?;
        let arguments = &mut self.state.tasks.arguments;
        arguments.add_text(false, &line[program])?;
        if !argument.is_empty() {
            arguments.add_text(false, &line[argument])?;
        }
        arguments.add_text(false, name)?;
        Ok((reader, true))
    }
}
