//! Sets of CPUs.

/// A set of CPUs. Sets of CPUs below 64 do not allocate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuMask {
    low: u64,
    high: Vec<u64>,
}

impl CpuMask {
    pub(crate) fn insert(&mut self, cpu: usize) {
        match cpu.checked_sub(64) {
            None => self.low |= 1 << cpu,
            Some(above) => {
                if self.high.len() <= above / 64 {
                    self.high.resize(above / 64 + 1, 0);
                }
                self.high[above / 64] |= 1 << (above % 64);
            }
        }
    }

    pub(crate) fn remove(&mut self, cpu: usize) {
        match cpu.checked_sub(64) {
            None => self.low &= !(1 << cpu),
            Some(above) => {
                if let Some(word) = self.high.get_mut(above / 64) {
                    *word &= !(1 << (above % 64));
                }
            }
        }
    }

    pub(crate) fn contains(&self, cpu: usize) -> bool {
        match cpu.checked_sub(64) {
            None => self.low & 1 << cpu != 0,
            Some(above) => self.high.get(above / 64).is_some_and(|word| word & 1 << (above % 64) != 0),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.low == 0 && self.high.iter().all(|word| *word == 0)
    }

    pub(crate) fn add_all(&mut self, other: &Self) {
        self.low |= other.low;
        if self.high.len() < other.high.len() {
            self.high.resize(other.high.len(), 0);
        }
        for (word, more) in self.high.iter_mut().zip(&other.high) {
            *word |= more;
        }
    }

    /// Returns those of the CPUs that `which` names.
    pub(crate) fn only(&self, which: impl Fn(usize) -> bool) -> Self {
        let mut left = Self::default();
        self.iter().filter(|&cpu| which(cpu)).for_each(|cpu| left.insert(cpu));
        left
    }

    /// Lists the CPUs, lowest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let words = std::iter::once(&self.low).chain(&self.high).enumerate();
        words.flat_map(|(n, &word)| {
            (0..64).filter(move |bit| word & 1 << bit != 0).map(move |bit| 64 * n + bit)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_come_and_go_below_and_above_64() {
        let mut set = CpuMask::default();
        [3, 200, 63, 64].into_iter().for_each(|cpu| set.insert(cpu));
        assert_eq!(set.iter().collect::<Vec<_>>(), [3, 63, 64, 200]);
        let mut other = CpuMask::default();
        other.add_all(&set);
        [3, 64, 63, 500].into_iter().for_each(|cpu| set.remove(cpu));
        assert!(set.contains(200) && !set.contains(64) && !set.contains(1000));
        set.remove(200);
        assert!(set.is_empty());
        assert_eq!(other.iter().collect::<Vec<_>>(), [3, 63, 64, 200]);
    }
}
