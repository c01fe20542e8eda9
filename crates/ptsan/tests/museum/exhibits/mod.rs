//! The exhibits of the museum: bugs of page-table code as small models, written from their public
//! descriptions. The documentation of a model is its text in the catalogue.
mod catalogue;
mod device;
mod errata;
mod format;
mod freebsd;
mod gather;
mod invalid;
mod iommu;
mod machine;
mod mremap;
mod number;
mod order;
mod overlap;
mod reader;
mod still_mapped;
mod unlinked;
mod x86_switch;
mod xen;

pub use catalogue::{catalogue, description};
use machine::{Machine, Setup};
use ptsan::{Kind, Rule, Sanitizer};

/// A bug, with a model of its condition.
pub struct Exhibit {
    pub name: &'static str,
    /// Advisories, commits, pull requests.
    pub numbers: &'static str,
    pub project: &'static str,
    /// The year of the correction.
    pub year: u16,
    /// The code of a driver, a device or an emulator is not what is modelled.
    pub pattern: bool,
    /// The finding that comes first.
    pub kind: Kind,
    /// The rule that is broken. Where there are several, it depends on what a walker happens to do.
    pub rules: &'static [Rule],
    /// The check of ptsan that this exhibit stands for.
    pub check: &'static str,
    setup: Setup,
    /// Builds the scene and runs the step: with the defect, or corrected.
    model: fn(&mut Machine, bool),
}

/// The outcome of a run.
pub struct Run {
    pub san: Sanitizer,
    /// The finding that was made first.
    pub first: Option<(Kind, Rule)>,
    /// The hooks of the step with the defect.
    pub sequence: Vec<&'static str>,
}

impl Exhibit {
    /// Returns whether this is the finding that the exhibit must give.
    pub fn is_found_as(&self, kind: Kind, rule: Rule) -> bool {
        kind == self.kind && self.rules.contains(&rule)
    }

    /// Runs the model with a seed.
    pub fn run(&self, seed: u64, broken: bool, backtraces: bool) -> Run {
        let mut m = Machine::new(self.setup, seed, backtraces);
        (self.model)(&mut m, broken);
        m.finish();
        let first = m.san.findings().iter().min_by_key(|f| f.event).map(|f| (f.kind, f.rule));
        Run { sequence: m.sequence(), first, san: m.san }
    }
}

/// All exhibits, in the order of the catalogue.
pub const ALL: &[&Exhibit] = &[
    &mremap::LATE_FLUSH,
    &mremap::MOVED_TABLE,
    &gather::PFNMAP,
    &gather::RECLAIM_BATCH,
    &order::WRITE_PROTECT,
    &gather::SLOW_PATH,
    &reader::GUP_FAST,
    &reader::MIGRATE,
    &x86_switch::COLLAPSE_LAZY,
    &x86_switch::SWITCHING,
    &unlinked::LEAF_SFENCE,
    &device::NO_FLUSH,
    &device::MASKED_REGISTER,
    &device::GART,
    &iommu::PASID_TABLE,
    &iommu::CONTEXT_ENTRY,
    &iommu::COMPLETION_WAIT,
    &iommu::SHORT_GATHER,
    &iommu::SVA_KERNEL_TABLE,
    &errata::REPEAT_TLBI,
    &errata::SPARED_GLOBALS,
    &overlap::END_OF_SPACE,
    &freebsd::PCID_GENERATION,
    &freebsd::PROMOTION,
    &freebsd::INVLPGB_STRIDE,
    &xen::LARGE_PAGE_BIT,
    &xen::LINEAR_TABLES,
    &number::SHADOW_PCID,
    &xen::IOMMU_DEFERRAL,
    &xen::WRONG_VARIABLE,
    &unlinked::EPT_DEFERRED,
    &still_mapped::SUPERPAGE,
    &still_mapped::DANGLING,
    &order::BREAK_BEFORE_MAKE,
    &number::SHARED_ASID,
    &number::NOT_GLOBAL,
    &order::COPY_ON_WRITE,
    &order::FREE_FIRST,
    &order::SHARED_AGAIN,
    &unlinked::STALE_DIRECTORY,
    &invalid::NEW_PAGE,
    &invalid::NEW_TABLE,
    &invalid::HUGE_LEVEL,
];
