//! Compares, while compiling, the formats that the MMUs of a machine read with those of tables.
use super::Format;
use super::check::end_compilation;
use crate::page::{Layout, MAX_LEVELS};

/// The formats of the tables that MMUs read: of spaces' trees, and of the kernel's half.
///
/// [`Mmu::FORMATS`](crate::tlb::Mmu::FORMATS) says them. Trees, spaces and ranges of the kernel's
/// half of another format do not compile on that machine.
#[derive(Clone, Copy, Debug)]
pub struct Formats {
    tree: Side,
    kernel: Side,
}

/// The formats that one of both may have.
#[derive(Clone, Copy, Debug)]
enum Side {
    Any,
    One(Identity),
    None,
}

/// All by which two formats are told apart.
#[derive(Clone, Copy, Debug)]
struct Identity {
    name: &'static str,
    layout: Layout,
    index_bits: [u8; MAX_LEVELS],
    page_shift: u32,
    phys_bits: u32,
    user_root_entries: usize,
    leaf_levels: u8,
}

impl Formats {
    /// All formats: for MMUs that neither execute an instruction nor walk a table, as in tests.
    pub const ANY: Formats = Formats { tree: Side::Any, kernel: Side::Any };

    /// Trees of one format; the kernel's half is in their roots, or in a tree of the same format.
    pub const fn of<F: Format>() -> Self {
        Formats::of_halves::<F, F>()
    }

    /// Trees of the format `F`, and a tree of the kernel's own of the format `K`: AArch64's
    /// `TTBR1`.
    pub const fn of_halves<F: Format, K: Format>() -> Self {
        Formats { tree: Side::One(Identity::of::<F>()), kernel: Side::One(Identity::of::<K>()) }
    }

    /// The same trees, and a kernel's tree of any format if those have no kernel's half: for MMUs
    /// that read spaces' trees alone and stand for no hardware.
    #[must_use]
    pub const fn with_any_kernel<F: Format>(self) -> Self {
        Formats { kernel: if has_kernel::<F>() { self.kernel } else { Side::Any }, ..self }
    }

    /// Leaves those that are `F`, for a machine whose memory is laid out for that format alone. A
    /// kernel's tree of another format stays, if roots of `F` have no kernel's half.
    #[must_use]
    pub const fn only<F: Format>(self) -> Self {
        let this = Side::One(Identity::of::<F>());
        Formats {
            tree: if self.tree.has::<F>() { this } else { Side::None },
            kernel: if !has_kernel::<F>() {
                self.kernel
            } else if self.kernel.has::<F>() {
                this
            } else {
                Side::None
            },
        }
    }

    /// Ends the compilation if MMUs do not read trees of the format `F`.
    pub const fn demand_tree<F: Format>(self) {
        self.tree.demand::<F>("the format of spaces on this machine");
    }

    /// Ends the compilation if MMUs do not read the kernel's half in the format `F`.
    pub const fn demand_kernel<F: Format>(self) {
        self.kernel.demand::<F>("the format of the kernel's half on this machine");
    }

    /// Ends the compilation unless `F` is the one format of trees.
    pub(crate) const fn demand_only_tree<F: Format>(self) {
        self.demand_tree::<F>();
        if matches!(self.tree, Side::Any) {
            end_compilation(&[F::NAME, " is not named by `Mmu::FORMATS`, and set-up is for one format"]);
        }
    }
}

impl Side {
    const fn has<F: Format>(&self) -> bool {
        match self {
            Side::Any => true,
            Side::One(identity) => identity.is(&Identity::of::<F>()),
            Side::None => false,
        }
    }

    const fn demand<F: Format>(&self, what: &str) {
        if !self.has::<F>() {
            let has = if let Side::One(identity) = self { identity.name } else { "none" };
            end_compilation(&[F::NAME, " is not ", what, ", whose MMUs read ", has]);
        }
    }
}

impl Identity {
    const fn of<F: Format>() -> Self {
        Identity {
            name: F::NAME,
            layout: F::LAYOUT,
            index_bits: F::INDEX_BITS,
            page_shift: F::PAGE_SHIFT,
            phys_bits: F::PHYS_BITS,
            user_root_entries: F::USER_ROOT_ENTRIES,
            leaf_levels: F::LEAF_LEVELS,
        }
    }

    const fn is(&self, other: &Self) -> bool {
        same(self.name.as_bytes(), other.name.as_bytes())
            && self.layout.levels == other.layout.levels
            && same(&self.layout.table_shift, &other.layout.table_shift)
            && same(&self.index_bits, &other.index_bits)
            && self.page_shift == other.page_shift
            && self.phys_bits == other.phys_bits
            && self.user_root_entries == other.user_root_entries
            && self.leaf_levels == other.leaf_levels
    }
}

/// Whether some entries of roots are the kernel's.
const fn has_kernel<F: Format>() -> bool {
    F::USER_ROOT_ENTRIES < 1 << F::INDEX_BITS[F::LAYOUT.levels as usize - 1]
}

/// Compares bytes while compiling.
const fn same(a: &[u8], b: &[u8]) -> bool {
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}
