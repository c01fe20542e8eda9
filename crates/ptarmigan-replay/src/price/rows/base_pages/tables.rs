//! The tables of a replay as a machine with larger base pages would have them.
use crate::linux::PAGE;
use crate::price::{Effect, Moment};
use crate::workers::look::Look;
use foldhash::{HashMap, HashSet};
use ptarmigan::addr::VirtRange;
use ptarmigan_trace::Kind;

/// Bits of addresses, as AArch64 has them with 64 KiB. With 16 KiB three levels have 47.
const ADDRESS_BITS: u32 = 48;

/// A table: its level, and its number among the tables of this level.
type Table = (usize, u64);

/// Counts tables of one size of base pages, all levels. One is there as long as the replay has a
/// leaf table in its range.
pub struct BaseTables {
    /// Binary logarithms of the pages of 4 KiB that a table maps, by level, the root last.
    shifts: [u32; 3],
    /// Bytes of a table, by level. A root is as small as the addresses allow.
    bytes: [u64; 3],
    spaces: HashMap<u32, HashSet<Table>>,
    live: u64,
    /// Tables made.
    pub made: u64,
    /// The most bytes at once.
    pub peak: u64,
}

impl BaseTables {
    /// Begins to count for AArch64's tables of base pages of `pages` times 4 KiB: a table is as
    /// large as a page, and all addresses have three levels.
    pub fn new(pages: u64) -> Self {
        let entries = (pages << PAGE).trailing_zeros() - 3;
        let leaf = pages.trailing_zeros() + entries;
        let root = (ADDRESS_BITS - PAGE - leaf - entries).min(entries);
        let (shifts, table) = ([leaf, leaf + entries, 63], pages << PAGE);
        let bytes = [table, table, 8 << root];
        BaseTables { shifts, bytes, spaces: HashMap::default(), live: 0, made: 0, peak: 0 }
    }

    fn add(&mut self, space: u32, page: u64) {
        let tables = self.spaces.entry(space).or_default();
        for (level, shift) in (0..).zip(self.shifts) {
            if tables.insert((level, page >> shift)) {
                self.made += 1;
                self.live += self.bytes[level];
            }
        }
        self.peak = self.peak.max(self.live);
    }

    fn end(&mut self, space: u32) {
        let tables = self.spaces.remove(&space).unwrap_or_default();
        self.live -= tables.iter().map(|&(level, _)| self.bytes[level]).sum::<u64>();
    }

    /// Takes tables away in whose range the space has none.
    fn shrink(&mut self, space: u32, view: &dyn Look) {
        let Some(tables) = self.spaces.get_mut(&space) else { return };
        let mut needed = HashSet::from_iter([(self.shifts.len() - 1, 0)]);
        view.leaf_tables(VirtRange::up_to(u64::MAX), &mut |table| {
            needed.extend((0..).zip(self.shifts).map(|(level, shift)| (level, table.start >> PAGE >> shift)));
        });
        for (level, _) in tables.extract_if(|table| !needed.contains(table)) {
            self.live -= self.bytes[level];
        }
    }

    /// Follows an event.
    pub fn follow(&mut self, moment: &Moment<'_>) {
        let Some(space) = moment.space else { return };
        let (mut copy, mut made, mut freed) = (None, false, false);
        for effect in moment.effects {
            match *effect {
                Effect::TableMade { level: 0, .. } => made = true,
                Effect::TableFreed { level: 0, .. } => freed = true,
                Effect::Forked { child } => copy = Some(child),
                Effect::TableCopied { start, .. } => self.add(copy.unwrap_or(space), start),
                Effect::Ended => self.end(space),
                _ => {}
            }
        }
        let Some(view) = moment.view.filter(|_| copy.is_none()) else { return };
        match moment.event.kind {
            Kind::Fault { page, .. } if made => self.add(space, page),
            _ if made => view.leaf_tables(VirtRange::up_to(u64::MAX), &mut |table| {
                self.add(space, table.start >> PAGE);
            }),
            _ => {}
        }
        if freed {
            self.shrink(space, view);
        }
    }
}
