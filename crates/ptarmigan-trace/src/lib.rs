//! Recorded address-space activity.
//!
//! A trace lists, in order, the requests of a real program's tasks to their address spaces
//! (`mmap`, `munmap`, `fork`, `execve` ...), and the pages they faulted on. It also contains the
//! size of each process's page tables as Linux reported it (`VmPTE`), to check a replay against.
//!
//! [`TraceFile`] opens a file, checks it as a whole, and returns its [`Header`] and [`Summary`]
//! before any event is read. [`Reader`] and [`Writer`] stream; their memory is bounded by the
//! number of live tasks. `trace-format.md`, which is part of the package, describes the format byte
//! by byte.
//!
//! ```
//! use ptarmigan_trace::{Event, FaultFlags, Header, Kind, Method, Reader, Writer};
//!
//! let mut trace = Writer::new(Vec::new(), &Header::new("example", 1, Method::Synthetic), 3)?;
//! let kind = Kind::Fault { page: 0x400, flags: FaultFlags(FaultFlags::USER) };
//! trace.event(&Event { task: 0, cpu: 0, kind })?;
//! trace.event(&Event { task: 0, cpu: 0, kind: Kind::Exit { last: true } })?;
//! let (bytes, summary) = trace.finish(0)?;
//! assert_eq!(summary.events, 2);
//!
//! let mut reader = Reader::new(&bytes[..])?;
//! assert_eq!(reader.header().name(), "example");
//! let events: Vec<Event> = reader.by_ref().collect::<Result<_, _>>()?;
//! assert_eq!(events[0].kind, kind);
//! assert_eq!(reader.summary().map(|s| s.lost), Some(0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#[macro_use]
mod table;

mod error;
mod event;
mod file;
mod flush;
mod hash;
mod header;
mod note;
mod opening;
mod reader;
mod row;
mod settings;
mod summary;
mod symbols;
mod tasks;
mod wire;
mod writer;

pub use error::{ReadError, WriteError};
pub use event::{
    AreaKind, CloneKind, Event, FailedCall, FaultFlags, Kind, Locking, MapFlags, Name, Prot, Sampled, Value,
};
pub use file::TraceFile;
pub use flush::{FLUSH_REASONS, FlushEvent, FlushReason};
pub use header::{Arch, Header, HugePages, Method, Unseen};
pub use note::{Call, Cause, Note, Object, Runtime, UnreadReason};
pub use opening::{Opening, OpeningCounts, Openings};
pub use reader::Reader;
pub use row::kind_index;
pub use settings::{BlockSizes, MAX_SETTINGS, Settings};
pub use summary::Summary;
pub use symbols::{MAX_SYMBOLS, MAX_TEXT, Place, PlaceId, Symbols, Text};
pub use tasks::{MAX_LIVE_TASKS, MAX_TASKS};
pub use writer::Writer;

/// The version of the format that this crate writes, and the newest that it reads. It reads all
/// before it.
pub const VERSION: u16 = 4;
