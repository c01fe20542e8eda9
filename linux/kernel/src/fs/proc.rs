//! Files of `/proc`: text that is made when it is read.

use core::fmt::{self, Write};

use ptarmigan::addr::FRAME_SIZE;
use ptarmigan::machine::Machine as _;

use super::tree::{Kind, Magic, NONE, Names, Own, Proc, Tree};
use crate::arch::Arch;
use crate::counts::NAMES;
use crate::errno::Errno;
use crate::{Kernel, State};

const MOST: usize = 4096;

/// A part of a text: so many bytes from some place on. Those before and behind it are left out.
pub struct Text {
    bytes: [u8; MOST],
    len: usize,
    /// Bytes that are left out still.
    before: u64,
    /// All bytes of the text so far.
    written: u64,
}

impl Text {
    /// Begins a text of which the bytes from `from` on are kept.
    pub fn from(from: u64) -> Self {
        Text { bytes: [0; MOST], len: 0, before: from, written: 0 }
    }

    /// Goes on with a text at its byte `begin`; the bytes from `from` on are kept.
    pub fn resume(begin: u64, from: u64) -> Self {
        Text { before: from.saturating_sub(begin), written: begin, ..Text::from(0) }
    }

    /// Returns its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Returns the number of bytes of the whole text so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Whether no more bytes are kept.
    pub fn is_full(&self) -> bool {
        self.len == MOST
    }

    /// Adds bytes.
    pub fn put(&mut self, bytes: &[u8]) {
        self.written += bytes.len() as u64;
        let left_out = self.before.min(bytes.len() as u64);
        self.before -= left_out;
        let bytes = &bytes[left_out as usize..];
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

/// Adds a file if there is none of its name; returns it.
fn add(tree: &mut Tree, directory: u32, name: &[u8], kind: Kind, mode: u16) -> Result<u32, Errno> {
    match tree.find(directory, name) {
        Some(there) => Ok(there),
        None => tree.add(directory, name, kind, mode),
    }
}

/// Puts the files of `/proc` into a directory.
///
/// All processes have one directory there, and all descriptors one link: the path that leads to
/// them says whose they are ([`Found`](super::path::Found)).
///
/// # Errors
///
/// As [`Tree::create`]; files that are there stay.
pub fn fill(tree: &mut Tree, directory: u32) -> Result<(), Errno> {
    let files: [(&[u8], Proc); 6] = [
        (b"cmdline", Proc::CommandLine),
        (b"meminfo", Proc::MemInfo),
        (b"mounts", Proc::Mounts),
        (b"uptime", Proc::Uptime),
        (b"version", Proc::Version),
        (b"ptarmigan", Proc::Counts),
    ];
    for (name, what) in files {
        add(tree, directory, name, Kind::Proc(what), 0o444)?;
    }
    let system = add(tree, directory, b"sys", Kind::Directory, 0o555)?;
    let memory = add(tree, system, b"vm", Kind::Directory, 0o555)?;
    add(tree, memory, b"mmap_min_addr", Kind::Proc(Proc::LowestAddress), 0o444)?;
    for directory in [system, memory] {
        tree.get_mut(directory).names = Names::OfProcess;
    }
    add(tree, directory, b"self", Kind::Magic(Magic::Caller), 0o777)?;
    if tree.own == NONE {
        fill_own(tree, directory)?;
    }
    tree.get_mut(directory).names = Names::Processes;
    Ok(())
}

/// Makes the directory that processes have.
fn fill_own(tree: &mut Tree, directory: u32) -> Result<(), Errno> {
    let own = tree.add(directory, b"own", Kind::Directory, 0o555)?;
    let files: [(&[u8], Own); 8] = [
        (b"cmdline", Own::Arguments),
        (b"comm", Own::Name),
        (b"maps", Own::Maps),
        (b"pagemap", Own::PageMap),
        (b"smaps", Own::Smaps),
        (b"stat", Own::Stat),
        (b"statm", Own::Statm),
        (b"status", Own::Status),
    ];
    for (name, what) in files {
        tree.add(own, name, Kind::Proc(Proc::Own(what)), 0o444)?;
    }
    let links: [(&[u8], Magic); 3] =
        [(b"exe", Magic::Program), (b"cwd", Magic::Directory), (b"root", Magic::Root)];
    for (name, link) in links {
        tree.add(own, name, Kind::Magic(link), 0o777)?;
    }
    let descriptors = tree.add(own, b"fd", Kind::Directory, 0o500)?;
    let descriptor = tree.add(descriptors, b"fd", Kind::Magic(Magic::Descriptor), 0o700)?;
    // Both have numbers as their names.
    tree.hide(own);
    tree.hide(descriptor);
    tree.get_mut(own).names = Names::OfProcess;
    tree.get_mut(descriptors).names = Names::Descriptors;
    (tree.own, tree.descriptor) = (own, descriptor);
    Ok(())
}

impl<A: Arch> Kernel<A> {
    /// Returns the text of a file of `/proc` that is not a process's, from byte `from` on.
    pub(crate) fn proc_text(&'static self, state: &State, what: Proc, from: u64) -> Text {
        let mut text = Text::from(from);
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
            Proc::LowestAddress => writeln!(text, "{FRAME_SIZE}"),
            Proc::Version => writeln!(text, "Ptarmigan version {}", env!("CARGO_PKG_VERSION")),
            Proc::Counts => {
                for (i, name) in NAMES.iter().enumerate() {
                    let _ = writeln!(text, "{name}: {}", self.sum(i));
                }
                self.flushes().iter().try_for_each(|(name, n)| writeln!(text, "{name}: {n}"))
            }
            Proc::Own(_) => Ok(()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn a_text_is_read_in_parts() {
        let whole: Vec<u8> = (0..3 * MOST).map(|n| n as u8 ^ (n >> 8) as u8).collect();
        let part = |from: usize, step: usize| {
            let mut text = Text::from(from as u64);
            whole.chunks(step).for_each(|bytes| text.put(bytes));
            assert_eq!(text.written(), whole.len() as u64);
            text.bytes().to_vec()
        };
        for step in [1, 7, 100, 5000] {
            for from in [0, 1, 6, 7, 4095, 4096, 9999] {
                let end = whole.len().min(from + MOST);
                assert_eq!(part(from, step), whole[from..end], "from {from} by {step}");
            }
            assert!(part(whole.len(), step).is_empty() && part(1 << 20, step).is_empty());
        }
    }
}
