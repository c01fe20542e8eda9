//! Finds CPUs that may still walk a table or use entries that they read from it.
use crate::cpu::{Cpu, CpuState};
use crate::memory::Memory;
use crate::report::{Happened, Kind, Place, Rule};
use crate::shadow::{Frame, FrameRef, GLOBALS, Holder, REGISTERS};
use crate::state::Sanitizer;

/// The most tables that are remembered as reported.
const MOST_BLAMED: usize = 1 << 16;

/// How the hardware can still reach a table.
pub(super) struct TableHolder {
    pub(super) rule: Rule,
    cpu: usize,
    space: Option<u64>,
    va: Option<u64>,
    since: Option<u64>,
}

impl Sanitizer {
    /// Returns the first CPU that holds the table. A context that is not loaded does not count: see
    /// [`crate::Config::asids`].
    pub(super) fn held(
        &self,
        memory: &(impl Memory + ?Sized),
        at: FrameRef,
        f: &Frame,
    ) -> Option<TableHolder> {
        for (cpu, c) in self.cpus.iter().enumerate() {
            if let Some(loaded) = c.loaded.filter(|l| f.contains(l.root) && l.frame == at) {
                let space = Some(loaded.space);
                return Some(TableHolder { rule: Rule::HeldAsRoot, cpu, space, va: None, since: None });
            }
        }
        for (cpu, c) in self.cpus.iter().enumerate() {
            if let Some(flight) = c.flights.iter().find(|f| f.table.frame == at) {
                let space = c.loaded.map(|l| l.space);
                let (va, since) = (Some(flight.va), Some(flight.since));
                return Some(TableHolder { rule: Rule::HeldByWalker, cpu, space, va, since });
            }
        }
        let arch = &self.config.arch;
        if arch.hashed.is_some() {
            return (0..self.cpus.len()).find_map(|cpu| {
                let (va, held) = self.held_of_hash_table(memory, cpu, at)?;
                let space = self.cpus[cpu].loaded.map(|l| l.space);
                Some(TableHolder { rule: Rule::HeldInTlb, cpu, space, va: Some(va), since: Some(held.since) })
            });
        }
        f.holders.iter().find_map(|h| {
            let cpu = usize::from(h.cpu);
            let c = &self.cpus[cpu];
            if generation_of(c, h.context) != Some(h.generation) {
                return None;
            }
            let loaded = c.loaded?;
            let start = Some(arch.position_start(h.position));
            let held = |rule, va, since| TableHolder {
                rule,
                cpu,
                space: Some(loaded.space),
                va,
                since: Some(since),
            };
            let context = match h.context {
                REGISTERS => return Some(held(Rule::HeldInTopRegister, start, h.since)),
                GLOBALS => &c.globals,
                own if own == loaded.context => &c.contexts[own as usize],
                _ => return None,
            };
            if context.table(h.position).is_some_and(|t| t.frame == at) {
                return Some(held(Rule::HeldInStructureCache, start, h.since));
            }
            // A CPU that is lazy or has come back flushes before it uses translations of its own.
            let unused = |since| h.context != GLOBALS && !c.uses(loaded.space, since);
            let mut read = context.read_from(arch, h.position, at).filter(|(_, held)| !unused(held.since));
            read.find_map(|(va, entry)| {
                if self.debts.was_reported(arch, loaded.space, va) {
                    return None;
                }
                let same = self.look(memory, loaded.root, va).is_ok_and(|t| t.phys == entry.phys);
                (!same).then(|| held(Rule::HeldInTlb, Some(va), entry.since))
            })
        })
    }

    /// Reports the table if some CPU could still walk it, or use an entry that it read from it.
    /// Returns whether one could.
    pub(crate) fn check_held(&mut self, memory: &(impl Memory + ?Sized), at: FrameRef, kind: Kind) -> bool {
        let Some(f) = self.frames.get(at) else { return false };
        let Some(held) = self.held(memory, at, f) else { return false };
        let place = Place {
            frame: Some(f.phys),
            va: held.va,
            cpu: Some(held.cpu),
            level: f.level,
            space: held.space,
        };
        let cpu = &self.cpus[held.cpu];
        let state = match cpu.state {
            CpuState::Active => "active",
            CpuState::Lazy => "lazy",
            CpuState::Away => "away",
        };
        let space = held.space.unwrap_or_default();
        let why = self.explain_flush(held.cpu, space, held.va, Some(held.rule), held.since);
        let store = self.debts.store_of_table(at).cloned();
        let reader = self.reader(held.cpu);
        self.report_of(store.as_ref(), (kind, held.rule), place, || {
            let since = held.since.map_or_else(String::new, |e| format!(", since event {e}"));
            format!("{reader} is {state}{since}; {why}")
        });
        self.blame(at);
        true
    }

    /// Records that a table was reported: later findings have the same cause.
    pub(super) fn blame(&mut self, at: FrameRef) {
        if self.blamed.len() < MOST_BLAMED {
            self.blamed.insert(at, ());
        }
    }

    /// Records that a CPU may hold a table from now on.
    #[inline]
    pub(crate) fn hold(&mut self, at: FrameRef, holder: Holder, va: u64) {
        let cpus = &self.cpus;
        let arch = &self.config.arch;
        let Some(f) = self.frames.get_mut(at) else { return };
        let valid = |h: &Holder| generation_of(&cpus[usize::from(h.cpu)], h.context) == Some(h.generation);
        if f.hold(holder, valid) {
            let level = (holder.position & 7) as u8;
            debug_assert!(usize::from(level) < arch.levels.len());
            let walked = Happened::Walked { cpu: usize::from(holder.cpu), level, va };
            f.history.push(holder.since, walked);
        }
    }
}

/// Returns the generation of a holder's context, or `None` if the context is gone.
pub(super) fn generation_of(cpu: &Cpu, context: u32) -> Option<u32> {
    match context {
        REGISTERS => Some(cpu.register_generation),
        GLOBALS => Some(cpu.globals.generation),
        own => cpu.contexts.get(own as usize).map(|c| c.generation),
    }
}
