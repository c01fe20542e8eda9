//! Boot parameters: those of the library, and the kernel's own.

use ptarmigan::params::Params;

use crate::without;

/// Bytes of a command line at the most; what is longer is cut.
const MOST: usize = 1024;

/// The text that the boot loader passed.
pub struct CommandLine {
    bytes: [u8; MOST],
    len: usize,
}

impl CommandLine {
    /// Makes an empty one.
    pub const fn new() -> Self {
        CommandLine { bytes: [0; MOST], len: 0 }
    }

    /// Copies a text.
    pub fn set(&mut self, text: &[u8]) {
        let n = text.len().min(MOST);
        self.bytes[..n].copy_from_slice(&text[..n]);
        self.len = n;
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Returns the text; an empty one if it is not UTF-8.
    pub fn text(&self) -> &str {
        core::str::from_utf8(self.bytes()).unwrap_or("")
    }
}

impl Default for CommandLine {
    fn default() -> Self {
        CommandLine::new()
    }
}

/// Keys of the library's parameters.
const LIBRARY: [&str; 4] = ["quicklist=", "tlb.model=", "kmap.flush=", "userpte="];

/// Reads the library's parameters out of a command line; calls `wrong` with each word that is
/// meant for it and that it does not take. All other words are programs'.
pub fn library(text: &str, mut wrong: impl FnMut(&str)) -> Params {
    without::read(text);
    let mut params = Params::default();
    for word in text.split_ascii_whitespace() {
        if !LIBRARY.iter().any(|key| word.starts_with(key)) {
            continue;
        }
        match Params::parse(word) {
            Ok(parsed) => {
                params.magazine = parsed.magazine.or(params.magazine);
                params.flush = parsed.flush.or(params.flush);
                params.kmap = parsed.kmap.or(params.kmap);
                params.userpte = parsed.userpte.or(params.userpte);
            }
            Err(_) => wrong(word),
        }
    }
    params
}

/// Returns the value of the last `key=value` in a command line.
pub fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.split_ascii_whitespace().rev().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}
