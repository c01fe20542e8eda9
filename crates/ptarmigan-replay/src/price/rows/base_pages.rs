//! Base pages of 16 and 64 KiB: a fault brings a whole page, and a write copies one.
//!
//! Pages of 4 KiB that share a larger one within an area are rounded to it: the first of them
//! faults, the others find it there. After a fork, and after `mprotect`, the first write faults
//! again for all. Huge pages are left out.
mod answer;
mod tables;

use crate::linux::PAGE;
use crate::pages::REGION;
use crate::price::{About, Answer, Effect, Moment, PageSets, Row, Whole};
use ptarmigan::addr::VirtRange;
use ptarmigan::space::{AreaFlags, Done};
use ptarmigan_trace::{FaultFlags, Kind};
use tables::BaseTables;

/// Pages of 4 KiB in a base page, and its name.
const SIZES: [(u64, &str); 2] = [(4, "16K"), (16, "64K")];

/// The work with base pages of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Work {
    faults: u64,
    /// First faults on anonymous memory.
    first: u64,
    /// Pages of 4 KiB that are cleared and copied.
    cleared: u64,
    copied: u64,
    /// Pages of areas.
    mapped: u64,
}

/// Base pages of two sizes.
pub struct BasePages {
    /// The pages that are there, and the ones that the space may write.
    sets: PageSets<2>,
    /// As recorded, then by size.
    work: [Work; 1 + SIZES.len()],
    tables: [BaseTables; SIZES.len()],
}

impl Default for BasePages {
    fn default() -> Self {
        let tables = SIZES.map(|(pages, _)| BaseTables::new(pages));
        BasePages { sets: PageSets::default(), work: Default::default(), tables }
    }
}

impl BasePages {
    fn fault(&mut self, moment: &Moment<'_>, space: u32, (page, flags): (u64, FaultFlags), done: Done) {
        let Some(area) = moment.view.and_then(|view| view.area(page << PAGE)) else { return };
        let anonymous = !area.flags.has(AreaFlags::SHARED) && !area.flags.has(AreaFlags::BACKED);
        let mapped = moment.effects.iter().find_map(|effect| match *effect {
            Effect::Mapped { start, pages } => Some(start..start + pages),
            _ => None,
        });
        let (new, mapped) = (mapped.is_some(), mapped.unwrap_or(page..page + 1));
        let pages = mapped.end - mapped.start;
        let writes = flags.0 & FaultFlags::WRITE != 0 || matches!(done, Done::Fresh | Done::Copied);
        let [there, written] = self.sets.table(space, page);
        for (work, size) in self.work.iter_mut().zip([1].into_iter().chain(SIZES.map(|(pages, _)| pages))) {
            let start = page / size * size;
            let whole = start.max(area.start >> PAGE)..(start + size).min(area.end >> PAGE);
            // A fault on a page that is as it should be has another reason than its place.
            let odd = if writes { written.has(page) } else { !new };
            if size > 1 && !odd && (if writes { &*written } else { &*there }).any(&whole) {
                continue;
            }
            work.faults += 1;
            work.first += u64::from(anonymous && new);
            work.cleared += if done == Done::Fresh { size.max(pages) } else { 0 };
            work.copied += if done == Done::Copied { size } else { 0 };
        }
        there.add_all(&mapped);
        if writes {
            written.add_all(&mapped);
        }
    }

    /// Writes to a table's pages fault again.
    fn protect(&mut self, space: u32, start: u64, pages: std::ops::Range<u64>) {
        if self.sets.get(space, start).is_some() {
            let part = pages.start.max(start)..pages.end.min(start + REGION);
            self.sets.table(space, start)[1].remove_all(&part);
        }
    }
}

impl Row for BasePages {
    fn about(&self) -> About {
        About {
            name: "base-pages",
            title: "use base pages of 16 or 64 KiB",
            reference: "AArch64's granules (Arm ARM, D8); Linux for AArch64 with CONFIG_ARM64_16K_PAGES",
            claim: "Android's developers measured faster starts of programs with 16 KiB, and more memory",
        }
    }

    fn event(&mut self, moment: &Moment<'_>) {
        self.sets.follow(moment);
        self.tables.iter_mut().for_each(|tables| tables.follow(moment));
        let Some(space) = moment.space else { return };
        let mut copy = space;
        for effect in moment.effects {
            match (effect, moment.event.kind) {
                (Effect::Served(done), Kind::Fault { page, flags }) => {
                    self.fault(moment, space, (page, flags), *done);
                }
                (Effect::Forked { child }, _) => copy = *child,
                (Effect::TableCopied { start, .. }, _) => {
                    self.protect(space, *start, *start..*start + REGION);
                    self.protect(copy, *start, *start..*start + REGION);
                }
                _ => {}
            }
        }
        match (moment.event.kind, moment.view) {
            (Kind::Mprotect { start, pages, .. }, Some(view)) => {
                let range = VirtRange::saturating_pages(start, pages, PAGE);
                view.leaf_tables(range, &mut |table| {
                    self.protect(space, table.start >> PAGE, start..start.saturating_add(pages));
                });
            }
            (Kind::Mmap { pages, .. } | Kind::Area { pages, .. }, Some(_)) => {
                self.work[0].mapped = self.work[0].mapped.saturating_add(pages);
                for (work, (size, _)) in self.work[1..].iter_mut().zip(SIZES) {
                    work.mapped = work.mapped.saturating_add(pages.div_ceil(size) * size);
                }
            }
            _ => {}
        }
    }

    fn answer(&mut self, whole: &Whole<'_>) -> Result<Answer, String> {
        answer::of(&self.work, &self.tables, whole)
    }
}

#[cfg(test)]
mod tests;
