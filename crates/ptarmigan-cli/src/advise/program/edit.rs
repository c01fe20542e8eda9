//! A recording written anew, with changes.
//!
//! Linux's counts of tables are left out: they are of the program as it was.
use ptarmigan_replay::{PackedEvent, PackedKind, Trace};
use ptarmigan_trace::{FaultFlags, Kind};

/// A copy of a recording, made step by step.
pub struct Edit<'t> {
    from: &'t Trace,
    steps: Vec<PackedEvent>,
    rare: Vec<Kind>,
    faults: u64,
}

impl<'t> Edit<'t> {
    /// Begins a copy of `from`, without steps.
    pub fn of(from: &'t Trace) -> Self {
        Edit { from, steps: Vec::with_capacity(from.steps.len()), rare: Vec::new(), faults: 0 }
    }

    /// Returns a copy without some events, which are in order.
    pub fn without(from: &Trace, events: impl IntoIterator<Item = u32>) -> Trace {
        let (mut gone, mut edit) = (events.into_iter().peekable(), Edit::of(from));
        for (step, event) in from.steps.iter().zip(0_u32..) {
            if gone.next_if_eq(&event).is_none() {
                edit.keep(step);
            }
        }
        edit.finish()
    }

    /// Returns the call that a step of the original makes.
    pub fn kind(&self, step: &PackedEvent) -> Option<Kind> {
        match step.what {
            PackedKind::Rare(rare) => Some(self.from.rare[rare as usize]),
            PackedKind::Fault { .. } | PackedKind::Idle => None,
        }
    }

    /// Adds a step of the original.
    pub fn keep(&mut self, step: &PackedEvent) {
        match (step.what, self.kind(step)) {
            (PackedKind::Fault { page, flags }, _) => self.fault(step, page, flags),
            (_, Some(kind)) => self.call(step, kind),
            (_, None) => self.steps.push(*step),
        }
    }

    /// Adds a call by the task of `like`, on the same CPU.
    pub fn call(&mut self, like: &PackedEvent, kind: Kind) {
        if let Kind::Truth { .. } = kind {
            return;
        }
        self.steps.push(PackedEvent { what: PackedKind::Rare(self.rare.len() as u32), ..*like });
        self.rare.push(kind);
    }

    /// Adds a fault of the task of `like`, on the same CPU.
    pub fn fault(&mut self, like: &PackedEvent, page: u64, flags: FaultFlags) {
        self.faults += 1;
        self.steps.push(PackedEvent { what: PackedKind::Fault { page, flags }, ..*like });
    }

    /// Returns the copy.
    pub fn finish(self) -> Trace {
        let Trace {
            ref header,
            ref name,
            cpus,
            tasks,
            processes,
            lost,
            unrecorded,
            ref settings,
            access_unknown,
            huge,
            blocks,
            locks,
            huge_only,
            ref account,
            ref symbols,
            ..
        } = *self.from;
        Trace {
            header: header.clone(),
            name: name.clone(),
            cpus,
            tasks,
            processes,
            events: self.steps.len() as u64,
            faults: self.faults,
            lost,
            unrecorded,
            settings: settings.clone(),
            steps: self.steps,
            rare: self.rare,
            access_unknown,
            huge,
            blocks,
            locks,
            huge_only,
            symbols: symbols.clone(),
            // Both are by the number of a step of the original.
            flush_marks: Vec::new(),
            times: Vec::new(),
            timings: Vec::new(),
            account: account.clone(),
        }
    }
}
