//! Permissions and accesses.
use std::fmt;
use std::ops::{BitAnd, BitOr};

/// Represents the rights of a translation.
/// ```
/// use ptsan::{Access, Perms};
///
/// let page = (Perms::READ | Perms::USER).with_if(Perms::WRITE, false);
/// assert_eq!(page.to_string(), "r--u");
/// assert!(page.allows(Access::READ) && !page.allows(Access::WRITE));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Perms(u8);

impl Perms {
    /// No access.
    pub const NONE: Self = Self(0);
    /// Loads.
    pub const READ: Self = Self(1);
    /// Stores.
    pub const WRITE: Self = Self(2);
    /// Instruction fetches, in whatever mode has access.
    pub const EXEC: Self = Self(4 | 16);
    /// Loads and stores in user mode too, and fetches if there is [`Perms::USER_EXEC`].
    pub const USER: Self = Self(8 | 32);
    /// The part of [`Perms::USER`] that fetches need: alone, it is a page of which user mode may
    /// only fetch, whatever the kernel may load and store (AArch64: AP\[1\] clear, UXN clear).
    pub const USER_FETCH: Self = Self(8);
    /// Instruction fetches in user mode, with [`Perms::USER`] or [`Perms::USER_FETCH`].
    pub const USER_EXEC: Self = Self(4);
    /// Instruction fetches in supervisor mode.
    pub const KERNEL_EXEC: Self = Self(16);
    /// Everything.
    pub const ALL: Self = Self(63);

    /// Adds the permissions of `more` if `yes`.
    #[must_use]
    pub const fn with_if(self, more: Self, yes: bool) -> Self {
        if yes { Self(self.0 | more.0) } else { self }
    }

    /// Removes the permissions of `less` if `yes`.
    #[must_use]
    pub const fn without_if(self, less: Self, yes: bool) -> Self {
        if yes { Self(self.0 & !less.0) } else { self }
    }

    /// Returns whether all of `other` is allowed.
    #[inline]
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether the access is allowed.
    #[inline]
    #[must_use]
    pub const fn allows(self, access: Access) -> bool {
        self.contains(access.needs())
    }
}

impl BitAnd for Perms {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for Perms {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for Perms {
    /// Prints `rwxu`. In place of the `x`, `k` means executable in supervisor mode alone and `e` in
    /// user mode alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exec = match (self.contains(Self::KERNEL_EXEC), self.contains(Self::USER_EXEC)) {
            (true, true) => 'x',
            (true, false) => 'k',
            (false, true) => 'e',
            (false, false) => '-',
        };
        let letter = |bit, c| if self.contains(bit) { c } else { '-' };
        let (read, write) = (letter(Self::READ, 'r'), letter(Self::WRITE, 'w'));
        write!(f, "{read}{write}{exec}{}", letter(Self::USER, 'u'))
    }
}

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessKind {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An instruction fetch.
    Exec,
}

/// An access to memory: its kind and its mode.
/// ```
/// use ptsan::{Access, Arch, Fault, Session};
///
/// let mut s = Session::new(Arch::x86_2level(), vec![0u8; 1 << 16]);
/// s.alloc(0x1000);
/// s.put(0x1000, 0x81);                                    // 4 MiB that only the kernel may read
/// s.load(0x1000);
/// assert!(s.translate(0x123, Access::READ.kernel()).is_ok());
/// assert!(matches!(s.translate(0x123, Access::READ), Err(Fault::Permission { .. })));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// Load, store or fetch.
    pub kind: AccessKind,
    /// Whether in user mode.
    pub user: bool,
}

impl Access {
    /// A load in user mode.
    pub const READ: Self = Self { kind: AccessKind::Read, user: true };
    /// A store in user mode.
    pub const WRITE: Self = Self { kind: AccessKind::Write, user: true };
    /// An instruction fetch in user mode.
    pub const EXEC: Self = Self { kind: AccessKind::Exec, user: true };

    /// Returns the same access in supervisor mode. Write protection holds there too, as with
    /// `CR0.WP` set.
    #[must_use]
    pub const fn kernel(self) -> Self {
        Self { user: false, ..self }
    }

    #[inline]
    const fn needs(self) -> Perms {
        let kind = match self.kind {
            AccessKind::Read => Perms::READ,
            AccessKind::Write => Perms::WRITE,
            AccessKind::Exec if self.user => Perms::USER_EXEC,
            AccessKind::Exec => Perms::KERNEL_EXEC,
        };
        match self.kind {
            _ if !self.user => kind,
            AccessKind::Exec => Perms(kind.0 | Perms::USER_FETCH.0),
            AccessKind::Read | AccessKind::Write => Perms(kind.0 | Perms::USER.0),
        }
    }
}
