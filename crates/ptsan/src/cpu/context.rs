//! The cached translations and paging structures of one address space on one CPU.
//!
//! A *node* stands for one table position: "the table of level L for this part of the address
//! space". It holds the paging-structure entry, which names the table that the CPU uses there. It
//! also holds the TLB entries read from tables at that position, in chunks of 64.
//!
//! The usual access costs one lookup of a node. Dropping everything costs a few words for each node
//! in use. "What was read from this table" takes one look at one node.
use super::flush::Strides;
use super::node::{CHUNK, Chunk, NO_TABLE, NOTHING, Node, Table, TlbEntry};
use crate::arch::{Arch, MAX_LEVELS, StructureScope};
use crate::hash::FastMap;
use crate::shadow::FrameRef;

/// The caches of one address space on one CPU.
#[derive(Default)]
pub(crate) struct Context {
    pub(crate) space: u64,
    /// Raised whenever everything is dropped.
    pub(crate) generation: u32,
    /// Raised whenever all paging-structure entries are dropped.
    epoch: u64,
    nodes: Vec<Node>,
    /// Nodes from here on are free and keep their memory.
    used: usize,
    map: FastMap<u64, u32>,
    /// The node found last, because accesses are local.
    last: Option<(u64, u32)>,
    /// The number of translations of each level that are held, or may be.
    held: [u64; MAX_LEVELS],
}

impl Context {
    pub(crate) fn new(space: u64) -> Self {
        // Epoch 0 belongs to nodes that never had a table.
        Self { space, epoch: 1, ..Self::default() }
    }

    #[inline]
    fn find(&self, position: u64) -> Option<u32> {
        match self.last {
            Some((p, index)) if p == position => Some(index),
            _ => self.map.get(&position).copied(),
        }
    }

    /// Returns the translation held for `va`, and its level.
    #[inline]
    pub(crate) fn lookup(&mut self, arch: &Arch, va: u64) -> Option<(u8, TlbEntry)> {
        for (level, l) in arch.levels.iter().enumerate() {
            if self.held[level] == 0 {
                continue;
            }
            let position = arch.position(level as u8, va);
            let Some(index) = self.find(position) else { continue };
            let slot = l.index(va) as usize;
            let node = &self.nodes[index as usize];
            if let Some(entry) = node.entry(slot) {
                self.last = Some((position, index));
                return Some((level as u8, entry));
            }
        }
        None
    }

    /// Returns the paging-structure entry for a position.
    #[inline]
    pub(crate) fn table(&self, position: u64) -> Option<Table> {
        let node = &self.nodes[self.find(position)? as usize];
        (node.epoch == self.epoch).then_some(node.table)
    }

    /// Returns the table that the CPU holds for a position, or may hold.
    pub(crate) fn peek_table(&self, position: u64) -> Option<Table> {
        let node = &self.nodes[self.find(position)? as usize];
        self.table(position).or((node.maybe_epoch == self.epoch).then_some(node.maybe))
    }

    /// Returns the translation of this level that the CPU holds for `va`, or may hold.
    pub(crate) fn peek(&self, arch: &Arch, level: u8, va: u64) -> Option<TlbEntry> {
        let slot = arch.levels[level as usize].index(va) as usize;
        let chunk = self.nodes[self.find(arch.position(level, va))? as usize].chunks.get(slot / CHUNK)?;
        let held = (chunk.mask | chunk.maybe) & 1 << (slot % CHUNK) != 0;
        chunk.entries.as_ref().filter(|_| held).map(|e| e[slot % CHUNK])
    }

    /// Returns an address of a translation that the CPU holds, or may hold, from the table at a
    /// position.
    pub(crate) fn peek_any(&self, arch: &Arch, position: u64) -> Option<u64> {
        let node = &self.nodes[self.find(position)? as usize];
        let (c, chunk) = node.chunks.iter().enumerate().find(|(_, c)| c.mask | c.maybe != 0)?;
        let slot = (c * CHUNK) as u64 + u64::from((chunk.mask | chunk.maybe).trailing_zeros());
        let shift = arch.levels[(position & 7) as usize].shift;
        Some(arch.position_start(position).wrapping_add(slot << shift))
    }

    fn node(&mut self, arch: &Arch, position: u64) -> &mut Node {
        let index = match self.find(position) {
            Some(index) => index,
            None => {
                let index = self.used as u32;
                match self.nodes.get_mut(self.used) {
                    Some(old) => {
                        old.position = position;
                        old.epoch = 0;
                        old.maybe_epoch = 0;
                    }
                    None => self.nodes.push(Node {
                        position,
                        table: NO_TABLE,
                        epoch: 0,
                        maybe: NO_TABLE,
                        maybe_epoch: 0,
                        chunks: Vec::new(),
                    }),
                }
                let chunks = arch.levels[(position & 7) as usize].entries().div_ceil(CHUNK);
                // A reused node may have stood at a level with fewer entries.
                let node = &mut self.nodes[self.used];
                if node.chunks.len() < chunks {
                    node.chunks.resize_with(chunks, Chunk::default);
                }
                self.used += 1;
                self.map.insert(position, index);
                index
            }
        };
        self.last = Some((position, index));
        &mut self.nodes[index as usize]
    }

    /// Caches which table stands at a position.
    pub(crate) fn set_table(&mut self, arch: &Arch, position: u64, table: Table) {
        let epoch = self.epoch;
        let node = self.node(arch, position);
        node.table = table;
        node.epoch = epoch;
    }

    /// Notes that a speculative walk may have cached which table stood at a position.
    pub(crate) fn set_maybe_table(&mut self, arch: &Arch, position: u64, table: Table) {
        let epoch = self.epoch;
        let node = self.node(arch, position);
        node.maybe = table;
        node.maybe_epoch = epoch;
    }

    /// Caches a translation read from the entry for `va` in a table of `level`.
    pub(crate) fn insert(&mut self, arch: &Arch, level: u8, va: u64, entry: TlbEntry) {
        let (chunk, bit) = self.slot(arch, level, va, entry);
        chunk.mask |= bit;
        chunk.maybe &= !bit;
    }

    /// Notes that a speculative walk may have cached a translation, where none is held.
    pub(crate) fn insert_maybe(&mut self, arch: &Arch, level: u8, va: u64, entry: TlbEntry) {
        let (chunk, bit) = self.slot(arch, level, va, entry);
        chunk.maybe |= bit;
    }

    fn slot(&mut self, arch: &Arch, level: u8, va: u64, entry: TlbEntry) -> (&mut Chunk, u64) {
        let slot = arch.levels[level as usize].index(va) as usize;
        let (at, bit) = (slot / CHUNK, 1 << (slot % CHUNK));
        let node = self.node(arch, arch.position(level, va));
        let new = (node.chunks[at].mask | node.chunks[at].maybe) & bit == 0;
        let index = self.last.map_or(0, |l| l.1) as usize;
        self.held[level as usize] += u64::from(new);
        let chunk = &mut self.nodes[index].chunks[at];
        chunk.entries.get_or_insert_with(|| Box::new([NOTHING; CHUNK]))[slot % CHUNK] = entry;
        (chunk, bit)
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        self.epoch += 1;
        for node in &mut self.nodes[..self.used] {
            for chunk in &mut node.chunks {
                chunk.mask = 0;
                chunk.maybe = 0;
            }
        }
        self.used = 0;
        self.map.clear();
        self.last = None;
        self.held = [0; MAX_LEVELS];
    }

    /// Drops all paging-structure entries and no translation.
    pub(crate) fn drop_tables(&mut self) {
        self.epoch += 1;
    }

    /// Invalidates one address, as [`StructureScope`] says.
    pub(crate) fn flush_page(&mut self, arch: &Arch, va: u64, leaf_only: bool) {
        self.drop_translations(arch, va);
        match arch.structures {
            StructureScope::AnyInvalidation => self.drop_tables(),
            StructureScope::Tagged if !leaf_only => self.drop_path(arch, va),
            StructureScope::Tagged | StructureScope::WholeSpace | StructureScope::None => {}
        }
    }

    fn drop_translations(&mut self, arch: &Arch, va: u64) {
        for (level, l) in arch.levels.iter().enumerate() {
            if self.held[level] == 0 {
                continue;
            }
            if let Some(index) = self.find(arch.position(level as u8, va)) {
                let slot = l.index(va) as usize;
                let chunk = &mut self.nodes[index as usize].chunks[slot / CHUNK];
                let bit = 1 << (slot % CHUNK);
                self.held[level] -= u64::from((chunk.mask | chunk.maybe) & bit != 0);
                chunk.mask &= !bit;
                chunk.maybe &= !bit;
            }
        }
    }

    /// Drops what is held for one address and nothing else, as a fault does.
    pub(crate) fn drop_address(&mut self, arch: &Arch, va: u64) {
        self.drop_translations(arch, va);
        self.drop_path(arch, va);
    }

    /// Drops the paging-structure entries on the way to `va`.
    fn drop_path(&mut self, arch: &Arch, va: u64) {
        for level in 0..arch.top() {
            if let Some(index) = self.find(arch.position(level, va)) {
                self.nodes[index as usize].epoch = 0;
                self.nodes[index as usize].maybe_epoch = 0;
            }
        }
    }

    /// Invalidates by address along a range.
    pub(crate) fn flush_range(&mut self, arch: &Arch, range: Strides, leaf_only: bool) {
        if range.count() <= 2 * self.used as u64 {
            let mut va = range.start;
            while va < range.end {
                self.flush_page(arch, va, leaf_only);
                let Some(next) = va.checked_add(range.stride) else { break };
                va = next;
            }
            return;
        }
        let tagged = arch.structures == StructureScope::Tagged && !leaf_only;
        for node in &mut self.nodes[..self.used] {
            let level = (node.position & 7) as usize;
            let l = &arch.levels[level];
            let low = arch.position_start(node.position);
            let size = 1u64 << l.shift;
            let span = size.saturating_mul(l.entries() as u64);
            if !range.hit(low, span) {
                continue;
            }
            if tagged {
                node.epoch = 0;
                node.maybe_epoch = 0;
            }
            for (c, chunk) in node.chunks.iter_mut().enumerate() {
                let mut left = chunk.mask | chunk.maybe;
                while left != 0 {
                    let bit = left.trailing_zeros();
                    left &= left - 1;
                    let page = low.wrapping_add(((c * CHUNK) as u64 + u64::from(bit)) * size);
                    if range.hit(page, size) {
                        chunk.mask &= !(1 << bit);
                        chunk.maybe &= !(1 << bit);
                        self.held[level] -= 1;
                    }
                }
            }
        }
        if arch.structures == StructureScope::AnyInvalidation && range.count() > 0 {
            self.drop_tables();
        }
    }

    /// Returns a translation to any of `size` bytes at `phys`, with its address and level.
    pub(crate) fn translating_to(&self, arch: &Arch, phys: u64, size: u64) -> Option<(u64, u8, TlbEntry)> {
        let end = phys.saturating_add(size);
        self.nodes[..self.used].iter().find_map(|node| {
            let level = (node.position & 7) as u8;
            let shift = arch.levels[usize::from(level)].shift;
            let low = arch.position_start(node.position);
            node.chunks.iter().enumerate().find_map(|(c, chunk)| {
                let entries = chunk.entries.as_ref().filter(|_| chunk.mask != 0)?;
                let held = entries.iter().enumerate().filter(|(i, _)| chunk.mask & 1 << i != 0);
                held.filter(|(_, e)| e.phys < end && phys < e.phys.saturating_add(1 << shift))
                    .map(|(i, e)| (low.wrapping_add(((c * CHUNK + i) as u64) << shift), level, *e))
                    .next()
            })
        })
    }

    /// Returns the translations read from `frame` at `position`, with their addresses.
    pub(crate) fn read_from<'a>(
        &'a self,
        arch: &'a Arch,
        position: u64,
        frame: FrameRef,
    ) -> impl Iterator<Item = (u64, TlbEntry)> + 'a {
        let low = arch.position_start(position);
        let shift = arch.levels[(position & 7) as usize].shift;
        let node = self.find(position).map(|i| &self.nodes[i as usize]);
        node.into_iter().flat_map(|n| n.chunks.iter().enumerate()).flat_map(move |(c, chunk)| {
            let mask = chunk.mask;
            chunk.entries.iter().flat_map(|e| e.iter().enumerate()).filter_map(move |(i, entry)| {
                let va = low.wrapping_add(((c * CHUNK + i) as u64) << shift);
                (mask & 1 << i != 0 && entry.via == frame).then_some((va, *entry))
            })
        })
    }
}
