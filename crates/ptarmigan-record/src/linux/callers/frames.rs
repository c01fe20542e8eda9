//! A function on a stack.
use std::rc::Rc;

/// A function on a stack, or one that was inlined into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// `None` if it has no symbol.
    pub(crate) function: Option<Rc<str>>,
    /// The program or library, without a path.
    pub(crate) module: Rc<str>,
    /// The source file, without a path.
    pub(crate) file: Option<Rc<str>>,
    /// The line of the source file; 0 if unknown.
    pub(crate) line: u32,
    /// Whether it is of the C library, the loader, an allocator or a language's library, which act
    /// for their callers.
    pub(crate) runtime: bool,
}
