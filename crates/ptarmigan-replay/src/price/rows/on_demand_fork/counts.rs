//! Counts tables that are copied after a fork, and faults that are spared.
use super::sharing::{Change, Sharing};
use crate::linux::PAGE;
use crate::pages::REGION;
use crate::price::{Effect, Moment, entries, regions};
use ptarmigan::addr::VirtRange;
use ptarmigan::space::Done;
use ptarmigan_trace::{FaultFlags, Kind, Prot};

/// Why a table is copied after all.
#[derive(Clone, Copy)]
enum Why {
    Write,
    NewEntry,
    Call,
}

/// Counts of a recording.
#[derive(Default)]
pub struct Counts {
    sharing: Sharing,
    /// Tables that forks copy today, and their entries.
    pub forked: [u64; 2],
    /// Tables that are copied later instead, and their entries.
    pub copied: [u64; 2],
    /// The same by the reason: a write, a new entry, a call for a part of the table.
    pub by: [u64; 3],
    /// Faults of today on write-protected pages.
    pub protections: u64,
    /// Of these, those that nobody needs any more.
    pub spared: u64,
    /// Those that change the entry above a table only.
    pub lifted: u64,
}

impl Counts {
    /// Follows an event.
    pub fn follow(&mut self, moment: &Moment<'_>) {
        self.sharing.follow(moment);
        let Some(space) = moment.space else { return };
        for effect in moment.effects {
            if let Effect::TableCopied { entries, .. } = *effect
                && entries > 0
            {
                self.forked = [self.forked[0] + 1, self.forked[1] + u64::from(entries)];
            }
        }
        match moment.event.kind {
            Kind::Fault { page, flags } => self.fault(moment, space, page, flags),
            _ => self.call(moment, space),
        }
    }

    fn change(&mut self, space: u32, region: u64, why: Why) -> Change {
        let change = self.sharing.change(space, region, matches!(why, Why::Write));
        if let Change::Copied { entries } = change {
            self.copied = [self.copied[0] + 1, self.copied[1] + u64::from(entries)];
            self.by[why as usize] += 1;
        }
        change
    }

    fn fault(&mut self, moment: &Moment<'_>, space: u32, page: u64, flags: FaultFlags) {
        let Some(done) = moment.served() else { return };
        let came = |effect: &Effect| match *effect {
            Effect::Mapped { start, pages } => Some(start..start + pages),
            _ => None,
        };
        let came = moment.effects.iter().find_map(came);
        let is_new = came.is_some();
        let protects = !is_new && matches!(done, Done::Copied | Done::Reused);
        self.protections += u64::from(protects);
        let why = match protects || flags.0 & FaultFlags::WRITE != 0 {
            true => Why::Write,
            false if is_new => Why::NewEntry,
            false => return,
        };
        let alone = self.sharing.is_protected(space, page);
        if let Change::Last { lifted } = self.change(space, page / REGION, why)
            && done == Done::Reused
            && !alone
        {
            *if lifted { &mut self.lifted } else { &mut self.spared } += 1;
        }
        self.sharing.unprotect(space, &came.unwrap_or(page..page + 1));
    }

    /// A call took pages away, brought some, or changed permissions.
    fn call(&mut self, moment: &Moment<'_>, space: u32) {
        let (Some(view), kind) = (moment.view, moment.event.kind) else { return };
        let is_move = matches!(kind, Kind::Mremap { .. });
        let why = match kind {
            Kind::Touched { flags, .. } if flags.0 & FaultFlags::WRITE != 0 => Why::Write,
            Kind::Touched { .. } => Why::NewEntry,
            _ => Why::Call,
        };
        let mut change = |start, pages, came: bool| {
            for (region, part) in regions(start, pages) {
                // A call for all areas of a table takes the table away.
                if !came && !is_move && entries(view, region).is_none() {
                    self.sharing.leave(space, region);
                } else {
                    self.change(space, region, why);
                }
                if came {
                    self.sharing.unprotect(space, &part);
                }
            }
        };
        for effect in moment.effects {
            match *effect {
                Effect::Unmapped { start, pages } => change(start, pages, false),
                Effect::Moved { from, to, pages } => {
                    change(from, pages, false);
                    change(to, pages, true);
                }
                Effect::Mapped { start, pages } => change(start, pages, true),
                _ => {}
            }
        }
        let Kind::Mprotect { start, pages, prot } = kind else { return };
        for (region, part) in self.sharing.within(space, start, pages) {
            if view.pages(VirtRange::saturating_pages(part.start, part.end - part.start, PAGE)) > 0 {
                self.change(space, region, why);
            }
            if prot.0 & Prot::WRITE == 0 {
                self.sharing.protect(space, &part);
            }
        }
    }
}
