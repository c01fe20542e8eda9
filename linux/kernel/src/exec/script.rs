//! Scripts: files whose first line names the program that reads them.
//!
//! The rules are those of Linux's `load_script`. The line is read from the first 256 bytes of the
//! file; a name that may be longer is refused, an argument is cut there. A file that ends in the
//! line needs no newline. The program may be a script itself, five deep.

use core::ops::Range;

use crate::arch::Arch;
use crate::errno::Errno;
use crate::fs::{Kind, path};
use crate::syscall::Sys;

/// Bytes of a file in which its first line is looked for.
const LINE: usize = 256;
/// Scripts that read each other.
const DEEP: usize = 5;

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// Returns where the words of the first line are: the program, and an argument for it, empty
/// without one. Bytes behind the end of the file are zero.
fn words(line: &[u8; LINE]) -> Option<(Range<usize>, Range<usize>)> {
    let (end, is_cut) = match line.iter().position(|byte| *byte == b'\n') {
        Some(end) => (end, false),
        None => (LINE - 1, true),
    };
    let find =
        |from: usize, wanted: &dyn Fn(u8) -> bool| (from..end).find(|at| wanted(line[*at])).unwrap_or(end);
    let stops = |byte| is_blank(byte) || byte == 0;
    let last = (2..end).rfind(|at| !is_blank(line[*at]))? + 1;
    let start = find(2, &|byte| !is_blank(byte));
    let stop = find(start, &stops).min(last);
    // Without an end, the name may go on behind the bytes that were read.
    if start == stop || is_cut && stop == end && !stops(line[end]) {
        return None;
    }
    if line[stop] == 0 {
        return Some((start..stop, stop..stop));
    }
    let argument = find(stop, &|byte| !is_blank(byte)).min(last);
    let argument_end = find(argument, &|byte| byte == 0).min(last);
    Some((start..stop, argument..argument_end))
}

/// The first line of a script.
#[derive(Clone, Copy)]
struct Line {
    bytes: [u8; LINE],
    program: (u8, u8),
    argument: (u8, u8),
}

impl Line {
    const NONE: Line = Line { bytes: [0; LINE], program: (0, 0), argument: (0, 0) };

    fn word(&self, (start, end): (u8, u8)) -> &[u8] {
        self.bytes.get(usize::from(start)..usize::from(end)).unwrap_or_default()
    }
}

fn small(range: Range<usize>) -> (u8, u8) {
    // The line has 256 bytes, and a word ends before the last.
    (range.start as u8, range.end as u8)
}

impl<A: Arch> Sys<'_, A> {
    /// Begins the list of arguments for the program in file `inode`, which was found as `name`.
    /// Returns the file to be executed, and whether it is another one: the program that reads a
    /// script, whose arguments, up to the script's name, are in the list then.
    ///
    /// # Errors
    ///
    /// [`Errno::EACCES`] if the script may not be executed, [`Errno::ENOEXEC`] if its first line
    /// names no program, [`Errno::ELOOP`] if too many scripts read each other, [`Errno::E2BIG`],
    /// and the errors of a path to a program that does not exist.
    pub fn begin_arguments(&mut self, mut inode: u32, name: &[u8]) -> Result<(u32, bool), Errno> {
        self.clear_arguments(name);
        let (mut lines, mut deep) = ([Line::NONE; DEEP], 0);
        while let Kind::File(object) = self.state.tree.get(inode).kind {
            let mut start = [0; 2];
            let n = self.kernel.read_object(object, 0, &mut start);
            if !start[..n].starts_with(b"#!") {
                break;
            }
            Errno::EACCES.when(self.state.tree.get(inode).mode & 0o111 == 0)?;
            let line = lines.get_mut(deep).ok_or(Errno::ELOOP)?;
            self.kernel.read_object(object, 0, &mut line.bytes);
            let (program, argument) = words(&line.bytes).ok_or(Errno::ENOEXEC)?;
            (line.program, line.argument) = (small(program), small(argument));
            let directory = self.process().directory;
            let found = path::resolve(&self.state.tree, directory, line.word(line.program), true)?;
            inode = found.existing(&self.state.tree)?;
            deep += 1;
        }
        if deep == 0 {
            return Ok((inode, false));
        }
        let arguments = &mut self.state.tasks.arguments;
        // The name of a script stands behind the words of the line that reads it.
        for line in lines[..deep].iter().rev() {
            for word in [line.word(line.program), line.word(line.argument)] {
                if !word.is_empty() {
                    arguments.add_text(false, word)?;
                }
            }
        }
        arguments.add_text(false, name)?;
        Ok((inode, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of a file.
    fn of(text: &[u8]) -> Option<(std::vec::Vec<u8>, std::vec::Vec<u8>)> {
        let mut line = [0; LINE];
        let n = text.len().min(LINE);
        line[..n].copy_from_slice(&text[..n]);
        words(&line).map(|(program, argument)| (line[program].to_vec(), line[argument].to_vec()))
    }

    #[test]
    fn the_first_line_has_a_program_and_one_argument() {
        for (text, program, argument) in [
            (&b"#!/bin/sh\necho"[..], &b"/bin/sh"[..], &b""[..]),
            (b"#! /bin/sh \t\n", b"/bin/sh", b""),
            (b"#!\t/bin/sh  -e  -x \nx", b"/bin/sh", b"-e  -x"),
            // The file ends in the line.
            (b"#!/bin/sh", b"/bin/sh", b""),
            (b"#!/bin/sh -e", b"/bin/sh", b"-e"),
            (b"#!/bin/sh -e ", b"/bin/sh", b"-e "),
            // A zero ends a word.
            (b"#!/bin/sh\0x\n", b"/bin/sh", b""),
            (b"#!/bin/sh -e\0x\n", b"/bin/sh", b"-e"),
        ] {
            assert_eq!(of(text), Some((program.to_vec(), argument.to_vec())), "{text:?}");
        }
        for none in [&b"#!"[..], b"#!\n/bin/sh", b"#! \t \n", b"#!\0\n", b"#!   ", b"#! \0/bin/sh\n"] {
            assert_eq!(of(none), None, "{none:?}");
        }
    }

    #[test]
    fn a_name_that_may_go_on_is_refused_and_an_argument_is_cut() {
        let long = |program: usize, rest: &[u8]| [&b"#!/"[..], &[b'a'; LINE][..program], rest].concat();
        assert_eq!(of(&long(LINE, b"")), None);
        assert_eq!(of(&long(252, b"\n")).map(|words| words.0.len()), Some(253));
        assert_eq!(of(&long(252, b" ")).map(|words| words.0.len()), Some(253));
        assert_eq!(of(&long(253, b" ")), None);
        assert_eq!(of(&long(251, b" x")).map(|words| (words.0.len(), words.1)), Some((252, std::vec![])));
        let cut = of(&long(200, &[&b" "[..], &[b'b'; 99]].concat())).expect("words");
        assert_eq!((cut.0.len(), cut.1), (201, std::vec![b'b'; LINE - 1 - 204]));
    }
}
