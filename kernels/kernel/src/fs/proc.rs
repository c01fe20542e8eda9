//! Files of `/proc`: text that is made when it is read.

use core::fmt::{self, Write};

use ptarmigan::machine::Machine as _;

use super::tree::{Kind, Proc, Tree};
use crate::arch::Arch;
use crate::counts::NAMES;
use crate::errno::Errno;
use crate::{Kernel, State};

const MOST: usize = 4096;

/// Text of a bounded length; longer text is cut off.
pub struct Text {
    bytes: [u8; MOST],
    len: usize,
}

impl Text {
    fn new() -> Self {
        Text { bytes: [0; MOST], len: 0 }
    }

    /// Returns its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn put(&mut self, bytes: &[u8]) {
        let n = bytes.len().min(MOST - self.len);
        self.bytes[self.len..self.len + n].copy_from_slice(&bytes[..n]);
        self.len += n;
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.put(text.as_bytes());
        Ok(())
    }
}

/// Puts the files of `/proc` into a directory.
///
/// # Errors
///
/// As [`Tree::create`]; files that are there stay.
pub fn fill(tree: &mut Tree, directory: u16) -> Result<(), Errno> {
    let files: [(&[u8], Proc); 6] = [
        (b"cmdline", Proc::CommandLine),
        (b"meminfo", Proc::MemInfo),
        (b"mounts", Proc::Mounts),
        (b"uptime", Proc::Uptime),
        (b"version", Proc::Version),
        (b"ptarmigan", Proc::Counts),
    ];
    for (name, what) in files {
        match tree.create(directory, name, Kind::Proc(what), 0o444) {
            Ok(_) | Err(Errno::EEXIST) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

impl<A: Arch> Kernel<A> {
    /// Returns the text of a file of `/proc`.
    pub(crate) fn proc_text(&'static self, state: &State, what: Proc) -> Text {
        let mut text = Text::new();
        // The text cannot fail: it is cut.
        let _ = match what {
            Proc::CommandLine => {
                text.put(state.command_line.bytes());
                text.write_str("\n")
            }
            Proc::MemInfo => self.memory_info(&mut text),
            Proc::Mounts => text.write_str("rootfs / rootfs rw 0 0\nproc /proc proc rw 0 0\n"),
            Proc::Uptime => {
                let hundredths = A::now() / 10_000_000;
                writeln!(text, "{}.{:02} 0.00", hundredths / 100, hundredths % 100)
            }
            Proc::Version => writeln!(text, "Ptarmigan version {}", env!("CARGO_PKG_VERSION")),
            Proc::Counts => {
                for (i, name) in NAMES.iter().enumerate() {
                    let _ = writeln!(text, "{name}: {}", self.sum(i));
                }
                Ok(())
            }
        };
        text
    }

    fn memory_info(&'static self, text: &mut Text) -> fmt::Result {
        let lists = self.machine.get().policy();
        let memory = lists.memory();
        let high = memory.total - memory.low_total;
        let high_free = memory.free - memory.low_free;
        writeln!(text, "HighTotal:      {:8} kB", high >> 10)?;
        writeln!(text, "HighFree:       {:8} kB", high_free >> 10)?;
        write!(text, "{}", lists.meminfo())
    }
}
