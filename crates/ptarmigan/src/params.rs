//! Boot parameters: one strict grammar for kernels, hosted machines and the command.
//!
//! ```text
//! parameters = [ parameter { space parameter } ]
//! parameter  = key "=" value { "," option }
//! option     = name "=" value
//! ```
//!
//! Keys and names are made of lower-case letters, digits, `.` and `-`; values of any characters but
//! spaces, `,` and `=`. A key that is given twice, an unknown key or option and a malformed value
//! are errors, which name the position; the caller's old values stay then.
//!
//! | key | values | options |
//! |---|---|---|
//! | `userpte` | `nohigh`, `high`, `auto` | with `auto`: `beta`, `reserve`, `margin`, `share`, in percent of low memory, 1 to 100; see [`AutoParams`] |
//! | `quicklist` | `off`, `on` | `magazine`: pages in a CPU's magazine, 1 to 64 |
//! | `kmap.flush` | `auto`, `page`, `run`, `window`, `full` | |
//! | `tlb.model` | `linux`, `always-page`, `always-full` | with `linux`, `ceiling`: pages that are flushed one by one at most |
//!
//! ```
//! use ptarmigan::params::{Params, FlushModel};
//!
//! let params = Params::parse("quicklist=on,magazine=16 tlb.model=linux,ceiling=8")?;
//! assert_eq!(params.magazine, Some(16));
//! assert_eq!(params.flush, Some(FlushModel::Ceiling(8)));
//!
//! let error = Params::parse("quicklist=on userpte=maybe").unwrap_err();
//! assert_eq!(error.to_string(), "value `maybe` at byte 21 is none of nohigh, high, auto");
//! # Ok::<(), ptarmigan::params::ParamError<'static>>(())
//! ```
use core::fmt;

/// The values of the parameters; `None` for a parameter that is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Params {
    /// Pages in a CPU's magazine: 0 turns caching off. From `quicklist=`.
    pub magazine: Option<u8>,
    /// When whole spaces are flushed. From `tlb.model=`.
    pub flush: Option<FlushModel>,
    /// Where leaf tables of user space are placed. From `userpte=`.
    pub userpte: Option<UserPte>,
    /// How sweeps of a pool's slots have them forgotten. From `kmap.flush=`.
    pub kmap: Option<SlotFlush>,
}

/// Where leaf tables of user space are placed, on machines with high memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UserPte {
    /// In low memory.
    NoHigh,
    /// In high memory while any is free (the default).
    #[default]
    High,
    /// In low memory unless it runs short.
    Auto(AutoParams),
}

/// When low memory is short for `userpte=auto`, each in percent of all low memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutoParams {
    /// The most that tables may take. From `beta=`.
    pub beta: u8,
    /// The memory that tables leave free, whatever accesses to high tables cost. From `reserve=`.
    pub reserve: u8,
    /// The memory left free above the reserve, where accesses to high tables cost less than the
    /// memory is worth. From `margin=`.
    pub margin: u8,
    /// Leaf tables of one space, beyond which it prefers high memory. From `share=`.
    pub share: u8,
}

impl Default for AutoParams {
    fn default() -> Self {
        AutoParams { beta: 25, reserve: 5, margin: 10, share: 10 }
    }
}

/// When a flush of single pages becomes a flush of the whole space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushModel {
    /// Above this number of pages. Linux's is 33.
    Ceiling(u64),
    /// Always.
    AlwaysFull,
    /// Never, where the hardware can name pages.
    AlwaysPage,
}

/// How a sweep of a pool of slots has the stale ones forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlotFlush {
    /// As is cheapest by the machine's cost model.
    #[default]
    Auto,
    /// Page by page.
    Page,
    /// Run by run.
    Run,
    /// As one range, from the first stale slot to the last.
    Window,
    /// With everything else, as Linux does.
    Full,
}

/// Linux's ceiling, in pages.
pub const LINUX_CEILING: u64 = 33;

/// Pages that a CPU's magazine can have.
const MAGAZINE: u64 = 64;

/// The fault of a text of parameters, with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamError<'a> {
    /// The byte at which `what` begins, from 0.
    pub at: usize,
    /// The text that is wrong.
    pub what: &'a str,
    /// Why.
    pub why: Why,
}

/// Why a parameter was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// There is no parameter of that name.
    UnknownKey,
    /// It is an option of this parameter, and stands behind it.
    OptionOf(&'static str),
    /// It was given before.
    Twice,
    /// It has no `=value`.
    NoValue,
    /// The value is unknown; the field lists the accepted ones.
    BadValue(&'static str),
    /// The parameter, with this value, takes no such option; it takes these.
    UnknownOption(&'static str),
    /// The number is not one, or lies outside of these bounds.
    BadNumber(u64, u64),
}

impl fmt::Display for ParamError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ParamError { at, what, why } = self;
        match why {
            Why::UnknownKey => write!(f, "parameter `{what}` at byte {at} is not known"),
            Why::OptionOf(of) => {
                write!(f, "`{what}` at byte {at} is an option of {of}: write {of},{what}=N")
            }
            Why::Twice => write!(f, "parameter `{what}` at byte {at} was given before"),
            Why::NoValue => write!(f, "`{what}` at byte {at} has no value: write name=value"),
            Why::BadValue(all) => write!(f, "value `{what}` at byte {at} is none of {all}"),
            Why::UnknownOption("") => {
                write!(f, "option `{what}` at byte {at} is not known: there is none here")
            }
            Why::UnknownOption(all) => write!(f, "option `{what}` at byte {at} is not known: there is {all}"),
            Why::BadNumber(least, most) => {
                write!(f, "`{what}` at byte {at} is no number from {least} to {most}")
            }
        }
    }
}

impl core::error::Error for ParamError<'_> {}

/// A piece of the text, with its place.
#[derive(Clone, Copy)]
struct Piece<'a> {
    at: usize,
    text: &'a str,
}

impl<'a> Piece<'a> {
    fn error(self, why: Why) -> ParamError<'a> {
        ParamError { at: self.at, what: self.text, why }
    }

    /// The pieces between separators.
    fn split(self, separator: char) -> impl Iterator<Item = Piece<'a>> {
        let mut at = self.at;
        self.text.split(separator).map(move |text| {
            let piece = Piece { at, text };
            at += text.len() + separator.len_utf8();
            piece
        })
    }

    /// The two sides of a `name=value`.
    fn pair(self) -> Result<(Piece<'a>, Piece<'a>), ParamError<'a>> {
        let (name, value) = self.text.split_once('=').ok_or(self.error(Why::NoValue))?;
        if name.is_empty() || value.is_empty() || value.contains('=') {
            return Err(self.error(Why::NoValue));
        }
        let value_at = self.at + name.len() + 1;
        Ok((Piece { at: self.at, text: name }, Piece { at: value_at, text: value }))
    }

    fn number(self, least: u64, most: u64) -> Result<u64, ParamError<'a>> {
        // `parse` takes a leading `+`, the grammar does not.
        let digits = self.text.bytes().all(|b| b.is_ascii_digit());
        let number = if digits { self.text.parse().ok() } else { None };
        number.filter(|n| (least..=most).contains(n)).ok_or(self.error(Why::BadNumber(least, most)))
    }
}

impl Params {
    /// Reads a text of parameters.
    ///
    /// # Errors
    ///
    /// [`ParamError`]: the first thing that is wrong.
    pub fn parse(text: &str) -> Result<Self, ParamError<'_>> {
        let mut params = Params::default();
        for parameter in (Piece { at: 0, text }).split(' ').filter(|piece| !piece.text.is_empty()) {
            let mut parts = parameter.split(',');
            let Some(first) = parts.next() else { continue };
            let (key, value) = first.pair()?;
            match key.text {
                "quicklist" if params.magazine.is_some() => return Err(key.error(Why::Twice)),
                "quicklist" => params.magazine = Some(quicklist(value, parts)?),
                "tlb.model" if params.flush.is_some() => return Err(key.error(Why::Twice)),
                "tlb.model" => params.flush = Some(flush_model(value, parts)?),
                "userpte" if params.userpte.is_some() => return Err(key.error(Why::Twice)),
                "userpte" => params.userpte = Some(userpte(value, parts)?),
                "kmap.flush" if params.kmap.is_some() => return Err(key.error(Why::Twice)),
                "kmap.flush" => params.kmap = Some(slot_flush(value, parts)?),
                "magazine" => return Err(key.error(Why::OptionOf("quicklist=on"))),
                "ceiling" => return Err(key.error(Why::OptionOf("tlb.model=linux"))),
                "beta" | "reserve" | "margin" | "share" => {
                    return Err(key.error(Why::OptionOf("userpte=auto")));
                }
                _ => return Err(key.error(Why::UnknownKey)),
            }
        }
        Ok(params)
    }
}

fn userpte<'a>(
    value: Piece<'a>,
    options: impl Iterator<Item = Piece<'a>>,
) -> Result<UserPte, ParamError<'a>> {
    const OPTIONS: &str = "beta, reserve, margin, share";
    let mut placed = match value.text {
        "nohigh" => UserPte::NoHigh,
        "high" => UserPte::High,
        "auto" => UserPte::Auto(AutoParams::default()),
        _ => return Err(value.error(Why::BadValue("nohigh, high, auto"))),
    };
    for option in options {
        let (name, number) = option.pair()?;
        let UserPte::Auto(auto) = &mut placed else { return Err(name.error(Why::UnknownOption(""))) };
        let part = match name.text {
            "beta" => &mut auto.beta,
            "reserve" => &mut auto.reserve,
            "margin" => &mut auto.margin,
            "share" => &mut auto.share,
            _ => return Err(name.error(Why::UnknownOption(OPTIONS))),
        };
        *part = number.number(1, 100)? as u8;
    }
    Ok(placed)
}

fn quicklist<'a>(value: Piece<'a>, options: impl Iterator<Item = Piece<'a>>) -> Result<u8, ParamError<'a>> {
    let on = match value.text {
        "on" => true,
        "off" => false,
        _ => return Err(value.error(Why::BadValue("on, off"))),
    };
    let mut magazine = if on { MAGAZINE } else { 0 };
    for option in options {
        match option.pair()? {
            (name, number) if on && name.text == "magazine" => magazine = number.number(1, MAGAZINE)?,
            (name, _) => return Err(name.error(Why::UnknownOption(if on { "magazine" } else { "" }))),
        }
    }
    Ok(magazine as u8)
}

fn slot_flush<'a>(
    value: Piece<'a>,
    mut options: impl Iterator<Item = Piece<'a>>,
) -> Result<SlotFlush, ParamError<'a>> {
    let flush = match value.text {
        "auto" => SlotFlush::Auto,
        "page" => SlotFlush::Page,
        "run" => SlotFlush::Run,
        "window" => SlotFlush::Window,
        "full" => SlotFlush::Full,
        _ => return Err(value.error(Why::BadValue("auto, page, run, window, full"))),
    };
    match options.next() {
        Some(option) => Err(option.pair()?.0.error(Why::UnknownOption(""))),
        None => Ok(flush),
    }
}

fn flush_model<'a>(
    value: Piece<'a>,
    options: impl Iterator<Item = Piece<'a>>,
) -> Result<FlushModel, ParamError<'a>> {
    let mut model = match value.text {
        "linux" => FlushModel::Ceiling(LINUX_CEILING),
        "always-page" => FlushModel::AlwaysPage,
        "always-full" => FlushModel::AlwaysFull,
        _ => return Err(value.error(Why::BadValue("linux, always-page, always-full"))),
    };
    for option in options {
        let (name, number) = option.pair()?;
        match model {
            FlushModel::Ceiling(_) if name.text == "ceiling" => {
                model = FlushModel::Ceiling(number.number(0, u64::from(u32::MAX))?);
            }
            FlushModel::Ceiling(_) => return Err(name.error(Why::UnknownOption("ceiling"))),
            _ => return Err(name.error(Why::UnknownOption(""))),
        }
    }
    Ok(model)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> (usize, &str, Why) {
        let ParamError { at, what, why } = Params::parse(text).expect_err(text);
        (at, what, why)
    }

    #[test]
    fn what_is_not_said_is_none() {
        assert_eq!(Params::parse(""), Ok(Params::default()));
        assert_eq!(Params::parse("   "), Ok(Params::default()));
        let one = Params::parse(" quicklist=off ").expect("one parameter");
        assert_eq!((one.magazine, one.flush), (Some(0), None));
    }

    #[test]
    fn tables_are_placed_as_before_by_default() {
        let placed = |text| Params::parse(text).expect(text).userpte;
        assert_eq!(placed(""), None);
        assert_eq!(UserPte::default(), UserPte::High);
        assert_eq!(placed("userpte=nohigh"), Some(UserPte::NoHigh));
        assert_eq!(placed("userpte=high"), Some(UserPte::High));
        assert_eq!(placed("userpte=auto"), Some(UserPte::Auto(AutoParams::default())));
        let auto = AutoParams { beta: 50, reserve: 1, ..AutoParams::default() };
        assert_eq!(placed("userpte=auto,reserve=1,beta=50"), Some(UserPte::Auto(auto)));
    }

    #[test]
    fn each_error_names_its_place() {
        assert_eq!(error("quicklists=on"), (0, "quicklists", Why::UnknownKey));
        assert_eq!(error("magazine=9"), (0, "magazine", Why::OptionOf("quicklist=on")));
        assert_eq!(error("quicklist=on ceiling=3"), (13, "ceiling", Why::OptionOf("tlb.model=linux")));
        for option in ["beta=1", "reserve=1", "margin=1", "share=1"] {
            assert_eq!(error(option).2, Why::OptionOf("userpte=auto"), "{option}");
        }
        let alone = Params::parse("magazine=9").expect_err("an option alone");
        assert_eq!(
            alone.to_string(),
            "`magazine` at byte 0 is an option of quicklist=on: write quicklist=on,magazine=N"
        );
        assert_eq!(error("quicklist=on quicklist=off"), (13, "quicklist", Why::Twice));
        assert_eq!(error("quicklist"), (0, "quicklist", Why::NoValue));
        assert_eq!(error("quicklist="), (0, "quicklist=", Why::NoValue));
        assert_eq!(error("=on"), (0, "=on", Why::NoValue));
        assert_eq!(error("quicklist=a=b"), (0, "quicklist=a=b", Why::NoValue));
        assert_eq!(error("quicklist=On"), (10, "On", Why::BadValue("on, off")));
        assert_eq!(error("quicklist=on,size=3"), (13, "size", Why::UnknownOption("magazine")));
        assert_eq!(error("quicklist=off,magazine=3"), (14, "magazine", Why::UnknownOption("")));
        assert_eq!(error("quicklist=on,magazine=65"), (22, "65", Why::BadNumber(1, 64)));
        assert_eq!(error("quicklist=on,magazine=+5"), (22, "+5", Why::BadNumber(1, 64)));
        assert_eq!(
            error("quicklist=on,magazine=99999999999999999999"),
            (22, "99999999999999999999", Why::BadNumber(1, 64))
        );
        assert_eq!(error("quicklist=on,"), (13, "", Why::NoValue));
        assert_eq!(error("tlb.model=always-full,ceiling=3"), (22, "ceiling", Why::UnknownOption("")));
        assert_eq!(error("kmap.flush=range"), (11, "range", Why::BadValue("auto, page, run, window, full")));
        assert_eq!(error("kmap.flush=page,size=3"), (16, "size", Why::UnknownOption("")));
        assert_eq!(error("kmap.flush=page kmap.flush=page"), (16, "kmap.flush", Why::Twice));
        assert_eq!(error("userpte=low"), (8, "low", Why::BadValue("nohigh, high, auto")));
        assert_eq!(error("userpte=high,beta=3"), (13, "beta", Why::UnknownOption("")));
        assert_eq!(error("userpte=auto,beta=0"), (18, "0", Why::BadNumber(1, 100)));
        assert_eq!(
            error("userpte=auto,alpha=5"),
            (13, "alpha", Why::UnknownOption("beta, reserve, margin, share"))
        );
        assert_eq!(error("userpte=auto userpte=auto"), (13, "userpte", Why::Twice));
    }

    #[test]
    fn no_text_makes_it_panic() {
        // Every byte, wherever the grammar has a meaning.
        for place in [
            "@quicklist=on",
            "quicklist@=on",
            "quicklist=@",
            "quicklist=on,@",
            "tlb.model=linux,ceiling=@",
            "userpte=auto,beta=@",
            "kmap.flush=@",
        ] {
            for byte in 0..=0x17fu32 {
                let Some(c) = char::from_u32(byte) else { continue };
                let text: std::string::String = place.chars().map(|p| if p == '@' { c } else { p }).collect();
                if let Err(e) = Params::parse(&text) {
                    assert_eq!(&text[e.at..e.at + e.what.len()], e.what, "{text:?}");
                }
            }
        }
    }
}
