//! Further rules that were broken for the cause of a finding.
use super::kind::Kind;
use super::place::Place;
use super::rule::Rule;

/// Something else that follows from the cause of a finding: another rule, or the same at tables of
/// another level.
/// ```
/// use ptsan::{Arch, Consequence, Session};
///
/// let mut s = Session::new(Arch::x86_2level(), vec![0u8; 1 << 16]);
/// for (table, entry) in [(0x1000, 0x2007), (0x2000, 0x9007)] {
///     s.alloc(table);
///     s.put(table, entry);
/// }
/// s.load(0x1000);
/// assert!(s.access(0x123).is_ok());
/// s.put(0x1000, 0);                // unlinks the table with the page, and flushes nothing
/// s.frame_freed(0x9000);
/// s.free(0x2000);
/// let [found] = s.sanitizer.findings() else { panic!("{}", s.sanitizer) };
/// let [Consequence { kind, count, .. }] = found.consequences[..] else { panic!("{found}") };
/// assert_eq!((found.kind.name(), kind.name(), count), ("data-freed-before-flush", "free-before-flush", 1));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consequence {
    /// The kind of the defect.
    pub kind: Kind,
    /// The rule that was broken.
    pub rule: Rule,
    /// Where it was found first.
    pub place: Place,
    /// Number of the hook call that found it first, counted from 1.
    pub event: u64,
    /// How often it was found.
    pub count: u64,
    /// The number of distinct places at which it was found.
    pub places: u64,
}

impl Consequence {
    /// Returns whether a rule that was broken at a place belongs to it.
    pub(super) fn is(&self, (kind, rule): (Kind, Rule), place: &Place) -> bool {
        self.kind == kind && self.rule == rule && self.place.level == place.level
    }
}
