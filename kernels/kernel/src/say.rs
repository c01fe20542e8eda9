//! Lines on the console.

use core::fmt;
use core::marker::PhantomData;

use crate::arch::Arch;

/// The console as a sink of text.
pub struct Say<A>(PhantomData<A>);

impl<A> Say<A> {
    /// Makes one.
    pub const fn new() -> Self {
        Say(PhantomData)
    }
}

impl<A: Arch> fmt::Write for Say<A> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(A::put);
        Ok(())
    }
}

/// Prints a line on the console of an architecture: `say!(A, "...", ...)`.
#[macro_export]
macro_rules! say {
    ($arch:ty, $($argument:tt)*) => {{
        // The console cannot fail.
        let _ = ::core::fmt::Write::write_fmt(
            &mut $crate::say::Say::<$arch>::new(),
            ::core::format_args!("{}\n", ::core::format_args!($($argument)*)),
        );
    }};
}
