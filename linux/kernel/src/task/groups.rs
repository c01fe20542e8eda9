//! The groups of a process beside its own, which it gets back as it has set them.

/// Groups at the most.
pub const GROUPS: usize = 32;

/// The groups of a process, in order.
pub struct Groups {
    count: u8,
    all: [u32; GROUPS],
}

impl Groups {
    /// No groups.
    pub const NONE: Groups = Groups { count: 0, all: [0; GROUPS] };

    /// Makes a set of groups, which Linux sorts; `None` if there are too many.
    pub fn new(groups: &[u32]) -> Option<Self> {
        let mut new = Groups { count: groups.len() as u8, ..Groups::NONE };
        new.all.get_mut(..groups.len())?.copy_from_slice(groups);
        new.all[..groups.len()].sort_unstable();
        Some(new)
    }

    /// Takes over another process's groups.
    pub fn copy_from(&mut self, other: &Groups) {
        let groups = other.get();
        self.count = groups.len() as u8;
        self.all[..groups.len()].copy_from_slice(groups);
    }

    /// Returns the groups.
    pub fn get(&self) -> &[u32] {
        &self.all[..usize::from(self.count).min(GROUPS)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_sorted_and_not_too_many() {
        assert!(Groups::NONE.get().is_empty());
        assert_eq!(Groups::new(&[7, 0, 7, 3]).expect("few").get(), [0, 3, 7, 7]);
        assert_eq!(Groups::new(&[1; GROUPS]).expect("all").get(), [1; GROUPS]);
        assert!(Groups::new(&[1; GROUPS + 1]).is_none());
    }
}
