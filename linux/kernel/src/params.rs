//! Boot parameters: those of the library, and the kernel's own.

use core::fmt;

use ptarmigan::addr::FRAME_SHIFT;
use ptarmigan::params::{ParamError, Params, Why};
use ptarmigan::space::{EmptyTables, Unmapping};

/// Bytes of a command line at the most.
const MOST: usize = 2048;

/// The text that the boot loader passed.
#[derive(Clone)]
pub struct CommandLine {
    bytes: [u8; MOST],
    len: usize,
}

/// The losses of a text that could not be taken as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misread {
    /// Bytes that were left out at the end.
    pub cut: usize,
    /// Pieces that are no UTF-8, each of which became a `?`.
    pub replaced: usize,
}

impl fmt::Display for Misread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cut {
            0 => {}
            cut => write!(f, "the last {cut} bytes are left out: {MOST} are taken, in whole words; ")?,
        }
        match self.replaced {
            0 => Ok(()),
            replaced => write!(f, "what is no UTF-8 was made `?` at {replaced} places; "),
        }
    }
}

impl CommandLine {
    /// Makes an empty one.
    pub const fn new() -> Self {
        CommandLine { bytes: [0; MOST], len: 0 }
    }

    /// Takes a text over. One that is too long is cut between words: a part of a word could mean
    /// something else. Bytes that are no UTF-8 become `?`.
    pub fn read(text: &[u8]) -> (Self, Option<Misread>) {
        let mut line = CommandLine::new();
        let kept = match text.get(..MOST) {
            Some(start) if text.len() > MOST && text[MOST] != b' ' => {
                start.iter().rposition(|byte| *byte == b' ').unwrap_or(0)
            }
            _ => text.len().min(MOST),
        };
        line.bytes[..kept].copy_from_slice(&text[..kept]);
        line.len = kept;
        let mut replaced = 0;
        while let Err(e) = core::str::from_utf8(line.bytes()) {
            let start = e.valid_up_to();
            let end = e.error_len().map_or(kept, |len| start + len);
            line.bytes[start..end].fill(b'?');
            replaced += 1;
        }
        let misread = Misread { cut: text.len() - kept, replaced };
        (line, (misread.cut + misread.replaced > 0).then_some(misread))
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Returns the text.
    pub fn text(&self) -> &str {
        core::str::from_utf8(self.bytes()).unwrap_or("")
    }
}

/// The word behind which all are process 1's.
pub(crate) const END: &str = "--";
/// Keys of the library's parameters.
pub(crate) const LIBRARY: [&str; 4] = ["quicklist", "tlb.model", "kmap.flush", "userpte"];

/// Returns the words of a text up to [`END`], each with the byte at which it begins.
fn words(text: &str) -> impl DoubleEndedIterator<Item = (usize, &str)> {
    let at = move |word: &str| word.as_ptr().addr() - text.as_ptr().addr();
    let end = text.split_ascii_whitespace().find(|word| *word == END).map_or(text.len(), at);
    let own = text.get(..end).unwrap_or(text);
    own.split_ascii_whitespace().map(move |word| (at(word), word))
}

/// Reads the library's parameters out of a command line; calls `wrong` with the error of each one
/// that it rejects, which has no effect. All other words are programs'.
pub fn library(text: &str, mut wrong: impl FnMut(ParamError<'_>)) -> Params {
    let mut params = Params::default();
    for (at, word) in words(text) {
        let key = word.split('=').next();
        if !LIBRARY.iter().any(|known| key == Some(known)) {
            continue;
        }
        match Params::parse(word) {
            Ok(parsed) => {
                params.magazine = parsed.magazine.or(params.magazine);
                params.flush = parsed.flush.or(params.flush);
                params.kmap = parsed.kmap.or(params.kmap);
                params.userpte = parsed.userpte.or(params.userpte);
            }
            Err(e) => wrong(ParamError { at: at + e.at, ..e }),
        }
    }
    params
}

/// Returns the value of the last `key=value` in a command line.
pub fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    value_at(text, key).map(|(_, value)| value)
}

fn value_at<'a>(text: &'a str, key: &str) -> Option<(usize, &'a str)> {
    words(text).rev().find_map(|(at, word)| {
        let value = word.strip_prefix(key)?.strip_prefix('=')?;
        Some((at + key.len() + 1, value))
    })
}

/// Returns the name in the last `key=name`, one of those in `names` (`"a, b"`), and its counterpart
/// in `values`.
///
/// # Errors
///
/// [`ParamError`] if it is no such name.
pub fn choice<'a, T: Copy>(
    text: &'a str,
    key: &str,
    names: &'static str,
    values: &[T],
) -> Result<Option<(&'static str, T)>, ParamError<'a>> {
    let Some((at, what)) = value_at(text, key) else { return Ok(None) };
    let mut all = names.split(", ").zip(values);
    match all.find(|(name, _)| *name == what) {
        Some((name, value)) => Ok(Some((name, *value))),
        None => Err(ParamError { at, what, why: Why::BadValue(names) }),
    }
}

/// Where programs have large pages, as Linux has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LargePolicy {
    /// Nowhere; advice for them is accepted.
    Never,
    /// Where they ask for them by `madvise`.
    Advised,
    /// In all private anonymous memory but stacks.
    Always,
}

/// Returns the policy of the last `transparent_hugepage=`; without one,
/// [`Never`](LargePolicy::Never).
///
/// # Errors
///
/// [`ParamError`] if the value is no policy.
pub fn large_pages(text: &str) -> Result<LargePolicy, ParamError<'_>> {
    const NAMES: &str = "never, madvise, always";
    let policies = [LargePolicy::Never, LargePolicy::Advised, LargePolicy::Always];
    let found = choice(text, "transparent_hugepage", NAMES, &policies)?;
    Ok(found.map_or(LargePolicy::Never, |(_, policy)| policy))
}

/// Returns which empty tables spaces give back, of the last `empty_tables=`; without one,
/// [`Kept`](EmptyTables::Kept), as Linux 6.1 does.
///
/// # Errors
///
/// [`ParamError`] if the value is none of those.
pub fn empty_tables(text: &str) -> Result<EmptyTables, ParamError<'_>> {
    const NAMES: &str = "kept, covered, freed";
    let all = [EmptyTables::Kept, EmptyTables::Covered, EmptyTables::Freed];
    let found = choice(text, "empty_tables", NAMES, &all)?;
    Ok(found.map_or(EmptyTables::Kept, |(_, empty)| empty))
}

/// How other CPUs are made to forget pages that a program has unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shootdown {
    /// Each of them is interrupted.
    Interrupt,
    /// By one instruction for all.
    Broadcast,
    /// They do it by themselves where programs may not tell, and are interrupted otherwise.
    Lazy,
}

impl Shootdown {
    /// Returns the machine's own way.
    pub const fn of_machine(broadcasts: bool) -> Self {
        if broadcasts { Shootdown::Broadcast } else { Shootdown::Interrupt }
    }

    /// Returns when other CPUs forget what a program unmaps.
    pub const fn unmapping(self) -> Unmapping {
        match self {
            Shootdown::Lazy => Unmapping::Deferred,
            _ => Unmapping::AtOnce,
        }
    }

    /// Returns the frames that each CPU may have parked: 4 MiB, or none.
    pub const fn park(self) -> u32 {
        if matches!(self, Shootdown::Lazy) { 1024 } else { 0 }
    }
}

/// Returns the way of the last `shootdown=`; without one, the machine's own, as Linux has it.
///
/// # Errors
///
/// [`ParamError`] if the machine, which broadcasts invalidations or does not, has no such way.
pub fn shootdown(text: &str, broadcasts: bool) -> Result<Shootdown, ParamError<'_>> {
    let found = if broadcasts {
        choice(text, "shootdown", "broadcast", &[Shootdown::Broadcast])
    } else {
        choice(text, "shootdown", "interrupt, lazy", &[Shootdown::Interrupt, Shootdown::Lazy])
    };
    Ok(found?.map_or(Shootdown::of_machine(broadcasts), |(_, way)| way))
}

/// Pages that a fault which reads a page of a file maps at most: those of Linux's 64 KiB.
pub const AROUND: u32 = 16;
/// The most bytes that [`fault_around`] takes: those of a leaf table.
const MOST_AROUND: u64 = 2 << 20;

/// Returns the pages that a fault which reads a page of a file maps at most, of the last
/// `fault_around_bytes=65536` or `fault_around_bytes=64K`; without one, [`AROUND`]. As on Linux, it
/// is rounded down to a power of two, and fewer bytes than two pages mean that page alone.
///
/// # Errors
///
/// [`ParamError`] if the value is no number of bytes up to 2 MiB.
pub fn fault_around(text: &str) -> Result<u32, ParamError<'_>> {
    let Some((at, what)) = value_at(text, "fault_around_bytes") else { return Ok(AROUND) };
    let (digits, unit) = what.strip_suffix('K').map_or((what, 1), |digits| (digits, 1024));
    match number(digits).map(|number| number * unit) {
        Some(bytes @ 1..=MOST_AROUND) => Ok(1 << (bytes >> FRAME_SHIFT).max(1).ilog2()),
        _ => Err(ParamError { at, what, why: Why::BadNumber(1, MOST_AROUND) }),
    }
}

/// Reads `clock=1700000000`: the time of the machine's clock at boot, in seconds since 1970; `None`
/// without one.
///
/// # Errors
///
/// [`ParamError`] if the value is no number of 32 bits.
pub fn clock(text: &str) -> Result<Option<u64>, ParamError<'_>> {
    let Some((at, what)) = value_at(text, "clock") else { return Ok(None) };
    let bad = ParamError { at, what, why: Why::BadNumber(0, u32::MAX.into()) };
    number(what).map(Some).ok_or(bad)
}

/// Returns a number of digits alone; `None` for one of more than 32 bits.
fn number(digits: &str) -> Option<u64> {
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { digits.parse::<u32>().ok().map(u64::from) } else { None }
}

/// Returns the bytes that the last `key=48M` says, which is 48 MiB.
///
/// # Errors
///
/// [`ParamError`] if it is no number of MiB from 1 to 2^32 - 1.
pub fn mebibytes<'a>(text: &'a str, key: &str) -> Result<Option<u64>, ParamError<'a>> {
    let Some((at, what)) = value_at(text, key) else { return Ok(None) };
    let digits = what.strip_suffix('M').unwrap_or(what);
    match number(digits) {
        Some(mib @ 1..) => Ok(Some(mib << 20)),
        _ => Err(ParamError { at, what, why: Why::BadNumber(1, u32::MAX.into()) }),
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::ToOwned;
    use std::format;
    use std::vec::Vec;

    use ptarmigan::params::UserPte;

    use super::*;

    #[test]
    fn a_short_line_stays_as_it_is() {
        let (line, misread) = CommandLine::read("init=/bin/sh \u{e4}=1".as_bytes());
        assert_eq!((line.text(), misread), ("init=/bin/sh \u{e4}=1", None));
        let whole = [b'x'; MOST];
        let (line, misread) = CommandLine::read(&whole);
        assert_eq!((line.bytes(), misread), (&whole[..], None));
    }

    #[test]
    fn a_long_line_is_cut_between_words() {
        for len in MOST + 1..MOST + 20 {
            let text = "word=1234 ".repeat(len / 10 + 1);
            let (line, misread) = CommandLine::read(&text.as_bytes()[..len]);
            assert!(line.text().split(' ').all(|word| word == "word=1234" || word.is_empty()));
            assert!(line.len > MOST - 10);
            assert_eq!(misread, Some(Misread { cut: len - line.len, replaced: 0 }));
        }
        let (line, misread) = CommandLine::read(&[b'x'; 4096]);
        assert_eq!((line.text(), misread), ("", Some(Misread { cut: 4096, replaced: 0 })));
    }

    #[test]
    fn what_is_no_text_is_replaced_and_the_rest_stays() {
        let (line, misread) = CommandLine::read(b"a=\xff\xfe init=/x \xe4\xe4");
        assert_eq!(line.text(), "a=?? init=/x ??");
        assert_eq!(misread, Some(Misread { cut: 0, replaced: 4 }));
        let (line, _) = CommandLine::read(b"a=\xf0\x9f\x92");
        assert_eq!(line.text(), "a=???");
        for byte in 0..=u8::MAX {
            let (line, _) = CommandLine::read(&[byte; 3000]);
            assert_eq!(line.text().len(), line.len);
        }
    }

    #[test]
    fn a_wrong_parameter_is_named_and_changes_nothing() {
        let mut wrong = Vec::new();
        let text = "init=/x userpte=nohigh  userpte=maybe quicklist=on,magazine=99 tlb.model userptes=1";
        let params = library(text, |e| wrong.push((e.at, e.what.to_owned())));
        let places = [(32, "maybe"), (60, "99"), (63, "tlb.model")];
        assert!(wrong.iter().map(|(at, what)| (*at, what.as_str())).eq(places), "{wrong:?}");
        assert_eq!(params, Params { userpte: Some(UserPte::NoHigh), ..Params::default() });
    }

    #[test]
    fn the_last_value_counts() {
        assert_eq!(value("init=/a init=/b initial=/c", "init"), Some("/b"));
        assert_eq!(value("init", "init"), None);
        assert_eq!(value("init=", "init"), Some(""));
        // Words behind the end are process 1's.
        assert_eq!(value("init=/a -- init=/b", "init"), Some("/a"));
        assert_eq!(value("-- init=/b", "init"), None);
    }

    #[test]
    fn programs_have_no_large_pages_unless_the_line_says_so() {
        assert_eq!(large_pages("init=/x"), Ok(LargePolicy::Never));
        assert_eq!(large_pages("transparent_hugepage=madvise"), Ok(LargePolicy::Advised));
        let twice = "transparent_hugepage=never transparent_hugepage=always";
        assert_eq!(large_pages(twice), Ok(LargePolicy::Always));
        let wrong = large_pages("transparent_hugepage=yes").map_err(|e| (e.at, e.what));
        assert_eq!(wrong, Err((21, "yes")));
    }

    #[test]
    fn empty_tables_stay_unless_the_line_says_otherwise() {
        assert_eq!(empty_tables("init=/x"), Ok(EmptyTables::Kept));
        assert_eq!(empty_tables("empty_tables=covered"), Ok(EmptyTables::Covered));
        assert_eq!(empty_tables("empty_tables=kept empty_tables=freed"), Ok(EmptyTables::Freed));
        let wrong = empty_tables("empty_tables=no").map_err(|e| (e.at, e.what));
        assert_eq!(wrong, Err((13, "no")));
    }

    #[test]
    fn cpus_are_interrupted_by_default() {
        assert_eq!(shootdown("init=/x", false), Ok(Shootdown::Interrupt));
        assert_eq!(shootdown("init=/x", true), Ok(Shootdown::Broadcast));
        assert_eq!(shootdown("shootdown=interrupt shootdown=lazy", false), Ok(Shootdown::Lazy));
        assert_eq!(shootdown("shootdown=broadcast", true), Ok(Shootdown::Broadcast));
        for (way, broadcasts) in [("broadcast", false), ("lazy", true), ("interrupt", true), ("no", false)] {
            let text = format!("shootdown={way}");
            assert_eq!(shootdown(&text, broadcasts).map_err(|e| (e.at, e.what)), Err((10, way)));
        }
        assert_eq!((Shootdown::Interrupt.park(), Shootdown::Lazy.park()), (0, 1024));
    }

    #[test]
    fn pages_around_a_fault_are_a_power_of_two() {
        fn pages(text: &str) -> Result<u32, (usize, &str)> {
            fault_around(text).map_err(|e| (e.at, e.what))
        }
        assert_eq!(pages("init=/x"), Ok(AROUND));
        assert_eq!(pages("fault_around_bytes=4096 fault_around_bytes=32768"), Ok(8));
        for (bytes, wanted) in [("1", 1), ("4096", 1), ("8191", 1), ("8192", 2), ("64K", 16), ("100K", 16)] {
            let text = format!("fault_around_bytes={bytes}");
            assert_eq!(pages(&text), Ok(wanted), "{bytes}");
        }
        assert_eq!(pages("fault_around_bytes=2048K"), Ok(512));
        for bad in ["", "K", "0", "+1", "-1", "64k", "1M", "2049K", "2097153", "4294967296", "4294967295K"] {
            let text = format!("a fault_around_bytes={bad}");
            assert_eq!(pages(&text), Err((21, bad)));
        }
    }

    #[test]
    fn a_choice_is_one_of_its_names() {
        fn choose(text: &str) -> Result<Option<(&'static str, i32)>, ParamError<'_>> {
            choice(text, "kmap", "local, linux-2.4", &[1, 2])
        }
        assert_eq!(choose("kmap=linux-2.4"), Ok(Some(("linux-2.4", 2))));
        assert_eq!(choose("kmap=linux-2.4 kmap=local kmap.flush=run"), Ok(Some(("local", 1))));
        assert_eq!(choose("kmaps=local"), Ok(None));
        for bad in ["", "linux", "local,", "local, linux-2.4"] {
            let text = format!("a kmap={bad}");
            let e = choose(&text).expect_err(bad);
            assert_eq!((e.at, e.what), (7, bad.split(' ').next().unwrap()));
        }
    }

    #[test]
    fn mebibytes_are_a_number_and_nothing_else() {
        assert_eq!(mebibytes("low=1 low=48M", "low"), Ok(Some(48 << 20)));
        assert_eq!(mebibytes("low=48", "low"), Ok(Some(48 << 20)));
        assert_eq!(mebibytes("slow=48", "low"), Ok(None));
        for bad in ["", "M", "0", "0M", "+1", "-1", "1K", "1MM", "4294967296", "99999999999999999999M"] {
            let text = format!("a low={bad}");
            let e = mebibytes(&text, "low").expect_err(bad);
            assert_eq!((e.at, e.what), (6, bad));
        }
    }
}
