//! Says which attributes the entries of a format can have, and refuses others.
use super::{Attr, MemoryType};
use core::fmt;

/// The modes in which the kernel fetches instructions from a page of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelFetch {
    /// It never does (RISC-V).
    Never,
    /// It does from pages with [`Attr::KERNEL_EXEC`], and from no others (AArch64).
    Marked,
    /// It does from every page that the user may execute, unless a mode of the CPU forbids it for
    /// all of them (x86: `CR4.SMEP`). No entry says so.
    Executable,
}

/// The attributes that leaves of a format can have, and those that they can have together.
///
/// ```
/// use ptarmigan::format::{Attr, Format, FormatExt, Sv39, X86_64};
///
/// let code = Attr::EXEC | Attr::USER;
/// assert!(Sv39::RIGHTS.can_say(code)); // for execution alone
/// let refused = X86_64::expresses(code).unwrap_err();
/// assert_eq!(
///     refused.to_string(),
///     "x86-64 has no page with --xu----: it needs r as well"
/// );
/// assert_eq!(X86_64::nearest(code), code | Attr::READ);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Attributes that a leaf can have in some combination.
    attrs: Attr,
    /// A bit for each [combination](combination) that a leaf can have.
    combinations: u64,
    /// A bit for the number of each memory type that a leaf can have.
    memory: u8,
    refuses_execution: bool,
    kernel_fetch: KernelFetch,
}

/// Combines [`READ`](Attr::READ), [`WRITE`](Attr::WRITE), [`EXEC`](Attr::EXEC),
/// [`USER`](Attr::USER) and [`GLOBAL`](Attr::GLOBAL), which are bits 0 to 4, and
/// [`KERNEL_EXEC`](Attr::KERNEL_EXEC).
const fn combination(attr: Attr) -> u32 {
    const { assert!(Attr::KERNEL_EXEC.0 >> 11 == 32) };
    attr.0 & 31 | attr.0 >> 11 & 32
}

/// Attributes that take more than the five lowest bits to look up.
const RARE: Attr = Attr::MEMORY.with(Attr::KERNEL_EXEC);

/// Combinations with the bit of an index set: of the user's pages, and of global ones.
const OF_USER: u64 = 0xff00_ff00_ff00_ff00;
const OF_GLOBAL: u64 = 0xffff_0000_ffff_0000;

impl Rights {
    /// A page may be read, read and written, read and executed, all three, or not be used. It is
    /// the user's or the kernel's. If it may be used, it is global or not. The MMU refuses
    /// execution where [`EXEC`](Attr::EXEC) is missing. Memory is written back.
    pub const PLAIN: Rights = Rights {
        attrs: Attr(255).with(Attr::KERNEL_EXEC),
        combinations: 0xaaaa_abab,
        memory: 1,
        refuses_execution: true,
        kernel_fetch: KernelFetch::Executable,
    };

    /// There are no global pages.
    pub const fn without_global(self) -> Self {
        Rights { combinations: self.combinations & !OF_GLOBAL, ..self }
    }

    /// Every page is the user's: a second stage.
    pub const fn users_only(self) -> Self {
        Rights { combinations: self.combinations & OF_USER, ..self }
    }

    /// The user's pages can be for execution alone; the `kernels` too.
    pub const fn with_execute_only(self, kernels: bool) -> Self {
        let all = 1 << combination(Attr::EXEC.with(Attr::USER)) | (kernels as u64) << combination(Attr::EXEC);
        Rights { combinations: self.combinations | all | all << Attr::GLOBAL.0, ..self }
    }

    /// The MMU lets every page be executed that may be read: [`EXEC`](Attr::EXEC) is kept, and says
    /// that the caller means to execute it.
    pub const fn without_refusing_execution(self) -> Self {
        Rights { refuses_execution: false, ..self }
    }

    /// Entries of the user's pages say whether the kernel may fetch from them, if the user may not
    /// write to them. See [`KernelFetch::Marked`].
    pub const fn with_kernel_exec(self) -> Self {
        let user = Attr::USER.with(Attr::KERNEL_EXEC);
        let all = 1 << combination(user.with(Attr::READ))
            | 1 << combination(user.with(Attr::EXEC))
            | 1 << combination(user.with(Attr::READ).with(Attr::EXEC));
        let combinations = self.combinations | all | all << Attr::GLOBAL.0;
        Rights { combinations, kernel_fetch: KernelFetch::Marked, ..self }
    }

    /// The kernel never fetches from the user's pages.
    pub const fn without_kernel_fetch(self) -> Self {
        Rights { kernel_fetch: KernelFetch::Never, ..self }
    }

    /// Leaves have the first `n` of [`SOFT0`](Attr::SOFT0) to [`SOFT3`](Attr::SOFT3), too.
    pub const fn with_soft(self, n: u32) -> Self {
        assert!(n <= 4, "there are four attributes of the caller's own");
        self.with_attributes(Attr(((1 << n) - 1) * Attr::SOFT0.0))
    }

    /// Returns how many attributes of the caller's own leaves have: none, or from
    /// [`SOFT0`](Attr::SOFT0) on.
    pub const fn soft_bits(&self) -> u32 {
        self.attrs.only(Attr::SOFT).0.count_ones()
    }

    /// Leaves have `more`, too, in any combination: attributes of the format's own.
    pub const fn with_attributes(self, more: Attr) -> Self {
        Rights { attrs: self.attrs.with(more), ..self }
    }

    /// Leaves have the memory types `types`, too, in any combination with other attributes.
    pub const fn with_memory(self, types: &[MemoryType]) -> Self {
        let (mut memory, mut n) = (self.memory, 0);
        while n < types.len() {
            memory |= 1 << types[n] as u8;
            n += 1;
        }
        Rights { memory, ..self }.with_attributes(Attr::MEMORY)
    }

    /// Returns whether a leaf can have the memory type `memory`.
    #[inline]
    pub const fn has_memory(&self, memory: MemoryType) -> bool {
        self.memory >> memory as u8 & 1 != 0
    }

    /// Returns whether a leaf can have the memory type of `attr`, which may be none.
    #[inline]
    const fn has_memory_of(&self, attr: Attr) -> bool {
        self.memory >> attr.memory_number() & 1 != 0
    }

    /// Attributes of the caller's own alone.
    pub(super) const fn soft_only(self) -> Self {
        Rights { attrs: self.attrs.only(Attr::SOFT), combinations: 1, memory: 1, ..self }
    }

    /// Returns whether a leaf can have exactly the attributes `attr`.
    #[inline]
    pub const fn can_say(&self, attr: Attr) -> bool {
        // Most pages are of usual memory, and the kernel's execution of them has no bit.
        if self.attrs.without(RARE).has(attr) {
            return self.combinations >> (attr.0 & 31) & 1 != 0;
        }
        self.attrs.has(attr) && self.combinations >> combination(attr) & 1 != 0 && self.has_memory_of(attr)
    }

    /// Returns whether the MMU refuses to execute a page without [`EXEC`](Attr::EXEC).
    pub const fn refuses_execution(&self) -> bool {
        self.refuses_execution
    }

    /// Returns when the kernel fetches instructions from a page of the user.
    pub const fn kernel_fetch(&self) -> KernelFetch {
        self.kernel_fetch
    }

    /// Returns the attributes of a page that can do what one with `attr` could: see
    /// [`FormatExt::nearest`](super::FormatExt::nearest).
    pub(super) const fn nearest(&self, attr: Attr) -> Attr {
        let mut attr = attr;
        if self.combinations & OF_GLOBAL == 0 {
            attr = attr.without(Attr::GLOBAL);
        }
        if self.combinations & !OF_USER == 0 {
            attr = attr.with(Attr::USER);
        }
        attr = self.nearest_memory(attr);
        if !self.can_say(attr) && self.can_say(attr.with(Attr::READ)) { attr.with(Attr::READ) } else { attr }
    }

    /// The attributes with the least strict of the memory types that a leaf can have and that are
    /// as strict as theirs; without one, with their own.
    const fn nearest_memory(&self, attr: Attr) -> Attr {
        let (mut n, mut reached) = (0, false);
        while n < MemoryType::ALL.len() {
            let memory = MemoryType::ALL[n];
            reached |= memory as u32 == attr.memory_number();
            if reached && self.has_memory(memory) {
                return attr.with_memory(memory);
            }
            n += 1;
        }
        attr
    }

    /// Says why a leaf cannot have `attr`.
    const fn cause(&self, attr: Attr) -> Cause {
        let mut missing = attr.without(self.attrs);
        if !self.has_memory_of(attr) {
            missing = missing.with(attr.only(Attr::MEMORY));
        }
        if missing.0 != 0 {
            Cause::Missing(missing)
        } else if self.can_say(attr.with(Attr::READ)) {
            Cause::Needs(Attr::READ)
        } else if self.can_say(attr.with(Attr::USER)) {
            Cause::Needs(Attr::USER)
        } else if self.can_say(attr.without(Attr::GLOBAL)) {
            Cause::Without(Attr::GLOBAL)
        } else if self.can_say(attr.without(Attr::KERNEL_EXEC)) {
            Cause::Without(Attr::KERNEL_EXEC)
        } else {
            Cause::Together
        }
    }
}

/// Why a leaf cannot have some attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// No leaf has these.
    Missing(Attr),
    /// They need this one as well.
    Needs(Attr),
    /// They can be had without this one.
    Without(Attr),
    /// They cannot be had together.
    Together,
}

/// What refuses: a format by its name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) name: &'static str,
    pub(super) rights: Rights,
}

/// A leaf of a format cannot have attributes that were asked for. Nothing has been changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Inexpressible {
    attr: Attr,
    by: &'static Named,
}

impl Inexpressible {
    #[inline]
    pub(super) fn new(attr: Attr, by: &'static Named) -> Self {
        Inexpressible { attr, by }
    }

    /// Returns the attributes that were asked for.
    pub fn attr(&self) -> Attr {
        self.attr
    }

    /// Returns the name of the format.
    pub fn format(&self) -> &'static str {
        self.by.name
    }

    /// Returns the reason.
    pub fn cause(&self) -> Cause {
        self.by.rights.cause(self.attr)
    }
}

impl fmt::Debug for Inexpressible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inexpressible({:?}, {}, {:?})", self.attr, self.by.name, self.cause())
    }
}

/// Prints the letters of attributes, without a place for those that are missing.
struct Letters(Attr);

impl fmt::Display for Letters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        struct Only<'a, 'b>(&'a mut fmt::Formatter<'b>);
        impl Write for Only<'_, '_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                if text == "-" { Ok(()) } else { self.0.write_str(text) }
            }
        }
        write!(Only(f), "{}", self.0)
    }
}

impl fmt::Display for Inexpressible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has no page with {}: ", self.by.name, self.attr)?;
        match self.cause() {
            Cause::Missing(attr) => write!(f, "it does not know {}", Letters(attr)),
            Cause::Needs(attr) => write!(f, "it needs {} as well", Letters(attr)),
            Cause::Without(attr) => write!(f, "leave {} out", Letters(attr)),
            Cause::Together => f.write_str("these do not go together"),
        }
    }
}

impl core::error::Error for Inexpressible {}
