//! Writing of traces, event by event.
use crate::hash::HashWriter;
use crate::row::{self, END, NEW_CPU, NEW_TASK, SLOT_SHIFT, more};
use crate::tasks::Tasks;
use crate::wire::{Plain, Row, Sink, zigzag};
use crate::{Event, Header, Kind, Note, Place, PlaceId, Settings, Summary, Symbols, Text, WriteError};
use std::io::{self, Write};
use xxhash_rust::xxh3::Xxh3Default;

/// Rows go to the compressor in pieces of about this many bytes.
const PIECE: usize = 1 << 16;

/// Writes a trace.
///
/// The trace is complete only after [`finish`](Self::finish).
pub struct Writer<W: Write> {
    out: zstd::Encoder<'static, HashWriter<W>>,
    sink: Sink,
    symbols: Symbols,
    settings: Settings,
    cpus: u16,
    cpu: u16,
    /// The task that each CPU ran last.
    current: Vec<u32>,
    /// The time of the last time row, in microseconds.
    time: u64,
    summary: Summary,
}

impl<W: Write> Writer<W> {
    /// Starts a trace. `level` is the compression level of zstd, clamped to 1 (fast) to 22 (small).
    ///
    /// # Errors
    /// If the header is invalid or `out` fails.
    pub fn new(mut out: W, header: &Header, level: i32) -> Result<Self, WriteError> {
        let bytes = header.encode()?;
        out.write_all(&bytes)?;
        let mut hash = Xxh3Default::new();
        hash.update(&bytes);
        let mut out = zstd::Encoder::new(HashWriter { inner: out, hash }, level.clamp(1, 22))?;
        out.include_checksum(true)?;
        if level >= 19 {
            // Programs repeat over long distances: the next run of a compiler starts a megabyte of
            // rows later.
            out.long_distance_matching(true)?;
            out.window_log(27)?;
        }
        Ok(Self {
            out,
            sink: Sink { rows: Vec::with_capacity(PIECE + 128), tasks: Tasks::new(), task: 0, slot: 0 },
            symbols: Symbols::default(),
            settings: Settings::default(),
            cpus: header.cpus,
            cpu: 0,
            current: vec![0; usize::from(header.cpus)],
            time: 0,
            summary: Summary { tasks: 1, ..Summary::default() },
        })
    }

    /// Returns the number of events so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.summary.events
    }

    /// Sets the time of the events that follow, in microseconds since the recording began. A trace
    /// without times is as good.
    ///
    /// # Errors
    /// [`WriteError::Invalid`] if the time is before that of the event before, or later than 142
    /// years; the events that follow have the time before then.
    pub fn time(&mut self, micros: u64) -> Result<(), WriteError> {
        if micros < self.time || micros >= row::MAX_TIME {
            let what =
                if micros < self.time { "a time that runs backwards" } else { "a time of more than 52 bits" };
            return Err(WriteError::Invalid { event: self.summary.events, what });
        }
        if micros != self.time {
            self.sink.rows.extend([row::MORE, more::TIME]);
            self.sink.number(micros - self.time);
            self.time = micros;
        }
        Ok(())
    }

    /// Adds the name of a file, library or function, if it is new: at most
    /// [`MAX_TEXT`](crate::MAX_TEXT) bytes of UTF-8 without control characters.
    ///
    /// # Errors
    /// [`WriteError::Invalid`] if it is not such a name, or there are too many; the trace can
    /// continue.
    pub fn text(&mut self, text: &str) -> Result<Text, WriteError> {
        if let Some(number) = self.symbols.number_of(text) {
            return Ok(number);
        }
        let number = self.symbols.add_text(text).map_err(|what| self.invalid(what))?;
        self.sink.rows.extend([row::MORE, more::TEXT]);
        self.sink.number(text.len() as u64);
        self.sink.rows.extend(text.as_bytes());
        Ok(number)
    }

    /// Adds a place in a program, if it is new.
    ///
    /// # Errors [`WriteError::Invalid`] if its names or its caller are not this trace's, or there
    /// are too many places; the trace can continue.
    pub fn place(&mut self, place: Place) -> Result<PlaceId, WriteError> {
        if let Some(number) = self.symbols.place_number_of(&place) {
            return Ok(number);
        }
        let number = self.symbols.add_place(place).map_err(|what| self.invalid(what))?;
        self.sink.rows.extend([row::MORE, more::PLACE]);
        for text in [place.function, place.module, place.file] {
            self.sink.number(text.number());
        }
        self.sink.number(u64::from(place.line));
        self.sink.number(place.caller.number());
        Ok(number)
    }

    /// Writes a setting of the recorded machine: an event of task 0. Settings come before all other
    /// events.
    ///
    /// # Errors
    /// [`WriteError::Invalid`] if another event stands before it, or [`Settings::add`] refuses it;
    /// the trace can continue. [`WriteError::Io`] if the output fails.
    pub fn setting(&mut self, name: &str, value: &str) -> Result<(), WriteError> {
        let (name, value) = (self.text(name)?, self.text(value)?);
        self.event(&Event { task: 0, cpu: 0, kind: Kind::Note(Note::Setting { name, value }) })
    }

    fn invalid(&self, what: &'static str) -> WriteError {
        WriteError::Invalid { event: self.summary.events, what }
    }

    /// Writes an event.
    ///
    /// # Errors
    /// [`WriteError::Invalid`] if a reader would reject the event at this point; it is not written,
    /// and the trace can continue. [`WriteError::Io`] if the output fails.
    pub fn event(&mut self, e: &Event) -> Result<(), WriteError> {
        row::check(e, self.cpus, &self.sink.tasks, &self.symbols)
            .and_then(|()| self.settings.see(&e.kind, self.summary.events, &self.symbols))
            .map_err(|what| WriteError::Invalid { event: self.summary.events, what })?;
        let tag_at = self.sink.rows.len();
        let (code, kind) = (e.kind.code(), row::kind_index(&e.kind));
        let mut tag = kind as u8;
        self.sink.rows.push(0);
        if e.cpu != self.cpu {
            tag |= NEW_CPU;
            self.cpu = e.cpu;
            self.sink.number(u64::from(e.cpu));
        }
        let last = std::mem::replace(&mut self.current[usize::from(e.cpu)], e.task);
        if e.task != last {
            tag |= NEW_TASK;
            self.sink.number(zigzag(i64::from(e.task) - i64::from(last)));
        }
        self.sink.task = e.task;
        self.sink.slot = 0;
        if code >> 8 != 0 {
            self.sink.rows.push(code as u8);
        }
        e.kind.put(&mut self.sink);
        match e.kind {
            Kind::Clone { .. } => {
                self.sink.tasks.add(e.task);
                self.summary.tasks += 1;
            }
            Kind::Exit { .. } => self.sink.tasks.remove(e.task),
            _ => {}
        }
        self.sink.rows[tag_at] = tag | (self.sink.slot as u8) << SLOT_SHIFT;
        self.summary.events += 1;
        self.summary.by_kind[kind] += 1;
        if self.sink.rows.len() >= PIECE {
            self.pass()?;
        }
        Ok(())
    }

    /// Sets the number of programs that ran and were not recorded. The trailer has it.
    pub fn set_unrecorded(&mut self, programs: u32) {
        self.summary.unrecorded = programs;
    }

    /// Ends the trace. `lost` is the number of events that the kernel dropped.
    ///
    /// # Errors
    /// If the output fails.
    pub fn finish(mut self, lost: u64) -> Result<(W, Summary), WriteError> {
        self.sink.rows.push(END);
        self.pass()?;
        let mut out = self.out.finish()?;
        self.summary.lost = lost;
        let trailer = self.summary.encode(out.hash.digest());
        out.inner.write_all(&trailer)?;
        out.inner.flush()?;
        Ok((out.inner, self.summary))
    }

    fn pass(&mut self) -> io::Result<()> {
        self.out.write_all(&self.sink.rows)?;
        self.summary.row_bytes += self.sink.rows.len() as u64;
        self.sink.rows.clear();
        Ok(())
    }
}
