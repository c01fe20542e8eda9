//! Reads memory, CPUs and boot arguments from the firmware's device tree (Devicetree
//! specification, chapter 5).

use crate::tasks::CPUS;

const MAGIC: u32 = 0xd00d_feed;
const BEGIN_NODE: u32 = 1;
const END_NODE: u32 = 2;
const PROPERTY: u32 = 3;
const NOP: u32 = 4;

/// A description of the machine.
pub struct DeviceTree {
    /// First byte of memory.
    pub memory: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The firmware's numbers of CPUs, `cpus` of them.
    pub cpu_ids: [u64; CPUS],
    /// How many CPUs there are.
    pub cpus: usize,
    /// How many have groups of pages (RISC-V's extension Svnapot).
    pub napots: usize,
    /// The boot arguments: the text after QEMU's `-append`.
    pub arguments: &'static str,
}

struct Blob(&'static [u8]);

impl Blob {
    fn word(&self, at: usize) -> Option<u32> {
        let bytes = self.0.get(at..at.checked_add(4)?)?;
        Some(u32::from_be_bytes(bytes.try_into().ok()?))
    }

    fn text(&self, at: usize) -> Option<&'static str> {
        let rest = self.0.get(at..)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        core::str::from_utf8(rest.get(..end)?).ok()
    }

    /// A number of one or two cells.
    fn number(&self, at: usize, bytes: usize) -> Option<u64> {
        let high = u64::from(self.word(at)?);
        if bytes < 8 { Some(high) } else { Some(high << 32 | u64::from(self.word(at + 4)?)) }
    }
}

/// Reads the tree at `at`; `None` if it is no tree.
///
/// # Safety
///
/// 1. `at` must be where the firmware has put a tree. The memory there must not have been written
///    to since, and must stay unchanged.
pub unsafe fn read(at: *const u32) -> Option<DeviceTree> {
    // SAFETY: the firmware's tree begins with a header of ten words (point 1).
    let (magic, size) = unsafe { (u32::from_be(at.read()), u32::from_be(at.add(1).read())) };
    if magic != MAGIC {
        return None;
    }
    // SAFETY: the header says that the tree has so many bytes, and they stay unchanged (point 1).
    parse(unsafe { core::slice::from_raw_parts(at.cast::<u8>(), size as usize) })
}

/// Whether a text as of `riscv,isa` names an extension: `rv64imafdc_zba_svnapot`.
fn has_extension(isa: &str, name: &str) -> bool {
    isa.split('_').skip(1).any(|extension| extension == name)
}

/// Reads a tree; `None` if it is cut.
fn parse(bytes: &'static [u8]) -> Option<DeviceTree> {
    let blob = Blob(bytes);
    let (mut next, strings) = (blob.word(8)? as usize, blob.word(12)? as usize);
    let mut board = DeviceTree { memory: 0, bytes: 0, cpu_ids: [0; CPUS], cpus: 0, napots: 0, arguments: "" };
    // Names of the nodes that lead to where `next` is: the second and the third level tell all that
    // is wanted.
    let (mut depth, mut second, mut third) = (0, "", "");
    loop {
        let token = blob.word(next)?;
        next += 4;
        match token {
            BEGIN_NODE => {
                let name = blob.text(next)?;
                next = (next + name.len() + 1).next_multiple_of(4);
                depth += 1;
                match depth {
                    2 => (second, third) = (name, ""),
                    3 => third = name,
                    _ => {}
                }
            }
            END_NODE => depth -= 1,
            PROPERTY => {
                let (len, name) = (blob.word(next)? as usize, blob.word(next + 4)? as usize);
                let (value, name) = (next + 8, blob.text(strings + name)?);
                match (depth, second, name) {
                    (2, "chosen", "bootargs") => board.arguments = blob.text(value)?,
                    (2, _, "reg") if second.starts_with("memory@") => {
                        (board.memory, board.bytes) = (blob.number(value, 8)?, blob.number(value + 8, 8)?);
                    }
                    (3, "cpus", "reg") if third.starts_with("cpu@") => {
                        if let Some(id) = board.cpu_ids.get_mut(board.cpus) {
                            *id = blob.number(value, len)?;
                            board.cpus += 1;
                        }
                    }
                    (3, "cpus", "riscv,isa") => {
                        board.napots += usize::from(has_extension(blob.text(value)?, "svnapot"));
                    }
                    _ => {}
                }
                next = (value + len).next_multiple_of(4);
            }
            NOP => {}
            // The end.
            _ => return Some(board),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn tree() -> Vec<u8> {
        let names = b"reg\0bootargs\0riscv,isa\0";
        let mut body = Vec::new();
        let word = |body: &mut Vec<u8>, value: u32| body.extend(value.to_be_bytes());
        let begin = |body: &mut Vec<u8>, name: &str| {
            body.extend(BEGIN_NODE.to_be_bytes());
            body.extend(name.bytes().chain([0]));
            body.resize(body.len().next_multiple_of(4), 0);
        };
        let property = |body: &mut Vec<u8>, name: u32, value: &[u8]| {
            [PROPERTY, value.len() as u32, name].iter().for_each(|word| body.extend(word.to_be_bytes()));
            body.extend(value);
            body.resize(body.len().next_multiple_of(4), 0);
        };
        begin(&mut body, "");
        begin(&mut body, "chosen");
        property(&mut body, 4, b"without=flush\0");
        word(&mut body, END_NODE);
        begin(&mut body, "memory@80000000");
        property(&mut body, 0, &[0x8000_0000u64.to_be_bytes(), 0x800_0000u64.to_be_bytes()].concat());
        word(&mut body, END_NODE);
        begin(&mut body, "cpus");
        begin(&mut body, "cpu@3");
        property(&mut body, 0, &3u32.to_be_bytes());
        property(&mut body, 13, b"rv64imafdc_zba_svnapot\0");
        [END_NODE, END_NODE, END_NODE, 9].iter().for_each(|token| word(&mut body, *token));
        let mut all = Vec::new();
        let strings = 40 + body.len() as u32;
        let header = [MAGIC, strings + names.len() as u32, 40, strings, 0, 17, 16, 0, names.len() as u32, 0];
        header.iter().for_each(|value| all.extend(value.to_be_bytes()));
        all.extend(body);
        all.extend(names);
        all
    }

    #[test]
    fn memory_cpus_and_arguments_are_read() {
        let board = parse(tree().leak()).expect("a tree");
        assert_eq!((board.memory, board.bytes), (0x8000_0000, 0x800_0000));
        assert_eq!((board.cpus, board.cpu_ids[0]), (1, 3));
        assert_eq!((board.arguments, board.napots), ("without=flush", 1));
    }

    #[test]
    fn an_extension_is_a_whole_word_behind_the_first() {
        assert!(has_extension("rv64gc_svnapot_svpbmt", "svnapot"));
        assert!(!has_extension("rv64gc_svnapots", "svnapot") && !has_extension("svnapot", "svnapot"));
    }

    #[test]
    fn trees_that_are_cut_do_no_harm() {
        let whole: &'static [u8] = tree().leak();
        for len in 0..whole.len() {
            let _ = parse(&whole[..len]);
        }
    }
}
