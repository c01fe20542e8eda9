//! The firmware's table of affinities (ACPI specification, "System Resource Affinity Table"): which
//! memory and which CPUs are on which node.

/// Ranges of memory, and CPUs, that are told apart.
const MOST: usize = 16;

/// What the table says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nodes {
    memory: [(u64, u64, u8); MOST],
    memories: usize,
    cpus: [(u8, u8); MOST],
    cpu_count: usize,
}

impl Nodes {
    /// Returns the node of the memory at `at`, and where the next range begins; node 0 if nothing
    /// is said.
    pub fn of_memory(&self, at: u64) -> (u8, u64) {
        let ranges = &self.memory[..self.memories];
        let here = ranges.iter().find(|(start, end, _)| (*start..*end).contains(&at));
        let next = ranges.iter().map(|(start, ..)| *start).filter(|start| *start > at).min();
        match here {
            Some((_, end, node)) => (*node, *end),
            None => (0, next.unwrap_or(u64::MAX)),
        }
    }

    /// Returns the node of the CPU whose interrupt controller has a number; 0 if nothing is said.
    pub fn of_cpu(&self, controller: u8) -> u8 {
        let cpus = &self.cpus[..self.cpu_count];
        cpus.iter().find(|(id, _)| *id == controller).map_or(0, |(_, node)| *node)
    }
}

fn number(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    Some(bytes.get(at..at + len)?.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)))
}

/// Reads the table by way of the root pointer at `pointer`. `memory` returns bytes of physical
/// memory, or `None` where there are none. `None`: the firmware has no such table.
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
