//! Holds the differences between versions of the historic quicklists, and the trim's arithmetic.
use core::fmt;

/// Share of a node's free memory that one list may hold.
const FRACTION_OF_NODE_MEM: usize = 16;
/// Page tables that the 2004 code allowed for beside those that map all memory: of so many tasks.
const TASKS_2004: usize = 500;

/// One version of the code, by its differences from the others. Links and order are the same in all
/// of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// A page of another node than the running CPU's goes to the allocator at once, before the
    /// flush (H5). Without the test it goes on the CPU's list, and rests on a foreign node (H6).
    pub node_test: bool,
    /// Free memory is all of the node's, also memory that no table may use (H8); otherwise memory
    /// that the kernel can use for itself.
    pub counts_high: bool,
    /// The CPUs of a node share the limit that otherwise holds for each of them (H10).
    pub divides_by_cpus: bool,
    /// PTE pages have a list, too. Without one they come from the allocator, and go back to it
    /// after the flush.
    pub lists_pte: bool,
    /// How lists are kept short.
    pub trim: Trim,
}

/// How lists are kept short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trim {
    /// `quicklist_trim`, list by list, with the parameters of the same names.
    Share {
        /// Lists up to this long are left alone.
        min_pages: usize,
        /// Pages that one call takes off one list at the most.
        max_free: usize,
    },
    /// `check_pgt_cache` before there was a trim: if the lists of a CPU hold more than a high
    /// watermark together, pages go, one of each list in turn, until there are no more than the low
    /// one. The high watermark is set once, from all memory of the machine (H11).
    Watermarks {
        /// `pgt_cache_water[0]`.
        low: usize,
        /// The least that `pgt_cache_water[1]` is.
        least_high: usize,
    },
}

impl Trim {
    /// The parameters that all architectures passed in their patches of 2007.
    pub const ARCHES: Trim = Trim::Share { min_pages: 25, max_free: 16 };
}

impl Rules {
    /// ia64 in Linux 2.6.9, the state that Robin Holt's mail of 2004 complains of: lists for root
    /// tables and middle levels, none for PTE pages, and watermarks from all memory for the lists
    /// of each CPU.
    pub const V2004: Rules = Rules {
        node_test: false,
        counts_high: true,
        divides_by_cpus: false,
        lists_pte: false,
        trim: Trim::Watermarks { low: 25, least_high: 50 },
    };
    /// ia64 in Linux 2.4: as in 2.6.9, but with a list for PTE pages.
    pub const LINUX_2_4: Rules = Rules { lists_pte: true, ..Rules::V2004 };
    /// Version 5 of the patch, April 2007.
    pub const V5: Rules = Rules {
        node_test: true,
        counts_high: true,
        divides_by_cpus: false,
        lists_pte: true,
        trim: Trim::ARCHES,
    };
    /// Linux 2.6.24 to 2.6.26: after the repairs of December 2007 and January 2008.
    pub const LINUX_2_6_24: Rules = Rules { node_test: false, counts_high: false, ..Rules::V5 };
    /// Linux 2.6.27: after the change of August 2008. It stayed like this until its removal in 5.4.
    pub const V2008: Rules = Rules { divides_by_cpus: true, ..Rules::LINUX_2_6_24 };

    /// `min_pages_to_free`: the pages that one trim takes off a list of `nr_pages`. As in the
    /// kernel, the length is compared with `min_pages` as unsigned, so that a negative one passes,
    /// and an unsigned difference is taken for a signed number.
    pub(super) fn to_free(self, nr_pages: i32, node: NodeState, min_pages: usize, max_free: usize) -> i64 {
        if nr_pages as usize <= min_pages {
            return 0;
        }
        let free = u64::from(node.free_low) + if self.counts_high { u64::from(node.free_high) } else { 0 };
        let mut most = (free / FRACTION_OF_NODE_MEM as u64) as usize;
        if self.divides_by_cpus {
            // On a node without CPUs no trim runs; the kernel would divide by zero.
            most /= (node.cpus as usize).max(1);
        }
        let most = most.max(min_pages) as u64;
        let difference = (i64::from(nr_pages) as u64).wrapping_sub(most) as i64;
        difference.min(i64::try_from(max_free).unwrap_or(i64::MAX))
    }

    /// The high watermark of 2004 on a machine with `free` free frames at boot, whose root tables
    /// have `root_entries` entries: as many pages as map all memory once, and some for each of 500
    /// tasks, but no more than a tenth of memory, and no less than `least`.
    pub(super) fn high_watermark(free: usize, root_entries: usize, least: usize) -> usize {
        (free / root_entries.max(1) + TASKS_2004).min(free / 10).max(least)
    }
}

/// A number of lists that a version cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListsRefused {
    /// There are 1 to 3.
    Number(usize),
    /// The version has no list for PTE pages, and so two lists.
    NoPteList(usize),
    /// One list for PMD and PTE pages where the root is smaller than a page.
    MixesPmdAndPte,
}

impl fmt::Display for ListsRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(n) => write!(f, "{n} historic lists: there were 1 to 3"),
            Self::NoPteList(n) => {
                write!(f, "{n} historic lists: the version of 2004 has 2, none of them for PTE pages")
            }
            Self::MixesPmdAndPte => f.write_str(
                "1 historic list: i386 cannot mix PMD and PTE pages with PAE, as version 3 of the patch \
                 found; take 2 or 3 lists",
            ),
        }
    }
}

impl core::error::Error for ListsRefused {}

/// The state of the CPU's node, as the arithmetic needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeState {
    /// Free frames that the kernel can use for its own ends.
    pub free_low: u32,
    /// Free frames of high memory.
    pub free_high: u32,
    /// CPUs of the node that are online.
    pub cpus: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of pages that a trim frees from a list of `count` pages.
    fn freed(rules: Rules, count: i32, free_low: u32, free_high: u32, cpus: u32) -> i64 {
        rules.to_free(count, NodeState { free_low, free_high, cpus }, 25, 16).max(0)
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
        assert_eq!(freed(Rules::LINUX_2_6_24, 60, 0, high, 1), 16);
        assert_eq!(freed(Rules::V2008, 60, 0, high, 1), 16);
    }

    #[test]
    fn a_list_as_long_as_its_cap_keeps_all() {
        for rules in [Rules::V5, Rules::LINUX_2_6_24, Rules::V2008] {
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
        let node = NodeState { free_low: 0, free_high: 0, cpus: 1 };
        assert_eq!(Rules::V2008.to_free(-1, node, 25, 16), -26);
        assert_eq!(Rules::V2008.to_free(25, node, 25, 16), 0);
        assert_eq!(freed(Rules::V5, i32::MIN, u32::MAX, u32::MAX, 1), 0);
    }

    #[test]
    fn the_parameters_are_the_callers() {
        let node = NodeState { free_low: 0, free_high: 0, cpus: 1 };
        for (count, min_pages, max_free, k) in
            [(129, 128, 16, 1), (128, 128, 16, 0), (500, 128, 16, 16), (500, 128, 1000, 372), (9, 0, 0, 0)]
        {
            assert_eq!(
                Rules::V5.to_free(count, node, min_pages, max_free),
                k,
                "{count} {min_pages} {max_free}"
            );
        }
    }

    #[test]
    fn the_watermark_of_2004_grows_with_all_memory() {
        // A machine of 64 GiB with pages of 16 KiB and roots of 2048 entries.
        assert_eq!(Rules::high_watermark(4 << 20, 2048, 50), 2048 + 500);
        // A tenth of memory, where that is less; never below the least.
        assert_eq!(Rules::high_watermark(4000, 512, 50), 400);
        assert_eq!(Rules::high_watermark(400, 512, 50), 50);
    }
}
