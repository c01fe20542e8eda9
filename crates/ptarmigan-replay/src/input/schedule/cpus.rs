//! Maps recorded CPUs to logical CPUs.

/// Maps recorded CPUs to fewer logical CPUs, or splits them into more.
#[derive(Clone, Copy, Debug)]
pub struct CpuMap {
    recorded: usize,
    logical: usize,
}

impl CpuMap {
    /// Maps `recorded` CPUs to `logical` ones. Both are at least 1.
    pub fn new(recorded: usize, logical: usize) -> Self {
        CpuMap { recorded: recorded.max(1), logical: logical.max(1) }
    }

    /// Returns the number of logical CPUs.
    pub fn logical(&self) -> usize {
        self.logical
    }

    /// Returns the logical CPU for an event of `task` that was recorded on `cpu`.
    ///
    /// With fewer logical than recorded CPUs, it is `cpu` modulo their number. With more, each
    /// recorded CPU gets an equal share of the logical ones (the first CPUs one more if the
    /// division leaves a rest), and its tasks are spread over the share.
    pub fn of(&self, cpu: u16, task: u32) -> u16 {
        let cpu = usize::from(cpu);
        if self.logical <= self.recorded {
            return (cpu % self.logical) as u16;
        }
        let (each, more) = (self.logical / self.recorded, self.logical % self.recorded);
        let first = cpu * each + cpu.min(more);
        let share = each + usize::from(cpu < more);
        // Task numbers follow the order of creation, in which shells, compilers and assemblers
        // alternate. The hash keeps tasks of one kind from all landing on one CPU.
        let hash = (task.wrapping_mul(0x9e37_79b9) >> 16) as usize;
        (first + hash % share) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::CpuMap;
    use std::collections::BTreeSet;

    #[test]
    fn every_logical_cpu_gets_tasks_of_one_recorded_cpu_only() {
        for recorded in 1..=5_usize {
            for logical in recorded..=40 {
                let map = CpuMap::new(recorded, logical);
                let of = |cpu| (0..2000).map(|task| map.of(cpu, task)).collect::<BTreeSet<u16>>();
                let shares: Vec<_> = (0..recorded as u16).map(of).collect();
                let all: BTreeSet<u16> = shares.iter().flatten().copied().collect();
                assert_eq!(all.len(), logical, "{recorded} on {logical}: all are used");
                assert_eq!(shares.iter().map(BTreeSet::len).sum::<usize>(), logical, "and none is shared");
            }
        }
    }

    #[test]
    fn fewer_cpus_take_turns_and_as_many_stay_as_they_are() {
        let of = |recorded, logical| {
            let map = CpuMap::new(recorded, logical);
            (0..recorded as u16).map(|cpu| map.of(cpu, 7)).collect::<Vec<_>>()
        };
        assert_eq!(of(5, 2), [0, 1, 0, 1, 0]);
        assert_eq!(of(4, 4), [0, 1, 2, 3]);
    }
}
