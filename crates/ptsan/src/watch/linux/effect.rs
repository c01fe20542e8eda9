//! Carries out the effects of privileged instructions on the caches of their CPU.
use crate::{Flush, Memory, Sanitizer};

/// The effect of an instruction on the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    None,
    Load(Load),
    /// Drops the translations of an address in the current space, global ones too.
    FlushPage {
        va: u64,
    },
    /// Drops the translations of an address in a space and the tables on the way to it, except
    /// global translations. Unlike `invlpg` it spares the tables on the way to other addresses.
    FlushTagged {
        pcid: u64,
        va: u64,
    },
    /// Drops a space, except global translations.
    FlushTag {
        pcid: u64,
    },
    /// Drops all spaces, except global translations.
    FlushTags,
    /// Drops the current space, except global translations.
    FlushCurrent,
    FlushAll,
}

/// A load of the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) root: u64,
    pub(super) pcid: u64,
    /// Whether it keeps the cached translations.
    pub(super) keep: bool,
    /// Whether it flushes global translations too.
    pub(super) globals: bool,
}

impl Sanitizer {
    /// Calls the hooks for an instruction that the CPU has carried out.
    pub(super) fn carried_out(&mut self, memory: &(impl Memory + ?Sized), cpu: usize, effect: Effect) {
        let current = self.cpus.get(cpu).and_then(|c| c.loaded).map(|l| l.space);
        match effect {
            Effect::None => {}
            Effect::Load(load) => self.root_loaded(memory, cpu, load),
            // The instruction has no effect.
            Effect::FlushPage { va } if !self.config.arch.is_canonical(va) => {}
            Effect::FlushPage { va } => {
                let flush = current.map_or(Flush::page_in_every_space(va), |space| Flush::page(space, va));
                self.flush(memory, cpu, flush);
            }
            Effect::FlushTagged { pcid, va } => {
                if let Some(space) = self.tagged(pcid, current) {
                    self.flush_address(memory, cpu, space, va);
                }
            }
            Effect::FlushTag { pcid } => {
                if let Some(space) = self.tagged(pcid, current) {
                    self.flush(memory, cpu, Flush::space(space));
                }
            }
            Effect::FlushTags => self.flush_tags(memory, cpu, current),
            Effect::FlushCurrent => {
                if let Some(space) = current {
                    self.flush(memory, cpu, Flush::space(space));
                }
            }
            Effect::FlushAll => self.flush(memory, cpu, Flush::all()),
        }
    }

    /// Returns the space that a PCID stands for. Processors let one be flushed that was never
    /// loaded.
    fn tagged(&mut self, pcid: u64, current: Option<u64>) -> Option<u64> {
        let space = if self.config.asids { pcid } else { current? };
        self.spaces.insert(space, ());
        Some(space)
    }

    fn root_loaded(&mut self, memory: &(impl Memory + ?Sized), cpu: usize, load: Load) {
        let Load { root, pcid, keep, globals } = load;
        let loaded = self.cpus.get(cpu).and_then(|c| c.loaded).filter(|l| l.root == root);
        let known = loaded.map(|l| l.space).filter(|&space| !self.config.asids || space == pcid);
        let space = known.unwrap_or(if self.config.asids { pcid } else { root });
        if known.is_none() {
            self.switch(memory, cpu, root, space);
        }
        if globals && !keep {
            self.flush(memory, cpu, Flush::all());
        } else if !keep && (known.is_some() || self.config.asids) {
            self.flush(memory, cpu, Flush::space(space));
        }
    }

    /// Flushes all spaces that the CPU holds entries of, the current one last: reports name the
    /// last flush.
    fn flush_tags(&mut self, memory: &(impl Memory + ?Sized), cpu: usize, current: Option<u64>) {
        let Some(c) = self.cpus.get(cpu) else { return };
        let others = c.contexts.iter().map(|c| c.space).filter(|s| self.spaces.contains_key(s));
        let spaces: Vec<u64> = others.filter(|&s| Some(s) != current).chain(current).collect();
        for space in spaces {
            self.flush(memory, cpu, Flush::space(space));
        }
    }
}
