//! Codings of fields: how a value is read and written.
//!
//! A coding has two methods: `get` reads a value, and names it in errors; `put` writes one. A tuple
//! is coded as a whole.
use crate::parts::{AccessKind, ExceptionLevel, MAX_BYTES, MAX_ENTRY, MAX_FILL, MAX_TEXT, Scope};
use crate::wire::{Bad, Fields, Payload};

/// The field behind those of a store that was an atomic exchange.
const EXCHANGED: u64 = 1;

/// A number, or a value that one number stands for.
pub(crate) struct Number;

impl Number {
    pub(crate) fn get<T: TryFrom<u64>>(self, f: &mut Fields<'_>, name: &'static str) -> Result<T, Bad> {
        f.small(name)
    }

    pub(crate) fn put(self, to: &mut Payload, value: impl Into<u64>) {
        to.number(value.into());
    }
}

/// A number whose bit 0 is known, and whose other bits are zero.
pub(crate) struct Flag;

impl Flag {
    pub(crate) fn get(self, f: &mut Fields<'_>, name: &'static str) -> Result<bool, Bad> {
        match f.number(name)? {
            value @ 0..=1 => Ok(value == 1),
            other => Err((name, Some(other))),
        }
    }

    pub(crate) fn put(self, to: &mut Payload, flag: bool) {
        to.number(flag.into());
    }
}

/// A number one higher, as 0 stands for none.
pub(crate) struct Above;

impl Above {
    fn of<T: TryFrom<u64>>(number: u64, name: &'static str) -> Result<Option<T>, Bad> {
        let value = number.checked_sub(1).map(T::try_from).transpose();
        value.map_err(|_| (name, Some(number)))
    }

    pub(crate) fn get<T: TryFrom<u64>>(
        self,
        f: &mut Fields<'_>,
        name: &'static str,
    ) -> Result<Option<T>, Bad> {
        Self::of(f.number(name)?, name)
    }

    pub(crate) fn put(self, to: &mut Payload, value: Option<impl Into<u64>>) {
        to.number(value.map_or(0, |value| value.into() + 1));
    }
}

/// The level of a table, as [`Above`]; with that, at most 255.
pub(crate) struct Level;

impl Level {
    pub(crate) fn get(self, f: &mut Fields<'_>, name: &'static str) -> Result<Option<u8>, Bad> {
        Above::of(f.small::<u8>(name)?.into(), name)
    }

    pub(crate) fn put(self, to: &mut Payload, level: Option<u8>) {
        Above.put(to, level);
    }
}

/// A flag, and the number of this name that follows it if it is 1.
pub(crate) struct Choice(&'static str);

/// An address, or all of them.
pub(crate) const ADDRESS_CHOICE: Choice = Choice("address");
/// A number, or all of them.
pub(crate) const NUMBER_CHOICE: Choice = Choice("number");

impl Choice {
    pub(crate) fn get(self, f: &mut Fields<'_>, name: &'static str) -> Result<Option<u64>, Bad> {
        Ok(if Flag.get(f, name)? { Some(f.number(self.0)?) } else { None })
    }

    pub(crate) fn put(self, to: &mut Payload, value: Option<u64>) {
        Flag.put(to, value.is_some());
        if let Some(value) = value {
            to.number(value);
        }
    }
}

/// The address and the size of an entry.
pub(crate) struct Entry;

impl Entry {
    /// Reads an address and a number of bytes that `is_size` accepts, of which the address is a
    /// multiple.
    fn of(f: &mut Fields<'_>, is_size: impl Fn(u64) -> bool) -> Result<(u64, u64), Bad> {
        let (phys, bytes) = (f.number("address")?, f.number("bytes")?);
        if !bytes.is_power_of_two() || !is_size(bytes) {
            return Err(("bytes", Some(bytes)));
        }
        if phys.is_multiple_of(bytes) { Ok((phys, bytes)) } else { Err(("address", Some(phys))) }
    }

    pub(crate) fn get(self, f: &mut Fields<'_>, _: &'static str) -> Result<(u64, u8), Bad> {
        let (phys, bytes) = Self::of(f, |bytes| bytes <= 8)?;
        Ok((phys, bytes as u8))
    }

    pub(crate) fn put(self, to: &mut Payload, (phys, bytes): (u64, u8)) {
        to.number(phys);
        to.number(bytes.into());
    }
}

/// The end of a store. Logs of encoders that know no exchange end before it.
pub(crate) struct Stored;

impl Stored {
    pub(crate) fn get(self, _: &mut Fields<'_>, _: &'static str) -> Result<(), Bad> {
        Ok(())
    }

    pub(crate) fn put(self, _: &mut Payload, (): ()) {}

    /// Returns whether the store was an atomic exchange.
    pub(crate) fn is_exchange(&self, f: &mut Fields<'_>) -> Result<bool, Bad> {
        match f.optional("exchanged")? {
            None | Some(0) => Ok(false),
            Some(EXCHANGED) => Ok(true),
            other => Err(("exchanged", other)),
        }
    }
}

/// The end of an exchange.
pub(crate) struct Exchanged;

impl Exchanged {
    pub(crate) fn get(self, _: &mut Fields<'_>, _: &'static str) -> Result<(), Bad> {
        Ok(())
    }

    pub(crate) fn put(self, to: &mut Payload, (): ()) {
        to.number(EXCHANGED);
    }
}

/// The address and the length of a loop of stores.
pub(crate) struct Filled;

impl Filled {
    pub(crate) fn get(self, f: &mut Fields<'_>, _: &'static str) -> Result<(u64, u64), Bad> {
        let (phys, bytes) = (f.number("address")?, f.number("bytes")?);
        if !phys.is_multiple_of(8) || phys.checked_add(bytes).is_none() {
            return Err(("address", Some(phys)));
        }
        if !bytes.is_multiple_of(8) || bytes > MAX_FILL {
            return Err(("bytes", Some(bytes)));
        }
        Ok((phys, bytes))
    }

    pub(crate) fn put(self, to: &mut Payload, (phys, bytes): (u64, u64)) {
        to.number(phys);
        to.number(bytes);
    }
}

/// An address and all bytes up to the end of the record.
pub(crate) struct Bytes;

impl Bytes {
    pub(crate) fn get<'a>(self, f: &mut Fields<'a>, _: &'static str) -> Result<(u64, &'a [u8]), Bad> {
        let (phys, bytes) = (f.number("address")?, f.rest());
        if bytes.len() > MAX_BYTES {
            return Err(("bytes", Some(bytes.len() as u64)));
        }
        if phys.checked_add(bytes.len() as u64).is_none() {
            return Err(("address", Some(phys)));
        }
        Ok((phys, bytes))
    }

    pub(crate) fn put(self, to: &mut Payload, (phys, bytes): (u64, &[u8])) {
        to.number(phys);
        to.raw(&bytes[..bytes.len().min(MAX_BYTES)]);
    }
}

/// The address, the number and the content of the bytes that one instruction stored.
pub(crate) struct Whole;

impl Whole {
    pub(crate) fn get<'a>(self, f: &mut Fields<'a>, _: &'static str) -> Result<(u64, &'a [u8]), Bad> {
        let (phys, bytes) = Entry::of(f, |bytes| bytes <= MAX_ENTRY as u64)?;
        Ok((phys, f.raw("content", bytes as usize)?))
    }

    pub(crate) fn put(self, to: &mut Payload, (phys, bytes): (u64, &[u8])) {
        let bytes = &bytes[..bytes.len().min(MAX_ENTRY)];
        to.number(phys);
        to.number(bytes.len() as u64);
        to.raw(bytes);
    }
}

/// The address and the shape of an entry that a device reads.
pub(crate) struct Shape;

impl Shape {
    pub(crate) fn get(self, f: &mut Fields<'_>, _: &'static str) -> Result<(u64, u8, u8, u64), Bad> {
        let (phys, bytes) = Entry::of(f, |bytes| (8..=64).contains(&bytes))?;
        let word = match f.small::<u8>("word")? {
            word if u64::from(word) < bytes / 8 => word,
            other => return Err(("word", Some(other.into()))),
        };
        match f.number("valid bits")? {
            0 => Err(("valid bits", Some(0))),
            valid => Ok((phys, bytes as u8, word, valid)),
        }
    }

    pub(crate) fn put(self, to: &mut Payload, (phys, bytes, word, valid): (u64, u8, u8, u64)) {
        for number in [phys, bytes.into(), word.into(), valid] {
            to.number(number);
        }
    }
}

/// The scope of an invalidation, and whether it spares paging-structure caches.
pub(crate) struct Extent;

impl Extent {
    pub(crate) fn get(self, f: &mut Fields<'_>, name: &'static str) -> Result<(Scope, bool), Bad> {
        let what = f.byte(name)?;
        let scope = match what & 0x7f {
            0 => Scope::Page { space: f.number("space")?, va: f.number("address")? },
            1 => Scope::Range {
                space: f.number("space")?,
                start: f.number("start")?,
                end: f.number("end")?,
                stride: f.number("stride")?,
            },
            2 => Scope::EverySpace {
                start: f.number("start")?,
                end: f.number("end")?,
                stride: f.number("stride")?,
            },
            3 => Scope::Space(f.number("space")?),
            4 => Scope::All,
            other => return Err((name, Some(other.into()))),
        };
        Ok((scope, what & 0x80 != 0))
    }

    pub(crate) fn put(self, to: &mut Payload, (scope, leaf_only): (Scope, bool)) {
        let mut put = |what: u8, numbers: &[u64]| {
            to.byte(what | u8::from(leaf_only) << 7);
            numbers.iter().for_each(|number| to.number(*number));
        };
        match scope {
            Scope::Page { space, va } => put(0, &[space, va]),
            Scope::Range { space, start, end, stride } => put(1, &[space, start, end, stride]),
            Scope::EverySpace { start, end, stride } => put(2, &[start, end, stride]),
            Scope::Space(space) => put(3, &[space]),
            Scope::All => put(4, &[]),
        }
    }
}

/// The levels that an invalidation names, of its pages and of its tables: as many fields as it
/// needs. Logs of encoders without levels end before them.
pub(crate) struct Levels;

impl Levels {
    pub(crate) fn get(
        self,
        f: &mut Fields<'_>,
        _: &'static str,
    ) -> Result<(Option<u8>, Option<ExceptionLevel>), Bad> {
        let level = Above::of(f.optional("level")?.unwrap_or(0), "level")?;
        let exception_level = match f.optional("exception level")? {
            None | Some(0) => None,
            Some(n) => Some(ExceptionLevel::try_from(n).map_err(|()| ("exception level", Some(n)))?),
        };
        Ok((level, exception_level))
    }

    pub(crate) fn put(
        self,
        to: &mut Payload,
        (level, exception_level): (Option<u8>, Option<ExceptionLevel>),
    ) {
        if level.is_some() || exception_level.is_some() {
            Above.put(to, level);
        }
        if let Some(exception_level) = exception_level {
            to.number(exception_level.into());
        }
    }
}

/// The kind of an access, and whether in user mode.
pub(crate) struct Mode;

impl Mode {
    pub(crate) fn get(self, f: &mut Fields<'_>, name: &'static str) -> Result<(AccessKind, bool), Bad> {
        let what = f.number(name)?;
        let kind = AccessKind::try_from(what & !4).map_err(|()| (name, Some(what)))?;
        Ok((kind, what & 4 != 0))
    }

    pub(crate) fn put(self, to: &mut Payload, (kind, user): (AccessKind, bool)) {
        to.number(u64::from(kind) | u64::from(user) << 2);
    }
}

/// A text up to the end of the record. A longer one is cut between characters.
pub(crate) struct Words;

impl Words {
    pub(crate) fn get<'a>(self, f: &mut Fields<'a>, _: &'static str) -> Result<&'a str, Bad> {
        let text = f.rest();
        core::str::from_utf8(text).map_err(|_| ("text", Some(text.len() as u64)))
    }

    pub(crate) fn put(self, to: &mut Payload, text: &str) {
        let most = text.len().min(MAX_TEXT);
        let end = (0..=most).rev().find(|at| text.is_char_boundary(*at));
        to.raw(&text.as_bytes()[..end.unwrap_or(0)]);
    }
}
