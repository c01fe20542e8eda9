#![doc = include_str!("../README.md")]
#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

// The rooms. Each uses only those above it.
#[macro_use]
mod table;
mod wire;

mod parts;

mod coding;

mod record;

mod header;

mod decode;
mod encode;

#[cfg(feature = "std")]
mod reader;

pub use decode::{DecodeError, Decoded, decode};
#[cfg(feature = "std")]
pub use encode::Written;
pub use encode::{Encoder, Sink};
pub use header::{Architecture, HEADER_BYTES, HEADER_START, Header, HeaderError, MAGIC, VERSION};
pub use parts::{
    AccessKind, BarrierKind, Content, ExceptionLevel, MAX_BYTES, MAX_ENTRY, MAX_FILL, MAX_TEXT, Scope,
};
#[cfg(feature = "std")]
pub use reader::{Entry, ReadError, Reader, What};
pub use record::Record;
pub use wire::Check;

/// The most bytes of a record on the wire: kind, length, 255 bytes, check.
pub const MAX_RECORD: usize = 2 + wire::MAX_PAYLOAD + wire::CHECK_BYTES;
