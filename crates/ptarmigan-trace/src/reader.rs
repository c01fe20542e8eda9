//! Reading of traces, event by event.
use crate::hash::HashReader;
use crate::header::read_up_to;
use crate::row::{self, END, MORE, NEW_CPU, NEW_TASK, SLOT_SHIFT, more};
use crate::tasks::{self, Tasks};
use crate::wire::{Bad, MAX_PAGE, NUMBER, Row, Source, unzigzag};
use crate::{Event, Header, Kind, MAX_TEXT, Place, ReadError, Settings, Summary, Symbols, summary};
use std::io::{BufRead, ErrorKind, Read};
use xxhash_rust::xxh3::Xxh3Default;

/// Reads a trace: an iterator over its events.
///
/// # Memory
///
/// The reader needs a window of at most 128 MiB for the decompressor, and tables bounded by
/// [`MAX_TASKS`](crate::MAX_TASKS) and [`MAX_LIVE_TASKS`](crate::MAX_LIVE_TASKS).
///
/// # Validity
///
/// Every event is valid by itself: its task is known, its CPU below the header's number, its page
/// numbers have at most 52 bits. That all events are as written is known only when the iteration
/// ends without an error. [`TraceFile`](crate::TraceFile) checks this beforehand. After an error,
/// and after the end, the iterator returns `None`.
pub struct Reader<R: BufRead> {
    header: Header,
    source: zstd::Decoder<'static, HashReader<R>>,
    buf: Box<[u8]>,
    at: usize,
    filled: usize,
    /// Number of bytes of rows before the buffer.
    before: u64,
    tasks: Tasks,
    symbols: Symbols,
    settings: Settings,
    cpu: u16,
    current: Vec<u32>,
    /// The time of the last time row, in microseconds.
    time: u64,
    seen: Summary,
    /// More than so many events, or bytes of rows, are an error at once.
    most: (u64, u64),
    summary: Option<Summary>,
    done: bool,
}

/// The rows are not those that the trailer counts.
const OTHER_COUNTS: &str = "the trailer counts other events";

impl<R: BufRead> Reader<R> {
    /// Reads the header; the iterator reads the events. `input` may be a pipe, as the reader does
    /// not seek.
    ///
    /// # Errors
    /// If the input is not a trace, or has a newer version.
    pub fn new(input: R) -> Result<Self, ReadError> {
        let mut input = HashReader { inner: input, hash: Xxh3Default::new(), failed: false };
        let header = Header::decode(&mut input)?;
        let mut source = zstd::Decoder::with_buffer(input)?.single_frame();
        source.window_log_max(27)?;
        Ok(Self {
            current: vec![0; usize::from(header.cpus)],
            header,
            source,
            buf: vec![0; 1 << 16].into_boxed_slice(),
            at: 0,
            filled: 0,
            before: 0,
            tasks: Tasks::new(),
            symbols: Symbols::default(),
            settings: Settings::default(),
            cpu: 0,
            time: 0,
            seen: Summary { tasks: 1, ..Summary::default() },
            most: (u64::MAX, u64::MAX),
            summary: None,
            done: false,
        })
    }

    /// Reads at most as much as a trailer counts that is known beforehand.
    pub(crate) fn limit(&mut self, summary: &Summary) {
        self.most = (summary.events, summary.row_bytes);
    }

    /// Returns the header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the time of the last event that was read, in microseconds since the recording began;
    /// 0 in a trace without times.
    #[must_use]
    pub fn time(&self) -> u64 {
        self.time
    }

    /// Returns the names and places that the events so far refer to.
    #[must_use]
    pub fn symbols(&self) -> &Symbols {
        &self.symbols
    }

    /// Returns the settings of the recorded machine that were read so far. They are the first
    /// events of a trace.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the trailer, once all events have been read without an error.
    #[must_use]
    pub fn summary(&self) -> Option<&Summary> {
        self.summary.as_ref()
    }

    #[cold]
    fn refill(&mut self) -> Result<(), Bad> {
        self.before += self.filled as u64;
        (self.at, self.filled) = (0, 0);
        if self.before > self.most.1 {
            return Err(OTHER_COUNTS.into());
        }
        loop {
            match self.source.read(&mut self.buf) {
                Ok(0) => return Err(Bad::End),
                Ok(n) => {
                    self.filled = n;
                    return Ok(());
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Err(Bad::End),
                Err(e) => return Err(Bad::Read(e)),
            }
        }
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, Bad> {
        if self.at == self.filled {
            self.refill()?;
        }
        let b = self.buf[self.at];
        self.at += 1;
        Ok(b)
    }

    #[inline]
    fn number(&mut self) -> Result<u64, Bad> {
        // Most numbers have one or two bytes and are not at the end of the buffer.
        if let Some(&[a, b]) = self.buf[..self.filled].get(self.at..self.at + 2) {
            if a < 0x80 {
                self.at += 1;
                return Ok(a.into());
            }
            if b < 0x80 {
                self.at += 2;
                return Ok(u64::from(a & 0x7f) | u64::from(b) << 7);
            }
        }
        self.long_number()
    }

    fn long_number(&mut self) -> Result<u64, Bad> {
        let mut v = 0u64;
        for shift in (0..64).step_by(7) {
            let b = self.byte()?;
            if shift == 63 && b > 1 {
                break;
            }
            v |= u64::from(b & 0x7f) << shift;
            if b < 0x80 {
                return Ok(v);
            }
        }
        Err("a number of more than 64 bits".into())
    }

    /// Reads a page number relative to a remembered one and, with `with_len`, the length that
    /// follows.
    #[inline]
    fn page(&mut self, task: u32, slot: usize, with_len: bool) -> Result<(u64, u64), Bad> {
        let delta = unzigzag(self.number()?);
        let len = if with_len { self.number()? } else { 0 };
        let near = self.tasks.near(task).ok_or("a task that is not alive")?;
        let from = near.get_mut(slot).ok_or("a remembered address that does not exist")?;
        let page = from.wrapping_add_signed(delta);
        if page >= MAX_PAGE || len > MAX_PAGE - page {
            return Err("a page number of more than 52 bits".into());
        }
        tasks::remember(near, slot, delta.unsigned_abs(), page + len);
        Ok((page, len))
    }

    /// Reads the next event; returns `None` at the end mark.
    #[inline]
    fn row(&mut self) -> Result<Option<Event>, Bad> {
        let (mut tag, mut what) = (self.byte()?, None);
        // Rows of time, names and places have no CPU, no task and no page.
        while tag == MORE && self.header.version > 1 {
            match self.byte()? {
                more::TIME => {
                    self.advance()?;
                    tag = self.byte()?;
                }
                symbol @ (more::TEXT | more::PLACE) if self.header.version >= more::since(symbol) => {
                    self.symbol(symbol)?;
                    tag = self.byte()?;
                }
                other => {
                    what = Some(other);
                    break;
                }
            }
        }
        if tag == END {
            return Ok(None);
        }
        if tag & NEW_CPU != 0 {
            let cpu = self.number()?;
            self.cpu = u16::try_from(cpu).map_err(|_| "a CPU that the header does not have")?;
        }
        let cpu = self.cpu;
        let mut task = *self.current.get(usize::from(cpu)).ok_or("a CPU that the header does not have")?;
        if tag & NEW_TASK != 0 {
            let delta = unzigzag(self.number()?);
            task = i64::from(task)
                .checked_add(delta)
                .and_then(|t| u32::try_from(t).ok())
                .ok_or("a task that was never made")?;
            self.current[usize::from(cpu)] = task;
        }
        let slot = usize::from(tag >> SLOT_SHIFT);
        let code = match tag & 15 {
            MORE if self.header.version > 1 => {
                let what = what.map_or_else(|| self.byte(), Ok)?;
                if self.header.version < more::since(what) {
                    return Err("an unknown kind of event".into());
                }
                u16::from_be_bytes([MORE, what])
            }
            kind => kind.into(),
        };
        let kind = Kind::get(code, &mut Fields { reader: self, code, task, slot })?;
        let event = Event { task, cpu, kind };
        if self.header.version == 1 {
            row::check_v1(&event)?;
        }
        row::check(&event, self.header.cpus, &self.tasks, &self.symbols)?;
        self.settings.see(&kind, self.seen.events, &self.symbols)?;
        match kind {
            Kind::Clone { .. } => {
                self.tasks.add(task);
                self.seen.tasks += 1;
            }
            Kind::Exit { .. } => self.tasks.remove(task),
            _ => {}
        }
        if self.seen.events == self.most.0 {
            return Err(OTHER_COUNTS.into());
        }
        self.seen.events += 1;
        self.seen.by_kind[usize::from(tag & 15)] += 1;
        Ok(Some(event))
    }

    /// Reads the rest of a time row.
    #[cold]
    fn advance(&mut self) -> Result<(), Bad> {
        let step = self.number()?;
        if step == 0 {
            return Err("a time that does not pass".into());
        }
        self.time = self
            .time
            .checked_add(step)
            .filter(|t| *t < row::MAX_TIME)
            .ok_or("a time of more than 52 bits")?;
        Ok(())
    }

    /// Reads the rest of a row with a name or a place.
    #[cold]
    fn symbol(&mut self, which: u8) -> Result<(), Bad> {
        if which == more::TEXT {
            let len = self.number()?;
            if len > MAX_TEXT as u64 {
                return Err("a symbol's name that is too long".into());
            }
            let bytes = (0..len).map(|_| self.byte()).collect::<Result<Vec<u8>, Bad>>()?;
            let text = std::str::from_utf8(&bytes).map_err(|_| "a symbol's name that is not UTF-8")?;
            self.symbols.add_text(text)?;
        } else {
            let fields = &mut Fields { reader: self, code: 0, task: 0, slot: 0 };
            let (function, module) = (NUMBER.get(fields)?, NUMBER.get(fields)?);
            let (file, line, caller) = (NUMBER.get(fields)?, NUMBER.get(fields)?, NUMBER.get(fields)?);
            self.symbols.add_place(Place { function, module, file, line, caller })?;
        }
        Ok(())
    }

    /// Reads on from the end mark: the end of the frame, then the trailer, then no more.
    fn end(&mut self) -> Result<Summary, ReadError> {
        self.seen.row_bytes = self.before + self.at as u64;
        match self.byte() {
            Err(Bad::End) => {}
            Err(Bad::Read(e)) => return Err(self.io(e, self.seen.row_bytes)),
            _ => return Err(self.damaged(self.seen.row_bytes, "rows after the end mark")),
        }
        let input = self.source.get_mut();
        let found = input.hash.digest();
        let mut b = [0; summary::LEN];
        if read_up_to(input, &mut b)? < b.len() {
            return Err(ReadError::Truncated { event: self.seen.events });
        }
        let (summary, expected) = Summary::decode(&b, self.header.version)?;
        if found != expected {
            return Err(ReadError::Checksum { part: "events" });
        }
        let Summary { lost, unrecorded, .. } = summary;
        if (Summary { lost, unrecorded, ..self.seen }) != summary {
            return Err(self.damaged(self.seen.row_bytes, OTHER_COUNTS));
        }
        if read_up_to(self.source.get_mut(), &mut [0])? != 0 {
            return Err(ReadError::TrailingBytes);
        }
        Ok(summary)
    }

    fn damaged(&self, offset: u64, what: &'static str) -> ReadError {
        ReadError::Damaged { event: self.seen.events, offset, what }
    }

    /// Tells errors of the operating system from those of the decompressor.
    fn io(&self, e: std::io::Error, offset: u64) -> ReadError {
        if self.source.get_ref().failed {
            ReadError::Io(e)
        } else {
            self.damaged(offset, "the compressed rows cannot be decompressed")
        }
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Event, ReadError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let offset = self.before + self.at as u64;
        let error = match self.row() {
            Ok(Some(event)) => return Some(Ok(event)),
            Ok(None) => match self.end() {
                Ok(summary) => {
                    self.done = true;
                    self.summary = Some(summary);
                    return None;
                }
                Err(e) => e,
            },
            Err(Bad::End) => ReadError::Truncated { event: self.seen.events },
            Err(Bad::What(what)) => self.damaged(offset, what),
            Err(Bad::Read(e)) => self.io(e, offset),
        };
        self.done = true;
        Some(Err(error))
    }
}

impl<R: BufRead> std::iter::FusedIterator for Reader<R> {}

/// The fields of the row that is being read.
struct Fields<'a, R: BufRead> {
    reader: &'a mut Reader<R>,
    code: u16,
    task: u32,
    slot: usize,
}

impl<R: BufRead> Source for Fields<'_, R> {
    fn code(&self) -> u16 {
        self.code
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, Bad> {
        self.reader.byte()
    }

    #[inline]
    fn number(&mut self) -> Result<u64, Bad> {
        self.reader.number()
    }

    #[inline]
    fn page(&mut self, with_len: bool) -> Result<(u64, u64), Bad> {
        self.reader.page(self.task, self.slot, with_len)
    }

    fn next_task(&self) -> u32 {
        self.reader.tasks.count()
    }
}
