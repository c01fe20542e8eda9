//! Writes a log, record by record, without allocating.
use crate::MAX_RECORD;
use crate::header::{Header, MOST_HEADER_BYTES};
use crate::parts::MAX_BYTES;
use crate::record::Record;
use crate::wire::{CHECK_BYTES, Check, Payload, WITH_PC};

/// Where a log goes: a serial line, a buffer, a file.
///
/// Implemented for closures `FnMut(&[u8]) -> Result<(), E>`, and with the feature `std` for
/// [`Written`].
pub trait Sink {
    /// Why bytes could not be written.
    type Error;

    /// Takes all of `bytes`: the header, or one record.
    ///
    /// # Errors
    /// The sink's own. The log is of no use from there on.
    fn take(&mut self, bytes: &[u8]) -> Result<(), Self::Error>;
}

impl<E, F: FnMut(&[u8]) -> Result<(), E>> Sink for F {
    type Error = E;

    fn take(&mut self, bytes: &[u8]) -> Result<(), E> {
        self(bytes)
    }
}

/// A sink that writes to a [`std::io::Write`].
#[cfg(feature = "std")]
#[derive(Debug)]
pub struct Written<W>(pub W);

#[cfg(feature = "std")]
impl<W: std::io::Write> Sink for Written<W> {
    type Error = std::io::Error;

    fn take(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.write_all(bytes)
    }
}

/// Writes a log to a sink.
///
/// Records are to be written in the order in which things happened. CPUs that write to one log
/// share the encoder under a lock, held across the thing that happens and its record.
#[derive(Debug)]
pub struct Encoder<S> {
    sink: S,
    check: Check,
}

impl<S: Sink> Encoder<S> {
    /// Begins a log: writes its header.
    ///
    /// # Errors
    /// The sink's.
    pub fn new(mut sink: S, header: &Header) -> Result<Self, S::Error> {
        let mut bytes = [0; MOST_HEADER_BYTES];
        let (end, check) = header.put(&mut bytes);
        sink.take(&bytes[..end])?;
        Ok(Self { sink, check })
    }

    /// Writes a record. Texts and bytes beyond [`MAX_TEXT`](crate::MAX_TEXT) and [`MAX_BYTES`] are
    /// cut.
    ///
    /// # Errors
    /// The sink's.
    pub fn record(&mut self, record: &Record<'_>) -> Result<(), S::Error> {
        self.write(None, record)
    }

    /// Writes a record of the effect of the instruction at `pc`, a virtual address.
    ///
    /// # Errors
    /// The sink's.
    pub fn record_at(&mut self, pc: u64, record: &Record<'_>) -> Result<(), S::Error> {
        self.write(Some(pc), record)
    }

    /// Writes the content of memory, `bytes` from `phys` on, in as many records as that takes.
    ///
    /// # Errors
    /// The sink's.
    pub fn memory(&mut self, phys: u64, bytes: &[u8]) -> Result<(), S::Error> {
        for (n, part) in bytes.chunks(MAX_BYTES).enumerate() {
            let phys = phys.wrapping_add((n * MAX_BYTES) as u64);
            self.record(&Record::Memory { phys, bytes: part })?;
        }
        Ok(())
    }

    /// Ends the log: no record may follow. With `all_freed`, tables that are still allocated are
    /// leaks.
    ///
    /// # Errors
    /// The sink's.
    pub fn end(&mut self, all_freed: bool) -> Result<(), S::Error> {
        self.record(&Record::End { all_freed })
    }

    /// Returns the sink, to flush it say.
    pub fn sink(&mut self) -> &mut S {
        &mut self.sink
    }

    /// Returns the sink.
    #[must_use]
    pub fn into_sink(self) -> S {
        self.sink
    }

    fn write(&mut self, pc: Option<u64>, record: &Record<'_>) -> Result<(), S::Error> {
        let mut payload = Payload::new();
        if let Some(pc) = pc {
            payload.number(pc);
        }
        record.put(&mut payload);
        let kind = record.kind();
        let fields = payload.as_bytes();
        let mut bytes = [0; MAX_RECORD];
        let end = 2 + fields.len();
        bytes[0] = if pc.is_some() { kind | WITH_PC } else { kind };
        // A payload has at most 255 bytes.
        bytes[1] = fields.len() as u8;
        bytes[2..end].copy_from_slice(fields);
        self.check = self.check.with(&bytes[..end]);
        bytes[end..end + CHECK_BYTES].copy_from_slice(&self.check.value().to_le_bytes());
        self.sink.take(&bytes[..end + CHECK_BYTES])
    }
}
