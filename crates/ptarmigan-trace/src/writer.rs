//! Writing of traces, event by event.
use crate::hash::HashWriter;
use crate::row::{self, END, NEW_CPU, NEW_TASK, SLOT_SHIFT, more, zigzag};
use crate::tasks::{self, Tasks};
use crate::{Event, FailedCall, Header, Kind, Note, Place, PlaceId, Summary, Symbols, Text, WriteError};
use std::io::{self, Write};
use xxhash_rust::xxh3::Xxh3Default;

/// Rows go to the compressor in pieces of about this many bytes.
const PIECE: usize = 1 << 16;

/// Writes a trace.
///
/// The trace is complete only after [`finish`](Self::finish).
pub struct Writer<W: Write> {
    out: zstd::Encoder<'static, HashWriter<W>>,
    rows: Vec<u8>,
    tasks: Tasks,
    symbols: Symbols,
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
            rows: Vec::with_capacity(PIECE + 128),
            tasks: Tasks::new(),
            symbols: Symbols::default(),
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
            self.rows.extend([row::MORE, more::TIME]);
            self.number(micros - self.time);
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
        self.rows.extend([row::MORE, more::TEXT]);
        self.number(text.len() as u64);
        self.rows.extend(text.as_bytes());
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
        self.rows.extend([row::MORE, more::PLACE]);
        for text in [place.function, place.module, place.file] {
            self.optional(text.map(|t| t.0));
        }
        self.number(u64::from(place.line));
        self.optional(place.caller.map(|p| p.0));
        Ok(number)
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
        row::check(e, self.cpus, &self.tasks, &self.symbols)
            .map_err(|what| WriteError::Invalid { event: self.summary.events, what })?;
        let tag_at = self.rows.len();
        let kind = row::kind_index(&e.kind);
        let mut tag = kind as u8;
        self.rows.push(0);
        if e.cpu != self.cpu {
            tag |= NEW_CPU;
            self.cpu = e.cpu;
            self.number(u64::from(e.cpu));
        }
        let last = std::mem::replace(&mut self.current[usize::from(e.cpu)], e.task);
        if e.task != last {
            tag |= NEW_TASK;
            self.number(zigzag(i64::from(e.task) - i64::from(last)));
        }
        let slot = match e.kind {
            Kind::Fault { page, flags } => {
                self.rows.push(flags.0);
                self.page(e.task, page, 0)
            }
            Kind::Clone { kind, .. } => {
                self.rows.push(kind as u8);
                self.tasks.add(e.task);
                self.summary.tasks += 1;
                0
            }
            Kind::Exec { stack_end, arg_pages } => {
                self.number(stack_end);
                self.number(u64::from(arg_pages));
                0
            }
            Kind::Area { start, pages, prot, kind } => {
                self.rows.push(prot.0 | (kind as u8) << 3);
                self.range(e.task, start, pages)
            }
            Kind::Exit { last } => {
                self.rows.push(u8::from(last));
                self.tasks.remove(e.task);
                0
            }
            Kind::Mmap { start, pages, prot, flags } => {
                self.rows.push(prot.0);
                self.number(u64::from(flags.0));
                self.range(e.task, start, pages)
            }
            Kind::Munmap { start, pages } => self.range(e.task, start, pages),
            Kind::Brk { end } => self.page(e.task, end, 0),
            Kind::Mremap { from, old_pages, to, new_pages, keep } => {
                let slot = self.range(e.task, from, old_pages);
                self.rows.push(u8::from(keep));
                self.number(zigzag(to.wrapping_sub(from) as i64));
                self.number(new_pages);
                slot
            }
            Kind::Mprotect { start, pages, prot } => {
                self.rows.push(prot.0);
                self.range(e.task, start, pages)
            }
            Kind::Madvise { start, pages, advice } => {
                self.number(u64::from(advice));
                self.range(e.task, start, pages)
            }
            Kind::TlbFlush { pages, reason } => {
                self.rows.push(reason);
                self.number(pages);
                0
            }
            Kind::Idle => 0,
            Kind::Truth { tables, at } => {
                self.rows.push(at as u8);
                self.number(u64::from(tables));
                0
            }
            Kind::Lock { start, pages, how } => {
                self.rows.extend([more::LOCK, how.0]);
                self.range(e.task, start, pages)
            }
            Kind::LockAll { how } => {
                self.rows.extend([more::LOCK_ALL, how.0]);
                0
            }
            Kind::StackLimit { pages } => {
                self.rows.push(more::STACK_LIMIT);
                self.number(pages);
                0
            }
            Kind::Name(name) => {
                self.rows.extend([more::NAME, name.as_str().len() as u8]);
                self.rows.extend(name.as_str().as_bytes());
                0
            }
            Kind::Pid(pid) => {
                self.rows.push(more::PID);
                self.number(u64::from(pid));
                0
            }
            Kind::Touched { start, pages, flags } => {
                self.rows.extend([more::TOUCHED, flags.0]);
                self.range(e.task, start, pages)
            }
            Kind::Failed { errno, call } => self.failed(e.task, errno, call),
            Kind::Note(note) => self.note(e.task, note),
        };
        self.rows[tag_at] = tag | (slot as u8) << SLOT_SHIFT;
        self.summary.events += 1;
        self.summary.by_kind[kind] += 1;
        if self.rows.len() >= PIECE {
            self.pass()?;
        }
        Ok(())
    }

    /// Writes the fields of a call that failed. Returns the slot of its page.
    fn failed(&mut self, task: u32, errno: u8, call: FailedCall) -> usize {
        match call {
            FailedCall::Mprotect { start, pages, prot } => {
                self.rows.extend([more::FAILED_MPROTECT, errno, prot.0]);
                self.range(task, start, pages)
            }
            FailedCall::Madvise { start, pages, advice } => {
                self.rows.extend([more::FAILED_MADVISE, errno]);
                self.number(u64::from(advice));
                self.range(task, start, pages)
            }
            FailedCall::Lock { start, pages, how } => {
                self.rows.extend([more::FAILED_LOCK, errno, how.0]);
                self.range(task, start, pages)
            }
            FailedCall::Mremap { start, pages, to, keep } => {
                self.rows.extend([more::FAILED_MREMAP, errno]);
                let slot = self.range(task, start, pages);
                self.rows.push(u8::from(keep));
                self.number(zigzag(to.wrapping_sub(start) as i64));
                slot
            }
        }
    }

    /// Writes the fields of a note. Returns the slot of its page.
    fn note(&mut self, task: u32, note: Note) -> usize {
        match note {
            Note::Took { call, nanos, away } => {
                self.rows.extend([more::TOOK, call as u8]);
                self.number(nanos);
                self.number(away);
            }
            Note::Used { user, system, minor, major, waits, preempted } => {
                self.rows.push(more::USED);
                for n in [user, system, minor, major.into(), waits.into(), preempted.into()] {
                    self.number(n);
                }
            }
            Note::Mapped { start, pages, object, name } => {
                self.rows.extend([more::MAPPED, object as u8]);
                self.optional(name.map(|t| t.0));
                return self.range(task, start, pages);
            }
            Note::Runtime(runtime) => self.rows.extend([more::RUNTIME, runtime as u8]),
            Note::Caller { cause, page, events, place } => {
                self.rows.extend([more::CALLER, cause.code()]);
                self.number(events);
                self.optional(place.map(|p| p.0));
                return self.page(task, page, 0);
            }
            Note::StopCost { nanos } => {
                self.rows.push(more::STOP_COST);
                self.number(nanos);
            }
        }
        0
    }

    /// Writes a number one higher, as 0 stands for none.
    fn optional(&mut self, number: Option<u32>) {
        self.number(number.map_or(0, |n| u64::from(n) + 1));
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
        self.rows.push(END);
        self.pass()?;
        let mut out = self.out.finish()?;
        self.summary.lost = lost;
        let trailer = self.summary.encode(out.hash.digest());
        out.inner.write_all(&trailer)?;
        out.inner.flush()?;
        Ok((out.inner, self.summary))
    }

    fn pass(&mut self) -> io::Result<()> {
        self.out.write_all(&self.rows)?;
        self.summary.row_bytes += self.rows.len() as u64;
        self.rows.clear();
        Ok(())
    }

    fn number(&mut self, mut v: u64) {
        while v >= 0x80 {
            self.rows.push(v as u8 | 0x80);
            v >>= 7;
        }
        self.rows.push(v as u8);
    }

    /// Writes the distance of a page from the nearest remembered one. Returns which one that was.
    fn page(&mut self, task: u32, page: u64, pages: u64) -> usize {
        let Some(near) = self.tasks.near(task) else { return 0 };
        let mut best = (0, u64::MAX);
        for (slot, n) in near.iter().enumerate() {
            if page.abs_diff(*n) < best.1 {
                best = (slot, page.abs_diff(*n));
            }
        }
        let delta = page.wrapping_sub(near[best.0]) as i64;
        tasks::remember(near, best.0, best.1, page + pages);
        self.number(zigzag(delta));
        best.0
    }

    fn range(&mut self, task: u32, start: u64, pages: u64) -> usize {
        let slot = self.page(task, start, pages);
        self.number(pages);
        slot
    }
}
