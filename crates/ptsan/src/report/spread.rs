//! The places at which one cause was found.
use super::machine::MachineNames;
use super::place::Place;
use super::wrap;
use std::fmt;

/// The number of places, CPUs and spaces that are remembered one by one.
const FIRST: usize = 4;

/// All places at which a rule was broken for one cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// The number of distinct places: table frames, else pages, else spaces.
    pub places: u64,
    /// The lowest and the highest table frame, by physical address.
    pub frames: Option<(u64, u64)>,
    /// The lowest and the highest virtual address.
    pub addresses: Option<(u64, u64)>,
    /// The first places, at most 4. The first of them is [`Finding::place`](super::Finding::place).
    pub first: Vec<Place>,
    /// The CPUs, at most 4, in the order in which they were seen.
    pub cpus: Vec<usize>,
    /// The address spaces, at most 4, in the order in which they were seen.
    pub spaces: Vec<u64>,
    /// Whether there are more CPUs or spaces than are listed.
    pub more: bool,
}

impl Spread {
    pub(super) fn new(place: &Place) -> Self {
        let mut new = Self {
            places: 0,
            frames: None,
            addresses: None,
            first: Vec::new(),
            cpus: Vec::new(),
            spaces: Vec::new(),
            more: false,
        };
        new.add(place);
        new
    }

    /// Adds a place that was not seen before.
    pub(super) fn add(&mut self, place: &Place) {
        self.places += 1;
        if self.first.len() < FIRST {
            self.first.push(*place);
        }
        self.touch(place);
    }

    /// Adds the new facts about a place that was seen before: its CPU, for example.
    pub(super) fn touch(&mut self, place: &Place) {
        widen(&mut self.frames, place.frame);
        widen(&mut self.addresses, place.va);
        self.more |= remember(&mut self.cpus, place.cpu) | remember(&mut self.spaces, place.space);
    }

    /// Writes the lines of a report on the places beyond the first, if there are any.
    pub(super) fn write(
        &self,
        f: &mut fmt::Formatter<'_>,
        count: u64,
        machine: &MachineNames,
    ) -> fmt::Result {
        if self.places > 1 {
            let (what, range, one): (_, _, fn(&Place) -> Option<u64>) = match (self.frames, self.addresses) {
                (Some(range), _) => ("table frames", Some(range), |p| p.frame),
                (None, Some(range)) => ("pages", Some(range), |p| p.va),
                (None, None) => ("places", None, |_| None),
            };
            let mut text = format!("{} {what}", self.places);
            if let Some((low, high)) = range {
                text.push_str(&format!(", {low:#x} to {high:#x}: "));
                let first: Vec<_> = self.first.iter().filter_map(one).map(|a| format!("{a:#x}")).collect();
                text.push_str(&first.join(", "));
                if self.places > first.len() as u64 {
                    text.push_str(", …");
                }
            }
            wrap::line(f, 2, &text)?;
            if let (Some(_), Some((low, high))) = (self.frames, self.addresses)
                && low != high
            {
                wrap::line(f, 2, &format!("for addresses from {low:#x} to {high:#x}"))?;
            }
        }
        let devices = self.cpus.iter().any(|&n| machine.is_device(n));
        // `CPUs 1, 2`, or `by CPU 1, device 0`.
        let readers = if devices { "by" } else { "CPUs" };
        let number = |&n: &usize| if devices { machine.reader(n) } else { n.to_string() };
        for (what, all) in [
            (readers, self.cpus.iter().map(number).collect::<Vec<_>>()),
            ("spaces", self.spaces.iter().map(|space| format!("{space:#x}")).collect()),
        ] {
            if all.len() > 1 {
                let more = if self.more && all.len() == FIRST { ", …" } else { "" };
                wrap::line(f, 2, &format!("{what} {}{more}", all.join(", ")))?;
            }
        }
        if count > self.places { wrap::line(f, 2, &format!("found {count} times")) } else { Ok(()) }
    }
}

fn widen(range: &mut Option<(u64, u64)>, address: Option<u64>) {
    if let Some(a) = address {
        let (low, high) = range.unwrap_or((a, a));
        *range = Some((low.min(a), high.max(a)));
    }
}

/// Remembers a value, and returns whether there was no room for it.
fn remember<T: PartialEq>(all: &mut Vec<T>, new: Option<T>) -> bool {
    let Some(new) = new.filter(|new| !all.contains(new)) else { return false };
    let full = all.len() >= FIRST;
    if !full {
        all.push(new);
    }
    full
}
