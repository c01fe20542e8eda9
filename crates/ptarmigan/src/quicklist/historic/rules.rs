//! What the versions of the historic quicklists differ in, and the trim's arithmetic.

/// What all users in the tree passed to the trim: lists up to this long are left alone.
pub(super) const MIN_PAGES: usize = 25;
/// The other number that they passed: pages that one call takes off one list at the most.
const MAX_FREE: usize = 16;
/// Share of a node's free memory that one list may hold.
const FRACTION_OF_NODE_MEM: usize = 16;

/// One version of the code, by what it does differently from the others. Lists, links, order and
/// the trim's numbers are the same in all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// A page of another node than the running CPU's goes to the allocator at once, before the
    /// flush (H5). Without the test it goes on the CPU's list, and rests on a foreign node (H6).
    pub node_test: bool,
    /// Free memory is all of the node's, also what no table may be made of (H8); otherwise what the
    /// kernel can use for its own ends.
    pub counts_high: bool,
    /// The CPUs of a node share what otherwise each of them may hold (H10).
    pub divides_by_cpus: bool,
}

impl Rules {
    /// Version 5 of the patch, April 2007.
    pub const V5: Rules = Rules { node_test: true, counts_high: true, divides_by_cpus: false };
    /// Linux 2.6.25 and 2.6.26: after the repairs of December 2007 and January 2008.
    pub const LINUX_2_6_25: Rules = Rules { node_test: false, counts_high: false, divides_by_cpus: false };
    /// Linux 2.6.27: after the change of August 2008. It stayed like this until its removal in 5.4.
    pub const V2008: Rules = Rules { node_test: false, counts_high: false, divides_by_cpus: true };

    /// `max_pages`: what a list may hold.
    fn max_pages(self, node: NodeState) -> usize {
        let free = u64::from(node.free_low) + if self.counts_high { u64::from(node.free_high) } else { 0 };
        let mut most = (free / FRACTION_OF_NODE_MEM as u64) as usize;
        if self.divides_by_cpus {
            // On a node without CPUs no trim runs; the kernel would divide by zero.
            most /= (node.cpus as usize).max(1);
        }
        most.max(MIN_PAGES)
    }

    /// Returns whether the trim looks at a list at all. `nr_pages > min_pages` compares as
    /// unsigned, so that a negative count passes.
    pub(super) fn looks_at(nr_pages: i32) -> bool {
        nr_pages as usize > MIN_PAGES
    }

    /// `min_pages_to_free`: as in the kernel, an unsigned difference taken for a signed number;
    /// none if negative.
    pub(super) fn to_free(self, nr_pages: i32, node: NodeState) -> i64 {
        let difference = (i64::from(nr_pages) as u64).wrapping_sub(self.max_pages(node) as u64) as i64;
        difference.min(MAX_FREE as i64)
    }
}

/// What the arithmetic knows of the CPU's node at the moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeState {
    /// Free frames that the kernel can use for its own ends.
    pub free_low: u32,
    /// Free frames of high memory.
    pub free_high: u32,
    /// CPUs of the node.
    pub cpus: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a trim frees, of a list of `count` pages.
    fn freed(rules: Rules, count: i32, free_low: u32, free_high: u32, cpus: u32) -> i64 {
        if !Rules::looks_at(count) {
            return 0;
        }
        rules.to_free(count, NodeState { free_low, free_high, cpus }).max(0)
    }

    #[test]
    fn v5_trims_by_the_arithmetic_of_the_patch() {
        // cap = max(F / 16, 25); k = min(count - cap, 16), not below the cap, whatever the number
        // of CPUs.
        for cpus in [0, 1, 8] {
            for (count, free, k) in
                [(26, 0, 1), (41, 0, 16), (42, 0, 16), (100, 16 * 90, 10), (100, 16 * 100, 0), (25, 0, 0)]
            {
                assert_eq!(freed(Rules::V5, count, free, 0, cpus), k, "count {count}, free {free}");
                assert_eq!(freed(Rules::V5, count, 0, free, cpus), k, "count {count}, high {free}");
            }
        }
    }

    #[test]
    fn v2008_gives_each_cpu_its_part_rounding_twice() {
        // cap = max((F / 16) / C, 25)
        for (count, free, cpus, k) in [
            (100, 16 * 800, 8, 0),
            (101, 16 * 800, 8, 1),
            (101, 16 * 808 - 1, 8, 1),
            (101, 16 * 808, 8, 0),
            (116, 16 * 800, 8, 16),
            (117, 16 * 800, 8, 16),
            (41, 0, 8, 16),
            (26, 0, 8, 1),
            (25, 0, 8, 0),
            // Below the floor of 25, more CPUs make no difference.
            (26, 16 * 25, 1, 1),
            (26, 16 * 26, 1, 0),
            (26, 16 * 26, 2, 1),
            (26, 16 * 52, 2, 0),
        ] {
            assert_eq!(
                freed(Rules::V2008, count, free, 0, cpus),
                k,
                "count {count}, free {free}, CPUs {cpus}"
            );
        }
    }

    #[test]
    fn only_v5_counts_memory_that_no_table_may_be_made_of() {
        let high = 16 * 1000;
        assert_eq!(freed(Rules::V5, 60, 0, high, 1), 0);
        assert_eq!(freed(Rules::LINUX_2_6_25, 60, 0, high, 1), 16);
        assert_eq!(freed(Rules::V2008, 60, 0, high, 1), 16);
    }

    #[test]
    fn a_list_as_long_as_its_cap_keeps_all() {
        for rules in [Rules::V5, Rules::LINUX_2_6_25, Rules::V2008] {
            for cap in [25, 26, 1000] {
                assert_eq!(freed(rules, cap, 16 * cap as u32, 0, 1), 0, "{rules:?}");
                assert_eq!(freed(rules, cap + 1, 16 * cap as u32, 0, 1), 1, "{rules:?}");
            }
        }
    }

    #[test]
    fn a_node_without_cpus_is_taken_for_one_with_one() {
        assert_eq!(freed(Rules::V2008, 101, 16 * 100, 0, 0), 1);
    }

    #[test]
    fn a_negative_count_passes_the_unsigned_test_and_frees_nothing() {
        assert!(Rules::looks_at(-1) && Rules::looks_at(i32::MIN));
        assert!(Rules::looks_at(26) && !Rules::looks_at(25) && !Rules::looks_at(0));
        let node = NodeState { free_low: 0, free_high: 0, cpus: 1 };
        assert_eq!(Rules::V2008.to_free(-1, node), -26);
        assert_eq!(freed(Rules::V5, i32::MIN, u32::MAX, u32::MAX, 1), 0);
    }
}
