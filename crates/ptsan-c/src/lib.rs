#![doc = include_str!("../README.md")]
#![deny(missing_docs)]

// The rooms. Each uses only those above it.
mod error;
mod source;
mod text;
mod threads;

mod options;

mod machine;

mod halves;

mod handles;

mod face;

pub use error::{PTSAN_OK, PtsanError, PtsanFault, ptsan_last_error};
pub use face::*;
pub use handles::Ptsan;
pub use machine::{PTSAN_EVERY_CPU, PTSAN_THIS_CPU};
pub use options::{PtsanArch, PtsanFlag, PtsanOptions};
pub use source::PtsanRead;
