//! Children of processes, in the order in which they came.

use super::family::Family;
use super::{Process, TaskQueues};

fn slot(name: u16) -> Option<usize> {
    usize::from(name).checked_sub(1)
}

impl TaskQueues {
    fn family(&mut self, process: usize) -> &mut Family {
        &mut self.process_mut(process).family
    }

    /// Makes a process, which is no one's child, the youngest child of another.
    pub fn adopt(&mut self, parent: usize, child: usize) {
        let name = child as u16 + 1;
        let before = core::mem::replace(&mut self.family(parent).youngest, name);
        match slot(before) {
            Some(before) => self.family(before).younger = name,
            None => self.family(parent).eldest = name,
        }
        let process = self.process_mut(child);
        process.parent = parent;
        (process.family.older, process.family.younger) = (before, 0);
    }

    /// Takes a process out of its parent's children.
    pub fn disown(&mut self, child: usize) {
        let Process { parent, family: Family { older, younger, .. }, .. } = *self.process(child);
        match slot(older) {
            Some(older) => self.family(older).younger = younger,
            None => self.family(parent).eldest = younger,
        }
        match slot(younger) {
            Some(younger) => self.family(younger).older = older,
            None => self.family(parent).youngest = older,
        }
    }

    /// Returns a process's eldest child.
    pub fn eldest(&self, process: usize) -> Option<usize> {
        slot(self.process(process).family.eldest)
    }

    /// Returns the children of a process, ended ones too, the eldest first.
    pub fn children(&self, process: usize) -> impl Iterator<Item = usize> + '_ {
        core::iter::successors(self.eldest(process), |child| slot(self.process(*child).family.younger))
    }
}
