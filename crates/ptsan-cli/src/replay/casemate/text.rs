//! Splits the text of a trace into records: expressions in parentheses, perhaps over several lines.
use std::fmt;
use std::io::{self, BufRead};

/// The most bytes of one record.
const MOST_BYTES: usize = 4096;

/// The reason why the text cannot be read any further.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TextError {
    /// The line, counted from 1.
    pub(super) line: u64,
    /// The form that was expected, and the text that was found.
    pub(super) what: String,
}

impl TextError {
    pub(super) fn new(line: u64, what: impl Into<String>) -> Self {
        Self { line, what: what.into() }
    }
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

/// A part of a record: a word or a text in quotes, alone or behind a key as in `(key value)`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) key: Option<String>,
    pub(super) value: String,
    pub(super) quoted: bool,
}

/// A record as it is written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Expression {
    /// The line on which it begins.
    pub(super) line: u64,
    pub(super) items: Vec<Item>,
}

/// A token, without white space.
#[derive(Debug, PartialEq, Eq)]
enum Token {
    Open,
    Close,
    Word(String),
    Text(String),
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open => f.write_str("'('"),
            Self::Close => f.write_str("')'"),
            Self::Word(word) => write!(f, "'{word}'"),
            Self::Text(text) => write!(f, "\"{text}\""),
        }
    }
}

/// Reads expressions from a stream.
pub(super) struct Expressions<R> {
    from: R,
    line: u64,
    bytes: u64,
    /// The bytes of the expression so far.
    length: usize,
    /// The lines that begin with `!`: verdicts of Casemate.
    pub(super) verdicts: Vec<String>,
}

impl<R: BufRead> Expressions<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, line: 1, bytes: 0, length: 0, verdicts: Vec::new() }
    }

    /// Returns how many bytes were read.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the next expression, or `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Expression>, TextError> {
        self.length = 0;
        loop {
            match self.blank()? {
                None => return Ok(None),
                Some(b'!') => {
                    let verdict = self.rest_of_line()?;
                    if self.verdicts.len() < 16 {
                        self.verdicts.push(verdict);
                    }
                }
                Some(_) => break,
            }
        }
        self.length = 0;
        let line = self.line;
        match self.token()? {
            Token::Open => {}
            other => return Err(self.expected("'(' and the name of a record", &other)),
        }
        let mut items = Vec::new();
        loop {
            match self.token()? {
                Token::Close => return Ok(Some(Expression { line, items })),
                Token::Open => items.push(self.pair()?),
                Token::Word(value) => items.push(Item { key: None, value, quoted: false }),
                Token::Text(value) => items.push(Item { key: None, value, quoted: true }),
            }
        }
    }

    /// Reads a field behind its parenthesis.
    fn pair(&mut self) -> Result<Item, TextError> {
        let key = match self.token()? {
            Token::Word(key) => Some(key),
            other => return Err(self.expected("the name of a field", &other)),
        };
        let (value, quoted) = match self.token()? {
            Token::Word(value) => (value, false),
            Token::Text(value) => (value, true),
            other => return Err(self.expected("the value of a field", &other)),
        };
        match self.token()? {
            Token::Close => Ok(Item { key, value, quoted }),
            other => Err(self.expected("')' behind the value of a field", &other)),
        }
    }

    fn expected(&self, what: &str, found: &Token) -> TextError {
        TextError::new(self.line, format!("expected {what}, found {found}"))
    }

    fn token(&mut self) -> Result<Token, TextError> {
        match self.blank()? {
            None => {
                Err(TextError::new(self.line, "the log ends in the middle of a record; a ')' is missing"))
            }
            Some(b'(') => self.take().map(|()| Token::Open),
            Some(b')') => self.take().map(|()| Token::Close),
            Some(b'"') => {
                self.take()?;
                let text = self.until(|byte| byte == b'"')?;
                match self.peek()? {
                    Some(_) => self.take().map(|()| Token::Text(text)),
                    None => Err(TextError::new(self.line, "the log ends in a text; a '\"' is missing")),
                }
            }
            Some(_) => {
                let ends = |byte: u8| byte.is_ascii_whitespace() || matches!(byte, b'(' | b')' | b'"');
                self.until(ends).map(Token::Word)
            }
        }
    }

    /// Skips white space, and returns the byte behind it.
    fn blank(&mut self) -> Result<Option<u8>, TextError> {
        loop {
            match self.peek()? {
                Some(byte) if byte.is_ascii_whitespace() => self.take()?,
                other => return Ok(other),
            }
        }
    }

    fn rest_of_line(&mut self) -> Result<String, TextError> {
        self.take()?;
        self.until(|byte| byte == b'\n').map(|text| text.trim().to_owned())
    }

    fn until(&mut self, ends: impl Fn(u8) -> bool) -> Result<String, TextError> {
        let mut bytes = Vec::new();
        while let Some(byte) = self.peek()?.filter(|byte| !ends(*byte)) {
            bytes.push(byte);
            self.take()?;
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn peek(&mut self) -> Result<Option<u8>, TextError> {
        loop {
            match self.from.fill_buf() {
                Ok(buffer) => return Ok(buffer.first().copied()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(TextError::new(self.line, e.to_string())),
            }
        }
    }

    /// Takes the byte that [`Self::peek`] returned.
    fn take(&mut self) -> Result<(), TextError> {
        if self.peek()? == Some(b'\n') {
            self.line += 1;
        }
        self.from.consume(1);
        self.bytes += 1;
        self.length += 1;
        if self.length > MOST_BYTES {
            return Err(TextError::new(self.line, format!("a record of more than {MOST_BYTES} bytes")));
        }
        Ok(())
    }
}
