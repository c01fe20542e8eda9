//! Compares answers of the code under test with its tables.
use crate::arch::Perms;
use crate::cpu::{Fault, Translation};
use crate::memory::Memory;
use crate::report::{Kind, Place, Rule};
use crate::state::Sanitizer;

/// The tables to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tree {
    /// Those below the root at this physical address, whether a CPU has it loaded or not.
    Root(u64),
    /// Those of the root that this CPU has loaded.
    Cpu(usize),
}

/// The mapping of an address, as the code under test reports it.
/// ```
/// use ptsan::{Arch, Expected, Perms, Rule, Session};
///
/// let mut s = Session::new(Arch::x86_2level(), vec![0u8; 1 << 16]);
/// s.alloc(0x1000);
/// s.put(0x1000, 0x83);                                    // a page of 4 MiB
/// s.load(0x1000);
/// let says = Expected::at(0x5123).in_page_of(4096);       // the answer of the code under test
/// let _ = s.expect(0x5123, Some(says));
/// assert_eq!(s.sanitizer.findings()[0].rule, Rule::OtherSize);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The physical address of the byte, not of its page.
    pub phys: u64,
    /// The rights, if the code reports them.
    pub perms: Option<Perms>,
    /// The size of the page in bytes, if the code says so.
    pub size: Option<u64>,
}

impl Expected {
    /// Expects this byte, with any permissions and in a page of any size.
    #[must_use]
    pub const fn at(phys: u64) -> Self {
        Self { phys, perms: None, size: None }
    }

    /// Also expects a page of this size.
    #[must_use]
    pub const fn in_page_of(self, bytes: u64) -> Self {
        Self { size: Some(bytes), ..self }
    }

    /// Also expects exactly these permissions. Without [`Perms::USER_FETCH`], whether user mode may
    /// fetch from a page that it may not load or store is left open: kernels without user programs
    /// do not care.
    #[must_use]
    pub const fn allowing(self, perms: Perms) -> Self {
        Self { perms: Some(perms), ..self }
    }
}

/// Returns whether the tables allow what the code says.
fn is_same(says: Perms, tables: Perms) -> bool {
    let fetches_alone = tables.contains(Perms::USER_FETCH) && !tables.contains(Perms::USER);
    says == tables || fetches_alone && says == tables.without_if(Perms::USER_FETCH, true)
}

impl Sanitizer {
    /// Compares the code's answer about `va` with an uncached walk of the tables in memory
    /// ([`Kind::Disagreement`]). `says` is the answer of the code's own query, or the belief of the
    /// test; `None` means not mapped.
    ///
    /// A present entry counts as mapped, whatever it allows and whether or not it was accessed.
    ///
    /// # Errors
    /// Returns the result of the walk if no page is mapped there. That is no mistake by itself.
    pub fn expect(
        &mut self,
        memory: &(impl Memory + ?Sized),
        tree: Tree,
        va: u64,
        says: Option<Expected>,
    ) -> Result<Translation, Fault> {
        self.hook(|s| s.compare_with_code(memory, tree, va, says))
    }

    fn compare_with_code(
        &mut self,
        memory: &(impl Memory + ?Sized),
        tree: Tree,
        va: u64,
        says: Option<Expected>,
    ) -> Result<Translation, Fault> {
        let (root, cpu, space) = match tree {
            Tree::Root(root) => (root, None, None),
            Tree::Cpu(cpu) => {
                if !self.has_cpu(cpu) {
                    return Err(Fault::NoRoot);
                }
                let Some(loaded) = self.cpus[cpu].loaded else {
                    self.misuse(Rule::NoRoot, Place { cpu: Some(cpu), va: Some(va), ..Place::default() });
                    return Err(Fault::NoRoot);
                };
                (loaded.root, Some(cpu), Some(loaded.space))
            }
        };
        let arch = &self.config.arch;
        let found =
            if arch.is_canonical(va) { self.look(memory, root, va) } else { Err(Fault::NonCanonical) };
        let size = |t: &Translation| 1u64 << arch.levels[t.level as usize].shift;
        let rule = match (says, &found) {
            (None, Err(_)) => return found,
            (None, Ok(_)) => Rule::OnlyTablesMapIt,
            (Some(_), Err(_)) => Rule::OnlyCodeMapsIt,
            (Some(e), Ok(t)) if e.phys != t.phys => Rule::MappedElsewhere,
            (Some(e), Ok(t)) if e.size.is_some_and(|s| s != size(t)) => Rule::OtherSize,
            (Some(e), Ok(t)) if e.perms.is_some_and(|p| !is_same(p, t.perms)) => Rule::OtherPermissions,
            (Some(_), Ok(_)) => return found,
        };
        let tables = match &found {
            Ok(t) => format!("{:#x} ({}) in a page of {:#x} bytes", t.phys, t.perms, size(t)),
            Err(fault) => fault.text(arch.level_names),
        };
        let level = found.as_ref().ok().map(|t| t.level);
        let place = Place { va: Some(va), cpu, level, space, frame: None };
        self.report(Kind::Disagreement, rule, place, || {
            let code = says.map_or_else(
                || "not mapped".to_owned(),
                |e| {
                    let perms = e.perms.map_or_else(String::new, |p| format!(" ({p})"));
                    let size = e.size.map_or_else(String::new, |s| format!(" in a page of {s:#x} bytes"));
                    format!("{:#x}{perms}{size}", e.phys)
                },
            );
            format!("below the root at {root:#x} the code says {code}, the tables {tables}")
        });
        found
    }
}
