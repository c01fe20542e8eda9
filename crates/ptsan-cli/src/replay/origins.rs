//! Notes from which records the events of findings come.
use super::recent::{Origin, Recent};
use ptsan::{Recorded, Sanitizer, Trace};
use std::collections::HashMap;

/// The records that the findings of a sanitizer name.
#[derive(Default)]
pub(super) struct Origins {
    /// For each finding kept, the records of the events that it names.
    pub(super) made: Vec<HashMap<u64, Origin>>,
    /// How often anything was found.
    total: u64,
    recent: Recent,
}

impl Origins {
    /// Notes that a record is carried out next.
    pub(super) fn begins(&mut self, san: &Sanitizer, origin: Origin) {
        self.recent.push(san.event() + 1, origin);
    }

    /// Notes which records the findings that are new name.
    pub(super) fn ended(&mut self, san: &Sanitizer, origin: Origin) {
        let total = san.total();
        if std::mem::replace(&mut self.total, total) == total {
            return;
        }
        for (index, finding) in san.findings().iter().enumerate() {
            if index == self.made.len() {
                let known = finding.events().filter_map(|event| Some((event, self.recent.find(event)?)));
                self.made.push(known.chain([(finding.event, origin)]).collect());
            }
            // Consequences of the same cause may come later.
            for consequence in &finding.consequences {
                self.made[index].entry(consequence.event).or_insert(origin);
            }
        }
    }

    /// Names records in place of events. `callers` gives the code behind an instruction of a
    /// record.
    pub(super) fn name(
        &self,
        san: &mut Sanitizer,
        unit: &'static str,
        mut callers: impl FnMut(u64) -> Trace,
    ) {
        let mut recorded = |(event, origin): (&u64, &Origin)| {
            (*event, Recorded { number: origin.record, callers: origin.pc.map(&mut callers) })
        };
        let named: Vec<HashMap<u64, Recorded>> =
            self.made.iter().map(|events| events.iter().map(&mut recorded).collect()).collect();
        san.name_events(unit, |index, event| named.get(index)?.get(&event).cloned());
    }
}
