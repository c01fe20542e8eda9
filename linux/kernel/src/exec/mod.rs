//! Programs: ELF files, and the stack that they begin with.

mod arguments;
mod copy;
mod elf;
mod interpreter;
mod load;
mod script;
mod segments;
mod stack;

pub use arguments::Arguments;
