//! One CPU: what it has loaded and what it holds.
use super::context::Context;
use super::flush::Flush;
use crate::arch::Perms;
use crate::frames::FrameRef;
use crate::hash::FastMap;

/// How a CPU uses the root that it has loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CpuState {
    /// Runs in the address space.
    Active,
    /// Runs kernel code with the root still loaded; its walker may still walk (REQ-5).
    Lazy,
    /// Has no user root loaded.
    #[default]
    Away,
}

/// The root that a CPU has loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loaded {
    pub(crate) space: u64,
    pub(crate) root: u64,
    pub(crate) frame: FrameRef,
    /// Which of the CPU's contexts is used.
    pub(crate) context: u32,
}

/// A top entry held in a register.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Register {
    Empty,
    Table { phys: u64, perms: Perms, frame: FrameRef },
}

#[derive(Default)]
pub(crate) struct Cpu {
    pub(crate) state: CpuState,
    pub(crate) loaded: Option<Loaded>,
    pub(crate) contexts: Vec<Context>,
    by_space: FastMap<u64, u32>,
    spare: Vec<u32>,
    /// Global translations: no paging-structure entries here.
    pub(crate) globals: Context,
    pub(crate) registers: Vec<Register>,
    /// Raised whenever the registers are loaded.
    pub(crate) register_generation: u32,
    /// The last flush since the root was loaded.
    last_flush: Option<(u64, Flush)>,
}

impl Cpu {
    pub(crate) fn new() -> Self {
        Self { globals: Context::new(u64::MAX), ..Self::default() }
    }

    /// The context in which `space` runs here. Without ASIDs there is one for all, and it starts empty.
    pub(crate) fn enter(&mut self, space: u64, asids: bool) -> u32 {
        if !asids {
            match self.contexts.first_mut() {
                Some(only) => {
                    only.clear();
                    only.space = space;
                }
                None => self.contexts.push(Context::new(space)),
            }
            return 0;
        }
        if let Some(&known) = self.by_space.get(&space) {
            return known;
        }
        let index = match self.spare.pop() {
            Some(index) => {
                self.contexts[index as usize].space = space;
                index
            }
            None => {
                self.contexts.push(Context::new(space));
                (self.contexts.len() - 1) as u32
            }
        };
        self.by_space.insert(space, index);
        index
    }

    /// The context that holds entries of `space`, if any does.
    pub(crate) fn context_of(&mut self, space: u64, asids: bool) -> Option<&mut Context> {
        if asids {
            let index = *self.by_space.get(&space)?;
            return self.contexts.get_mut(index as usize);
        }
        let loaded = self.loaded.filter(|l| l.space == space)?;
        self.contexts.get_mut(loaded.context as usize)
    }

    /// What is held of all spaces, and of none in particular.
    pub(crate) fn everything(&mut self) -> impl Iterator<Item = &mut Context> {
        self.contexts.iter_mut().chain([&mut self.globals])
    }

    /// Remembers a flush, for reports.
    pub(crate) fn note_flush(&mut self, event: u64, flush: Flush) {
        self.last_flush = Some((event, flush));
    }

    /// The last flush since the root was loaded, and when.
    pub(crate) fn last_flush(&self) -> Option<(u64, Flush)> {
        self.last_flush
    }

    /// Runs with another root.
    pub(crate) fn load(&mut self, loaded: Loaded) {
        self.loaded = Some(loaded);
        self.state = CpuState::Active;
        self.last_flush = None;
    }

    /// Forgets a space for good.
    pub(crate) fn forget(&mut self, space: u64) {
        if let Some(index) = self.by_space.remove(&space) {
            self.contexts[index as usize].clear();
            self.spare.push(index);
        }
    }

    pub(crate) fn runs(&self, space: u64) -> bool {
        self.loaded.is_some_and(|l| l.space == space)
    }
}
