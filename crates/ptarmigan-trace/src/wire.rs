//! Codings of fields: how a value is read, written and checked.
//!
//! A coding has three methods: `get` reads a value, `put` writes one, `check` returns the error of
//! one. `put` is called for values that were checked. A tuple is coded as a whole.
use crate::symbols::{PlaceId, Symbols, Text};
use crate::tasks::{self, Tasks};

/// Page numbers and lengths are below this.
pub(crate) const MAX_PAGE: u64 = 1 << 52;
/// Durations in any unit, and counts of notes, are below this.
pub(crate) const MAX_DURATION: u64 = 1 << 56;

/// Why a row cannot be read, without the place.
pub(crate) enum Bad {
    Read(std::io::Error),
    End,
    What(&'static str),
}

impl From<&'static str> for Bad {
    fn from(what: &'static str) -> Self {
        Self::What(what)
    }
}

/// The row that is being read.
pub(crate) trait Source {
    /// Returns the number of the row's kind.
    fn code(&self) -> u16;
    fn byte(&mut self) -> Result<u8, Bad>;
    fn number(&mut self) -> Result<u64, Bad>;
    /// Reads a page number relative to a remembered one and, with `with_len`, the length that
    /// follows.
    fn page(&mut self, with_len: bool) -> Result<(u64, u64), Bad>;
    /// Returns the number of the next task.
    fn next_task(&self) -> u32;
}

/// Takes the rows of a trace.
pub(crate) struct Sink {
    pub(crate) rows: Vec<u8>,
    pub(crate) tasks: Tasks,
    /// The task of the row that is being written.
    pub(crate) task: u32,
    /// The remembered page of the row.
    pub(crate) slot: usize,
}

impl Sink {
    pub(crate) fn number(&mut self, mut v: u64) {
        while v >= 0x80 {
            self.rows.push(v as u8 | 0x80);
            v >>= 7;
        }
        self.rows.push(v as u8);
    }

    /// Writes the distance of a page from the nearest remembered one.
    fn page(&mut self, page: u64, pages: u64) {
        let Some(near) = self.tasks.near(self.task) else { return };
        let mut best = (0, u64::MAX);
        for (slot, n) in near.iter().enumerate() {
            if page.abs_diff(*n) < best.1 {
                best = (slot, page.abs_diff(*n));
            }
        }
        let delta = page.wrapping_sub(near[best.0]) as i64;
        tasks::remember(near, best.0, best.1, page + pages);
        self.slot = best.0;
        self.number(zigzag(delta));
    }
}

/// The state that a field may refer to.
pub(crate) struct Known<'a> {
    pub(crate) tasks: &'a Tasks,
    pub(crate) symbols: &'a Symbols,
}

/// An enum of events, as `events!` makes it.
pub(crate) trait Row: Copy {
    /// Reads the fields of the variant with this number.
    fn get<S: Source>(code: u16, source: &mut S) -> Result<Self, Bad>;
    /// Writes the fields.
    fn put(&self, sink: &mut Sink);
    /// Returns the error of a field.
    fn check(&self, known: &Known<'_>) -> Result<(), &'static str>;
}

/// A value that one number stands for.
pub(crate) trait Plain: Copy {
    fn of(number: u64) -> Option<Self>;
    fn number(self) -> u64;
    /// Returns the error of a value that refers to others.
    fn check(self, _known: &Known<'_>) -> Result<(), &'static str> {
        Ok(())
    }
}

macro_rules! plain_integers {
    ($($type:ty)*) => {$(
        impl Plain for $type {
            #[inline]
            fn of(number: u64) -> Option<Self> {
                number.try_into().ok()
            }

            #[inline]
            fn number(self) -> u64 {
                self.into()
            }
        }
    )*};
}

plain_integers!(u8 u16 u32 u64);

impl Plain for bool {
    #[inline]
    fn of(number: u64) -> Option<Self> {
        (number < 2).then_some(number == 1)
    }

    #[inline]
    fn number(self) -> u64 {
        self.into()
    }
}

/// One number more, as 0 stands for none.
impl Plain for Option<u32> {
    fn of(number: u64) -> Option<Self> {
        u32::try_from(number).ok().map(|n| n.checked_sub(1))
    }

    fn number(self) -> u64 {
        self.map_or(0, |n| u64::from(n) + 1)
    }
}

impl Plain for Option<Text> {
    fn of(number: u64) -> Option<Self> {
        Option::<u32>::of(number).map(|n| n.map(Text))
    }

    fn number(self) -> u64 {
        self.map(|text| text.0).number()
    }

    fn check(self, known: &Known<'_>) -> Result<(), &'static str> {
        if !known.symbols.has_text(self) {
            return Err("a symbol's name that does not exist");
        }
        if self.is_some_and(|name| known.symbols.text(name).contains('/')) {
            return Err("a name with a path");
        }
        Ok(())
    }
}

impl Plain for Text {
    fn of(number: u64) -> Option<Self> {
        Option::<Self>::of(number).flatten()
    }

    fn number(self) -> u64 {
        Some(self).number()
    }

    fn check(self, known: &Known<'_>) -> Result<(), &'static str> {
        if known.symbols.has_text(Some(self)) { Ok(()) } else { Err("a text that does not exist") }
    }
}

impl Plain for Option<PlaceId> {
    fn of(number: u64) -> Option<Self> {
        Option::<u32>::of(number).map(|n| n.map(PlaceId))
    }

    fn number(self) -> u64 {
        self.map(|place| place.0).number()
    }

    fn check(self, known: &Known<'_>) -> Result<(), &'static str> {
        if known.symbols.has_place(self) { Ok(()) } else { Err("a place that does not exist") }
    }
}

/// A byte, or a number.
#[derive(Clone, Copy)]
pub(crate) struct Scalar {
    byte: bool,
    /// The error of a number that stands for no value.
    unknown: &'static str,
    /// The smallest value, the bits that a value may have, and the error of others.
    least: u64,
    bits: u64,
    wrong: &'static str,
}

/// A byte.
pub(crate) const BYTE: Scalar = Scalar { byte: true, ..NUMBER };
/// A number.
pub(crate) const NUMBER: Scalar = number("a number of more than 32 bits");
/// A page number or a length that is written as it is.
pub(crate) const ABSOLUTE: Scalar = NUMBER.within(MAX_PAGE - 1, "a page number of more than 52 bits");
/// A duration, in any unit.
pub(crate) const DURATION: Scalar = NUMBER.within(MAX_DURATION - 1, "a duration of more than 56 bits");
/// A byte that is 0 or 1.
pub(crate) const FLAG: Scalar = byte("a flag that is neither 0 nor 1");

/// A byte that does not stand for a value always.
pub(crate) const fn byte(unknown: &'static str) -> Scalar {
    Scalar { byte: true, ..number(unknown) }
}

/// A number that does not stand for a value always.
pub(crate) const fn number(unknown: &'static str) -> Scalar {
    Scalar { byte: false, unknown, least: 0, bits: u64::MAX, wrong: "" }
}

impl Scalar {
    /// Refuses values with other bits than these.
    pub(crate) const fn within(self, bits: u64, wrong: &'static str) -> Self {
        Self { bits, wrong, ..self }
    }

    /// Refuses other flags than these.
    pub(crate) const fn flags(self, flags: u16) -> Self {
        self.within(flags as u64, "unknown flags")
    }

    /// Refuses smaller values than this.
    pub(crate) const fn at_least(self, least: u64) -> Self {
        Self { least, ..self }
    }

    #[inline(always)]
    pub(crate) fn get<T: Plain, S: Source>(self, source: &mut S) -> Result<T, Bad> {
        let number = if self.byte { source.byte()?.into() } else { source.number()? };
        T::of(number).ok_or(Bad::What(self.unknown))
    }

    #[inline(always)]
    pub(crate) fn put<T: Plain>(self, sink: &mut Sink, value: T) {
        if self.byte { sink.rows.push(value.number() as u8) } else { sink.number(value.number()) }
    }

    #[inline(always)]
    pub(crate) fn check<T: Plain>(self, value: T, known: &Known<'_>) -> Result<(), &'static str> {
        let number = value.number();
        if number < self.least || number & !self.bits != 0 { Err(self.wrong) } else { value.check(known) }
    }
}

#[inline]
fn check_range(start: u64, pages: u64) -> Result<(), &'static str> {
    if pages == 0 {
        return Err("a range of no pages");
    }
    check_page(start)?;
    if pages > MAX_PAGE - start { Err("a range that ends beyond the last page") } else { Ok(()) }
}

#[inline]
fn check_page(page: u64) -> Result<(), &'static str> {
    if page < MAX_PAGE { Ok(()) } else { Err("a page number of more than 52 bits") }
}

/// A page number.
pub(crate) struct Page;

impl Page {
    #[inline(always)]
    pub(crate) fn get<S: Source>(self, source: &mut S) -> Result<u64, Bad> {
        Ok(source.page(false)?.0)
    }

    pub(crate) fn put(self, sink: &mut Sink, page: u64) {
        sink.page(page, 0);
    }

    #[inline(always)]
    pub(crate) fn check(self, page: u64, _: &Known<'_>) -> Result<(), &'static str> {
        check_page(page)
    }
}

/// The first page and the length of a range, of at least so many pages.
pub(crate) struct Range(pub(crate) u64);

/// A range of at least one page.
pub(crate) const RANGE: Range = Range(1);

impl Range {
    #[inline(always)]
    pub(crate) fn get<S: Source>(self, source: &mut S) -> Result<(u64, u64), Bad> {
        source.page(true)
    }

    pub(crate) fn put(self, sink: &mut Sink, (start, pages): (u64, u64)) {
        sink.page(start, pages);
        sink.number(pages);
    }

    #[inline(always)]
    pub(crate) fn check(self, (start, pages): (u64, u64), _: &Known<'_>) -> Result<(), &'static str> {
        check_range(start, pages.max(1 - self.0))
    }
}

/// The first page of so many, as a signed difference from another page.
pub(crate) struct Delta(pub(crate) u64, pub(crate) u64);

impl Delta {
    #[inline]
    pub(crate) fn get<S: Source>(self, source: &mut S) -> Result<u64, Bad> {
        Ok(self.0.wrapping_add_signed(unzigzag(source.number()?)))
    }

    pub(crate) fn put(self, sink: &mut Sink, page: u64) {
        sink.number(zigzag(page.wrapping_sub(self.0) as i64));
    }

    #[inline]
    pub(crate) fn check(self, page: u64, _: &Known<'_>) -> Result<(), &'static str> {
        check_range(page, self.1)
    }
}

/// The length of a range that starts at a page.
pub(crate) struct Length(pub(crate) u64);

impl Length {
    #[inline]
    pub(crate) fn get<S: Source>(self, source: &mut S) -> Result<u64, Bad> {
        source.number()
    }

    pub(crate) fn put(self, sink: &mut Sink, pages: u64) {
        sink.number(pages);
    }

    #[inline]
    pub(crate) fn check(self, pages: u64, _: &Known<'_>) -> Result<(), &'static str> {
        check_range(self.0, pages)
    }
}

/// The number of a new task, which is not written.
pub(crate) struct Child;

impl Child {
    pub(crate) fn get<S: Source>(self, source: &mut S) -> Result<u32, Bad> {
        Ok(source.next_task())
    }

    pub(crate) fn put(self, _: &mut Sink, _: u32) {}

    pub(crate) fn check(self, child: u32, known: &Known<'_>) -> Result<(), &'static str> {
        if child != known.tasks.count() {
            return Err("a child whose number is not the next");
        }
        if known.tasks.room() { Ok(()) } else { Err("too many tasks") }
    }
}

/// Another enum of events, which the row's number tells, too.
pub(crate) struct Variant;

impl Variant {
    #[inline]
    pub(crate) fn get<T: Row, S: Source>(self, source: &mut S) -> Result<T, Bad> {
        T::get(source.code(), source)
    }

    pub(crate) fn put<T: Row>(self, sink: &mut Sink, row: T) {
        row.put(sink);
    }

    #[inline]
    pub(crate) fn check<T: Row>(self, row: T, known: &Known<'_>) -> Result<(), &'static str> {
        row.check(known)
    }
}

pub(crate) fn zigzag(v: i64) -> u64 {
    ((v << 1) ^ (v >> 63)) as u64
}

pub(crate) fn unzigzag(v: u64) -> i64 {
    (v >> 1) as i64 ^ -((v & 1) as i64)
}
