//! The firmware's table of affinities (ACPI specification, "System Resource Affinity Table"): which
//! memory and which CPUs are on which node.

use ptarmigan_kernel_base::number;

use crate::memory_map::PAGE;

/// Ranges of memory, and CPUs, that are told apart.
pub const MOST: usize = 16;

/// The contents of the table.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nodes {
    memory: [(u64, u64, u8); MOST],
    memories: usize,
    cpus: [(u8, u8); MOST],
    cpu_count: usize,
}

impl Nodes {
    /// Returns the node of the memory at `at`, and the page from which on that may change; node 0
    /// if the table has no entry.
    pub fn of_memory(&self, at: u64) -> (u8, u64) {
        let ranges = &self.memory[..self.memories];
        let here = ranges.iter().find(|(start, end, _)| (*start..*end).contains(&at));
        let next = ranges.iter().map(|(start, ..)| *start).filter(|start| *start > at).min();
        let (node, end) = match here {
            Some((_, end, node)) => (*node, *end),
            None => (0, next.unwrap_or(u64::MAX)),
        };
        (node, end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX))
    }

    /// Returns the node of the CPU whose interrupt controller has a number; 0 if the table has no
    /// entry.
    pub fn of_cpu(&self, controller: u8) -> u8 {
        let cpus = &self.cpus[..self.cpu_count];
        cpus.iter().find(|(id, _)| *id == controller).map_or(0, |(_, node)| *node)
    }
}

/// Numbers without gaps, in the same order, for those nodes of the firmware that have memory.
#[derive(Clone, Copy, Debug)]
pub struct NodeNumbers([bool; 256]);

impl NodeNumbers {
    /// Makes numbers for the nodes that are named.
    pub fn new(nodes: impl Iterator<Item = u8>) -> Self {
        let mut all = [false; 256];
        nodes.for_each(|node| all[usize::from(node)] = true);
        NodeNumbers(all)
    }

    /// Returns the number of a node of the firmware; 0 for one without memory.
    pub fn of(&self, node: u8) -> u8 {
        let node = usize::from(node);
        if self.0[node] { self.0[..node].iter().filter(|there| **there).count() as u8 } else { 0 }
    }
}

/// Reads the table by way of the root pointer at `pointer`. `memory` returns bytes of physical
/// memory, or `None` where it cannot reach them. Returns `None` if the firmware has no such table.
pub fn nodes<'a>(pointer: u64, memory: impl Fn(u64, usize) -> Option<&'a [u8]>) -> Option<Nodes> {
    let root = memory(pointer, 36)?;
    if !root.starts_with(b"RSD PTR ") {
        return None;
    }
    // From revision 2 on there is a list with entries of eight bytes.
    let wide = *root.get(15)? >= 2 && number(root, 24, 8)? != 0;
    let (list, size) = if wide { (number(root, 24, 8)?, 8) } else { (number(root, 16, 4)?, 4) };
    let table = |at: u64| {
        let len = number(memory(at, 36)?, 4, 4)? as usize;
        memory(at, len)
    };
    let entries = table(list)?.get(36..)?;
    let affinities = entries.chunks_exact(size).find_map(|entry| {
        let found = table(number(entry, 0, size)?)?;
        found.starts_with(b"SRAT").then_some(found)
    })?;
    let mut nodes = Nodes::default();
    let mut rest = affinities.get(48..)?;
    while let [kind, len, ..] = *rest {
        let entry = rest.get(..usize::from(len))?;
        read_entry(&mut nodes, kind, entry);
        rest = rest.get(usize::from(len).max(2)..)?;
    }
    Some(nodes)
}

/// Reads an entry, if it is of a kind that is known and enabled.
fn read_entry(nodes: &mut Nodes, kind: u8, entry: &[u8]) -> Option<()> {
    match kind {
        0 if number(entry, 4, 4)? & 1 != 0 => {
            *nodes.cpus.get_mut(nodes.cpu_count)? = (*entry.get(3)?, *entry.get(2)?);
            nodes.cpu_count += 1;
        }
        1 if number(entry, 28, 4)? & 1 != 0 => {
            let (start, len) = (number(entry, 8, 8)?, number(entry, 16, 8)?);
            let node = number(entry, 2, 4)? as u8;
            *nodes.memory.get_mut(nodes.memories)? = (start, start.saturating_add(len), node);
            nodes.memories += 1;
        }
        _ => {}
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use super::*;

    const ROOT: u64 = 0x100;
    const LIST: u64 = 0x200;
    const TABLE: u64 = 0x300;

    /// Tables at their addresses in memory of 1 KiB: a root pointer, a list of one table, and that.
    fn memory() -> Vec<u8> {
        let mut all = vec![0; 1024];
        let mut put = |at: u64, bytes: &[u8]| all[at as usize..][..bytes.len()].copy_from_slice(bytes);
        put(ROOT, b"RSD PTR ");
        put(ROOT + 16, &(LIST as u32).to_le_bytes());
        put(LIST, b"RSDT");
        put(LIST + 4, &40u32.to_le_bytes());
        put(LIST + 36, &(TABLE as u32).to_le_bytes());
        put(TABLE, b"SRAT");
        put(TABLE + 4, &(48u32 + 16 + 40).to_le_bytes());
        // CPU 5 is on node 3, and so is the memory from 0x1800 to 0x5800.
        put(TABLE + 48, &[0, 16, 3, 5, 1]);
        put(TABLE + 64, &[1, 40, 3, 0, 0, 0]);
        put(TABLE + 72, &0x1800u64.to_le_bytes());
        put(TABLE + 80, &0x4000u64.to_le_bytes());
        put(TABLE + 92, &[1]);
        all
    }

    fn read(memory: &[u8]) -> Option<Nodes> {
        nodes(ROOT, |at, len| memory.get(usize::try_from(at).ok()?..)?.get(..len))
    }

    #[test]
    fn nodes_change_at_pages() {
        let nodes = read(&memory()).expect("a table");
        assert_eq!(nodes.of_memory(0), (0, 0x2000));
        assert_eq!(nodes.of_memory(0x2000), (3, 0x6000));
        assert_eq!(nodes.of_memory(0x6000), (0, u64::MAX));
        assert_eq!((nodes.of_cpu(5), nodes.of_cpu(4)), (3, 0));
    }

    #[test]
    fn tables_that_are_cut_or_changed_do_no_harm() {
        let whole = memory();
        for len in 0..whole.len() {
            let _ = read(&whole[..len]);
        }
        for at in 0..whole.len() {
            for byte in [0, 1, 2, 0x7f, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = byte;
                let Some(nodes) = read(&bytes) else { continue };
                // Each step goes on, so that following them ends.
                for at in [0, 0x1800, 0x2000, u64::MAX - 1] {
                    assert!(nodes.of_memory(at).1 > at);
                }
            }
        }
    }

    #[test]
    fn nodes_without_memory_leave_no_gap() {
        let numbers = NodeNumbers::new([7, 1, 255, 7].into_iter());
        assert_eq!([1, 7, 255].map(|node| numbers.of(node)), [0, 1, 2]);
        assert_eq!([0, 2, 254].map(|node| numbers.of(node)), [0, 0, 0]);
    }
}
